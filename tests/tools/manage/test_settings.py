"""`rmqha cluster`: a cluster at a glance; settings of real brokers: read, changed, compared with their files."""
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.common.config_keys import config_keys, parse_property
from rmqha.common.configuration import FIXED_KEYS, SECRET_KEYS
from rmqha.common.protocol import cluster_bodies, request_code
from rmqha.common.protocol.cluster_bodies import ConfigFileReport, decode_report
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.manage import settings as operations
from rmqha.tools.manage.settings import (
    AT_NEXT_START,
    CLASSES,
    OWN_KEYS,
    OWN_KEYS_OF_SLAVES,
    Settings,
    differences,
    effect_of,
    file_name,
    known_keys,
    same_value,
    wanted_values,
)
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.broker.support import BrokerHarness
from tests.support.in_process import running_name_server
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at
from tests.tools.manage.fake_broker import answer, fake_broker, registered

CONFIG = request_code.GET_BROKER_CONFIG
FILE = "# of broker-a\nfileReservedTime=72\ndeleteWhen=04\n"


@dataclass
class Brokers:
    """A name server with broker-a, its slave, and broker-b; the files of their configuration."""

    namesrv: str
    master: BrokerHarness
    slave: BrokerHarness
    other: BrokerHarness
    folder: Path

    def file(self, name: str) -> Path:
        """Return the config file of a broker: master, slave or other."""
        return self.folder / name / "broker.conf"

    def run(self, *arguments: object, code: int = 0, **more: object) -> str:
        """Return the output of `rmqha cluster ARGUMENTS`."""
        words = ["cluster", *map(str, arguments)]
        result = CliRunner().invoke(rmqha, words, env={"NAMESRV_ADDR": self.namesrv}, **more)
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result.output

    def json(self, *arguments: object, code: int = 0) -> object:
        """Return the JSON in the output, before the errors."""
        return json.loads(self.run(*arguments, "-o", "json", code=code).splitlines()[0])


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("brokers")
    for name in ("master", "slave", "other"):
        (folder / name).mkdir()
        (folder / name / "broker.conf").write_text(FILE)
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        master = stack.enter_context(broker_at(folder / "master", namesrv, brokerClusterName="C"))
        slave = stack.enter_context(broker_at(
            folder / "slave", namesrv, brokerClusterName="C", brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}"))
        other = stack.enter_context(broker_at(folder / "other", namesrv, brokerClusterName="C",
                                              brokerName="broker-b"))
        yield Brokers(namesrv, master, slave, other, folder)


@pytest.fixture
def brokers(shared):
    """Yield the brokers with equal settings, and restore these afterwards."""
    yield shared
    for name in ("master", "slave", "other"):
        if shared.file(name).is_dir():
            shared.file(name).rmdir()
        shared.file(name).write_text(FILE)
    shared.run("config", "set", "--yes", "fileReservedTime=72", "deleteWhen=04", "traceOn=true")
    for name in ("master", "slave", "other"):
        shared.file(name).write_text(FILE)


# ---- keys and values


@pytest.mark.parametrize("words, error", [
    (["fileReservdTime=48"], "unknown config key 'fileReservdTime'; did you mean fileReservedTime?"),
    (["fileReservedTime=soon"], "fileReservedTime: expected a whole number of hours from 0 to 2147483647, not 'soon'"),
    (["traceOn=maybe"], "traceOn: expected true or false, not 'maybe'"),
    (["brokerName=x"], "brokerName can't be changed while a broker runs"),
    (["storePathRootDir=/tmp"], "storePathRootDir can't be changed while a broker runs"),
    (["messageDelayLevel=1s"], "messageDelayLevel can't be changed while a broker runs"),
    (["fileReservedTime"], "'fileReservedTime' is not KEY=VALUE"),
    (["=1"], "'=1' is not KEY=VALUE"),
    (["traceOn=true", "traceOn=false"], "traceOn is given twice"),
])
def test_invalid_changes_are_refused_before_anything_is_sent(words, error):
    with pytest.raises(CannotAnswerError) as failure:
        wanted_values(words)
    assert error in failure.value.message


def test_every_fixed_key_is_refused():
    refused = set()
    for key in FIXED_KEYS & set(known_keys()):
        with pytest.raises(CannotAnswerError, match="can't be changed while a broker runs|is not KEY=VALUE"):
            wanted_values([f"{key}=1"])
        refused.add(key)
    assert len(refused) > 50


@given(st.lists(st.text(max_size=40), max_size=3))
@example(["fileReservedTime=1", " fileReservedTime = 2"])
def test_any_text_is_a_change_or_an_error_for_users(words):
    try:
        wanted = wanted_values(words)
    except CannotAnswerError as error:
        assert error.message and len(error.message) < 400
        return
    for key, value in wanted.items():
        parse_property(value, known_keys()[key])


def test_values_are_compared_by_meaning():
    assert same_value("traceOn", "true", " TRUE") and not same_value("traceOn", "true", "false")
    assert same_value("fileReservedTime", "072", "72") and not same_value("fileReservedTime", "72", "73")
    assert same_value("flushDiskType", "SYNC_FLUSH", "SYNC_FLUSH ")
    assert not same_value("brokerName", "a", "A") and not same_value("unknownKey", "1", "01")
    assert not same_value("traceOn", "true", None) and same_value("traceOn", None, None)
    assert not same_value("fileReservedTime", "noise", "72")


def test_names_of_keys():
    assert file_name("isEnableBatchPush") == "enableBatchPush"
    assert file_name("mapedFileSizeCommitLog") == "mappedFileSizeCommitLog"
    assert file_name("unknown") == "unknown"
    assert Settings({"isEnableBatchPush": "true"}).value("enableBatchPush") == "true"
    assert set(OWN_KEYS) - {"brokerConfigPath"} <= {key for each in CLASSES for key in config_keys(each)}
    assert set(OWN_KEYS_OF_SLAVES) <= set(known_keys())


def test_effects_are_told():
    assert effect_of("fileReservedTime") == "at run time"
    assert effect_of("sendMessageThreadPoolNums") == "at the next start"
    assert effect_of("flushDiskType").endswith("to SYNC_FLUSH at the next start")
    assert any(AT_NEXT_START.fullmatch(key) for key in known_keys())


# ---- the report of the broker about its file


TEXTS = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)


