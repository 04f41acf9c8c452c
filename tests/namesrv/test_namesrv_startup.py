"""mqnamesrv as a process: options, exit codes, config files."""
import os
import re
import signal
import socket
import subprocess

import pytest

from rmqha.common import metrics
from rmqha.common.filesystem import how_to_install
from rmqha.namesrv import namesrv_startup
from tests.support.ports import free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.sources import ROOT

LAUNCHER = str(ROOT / "bin" / "mqnamesrv")


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        env = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run([LAUNCHER, *arguments], env=env, capture_output=True, text=True, timeout=600)
    return call


@pytest.fixture
def conf(tmp_path):
    def write(text):
        path = tmp_path / "ns.conf"
        path.write_bytes(text.encode("latin-1"))
        return str(path)
    return write


def test_help_names_rocketmqs_options(run):
    result = run("-h")
    assert result.returncode == 0
    for option in ("-c( <arg>)?, --configFile <arg>", "-n( <arg>)?, --namesrvAddr <arg>", "-p, --printConfigItem"):
        assert re.search(option, result.stdout)  # Python 3.13 names the value once


def test_wrong_option_exits_with_1(run):
    assert run("-q").returncode == 1


def test_all_config_items_are_printed(run, conf):
    result = run("-c", conf("productEnvName=here\n"), "-p")
    assert result.returncode == 0
    assert " INFO main - productEnvName=here\n" in result.stdout and " - listenPort=9876\n" in result.stdout


@pytest.mark.parametrize(("text", "problem"), [
    ("listenPort=ten\n", ":1: listenPort: expected a whole number from 0 to 65535, not 'ten'"),
    ("# x\nproductEnvName=\\u12\n", ":2: Malformed \\uxxxx encoding."),
])
def test_bad_config_file_exits_with_2_and_says_where(run, conf, text, problem):
    file = conf(text)
    result = run("-c", file)
    assert result.returncode == 2 and file + problem in result.stderr


def test_missing_config_file_exits_with_2(run):
    result = run("-c", "/nowhere/ns.conf")
    assert result.returncode == 2 and "/nowhere/ns.conf: cannot read the config file" in result.stderr


def test_broken_kv_file_exits_with_2(run, conf, tmp_path):
    (tmp_path / "kv.json").write_text("{")
    result = run("-c", conf(f"listenPort={free_port()}\nkvConfigPath={tmp_path}/kv.json\n"))
    assert result.returncode == 2 and "kv.json" in result.stderr


def test_server_boots_logs_and_ends_on_sigterm(conf, tmp_path):
    port = free_port()
    file = conf(f"listenPort={port}\nkvConfigPath={tmp_path}/kv.json\nproductEnvNmae=x\n")
    server = ServerProcess("namesrv", [LAUNCHER, "-c", file], tmp_path, "boot success. serializeType=JSON",
                           {"HOME": str(tmp_path), "ROCKETMQ_LOG_DIR": ""})
    try:
        server.start()
        assert "unknown key productEnvNmae, did you mean productEnvName?" in server.output()
        with RawClient(f"127.0.0.1:{port}") as connection:
            assert connection.request(100, namespace="n", key="k", value="v").code == 0
            assert server.stop() == 0
        log = (tmp_path / "logs" / "rocketmqlogs" / "namesrv.log").read_text()
        assert " INFO main - The Name Server boot success. serializeType=JSON\n" in log
        assert "did you mean productEnvName?" in log and "shutdown hook was invoked" in log
        server.start()
        with RawClient(f"127.0.0.1:{port}") as connection:
            assert connection.request(101, namespace="n", key="k").fields == {"value": "v"}
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(240) == 0
    finally:
        server.kill()


def test_taken_port_ends_the_start_with_a_line_that_names_it_and_its_holder(run, conf):
    port = free_port()
    with socket.create_server(("0.0.0.0", port)):
        result = run("-c", conf(f"listenPort={port}\n"))
    assert result.returncode == 255
    (line,) = result.stderr.strip().split("\n")
    assert line.startswith(f"The Name Server cannot start: port {port} (listenPort) is in use by pid {os.getpid()} (")


def test_metrics_without_their_library_end_the_start(conf, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(metrics, "is_available", lambda: False)
    file = conf(f"kvConfigPath={tmp_path}/kv.json\nmetricsPort=5557\n")
    assert namesrv_startup.main(["-c", file]) == 2
    assert capsys.readouterr().err == (f"{file}:2: metricsPort: metrics need prometheus-client: "
                                       f"{how_to_install('metrics')}\n")


def test_taken_metrics_port_ends_the_start_with_a_line_that_names_it(run, conf):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        result = run("-c", conf(f"listenPort={free_port()}\nmetricsPort={port}\n"))
    assert result.returncode == 255
    assert f"port {port} of 127.0.0.1 (metricsPort) is in use by pid {os.getpid()}" in result.stderr
