"""`rmqha config`: explain, check, path and init."""
import json
import os

import pytest
from click.testing import CliRunner

from rmqha.broker import broker_startup
from rmqha.common import filesystem
from rmqha.common.config_keys import config_keys
from rmqha.controller import controller_startup
from rmqha.tools.config.config_command import OWNERS, explain, known_keys
from rmqha.tools.config.config_meanings import MEANINGS, NOT_IN_5, NOWHERE_ELSE, OLD_NAMES, RENAMED_IN_5
from rmqha.tools.rmqha_command import rmqha
from tests.common.test_config_keys import keys
from tests.support.sources import ROOT

# `rmqha config explain` and `check`: every key is explained, and a file is read as its server reads it.


def test_keys_and_their_meanings_are_complete():
    own = {key for config_class in OWNERS for key in config_keys(config_class)}
    assert set(MEANINGS) == own == {key for _class, key, _kind, _default in keys()}
    assert all(text and text[-1] not in ".;" for text in MEANINGS.values())
    assert own >= NOT_IN_5 | NOWHERE_ELSE | set(RENAMED_IN_5) | set(OLD_NAMES)


def test_keys_missing_in_the_original_are_marked_as_extensions():
    for config_class in OWNERS:
        extensions = {key for key, item in config_keys(config_class).items() if item.metadata.get("extension")}
        assert not extensions & NOT_IN_5 and config_keys(config_class).keys() & NOWHERE_ELSE <= extensions


def test_modules_that_read_a_key_are_found():
    assert "store/ha/ack_rules.py" in explain("haSlaveFallbehindMax")[0].readers
    assert explain("putMsgIndexHightWater")[0].readers == []
    assert "store/message_store_config.py" in explain("diskMaxUsedSpaceRatio")[0].readers


def test_explain_prints_range_unit_default_and_versions(run):
    result = run("config", "explain", "flushIntervalCommitLog", "-o", "json")
    told, = json.loads(result.stdout)
    assert (told["least"], told["greatest"], told["unit"], told["default"]) == (0, 2**31 - 1, "milliseconds", "500")
    assert told["in_4_9"] == told["in_5"] == "flushIntervalCommitLog"
    text = run("config", "explain", "haSlaveFallbehindMax", "mapedFileSizeCommitLog", "stallWatchMs").stdout
    assert "haMaxGapNotInSync" in text and "before 4.5: mapedFileSizeCommitLog" in text and "does not have it" in text


def test_key_of_several_files_is_explained_for_each(run):
    told = json.loads(run("config", "explain", "rocketmqHome", "-o", "json").stdout)
    assert [each["config_class"] for each in told] == ["BrokerConfig", "NamesrvConfig", "ControllerConfig"]


def test_every_key_can_be_explained():
    assert all(explain(key) for key in known_keys())


def test_unknown_key_gets_a_suggestion(run):
    result = run("config", "explain", "brokerNam")
    assert result.exit_code == 2
    assert result.stderr == "Error: unknown config key 'brokerNam'; did you mean brokerName?\n"


@pytest.mark.parametrize("line", [
    "brokerName=", "listenPort=2", "brokerRole=MASTER", "enableDLegerCommitLog=true", "flushDiskType=", "a\\u12",
    "maxIndexNum=600000000", "brokerRole=SLAVE", "messageStorePlugIn=x.y.Z", "writeBufferHighWaterMark=1\n"
    "writeBufferLowWaterMark=2", "enableAutoSwitchHA=true\ntransientStorePoolEnable=true"])
def test_error_that_stops_a_broker_is_found_at_the_same_line(run, tmp_path, capsys, line):
    file = tmp_path / "broker.conf"
    file.write_text(f"# a comment\nstorePathRootDir={tmp_path}\n{line}\n")
    assert broker_startup.main(["-c", str(file)]) == 2
    place, _, text = capsys.readouterr().err.strip().partition(": ")
    result = run("config", "check", file)
    assert result.exit_code == 1 and f"{place}: error: {text}\n" in result.stdout


