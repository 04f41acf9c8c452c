"""The command `rmqha pipeline`: every job as users run it, and each error as they see it."""
import json
import os
import signal
import subprocess
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.client.contexts import Context, Contexts, write_contexts
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.pipeline import pipeline_command, spark_start
from rmqha.pipeline.archive import archive_table as replay_job
from rmqha.pipeline.format_options import PipelineError, check_file, check_folder, local_path
from rmqha.pipeline.job_command import told
from rmqha.pipeline.worker import briefly, first_line, told_by_spark, told_by_task
from rmqha.tools.rmqha_command import rmqha
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.store import support
from tests.support import start_as
from tests.support.ports import free_port
from tests.support.processes import has_ended
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# The command `rmqha pipeline`: every job as users run it, in the session of the tests.


@pytest.fixture
def run(spark, monkeypatch):
    """run(*args) -> the result of `rmqha pipeline ...`, which does not stop the session of the tests."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    from contextlib import nullcontext
    monkeypatch.setattr(pipeline_command, "session", lambda master, memory: nullcontext(spark))

    def call(*args):
        result = CliRunner().invoke(rmqha, ["pipeline", *map(str, args)])
        assert result.exception is None or isinstance(result.exception, SystemExit), str(result.exception)
        return result
    return call


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("command") / "store"
    with support.open_store(root) as running:
        for number in range(60):
            support.put(running, support.message(f"T{number % 2}", 0, b"x" * number, KEYS=f"k{number % 7}", TAGS="a"))
        support.wait_dispatched(running)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T0@readers":{0:10}}}')
    return root


def test_audit_prints_equal_or_the_differences(run, store, tmp_path):
    result = run("audit", store, store)
    assert result.exit_code == 0 and "60 messages\n  equal" in result.output
    with support.open_store(tmp_path / "slave"):
        result = run("audit", store, tmp_path / "slave", "-o", "json")
    found, = json.loads(result.output)
    assert result.exit_code == 1 and found["problems"] and found["messages"] == 0


def test_audit_gets_stores_from_the_name_server(run, servers):
    result = run("audit", "-n", servers.namesrv)
    assert result.exit_code == 0 and "note broker-a has no slave now: its master is 127.0.0.1:" in result.output
    assert json.loads(run("audit", "-n", servers.namesrv, "-o", "json").stdout) == []
    nobody = run("audit", "-n", "127.0.0.1:1")
    assert nobody.exit_code == 2 and nobody.output.startswith("Error: name server 127.0.0.1:1: ")
    for args in ((), ("/tmp",)):
        result = run("audit", *args)
        assert result.exit_code == 2 and "give MASTER_STORE and SLAVE_STORE" in result.output


def test_rebuild_compares_with_existing_files(run, store, tmp_path):
    result = run("rebuild", store, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "60 entries in 2 files of 2 queues, 60 keys in 1 index files" in result.output
    assert "the store's queues and index are equal" in result.output
    again = run("rebuild", store, "--out", tmp_path / "out")
    assert again.exit_code == 2 and "already has files" in again.output


def test_archive_and_restore_reproduce_the_log(run, store, tmp_path):
    assert "60 messages, offsets 0 to" in run("archive", store, tmp_path / "archive").output
    assert "nothing new since offset" in run("archive", store, tmp_path / "archive").output
    assert "60 messages and" in (result := run("verify", tmp_path / "archive")).output
    assert result.exit_code == 0 and "the archive is complete" in result.output
    assert "is not a valid time" in run("restore", tmp_path / "archive", tmp_path / "out", "--until", "soon").output
    assert "give OUT, or --topic" in run("restore", tmp_path / "archive").output
    result = run("restore", tmp_path / "archive", tmp_path / "out", "--until", "2100-01-01")
    assert result.exit_code == 0 and "every CRC matches the manifests" in result.output
    name = f"{0:020d}"
    assert (tmp_path / "out" / "commitlog" / name).read_bytes() == (store / "commitlog" / name).read_bytes()


def test_report_is_a_self_contained_page(run, store, tmp_path):
    result = run("report", store, tmp_path / "page.html", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["messages"] == 60 and sum(count for _, count in found["sizes"]) == 60
    backlog, = found["backlog"]
    assert (backlog["topic"], backlog["group"], backlog["messages"], backlog["lost"]) == ("T0", "readers", 20, 0)
    assert found["topicCount"] == 2 and not found["hottest"]  # 7 keys with the same number of uses
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "T1" in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_replay_sends_the_selected_messages(run, spark, store, servers):
    with DefaultMQProducer("maker", servers.namesrv) as producer:
        producer.send(Message("ReplayedHere", b"first"))
    options = ("-n", servers.namesrv, "--to", "ReplayedHere", "--subscribe", "T1", "--where", "keys = 'k1'")
    assert "chosen, nothing sent" in run("replay", store, *options, "--dry-run").output
    result = run("replay", store, *options)
    wanted = [number for number in range(1, 60, 2) if number % 7 == 1]
    assert result.exit_code == 0 and f"{len(wanted)} messages sent" in result.output
    rows = spark.read.format("rocketmq").options(nameServer=servers.namesrv, topic="ReplayedHere").load().collect()
    assert sorted(len(row.body) for row in rows) == sorted([5, *wanted])
    assert "--where" in run("replay", store, *options[:-1], "keys === ==").output


def test_topic_of_an_archive_is_sent_again(run, spark, store, servers, tmp_path):
    with DefaultMQProducer("maker", servers.namesrv) as producer:
        producer.send(Message("RestoredHere", b"first"))
    run("archive", store, tmp_path / "archive")
    options = ("--topic", "T1", "-n", servers.namesrv, "--to", "RestoredHere")
    result = run("restore", tmp_path / "archive", *options)
    assert result.exit_code == 0 and "30 messages sent" in result.output
    rows = spark.read.format("rocketmq").options(nameServer=servers.namesrv, topic="RestoredHere").load().collect()
    assert sorted(len(row.body) for row in rows) == sorted([5, *range(1, 60, 2)])
    assert run("restore", tmp_path / "archive", tmp_path / "out", *options).exit_code == 2


def test_path_that_is_not_a_store_is_reported_in_one_line(run, tmp_path):
    result = run("audit", tmp_path, tmp_path)
    assert result.exit_code == 2 and result.output.startswith("Error: ") and "is not a store" in result.output
    result = run("report", tmp_path, tmp_path / "page.html")
    assert result.exit_code == 2 and "is not a store" in result.output and len(result.output.splitlines()) == 1


def test_settings_of_a_secured_cluster_reach_the_sink(monkeypatch):
    seen = {}

    def replay(spark, source, name_server, target, options, **settings):
        seen.update(settings)
        return replay_job.Replayed(source, target)

    monkeypatch.setattr(pipeline_command, "session", lambda master, memory: nullcontext(None))
    monkeypatch.setattr(replay_job, "replay", replay)
    command = ["pipeline", "replay", "store", "-n", "127.0.0.1:1", "--set"]
    wrong = CliRunner().invoke(rmqha, [*command, "keyFile=/k"])
    assert wrong.exit_code == 2 and "'keyFile' is not a valid rocketmq.NAME=VALUE" in wrong.output
    done = CliRunner().invoke(rmqha, [*command, "rocketmq.keyFile=/k=1", "--set", "rocketmq.namespace=n"])
    assert done.exit_code == 0, done.output
    assert seen["client"] == {"rocketmq.keyFile": "/k=1", "rocketmq.namespace": "n"}


def test_context_gives_the_name_server_the_account_and_tls(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(pipeline_command, "session", lambda master, memory: nullcontext(None))
    monkeypatch.setattr(replay_job, "replay", lambda spark, source, name_server, target, options, **settings: (
        seen.append((name_server, settings["client"])) or replay_job.Replayed(source, target)))
    monkeypatch.setenv("RMQHA_CONTEXTS_FILE", str(tmp_path / "contexts.json"))
    write_contexts(Contexts().with_context("prod", Context(
        "a:1", "operator", secret_key_env="PROD_KEY", namespace="n", tls=True, tls_ca="/ca.pem")))
    command = ["pipeline", "replay", "store"]
    missing = CliRunner().invoke(rmqha, command)
    assert missing.exit_code == 2 and "PROD_KEY" in missing.output
    monkeypatch.setenv("PROD_KEY", "secret")
    for more in ([], ["--set", "rocketmq.namespace=other"], ["-n", "b:1"]):
        done = CliRunner().invoke(rmqha, [*command, *more])
        assert done.exit_code == 0, done.output
    account = {"rocketmq.accessKey": "operator", "rocketmq.secretKey": "secret"}
    tls = {"rocketmq.tls.enable": "true", "rocketmq.tls.test.mode.enable": "false",
           "rocketmq.tls.client.trustCertPath": "/ca.pem", "rocketmq.tls.client.authServer": "true"}
    assert seen == [("a:1", {**account, "rocketmq.namespace": "n", **tls}),
                    ("a:1", {**account, "rocketmq.namespace": "other", **tls}), ("b:1", {})]


# Errors before, at, and after the start of Spark, as the user at the terminal sees them: one line.

WITHOUT = """import sys
for name in ("pyspark", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
from rmqha.tools.rmqha_command import main
main()
"""


def outside(*arguments, code: str | None = None, **env) -> subprocess.CompletedProcess:
    """Run `rmqha pipeline ...` as a separate process."""
    how = ["-c", code] if code else ["-m", "rmqha.tools.rmqha_command"]
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "NAMESRV_ADDR")}
    return subprocess.run([sys.executable, *how, "pipeline", *map(str, arguments)], capture_output=True, text=True,
                          timeout=600, env={**kept, "PYTHONPATH": str(ROOT), **env})


def one_line(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 2 and not done.stdout and done.stderr.startswith("Error: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr[len("Error: "):-1]


def fake_java(folder: Path, says: str) -> str:
    """Return a JAVA_HOME whose java prints a text and ends."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 1\n")
    (folder / "bin" / "java").chmod(0o755)
    return str(folder)


