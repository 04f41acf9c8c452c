"""Account files: reading, changing, checking, watching; and invalid files."""
import os

import pytest
import yaml

from rmqha.acl.common import AclException, PlainAccessResource
from rmqha.common.topics import PlainAccessConfig
from tests.acl.support import ACCOUNTS, manager_of
from tests.support.sources import ROOT
from tests.support.wait import wait_until


def file_of(home, name="conf/plain_acl.yml"):
    return yaml.safe_load((home / name).read_text("utf-8"))


def may(manager, key, address="1.2.3.4"):
    """Return the reason why a request with this key and no signature is refused, or None."""
    try:
        manager.validate(PlainAccessResource(key, white_remote_address=address, content=b"x"))
    except AclException as refused:
        return str(refused)
    return None


def test_missing_file_is_created_and_denies_all(tmp_path):
    manager = manager_of(tmp_path, None)
    assert (tmp_path / "conf" / "plain_acl.yml").read_bytes() == b""
    assert may(manager, None) == "No accessKey is configured"
    assert may(manager, "aliceKey") == "No acl config for aliceKey"
    assert manager.get_data_version_map() == {}


def test_missing_folder_is_named(tmp_path):
    from rmqha.acl.plain_permission_manager import PlainPermissionManager
    with pytest.raises(AclException, match="the account file is missing and cannot be created: .*plain_acl.yml"):
        PlainPermissionManager(str(tmp_path / "nowhere")).load()


def test_first_file_with_a_key_owns_it(tmp_path):
    folder = tmp_path / "conf" / "acl" / "deeper"
    folder.mkdir(parents=True)
    (folder / "one.yml").write_text("accounts:\n- accessKey: aliceKey\n  secretKey: another8\n", "utf-8")
    (folder / "ignored.txt").write_text("no: [yaml", "utf-8")
    manager = manager_of(tmp_path)
    assert may(manager, "aliceKey", "192.168.0.1") == "Check signature failed for accessKey=aliceKey"
    assert sorted(manager.get_data_version_map()) == [str(folder / "one.yml"), str(tmp_path / "conf" / "plain_acl.yml")]
    assert [config.accessKey for config in manager.get_all_acl_config().plainAccessConfigs] == ["aliceKey", "adminKey"]