@given(st.builds(ConfigFileReport, st.text(max_size=8), st.booleans(), st.text(max_size=8), TEXTS, TEXTS,
                 st.lists(st.text(max_size=8), max_size=3)))
def test_report_survives_its_encoding(report):
    assert decode_report(report.encode()) == report
    assert decode_report(None) is None


JSON_VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["path", "read_at_start", "error", "values", "changed", "edited", "new"]), inner, max_size=5)), max_leaves=8)


@given(st.text(max_size=40) | JSON_VALUES.map(json.dumps))
@example('{"values": {"a": 1}}')
@example('{"edited": [1]}')
@example('{"path": null}')
def test_hostile_report_is_a_value_error_or_a_valid_report(text):
    try:
        report = decode_report(text)
    except ValueError:
        return
    assert isinstance(report.path, str) and isinstance(report.error, str) and isinstance(report.read_at_start, bool)
    assert all(isinstance(each, str) for each in (*report.values, *report.values.values(), *report.edited))


def asked(broker: BrokerHarness, with_file: bool) -> RemotingCommand:
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_CONFIG)
    if with_file:
        request.add_ext_field(cluster_bodies.ASK_CONFIG_FILE, "true")
    return broker.client.invoke_sync(broker.address, request, 60_000)


def test_answer_without_the_field_is_as_before(brokers):
    plain, more = asked(brokers.master, False), asked(brokers.master, True)
    assert plain.body == more.body and plain.code == more.code == 0 and plain.remark == more.remark
    fields = dict(more.ext_fields)
    report = decode_report(fields.pop(cluster_bodies.CONFIG_FILE))
    assert fields == plain.ext_fields and set(fields) == {"version"}
    assert report == ConfigFileReport(str(brokers.file("master")), True, "", {
        "fileReservedTime": "72", "deleteWhen": "04"}, report.changed, [])


