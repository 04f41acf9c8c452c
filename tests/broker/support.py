"""Helpers shared by the tests of the broker: brokers in this process, also with access control, and a replication
service that only records calls."""
import itertools
import json
import struct
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.controller.broker_id_registration import RegisterState
from rmqha.broker.controller.controller_heartbeat import MasterHaAddress
from rmqha.broker.controller.replicas_manager import ReplicasManager, State
from rmqha.common import subscriptions as filter_api
from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.subscriptions import ConsumerData, ConsumeType, HeartbeatData, MessageModel, ProducerData
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.role import Role
from rmqha.store.running_flags import RunningFlags
from tests.interop.acl_requests import heartbeat, pull_fields, send_fields, send_v2_fields
from tests.support.raw_remoting import SignedClient
from tests.support.wait import wait_until

_SMALL = {"mappedFileSizeCommitLog": 1 << 20, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 1000,
          "maxIndexNum": 4000, "haListenPort": 0, "haSendHeartbeatInterval": 100}
# A busy test machine must not make the broker refuse requests as busy, nor give up a slave that is only late.
_PATIENT = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
            "waitTimeMillsInTransactionQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000, "slaveTimeout": 20_000}


def new_controller(folder: Path, namesrv_addr: str | None = None, **config: object) -> BrokerController:
    """Return a broker that is not started; `config` names keys of any of the config classes."""
    broker_config = BrokerConfig(brokerName="broker-a", brokerIP1="127.0.0.1", brokerIP2="127.0.0.1",
                                 rocketmqHome=str(folder), namesrvAddr=namesrv_addr)
    store_config = MessageStoreConfig(storePathRootDir=str(folder / "store"), **_SMALL)
    server_config = ServerConfig(listenPort=0)
    for key, value in {**_PATIENT, **config}.items():
        target = next(one for one in (broker_config, store_config, server_config) if hasattr(one, key))
        setattr(target, key, value)
    return BrokerController(broker_config, server_config, RemotingClientConfig(), store_config,
                            str(folder / "broker.conf"))


@contextmanager
def running_broker(folder: Path, namesrv_addr: str | None = None, **config: object):
    """Start a broker with a client, and shut it down at the end."""
    controller = new_controller(folder, namesrv_addr, **config)
    try:
        assert controller.initialize()
        controller.start()
        with BrokerHarness(controller) as harness:
            yield harness
    finally:
        controller.shutdown()


