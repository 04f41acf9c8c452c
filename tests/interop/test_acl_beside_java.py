"""Access control of rmqha and the real broker: the same accounts, requests, answers and address patterns."""
import dataclasses
import itertools
import json
import re
import secrets
import shutil

import pytest
import yaml

from rmqha.acl.acl_files import AclFile
from rmqha.acl.common import AclClientRPCHook, AclException, PlainAccessResource, SessionCredentials
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.exception import MQClientException
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.acl.support import ADDRESSES, PATTERNS_KNOWN, generated_patterns
from tests.acl.support import KNOWN as KNOWN_DOCUMENTS
from tests.acl.support import generated as generated_documents
from tests.interop.acl_requests import (
    broker_requests,
    denied_by_rmqha_only,
    group_requests,
    send_fields,
    send_v2_fields,
    topic_requests,
)
from tests.support.mqadmin import rmqha_tool
from tests.support.raw_remoting import SignedClient
from tests.support.wait import wait_until

pytestmark = pytest.mark.java


# Access control of rmqha and the real broker: the same accounts and requests get the same answers.

KINDS = ("java", "rmqha")
ACCOUNTS_FILE = """\
globalWhiteRemoteAddresses:
- 127.0.0.9
- 127.0.1-3.*
accounts:
- accessKey: adminKey
  secretKey: adminSecret
  admin: true
- accessKey: aliceKey
  secretKey: 12345678
  whiteRemoteAddress: 127.0.0.{5,6}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - PubTopic=PUB
  - SubTopic=SUB
  - BothTopic=PUB|SUB
  - DeniedTopic=DENY
  groupPerms:
  - aliceGroup=SUB
  - pubGroup=PUB
- accessKey: bobsKey
  secretKey: bobsSecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
  topicPerms:
  - DeniedTopic=DENY
- accessKey: chiefKey
  secretKey: chiefSecret
  admin: true
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - PubTopic=PUB
"""
OTHER_FILE = """\
accounts:
- accessKey: otherKey
  secretKey: otherSecret
  defaultTopicPerm: PUB
- accessKey: bobsKey
  secretKey: notBobsSecret
- accessKey: workPubKey
  secretKey: workPubSecret
  topicPerms:
  - WorkTopic=PUB
  - AskTopic=PUB
- accessKey: workSubKey
  secretKey: workSubSecret
  topicPerms:
  - WorkTopic=SUB
  - AskTopic=SUB
  - InteropCluster_REPLY_TOPIC=PUB
  groupPerms:
  - workGroup=SUB
  - orderGroup=SUB
  - liteGroup=SUB
  - askGroup=SUB
"""
WORK_TOPICS = ("WorkTopic", "AskTopic")
TOPICS = ("PubTopic", "SubTopic", "BothTopic", "DeniedTopic", "FreeTopic")
GROUPS = ("aliceGroup", "pubGroup", "freeGroup")
ADMIN = ("adminKey", "adminSecret")
ALICE = ("aliceKey", "12345678")
BOB = ("bobsKey", "bobsSecret")
CHIEF = ("chiefKey", "chiefSecret")
OTHER = ("otherKey", "otherSecret")
HOME, ALICES_OTHER_HOST, OPEN_HOST = "127.0.0.1", "127.0.0.6", "127.0.2.77"


def start(kind, folder, module_nodes):
    """Start a broker of a kind with access control, and its name server; return them and their home folder."""
    from tests.support import real_rocketmq
    from tests.support.nodes import BrokerNode, NamesrvNode
    home = folder / "home"
    (home / "conf" / "acl" / "deeper").mkdir(parents=True)
    # Files that Java's broker and mqadmin need.
    for name in ("broker", "tools"):
        shutil.copy(real_rocketmq.jars().parent / "home" / "conf" / f"logback_{name}.xml", home / "conf")
    write_accounts(home / "conf")
    namesrv = NamesrvNode("rmqha", folder / "namesrv")
    module_nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(kind, folder / "broker", namesrv.address, aclEnable="true")
    broker._env["ROCKETMQ_HOME"] = str(home)
    broker.home = home
    module_nodes.append(broker)
    return broker.start()


