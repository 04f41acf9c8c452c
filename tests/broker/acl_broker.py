"""A broker with access control in this process: accounts, whose topics and groups are whose, and clients for them."""
from contextlib import contextmanager
from pathlib import Path

from rmqha.common.message import message_decoder
from tests.broker.access_cases import OWN_GROUP_2, Things
from tests.broker.support import running_broker
from tests.interop.acl_requests import send_fields
from tests.support.signed_client import SignedClient
from tests.support.wait import wait_until

OWN, OTHER = Things("OwnTopic", "ownGroup"), Things("OtherTopic", "otherGroup")
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
  - {OTHER.topic}=DENY
  groupPerms:
  - {OWN.group}=SUB
"""
ADMIN, DENIED = ("adminKey", "adminSecret"), ("deniedKey", "deniedSecret")
PUBBER, SUBBER = ("pubberKey", "pubberSecret"), ("subberKey", "subberSecret")
BY_DEFAULT = ("defaultKey", "defaultSecret")  # everything but OtherTopic and groups
HOME, OPEN_HOST = "127.0.0.1", "127.0.0.9"
SECRET = b"only for those who may read OtherTopic"
_REFUSED = "org.apache.rocketmq.acl.common.AclException: "


class AclBroker:
    """The broker, and what each client of it does."""

    def __init__(self, harness) -> None:
        self.controller = harness.controller
        self.store = harness.store
        self.address = harness.address
        self.fast_address = harness.fast_address

    def client(self, account, source=HOME, address=None) -> SignedClient:
        """A connection of an account."""
        return SignedClient(address or self.address, account, source)

    def ask(self, account, code, body=b"", source=HOME, **fields):
        """One request by an account."""
        with self.client(account, source) as client:
            return client.request(code, body, **fields)

    def put(self, topic, body=SECRET, properties="", **changes):
        """Let the admin send; (commit log offset, message id, queue offset)."""
        answer = self.ask(ADMIN, 10, body, **{**send_fields(topic), "properties": properties, **changes})
        assert answer.code == 0, answer
        msg_id = answer.fields["msgId"]
        return message_decoder.decode_message_id(msg_id).offset, msg_id, int(answer.fields["queueOffset"])

    def half(self, topic, body=SECRET):
        """Let the admin send a half message."""
        return self.put(topic, body, "TRAN_MSG\x01true\x02PGROUP\x01producers\x02")

    def things(self, things: Things, with_half: bool = False) -> Things:
        """What somebody has, with a new message; and a new half message, if it is to be ended."""
        if not things.offset:
            things.offset, things.msg_id, _ = self.put(things.topic, properties="KEYS\x01key\x02")
        if with_half:
            things.half_offset, things.half_msg_id, things.half_queue_offset = self.half(things.topic)
        return things

    def end_of(self, topic, queue_id=0):
        """The queue's end, once all is dispatched."""
        wait_until(lambda: self.store.dispatch_behind_bytes() <= 0, 60_000, "dispatch")
        return self.store.get_max_offset_in_queue(topic, queue_id)

    @staticmethod
    def body_offset(offset):
        """Where the body of the record at an offset begins in the log: behind 88 bytes, as all hosts are IPv4."""
        return offset + 88


@contextmanager
def acl_broker(folder: Path, accounts: str = ACCOUNTS, **config):
    """A running broker with these accounts, all topics and all groups."""
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "plain_acl.yml").write_text(accounts, "utf-8")
    with running_broker(folder, aclEnable=True, **config) as harness:
        broker = AclBroker(harness)
        with broker.client(ADMIN) as admin:
            for topic in (OWN.topic, OTHER.topic):
                admin.create_topic(topic, 1)
            for group in (OWN.group, OWN_GROUP_2, OTHER.group):
                assert admin.request(200, b'{"groupName": "%s"}' % group.encode()).code == 0
        yield broker


def is_refused(answer) -> bool:
    """Whether access control has said no."""
    return (answer.remark or "").startswith(_REFUSED)