def test_report_has_no_secret(brokers):
    secrets = {key: f"hidden of {key}" for key in (*sorted(SECRET_KEYS), "my.password", "someSecret")}
    brokers.file("master").write_text(FILE + "".join(f"{key}={text}\n" for key, text in secrets.items()))
    report = asked(brokers.master, True).ext_fields[cluster_bodies.CONFIG_FILE]
    assert "hidden of" not in report and not set(secrets) & set(json.loads(report)["values"])
    assert "hidden of" not in brokers.run("config", "diff") + brokers.run("config", "get")


@pytest.mark.parametrize("content, error", [
    (b"a=\\u12", "Malformed"), (b"#" * (cluster_bodies.MAX_FILE_BYTES + 1), "it is longer than"),
    (b"".join(b"k%d=1\n" % number for number in range(6000)), "too many keys"),
    (b"k=" + b"\\\\" * 30_000, "too many keys or special characters"), (b"k=" + b"\xe9" * 60_000, "too many keys"),
    (b"k=" + b'",[{:' * 12_000, "too many keys"),
    (None, "No such file"), ("folder", "not a regular file")])
def test_file_that_cannot_be_reported_is_an_error_in_the_report(brokers, content, error):
    brokers.file("master").unlink()
    if content == "folder":
        brokers.file("master").mkdir()
    elif content is not None:
        brokers.file("master").write_bytes(content)
    report = decode_report(asked(brokers.master, True).ext_fields[cluster_bodies.CONFIG_FILE])
    assert error in report.error and report.values == {} and report.edited == []
    told = brokers.json("config", "diff", "-b", brokers.master.address)
    assert error in told["unknown"]["broker-a 0"]


# ---- info and brokers


def test_info_and_brokers(brokers):
    text = brokers.run("info", "-i", "0.2")
    assert "cluster C   2 masters, 1 slave" in text and "versions  V4_9_8" in text
    told = brokers.json("info", "-i", "0.2")
    assert [(each["name"], each["masters"], each["slaves"]) for each in told["clusters"]] == [("C", 2, 1)]
    assert told["name_servers"] == [{"address": brokers.namesrv, "error": ""}] and told["controllers"] == []
    rows = {(each["name"], each["broker_id"]): each for each in brokers.json("brokers", "-i", "0.2")}
    assert rows["broker-a", 1]["slave"]["lag_bytes"] == 0 and rows["broker-a", 1]["role"] == "SLAVE"
    assert rows["broker-a", 0]["slave"] is None and rows["broker-b", 0]["address"] == brokers.other.address
    text = brokers.run("brokers", "-i", "0.2")
    assert [line.split()[:3] for line in text.splitlines()[2:]] == [
        ["broker-a", "0", "ASYNC_MASTER"], ["broker-a", "1", "SLAVE"], ["broker-b", "0", "ASYNC_MASTER"]]
    assert yaml.safe_load(brokers.run("info", "-i", "0.2", "-o", "yaml"))["clusters"][0]["silent"] == []


