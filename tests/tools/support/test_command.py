"""`rmqha support bundle` on files, on a running cluster, and on servers that do not answer."""
import json
import os
import stat
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.support import cluster as cluster_module
from rmqha.tools.support import commands, host, support_command
from rmqha.tools.support.bundle import Item, JsonItem, Missing
from tests.support import ports

PLANTED = {
    "yaml": "Zq-in-plain-acl-9", "yamlComment": "Zq old one in a comment 9", "tools": "Zq-of-tools-9",
    "tls": "Zq,tls;pass 9", "etcd": "Zq'etcd\"9", "environment": "Zq-from-environment-9",
    "logLine": "Zq in a log line 9", "url": "Zq%40url9", "jsonLine": "Zq-json-line-9",
    "unknownKey": "Zq-unknown-key-9", "contexts": "Zq-of-a-context-9",
    "body": "Zq-message-body-9"}
ACCOUNTS = ("account-of-producer", "account-of-tools")


def bundle(*arguments: object, env: dict[str, str] | None = None):
    """Run `rmqha support bundle`."""
    return CliRunner().invoke(rmqha, ["support", "bundle", *map(str, arguments)],
                              env={"NAMESRV_ADDR": "", "RMQHA_DIR": "", **(env or {})})


def read(path: Path) -> dict[str, str]:
    """Return the members of a bundle by their names without the folder."""
    with tarfile.open(path) as tar:
        return {info.name.partition("/")[2]: tar.extractfile(info).read().decode() for info in tar}


@pytest.fixture(autouse=True)
def no_other_servers(monkeypatch):
    """Leave out the servers of other tests that run on this machine."""
    monkeypatch.setattr(support_command.host, "server_processes", lambda _pids: [])