@pytest.fixture(scope="module")
def brokers(module_nodes, tmp_path_factory):
    """Return a broker of each kind with the same accounts and topics."""
    started = {kind: start(kind, tmp_path_factory.mktemp(kind), module_nodes) for kind in KINDS}
    for broker in started.values():
        with SignedClient(broker.address, ADMIN) as client:
            for topic in (*TOPICS, *WORK_TOPICS):
                client.create_topic(topic, 1)
            for group in GROUPS:
                assert client.request(200, json.dumps({"groupName": group}).encode()).code == 0
            # in its first second the original cannot return its runtime information
            wait_until(lambda client=client: client.request(28).code == 0, 60_000, "runtime information")
    return started


def write_accounts(conf, more=("", "")):
    """Write the account files, with more accounts at the end of each."""
    for name, text, other in zip(("plain_acl.yml", "acl/deeper/other.yml"), (ACCOUNTS_FILE, OTHER_FILE), more,
                                 strict=True):
        (conf / name).write_text(text + other, "utf-8")


@pytest.fixture
def changed(brokers):
    """Yield the brokers for a test that changes accounts, and restore the accounts of the other tests afterwards."""
    yield brokers
    marks = [(f"mark{secrets.token_hex(4)}", "markSecret") for _file in range(2)]
    for broker in brokers.values():
        (broker.home / "conf" / "acl" / "eve.yml").unlink(missing_ok=True)
        write_accounts(broker.home / "conf", [
            f"- accessKey: {key}\n  secretKey: {secret}\n  defaultTopicPerm: PUB\n" for key, secret in marks])
    request = {"send": topic_requests("BothTopic")["send BothTopic"]}
    wait_until(lambda: all(answers(broker, mark, HOME, request)["send"][0] == 0
                           for broker in brokers.values() for mark in marks), what="the first accounts in force again")


def without_place(remark):
    """Return the remark without ports, and without the place of the exception, which depends on the language."""
    if remark is not None and remark.startswith("org.apache.rocketmq.acl.common.AclException"):
        return remark.rsplit(", ", 1)[0]
    return None if remark is None else re.sub(r"(127\.[0-9.]+):\d+", r"\1", remark)


def answers(broker, account, source, requests):
    """Send all requests; return name -> (code, remark)."""
    with SignedClient(broker.address, account, source) as client:
        given = {name: client.request(code, body, **fields) for name, (code, fields, body) in requests.items()}
    return {name: (answer.code, without_place(answer.remark)) for name, answer in given.items()}


def all_requests():
    """Return all requests whose answers must be the same."""
    requests = broker_requests()
    for topic in TOPICS:
        requests.update(topic_requests(topic))
    for topic, group in itertools.product(("SubTopic", "PubTopic", "FreeTopic"), GROUPS):
        requests.update(group_requests(topic, group))
    return requests


WHO = {
    "nobody": (None, HOME),
    "an unknown key": (("strangerKey", "strangerSecret"), HOME),
    "a wrong secret": (("aliceKey", "notAlices"), HOME),
    "the other file's secret of a key": (("bobsKey", "notBobsSecret"), HOME),
    "alice": (ALICE, HOME),
    "bob": (BOB, HOME),
    "the admin": (ADMIN, HOME),
    "an admin with permissions": (CHIEF, HOME),
    "an account of another file": (OTHER, HOME),
    "alice's key from her other host": (("aliceKey", "wrong"), ALICES_OTHER_HOST),
    "nobody from alice's other host": (None, ALICES_OTHER_HOST),
    "nobody from an open host": (None, OPEN_HOST),
    "an unknown key from an open host": (("strangerKey", "strangerSecret"), "127.0.0.9"),
}


# The original answers these requests for every account, with any topic or group.
CHECKED_BY_RMQHA_ONLY = ("query offset ", "max offset", "topic stats", "consumer connections", "lock")


def is_denied(answer):
    """Return whether access control gave the answer (code, remark)."""
    return (answer[1] or "").startswith("org.apache.rocketmq.acl.common.AclException: ")


@pytest.mark.parametrize("who", WHO)
def test_each_request_has_the_same_answer(brokers, who):
    account, source = WHO[who]
    given = {kind: answers(broker, account, source, all_requests()) for kind, broker in brokers.items()}
    different = {name: (answer, given["rmqha"][name]) for name, answer in given["java"].items()
                 if given["rmqha"][name] != answer}
    stricter = {name for name, (javas, ours) in different.items() if is_denied(ours) and not is_denied(javas)}
    assert {name: answers for name, answers in different.items() if name not in stricter} == {}
    assert all(name.startswith(CHECKED_BY_RMQHA_ONLY) for name in stricter), stricter
    if account in (None, ADMIN):
        assert not stricter