def test_all_errors_are_reported_by_line(run, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerId=x\nbrokerNam=a\nmapedFileSizeCommitLog=1\nslaveTimeout=-1\n")
    result = run("config", "check", file, "-o", "json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert [(each["line"], each["severity"]) for each in told["findings"]] == [
        (1, "error"), (2, "warning"), (3, "warning"), (3, "error"), (4, "error")]
    assert (told["errors"], told["warnings"]) == (3, 2)


def test_name_servers_file_is_checked_against_its_keys(run, tmp_path):
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
    (f"{PEERS}\ncontrollerDLegerSelfId=n1\n", 2, "controllerDLegerSelfId: 'n1' is not one of"),
    ("controllerDLegerPeers=n0=127.0.0.1\n", 1, "is not a valid id-host:port"),
    (f"{PEERS};n0-h:1\ncontrollerDLegerSelfId=n0\n", 1, "the id n0 occurs twice"),
    (f"{PEERS};n1-h:1\ncontrollerDLegerSelfId=n0\n", 1, "2 controllers cannot share a file"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=etcd\n", None, "etcdEndpoints: is missing"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=zookeeper\n", 3, "controllerStore"),
    (f"{PEERS}\ncontrollerDLegerSelfId=n0\ncontrollerStore=etcd\netcdEndpoints=a:1\netcdCertFile=x\n", None,
     "etcdCertFile and etcdKeyFile must be set together")])
def test_error_that_stops_a_controller_is_found(run, tmp_path, capsys, text, line, part):
    file = tmp_path / "controller.conf"
    file.write_text(text + f"controllerStorePath={tmp_path}\n")
    assert controller_startup.main(["-c", str(file)]) == 2
    assert part in capsys.readouterr().err
    result = run("config", "check", file)
    place = file if line is None else f"{file}:{line}"
    assert result.exit_code == 1 and f"{place}: error: " in result.stdout and part in result.stdout


def test_name_server_with_a_controller_has_the_keys_of_both(run, tmp_path):
    file = tmp_path / "namesrv.conf"
    good = f"listenPort=9876\nenableControllerInNamesrv=true\n{PEERS}\ncontrollerDLegerSelfId=n0\n"
    file.write_text(good)
    assert run("config", "check", "--strict", file).exit_code == 0
    file.write_text(good.replace("SelfId=n0", "SelfId=n7"))
    assert "controllerDLegerSelfId: 'n7' is not one of" in run("config", "check", file).stdout


def test_warnings_are_errors_with_strict(run, tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=a\ncolour=red\n")
    assert run("config", "check", file).exit_code == 0
    assert run("config", "check", "--strict", file).exit_code == 1


def test_missing_file_is_an_error(run, tmp_path):
    result = run("config", "check", tmp_path / "none")
    assert result.exit_code == 1 and "cannot read the config file: No such file" in result.stdout


def test_files_of_conf_have_no_errors(run):
    files = [*ROOT.glob("conf/broker.conf"), *ROOT.glob("conf/2m*/*.properties"),
             *ROOT.glob("conf/controller/*.conf")]
    assert files and run("config", "check", "--strict", *files).exit_code == 0


# `rmqha config path` and `init`: the location of the files, and copies of them that overwrite nothing.

TEMPLATES = {str(file.relative_to(ROOT / "conf")) for file in (ROOT / "conf").rglob("*") if file.is_file()}


def run(*arguments):
    return CliRunner().invoke(rmqha, ["config", *map(str, arguments)])


def files_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_path_is_the_servers(monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", "/srv/rocketmq")
    assert run("path").output == "/srv/rocketmq/conf\n"


def test_templates_are_copied_completely_and_existing_files_remain(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "broker.conf").write_text("brokerName=mine\n")
    (conf / "tools.yml").symlink_to(tmp_path / "elsewhere.yml")
    result = run("init")
    assert result.exit_code == 0 and f"{conf}: {len(TEMPLATES) - 2} files copied, 2 existing files" in result.output
    assert f"mqbroker -c {conf}/broker.conf" in result.output
    assert not (tmp_path / "elsewhere.yml").exists()
    wanted = files_of(ROOT / "conf") | {"broker.conf": b"brokerName=mine\n"}
    del wanted["tools.yml"]
    assert files_of(conf) == wanted
    assert "0 files copied" in run("init").output and files_of(conf) == wanted


def test_files_with_accounts_are_readable_only_by_their_owner(tmp_path):
    before = os.umask(0)
    try:
        assert run("init", tmp_path / "new" / "conf").exit_code == 0
    finally:
        os.umask(before)
    modes = {name: (tmp_path / "new" / "conf" / name).stat().st_mode & 0o777 for name in TEMPLATES}
    assert modes.pop("plain_acl.yml") == modes.pop("tools.yml") == 0o600
    assert set(modes.values()) == {0o666}


def test_checkout_is_not_copied_onto_itself(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    result = run("init")
    assert result.exit_code == 2 and "name another FOLDER" in result.output


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("init", tmp_path / "file" / "conf")
    assert result.exit_code == 2 and f"{tmp_path}/file" in result.output


def test_installation_without_templates_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "_PACKAGE", tmp_path / "rmqha")
    result = run("init", tmp_path / "conf")
    assert result.exit_code == 2 and "installation of rmqha is incomplete" in result.output