SERVER_PROCESSES = host.server_processes


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """Files, logs and an environment full of secrets; return the arguments that collect them."""
    home = tmp_path / "home"
    (home / "conf" / "acl").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(f"# secretKey: {PLANTED['yamlComment']}\naccounts:\n- accessKey: "
                                                 f"{ACCOUNTS[0]}\n  secretKey: {PLANTED['yaml']}\n")
    (home / "conf" / "tools.yml").write_text(f"accessKey: {ACCOUNTS[1]}\nsecretKey: {PLANTED['tools']}\n")
    (home / "tls.properties").write_text(f"tls.server.keyPassword={PLANTED['tls']}\ntls.server.keyPath=/etc/key.pem\n")
    (home / "contexts.json").write_text(json.dumps({"contexts": {"c": {
        "namesrv": "h:1", "accessKey": ACCOUNTS[0], "secretKey": PLANTED["contexts"]}}}))
    (home / "contexts.json").chmod(0o600)
    config = tmp_path / "broker.properties"
    config.write_text(f"brokerName=broker-x\nstorePathRootDir={tmp_path}/store\netcdPassword={PLANTED['etcd']}\n"
                      f"# brokerRole is {PLANTED['yamlComment']}\nsomething={PLANTED['unknownKey']}\n")
    logs = tmp_path / "logs"
    logs.mkdir()
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / f"{0:020}").write_text(PLANTED["body"])
    lines = [f"2026-01-01 12:00:00 WARN t - bare {secret} in a line" for name, secret in PLANTED.items()
             if name not in ("logLine", "url", "jsonLine", "body", "unknownKey")]
    lines += [f"2026-01-01 12:00:00 WARN t - aclSecret={PLANTED['logLine']}", f"login as {ACCOUNTS[0]}",
              f"etcd at http://root:{PLANTED['url']}@10.0.0.1:2379",
              f"MessageExt [topic=T, body=[{PLANTED['body']}], x]",
              json.dumps({"level": "WARN", "message": "x", "apiKey": PLANTED["jsonLine"]})]
    (logs / "broker.log").write_text("\n".join(lines) + "\n")
    os.mkfifo(logs / "pipe.log")
    monkeypatch.setenv("ROCKETMQ_HOME", str(home))
    monkeypatch.setenv("RMQHA_CONTEXTS_FILE", str(home / "contexts.json"))
    monkeypatch.setenv("JAVA_OPT", f"-Dtls.config.file={home}/tls.properties")
    monkeypatch.setenv("MY_SERVICE_PASSWORD", PLANTED["environment"])
    return ["-c", config, "--log-dir", logs]


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_no_planted_secret_gets_into_the_file(tmp_path, planted, suffix):
    path = tmp_path / f"out{suffix}"
    result = bundle(*planted, "-o", path)
    assert result.exit_code == 0, result.output
    if suffix == ".zip":
        with zipfile.ZipFile(path) as file:
            found = {name.partition("/")[2]: file.read(name).decode() for name in file.namelist()}
    else:
        found = read(path)
    text = "\n".join([*found, *found.values(), result.output, result.stderr])
    for what, secret in {**PLANTED, **{name: name for name in ACCOUNTS}}.items():
        assert secret not in text and json.dumps(secret)[1:-1] not in text, what
    assert found.keys() >= {
        "config/broker.properties", "config/plain_acl.yml", "config/tools.yml", "config/tls.properties", "doctor.json",
        "logs/logs/broker.log", "stores/0/files.tsv", "versions.json", "host/facts.json", "host/clock.json",
        "manifest.json", "README.md"}
    assert "brokerName=broker-x" in found["config/broker.properties"]
    assert "tls.server.keyPath=/etc/key.pem" in found["config/tls.properties"]
    assert found["logs/logs/broker.log"].count("\n") == 12 and "login as <accessKey-" in found["logs/logs/broker.log"]
    assert "a named pipe" in result.stderr and f"{0:020}" in found["stores/0/files.tsv"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_running_cluster_is_asked(tmp_path, cluster, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    result = bundle("-n", cluster.namesrv, "--log-dir", tmp_path, "-o", tmp_path / "b.tgz", "--timeout", "60s")
    assert result.exit_code == 0, result.output
    found = read(tmp_path / "b.tgz")
    brokers = [json.loads(text) for name, text in found.items() if name.startswith("cluster/brokers/")]
    assert sorted(each["broker"]["broker_id"] for each in brokers) == [0, 1]
    for each in brokers:
        assert each["config"]["brokerClusterName"] == "C" and int(each["runtime"]["commitLogMaxOffset"]) > 0
        # The slave copies the master's topics a few seconds later.
        assert each["groups"] and ("T" in each["topics"] or each["broker"]["broker_id"] == 1)
    assert json.loads(found["ha-status.json"])["output"][0]["slaves"][0]["state"] == "TRANSFER"
    checks = {each["check"] for each in json.loads(found["doctor.json"])["output"]["findings"]}
    assert checks >= {"replication", "offsets"}
    assert json.loads(found["top.json"])["output"]["brokers"]
    assert "b" * 100 not in "".join(found.values())  # the bodies of its messages
    manifest = json.loads(found["manifest.json"])
    assert {item["name"] for item in manifest["items"]} == found.keys() - {"manifest.json", "README.md"}
    assert "has no log files" in result.stderr


def test_servers_that_do_not_answer_are_listed(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    (tmp_path / "store.log").write_text("2026-01-01 12:00:00 INFO t - x\n")
    silent = f"127.0.0.1:{ports.free_port()}"
    result = bundle("-n", silent, "--log-dir", tmp_path, "-o", tmp_path / "b.tar.gz", "--timeout", "1s")
    assert result.exit_code == 0
    assert f"warning: name server {silent}: " in result.stderr
    found = read(tmp_path / "b.tar.gz")
    assert "can't be reached" in json.loads(found["doctor.json"])["output"]["findings"][0]["what"]
    assert any(missing["what"] == f"name server {silent}" for missing in json.loads(found["manifest.json"])["missing"])
    assert f"name server {silent}" in found["README.md"].partition("## Not included")[2]


def test_without_any_result_the_exit_code_is_2(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    result = bundle("--store", tmp_path / "none", "--log-dir", tmp_path / "none", "-c", tmp_path / "none.conf", "-o",
                    tmp_path / "b.zip")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1].startswith("Error: nothing of what was asked for could be had; ")
    assert result.stderr.count("warning: ") >= 3 and zipfile.is_zipfile(tmp_path / "b.zip")


def test_the_size_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    for name in ("store.log", "broker.log", "other.log"):
        (tmp_path / name).write_text("".join(f"2026-01-01 12:00:00 INFO t - {n ** 31}\n" for n in range(4000)))
    result = bundle("--log-dir", tmp_path, "-o", tmp_path / "b.tar.gz", "--max-size", "100KiB", "--log-size", "1MiB")
    assert result.exit_code == 0 and (tmp_path / "b.tar.gz").stat().st_size <= 100 << 10
    found = read(tmp_path / "b.tar.gz")
    assert found["logs/" + tmp_path.name + "/store.log"].endswith(f"{3999 ** 31}\n")
    assert "to fit into --max-size" in found["manifest.json"]
    assert bundle("-o", "x.zip", "--max-size", "1KiB").exit_code == 2


def test_existing_files_are_kept_and_names_are_checked(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")
    path.chmod(0o644)
    result = bundle("--store", tmp_path, "-o", path)
    assert result.exit_code == 2 and "use --force to overwrite it" in result.stderr and path.read_text() == "mine"
    assert bundle("--store", tmp_path, "-o", path, "--force").exit_code == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and tarfile.is_tarfile(path)
    assert bundle("-o", tmp_path / "b.rar").exit_code == 2
    assert not list(tmp_path.glob("*.part"))


def test_a_bundle_is_written_to_the_standard_output(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    result = bundle("--store", tmp_path, "-o", "-")
    (tmp_path / "b.tar.gz").write_bytes(result.stdout_bytes)
    assert result.exit_code == 0 and "stores/0/summary.json" in read(tmp_path / "b.tar.gz")
    assert "Read it before you send it" in result.stderr


# ---- parts


def test_a_section_that_fails_costs_no_other(tmp_path, monkeypatch):
    def fail(*_arguments):
        raise RuntimeError("broken, password=Zq-hidden-9")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(host, "host_facts", fail)
    result = bundle("--store", tmp_path, "-o", tmp_path / "b.tar.gz")
    assert result.exit_code == 0 and "warning: facts of this host: RuntimeError: broken, password=***" in result.stderr
    assert "stores/0/summary.json" in read(tmp_path / "b.tar.gz")


def test_programs_are_limited(tmp_path, monkeypatch):
    slow = commands.run([sys.executable, "-c", "import time; time.sleep(600)"], 0.2)
    assert slow.code == 124 and slow.why() == "it took longer than 0 s"
    assert commands.run([str(tmp_path / "none")], 60).why().endswith("No such file or directory")
    monkeypatch.setattr(commands, "MAX_OUTPUT", 1000)
    loud = commands.run([sys.executable, "-c", "print('x' * 100_000)"], 60)
    assert loud.code == 0 and len(loud.output) == 1000
    failed = commands.run([sys.executable, "-c", "import sys; sys.exit('Error: so it is')"], 60)
    assert failed.code == 1 and failed.why() == "so it is"


def test_stacks_come_from_the_tool_that_is_installed(tmp_path, monkeypatch):
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nif [ $3 = 1 ]; then echo 'Permission denied' >&2; exit 1; fi\necho \"stacks of $*\"\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = host._stacks(17, False, "processes/17", 60)
    assert isinstance(found, Item) and found.data == "stacks of dump --pid 17\n"
    assert host._stacks(1, False, "x", 60) == Missing("the stacks of process 1", "py-spy: Permission denied")
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none" / "python"))
    assert "jstack is not installed" in host._stacks(1, True, "x", 60).why


def test_this_process_is_described():
    import psutil

    found = host.process_items(psutil.Process(), 60)
    facts = next(each.value for each in found if isinstance(each, JsonItem))
    assert facts["pid"] == os.getpid() and facts["threads"][0]["name"]
    assert {process.pid for process in SERVER_PROCESSES([os.getpid()])} == set()  # the tool itself


def test_metrics_are_taken_from_servers_without_following_them_elsewhere(tmp_path):
    import http.server

    from rmqha.common.threads import NamedThreadPool

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response({"/metrics": 200, "/readyz": 503}.get(self.path, 302))
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(b"page " + self.path.encode())

        def log_message(self, *_arguments):
            pass
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        pool = NamedThreadPool("TestServer_", 1)
        pool.submit(server.serve_forever)
        port = server.server_address[1]
        found = cluster_module.metrics_items({"a": f"127.0.0.1:{port}", "b": f"127.0.0.1:{ports.free_port()}"}, 60)
        server.shutdown()
        pool.shutdown(60_000)
    items = {each.name: each.data for each in found if isinstance(each, Item)}
    assert items == {"metrics/a.metrics.txt": "page /metrics", "metrics/a.readyz.txt": "503\npage /readyz"}
    assert len([each for each in found if isinstance(each, Missing)]) == 2


def test_the_words_for_other_commands_select_the_same_cluster(monkeypatch):
    import click

    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    context = click.Context(support_command.bundle_command)
    assert support_command._cluster_words(context, None, None) == ([], [])
    assert support_command._cluster_words(context, "h:1", None) == ([], ["-n", "h:1"])  # of a config file
    assert support_command._cluster_words(context, "h:1", "h:1") == ([], [])  # of the current context
    monkeypatch.setenv("NAMESRV_ADDR", "h:1")
    assert support_command._cluster_words(context, "h:1", "h:1") == ([], ["-n", "h:1"])
    context.meta[support_command.NAMED_CONTEXT] = "prod"
    assert support_command._cluster_words(context, "h:1", "h:1") == (["--context", "prod"], [])
