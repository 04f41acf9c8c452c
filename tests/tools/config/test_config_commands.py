"""`rmqha config explain` and `check`: each key has a meaning, and a file is read as its server reads it."""
import json

import pytest

from rmqha.broker import broker_startup
from rmqha.common.config_keys import config_keys
from rmqha.controller import controller_startup
from rmqha.tools.config.config_command import OWNERS, explain, known_keys
from rmqha.tools.config.config_meanings import MEANINGS, NOT_IN_5, NOWHERE_ELSE, OLD_NAMES, RENAMED_IN_5
from tests.common.test_config_keys import keys
from tests.support.sources import ROOT


def test_each_key_has_a_meaning_and_each_meaning_a_key():
    own = {key for config_class in OWNERS for key in config_keys(config_class)}
    assert set(MEANINGS) == own == {key for _class, key, _kind, _default in keys()}
    assert all(text and text[-1] not in ".;" for text in MEANINGS.values())
    assert own >= NOT_IN_5 | NOWHERE_ELSE | set(RENAMED_IN_5) | set(OLD_NAMES)


def test_what_the_original_lacks_is_marked_so_at_the_key():
    for config_class in OWNERS:
        extensions = {key for key, item in config_keys(config_class).items() if item.metadata.get("extension")}
        assert not extensions & NOT_IN_5 and config_keys(config_class).keys() & NOWHERE_ELSE <= extensions


def test_who_reads_a_key_is_found_in_the_code():
    assert "store/ha/ack_rules.py" in explain("haSlaveFallbehindMax")[0].readers
    assert explain("putMsgIndexHightWater")[0].readers == []
    assert "store/message_store_config.py" in explain("diskMaxUsedSpaceRatio")[0].readers


def test_explain_tells_all(run):
    result = run("config", "explain", "flushIntervalCommitLog", "-o", "json")
    told, = json.loads(result.stdout)
    assert (told["least"], told["greatest"], told["unit"], told["default"]) == (0, 2**31 - 1, "milliseconds", "500")
    assert told["in_4_9"] == told["in_5"] == "flushIntervalCommitLog"
    text = run("config", "explain", "haSlaveFallbehindMax", "mapedFileSizeCommitLog", "stallWatchMs").stdout
    assert "haMaxGapNotInSync" in text and "before 4.5: mapedFileSizeCommitLog" in text and "does not have it" in text


def test_a_key_of_several_files_is_explained_for_each(run):
    told = json.loads(run("config", "explain", "rocketmqHome", "-o", "json").stdout)
    assert [each["config_class"] for each in told] == ["BrokerConfig", "NamesrvConfig", "ControllerConfig"]


def test_every_key_can_be_explained():
    assert all(explain(key) for key in known_keys())


def test_a_key_that_is_none_gets_a_hint(run):
    result = run("config", "explain", "brokerNam")
    assert result.exit_code == 2 and result.stderr == "Error: no config key 'brokerNam'; did you mean brokerName?\n"


@pytest.mark.parametrize("line", [
    "brokerName=", "listenPort=2", "brokerRole=MASTER", "enableDLegerCommitLog=true", "flushDiskType=", "a\\u12",
    "maxIndexNum=600000000", "brokerRole=SLAVE", "messageStorePlugIn=x.y.Z", "writeBufferHighWaterMark=1\n"
    "writeBufferLowWaterMark=2", "enableAutoSwitchHA=true\ntransientStorePoolEnable=true"])
def test_what_keeps_a_broker_from_starting_is_found_at_the_same_line(run, tmp_path, capsys, line):
    file = tmp_path / "broker.conf"
    file.write_text(f"# a comment\nstorePathRootDir={tmp_path}\n{line}\n")
    assert broker_startup.main(["-c", str(file)]) == 2
    place, _, text = capsys.readouterr().err.strip().partition(": ")
    result = run("config", "check", file)
    assert result.exit_code == 1 and f"{place}: error: {text}\n" in result.stdout


def test_all_that_is_wrong_is_told_by_line(run, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=x\nbrokerNam=a\nmapedFileSizeCommitLog=1\nslaveTimeout=-1\n")
    result = run("config", "check", file, "-o", "json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [(each["line"], each["severity"]) for each in told["findings"]] == [
        (1, "error"), (2, "warning"), (3, "warning"), (3, "error"), (4, "error")]
    assert (told["errors"], told["warnings"]) == (3, 2)


def test_a_name_servers_file_is_told_by_its_keys(run, tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=9876\nkvConfigPath=/a/kv.json\norderMessageEnable=maybe\n")
    result = run("config", "check", file)
    assert result.exit_code == 1 and f"{file}:3: error: orderMessageEnable" in result.stdout
    file.write_text("listenPort=9876\nkvConfigPath=/a/kv.json\n")
    assert run("config", "check", file).exit_code == 0
    assert "unknown key kvConfigPath" in run("config", "check", "--for", "broker", file).stdout


PEERS = "controllerDLegerPeers=n0-127.0.0.1:9878"


@pytest.mark.parametrize("text, line, part", [
    ("controllerDLegerSelfId=n0\n", None, "controllerDLegerPeers: is missing"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n1\n", 2, "controllerDLegerSelfId: 'n1' is none of"),
    ("controllerDLegerPeers=n0=127.0.0.1\n", 1, "is no id-host:port"),
    (f"{PEERS};n0-h:1\ncontrollerDLegerSelfId=n0\n", 1, "the id n0 is there twice"),
    (f"{PEERS};n1-h:1\ncontrollerDLegerSelfId=n0\n", 1, "2 controllers can't share a file"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=etcd\n", None, "etcdEndpoints: is missing"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=zookeeper\n", 3, "controllerStore"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=etcd\netcdEndpoints=a:1\netcdCertFile=x\n", None,
     "etcdCertFile and etcdKeyFile go together")])
def test_what_keeps_a_controller_from_starting_is_found(run, tmp_path, capsys, text, line, part):
    file = tmp_path / "controller.conf"
    file.write_text(text + f"controllerStorePath={tmp_path}\n")
    assert controller_startup.main(["-c", str(file)]) == 2
    assert part in capsys.readouterr().err
    result = run("config", "check", file)
    place = file if line is None else f"{file}:{line}"
    assert result.exit_code == 1 and f"{place}: error: " in result.stdout and part in result.stdout


def test_a_name_server_with_a_controller_has_the_keys_of_both(run, tmp_path):
    file = tmp_path / "namesrv.conf"
    good = f"listenPort=9876\nenableControllerInNamesrv=true\n{PEERS}\ncontrollerDLegerSelfId=n0\n"
    file.write_text(good)
    assert run("config", "check", "--strict", file).exit_code == 0
    file.write_text(good.replace("SelfId=n0", "SelfId=n7"))
    assert "controllerDLegerSelfId: 'n7' is none of" in run("config", "check", file).stdout


def test_warnings_fail_when_asked_to(run, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\ncolour=red\n")
    assert run("config", "check", file).exit_code == 0
    assert run("config", "check", "--strict", file).exit_code == 1


def test_a_file_that_is_not_there(run, tmp_path):
    result = run("config", "check", tmp_path / "none")
    assert result.exit_code == 1 and "cannot read the config file: No such file" in result.stdout


def test_the_files_of_conf_are_right(run):
    files = [*ROOT.glob("conf/broker.conf"), *ROOT.glob("conf/2m*/*.properties"),
             *ROOT.glob("conf/controller/*.conf")]
    assert files and run("config", "check", "--strict", *files).exit_code == 0