def test_rmqha_denies_requests_that_the_original_allows(brokers):
    """Each of these requests bypasses the original's checks: alice owns neither topic nor group and is not an admin."""
    requests = denied_by_rmqha_only("DeniedTopic", "freeGroup")
    given = {kind: answers(broker, ALICE, HOME, requests) for kind, broker in brokers.items()}
    assert not any("AclException" in (remark or "") for _code, remark in given["java"].values())
    denied = "org.apache.rocketmq.acl.common.AclException: "
    need_admin = denied + "Need admin permission for request code={}, but accessKey=aliceKey is not"
    assert given["rmqha"] == {
        "batch DeniedTopic": (1, denied + "No default permission for topic:DeniedTopic"),
        "send v1 retry freeGroup": (1, denied + "No default permission for group:freeGroup"),
        "unknown code": (1, need_admin.format(9999)), "delete account": (1, need_admin.format(51)),
        "make account": (1, need_admin.format(50)), "white addresses": (1, need_admin.format(53)),
        "delete no account": (1, need_admin.format(51)), "make no account": (1, need_admin.format(50)),
        "no white addresses": (1, need_admin.format(53)),
    }
    admins = {kind: answers(broker, ADMIN, HOME, requests) for kind, broker in brokers.items()}
    assert admins["rmqha"] == admins["java"]


def test_send_to_a_retry_topic_needs_the_group_of_the_topic(brokers):
    """The original checks the group in another field. A consumer that sends messages back has CLIENT_INNER_PRODUCER in
    it, and is refused; a client that names a group of its own can write to every group's retry topic."""
    requests = {f"{group} as {producer}": (310, send_v2_fields(f"%RETRY%{group}", producer), b"x")
                for group in ("aliceGroup", "freeGroup") for producer in ("aliceGroup", "CLIENT_INNER_PRODUCER")}
    denied = {kind: {name for name, answer in answers(broker, ALICE, HOME, requests).items() if is_denied(answer)}
              for kind, broker in brokers.items()}
    assert denied == {"java": {"aliceGroup as CLIENT_INNER_PRODUCER", "freeGroup as CLIENT_INNER_PRODUCER"},
                      "rmqha": {"freeGroup as aliceGroup", "freeGroup as CLIENT_INNER_PRODUCER"}}


DENIED_TO_ALICE = "No default permission for topic:SubTopic"


@pytest.mark.parametrize("kind", KINDS)
def test_java_clients_can_sign_for_both_brokers(brokers, java_driver, kind):
    broker = brokers[kind]
    alice = {"accessKey": ALICE[0], "secretKey": ALICE[1]}
    sent = java_driver.submit("aclSend", namesrv=broker.namesrv, topics=["BothTopic", "SubTopic"], **alice).result()
    assert sent["results"][0] == "SEND_OK" and DENIED_TO_ALICE in sent["results"][1]
    consumed = java_driver.submit("aclConsume", namesrv=broker.namesrv, topic="BothTopic", group="aliceGroup",
                                  deadlineMs=60_000, **alice).result()
    assert consumed["came"]


@pytest.mark.parametrize("kind", KINDS)
def test_java_clients_work_with_minimal_permissions(brokers, java_driver, kind):
    """Transactions, batches, retries, locks, offsets and replies need only PUB or SUB."""
    done = java_driver.submit(
        "aclWork", namesrv=brokers[kind].namesrv, deadlineMs=60_000,
        producer={"accessKey": "workPubKey", "secretKey": "workPubSecret"},
        consumer={"accessKey": "workSubKey", "secretKey": "workSubSecret"}).result(230)
    everything = ["again", "batch 1", "batch 2", "committed"]
    assert (done["pushed"], done["again"]) == (everything[1:], ["again"])
    assert done["orderly"] == done["lite"] == everything and done["reply"] == "the answer"


def bodies_by_key(admin):
    """Return the bodies of the messages with the key; an empty list before they are indexed."""
    try:
        return [bytes(message.body)
                for message in admin.mq_admin.query_message("BothTopic", "acl-key", 8, 0, 1 << 50).message_list]
    except MQClientException:
        return []


