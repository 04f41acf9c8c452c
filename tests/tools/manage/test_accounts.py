"""`rmqha acl user` and `rmqha acl white-list` on real brokers: changes, partial failures, hostile answers, secrets."""
import json
import logging
import re
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.protocol import request_code, response_code
from rmqha.common.texts import Secret
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools import connection
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.manage.accounts import (
    PERMISSIONS,
    Account,
    AccountChange,
    BrokerAccounts,
    account_views,
    check_address,
    checked_entries,
    checked_permission,
    generated_secret,
)
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.broker.support import BrokerHarness
from tests.interop.acl_requests import send_fields
from tests.support.in_process import running_name_server
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import SignedClient
from tests.support.sources import ROOT
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at
from tests.tools.manage.fake_broker import answer, fake_broker, prepare_java_home

ADMIN_SECRET, ALICE_SECRET, NEW_SECRET = "adminSecretOfTests", "aliceSecretOfTests", "newSecretOfTests"
FILE = f"""\
accounts:
- accessKey: adminKey
  secretKey: {ADMIN_SECRET}
  admin: true
- accessKey: aliceKey
  secretKey: {ALICE_SECRET}
  whiteRemoteAddress: 10.1.2.*
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB
"""
GENERATED = re.compile(r"shown only now: (\w{32})")