def test_help_and_wrong_usage_need_no_pyspark(tmp_path):
    helped = outside("--help", code=WITHOUT)
    assert helped.returncode == 0 and "rebuild" in helped.stdout and not helped.stderr
    for job in ("audit", "rebuild", "archive", "restore", "report", "replay"):
        assert f"Usage: rmqha pipeline {job}" in outside(job, "--help", code=WITHOUT).stdout
    said = one_line(outside("audit", tmp_path, tmp_path, code=WITHOUT))
    assert said.startswith("`rmqha pipeline audit` needs the extra `spark` (") and "pip install" in said


def test_missing_java_is_one_line(tmp_path):
    said = one_line(outside("audit", tmp_path, tmp_path, PATH=str(tmp_path)))
    assert said == "Spark needs Java 17 or later: `java` is not on PATH, and JAVA_HOME is not set"
    said = one_line(outside("audit", tmp_path, tmp_path, JAVA_HOME="/nowhere"))
    assert said == "Spark needs Java 17 or later: JAVA_HOME is /nowhere, which has no bin/java"


@pytest.mark.parametrize("says, wanted", [
    ("Error: LinkageError occurred: java.lang.UnsupportedClassVersionError: class file version 61.0",
     "Spark needs Java 17 or later: the installed one is older"),
    ("Invalid maximum heap size: -Xmx9000g", "Spark does not start: Invalid maximum heap size: -Xmx9000g"),
    ("out of luck", "Spark does not start: out of luck (-v shows all)")])
