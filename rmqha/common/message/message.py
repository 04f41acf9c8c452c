"""Messages, as producers send them and as brokers store them, and message queues.

- `Message`: the message that a producer sends; `MessageType`: the kind of message that a hook sees.
- `MessageExt`: a message as a broker stored it.
- `MessageQueue`: one queue of a topic on one broker.
"""
import enum
import re
from collections.abc import Iterable

from rmqha.common import sys_flags
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message import message_const
from rmqha.common.message.message_layout import Host, host_to_bytes
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.texts import LATER

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}\Z").match


def parse_int(text: str) -> int:
    """Parse like Java's Integer.parseInt, for ASCII digits. ValueError for anything else, and beyond 32 bits."""
    if _INTEGER(text) is None or not -0x8000_0000 <= (value := int(text)) <= 0x7FFF_FFFF:
        raise ValueError(f'For input string: "{text:.100}"')
    return value


BODY_TYPES = (bytes, bytearray, memoryview)


def check_type(field: str, value: object, *kinds: type, but: tuple[type, ...] = ()) -> None:
    """Raise a TypeError that names the field, the value's type and the allowed types, unless the type is allowed."""
    if not isinstance(value, kinds) or isinstance(value, but) or isinstance(value, bool) and bool not in kinds:
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"message {field} must be {wanted}, not {type(value).__name__}")