@dataclass
class Brokers:
    """A name server with a master and its slave with access control; the folder has the tools' account."""

    namesrv: str
    master: BrokerHarness
    slave: BrokerHarness
    folder: Path

    def file(self, name: str) -> dict:
        """Return the account file of a broker, master or slave, parsed."""
        return yaml.safe_load((self.folder / name / "conf" / "plain_acl.yml").read_text())

    def account(self, name: str, key: str) -> dict | None:
        """Return an account in a broker's file."""
        return next((each for each in self.file(name)["accounts"] if each["accessKey"] == key), None)

    def run(self, *words: str, code: int = 0, says: str | None = None, **env: str) -> str:
        """Return the output of `rmqha acl WORDS`, as the admin; `says` is typed on a terminal."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "can_ask", lambda: says is not None)
            result = CliRunner().invoke(rmqha, ["acl", *words], input=says, env={
                "NAMESRV_ADDR": self.namesrv, "ROCKETMQ_HOME": str(self.folder), **env})
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result.output

    def json(self, *words: str, code: int = 0, **env: str) -> object:
        """Return the JSON in the output, before the errors."""
        return json.loads(self.run(*words, "-o", "json", code=code, **env).splitlines()[0])

    def may_send(self, key: str, secret: str, topic: str) -> bool:
        """Return whether the master lets an account send to a topic."""
        with SignedClient(self.master.address, (key, secret)) as client:
            return "AclException" not in (client.request(10, b"x", **send_fields(topic)).remark or "")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acl")
    (folder / "conf").mkdir()
    (folder / "conf" / "tools.yml").write_text(f"accessKey: adminKey\nsecretKey: {ADMIN_SECRET}\n")
    for name in ("master", "slave"):
        (folder / name / "conf").mkdir(parents=True)
        (folder / name / "conf" / "plain_acl.yml").write_text(FILE)
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        master = stack.enter_context(broker_at(folder / "master", namesrv, brokerClusterName="C", aclEnable=True))
        slave = stack.enter_context(broker_at(
            folder / "slave", namesrv, brokerClusterName="C", aclEnable=True, brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}"))
        yield Brokers(namesrv, master, slave, folder)


@pytest.fixture
def brokers(shared):
    """Yield the brokers with the accounts of FILE."""
    yield shared
    for name, broker in (("master", shared.master), ("slave", shared.slave)):
        (shared.folder / name / "conf" / "plain_acl.yml").write_text(FILE)
        broker.controller.access_validator.load()
        broker.controller.broker_config.aclEnable = True


@pytest.fixture(autouse=True)
def no_secret_in_logs(caplog):
    caplog.set_level(logging.DEBUG)
    yield
    logged = "\n".join(record.getMessage() for phase in ("setup", "call") for record in caplog.get_records(phase))
    for secret in (ADMIN_SECRET, ALICE_SECRET, NEW_SECRET):
        assert secret not in logged


# ---- values


@pytest.mark.parametrize("text, is_valid", [("PUB", True), (" sub|pub ", True), ("pub|sub", True), ("DENY", True),
                                            ("READ", False), ("", False), ("PUB,SUB", False)])
def test_permissions(text, is_valid):
    if is_valid:
        assert checked_permission(text) in PERMISSIONS
    else:
        with pytest.raises(CannotAnswerError, match="is not a permission"):
            checked_permission(text)


@given(st.lists(st.text(max_size=20), max_size=3))
def test_any_entry_is_valid_or_an_error_for_users(texts):
    try:
        entries = checked_entries(texts)
    except CannotAnswerError as error:
        assert error.message
        return
    assert set(entries.values()) <= set(PERMISSIONS) and all(name and "," not in name for name in entries)


@given(st.text(max_size=30))
def test_any_address_is_valid_or_an_error_for_users(text):
    try:
        check_address(text)
    except CannotAnswerError as error:
        assert "not a valid address pattern" in error.message


def test_generated_secrets_differ_and_do_not_print():
    made = {generated_secret().reveal() for _ in range(50)}
    assert len(made) == 50 and all(re.fullmatch(r"\w{32}", each) for each in made)
    told = BrokerAccounts(True, True, known_secrets={"aliceKey": Secret(ALICE_SECRET)})
    assert ALICE_SECRET not in repr(told) and ALICE_SECRET not in str(told)


def test_accounts_are_compared_by_meaning():
    one = Account("a", topic_perms=("x=PUB|SUB", "y=SUB"), default_topic_perm="")
    same = Account("a", topic_perms=("y=SUB", "x=SUB|PUB"), default_topic_perm="DENY")
    assert one.differing(same) == []
    assert one.differing(Account("a", admin=True, white_address="1.1.1.1", topic_perms=("x=PUB",))) == [
        "admin", "whiteRemoteAddress", "topicPerms"]


def test_views_name_the_brokers_that_lack_an_account_or_differ():
    first, second, third = (Broker("C", name, 0, f"{name}:1") for name in "abc")
    views = account_views({
        first: BrokerAccounts(True, True, {"k": Account("k"), "only": Account("only")}),
        second: BrokerAccounts(True, True, {"k": Account("k", admin=True)}),
        third: BrokerAccounts(True, False, unknown="not listed")})
    assert [(each.access_key, each.missing, each.differing) for each in views] == [
        ("k", (), ("admin",)), ("only", (second,), ())]


def test_change_edits_entries_in_place():
    account = Account("k", topic_perms=("a=PUB", "b=SUB"), group_perms=("g=SUB",))
    changed = AccountChange(topics={"b": "DENY", "c": "PUB"}, without_topics=frozenset({"a"})).of(account)
    assert changed.topic_perms == ("b=DENY", "c=PUB") and changed.group_perms == ("g=SUB",)
    with pytest.raises(CannotAnswerError, match="no entry for z"):
        AccountChange(without_groups=frozenset({"z"})).of(account)


# ---- the wire


def test_broker_lists_accounts_to_admins_only_and_without_secrets(brokers):
    with SignedClient(brokers.master.address, ("adminKey", ADMIN_SECRET)) as admin:
        told = admin.request(54)
    with SignedClient(brokers.master.address, ("aliceKey", ALICE_SECRET)) as alice:
        refused = alice.request(54)
    assert told.code == 0 and ALICE_SECRET.encode() not in told.body and b"ecretKey" not in told.body
    assert json.loads(told.body) == {"globalWhiteAddrs": [], "plainAccessConfigs": [
        {"accessKey": "adminKey", "admin": True},
        {"accessKey": "aliceKey", "admin": False, "defaultGroupPerm": "SUB", "topicPerms": ["orders=PUB"],
         "whiteRemoteAddress": "10.1.2.*"}]}
    assert refused.code != 0 and "Need admin permission for request code=54" in refused.remark and not refused.body


def test_broker_answers_without_access_control_and_with_an_invalid_file(brokers, tmp_path):
    with running_name_server(tmp_path) as namesrv, broker_at(tmp_path / "b", namesrv) as broker:
        answered = broker.call(request_code.GET_BROKER_CLUSTER_ACL_CONFIG)
        assert answered.code == 1 and answered.remark == "access control is off on this broker, set aclEnable=true"
    (brokers.folder / "master" / "conf" / "plain_acl.yml").write_text(f"accounts: [{{secretKey: {ALICE_SECRET}")
    with SignedClient(brokers.master.address, ("adminKey", ADMIN_SECRET)) as admin:
        answered = admin.request(54)
    assert answered.code == 1 and "not valid YAML" in answered.remark and ALICE_SECRET not in answered.remark


# ---- list and describe


def test_list_and_describe(brokers):
    told = brokers.json("user", "list")
    assert [(each["accessKey"], each["admin"], each["brokers"]) for each in told["accounts"]] == [
        ("adminKey", True, ["broker-a 0", "broker-a 1"]), ("aliceKey", False, ["broker-a 0", "broker-a 1"])]
    assert [each["files"][0]["path"] for each in told["brokers"]] == [
        str(brokers.folder / name / "conf" / "plain_acl.yml") for name in ("master", "slave")]
    text = brokers.run("user", "list")
    assert "aliceKey         orders=PUB others=DENY  others=SUB  all" in text
    assert "adminKey  yes    all                     all         all" in text
    text = brokers.run("user", "describe", "aliceKey")
    assert "whiteRemoteAddress  10.1.2.*" in text and "brokers             broker-a 0, broker-a 1" in text
    assert "no broker has the account 'nobody'" in brokers.run("user", "describe", "nobody", code=2)
    for words in (("user", "list"), ("user", "describe", "aliceKey")):
        for output in ("table", "json", "yaml"):
            assert "Secret" not in brokers.run(*words, "-o", output)


def test_differences_between_brokers_are_shown(brokers):
    brokers.run("user", "delete", "--yes", "-b", brokers.slave.address, "aliceKey")
    assert brokers.json("user", "list")["accounts"][1]["missing"] == ["broker-a 1"]
    assert "broker-a 1 does not have this account" in brokers.run("user", "describe", "aliceKey")
    brokers.run("user", "create", "aliceKey", "-b", brokers.slave.address, "--secret-env", "S", "--topic", "orders=SUB",
                S=ALICE_SECRET)
    assert brokers.json("user", "describe", "aliceKey")["differing"] == [
        "whiteRemoteAddress", "defaultGroupPerm", "topicPerms"]
    text = brokers.run("user", "describe", "aliceKey")
    assert text.count("accessKey           aliceKey") == 2


def test_unsigned_request_while_a_context_with_an_account_is_current_names_it(brokers, tmp_path):
    empty = {"ROCKETMQ_HOME": str(tmp_path), "RMQHA_CONTEXTS_FILE": str(tmp_path / "contexts.json"), "S": ADMIN_SECRET}
    note = "; a current context is not used while -n or NAMESRV_ADDR is given: use --context prod instead\n"
    assert "a current context" not in brokers.run("user", "list", code=2, **empty)
    for words in (["--access-key", "adminKey", "--secret-key-env", "S"], ["--use"]):
        name = "prod" if "--use" not in words else "anonymous"
        made = CliRunner().invoke(rmqha, ["context", "add", name, "-n", brokers.namesrv, *words], env=empty)
        assert made.exit_code == 0, made.output
        if name == "prod":
            assert brokers.run("user", "list", code=2, **empty).endswith(note)
            assert brokers.run("user", "list", "-n", brokers.namesrv, code=2, **empty).endswith(note)
            assert "adminKey" in brokers.run("user", "list", RMQHA_CONTEXT="prod", **empty)
    assert "a current context" not in brokers.run("user", "list", code=2, **empty)


def test_without_an_admins_account_everything_is_refused(brokers, tmp_path):
    (tmp_path / "conf").mkdir()
    text = brokers.run("user", "list", code=2, ROCKETMQ_HOME=str(tmp_path))
    assert "No accessKey is configured" in text and "rmqha context add --access-key" in text
    (tmp_path / "conf" / "tools.yml").write_text(f"accessKey: aliceKey\nsecretKey: {ALICE_SECRET}\n")
    text = brokers.run("user", "list", code=2, ROCKETMQ_HOME=str(tmp_path))
    assert "Need admin permission for request code=54" in text and "rmqha context add --access-key" in text
    assert brokers.run("check", "aliceKey", "--topic", "orders", "pub", code=2, ROCKETMQ_HOME=str(tmp_path))


# ---- create, alter, delete


def test_create_on_all_brokers(brokers):
    text = brokers.run("user", "create", "orders-service", "--secret-env", "S", "--topic", "orders=PUB|SUB", "--topic",
                       "audit=sub", "--group", "billing=SUB", S=NEW_SECRET)
    assert text == "created orders-service on broker-a 0, broker-a 1\n"
    for name in ("master", "slave"):
        assert brokers.account(name, "orders-service") == {
            "accessKey": "orders-service", "secretKey": NEW_SECRET, "admin": False, "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "DENY", "topicPerms": ["orders=PUB|SUB", "audit=SUB"], "groupPerms": ["billing=SUB"]}
    assert brokers.may_send("orders-service", NEW_SECRET, "orders")
    assert not brokers.may_send("orders-service", NEW_SECRET, "audit")
    text = brokers.run("user", "create", "orders-service", "--secret-env", "S", code=2, S=NEW_SECRET)
    assert text.count("exists already") == 1
    brokers.run("user", "create", "orders-service", "--secret-env", "S", "--overwrite", "--topic", "audit=PUB",
                "--group", "x=SUB", "--admin", S=NEW_SECRET)
    made = brokers.account("master", "orders-service")
    assert made["topicPerms"] == ["audit=PUB"] and made["groupPerms"] == ["x=SUB"] and made["admin"] is True


def test_secret_is_generated_or_asked_for(brokers):
    text = brokers.run("user", "create", "asked-service", code=2)
    assert text == "Error: no terminal to ask for the secret key on: give --secret-env or --generate\n"
    text = brokers.run("user", "create", "made-service", "--generate", "--topic", "orders=PUB")
    secret = GENERATED.search(text)[1]
    assert brokers.account("slave", "made-service")["secretKey"] == secret
    assert brokers.may_send("made-service", secret, "orders")
    told = brokers.json("user", "create", "other-service", "--generate")
    assert told["secretKey"] == brokers.account("master", "other-service")["secretKey"]
    text = brokers.run("user", "create", "asked-service", says=f"{NEW_SECRET}\n{NEW_SECRET}\n")
    assert NEW_SECRET not in text and brokers.account("master", "asked-service")["secretKey"] == NEW_SECRET
    assert "secretKey" not in brokers.json("user", "create", "env-service", "--secret-env", "S", S=NEW_SECRET)


@pytest.mark.parametrize("words, error", [
    (["short", "--generate"], "the access key 'short' is too short"),
    (["long-enough", "--secret-env", "S"], "the secret key is too short"),
    (["long-enough", "--secret-env", "NONE"], "the environment variable NONE is not set"),
    (["long-enough", "--secret-env", "S", "--generate"], "not both"),
    (["long-enough", "--generate", "--topic", "orders"], "'orders' is not NAME=PERMISSION"),
    (["long-enough", "--generate", "--topic", "a=READ"], "'READ' is not a permission"),
    (["long-enough", "--generate", "--topic", "a,b=PUB"], "it has a comma"),
    (["long-enough", "--generate", "--white-address", "10.1"], "not a valid address pattern")])
def test_invalid_accounts_are_refused_before_anything_is_sent(brokers, words, error):
    text = brokers.run("user", "create", *words, code=2, S="abc123")
    assert error in text and "abc123" not in text
    assert len(brokers.file("master")["accounts"]) == 2


def test_alter_changes_only_what_is_named(brokers):
    brokers.run("user", "alter", "aliceKey", "--secret-env", "S", "--topic", "refunds=PUB|SUB", "--topic", "orders=SUB",
                "--group", "billing=SUB", S=ALICE_SECRET)
    for name in ("master", "slave"):
        assert brokers.account(name, "aliceKey") == {
            "accessKey": "aliceKey", "secretKey": ALICE_SECRET, "whiteRemoteAddress": "10.1.2.*", "admin": False,
            "defaultGroupPerm": "SUB", "topicPerms": ["orders=SUB", "refunds=PUB|SUB"], "groupPerms": ["billing=SUB"]}
    text = brokers.run("user", "alter", "aliceKey", "--remove-topic", "orders", "--admin", "--white-address", "",
                       "--default-topic-perm", "SUB", says=f"{ALICE_SECRET}\n")
    assert "changed aliceKey" in text and ALICE_SECRET not in text
    made = brokers.account("slave", "aliceKey")
    assert made["topicPerms"] == ["refunds=PUB|SUB"] and made["admin"] is True and not made["whiteRemoteAddress"]
    assert made["defaultTopicPerm"] == "SUB" and made["secretKey"] == ALICE_SECRET
    text = brokers.run("user", "alter", "aliceKey", "--remove-topic", "refunds", "--secret-env", "S", code=2,
                       S=ALICE_SECRET)
    assert "no request can remove all entries of topicPerms" in text


def test_wrong_secret_does_not_replace_the_accounts(brokers):
    text = brokers.run("user", "alter", "aliceKey", "--topic", "a=PUB", "--secret-env", "S", code=2, S=NEW_SECRET)
    assert "this is not the secret of aliceKey" in text and "--new-secret" in text and NEW_SECRET not in text
    assert brokers.account("master", "aliceKey")["secretKey"] == ALICE_SECRET
    brokers.run("user", "alter", "aliceKey", "--new-secret", "--secret-env", "S", S=NEW_SECRET)
    assert [brokers.account(name, "aliceKey")["secretKey"] for name in ("master", "slave")] == [NEW_SECRET] * 2
    text = brokers.run("user", "alter", "aliceKey", "--generate")
    assert brokers.account("master", "aliceKey")["secretKey"] == GENERATED.search(text)[1]
    assert brokers.account("master", "aliceKey")["topicPerms"] == ["orders=PUB"]


def test_secret_cannot_be_compared_from_a_white_address(brokers):
    brokers.run("white-list", "set", "--yes", "127.0.0.1")
    text = brokers.run("user", "alter", "aliceKey", "--topic", "a=PUB", "--secret-env", "S", S=NEW_SECRET)
    assert "this host is on a white list" in text and brokers.account("master", "aliceKey")["secretKey"] == NEW_SECRET


def test_alter_needs_something_to_change_and_an_account(brokers):
    assert "nothing to change" in brokers.run("user", "alter", "aliceKey", code=2)
    assert "no broker has the account" in brokers.run("user", "alter", "nobody", "--admin", code=2)


def test_account_that_one_broker_lacks_is_a_partial_failure(brokers):
    brokers.run("user", "delete", "--yes", "-b", brokers.slave.address, "aliceKey")
    text = brokers.run("user", "alter", "aliceKey", "--topic", "a=PUB", "--secret-env", "S", code=1, S=ALICE_SECRET)
    assert "changed aliceKey on broker-a 0" in text and "the account aliceKey does not exist: create it there" in text
    assert "1 broker of 2 failed" in text
    text = brokers.run("user", "create", "aliceKey", "--generate", code=1)
    assert "created aliceKey on broker-a 1" in text and "exists already" in text


def test_delete(brokers):
    assert brokers.run("user", "delete", "aliceKey", code=2) == (
        "Error: Delete the account aliceKey? No terminal to ask on: give --yes\n")
    assert brokers.run("user", "delete", "--yes", "aliceKey") == "deleted aliceKey on broker-a 0, broker-a 1\n"
    assert brokers.account("slave", "aliceKey") is None and not brokers.may_send("aliceKey", ALICE_SECRET, "orders")
    assert "no broker has the account 'aliceKey'" in brokers.run("user", "delete", "--yes", "aliceKey", code=2)


def test_broker_without_access_control_is_a_partial_failure(brokers):
    brokers.slave.controller.broker_config.aclEnable = False
    text = brokers.run("user", "create", "orders-service", "--generate", code=1)
    assert "created orders-service on broker-a 0" in text and "access control is off there" in text
    assert "broker-a 1  off" in brokers.run("user", "list")
    told = brokers.json("check", "orders-service", "--topic", "x", "pub", code=1)
    assert [each["verdict"] for each in told["brokers"]] == ["denied", "allowed"]


def test_what_to_do_where_access_control_is_off(brokers):
    advice = "set aclEnable=true in the brokers' files, write conf/plain_acl.yml, and restart them"
    for broker in (brokers.master, brokers.slave):
        broker.controller.broker_config.aclEnable = False
    for words in (("user", "create", "orders-service", "--generate"), ("white-list", "set", "--yes", "10.1.2.3")):
        text = brokers.run(*words, code=2)
        assert text.count("access control is off there (aclEnable=false)") == 2
        assert text.endswith(f"Error: 2 brokers of 2 failed: {advice}\n")
    assert f"(aclEnable=false): {advice}" in brokers.run("user", "describe", "aliceKey", code=2)
    brokers.master.controller.broker_config.aclEnable = True
    assert f"1 broker of 2 failed: {advice}" in brokers.run("user", "create", "orders-service", "--generate", code=1)


# ---- addresses without an account


def test_white_list(brokers):
    assert "broker-a 1  none" in brokers.run("white-list", "get")
    text = brokers.run("white-list", "set", "--yes", "10.1.2.*", "127.0.0.9")
    assert "none    10.1.2.* 127.0.0.9" in text and "changed on broker-a 0, broker-a 1" in text
    assert brokers.file("slave")["globalWhiteRemoteAddresses"] == ["10.1.2.*", "127.0.0.9"]
    assert [each["addresses"] for each in brokers.json("white-list", "get")] == [["10.1.2.*", "127.0.0.9"]] * 2
    brokers.run("white-list", "set", "--yes", "--none")
    assert "broker-a 0  none" in brokers.run("white-list", "get")
    with SignedClient(brokers.master.address, None) as client:
        assert "AclException" in client.request(26).remark
    text = brokers.run("white-list", "set", "--yes", "--path", "/etc/none.yml", "10.1.2.3", code=2)
    assert "has been updated failed" in text
    for words, error in ((["10.1"], "not a valid address pattern"), (["10.1.2.{3,4}"], "has a comma"),
                         ([], "give addresses, or --none"), (["--none", "10.1.2.3"], "give addresses, or --none")):
        assert error in brokers.run("white-list", "set", "--yes", *words, code=2)
    text = brokers.run("white-list", "set", "10.1.2.3", code=2)
    assert "none    10.1.2.3" in text and text.endswith("No terminal to ask on: give --yes\n")
    assert "none    10.1.2.3" in brokers.run("white-list", "set", "10.1.2.3", "-o", "json", code=2)


# ---- hostile and older brokers

CONFIG = {request_code.GET_BROKER_CONFIG: answer(body=b"aclEnable=true\n")}
VERSIONS = {request_code.GET_BROKER_CLUSTER_ACL_INFO: answer(
    version='{"counter":1,"timestamp":2}', allAclFileVersion='{"/x.yml":{"counter":1,"timestamp":2}}',
    brokerName="broker-x", brokerAddr="x", clusterName="C")}


@pytest.mark.parametrize("listed, error", [
    (answer(body=b"[1,2]"), "can't be read"), (answer(body=b"\xff"), "can't be read"),
    (answer(body=b'{"plainAccessConfigs":[{"accessKey":{}}]}'), None), (answer(body=b"[" * 5000), "can't be read"),
    (answer(code=1, remark="boom"), "returned error 1: boom")])
def test_hostile_lists_are_errors_of_that_broker(brokers, listed, error):
    with fake_broker(brokers.namesrv, {**CONFIG, **VERSIONS, request_code.GET_BROKER_CLUSTER_ACL_CONFIG: listed}):
        text = brokers.run("user", "list", code=0 if error is None else 1)
    assert "aliceKey" in text and (error is None or error in text)


def test_hostile_versions_and_texts(brokers):
    bad = {request_code.GET_BROKER_CLUSTER_ACL_INFO: answer(version="{", brokerName="x", brokerAddr="x",
                                                            clusterName="C")}
    with fake_broker(brokers.namesrv, {**CONFIG, **bad}):
        assert "can't be read" in brokers.run("user", "list", code=1)
    listed = answer(body=json.dumps({"globalWhiteAddrs": ["\x1b[0m"], "plainAccessConfigs": [
        {"accessKey": "\x1b[31mevil", "secretKey": NEW_SECRET, "topicPerms": ["\x1b=PUB"]}]}).encode())
    with fake_broker(brokers.namesrv, {**CONFIG, **VERSIONS, request_code.GET_BROKER_CLUSTER_ACL_CONFIG: listed}):
        for words in (("user", "list"), ("white-list", "get"), ("user", "describe", "\x1b[31mevil")):
            for output in ("table", "json"):
                text = brokers.run(*words, "-o", output)
                assert "\x1b" not in text and NEW_SECRET not in text


def test_secret_in_a_brokers_error_is_hidden(brokers):
    listed = answer(body=b'{"globalWhiteAddrs":[],"plainAccessConfigs":[]}')
    echo = answer(code=response_code.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, remark=f"bad secretKey={NEW_SECRET} here")
    made = {**CONFIG, **VERSIONS, request_code.GET_BROKER_CLUSTER_ACL_CONFIG: listed,
            request_code.UPDATE_AND_CREATE_ACL_CONFIG: echo}
    with fake_broker(brokers.namesrv, made):
        text = brokers.run("user", "create", "orders-service", "-b", "broker-x", "--secret-env", "S", code=2,
                           S=NEW_SECRET)
        assert "bad secretKey=*** here" in text
        made[request_code.UPDATE_AND_CREATE_ACL_CONFIG] = answer()
    with fake_broker(brokers.namesrv, made):
        text = brokers.run("user", "create", "orders-service", "-b", "broker-x", "--generate", code=2)
        assert "reported success, but does not have the account" in text and "shown only now" not in text


def test_broker_that_does_not_list_its_accounts(brokers):
    """Like 4.9.8: accounts are created and deleted there, and everything else is unknown."""
    unsupported = answer(code=response_code.REQUEST_CODE_NOT_SUPPORTED, remark=" request type 54 not supported")
    made = {**CONFIG, **VERSIONS, request_code.GET_BROKER_CLUSTER_ACL_CONFIG: unsupported,
            request_code.UPDATE_AND_CREATE_ACL_CONFIG: answer(), request_code.DELETE_ACL_CONFIG: answer()}
    with fake_broker(brokers.namesrv, made):
        assert "on; it does not list its accounts, like RocketMQ 4.9.8  /x.yml" in brokers.run("user", "list")
        of_it = ("-b", "broker-x")
        assert "created" in brokers.run("user", "create", "orders-service", *of_it, "--generate")
        assert "deleted" in brokers.run("user", "delete", "--yes", "orders-service", *of_it)
        text = brokers.run("user", "alter", "aliceKey", *of_it, "--admin", "--generate", code=2)
        assert "create the account with all its permissions and --overwrite" in text
        assert "give its account files with --file" in brokers.run("check", "aliceKey", "--topic", "a", "pub", *of_it,
                                                                   code=2)
        assert "no broker lists its accounts" in brokers.run("user", "describe", "aliceKey", *of_it, code=2)


# ---- the page


def test_commands_of_the_page_print_what_it_shows(brokers):
    """docs/acl.md, on a cluster whose only account is its admin's."""
    section = (ROOT / "docs" / "acl.md").read_text("utf-8").split("## Accounts from the command line")[1]
    section = section.split("<!-- from here on")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```\n\n```text\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4 and len(re.findall(r"^```bash$", section, re.MULTILINE)) == 4
    for name, broker in (("master", brokers.master), ("slave", brokers.slave)):
        (brokers.folder / name / "conf" / "plain_acl.yml").write_text(
            f"accounts:\n- {{accessKey: ops-admin, secretKey: {ADMIN_SECRET}, admin: true}}\n")
        broker.controller.access_validator.load()
    (brokers.folder / "ops" / "conf").mkdir(parents=True)
    (brokers.folder / "ops" / "conf" / "tools.yml").write_text(f"accessKey: ops-admin\nsecretKey: {ADMIN_SECRET}\n")
    environment = {"NAMESRV_ADDR": brokers.namesrv, "ROCKETMQ_HOME": str(brokers.folder / "ops")}
    for commands, shown in blocks:
        printed = ""
        for line in commands.splitlines():
            program, *words = shlex.split(line)
            assert program == "bin/rmqha"
            result = CliRunner().invoke(rmqha, words, env=environment)
            assert result.exit_code == (1 if "denied" in result.output else 0), result.output
            printed += result.output
            made = GENERATED.search(result.output)
            if made:
                environment["ORDERS_SECRET"] = made[1]
        assert alike(printed) == alike(shown)


