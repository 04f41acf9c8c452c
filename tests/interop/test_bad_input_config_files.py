"""Config files that are wrong: an unknown key is a warning with the nearest name, anything else is exit code 2."""
from pathlib import Path

import pytest

from rmqha.common.protocol import request_code
from tests.support.nodes import BrokerNode, NamesrvNode, write_properties
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until


def run_to_the_end(node, config: Path | None = None) -> tuple[int, str]:
    """Start a server that should refuse; exit code and output."""
    if config is not None:
        node.command = [str(config) if part == str(node.config_file) else part for part in node.command]
    node.launch()
    wait_until(lambda: not node.is_alive, 60_000, f"{node.name} ends")
    return node.process.returncode, node.output()


@pytest.fixture
def broker(nodes, tmp_path) -> BrokerNode:
    node = BrokerNode("rmqha", tmp_path / "broker", None)
    nodes.append(node)
    return node


@pytest.fixture
def namesrv(nodes, tmp_path) -> NamesrvNode:
    node = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(node)
    return node


# Not as anybody would write them, but the original takes them and does what they say.
ODD_VALUES = {
    "autoCreateTopicEnable": "no", "traceOn": "off", "brokerId": -1, "deleteWhen": "004;23;",
    "registerNameServerPeriod": -1, "messageDelayLevel": "1s 5s ", "diskMaxUsedSpaceRatio": 5, "haMasterAddress": "",
    "serverCallbackExecutorThreads": -5,
    "flushIntervalConsumeQueue": 0, "fileReservedTime": 0, "regionId": "", "startAcceptSendRequestTimeStamp": -1,
    "shortPollingTimeMills": 0, "maxTransferCountOnMessageInDisk": 0, "serverSelectorThreads": 0,
}
BAD_VALUES = [("listenPort", "1091l"), ("flushDiskType", "SOMETIMES_FLUSH"), ("brokerRole", "BOSS"),
              ("mappedFileSizeCommitLog", "1e6"), ("brokerId", "one"), ("slaveTimeout", "99999999999999999999"),
              ("aclEnable", "yes"), ("fileReservedTime", "-4"), ("mappedFileSizeCommitLog", "-1"), ("deleteWhen", "99"),
              ("brokerName", ""), ("listenPort", "70000"), ("brokerIP1", "10.0.0.1:10911")]


@pytest.mark.parametrize("key, value", BAD_VALUES)
def test_bad_value_is_refused_with_file_key_and_line(broker, key, value):
    properties = {name: old for name, old in broker.properties.items() if name != key}
    write_properties(broker.config_file, {**properties, key: value})
    line = len(broker.config_file.read_text("utf-8").splitlines())
    code, output = run_to_the_end(broker)
    assert code == 2 and f"{broker.config_file}:{line}: {key}: " in output and value in output, output
    assert "expected" in output and "Traceback" not in output, output
    assert not (broker.store / "commitlog").exists()


@pytest.mark.java
def test_odd_values_that_work_there_work_here(make_broker):
    """The two answer with the same configuration."""
    told = []
    for kind in ("java", "rmqha"):
        node = make_broker(kind, None, kind, **ODD_VALUES)
        with RawClient(node.address) as client:
            answer = client.request(request_code.GET_BROKER_CONFIG)
        properties = dict(line.split("=", 1) for line in answer.body.decode().splitlines())
        told.append({key: properties.get(key) for key in ODD_VALUES})
    assert told[0] == told[1] and told[1]["autoCreateTopicEnable"] == "false" and told[1]["brokerId"] == "0"


def test_slave_with_the_masters_id_is_refused(broker):
    write_properties(broker.config_file, {**broker.properties, "brokerRole": "SLAVE", "brokerId": 0})
    code, output = run_to_the_end(broker)
    assert code == 2 and str(broker.config_file) in output and "brokerId" in output, output


def test_missing_file_is_refused_by_name(broker, namesrv, tmp_path):
    for node in (broker, namesrv):
        code, output = run_to_the_end(node, tmp_path / "nowhere.properties")
        assert code == 2 and "nowhere.properties" in output, output


@pytest.mark.parametrize("tail", [b"brokerName=caf\xe9\n", b"brokerName=\xff\xfe\x00\n"])
def test_latin_1_bytes_are_refused_or_read_but_never_a_traceback(broker, tail):
    """Java reads properties files as latin-1; either way the broker says what it made of it."""
    broker.config_file.write_bytes(broker.config_file.read_bytes() + tail)
    broker.launch()
    wait_until(lambda: not broker.is_alive or "boot success" in broker.output(), 60_000, "an end or a start")
    output = broker.output()
    assert "Traceback" not in output, output
    if not broker.is_alive:
        assert broker.process.returncode == 2 and str(broker.config_file) in output, output


def test_malformed_escape_is_refused_with_its_line(broker):
    lines = len(broker.config_file.read_text("utf-8").splitlines())
    broker.config_file.write_text(broker.config_file.read_text("utf-8") + "brokerName=\\u12xz\n", "utf-8")
    code, output = run_to_the_end(broker)
    assert code == 2 and f"{broker.config_file}:{lines + 1}" in output, output


def test_unknown_key_is_a_warning_with_the_nearest_name(broker):
    broker.config_file.write_text(broker.config_file.read_text("utf-8") + "flushDiskTyp=SYNC_FLUSH\n", "utf-8")
    broker.start()
    logs = "".join(f.read_text("utf-8", "replace") for f in broker.folder.rglob("*.log") if f.is_file())
    told = broker.output() + logs
    assert "unknown key flushDiskTyp" in told and "flushDiskType" in told, told


@pytest.mark.parametrize("key, value", [("listenPort", "many"), ("listenPort", "99999999999")])
def test_name_server_refuses_bad_values_too(namesrv, key, value):
    lines = [old for old in namesrv.config_file.read_text("utf-8").splitlines() if not old.startswith(f"{key}=")]
    namesrv.config_file.write_text("\n".join([*lines, f"{key}={value}"]) + "\n", "utf-8")
    code, output = run_to_the_end(namesrv)
    assert code == 2 and f"{namesrv.config_file}:{len(lines) + 1}: {key}" in output, output


def test_port_that_is_taken_is_told_in_one_line(broker, nodes, tmp_path):
    broker.start()
    second = BrokerNode("rmqha", tmp_path / "second", None, "second", listenPort=broker.port)
    nodes.append(second)
    code, output = run_to_the_end(second)
    assert code != 0 and "in use" in output and "Traceback" not in output, output


def test_store_that_is_in_use_is_refused(broker, nodes, tmp_path):
    broker.start()
    second = BrokerNode("rmqha", tmp_path / "second", None, "second", storePathRootDir=broker.store,
                        storePathCommitLog=broker.commit_log)
    nodes.append(second)
    code, output = run_to_the_end(second)
    assert code != 0 and "lock" in output.lower(), output
    assert broker.is_alive