def test_queries_by_key_need_no_unsigned_flag(brokers, java_driver):
    """The original's clients sign a flag that its broker ignores, so it refuses every query by key."""
    kept = {**send_fields("BothTopic"), "properties": "KEYS\x01acl-key\x02"}
    ours = {}
    for kind, broker in brokers.items():
        with SignedClient(broker.address, ADMIN) as client:
            assert client.request(10, b"x", **kept).code == 0
        admin = DefaultMQAdminExt(broker.namesrv, AclClientRPCHook(SessionCredentials(*ADMIN)))
        try:
            ours[kind] = wait_until(lambda: bodies_by_key(admin), 60_000, "the message by its key")
        finally:
            admin.shutdown()
    assert ours == {"java": [b"x"], "rmqha": [b"x"]}
    javas = {kind: mqadmin(java_driver.admin, broker, "queryMsgByKey", "-t", "BothTopic", "-k", "acl-key")
             for kind, broker in brokers.items()}
    assert "QueryMsgByKeySubCommand command failed" in javas["java"] and "#Message ID" in javas["rmqha"]


def why_not_sent(producer, topic):
    """Return the last broker's answer to a send that fails."""
    with pytest.raises(MQClientException) as failure:
        producer.send(Message(topic, b"x"))
    return str(failure.value.__cause__)


@pytest.mark.parametrize("kind", KINDS)
def test_rmqha_clients_can_sign_for_both_brokers(brokers, kind):
    broker = brokers[kind]
    hook = AclClientRPCHook(SessionCredentials(*ALICE))
    body, came = f"from python to {kind}".encode(), []
    with DefaultMQProducer("acl-python", broker.namesrv, hook) as producer:
        assert producer.send(Message("BothTopic", body)).send_status is SendStatus.SEND_OK
        batch = [Message("BothTopic", b"one"), Message("BothTopic", b"two")]
        assert producer.send_batch(batch).send_status is SendStatus.SEND_OK
        assert DENIED_TO_ALICE in why_not_sent(producer, "SubTopic")
    with DefaultMQPushConsumer("aliceGroup", broker.namesrv, came.extend, hook) as consumer:
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe("BothTopic")
        wait_until(lambda: body in [message.body for message in came], 60_000, "the message")


def test_unsigned_and_wrongly_signed_clients_get_an_error(brokers):
    for kind, broker in brokers.items():
        for hook, why in ((None, "No accessKey is configured"),
                          (AclClientRPCHook(SessionCredentials("aliceKey", "wrongSecret")),
                           "Check signature failed for accessKey=aliceKey")):
            with DefaultMQProducer(f"acl-wrong-{kind}", broker.namesrv, hook) as producer:
                assert why in why_not_sent(producer, "BothTopic")


def test_account_files_are_reloaded_when_they_change(changed):
    """A new account, a changed secret, a new file and a removed file take effect on both without a restart."""
    request = {"send": topic_requests("BothTopic")["send BothTopic"]}
    newcomer, new_alice, eve = ("newKey0", "newSecret"), ("aliceKey", "another8"), ("eveKey0", "evesSecret")

    def outcomes():
        return {kind: [answers(broker, who, HOME, request)["send"] for who in (newcomer, ALICE, new_alice, eve)]
                for kind, broker in changed.items()}

    before = outcomes()
    assert before["rmqha"] == before["java"] and [code for code, _ in before["java"]] == [1, 0, 1, 1]
    for broker in changed.values():
        conf = broker.home / "conf"
        text = ACCOUNTS_FILE.replace("12345678", "another8")
        (conf / "plain_acl.yml").write_text(text + "- accessKey: newKey0\n  secretKey: newSecret\n"
                                            "  defaultTopicPerm: PUB\n", "utf-8")
        (conf / "acl" / "eve.yml").write_text("accounts:\n- accessKey: eveKey0\n  secretKey: evesSecret\n"
                                              "  defaultTopicPerm: PUB\n", "utf-8")
    wait_until(lambda: all([code for code, _ in given] == [0, 1, 0, 0] for given in outcomes().values()), 60_000,
               "the new files in force")
    after = outcomes()
    assert after["rmqha"] == after["java"]
    for broker in changed.values():
        (broker.home / "conf" / "acl" / "eve.yml").unlink()
    wait_until(lambda: all([code for code, _ in given] == [0, 1, 0, 1] for given in outcomes().values()), 60_000,
               "the removed file no longer in force")
    after = outcomes()
    assert after["rmqha"] == after["java"]


