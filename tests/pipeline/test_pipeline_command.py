"""The command `rmqha pipeline`: every job as people run it, in the session of the tests."""
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.pipeline import pipeline_command
from rmqha.pipeline.archive import archive_table as replay_job
from rmqha.tools.rmqha_command import rmqha
from tests.client.conftest import servers  # noqa: F401, a fixture
from tests.store import support


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


def test_audit_says_equal_and_what_differs(run, store, tmp_path):
    result = run("audit", store, store)
    assert result.exit_code == 0 and "60 messages compared\n  equal" in result.output
    with support.open_store(tmp_path / "slave"):
        result = run("audit", store, tmp_path / "slave", "-o", "json")
    found, = json.loads(result.output)
    assert result.exit_code == 1 and found["problems"] and found["messages"] == 0


def test_audit_asks_the_name_server_for_stores(run, servers):
    result = run("audit", "-n", servers.namesrv)
    assert result.exit_code == 0 and "note broker-a has no slave now: its master is 127.0.0.1:" in result.output
    assert json.loads(run("audit", "-n", servers.namesrv, "-o", "json").stdout) == []
    nobody = run("audit", "-n", "127.0.0.1:1")
    assert nobody.exit_code == 2 and nobody.output.startswith("Error: name server 127.0.0.1:1: ")
    for args in ((), ("/tmp",)):
        result = run("audit", *args)
        assert result.exit_code == 2 and "give MASTER_STORE and SLAVE_STORE" in result.output


def test_rebuild_compares_with_what_is_there(run, store, tmp_path):
    result = run("rebuild", store, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "60 units in 2 files of 2 queues, 60 keys in 1 index files" in result.output
    assert "what the store has is equal" in result.output
    again = run("rebuild", store, "--out", tmp_path / "out")
    assert again.exit_code == 2 and "has files already" in again.output


def test_archive_and_restore_give_the_log_back(run, store, tmp_path):
    assert "60 messages, offsets 0 to" in run("archive", store, tmp_path / "archive").output
    assert "nothing new since offset" in run("archive", store, tmp_path / "archive").output
    assert "60 messages and" in (result := run("verify", tmp_path / "archive")).output
    assert result.exit_code == 0 and "the archive is whole" in result.output
    assert "is not a valid time" in run("restore", tmp_path / "archive", tmp_path / "out", "--until", "soon").output
    assert "give OUT, or --topic" in run("restore", tmp_path / "archive").output
    result = run("restore", tmp_path / "archive", tmp_path / "out", "--until", "2100-01-01")
    assert result.exit_code == 0 and "every CRC is as the manifests say" in result.output
    name = f"{0:020d}"
    assert (tmp_path / "out" / "commitlog" / name).read_bytes() == (store / "commitlog" / name).read_bytes()


def test_report_is_a_page_of_its_own(run, store, tmp_path):
    result = run("report", store, tmp_path / "page.html", "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["messages"] == 60 and sum(count for _, count in found["sizes"]) == 60
    backlog, = found["backlog"]
    assert (backlog["topic"], backlog["group"], backlog["messages"], backlog["lost"]) == ("T0", "readers", 20, 0)
    assert found["topicCount"] == 2 and not found["hottest"]  # 7 keys, used as often as one another
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "T1" in page and "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_replay_sends_what_is_chosen(run, spark, store, servers):
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


def test_a_topic_of_an_archive_is_sent_again(run, spark, store, servers, tmp_path):
    with DefaultMQProducer("maker", servers.namesrv) as producer:
        producer.send(Message("RestoredHere", b"first"))
    run("archive", store, tmp_path / "archive")
    options = ("--topic", "T1", "-n", servers.namesrv, "--to", "RestoredHere")
    result = run("restore", tmp_path / "archive", *options)
    assert result.exit_code == 0 and "30 messages sent" in result.output
    rows = spark.read.format("rocketmq").options(nameServer=servers.namesrv, topic="RestoredHere").load().collect()
    assert sorted(len(row.body) for row in rows) == sorted([5, *range(1, 60, 2)])
    assert run("restore", tmp_path / "archive", tmp_path / "out", *options).exit_code == 2


def test_what_is_no_store_is_told_in_one_line(run, tmp_path):
    result = run("audit", tmp_path, tmp_path)
    assert result.exit_code == 2 and result.output.startswith("Error: ") and "is no store" in result.output
    result = run("report", tmp_path, tmp_path / "page.html")
    assert result.exit_code == 2 and "is no store" in result.output and len(result.output.splitlines()) == 1


def test_settings_of_a_secured_cluster_go_to_the_sink(monkeypatch):
    seen = {}

    def replay(spark, source, name_server, target, options, **settings):
        seen.update(settings)
        return replay_job.Replayed(source, target)

    monkeypatch.setattr(pipeline_command, "session", lambda master, memory: nullcontext(None))
    monkeypatch.setattr(replay_job, "replay", replay)
    command = ["pipeline", "replay", "store", "-n", "127.0.0.1:1", "--set"]
    wrong = CliRunner().invoke(rmqha, [*command, "keyFile=/k"])
    assert wrong.exit_code == 2 and "'keyFile' is no rocketmq.NAME=VALUE" in wrong.output
    done = CliRunner().invoke(rmqha, [*command, "rocketmq.keyFile=/k=1", "--set", "rocketmq.namespace=n"])
    assert done.exit_code == 0, done.output
    assert seen["client"] == {"rocketmq.keyFile": "/k=1", "rocketmq.namespace": "n"}