def test_system_property_names_another_default_file(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_OPT", "-Drocketmq.acl.plain.file=/conf/other.yml")
    manager = manager_of(tmp_path)
    assert manager.default_acl_file == str(tmp_path / "conf" / "other.yml")
    assert may(manager, "aliceKey") == "No acl config for aliceKey"


@pytest.mark.parametrize("text, message", [
    ("accounts: [", "plain_acl.yml: not valid YAML: while parsing a flow"),
    ("- a\n", "plain_acl.yml: expected keys with values"),
    ("accounts: text\n", "plain_acl.yml: accounts: expected a list, not str"),
    ("accounts:\n- text\n", "accounts, number 1: expected accessKey, secretKey ..., not str"),
    ("accounts:\n- accessKey: [a]\n", "accounts, number 1, accessKey: expected a text, not a list"),
    ("accounts:\n- accessKey: short\n  secretKey: 12345678\n",
     "account short: The accessKey=short and secretKey=*** cannot be null and length should longer than 6"),
    ("accounts:\n- accessKey: longEnough\n", "The accessKey=longEnough and secretKey=null cannot be null"),
    ("accounts:\n- accessKey: aliceKey\n  secretKey: 12345678\n  topicPerms: [orders]\n",
     "account aliceKey: Parse resource permission failed for topic:orders"),
    ("accounts:\n- accessKey: aliceKey\n  secretKey: 12345678\n  whiteRemoteAddress: 10.1.2.256\n",
     "account aliceKey: Netaddress examine Exception netaddress is 10.1.2.256"),
    ("accounts:\n- accessKey: aliceKey\n  secretKey: 12345678\n  admin: maybe\n", "admin: expected true or false"),
    ("globalWhiteRemoteAddresses:\n- 10.0.0.0-0\n", "globalWhiteRemoteAddresses: Netaddress examine scope Exception"),
    ("dataVersion:\n- counter: many\n", "dataVersion: counter and timestamp must be whole numbers"),
    ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML: could not determine a constructor"),
    ("{" * 10_000, "plain_acl.yml: not valid YAML"),
    ("a: &a [1]\nb: [" + "*a, " * 51 + "]", "Number of aliases for non-scalar nodes exceeds the specified max=50"),
])
def test_invalid_file_is_named_and_changes_nothing(tmp_path, text, message):
    manager = manager_of(tmp_path)
    (tmp_path / "conf" / "plain_acl.yml").write_text(text, "utf-8")
    for load in (manager.load, lambda: manager.load_file(manager.default_acl_file)):
        with pytest.raises(AclException) as failure:
            load()
        assert message in str(failure.value) and "plain_acl.yml" in str(failure.value)
    assert may(manager, "aliceKey", "192.168.0.7") is None


def test_account_is_created_changed_and_deleted(tmp_path):
    manager = manager_of(tmp_path)
    carol = PlainAccessConfig("carolKey", "12345678", "1.2.3.4", True, "DENY", "SUB", ["a=PUB"], [])
    assert manager.update_access_config(carol)
    assert file_of(tmp_path)["accounts"][-1] == {
        "accessKey": "carolKey", "secretKey": "12345678", "whiteRemoteAddress": "1.2.3.4", "admin": True,
        "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB", "topicPerms": ["a=PUB"], "groupPerms": []}
    assert may(manager, "carolKey") is None
    assert manager.update_access_config(PlainAccessConfig("aliceKey", "another8", topicPerms=["b=SUB"]))
    assert file_of(tmp_path)["accounts"][-1] == {
        "accessKey": "aliceKey", "secretKey": "another8", "whiteRemoteAddress": "192.168.0.*", "admin": False,
        "defaultTopicPerm": "DENY", "defaultGroupPerm": "SUB", "topicPerms": ["b=SUB"]}
    assert may(manager, "aliceKey", "192.168.0.9") is None
    assert manager.delete_access_config("carolKey") and not manager.delete_access_config("carolKey")
    assert not manager.delete_access_config("")
    assert may(manager, "carolKey") == "No acl config for carolKey"
    assert file_of(tmp_path)["dataVersion"][0]["counter"] == 3
    assert manager.get_data_version_map()[manager.default_acl_file].counter == 3
    assert '"counter":3' in manager.get_acl_config_data_version()


def test_invalid_changes_are_not_written(tmp_path):
    manager = manager_of(tmp_path)
    for config in (None, PlainAccessConfig("dave", "12345678"), PlainAccessConfig("davesKey", "123456"),
                   PlainAccessConfig("davesKey", "12345678", topicPerms=["a"]),
                   PlainAccessConfig("davesKey", "12345678", groupPerms=["a=READ"]),
                   PlainAccessConfig("davesKey", "12345678", whiteRemoteAddress="1.2.3.x")):
        with pytest.raises(AclException):
            manager.update_access_config(config)
    with pytest.raises(AclException):
        manager.update_global_white_addrs_config(["10.1.2.300"])
    assert (tmp_path / "conf" / "plain_acl.yml").read_text("utf-8") == ACCOUNTS


def test_open_addresses_are_replaced_at_once(tmp_path):
    manager = manager_of(tmp_path)
    assert may(manager, None, "10.10.103.9") is None
    assert manager.update_global_white_addrs_config(["10.1.2.3"])
    assert may(manager, None, "10.1.2.3") is None
    assert may(manager, None, "10.10.103.9") == "No accessKey is configured"
    assert may(manager, "aliceKey", "192.168.0.1") is None
    assert not manager.update_global_white_addrs_config(None)


def test_addresses_are_removed_from_a_file_that_had_none_at_the_start(tmp_path):
    manager = manager_of(tmp_path, "accounts: []\n")
    for addresses, is_open in ((["10.1.2.3"], True), (["10.9.9.9"], False), ([], False)):
        assert manager.update_global_white_addrs_config(addresses)
        assert (may(manager, None, "10.1.2.3") is None) is is_open


def test_only_account_files_below_the_home_are_written(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "home.yml"
    manager = manager_of(home)
    outside.write_text("a: b\n", "utf-8")
    (home / "conf" / "link.yml").symlink_to(outside)
    (home / "conf" / "broker.conf").write_text("a: b\n", "utf-8")
    for name in ("/etc/hostname", str(outside), f"{home}/../home.yml", f"{home}/conf/link.yml",
                 f"{home}/conf/broker.conf", f"{home}/conf", f"{home}/conf/missing.yml"):
        assert not manager.update_global_white_addrs_config(["10.1.2.3"], name), name
    assert outside.read_text("utf-8") == (home / "conf" / "broker.conf").read_text("utf-8") == "a: b\n"


def test_file_keeps_its_mode_and_no_temporary_file_remains(tmp_path):
    manager = manager_of(tmp_path)
    os.chmod(manager.default_acl_file, 0o640)
    assert manager.delete_access_config("aliceKey")
    assert os.stat(manager.default_acl_file).st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path / "conf") == ["plain_acl.yml"]


def test_file_that_cannot_be_written_is_unchanged(tmp_path, monkeypatch):
    manager = manager_of(tmp_path)

    def fail(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(AclException, match="plain_acl.yml cannot be written: No space left on device"):
        manager.update_access_config(PlainAccessConfig("carolKey", "12345678"))
    assert (tmp_path / "conf" / "plain_acl.yml").read_text("utf-8") == ACCOUNTS


def test_secrets_are_not_logged(tmp_path, caplog):
    caplog.set_level("DEBUG")
    manager = manager_of(tmp_path)
    manager.update_access_config(PlainAccessConfig("carolKey", "carolSecret"))
    assert "carolKey" in caplog.text
    assert not any(secret in caplog.text for secret in ("12345678", "adminSecret", "carolSecret"))


def test_changes_of_files_are_detected(tmp_path):
    manager = manager_of(tmp_path)
    other = tmp_path / "conf" / "acl" / "other.yml"
    manager.start()
    try:
        (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS.replace("aliceKey", "carolsKey"), "utf-8")
        manager._watch_service.wakeup()
        wait_until(lambda: may(manager, "carolsKey", "192.168.0.1") is None, 60_000, "the changed file")
        # The original's words.
        assert may(manager, "aliceKey") == "No PlainAccessResource for accessKey=aliceKey"
    finally:
        manager.shutdown()
    watch = manager._watch_service
    assert not watch.is_alive()
    other.parent.mkdir()
    other.write_text("accounts:\n- accessKey: otherKey\n  secretKey: 12345678\n  whiteRemoteAddress: '*'\n", "utf-8")
    watch.look()
    assert may(manager, "otherKey") is None and may(manager, "aliceKey") == "No acl config for aliceKey"
    other.rename(other.with_name("renamed.yml"))
    (other.with_name("renamed.yml")).write_text("accounts: [", "utf-8")
    with pytest.raises(AclException):
        watch.look()
    # The accounts read before stay in force.
    assert may(manager, "otherKey") is None
    other.with_name("renamed.yml").unlink()
    watch.look()
    assert may(manager, "otherKey") == "No acl config for otherKey"


def test_invalid_file_does_not_hide_the_change_of_another(tmp_path):
    folder = tmp_path / "conf" / "acl"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text("accounts: []\n", "utf-8")
    manager = manager_of(tmp_path)
    (folder / "a.yml").write_text("accounts: [broken\n", "utf-8")
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS.replace("aliceKey", "carolsKey"), "utf-8")
    manager._watch_service.look()
    assert may(manager, "carolsKey", "192.168.0.1") is None


def test_emptied_file_changes_nothing_while_the_broker_runs(tmp_path):
    manager = manager_of(tmp_path)
    (tmp_path / "conf" / "plain_acl.yml").write_text("", "utf-8")
    manager.load_file(manager.default_acl_file)
    assert may(manager, "aliceKey", "192.168.0.1") is None
    # As in the original: the file has nothing to delete it from.
    assert manager.delete_access_config("aliceKey")


def test_account_removed_from_the_file_is_added_back(tmp_path):
    manager = manager_of(tmp_path)
    (tmp_path / "conf" / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: []\n", "utf-8")
    assert manager.update_access_config(PlainAccessConfig("aliceKey", "another8"))
    assert file_of(tmp_path)["accounts"] == [{"accessKey": "aliceKey", "secretKey": "another8", "admin": False}]


def test_shipped_file_denies_everyone(tmp_path):
    manager = manager_of(tmp_path, (ROOT / "conf" / "plain_acl.yml").read_text("utf-8"))
    assert may(manager, None) == "No accessKey is configured"
    assert may(manager, "operator") == "No acl config for operator"
    assert list(manager.get_data_version_map()) == [manager.default_acl_file]
