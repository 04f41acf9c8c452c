"""`rmqha acl check`: its verdict is that of the broker's validator, of a running broker, and of RocketMQ's."""
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqha.acl import acl_files
from rmqha.acl.common import INNER_TOPICS, AclException
from rmqha.acl.plain_access_validator import PlainAccessValidator
from rmqha.common.topics import AclConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.manage.access_check import PUB, SUB, Rules, Use, verdict
from rmqha.tools.manage.accounts import Account, BrokerAccounts
from rmqha.tools.rmqha_command import rmqha
from rmqha.tools.terminal import CannotAnswerError
from tests.acl.support import ADDRESSES, request_of
from tests.broker.support import acl_broker
from tests.interop.acl_requests import pull_fields, send_fields
from tests.support.in_process import running_name_server
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import SignedClient
from tests.support.tiers import drawn
from tests.support.wait import wait_until
from tests.tools.manage.fake_broker import prepare_java_home

SECRET = "drawnSecret"
NOWHERE = "203.0.113.9"
KEYS = ("aliceKey", "bobsKey", "chiefKey")
TOPICS = ("orders", "billing", "RMQ_SYS_TRACE_TOPIC", *sorted(INNER_TOPICS)[:2], "%DLQ%readers", "%RETRY%readers")
GROUPS = ("readers", "writers")
PERMISSIONS = ("PUB", "SUB", "PUB|SUB", "SUB|PUB", "DENY", "", " PUB ", "pub", "READ")
PATTERNS = ("127.0.0.9", "10.1.2.*", "192.168.0-7.*", "10.1.2.{3,4}", "5::7:6:1-200:*", "*")


def entries(names: tuple[str, ...]) -> st.SearchStrategy:
    return st.none() | st.lists(st.builds("{}={}".format, st.sampled_from(names),
                                          st.sampled_from([each for each in PERMISSIONS if each])), max_size=4)


def account(key: str) -> st.SearchStrategy:
    fields = {"accessKey": st.just(key), "secretKey": st.just(SECRET)}
    more = {"whiteRemoteAddress": st.sampled_from(("", *PATTERNS[:-1])), "admin": st.booleans(),
            "defaultTopicPerm": st.sampled_from(PERMISSIONS), "defaultGroupPerm": st.sampled_from(PERMISSIONS),
            "topicPerms": entries(TOPICS), "groupPerms": entries(GROUPS)}
    return st.fixed_dictionaries(fields, optional=more)


ACCOUNTS = st.lists(st.sampled_from(KEYS).flatmap(account), min_size=1, max_size=3)
WHITE = st.lists(st.sampled_from(PATTERNS[:-1]), max_size=2) | st.just(["*"])
USES = st.builds(Use, st.just(PUB), st.sampled_from(TOPICS), st.none()) | st.builds(
    Use, st.just(SUB), st.sampled_from(TOPICS) | st.none(), st.sampled_from(GROUPS) | st.none()).filter(
        lambda use: use.topic or use.group)


def request_for(use: Use, key: str | None):
    """Return a request that needs just these permissions, as the validator gets it."""
    signer = None if key is None else (key, SECRET)
    if use.perm == PUB:
        return request_of(10, b"x", signer, **send_fields(use.topic))
    if use.group is None:
        return request_of(12, None, signer, topic=use.topic, key="k")
    if use.topic is None:
        return request_of(38, None, signer, consumerGroup=use.group)
    return request_of(11, None, signer, **pull_fields(use.topic, use.group))


def write(folder: Path, white: list, accounts: list) -> Path:
    """Write plain_acl.yml."""
    (folder / "conf").mkdir(exist_ok=True)
    data = {"globalWhiteRemoteAddresses": white, "accounts": accounts}
    file = folder / "conf" / "plain_acl.yml"
    file.write_bytes(acl_files.dumps(data))
    return file


def listed(validator: PlainAccessValidator) -> Rules:
    """Return the rules as a tool gets them from a broker: without secrets."""
    config = validator.get_all_acl_config()
    for each in config.plainAccessConfigs:
        each.secretKey = None
    told = remoting_serializable.from_json(AclConfig, remoting_serializable.encode(config))
    accounts = [Account.of(each) for each in told.plainAccessConfigs]
    return Rules.of_broker(BrokerAccounts(True, True, {each.access_key: each for each in accounts},
                                          tuple(told.globalWhiteAddrs)))