def test_info_names_the_controllers(brokers):
    leader = answer(group="g", controllerLeaderId="n0", controllerLeaderAddress="x", isLeader="true", peers="n0-x")
    with fake_broker(brokers.namesrv, {request_code.CONTROLLER_GET_METADATA_INFO: leader}, name="unused") as controller:
        config = f"enableControllerMode=true\ncontrollerAddr=127.0.0.1:1;{controller}\nbrokerRole=ASYNC_MASTER\n"
        made = {CONFIG: answer(body=config.encode()),
                request_code.GET_BROKER_RUNTIME_INFO: answer(body=b'{"table":{}}'),
                request_code.GET_BROKER_HA_STATUS: answer(code=3)}
        with fake_broker(brokers.namesrv, made):
            text = brokers.run("info", "-i", "0.2", "--timeout", "2", code=1)
            told = brokers.json("info", "-i", "0.2", "--timeout", "2", code=1)
    assert f"controllers   127.0.0.1:1 NO ANSWER, {controller} leads" in text
    assert [(each["address"], each["is_leader"]) for each in told["controllers"]] == [
        ("127.0.0.1:1", False), (controller, True)]


def test_broker_that_does_not_answer_is_shown_and_is_exit_code_1(brokers):
    with registered(brokers.namesrv, "127.0.0.1:1", "broker-gone"):
        text = brokers.run("brokers", "-i", "0.2", "--timeout", "2", code=1)
        assert "broker-gone   0" in text and "NO ANSWER" in text and "1 broker of 4 did not answer" in text
        text = brokers.run("info", "-i", "0.2", "--timeout", "2", code=1)
        assert "NO ANSWER from broker-gone 0" in text and "CRITICAL" in text
        told = brokers.run("config", "get", "fileReservedTime", "--timeout", "2", code=1)
        assert "broker-gone (127.0.0.1:1): the broker 127.0.0.1:1 can't be reached" in told and "72" in told


def test_cluster_without_an_answering_broker_is_exit_code_2(tmp_path):
    with running_name_server(tmp_path) as namesrv, registered(namesrv, "127.0.0.1:1", "broker-gone"):
        for words in (["info", "-i", "0.1"], ["brokers", "-i", "0.1"], ["config", "get"], ["config", "diff"]):
            result = CliRunner().invoke(rmqha, ["cluster", *words, "-n", namesrv, "--timeout", "1"])
            assert result.exit_code == 2, result.output


# ---- get


def test_get_shows_brokers_side_by_side(brokers):
    assert brokers.json("config", "get", "fileReservedTime", "brokerRole")["values"] == {
        "fileReservedTime": {"broker-a 0": "72", "broker-a 1": "72", "broker-b 0": "72"},
        "brokerRole": {"broker-a 0": "ASYNC_MASTER", "broker-a 1": "SLAVE", "broker-b 0": "ASYNC_MASTER"}}
    assert list(brokers.json("config", "get", "traceOn", "-b", "broker-b")["values"]["traceOn"]) == ["broker-b 0"]
    one = brokers.json("config", "get", "traceOn", "-b", brokers.slave.address)["values"]["traceOn"]
    assert list(one) == ["broker-a 1"]
    assert len(brokers.json("config", "get")["values"]) > 200
    assert "did you mean traceOn?" in brokers.run("config", "get", "traceOnn", code=2)
    text = brokers.run("config", "get", "storePathDLedgerCommitLog", "-b", "broker-b")
    assert text.splitlines()[-1].split() == ["storePathDLedgerCommitLog", "-"]


# ---- set


def test_set_changes_all_brokers_and_their_files(brokers):
    before = {name: brokers.file(name).read_text() for name in ("master", "slave", "other")}
    dry = brokers.run("config", "set", "--dry-run", "fileReservedTime=48")
    assert "dry run" in dry and brokers.json("config", "get", "fileReservedTime")["values"]["fileReservedTime"][
        "broker-a 0"] == "72"
    assert {name: brokers.file(name).read_text() for name in before} == before
    text = brokers.run("config", "set", "--yes", "fileReservedTime=48", "deleteWhen=04")
    assert "broker-a 1  fileReservedTime  72      48" in text and "unchanged" in text
    for name, label in (("master", "broker-a 0"), ("slave", "broker-a 1"), ("other", "broker-b 0")):
        assert f"{label}: fileReservedTime=48 set, and saved in {brokers.file(name)}" in text
        assert brokers.file(name).read_text() == FILE.replace("72", "48")
    assert brokers.master.controller.message_store_config.fileReservedTime == 48
    assert "nothing to change" in brokers.run("config", "set", "--yes", "fileReservedTime=48")


