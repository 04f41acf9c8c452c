"""mqbroker: options, messages and exit codes."""
import os
import signal
import socket
import subprocess
import sys

import pytest

from rmqha.broker import broker_startup
from rmqha.common import metrics
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import ConfigError
from rmqha.store.message_store_config import BrokerRole
from tests.support.ports import free_broker_port
from tests.support.processes import ServerProcess


def controller_of(tmp_path, text, *options):
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\n{text}")
    line = broker_startup.parse_command_line(["-c", str(file), *options])
    return broker_startup.create_broker_controller(line)


@pytest.fixture(autouse=True)
def no_log_files(tmp_path, monkeypatch):
    """Keep the test run's log configuration."""
    monkeypatch.setattr(broker_startup, "_set_up_logging", lambda *_: None)


def test_file_and_option_reach_the_config(tmp_path):
    controller = controller_of(tmp_path, "listenPort=25200\nhaListenPort=1\nbrokerId=7\nfileReservedTime=48\n", "-n",
                               "127.0.0.1:9876;127.0.0.1:9877")
    assert controller.message_store_config.haListenPort == 25201
    assert controller.broker_config.brokerId == 0 and controller.message_store_config.fileReservedTime == 48
    assert controller.broker_config.namesrvAddr == "127.0.0.1:9876;127.0.0.1:9877"
    assert controller.configuration.store_path == str(tmp_path / "broker.conf")
    controller.shutdown()


def test_slave_keeps_its_id(tmp_path):
    controller = controller_of(tmp_path, "brokerRole=SLAVE\nbrokerId=3\n")
    assert controller.broker_config.brokerId == 3
    controller.shutdown()


@pytest.mark.parametrize("text, message", [
    ("brokerRole=SLAVE\n", "brokerId: Slave's brokerId must be > 0"),
    ("brokerRole=SLAVE\nbrokerId=-1\n", "broker.conf:4: brokerId: Slave's brokerId must be > 0, not -1"),
    ("brokerRole=BOSS\n", "broker.conf:3: brokerRole: expected one of"),
    ("listenPort=many\n", "broker.conf:3: listenPort: expected a whole number"),
    ("namesrvAddr=nonsense\n", "broker.conf:3: namesrvAddr: expected Name Server addresses as follows, "),
    ("enableDLegerCommitLog=true\n", "enableDLegerCommitLog: DLedger is not supported"),
    ("messageStorePlugIn=org.evil.Store\n", "messageStorePlugIn: store plug-ins are not supported"),
    ("aclEnable=yes\n", "broker.conf:3: aclEnable: expected true or false, not 'yes'"),
    ("listenPort=2\n", "broker.conf:3: listenPort: expected 0, or a port from 3 to 65534, not 2"),
    ("listenPort=65535\n", "broker.conf:3: listenPort: expected 0, or a port from 3 to 65534, not 65535"),
    ("metricsPort=70000\n", "broker.conf:3: metricsPort: expected a whole number from 0 to 65535, not '70000'"),
    ("metricsNames=otlp\n", "broker.conf:3: metricsNames: expected one of exporter, otel, both, not 'otlp'"),
    ("maxIndexNum=200000000\n", "broker.conf:3: maxIndexNum: 200000000 keys with maxHashSlotNum=5000000 make"),
    ("writeBufferHighWaterMark=5\nwriteBufferLowWaterMark=6\n",
     "broker.conf:4: writeBufferLowWaterMark: 6 is above writeBufferHighWaterMark=5"),
    ("enableAutoSwitchHA=true\ntransientStorePoolEnable=true\n",
     "transientStorePoolEnable: with enableAutoSwitchHA there are no write buffers"),
    ("enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\ntransientStorePoolEnable=true\n",
     "transientStorePoolEnable: with enableControllerMode there are no write buffers"),
    ("enableControllerMode=true\nbrokerId=-1\nbrokerRole=SLAVE\n",
     "controllerAddr: enableControllerMode needs the controllers' addresses: host:port, several separated by ;"),
])
def test_invalid_config_is_named(tmp_path, text, message):
    with pytest.raises(ConfigError) as failure:
        controller_of(tmp_path, text)
    assert message in str(failure.value)


def test_controller_decides_role_and_id_whatever_the_file_says(tmp_path):
    for role in ("brokerRole=SLAVE\nbrokerId=-1\n", "brokerRole=SYNC_MASTER\nbrokerId=0\n", ""):
        controller = controller_of(tmp_path, f"enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n{role}")
        assert controller.message_store_config.brokerRole is BrokerRole.SLAVE and controller.registration.is_isolated


def test_metrics_port_needs_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "is_available", lambda: False)
    controller = controller_of(tmp_path, "metricsPort=5557\nmetricsNames=both\n")
    assert controller.broker_config.metricsPort == 5557
    controller.shutdown()