def alike(text: str) -> list[str]:
    """Return lines without what differs from run to run: secrets, times, the folder, and the width of columns."""
    for pattern in (r"(?<=only now: )\w+", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", r"/\S+(?=/conf/plain_acl.yml)"):
        text = re.sub(pattern, "<any>", text)
    return [" ".join(re.sub("-{2,}", "--", line).split()) for line in text.splitlines()]


# ---- RocketMQ


@pytest.mark.java
def test_accounts_of_a_rocketmq_broker(nodes, tmp_path, brokers):
    """4.9.7 lists accounts with secrets; they are used for changes, and never shown. rmqha's list is equal without."""
    home = tmp_path / "home"
    prepare_java_home(home)
    (home / "conf" / "plain_acl.yml").write_text(FILE)
    (home / "conf" / "tools.yml").write_text(f"accessKey: adminKey\nsecretKey: {ADMIN_SECRET}\n")
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode("java", tmp_path / "broker", namesrv.address, aclEnable="true")
    broker._env["ROCKETMQ_HOME"] = str(home)
    nodes.append(broker)
    broker.start()
    with SignedClient(broker.address, ("adminKey", ADMIN_SECRET)) as java:
        theirs = re.sub(rb',"secretKey":"\w+"', b"", java.request(54).body)
    with SignedClient(brokers.master.address, ("adminKey", ADMIN_SECRET)) as ours:
        assert ours.request(54).body == theirs and theirs.count(b"accessKey") == 2
    shown = []

    def run(*words: str, code: int = 0, **env: str) -> str:
        result = CliRunner().invoke(rmqha, ["acl", *words, "-n", namesrv.address], env={
            "NAMESRV_ADDR": "", "ROCKETMQ_HOME": str(home), **env})
        assert result.exit_code == code, result.output
        shown.append(result.output)
        return result.output

    def account(key: str) -> dict | None:
        accounts = yaml.safe_load((home / "conf" / "plain_acl.yml").read_text())["accounts"]
        return next((each for each in accounts if each["accessKey"] == key), None)
    assert "aliceKey         orders=PUB others=DENY  others=SUB  all" in run("user", "list")
    run("user", "create", "orders-service", "--secret-env", "S", "--topic", "orders=PUB|SUB", S=NEW_SECRET)
    assert account("orders-service")["topicPerms"] == ["orders=PUB|SUB"]
    run("user", "alter", "aliceKey", "--topic", "refunds=SUB")
    assert account("aliceKey")["topicPerms"] == ["orders=PUB", "refunds=SUB"]
    assert account("aliceKey")["secretKey"] == ALICE_SECRET
    text = run("user", "alter", "aliceKey", "--admin", "--secret-env", "S", code=2, S=NEW_SECRET)
    assert "this is not the secret of aliceKey" in text
    assert run("check", "aliceKey", "--topic", "refunds", "sub") == "allowed: topicPerms has refunds=SUB\n"
    assert run("check", "aliceKey", "--topic", "refunds", "pub", code=1).startswith("denied")
    run("white-list", "set", "--yes", "10.1.2.*", "127.0.0.9")
    wait_until(lambda: "10.1.2.* 127.0.0.9" in run("white-list", "get"), 60_000, "the addresses are listed")
    run("user", "delete", "--yes", "orders-service")
    assert account("orders-service") is None and "orders-service" not in run("user", "list", "-o", "json")
    for secret in (ADMIN_SECRET, ALICE_SECRET, NEW_SECRET):
        assert not [text for text in shown if secret in text]