def test_unusable_java_is_one_line(tmp_path, says, wanted):
    done = outside("audit", tmp_path, tmp_path, JAVA_HOME=fake_java(tmp_path / "jdk", says))
    assert one_line(done).startswith(wanted)
    shown = outside("audit", tmp_path, tmp_path, "-v", JAVA_HOME=str(tmp_path / "jdk"))
    assert says in shown.stderr and "Traceback" in shown.stderr and shown.returncode == 2


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_unreachable_master_is_one_line(tmp_path, scheme):
    master = f"{scheme}://127.0.0.1:{free_port()}"
    assert one_line(outside("audit", tmp_path, tmp_path, "--master", master)).startswith(
        f"no Spark master answers at {master} (127.0.0.1:")


def test_addresses_of_masters_are_tried_in_turn(monkeypatch):
    asked = []
    monkeypatch.setattr(spark_start, "refusal", lambda host, port, timeout: asked.append((host, port)) or (
        None if port == 2 else "refused"))
    spark_start.check_master("spark://a:1,b:2,c:3")
    spark_start.check_master("sc://[::1]:2/;user_id=me")
    assert asked == [("a", 1), ("b", 2), ("[::1]", 2)]
    for wrong, wanted in (("spark://a:1,b", "a:1: refused; b:7077: refused"), ("sc://c", "c:15002: refused"),
                          ("spark://a:x", "'a:x' is not a valid host:port"),
                          ("spark://", "'' is not a valid host:port")):
        with pytest.raises(PipelineError, match=".*"):
            spark_start.check_master(wrong)
        try:
            spark_start.check_master(wrong)
        except PipelineError as error:
            assert wanted in str(error)