def test_set_of_one_replica_only(brokers):
    brokers.run("config", "set", "--yes", "-b", brokers.slave.address, "traceOn=false")
    values = brokers.json("config", "get", "traceOn")["values"]["traceOn"]
    assert values == {"broker-a 0": "true", "broker-a 1": "false", "broker-b 0": "true"}


@pytest.mark.parametrize("said, code, value", [("n\n", 1, "true"), ("y\n", 0, "false")])
def test_set_asks_on_a_terminal(brokers, monkeypatch, said, code, value):
    monkeypatch.setattr("rmqha.tools.terminal.on_terminal", lambda: True)
    text = brokers.run("config", "set", "-b", "broker-b", "traceOn=false", code=code, input=said)
    assert "Change 1 key at 1 broker?" in text
    assert brokers.json("config", "get", "traceOn")["values"]["traceOn"]["broker-b 0"] == value


def test_set_without_a_terminal_needs_yes(brokers):
    for output in ("table", "json"):
        text = brokers.run("config", "set", "traceOn=false", "-o", output, code=2)
        assert "broker-b 0  traceOn  true    false" in text
        assert text.endswith("Error: Change 1 key at 3 brokers? No terminal to ask on: give --yes\n")
    assert "nothing to change" in brokers.run("config", "set", "traceOn=true")


def test_key_of_the_next_start_is_noted(brokers):
    text = brokers.run("config", "set", "--yes", "-b", "broker-b", "sendMessageThreadPoolNums=3")
    assert "sendMessageThreadPoolNums takes effect at the next start" in text
    brokers.run("config", "set", "--yes", "sendMessageThreadPoolNums=2")


def test_partial_failure_is_exit_code_1_and_the_rest_is_changed(brokers):
    config = brokers.other.controller.broker_config
    black = config.configBlackList
    config.configBlackList = "traceOn"
    try:
        dry = brokers.run("config", "set", "--dry-run", "traceOn=false", code=1)
        assert "1 change would be refused" in dry
        text = brokers.run("config", "set", "--yes", "traceOn=false", code=1)
    finally:
        config.configBlackList = black
    assert "broker-b" in text and "the broker's configBlackList names traceOn" in text
    assert "1 broker of 3 failed" in text
    values = brokers.json("config", "get", "traceOn")["values"]["traceOn"]
    assert values == {"broker-a 0": "false", "broker-a 1": "false", "broker-b 0": "true"}


def test_value_that_is_not_saved_is_exit_code_1(brokers):
    brokers.file("other").unlink()
    brokers.file("other").mkdir()
    text = brokers.run("config", "set", "--yes", "fileReservedTime=48", code=1)
    assert f"broker-b 0: fileReservedTime=48 set, but NOT SAVED: its file {brokers.file('other')} can't be read" in text
    assert "broker-a 0: fileReservedTime=48 set, and saved" in text
    assert "lost when the broker restarts" in text
    told = brokers.json("config", "set", "--yes", "fileReservedTime=49", code=1)["changes"]
    assert {each["broker"]["name"]: each["saved"] for each in told} == {"broker-a": True, "broker-b": False}


# ---- diff