def rmqha_mqadmin(*args, home):
    """Return the output of rmqha's mqadmin."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ROCKETMQ_HOME", str(home))
        text = rmqha_tool(list(args))
    return re.sub(r"PlainAccessConfig \[.*\]", "org.apache.rocketmq.common.PlainAccessConfig", text)


def mqadmin(tool, broker, *args):
    """Return the output of mqadmin for the admin account, without the parts that differ between brokers."""
    (broker.home / "conf" / "tools.yml").write_text("accessKey: {}\nsecretKey: {}\n".format(*ADMIN), "utf-8")
    text = tool(*args, "-n", broker.namesrv, home=broker.home)
    text = text.replace(broker.address, "<address>").replace(str(broker.home), "<home>")
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d{13}", "<time>", text)


def accounts_file(broker, name):
    """Return an account file without the time of its version."""
    data = yaml.safe_load((broker.home / "conf" / name).read_text("utf-8"))
    for version in data.get("dataVersion", ()):
        assert version.pop("timestamp") > 0
    return data


ACTIONS = {
    "make an account": ("updateAclConfig", "-a", "<newcomer>", "-s", "newSecret", "-w", "127.0.0.7", "-i", "DENY", "-u",
                        "SUB", "-t", "PubTopic=PUB,SubTopic=SUB|PUB", "-g", "aliceGroup=SUB", "-m", "true"),
    "change an account": ("updateAclConfig", "-a", "aliceKey", "-s", "123456789", "-t", "SubTopic=SUB"),
    "change an account of another file": ("updateAclConfig", "-a", "otherKey", "-s", "otherSecret", "-i", "PUB|SUB"),
    "too short a secret": ("updateAclConfig", "-a", "daveKey", "-s", "short"),
    "too short a key": ("updateAclConfig", "-a", "dave", "-s", "davesSecret"),
    "no permission": ("updateAclConfig", "-a", "daveKey", "-s", "davesSecret", "-t", "PubTopic"),
    "an unknown permission": ("updateAclConfig", "-a", "daveKey", "-s", "davesSecret", "-g", "aliceGroup=READ"),
    "versions": ("clusterAclConfigVersion",),
    "delete an account": ("deleteAclConfig", "-a", "chiefKey"),
    "delete no account": ("deleteAclConfig", "-a", "nobodysKey"),
    "other open addresses": ("updateGlobalWhiteAddr", "-g", "127.0.0.9,127.0.1-3.*,10.1.2.3"),
    "open addresses of another file": ("updateGlobalWhiteAddr", "-g", "127.0.0.33", "-p",
                                       "<home>/conf/acl/deeper/other.yml"),
    "open addresses of no file": ("updateGlobalWhiteAddr", "-g", "127.0.0.33", "-p", "<home>/conf/none.yml"),
    "open addresses of a folder": ("updateGlobalWhiteAddr", "-g", "127.0.0.33", "-p", "<home>/conf"),
    "open addresses of a foreign file": ("updateGlobalWhiteAddr", "-g", "127.0.0.33", "-p", "/etc/hostname"),
    "versions at the end": ("clusterAclConfigVersion",),
}


def outcome(tool, broker, action, newcomer):
    """Return an action's output, or only the broker's answer in it."""
    command, *options = ACTIONS[action]
    text = mqadmin(tool, broker, command, "-b", broker.address, *[
        option.replace("<home>", str(broker.home)).replace("<newcomer>", newcomer) for option in options])
    answer = re.search(r"CODE: .*?(?=\n\s+at |\nFor more|$)", text, re.DOTALL)
    return answer[0] if answer else sorted(re.sub(r"PlainAccessConfig@\w+", "PlainAccessConfig", text).splitlines())


def test_mqadmin_prints_and_writes_the_same(changed, java_driver):
    given = {kind: {action: outcome(java_driver.admin, broker, action, "carolKey") for action in ACTIONS}
             for kind, broker in changed.items()}
    assert given["rmqha"] == given["java"]
    for name in ("plain_acl.yml", "acl/deeper/other.yml"):
        files = {kind: accounts_file(broker, name) for kind, broker in changed.items()}
        assert files["rmqha"] == files["java"]
    answered = {action for action, text in given["rmqha"].items() if isinstance(text, str)}
    assert answered == {"too short a secret", "too short a key", "no permission", "an unknown permission",
                        "delete no account", "open addresses of no file", "open addresses of a folder",
                        "open addresses of a foreign file"}


def test_only_rmqha_creates_an_account_again_that_its_file_lost(changed, java_driver):
    """The original still finds the account in a table, writes nothing, and reports success."""
    make = ("updateAclConfig", "-a", "frankKey", "-s", "franksSecret", "-i", "PUB")
    request = {"send": topic_requests("FreeTopic")["send FreeTopic"]}
    written = {}
    for kind, broker in changed.items():
        def code(broker=broker):
            return answers(broker, ("frankKey", "franksSecret"), HOME, request)["send"][0]

        assert "success" in mqadmin(java_driver.admin, broker, *make, "-b", broker.address)
        wait_until(lambda code=code: code() == 0, what="the new account in force")
        write_accounts(broker.home / "conf")
        wait_until(lambda code=code: code() == 1, what="the file without it in force")
        assert "success" in mqadmin(java_driver.admin, broker, *make, "-b", broker.address)
        written[kind] = "frankKey" in (broker.home / "conf" / "plain_acl.yml").read_text("utf-8")
    assert written == {"java": False, "rmqha": True}


def test_both_mqadmins_print_the_same(changed, java_driver):
    given = {}
    for letter, tool in (("java", java_driver.admin), ("rmqha", rmqha_mqadmin)):
        for kind, broker in changed.items():
            mqadmin(tool, broker, "updateAclConfig", "-b", broker.address, "-a", "chiefKey", "-s", "chiefSecret")
            given[letter, kind] = {action: outcome(tool, broker, action, "erinsKey") for action in ACTIONS}
            # The counters grow with every run.
            for name in ("versions", "versions at the end"):
                given[letter, kind][name] = [re.sub(r" \d+ +", " <n> ", line) for line in given[letter, kind][name]]
    original = given.pop(("java", "java"))
    for printed in given.values():
        assert printed == original
    listed = [sorted(re.sub(r" \d+ +", " <n> ", line) for line in mqadmin(
        tool, broker, "clusterAclConfigVersion", "-c", "InteropCluster").splitlines())
        for tool in (java_driver.admin, rmqha_mqadmin) for broker in changed.values()]
    assert listed == listed[:1] * 4 and len(listed[0]) == 4  # heading, two files, last line


# Address patterns and account files as the original's own classes and rmqha parse them.

REFUSED = ("expected a text, not a", "an empty element", "expected true or false")


def ours(pattern):
    """Return "error", or 1 or 0 for each address."""
    try:
        strategy = RemoteAddressStrategyFactory().get_remote_address_strategy(pattern)
    except AclException:
        return "error"
    return "".join("01"[strategy.match(PlainAccessResource(white_remote_address=address))] for address in ADDRESSES)


def test_address_patterns_mean_the_same(java_driver):
    patterns = [*PATTERNS_KNOWN, *generated_patterns(7, 5000)]
    java = java_driver.submit("aclAddresses", patterns=patterns, addresses=ADDRESSES).result()["results"]
    different = {}
    for pattern, theirs in zip(patterns, java, strict=True):
        mine = ours(pattern)
        # x: the original accepts the pattern, and then every request from such an address fails; rmqha refuses it
        if mine != theirs and not ("x" in theirs and mine == "error"):
            different[pattern] = (theirs, mine)
    assert different == {}
    assert sum("1" in result for result in java) > 500 and java.count("error") > 500


def read_by_us(path):
    """Return the contents of an account file in the format of the Java driver."""
    try:
        content = AclFile.read(str(path))
    except AclException as error:
        return "error", str(error)
    if content is None:
        return "null", ""
    accounts = [{name: value for name, value in dataclasses.asdict(account).items() if value is not None}
                for account in content.accounts]
    return {"white": content.global_white_addrs, "accounts": accounts, "counter": content.data_version.counter}, ""


def test_account_files_are_parsed_alike(java_driver, tmp_path):
    documents = [*KNOWN_DOCUMENTS, *generated_documents(7, 1500)]
    files = []
    for number, text in enumerate(documents):
        files.append(tmp_path / f"{number}.yml")
        files[-1].write_text(text, "utf-8")
    java = java_driver.submit("aclYaml", files=list(map(str, files))).result()["results"]
    different = {}
    for file, text, theirs in zip(files, documents, java, strict=True):
        mine, error = read_by_us(file)
        # the original accepts any value as a text, and fails later, or has an account that cannot be used
        if mine != theirs and not any(why in error for why in REFUSED):
            different[text] = (theirs, mine, error)
    assert different == {}
    assert java.count("error") > 100 and sum(isinstance(result, dict) for result in java) > 500