@pytest.mark.parametrize("job", [("rebuild", "STORE", "--out"), ("archive", "STORE"), ("restore", "STORE"),
                                 ("report", "STORE")])
def test_unwritable_output_is_reported_before_the_work(tmp_path, job):
    (tmp_path / "file").write_text("")
    words = [str(tmp_path) if word == "STORE" else word for word in job]
    # No Java on PATH: it would be the next error.
    said = one_line(outside(*words, tmp_path / "file" / "out", PATH=str(tmp_path)))
    assert said.startswith(f"{tmp_path}/file/out can't be written: ")


def test_outputs_are_checked_without_creating_them(tmp_path):
    (tmp_path / "file").write_text("")
    check_file(str(tmp_path / "page.html"))
    check_folder(str(tmp_path / "a" / "b"))
    check_folder("hdfs://name-node/archive")  # checked by Spark
    check_folder(f"file:{tmp_path}/x")
    assert sorted(os.listdir(tmp_path)) == ["file"]
    for path in (str(tmp_path), str(tmp_path / "none" / "page.html"), "/proc/page.html"):
        with pytest.raises(PipelineError, match="is a folder|can't be written"):
            check_file(path)
    for path in (str(tmp_path / "file"), f"file://{tmp_path}/file/x", "/proc/none/x"):
        with pytest.raises(PipelineError, match="can't be written"):
            check_folder(path)
    assert local_path("s3a://bucket/x") is None and local_path("a:b/c") == "a:b/c"


@pytest.mark.parametrize("memory", ["lots", "0g", "512", "-1g", "512m", ""])
def test_invalid_size_of_memory_is_refused(tmp_path, memory):
    done = outside("audit", tmp_path, tmp_path, "--memory", memory)
    assert done.returncode == 2 and any(
        text in done.stderr for text in ("is not a valid size", "less than 1 MiB", "a duration, not a size; MiB is M"))


@pytest.mark.parametrize("condition, wanted", [
    ("keys === ==", "Syntax error at or near '='. (line 1, pos 7)"),
    ("nope = 1", "with name `nope` cannot be resolved."),
    ("tags", '"tags" of type "STRING" is not a boolean.'), ("f(tags)", "`f`"), ("count(*) > 1", "count(1)"),
    ("cast(topic as int) = 1", "The value 'T"), ("1 / (queueId - queueId) > 1", "Division by zero.")])
def test_condition_that_spark_refuses_is_one_line(run, store, condition, wanted):
    spark_start.quiet_loggers()
    result = run("replay", store, "-n", "127.0.0.1:1", "--dry-run", "--where", condition)
    assert result.exit_code == 2 and result.stderr.startswith("Error: ") and wanted in result.stderr, result.stderr
    assert result.stderr.count("\n") == 1 and "\tat " not in result.stderr and not result.stdout


def test_spark_prints_nothing_unless_asked(store):
    replay = ("replay", store, "-n", "127.0.0.1:1", "--dry-run", "--master", "local[1]", "--memory", "512M", "--where")
    assert one_line(outside(*replay, "nope = 1")).startswith("--where 'nope = 1': A column")


def test_interrupt_at_the_start_ends_the_command_and_leaves_no_jvm(tmp_path):
    words = [sys.executable, "-m", "rmqha.launch", "rmqha", "pipeline", "audit", tmp_path, tmp_path]
    process = subprocess.Popen(start_as.command(words, ctrl_c=True), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    own, children = psutil.Process(process.pid), []
    wait_until(lambda: children.extend(own.children()) or children, 60_000, "the JVM has started")
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=600)  # a running JVM would hold the pipes
    assert (process.returncode, out, said) == (130, "", "interrupted\n")
    wait_until(lambda: all(has_ended(child.pid) for child in children), 60_000, "the end of the JVM")


class Master:
    """A session at a master that provides no executor, or one."""

    def __init__(self, executors: int, dynamic: str = "false") -> None:
        self._jsc = self.conf = self.sparkContext = self
        self._size, self._dynamic = executors + 1, dynamic

    def sc(self):
        return self

    def getExecutorMemoryStatus(self):  # Spark's name
        return self

    def size(self) -> int:
        return self._size

    def get(self, _name: str, _default: str) -> str:
        return self._dynamic