class Message:
    """A message: topic, body, user flag and properties.

    The constructor and the methods that set properties raise a TypeError, which names the field, for a wrong type;
    `topic`, `body` and `flag` that are set later are checked at the send. Constructed with a topic, a message has the
    property WAIT=true, as in Java; without a topic it has no properties. `properties` is never None. The methods that
    Java hides behind MessageAccessor (put_property, clear_property) are public here.

    Java: org.apache.rocketmq.common.message.Message (4.9.8)
    """

    __slots__ = ("topic", "flag", "properties", "body", "transaction_id")

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"", tags: str | None = None,
                 keys: str | None = None, flag: int = 0, wait_store_msg_ok: bool = True) -> None:
        self.topic = topic
        self.flag = flag
        self.body = body
        self.transaction_id: str | None = None
        self.properties: dict[str, str] = {}
        if topic is None:
            return
        # Compare types by identity first: this runs for every message that is sent.
        if type(topic) is not str or type(body) is not bytes or type(flag) is not int:
            check_type("topic", topic, str)
            check_type("body", body, *BODY_TYPES)
            check_type("flag", flag, int)
        if tags is not None:
            check_type("tags", tags, str)
            if tags:
                self.tags = tags
        if keys is not None:
            self.set_keys(keys)
            if not self.keys:
                self.clear_property(message_const.PROPERTY_KEYS)
        self.wait_store_msg_ok = wait_store_msg_ok

    def check_types(self) -> None:
        """Raise TypeError when an attribute or a property has a type that cannot be sent. Attributes are not checked
        when they are set."""
        check_type("topic", self.topic, str)
        check_type("body", self.body, *BODY_TYPES)
        check_type("flag", self.flag, int)
        check_type("properties", self.properties, dict)
        for name, value in self.properties.items():
            if type(name) is not str or type(value) is not str:
                check_type("a property's name", name, str)
                check_type(f"property {name}", value, str)

    def put_property(self, name: str, value: str) -> None:
        """Set any property, including those of the system."""
        if type(value) is not str or type(name) is not str:
            check_type("a property's name", name, str)
            check_type(f"property {name}", value, str)
        self.properties[name] = value

    def clear_property(self, name: str) -> None:
        """Remove a property, if present."""
        self.properties.pop(name, None)

    def put_user_property(self, name: str, value: str) -> None:
        """Set a user property. ValueError for a name that RocketMQ uses, and for a blank name or value."""
        for what, text in (("a property's name", name), (f"property {name}", value)):
            if text is not None:
                check_type(what, text, str)
        if name in message_const.STRING_HASH_SET:
            raise ValueError(f"The Property<{name}> is used by system, input another please")
        if not value or not value.strip() or not name or not name.strip():
            raise ValueError("The name or value of property can not be null or blank string!")
        self.properties[name] = value

    def get_user_property(self, name: str) -> str | None:
        """Return a property, or None."""
        return self.properties.get(name)

    def get_property(self, name: str) -> str | None:
        """Return a property, or None."""
        return self.properties.get(name)

    @property
    def tags(self) -> str | None:
        """The tag (TAGS), or None."""
        return self.properties.get(message_const.PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str) -> None:
        check_type("tags", tags, str)
        self.properties[message_const.PROPERTY_TAGS] = tags

    @property
    def keys(self) -> str | None:
        """The keys (KEYS), separated by single blanks, or None."""
        return self.properties.get(message_const.PROPERTY_KEYS)

    @keys.setter
    def keys(self, keys: str | Iterable[str]) -> None:
        self.set_keys(keys)

    def set_keys(self, keys: str | Iterable[str]) -> None:
        """Set the keys: one text, or several, which are joined by blanks."""
        if not isinstance(keys, str):
            check_type("keys", keys, str, Iterable, but=(bytes, bytearray, memoryview))
            keys = list(keys)
            for key in keys:
                check_type("keys", key, str)
            keys = message_const.KEY_SEPARATOR.join(keys)
        self.properties[message_const.PROPERTY_KEYS] = keys

    @property
    def delay_time_level(self) -> int:
        """The delay level (DELAY); 0 without one. ValueError when the property is not a number."""
        text = self.properties.get(message_const.PROPERTY_DELAY_TIME_LEVEL)
        return 0 if text is None else parse_int(text)

    @delay_time_level.setter
    def delay_time_level(self, level: int) -> None:
        check_type("delay_time_level", level, int)
        self.properties[message_const.PROPERTY_DELAY_TIME_LEVEL] = str(level)

    @property
    def wait_store_msg_ok(self) -> bool:
        """True if the answer waits for disk and slave (WAIT), also when the property is absent."""
        text = self.properties.get(message_const.PROPERTY_WAIT_STORE_MSG_OK)
        return text is None or text.lower() == "true"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, wait: bool) -> None:
        if type(wait) is not bool:
            check_type("wait_store_msg_ok", wait, bool)
        self.properties[message_const.PROPERTY_WAIT_STORE_MSG_OK] = "true" if wait else "false"

    @property
    def instance_id(self) -> str | None:
        """The client instance (INSTANCE_ID), or None."""
        return self.properties.get(message_const.PROPERTY_INSTANCE_ID)

    @instance_id.setter
    def instance_id(self, instance_id: str) -> None:
        check_type("instance_id", instance_id, str)
        self.properties[message_const.PROPERTY_INSTANCE_ID] = instance_id

    @property
    def buyer_id(self) -> str | None:
        """The buyer (BUYER_ID), or None."""
        return self.properties.get(message_const.PROPERTY_BUYER_ID)

    @buyer_id.setter
    def buyer_id(self, buyer_id: str) -> None:
        check_type("buyer_id", buyer_id, str)
        self.properties[message_const.PROPERTY_BUYER_ID] = buyer_id

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(topic={self.topic!r}, flag={self.flag}, properties={self.properties}, "
                f"body of {len(self.body)} bytes, transaction_id={self.transaction_id!r})")


class MessageType(enum.Enum):
    """The kind of a message: normal, half, committed or delayed. The names are Java's.

    Java: org.apache.rocketmq.common.message.MessageType (4.9.8)
    """

    Normal_Msg = 0
    Trans_Msg_Half = 1
    Trans_msg_Commit = 2
    Delay_Msg = 3


