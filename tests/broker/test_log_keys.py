"""The config keys of log files, in servers that write some."""
import json
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from rmqha.common.protocol import request_code as codes
from rmqha.common.protocol import response_code
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.sources import ROOT

SMALL = "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"


@contextmanager
def server(tmp_path, program, port, text):
    """A server of its own process, whose home is `tmp_path`."""
    name = f"{program}-{port}"
    file = tmp_path / f"{name}.conf"
    file.write_text(f"listenPort={port}\n{text}")
    command = [sys.executable, "-m", "rmqha.launch", program, "-c", str(file)]
    process = ServerProcess(name, command, tmp_path, "boot success",
                            {"HOME": str(tmp_path), "ROCKETMQ_LOG_DIR": "", "PYTHONPATH": str(ROOT)})
    try:
        yield process.start()
        assert process.stop() == 0
    finally:
        process.kill()


def broker(tmp_path, name, text=""):
    port = free_broker_port()
    return server(tmp_path, "mqbroker", port, f"storePathRootDir={tmp_path}/{name}\nbrokerIP1=127.0.0.1\n"
                  f"brokerName={name}\n{SMALL}{text}")


def ask(process, code, text):
    """Send a server a configuration; the answer."""
    with RawClient(f"127.0.0.1:{process.name.rpartition('-')[2]}") as client:
        return client.request(code, text.encode())


def test_broker_logs_json_in_utc_and_changes_its_level(tmp_path):
    style = "logFormat=JSON\nlogTimeZone=UTC\nlogLevel=WARN\nisolateLogEnable=true\n"
    logs = tmp_path / "logs" / "rocketmqlogs" / "b_0"
    with broker(tmp_path, "b", style) as process:
        assert {json.loads(line)["level"] for line in (logs / "store.log").read_text().splitlines()} == {"WARN"}
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logLevel=LOUD\n").code == response_code.SYSTEM_ERROR
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logLevel=INFO\n").code == 0
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logFormat=TEXT\n").code == response_code.NO_PERMISSION
        assert "logLevel=INFO\n" in (tmp_path / f"{process.name}.conf").read_text()
    lines = [json.loads(line) for line in (logs / "broker.log").read_text("utf-8").splitlines()]
    assert {(line["brokerName"], line["brokerId"]) for line in lines} == {("b", 0)}
    first, *_, last = [line["message"] for line in lines if line["level"] == "INFO"]
    assert first.startswith("updateBrokerConfig called by") and last.startswith("Shutdown hook over")
    moments = [datetime.fromisoformat(line["time"]) for line in lines]
    assert {moment.utcoffset() for moment in moments} == {timedelta(0)} and moments == sorted(moments)
    assert datetime.now(UTC) - moments[-1] < timedelta(minutes=5)


def test_name_server_changes_its_level(tmp_path):
    port = free_port()
    with server(tmp_path, "mqnamesrv", port, f"kvConfigPath={tmp_path}/kv.json\nlogLevel=ERROR\n") as process:
        log = tmp_path / "logs" / "rocketmqlogs" / "namesrv.log"
        assert log.read_text() == ""
        assert ask(process, codes.UPDATE_NAMESRV_CONFIG, "logLevel=DEBUG\n").code == 0
        assert ask(process, codes.GET_NAMESRV_CONFIG, "").code == 0
        assert " DEBUG " in log.read_text() and "receive request, 319 127.0.0.1:" in log.read_text()


@pytest.mark.parametrize("text, warns", [("", True), ("isolateLogEnable=true\n", False)])
def test_broker_that_shares_its_log_files_says_so(tmp_path, text, warns):
    with broker(tmp_path, "a"), broker(tmp_path, "b", text) as second:
        told = f"another process writes to {tmp_path}/logs/rocketmqlogs/broker.log too"
        assert (told in second.output()) is warns
        assert (tmp_path / "logs" / "rocketmqlogs" / "b_0" / "broker.log").exists() is not warns