def test_master_without_executors_is_noted(monkeypatch):
    monkeypatch.setattr(spark_start, "FIRST_EXECUTOR_S", 0.3)
    notes: list[str] = []
    for master, session in (("spark://a:1", Master(1)), ("local[2]", Master(0)), ("spark://a:1", Master(0, "true"))):
        spark_start.note_missing_executors(session, master, notes.append)
    assert not notes
    spark_start.note_missing_executors(Master(0), "spark://a:1", notes.append)
    assert len(notes) == 1 and notes[0].startswith("note spark://a:1 has not provided an executor within 0.3 s")


def test_ended_jvm_is_reported_whatever_fails_after_it():
    try:
        try:
            raise spark_error("Answer from Java side is empty", "Py4JNetworkError", "py4j.protocol")
        finally:
            raise ConnectionRefusedError("Connection refused")
    except ConnectionRefusedError as error:
        assert told(error).startswith("Spark's JVM has ended (Answer from Java side is empty)")
    assert told(ConnectionRefusedError("x")) is None and told(PipelineError("a\nb")) == "a b"


def spark_error(text: str, kind: str = "PythonException", module: str = "pyspark.errors") -> Exception:
    return type(kind, (Exception,), {"__module__": module})(text)


@pytest.mark.parametrize("text, kind, wanted", [
    ("An exception was thrown:\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n    open(p)\n"
     "FileNotFoundError: [Errno 2] No such file or directory: '/s/0'\n\n\tat org.apache.spark.X.f(X.scala:1)",
     "PythonException", "a task failed: FileNotFoundError: [Errno 2] No such file or directory: '/s/0'; each machine"),
    ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1 / 0", "ArithmeticException",
     "Spark: Division by zero."),
    ("An error occurred while calling o49.x.\n: org.apache.spark.SparkException: Job aborted.\n\tat a.b(C.java:1)\n"
     "Caused by: java.io.IOException: No space left on device\n\t... 3 more", "Py4JJavaError",
     "Spark: IOException: No space left on device"),
    ("Answer from Java side is empty", "Py4JNetworkError", "Spark's JVM has ended (Answer from Java side is empty)"),
])
def test_error_of_spark_becomes_one_line(text, kind, wanted):
    said = told_by_spark(spark_error(text, kind, "py4j.protocol" if kind.startswith("Py4J") else "pyspark.errors"))
    assert said.startswith(wanted) and "\n" not in said


@given(st.text(), st.sampled_from(["PythonException", "Py4JJavaError", "Py4JError", "AnalysisException"]))
def test_any_text_of_spark_becomes_one_line(text, kind):
    said = told_by_spark(spark_error(text, kind))
    assert said and len(said.splitlines()) == 1 and len(first_line(text).splitlines()) <= 1
    told_by_task(spark_error(text))


def test_errors_of_other_libraries_are_not_taken_for_sparks():
    assert told_by_spark(ValueError("x")) is None
    text = "Traceback\nrmqha.pipeline.options.PipelineError: /s is gone\n\tat x"
    assert told_by_task(spark_error(text)) == "/s is gone"


# Errors as users see them: Spark prints the whole traceback of a data source before the message.


def _deep(error, depth=20):
    if depth:
        _deep(error, depth - 1)
    try:
        raise KeyError("what it was made of")
    except KeyError as cause:
        raise error from cause


@briefly
def _asked(error):
    _deep(error)


@briefly
def _read(error):
    yield 1
    _deep(error)


@pytest.mark.parametrize("run", [_asked, lambda error: list(_read(error))])
def test_pipeline_error_is_shown_without_its_traceback(run):
    with pytest.raises(PipelineError) as raised:
        run(PipelineError("what is wrong"))
    printed = "".join(traceback.format_exception(raised.value))
    assert "_deep" not in printed and "KeyError" not in printed
    assert printed.splitlines()[-1].endswith("PipelineError: what is wrong")
    with pytest.raises(RuntimeError) as raised:
        run(RuntimeError("a fault"))
    printed = "".join(traceback.format_exception(raised.value))
    assert "_deep" in printed and "KeyError" in printed


def test_items_before_the_error_are_returned():
    items = _read(PipelineError("later"))
    assert next(items) == 1
    with pytest.raises(PipelineError, match="later"):
        next(items)