class MessageExt(Message):
    """A message with the fields that the broker added. Hosts are (address, port); times are ms since the epoch.

    Java: org.apache.rocketmq.common.message.MessageExt (4.9.8)
    """

    __slots__ = ("broker_name", "queue_id", "store_size", "queue_offset", "sys_flag", "born_timestamp", "born_host",
                 "store_timestamp", "store_host", "msg_id", "commit_log_offset", "body_crc", "reconsume_times",
                 "prepared_transaction_offset")

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        self.topic = topic
        self.flag = 0
        self.properties: dict[str, str] = {}
        self.body = body
        self.transaction_id: str | None = None
        self.broker_name: str | None = None
        self.queue_id = 0
        self.store_size = 0
        self.queue_offset = 0
        self.sys_flag = 0
        self.born_timestamp = 0
        self.born_host: Host | None = None
        self.store_timestamp = 0
        self.store_host: Host | None = None
        self._init_msg_id()
        self.commit_log_offset = 0
        self.body_crc = 0
        self.reconsume_times = 0
        self.prepared_transaction_offset = 0

    def _init_msg_id(self) -> None:
        self.msg_id: str | None = None

    @staticmethod
    def parse_topic_filter_type(sys_flag: int) -> TopicFilterType:
        """Return MULTI_TAG if the record may have several tags, else SINGLE_TAG."""
        return (TopicFilterType.MULTI_TAG if sys_flag & sys_flags.MULTI_TAGS_FLAG
                else TopicFilterType.SINGLE_TAG)

    @property
    def born_host_bytes(self) -> bytes:
        """The BORNHOST field of the record: 8 or 20 bytes."""
        return host_to_bytes(self.born_host)

    @property
    def store_host_bytes(self) -> bytes:
        """The STOREHOSTADDRESS field of the record: 8 or 20 bytes."""
        return host_to_bytes(self.store_host)

    @property
    def born_host_string(self) -> str | None:
        """The producer's address without port."""
        return self.born_host[0] if self.born_host else None

    def __repr__(self) -> str:
        return (f"{type(self).__name__} [brokerName={self.broker_name}, queueId={self.queue_id}, "
                f"storeSize={self.store_size}, queueOffset={self.queue_offset}, sysFlag={self.sys_flag}, "
                f"bornTimestamp={self.born_timestamp}, bornHost={self.born_host}, "
                f"storeTimestamp={self.store_timestamp}, storeHost={self.store_host}, msgId={self.msg_id}, "
                f"commitLogOffset={self.commit_log_offset}, bodyCRC={self.body_crc}, "
                f"reconsumeTimes={self.reconsume_times}, "
                f"preparedTransactionOffset={self.prepared_transaction_offset}, {super().__repr__()}]")


class MessageClientExt(MessageExt):
    """A stored message whose `msg_id` is its producer's unique id, or the offset id when it has none.

    Java: org.apache.rocketmq.common.message.MessageClientExt (4.9.8)
    """

    __slots__ = ("offset_msg_id",)

    def _init_msg_id(self) -> None:
        self.offset_msg_id: str | None = None

    @property
    def msg_id(self) -> str | None:  # type: ignore[override]  # as in Java, a getter takes the attribute's place
        """The UNIQ_KEY, or the offset id without one."""
        return self.properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_msg_id


class MessageExtBatch(MessageExt):
    """A batch request: `body` holds the encoded messages, `encoded_buff` the records that the store made of them.

    Java: org.apache.rocketmq.common.message.MessageExtBatch (4.9.8)
    """

    __slots__ = ("encoded_buff",)

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        super().__init__(topic, body)
        self.encoded_buff: bytes | bytearray | memoryview | None = None


@dataclass(frozen=True, order=True, slots=True)
class MessageQueue:
    """One queue: topic, broker and queue number. Hashable, ordered by these fields. Field names are the JSON's.

    Java: org.apache.rocketmq.common.message.MessageQueue (4.9.8)
    """

    topic: str = LATER
    brokerName: str = LATER
    queueId: int = 0

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.brokerName}, queueId={self.queueId}]"


@dataclass(frozen=True, order=True, slots=True)
class MessageQueueForC:
    """A queue with an offset, in the form for C++ clients.

    Java: org.apache.rocketmq.common.message.MessageQueueForC (4.9.8)
    """

    topic: str = LATER
    brokerName: str = LATER
    queueId: int = 0
    offset: int = 0
