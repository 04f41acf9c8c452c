"""Access control of the real broker and of rmqha's: the same accounts, the same requests, the same answers."""
import itertools
import json
import shutil
import time
from pathlib import Path

import pytest

from tests.interop.acl_requests import (
    broker_requests, denied_by_rmqha_only, group_requests, topic_requests)
from tests.support.signed_client import SignedClient
from tests.support.wait import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(240)]

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
"""
TOPICS = ("PubTopic", "SubTopic", "BothTopic", "DeniedTopic", "FreeTopic")
GROUPS = ("aliceGroup", "pubGroup", "freeGroup")
ADMIN = ("adminKey", "adminSecret")
ALICE = ("aliceKey", "12345678")
BOB = ("bobsKey", "bobsSecret")
CHIEF = ("chiefKey", "chiefSecret")
OTHER = ("otherKey", "otherSecret")
HOME, ALICES_OTHER_HOST, OPEN_HOST = "127.0.0.1", "127.0.0.6", "127.0.2.77"


def start(kind, folder, module_nodes):
    """A broker of a kind with access control, its name server, and their home folder."""
    from tests.support import real_rocketmq
    from tests.support.nodes import BrokerNode, NamesrvNode
    home = folder / "home"
    (home / "conf" / "acl" / "deeper").mkdir(parents=True)
    if kind == "java":
        shutil.copy(real_rocketmq.jars().parent / "home" / "conf" / "logback_broker.xml", home / "conf")
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS_FILE, "utf-8")
    (home / "conf" / "acl" / "deeper" / "other.yaml").write_text(OTHER_FILE, "utf-8")
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
    """A broker of each kind with the same accounts and topics."""
    started = {kind: start(kind, tmp_path_factory.mktemp(kind), module_nodes) for kind in KINDS}
    for broker in started.values():
        with SignedClient(broker.address, ADMIN) as client:
            for topic in TOPICS:
                client.create_topic(topic, 1)
            for group in GROUPS:
                assert client.request(200, json.dumps({"groupName": group}).encode()).code == 0
    return started


def without_place(remark):
    """The remark up to where the exception was raised: that place has another name in each language."""
    if remark is not None and remark.startswith("org.apache.rocketmq.acl.common.AclException"):
        return remark.rsplit(", ", 1)[0]
    return remark


def answers(broker, account, source, requests):
    """Name -> (code, remark) of each request."""
    with SignedClient(broker.address, account, source) as client:
        given = {name: client.request(code, body, **fields) for name, (code, fields, body) in requests.items()}
    return {name: (answer.code, without_place(answer.remark)) for name, answer in given.items()}


def all_requests():
    """Every request whose answer is to be the same."""
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


@pytest.mark.parametrize("who", WHO)
def test_each_request_has_the_same_answer(brokers, who):
    account, source = WHO[who]
    given = {kind: answers(broker, account, source, all_requests()) for kind, broker in brokers.items()}
    different = {name: (answer, given["rmqha"][name]) for name, answer in given["java"].items()
                 if given["rmqha"][name] != answer}
    assert different == {}


def test_what_rmqha_denies_beyond_the_original(brokers):
    """Each of these is a way round the permissions with the original: alice owns neither topic, group nor admin rights."""
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
    }
    admins = {kind: answers(broker, ADMIN, HOME, requests) for kind, broker in brokers.items()}
    assert admins["rmqha"] == admins["java"]