def test_diff_finds_what_differs_between_replicas(brokers):
    assert brokers.json("config", "diff", "--exit-code") == {"replicas": [], "files": [], "unknown": {}}
    brokers.run("config", "set", "--yes", "-b", brokers.slave.address, "fileReservedTime=24")
    brokers.run("config", "set", "--yes", "-b", "broker-b", "traceOn=false")
    told = brokers.json("config", "diff", "--exit-code", code=1)
    assert [(each["key"], each["compared"], each["values"]) for each in told["replicas"]] == [
        ("traceOn", "masters", {"broker-a 0": "true", "broker-b 0": "false"}),
        ("fileReservedTime", "slave broker-a 1", {"broker-a 0": "72", "broker-a 1": "24"})]
    assert brokers.json("config", "diff")["replicas"] == told["replicas"]
    only = brokers.json("config", "diff", "traceOn")["replicas"]
    assert [each["key"] for each in only] == ["traceOn"]
    assert brokers.json("config", "diff", "deleteWhen", "--exit-code") == {"replicas": [], "files": [], "unknown": {}}
    text = brokers.run("config", "diff")
    assert "fileReservedTime  slave broker-a 1  72" in text and "no differences from the config files" in text


def test_diff_leaves_out_what_has_to_differ(brokers):
    everything = brokers.json("config", "diff", "--all")["replicas"]
    reasons = {(each["key"], each["compared"]): each["expected"] for each in everything}
    assert reasons["brokerName", "masters"] == "each broker name is unique"
    assert reasons["brokerRole", "slave broker-a 1"] == "a slave's role is SLAVE"
    assert reasons["listenPort", "masters"] and reasons["storePathRootDir", "masters"]
    assert all(each["expected"] for each in everything)
    assert "expected because" in brokers.run("config", "diff", "--all")


def test_diff_finds_what_differs_from_the_file(brokers):
    brokers.file("master").write_text(FILE.replace("72", "10") + "traceOn=false\nmapedFileSizeCommitLog=7\n")
    told = brokers.json("config", "diff", "--exit-code", code=1)["files"]
    assert {each["key"]: (each["running"], each["in_file"], each["why"][:26]) for each in told} == {
        "fileReservedTime": ("72", "10", "the file was edited after "),
        "traceOn": ("true", "false", "the file was edited after "),
        "mappedFileSizeCommitLog": (str(1 << 20), "7", "the file was edited after ")}
    assert "broker-a 0  fileReservedTime" in brokers.run("config", "diff")
    brokers.file("master").write_text(FILE.replace("72", "072"))
    assert brokers.json("config", "diff")["files"] == []
    brokers.file("master").write_text(FILE.replace("deleteWhen=04\n", ""))
    told = brokers.json("config", "diff")["files"]
    assert [(each["key"], each["running"], each["in_file"], each["why"]) for each in told] == [
        ("deleteWhen", "04", None, "the file was edited after the start: the next start reads it")]


def test_diff_finds_a_change_that_the_file_lost(brokers):
    brokers.file("other").unlink()
    brokers.file("other").mkdir()
    brokers.run("config", "set", "--yes", "-b", "broker-b", "fileReservedTime=48", code=1)
    brokers.file("other").rmdir()
    brokers.file("other").write_text(FILE)
    told = brokers.json("config", "diff", "-b", "broker-b")["files"]
    assert [(each["key"], each["running"], each["in_file"]) for each in told] == [("fileReservedTime", "48", "72")]
    assert told[0]["why"] == "changed at run time and not saved: the next start forgets it"


def row(name: str, broker_id: int, values: dict[str, str], report: ConfigFileReport | None = None):
    broker = Broker("C", name, broker_id, f"{name}-{broker_id}:1")
    return broker, Settings(values, report)


def test_keys_that_only_some_brokers_have_are_not_compared():
    java = row("broker-a", 0, {"fileReservedTime": "72", "waitTimeMillsInSendQueue": "200"})
    ours = row("broker-b", 0, {"fileReservedTime": "072", "haHandshakeEnable": "true"}, ConfigFileReport("f", True))
    found = differences(dict([java, ours]))
    assert found.replicas == [] and found.files == []
    assert list(found.unknown.values()) == ["it does not report its file"]


