"""What a program prints that uses the client: nothing, unless it asks for it."""
import os
import re
import subprocess
import sys

import pytest

from tests.support.sources import ROOT

# A name server that is down; a cluster whose only broker is lost while a producer sends and a consumer pulls.
PROGRAM = """
import sys, threading, time
sys.path.insert(0, {root!r})
{setup}
from pathlib import Path
from rmqha import ConsumeStatus, Message, MQClientException, Producer, PushConsumer, RemotingException
from tests.support.in_process import running_name_server, start_broker

try:
    with Producer("silent", "127.0.0.1:1") as producer:
        producer.send(Message("T", b"x"))
    raise AssertionError("not reached")
except RemotingException:
    pass
with running_name_server(Path({folder!r})) as address:
    broker = start_broker("broker-a", address, Path({folder!r}))
    got = threading.Event()

    def listener(messages):
        got.set()
        return ConsumeStatus.CONSUME_SUCCESS

    with Producer("silent", address, send_msg_timeout=2_000) as producer:
        producer.send(Message("T", b"x"))
        with PushConsumer("silent-consumer", address, listener) as consumer:
            consumer.subscribe("T")
            assert got.wait(240)
            broker.shutdown()
            try:
                producer.send(Message("T", b"x"))
                raise AssertionError("not reached")
            except (MQClientException, RemotingException):
                pass
            time.sleep(1.2)  # the consumer pulls again, in vain
print("done")
"""
SERVERS = "import logging; [logging.getLogger('Rocketmq' + name).addHandler(logging.NullHandler()) for name in " \
          "('Broker', 'Store', 'Namesrv', 'Console', 'NamesrvConsole', 'Filter', 'Transaction', 'Stats')]"


def run(tmp_path, setup: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), setup=f"{SERVERS}\n{setup}")
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=600,
                            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert result.returncode == 0 and result.stdout == "done\n", result.stdout + result.stderr
    return result


def test_a_program_without_logging_prints_nothing(tmp_path):
    assert run(tmp_path, "").stderr == ""


@pytest.mark.parametrize("setup, line", [
    ("import logging; logging.basicConfig(level=logging.INFO)", r"^(INFO|WARNING):Rocketmq\w+:"),
    ("import rmqha; rmqha.log_to_stderr(); rmqha.log_to_stderr()",
     r"^\d{4}-\d\d-\d\d [\d:,]{12} (INFO   |WARNING) Rocketmq\w+ - "),
])
def test_one_that_asks_is_told_once_what_happened(tmp_path, setup, line):
    text = run(tmp_path, setup).stderr
    assert "Traceback" not in text
    for what in ("connect remote host[127.0.0.1:1] failed", "producer [silent] start OK", "consumer [silent-consumer]"):
        assert len([row for row in text.splitlines() if re.match(line, row) and what in row]) >= 1, text
    starts = [row for row in text.splitlines() if "consumer [silent-consumer] start OK" in row]
    assert len(starts) == 1, starts


def test_only_warnings(tmp_path):
    text = run(tmp_path, "import rmqha; rmqha.log_to_stderr('WARNING')").stderr
    assert "start OK" not in text and " WARNING Rocketmq" in text and " INFO " not in text