class BrokerHarness:
    """A broker and a client of it."""

    _born = itertools.count(1_700_000_000_000)

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self.store = controller.message_store
        self.client = RemotingClient(RemotingClientConfig())

    def __enter__(self) -> "BrokerHarness":
        self.client.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.client.shutdown()

    @property
    def address(self) -> str:
        """The address of the remoting port."""
        return self.controller.broker_addr

    @property
    def fast_address(self) -> str:
        """The address of the fast port."""
        return f"127.0.0.1:{self.controller.fast_remoting_server.local_listen_port}"

    def call(self, code: int, header: CommandCustomHeader | None = None, body: object = None,
             address: str | None = None, timeout_ms: int = 60_000) -> RemotingCommand:
        """Ask; `body` is bytes, or a dataclass to be encoded as JSON."""
        request = RemotingCommand.create_request_command(code, header)
        if body is not None:
            request.body = body if isinstance(body, bytes) else remoting_serializable.encode(body)
        return self.client.invoke_sync(address or self.address, request, timeout_ms)

    def send_header(self, topic: str, queue_id: int = 0, properties: dict[str, str] | None = None,
                    **fields: object) -> SendMessageRequestHeaderV2:
        """Return the header of a send."""
        header = SendMessageRequestHeaderV2(
            a="producer", b=topic, c="TBW102", d=4, e=queue_id, f=0, g=next(self._born), h=0,
            i=message_decoder.message_properties2string(properties or {}), j=0)
        for name, value in fields.items():
            setattr(header, name, value)
        return header

    def send(self, topic: str, body: bytes = b"body", queue_id: int = 0, properties: dict[str, str] | None = None,
             **fields: object) -> RemotingCommand:
        """Send one message."""
        return self.call(request_code.SEND_MESSAGE_V2, self.send_header(topic, queue_id, properties, **fields), body)

    def next_offset(self, topic: str, queue_id: int = 0) -> int:
        """Return the queue's end once everything is dispatched."""
        wait_until(lambda: self.store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")
        return self.store.get_max_offset_in_queue(topic, queue_id)

    def pull_header(self, topic: str, offset: int, /, group: str = "consumer", queue_id: int = 0, expression: str = "*",
                    suspend_ms: int = 0, **fields: object) -> PullMessageRequestHeader:
        """Return the header of a pull that carries its subscription."""
        header = PullMessageRequestHeader(
            consumerGroup=group, topic=topic, queueId=queue_id, queueOffset=offset, maxMsgNums=32,
            sysFlag=sys_flags.build_pull_sys_flag(False, suspend_ms > 0, True, False), commitOffset=0,
            suspendTimeoutMillis=suspend_ms, subscription=expression, subVersion=0, expressionType="TAG")
        for name, value in fields.items():
            setattr(header, name, value)
        return header

    def pull(self, topic: str, offset: int, timeout_ms: int = 60_000, **fields: object) -> RemotingCommand:
        """Pull once."""
        return self.call(request_code.PULL_MESSAGE, self.pull_header(topic, offset, **fields), timeout_ms=timeout_ms)

    def heartbeat(self, group: str, *topics: str, client_id: str = "client-1", expression: str = "*",
                  producers: tuple[str, ...] = (), sub_version: int | None = None) -> RemotingCommand:
        """Send the heartbeat of a consumer of a group."""
        subscriptions = {filter_api.build_subscription_data(topic, expression) for topic in topics}
        for subscription in subscriptions:
            if sub_version is not None:
                subscription.subVersion = sub_version
        data = ConsumerData(groupName=group, consumeType=ConsumeType.CONSUME_PASSIVELY,
                            messageModel=MessageModel.CLUSTERING, subscriptionDataSet=subscriptions)
        body = HeartbeatData(client_id, {ProducerData(name) for name in producers}, {data} if topics else set())
        return self.call(request_code.HEART_BEAT, body=body)


def bodies(response: RemotingCommand) -> list[bytes]:
    """Return the bodies of the messages in a pull answer."""
    return [message.body for message in message_decoder.decodes(response.body or b"")]


# A broker and a replication service that only record a ReplicasManager's calls.

ME, OTHER = 1, 2
HERE, THERE = "127.0.0.1:10911", "127.0.0.1:20911"


class FakeHa(AutoSwitchHAService):
    """Records its calls; no epoch up to `last_epoch` can be begun here."""

    def __init__(self) -> None:
        self.told: list[tuple] = []
        self.last_epoch = 0
        self.failing = False
        self.epoch_cache = SimpleNamespace(last_epoch=lambda: self.last_epoch)

    def _change(self, what: str, epoch: int, *rest: object) -> bool:
        if self.failing:
            raise OSError("the disk")
        if epoch <= self.last_epoch and what.startswith("master"):
            return False
        self.told.append((what, epoch, *rest))
        return True

    def change_to_master(self, master_epoch, sync_state_set=(), sync_state_set_epoch=0):
        return self._change("master", master_epoch, set(sync_state_set), sync_state_set_epoch)

    def change_to_master_when_last_role_is_master(self, master_epoch, sync_state_set=(), sync_state_set_epoch=0):
        return self._change("master again", master_epoch, set(sync_state_set), sync_state_set_epoch)

    def change_to_slave(self, new_master_addr, new_master_epoch=None):
        return self._change("slave", new_master_epoch, new_master_addr)

    def change_to_slave_when_master_not_change(self, new_master_addr, new_master_epoch):
        return self._change("slave again", new_master_epoch, new_master_addr)

    def update_master_address(self, new_addr):
        self.told.append(("address", new_addr))

    def set_sync_state_set(self, sync_state_set, epoch):
        self.told.append(("set", set(sync_state_set), epoch))

    def set_local_broker_id(self, broker_id):
        self.told.append(("id", broker_id))

    def lease_granted(self):
        self.told.append(("lease",))

    def use_lease(self, holds, renounce=None):
        self.holds = holds

    def register_sync_state_set_changed_listener(self, listener):
        self.told.append(("listener", listener))

    def confirm_offset(self):
        return 7


class _NoQueues(dict):
    lock = threading.Lock()


class FakeBroker:
    """The parts of a broker that a ReplicasManager uses, all in one object."""

    def __init__(self, **config: object) -> None:
        self.broker_config = BrokerConfig(
            brokerName="b", brokerClusterName="c", controllerAddr="127.0.0.1:1", enableControllerMode=True, **config)
        self.client_config = RemotingClientConfig()
        self.ha = FakeHa()
        self.ha.role = Role(MessageStoreConfig(), self.broker_config)
        self.message_store = SimpleNamespace(ha_service=self.ha, auto_switch=self.ha, running_flags=RunningFlags(),
                                             message_store_config=MessageStoreConfig(storePathRootDir="/nowhere"),
                                             get_max_phy_offset=lambda: 9,
                                             consume_queue_table=_NoQueues())
        self.broker_addr, self.ha_server_addr = HERE, "127.0.0.1:10912"
        self.is_isolated = True
        self.slave_sync: list[tuple[BrokerRole, str | None]] = []
        self.topic_config_manager = SimpleNamespace(note_another_owner=lambda: None, topic_config_table={})
        self.slave_synchronize = SimpleNamespace(take_consumer_offsets=lambda _address: None)

    def handle_slave_synchronize(self, role, master_address=None):
        self.slave_sync.append((role, master_address))

    def register_broker_at_once(self) -> None:
        pass

    def change_special_service_status(self, should_start: bool) -> None:
        pass


def registered_manager(**config: object) -> ReplicasManager:
    """Return a manager that has its id but whose threads do not run."""
    broker = FakeBroker(**config)
    manager = ReplicasManager(broker.broker_config, broker.client_config, broker, broker.message_store,
                              broker.topic_config_manager, broker, broker, MasterHaAddress(None, broker))
    broker.message_store.running_flags.make_fenced(True)
    manager.registration.broker_id, manager.registration.state = ME, RegisterState.REGISTERED
    manager.state = State.REGISTER_TO_CONTROLLER_DONE
    return manager


# Each request code that a broker serves, called on the caller's own things and on another account's. `{topic}`,
# `{group}` ... in a field or body stand for the names and places of those things, see Things.

OWN_GROUP_2 = "ownGroup2"


@dataclass
class Things:
    """One owner's things at the broker: a topic with a message in it, a group, a half message."""

    topic: str
    group: str
    offset: int = 0  # commit log offset of the message
    msg_id: str = ""
    half_queue_offset: int = 0
    half_offset: int = 0
    half_msg_id: str = ""

    def fill(self, text: object) -> str:
        """Return `text` with the names filled in."""
        filled = str(text)
        for name, value in vars(self).items():
            filled = filled.replace("{" + name + "}", str(value))
        return filled


@dataclass(frozen=True)
class Case:
    """One call. `record`: the right that the processor requires once it has found the record; for the table."""

    code: int
    what: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    body: bytes | Callable[["Things"], bytes] = b""
    record: str = ""
    ends_half: bool = False

    def fields_of(self, things: Things) -> dict[str, str]:
        """Return the header's fields for these things."""
        return {name: things.fill(value) for name, value in self.fields.items()}

    def body_of(self, things: Things) -> bytes:
        """Return the body for these things."""
        return self.body(things) if callable(self.body) else self.body


def as_json(**values: object) -> Callable[[Things], bytes]:
    """Return a function that makes a JSON body with names filled in."""
    return lambda things: things.fill(json.dumps(values)).encode()


def batch(properties: str = "") -> Callable[[Things], bytes]:
    """Return the body of a batch of one message."""
    def build(things: Things) -> bytes:
        body, tail = b"of a batch", things.fill(properties).encode()
        head = struct.pack(">iiiii", 22 + len(body) + len(tail), 0, 0, 0, len(body))
        return head + body + struct.pack(">h", len(tail)) + tail

    return build


FURTHER = "INNER_MULTI_DISPATCH\x01{topic}"
QUEUE = {"topic": "{topic}", "brokerName": "broker-a", "queueId": 0}
LOCKS = as_json(consumerGroup="{group}", clientId="c", mqSet=[QUEUE])
SUBSCRIPTION = {"topic": "{topic}", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                "expressionType": "TAG"}
NO_TOPIC = {"topic": "NoTopicAtAll", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
PLACE = {"topic": "{topic}", "queueId": 0}
IN_TOPIC = {"topic": "{topic}", "group": "{group}"}
OPEN_TOPIC = "RMQ_SYS_TRACE_TOPIC"

CASES = [
    Case(10, "", send_fields("{topic}"), b"x"),
    Case(10, "to a retry topic", send_fields("%RETRY%{group}"), b"x"),
    Case(10, "to a further queue", {**send_fields(OPEN_TOPIC), "properties": FURTHER}, b"x"),
    Case(11, "", pull_fields("{topic}", "{group}")),
    Case(11, "of a retry topic", pull_fields("%RETRY%{group}", "{group}")),
    Case(11, "of a dead letter topic", pull_fields("%DLQ%{group}", "{group}")),
    Case(12, "", {"topic": "{topic}", "key": "key", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 50}),
    Case(14, "", {"consumerGroup": "{group}", **PLACE}),
    Case(15, "", {"consumerGroup": "{group}", **PLACE, "commitOffset": 0}),
    Case(17, "", NO_TOPIC),
    Case(21),
    Case(25, "", {}, b"regionId=DefaultRegion\n"),
    Case(26),
    Case(28),
    Case(29, "", {**PLACE, "timestamp": 0}),
    Case(30, "", PLACE),
    Case(31, "", PLACE),
    Case(32, "", PLACE),
    Case(33, "", {"offset": "{offset}"}, record="SUB on the message's topic"),
    Case(34, "of a consumer", {}, lambda things: heartbeat(things.group, things.topic)),
    Case(34, "of a producer", {}, as_json(clientID="p", producerDataSet=[{"groupName": "producers"}],
                                          consumerDataSet=[])),
    Case(35, "of a consumer", {"clientID": "c", "consumerGroup": "{group}"}),
    Case(35, "of a producer", {"clientID": "c", "producerGroup": "producers"}),
    Case(36, "", {"offset": "{offset}", "group": "{group}", "delayLevel": 0, "originMsgId": "x", "unitMode": "false",
                  "originTopic": "{topic}", "maxReconsumeTimes": 16}, record="SUB on the message's topic"),
    Case(37, "", {"producerGroup": "producers", "tranStateTableOffset": "{half_queue_offset}", "msgId": "x",
                  "commitLogOffset": "{half_offset}", "commitOrRollback": 8, "fromTransactionCheck": "false"},
         record="PUB on the topic that the half message is meant for", ends_half=True),
    Case(38, "", {"consumerGroup": "{group}"}),
    Case(41, "", {}, LOCKS),
    Case(42, "", {}, LOCKS),
    Case(43),
    Case(45),
    Case(46, "", {}, as_json(clientId="c", group="{group}", subscriptionData=SUBSCRIPTION)),
    Case(50, "", {"accessKey": "short", "secretKey": "x"}),
    Case(51, "", {"accessKey": "nobodysKey"}),
    Case(52),
    Case(53),
    Case(54),
    Case(200, "", {}, as_json(groupName="madeGroup")),
    Case(201),
    Case(202, "", {"topic": "{topic}"}),
    Case(203, "", {"consumerGroup": "{group}"}),
    Case(204, "", {"producerGroup": "producers"}),
    Case(207, "", {"groupName": "madeGroup"}),
    Case(208, "of a topic", {"consumerGroup": "{group}", "topic": "{topic}"}),
    Case(208, "of all topics", {"consumerGroup": "{group}"}, record="SUB on each topic that the group has read"),
    Case(215, "", {"topic": "NoTopicAtAll"}),
    Case(222, "", {**IN_TOPIC, "timestamp": -1, "isForce": "true"}),
    Case(223, "", IN_TOPIC),
    Case(300, "", {"topic": "{topic}"}),
    Case(303, "", IN_TOPIC),
    Case(305),
    Case(306),
    Case(307, "", {"consumerGroup": "{group}", "clientId": "c", "jstackEnable": "false"}),
    Case(308, "", {"topic": "{topic}", "compareGroup": "{group}"}),
    Case(309, "", {"consumerGroup": "{group}", "clientId": "c", "msgId": "{msg_id}", "brokerName": "broker-a"},
         record="SUB on the message's topic"),
    Case(310, "", send_v2_fields("{topic}", "producers"), b"x"),
    Case(310, "to a retry topic", send_v2_fields("%RETRY%{group}", "CLIENT_INNER_PRODUCER"), b"x"),
    Case(310, "to a further queue", {**send_v2_fields(OPEN_TOPIC, "producers"), "i": FURTHER}, b"x"),
    Case(314, "of a topic", {"srcGroup": "{group}", "destGroup": OWN_GROUP_2, "topic": "{topic}"}),
    Case(314, "of all topics", {"srcGroup": "{group}", "destGroup": OWN_GROUP_2},
         record="SUB on each topic that the group has read"),
    Case(315, "", {"statsName": "TOPIC_PUT_NUMS", "statsKey": "{topic}"}),
    Case(315, "of a group", {"statsName": "GROUP_GET_NUMS", "statsKey": "{topic}@{group}"}),
    Case(315, "of the broker", {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}),
    Case(316),
    Case(317, "", {"isOrder": "false"}),
    Case(320, "", send_v2_fields("{topic}", "producers", True), batch()),
    Case(320, "with a further queue", send_v2_fields(OPEN_TOPIC, "producers", True), batch(FURTHER)),
    Case(321, "", {**PLACE, "index": 0, "count": 1}),
    Case(321, "for a group", {**PLACE, "index": 0, "count": 1, "consumerGroup": "{group}"}),
    Case(323, "", {"msgId": "{half_msg_id}"}, record="PUB on the topic that the half message is meant for",
         ends_half=True),
    Case(324, "", send_fields("{topic}"), b"x"),
    Case(325, "", send_v2_fields("{topic}", "producers"), b"x"),
    Case(328),
    Case(329),
    Case(907),
    Case(1007),
    Case(1008, "", {"masterAddress": "x", "masterHaAddress": "x", "masterBrokerId": 0, "masterEpoch": 1,
                    "syncStateSetEpoch": 1}),
    Case(30001),
    Case(30002, "", {"brokerId": "1"}),
    Case(30003, "", {"offset": 0, "blockSize": 4096, "count": 1}),
    Case(30004, "", {**PLACE, "offset": 0, "count": 1, "bodyBytes": 10}),
]


# A broker with access control in this process: its accounts, the owners of topics and groups, and clients for them.

OWN, ACL_OTHER = Things("OwnTopic", "ownGroup"), Things("OtherTopic", "otherGroup")
ACCOUNTS = f"""\
globalWhiteRemoteAddresses:
- 127.0.0.9
accounts:
- accessKey: adminKey
  secretKey: adminSecret
  admin: true
- accessKey: deniedKey
  secretKey: deniedSecret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: pubberKey
  secretKey: pubberSecret
  topicPerms:
  - {OWN.topic}=PUB
- accessKey: subberKey
  secretKey: subberSecret
  topicPerms:
  - {OWN.topic}=SUB
  - '%DLQ%{OWN.group}=SUB'
  groupPerms:
  - {OWN.group}=SUB
  - {OWN_GROUP_2}=SUB
- accessKey: defaultKey
  secretKey: defaultSecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: DENY
  topicPerms:
  - {ACL_OTHER.topic}=DENY
  groupPerms:
  - {OWN.group}=SUB
"""
ADMIN, DENIED = ("adminKey", "adminSecret"), ("deniedKey", "deniedSecret")
PUBBER, SUBBER = ("pubberKey", "pubberSecret"), ("subberKey", "subberSecret")
# Everything except OtherTopic and groups.
BY_DEFAULT = ("defaultKey", "defaultSecret")
HOME, OPEN_HOST = "127.0.0.1", "127.0.0.9"
SECRET = b"only for those who may read OtherTopic"
_REFUSED = "org.apache.rocketmq.acl.common.AclException: "


class AclBroker:
    """The broker, and the requests that each client makes."""

    def __init__(self, harness) -> None:
        self.controller = harness.controller
        self.store = harness.store
        self.address = harness.address
        self.fast_address = harness.fast_address

    def client(self, account, source=HOME, address=None) -> SignedClient:
        """Return a connection of an account."""
        return SignedClient(address or self.address, account, source)

    def ask(self, account, code, body=b"", source=HOME, **fields):
        """Make one request as an account."""
        with self.client(account, source) as client:
            return client.request(code, body, **fields)

    def put(self, topic, body=SECRET, properties="", **changes):
        """Send a message as the admin and return (commit log offset, message id, queue offset)."""
        answer = self.ask(ADMIN, 10, body, **{**send_fields(topic), "properties": properties, **changes})
        assert answer.code == 0, answer
        msg_id = answer.fields["msgId"]
        return message_decoder.decode_message_id(msg_id).offset, msg_id, int(answer.fields["queueOffset"])

    def half(self, topic, body=SECRET):
        """Send a half message as the admin."""
        return self.put(topic, body, "TRAN_MSG\x01true\x02PGROUP\x01producers\x02")

    def things(self, things: Things, with_half: bool = False) -> Things:
        """Return an owner's things with a new message, and with a new half message if it is to be ended."""
        if not things.offset:
            things.offset, things.msg_id, _ = self.put(things.topic, properties="KEYS\x01key\x02")
        if with_half:
            things.half_offset, things.half_msg_id, things.half_queue_offset = self.half(things.topic)
        return things

    def end_of(self, topic, queue_id=0):
        """Return the queue's end once everything is dispatched."""
        wait_until(lambda: self.store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")
        return self.store.get_max_offset_in_queue(topic, queue_id)

    @staticmethod
    def body_offset(offset):
        """Return the position in the log of the body of the record at an offset: after 88 bytes, as all hosts are
        IPv4."""
        return offset + 88


@contextmanager
def acl_broker(folder: Path, accounts: str = ACCOUNTS, **config):
    """Run a broker with these accounts, all topics and all groups."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "plain_acl.yml").write_text(accounts, "utf-8")
    with running_broker(folder, aclEnable=True, **config) as harness:
        broker = AclBroker(harness)
        with broker.client(ADMIN) as admin:
            for topic in (OWN.topic, ACL_OTHER.topic):
                admin.create_topic(topic, 1)
            for group in (OWN.group, OWN_GROUP_2, ACL_OTHER.group):
                assert admin.request(200, b'{"groupName": "%s"}' % group.encode()).code == 0
        yield broker


def is_refused(answer) -> bool:
    """Return whether access control refused the request."""
    return (answer.remark or "").startswith(_REFUSED)