@given(WHITE, ACCOUNTS, USES, st.sampled_from((*KEYS, "strangerKey")), st.sampled_from((*ADDRESSES, NOWHERE, None)))
@example([], [{"accessKey": "aliceKey", "secretKey": SECRET, "defaultTopicPerm": "PUB"}], Use(SUB, "%DLQ%readers"),
         "aliceKey", None)
@settings(max_examples=drawn(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_verdict_is_the_validators(tmp_path, white, accounts, use, key, address):
    file = write(tmp_path, white, accounts)
    validator = PlainAccessValidator(str(tmp_path))
    validator.load()
    request = request_for(use, key)
    try:
        validator.validate(validator.parse(request, f"{address or NOWHERE}:1234"))
        allowed = True
    except AclException as refused:
        assert "signature" not in str(refused)
        allowed = False
    asked = Use(use.perm, use.topic, use.group, address)
    of_file = verdict(Rules.of_files([str(file)]), key, asked)
    of_broker = verdict(listed(validator), key, asked)
    assert of_file.is_allowed is of_broker.is_allowed is allowed, (of_file, of_broker)
    assert of_file.reason == of_broker.reason and of_file.reason
    assert of_file.word == ("allowed" if allowed else "denied") and not (allowed and of_file.note)


def test_several_files_are_read_in_the_brokers_order(tmp_path):
    """The account that is read first counts; files below conf/acl are read first."""
    (tmp_path / "conf" / "acl").mkdir(parents=True)
    default = write(tmp_path, ["10.1.2.*"], [{"accessKey": "aliceKey", "secretKey": SECRET}])
    other = tmp_path / "conf" / "acl" / "a.yml"
    other.write_bytes(acl_files.dumps({"accounts": [
        {"accessKey": "aliceKey", "secretKey": SECRET, "defaultTopicPerm": "SUB"}]}))
    validator = PlainAccessValidator(str(tmp_path))
    validator.load()
    validator.validate(validator.parse(request_for(Use(SUB, "orders"), "aliceKey"), f"{NOWHERE}:1"))
    rules = Rules.of_files(map(str, (other, default)))
    assert verdict(rules, "aliceKey", Use(SUB, "orders")).is_allowed
    assert verdict(rules, "nobodyKey", Use(SUB, "orders", address="10.1.2.7")).is_allowed


ALICE = Account("aliceKey", topic_perms=("orders=PUB|SUB", "sent=PUB"), default_group_perm="SUB")


@pytest.mark.parametrize("account, use, said", [
    (ALICE, Use(PUB, "orders"), "allowed: topicPerms has orders=PUB|SUB"),
    (ALICE, Use(SUB, "sent"), "denied: topicPerms has sent=PUB, but SUB is needed"),
    (ALICE, Use(SUB, "other"), "denied: topic other has no entry in topicPerms, and defaultTopicPerm is missing, which "
                               "means DENY"),
    (Account("aliceKey", default_topic_perm="DENY"), Use(PUB, "orders"),
     "denied: topic orders has no entry in topicPerms, and defaultTopicPerm is DENY"),
    (Account("aliceKey", default_topic_perm="PUBB"), Use(PUB, "orders"),
     "denied: topic orders has no entry in topicPerms, and defaultTopicPerm is 'PUBB', which means DENY"),
    (Account("aliceKey", default_topic_perm="PUB"), Use(SUB, "orders"),
     "denied: topic orders has no entry in topicPerms, and defaultTopicPerm is PUB, but SUB is needed"),
    (ALICE, Use(SUB, "orders", "g"), "allowed: topicPerms has orders=PUB|SUB; group g has no entry in groupPerms, and "
                                     "defaultGroupPerm is SUB"),
    (ALICE, Use(PUB, "RMQ_SYS_TRACE_TOPIC"), "allowed: all accounts may send message traces"),
    (Account("aliceKey", default_topic_perm="SUB"), Use(SUB, "SCHEDULE_TOPIC_XXXX"),
     "denied: topic SCHEDULE_TOPIC_XXXX has no entry in topicPerms, and defaultTopicPerm does not apply to it, because "
     "it holds messages or events of other topics"),
    (Account("aliceKey", default_topic_perm="SUB"), Use(SUB, "%DLQ%g"),
     "denied: topic %DLQ%g has no entry in topicPerms, and its dead letters are only for accounts that may consume as "
     "the group: group g has no entry in groupPerms, and defaultGroupPerm is missing, which means DENY"),
    (Account("aliceKey", admin=True), Use(PUB, "orders"),
     "allowed: the account is an admin without lists of permissions"),
    (Account("aliceKey", white_address="10.1.2.*"), Use(PUB, "orders", address="10.1.2.3"),
     "allowed: whiteRemoteAddress of the account is 10.1.2.*: requests from there need no permission"),
    (Account("bobsKey"), Use(PUB, "orders"), "denied: the account aliceKey does not exist"),
])
def test_first_rule_that_decides_is_explained(account, use, said):
    found = verdict(Rules({account.access_key: account}), "aliceKey", use)
    assert f"{found.word}: {found.reason}" == said


def test_unknown_verdicts_and_notes():
    rules = Rules({"aliceKey": ALICE}, ("10.1.2.*",))
    assert verdict(rules, "aliceKey", Use(SUB, "x")).note == (
        "from an address on the white lists (10.1.2.*) it is allowed: see --from")
    assert verdict(rules, "aliceKey", Use(SUB, "x", address="10.9.9.9")).note == ""
    assert verdict(Rules({}, is_enabled=False), "aliceKey", Use(SUB, "x")).is_allowed
    assert verdict(Rules({}, unknown="it is of 4.9.8"), "aliceKey", Use(SUB, "x")).is_allowed is None
    broken = Rules({"aliceKey": ALICE, "bobsKey": Account("bobsKey", topic_perms=("no permission",))})
    assert verdict(broken, "aliceKey", Use(PUB, "orders")).word == "unknown"
    assert verdict(Rules({"aliceKey": ALICE}, ("10.1.2.x",)), "aliceKey", Use(PUB, "orders")).word == "unknown"


@pytest.mark.parametrize("text, error", [
    (None, "missing or empty"), ("", "missing or empty"), ("accounts: 7\n", "expected a list"),
    ("a: [", "not valid YAML"),
    ("accounts:\n- accessKey: short\n  secretKey: hunter2secret\n", "longer than 6"),
    ("accounts:\n- accessKey: aliceKey\n  secretKey: hunter2secret\n  topicPerms:\n  - x\n", "failed for topic:x")])
def test_unusable_files_are_errors_without_secrets(tmp_path, text, error):
    file = tmp_path / "acl.yml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CannotAnswerError) as failure:
        Rules.of_files([str(file)])
    assert error in failure.value.message and str(file) in failure.value.message
    assert "hunter2" not in failure.value.message


def run(*words: str, code: int, **env: str) -> str:
    result = CliRunner().invoke(rmqha, ["acl", "check", *words], env={"NAMESRV_ADDR": "", **env})
    assert result.exit_code == code, result.output
    return result.output


def test_command_on_a_file(tmp_path):
    file = str(write(tmp_path, ["10.1.2.*"], [{"accessKey": "aliceKey", "secretKey": SECRET, "topicPerms": ["a=PUB"]}]))
    of_alice = ("--file", file, "aliceKey", "--topic", "a")
    assert run(*of_alice, "pub", code=0) == "allowed: topicPerms has a=PUB\n"
    assert run(*of_alice, "sub", code=1).startswith("denied: topicPerms has a=PUB, but SUB is needed")
    told = json.loads(run(*of_alice, "--from", "10.1.2.3", "sub", "-o", "json", code=0))
    assert told["verdict"] == "allowed" and told["brokers"][0]["broker"] == "files"
    assert SECRET not in run(*of_alice, "pub", "-o", "yaml", code=0)
    for words in (["pub"], ["--group", "g", "pub"], ["--topic", "a", "--from", "nowhere", "pub"],
                  ["--topic", "a", "read"], ["--file", file, "-b", "x", "--topic", "a", "pub"]):
        assert "Usage:" in run("aliceKey", *words, code=2)
    assert "missing or empty" in run("--file", str(tmp_path / "none.yml"), "aliceKey", "--topic", "a", "pub", code=2)


# ---- running brokers

LIVE = """\
globalWhiteRemoteAddresses:
- 127.0.0.1
- 127.0.0.9
accounts:
- accessKey: adminKey
  secretKey: adminSecret
  admin: true
- accessKey: aliceKey
  secretKey: drawnSecret
  whiteRemoteAddress: 127.0.0.6
  topicPerms:
  - OwnTopic=PUB
  groupPerms:
  - ownGroup=SUB
- accessKey: bobsKey
  secretKey: drawnSecret
  defaultTopicPerm: PUB|SUB
  topicPerms:
  - OwnTopic=DENY
- accessKey: chiefKey
  secretKey: drawnSecret
  admin: true
  defaultGroupPerm: SUB
  defaultTopicPerm: SUB
  topicPerms:
  - OwnTopic=PUB
"""
LIVE_USES = [Use(PUB, "OwnTopic"), Use(PUB, "OtherTopic"), Use(SUB, "OwnTopic"), Use(SUB, "OtherTopic"),
             Use(SUB, None, "ownGroup"), Use(SUB, None, "otherGroup"), Use(SUB, "OtherTopic", "ownGroup"),
             Use(PUB, "RMQ_SYS_TRACE_TOPIC"), Use(SUB, "%DLQ%ownGroup"), Use(SUB, "%DLQ%otherGroup"),
             Use(SUB, "SCHEDULE_TOPIC_XXXX"), Use(SUB, "OFFSET_MOVED_EVENT")]
SOURCES = ("127.0.0.5", "127.0.0.6", "127.0.0.9")


def is_served(client: SignedClient, use: Use) -> bool:
    """Return whether a broker's access control lets a request for this pass."""
    request = request_for(use, None)
    answered = client.request(request.code, bytes(request.body or b""), **request.ext_fields)
    return not (answered.remark or "").startswith(AclException.JAVA_NAME)


def compare_with(address: str, namesrv: str, home: str) -> set[str]:
    """Ask a broker, and the command, for all uses; return the verdicts that were seen."""
    seen = set()
    for source in SOURCES:
        for key in (*KEYS, "strangerKey"):
            with SignedClient(address, (key, SECRET), source) as client:
                served = {use: is_served(client, use) for use in LIVE_USES}
            for use, is_allowed in served.items():
                words = [key, "--from", source, use.perm]
                words += ["--topic", use.topic] if use.topic else []
                words += ["--group", use.group] if use.group else []
                text = run(*words, "-n", namesrv, code=0 if is_allowed else 1, ROCKETMQ_HOME=home)
                assert text.startswith("allowed" if is_allowed else "denied"), (source, key, use, text)
                seen.add(text.split(":")[0])
    return seen


def test_verdict_is_that_of_a_running_broker(tmp_path):
    with running_name_server(tmp_path) as namesrv, acl_broker(
            tmp_path / "broker", LIVE, namesrvAddr=namesrv, brokerClusterName="C") as broker:
        assert compare_with(broker.address, namesrv, str(tmp_path)) == {"allowed", "denied"}


@pytest.mark.java
def test_verdict_is_that_of_rocketmq(nodes, tmp_path):
    home = tmp_path / "home"
    prepare_java_home(home)
    (home / "conf" / "plain_acl.yml").write_text(LIVE)
    namesrv = NamesrvNode("rmqha", tmp_path / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode("java", tmp_path / "broker", namesrv.address, aclEnable="true")
    broker._env["ROCKETMQ_HOME"] = str(home)
    nodes.append(broker)
    broker.start()
    with SignedClient(broker.address, ("adminKey", "adminSecret")) as admin:
        wait_until(lambda: admin.request(28).code == 0, 60_000, "runtime information")
    assert compare_with(broker.address, namesrv.address, str(tmp_path)) == {"allowed", "denied"}
    # RocketMQ lets the defaults of an account apply to dead letters and inner topics.
    told = run("chiefKey", "sub", "--topic", "%DLQ%x", "-n", namesrv.address, code=0, ROCKETMQ_HOME=str(tmp_path))
    assert told.startswith("allowed: topic %DLQ%x has no entry in topicPerms, and defaultTopicPerm is SUB")