def test_overridden_and_assigned_values_of_a_file_are_told_apart():
    report = ConfigFileReport("f", True, values={"brokerRole": "SLAVE", "traceOn": "false", "haListenPort": "1"})
    values = {"brokerRole": "ASYNC_MASTER", "traceOn": "true", "haListenPort": "10912", "enableControllerMode": "true"}
    found = differences(dict([row("broker-a", 0, values, report)]))
    assert {each.key: each.expected for each in found.files} == {
        "brokerRole": True, "traceOn": False, "haListenPort": True}
    assert [each.key for each in found.unexpected.files] == ["traceOn"]
    fixed = differences(dict([row("broker-a", 0, {**values, "enableControllerMode": "false"}, report)]))
    assert {each.key for each in fixed.unexpected.files} == {"brokerRole", "traceOn"}


def test_broker_without_a_file_forgets_its_changes():
    report = ConfigFileReport("f", False, values={"traceOn": "false"}, changed={"traceOn": "true"})
    found = differences(dict([row("broker-a", 0, {"traceOn": "true"}, report)]))
    assert "without -c" in found.files[0].why
    unread = ConfigFileReport("f", False, "No such file or directory")
    assert differences(dict([row("broker-a", 0, {}, unread)])).unknown == {
        Broker("C", "broker-a", 0, "broker-a-0:1"): "it was started without a file (-c)"}


# ---- hostile answers


@pytest.mark.parametrize("made, error", [
    (answer(body=b"\xff\xfe"), "can't be read"),
    (answer(body=b"a=\\u12"), "can't be read"),
    (answer(body=b"a=1", configFile="[" * 10_000), "can't be read"),
    (answer(body=b"a=1", configFile='{"values": 7}'), "can't be read"),
    (answer(code=1, remark="java.lang.Boom"), "returned error 1: java.lang.Boom")])
def test_hostile_answer_is_an_error_of_that_broker(brokers, made, error):
    with fake_broker(brokers.namesrv, {CONFIG: made}):
        text = brokers.run("config", "get", "fileReservedTime", code=1)
    assert error in text and "broker-x" in text and "1 broker of 4 failed" in text


def test_hostile_texts_are_escaped_and_secrets_hidden(brokers):
    body = b"fileReservedTime=\\u001b[31m72\nmy.password=hunter2\ntls.server.keyPassword=hunter3\n"
    with fake_broker(brokers.namesrv, {CONFIG: answer(body=body)}, name="broker-\x1b[0mx"):
        text = brokers.run("config", "get") + brokers.run("config", "diff", "--all")
        told = brokers.run("config", "get", "-o", "json")
    assert "\x1b" not in text and "hunter" not in text + told
    assert "\\u001b[31m72" in text and '"***"' in told


def test_broker_that_only_claims_success_is_found(brokers):
    made = {CONFIG: answer(body=b"fileReservedTime=72\n"), request_code.UPDATE_BROKER_CONFIG: answer()}
    with fake_broker(brokers.namesrv, made):
        text = brokers.run("config", "set", "--yes", "-b", "broker-x", "fileReservedTime=48", code=2)
        assert "the broker reported success, but fileReservedTime is 72" in text
        text = brokers.run("config", "set", "--yes", "-b", "broker-x", "traceOn=false", code=2)
        assert "this broker does not know traceOn" in text


def test_refusal_of_a_broker_is_shown(brokers):
    made = {CONFIG: answer(body=b"traceOn=true\n"), request_code.UPDATE_BROKER_CONFIG: answer(
        code=16, remark="Can not update config in black list.")}
    with fake_broker(brokers.namesrv, made):
        assert "black list" in brokers.run("config", "set", "--yes", "-b", "broker-x", "traceOn=false", code=2)


# ---- processes