def test_address_server_comes_from_the_file(tmp_path):
    controller = controller_of(tmp_path, "rmqAddressServerDomain=ns.example:99\nrmqAddressServerSubGroup=sub\n")
    assert controller.broker_outer_api.ws_addr == "http://ns.example:99/rocketmq/sub"
    controller.shutdown()


def run_mqbroker(*options, **env):
    return subprocess.run([sys.executable, "-m", "rmqha.broker.broker_startup", *options], capture_output=True,
                          text=True, timeout=600, env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", **env})


def test_all_or_only_important_items_are_printed(tmp_path):
    everything = run_mqbroker("-p", ROCKETMQ_HOME=str(tmp_path))
    important = run_mqbroker("-m", ROCKETMQ_HOME=str(tmp_path))
    assert everything.returncode == important.returncode == 0
    for key in config_keys(BrokerConfig):
        assert f" {key}=" in everything.stdout
    assert " brokerName=" in important.stdout and " regionId=" not in important.stdout


@pytest.mark.parametrize("options, code, text", [
    (["-h"], 0, "usage: mqbroker"), (["-x"], 1, "usage: mqbroker"), (["-c", "/no/such/file"], 2, "/no/such/file"),
])
def test_other_options_and_their_exit_codes(options, code, text):
    ended = run_mqbroker(*options)
    assert ended.returncode == code and text in ended.stdout + ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_broker_prints_that_it_started_and_ends_cleanly_on_a_signal(tmp_path, number):
    port = free_broker_port()
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\nbrokerName=b\nlistenPort={port}\n"
                    "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
    command = [sys.executable, "-m", "rmqha.broker.broker_startup", "-c", str(file)]
    broker = ServerProcess("broker", command, tmp_path, "boot success", {"HOME": str(tmp_path)}).start()
    try:
        *warnings, success = broker.output().splitlines()
        assert success == f"The broker[b, 127.0.0.1:{port}] boot success. serializeType=JSON"
        assert [line.split(":")[0] for line in warnings] == ["warning"] * 2
        assert f"access control is off (aclEnable=false): any client that can reach port {port}" in warnings[0]
        assert f"the replication port {port + 1} is open" in warnings[1]
        assert (tmp_path / "store" / "abort").exists()
        broker.process.send_signal(number)
        assert broker.process.wait(240) == 0
        assert not (tmp_path / "store" / "abort").exists()
    finally:
        broker.kill()


def test_log_files_are_written_where_the_command_line_says(tmp_path):
    port = free_broker_port()
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nbrokerIP1=127.0.0.1\nbrokerName=b\nlistenPort={port}\n"
                    "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\nbrokerNam=x\n")
    command = [sys.executable, "-m", "rmqha.broker.broker_startup", "-c", str(file),
               "--log-dir", str(tmp_path / "here")]
    broker = ServerProcess("broker", command, tmp_path, "boot success", {"HOME": str(tmp_path)}).start()
    try:
        assert "unknown key brokerNam, did you mean brokerName?" in broker.output()
        text = (tmp_path / "here" / "broker.log").read_text("utf-8")
        assert "boot success" in text and "unknown key brokerNam" in text and "access control is off" in text
        assert not (tmp_path / "logs").exists()
    finally:
        broker.stop()


def test_second_broker_on_the_same_store_does_not_start(tmp_path):
    first = controller_of(tmp_path, "listenPort=0\nmappedFileSizeCommitLog=1048576\n")
    assert first.initialize()
    second = run_mqbroker("-c", str(tmp_path / "broker.conf"))
    assert second.returncode in (253, 255) and "broker cannot" in second.stderr
    first.shutdown()


def test_broken_table_ends_with_its_own_code(tmp_path):
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{broken")
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort=0\n")
    ended = run_mqbroker("-c", str(file), HOME=str(tmp_path))
    assert ended.returncode == 253 and "cannot be initialized" in ended.stderr
    assert f"see {tmp_path}/logs/rocketmqlogs/broker.log and {tmp_path}/logs/rocketmqlogs/store.log for" in ended.stderr


@pytest.mark.parametrize(("distance", "use"), [(0, "listenPort"), (-2, "the fast port, listenPort - 2"),
                                               (1, "the HA port, listenPort + 1")])
def test_port_in_use_ends_the_start_with_one_line_naming_it_and_its_holder(tmp_path, distance, use):
    port = free_broker_port()
    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}/store\nlistenPort={port}\nmappedFileSizeCommitLog=1048576\n"
                    "maxHashSlotNum=1000\nmaxIndexNum=4000\n")
    with socket.create_server(("0.0.0.0", port + distance)):
        ended = run_mqbroker("-c", str(file), HOME=str(tmp_path))
    assert ended.returncode == 255
    (line,) = ended.stderr.strip().split("\n")
    assert line.startswith(f"The broker cannot start: port {port + distance} ({use}) is in use by pid {os.getpid()} (")