def test_saved_value_survives_a_restart_and_the_command_line_overrides_the_file(nodes, tmp_path):
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode("rmqha", tmp_path / "broker", namesrv.address, fileReservedTime=72)
    nodes.append(broker)
    broker.command = [*broker.command, "traceOn=false"]
    broker.config_file.write_text(broker.config_file.read_text() + "traceOn=true\n")
    broker.start()

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(rmqha, ["cluster", "config", *words, "-n", namesrv.address])
        assert result.exit_code == code, result.output
        return result.output
    assert f"saved in {broker.config_file}" in run("set", "--yes", "fileReservedTime=48")
    told = json.loads(run("diff", "-o", "json"))["files"]
    assert [(each["key"], each["running"], each["in_file"]) for each in told] == [("traceOn", "false", "true")]
    assert "overrides the file" in told[0]["why"]
    broker.stop()
    broker.start()
    wait_until(lambda: CliRunner().invoke(rmqha, ["cluster", "config", "get", "-n", namesrv.address]).exit_code == 0,
               60_000, "the broker is registered again")
    values = json.loads(run("get", "fileReservedTime", "-o", "json"))["values"]
    assert values == {"fileReservedTime": {"broker-a 0": "48"}}


def test_broker_that_was_started_without_a_file_forgets_its_changes(nodes, tmp_path):
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode("rmqha", tmp_path / "broker", namesrv.address)
    nodes.append(broker)
    at = broker.command.index("-c")
    words = [f"{key}={value}" for key, value in broker.properties.items()]
    broker.command = [*broker.command[:at], *broker.command[at + 2:], *words]
    broker._env["HOME"] = str(tmp_path)
    broker.start()
    file = tmp_path / "store" / "config" / "broker.properties"

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(rmqha, ["cluster", "config", *words, "-n", namesrv.address])
        assert result.exit_code == code, result.output
        return result.output
    assert "it was started without a file (-c)" in run("diff")
    text = run("set", "--yes", "fileReservedTime=48", code=1)
    assert f"NOT SAVED: {file} has it, but the broker was started without -c" in text
    assert "fileReservedTime=48" in file.read_text() and json.loads(run("diff", "-o", "json"))["files"] == []


@pytest.mark.java
def test_java_broker_has_no_report_and_notices_nothing(nodes, tmp_path):
    """Get, set and diff of a RocketMQ broker beside one of rmqha."""
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    for kind, name in (("java", "broker-a"), ("rmqha", "broker-b")):
        node = BrokerNode(kind, tmp_path / kind, namesrv.address, brokerName=name)
        nodes.append(node)
        node.start()

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(rmqha, ["cluster", *words, "-n", namesrv.address])
        assert result.exit_code == code, result.output
        return result.output
    values = json.loads(run("config", "get", "fileReservedTime", "traceOn", "haHandshakeEnable", "-o", "json"))
    assert values["values"]["traceOn"] == {"broker-a 0": "true", "broker-b 0": "true"}
    assert values["values"]["haHandshakeEnable"] == {"broker-a 0": None, "broker-b 0": "auto"}
    told = json.loads(run("config", "diff", "-o", "json"))
    assert told["unknown"] == {"broker-a 0": "it does not report its file"} and told["files"] == []
    text = run("config", "set", "--yes", "fileReservedTime=48")
    assert "broker-a 0: fileReservedTime=48 set; whether it is saved is unknown" in text
    assert "broker-b 0: fileReservedTime=48 set, and saved in" in text
    assert "fileReservedTime=48" in (tmp_path / "java" / "broker.properties").read_text()
    text = run("config", "set", "--yes", "haScrubEnable=true", code=1)
    assert "this broker does not know haScrubEnable" in text and "1 broker of 2 failed" in text
    assert not [each for each in json.loads(run("config", "diff", "-o", "json"))["replicas"]
                if each["key"] == "fileReservedTime"]
    rows = json.loads(run("brokers", "-i", "0.2", "-o", "json"))
    assert [(each["name"], each["error"]) for each in rows] == [("broker-a", ""), ("broker-b", "")]


def test_operations_need_no_click():
    assert not [name for name in vars(operations) if name == "click"]
