"""The message that a producer sends."""
import re
from collections.abc import Iterable

from rmqha.common.message import message_const

_INTEGER = re.compile(r"[+-]?[0-9]{1,10}\Z").match


def parse_int(text: str) -> int:
    """Java's Integer.parseInt for ASCII digits. ValueError for anything else, and beyond 32 bits."""
    if _INTEGER(text) is None or not -0x8000_0000 <= (value := int(text)) <= 0x7FFF_FFFF:
        raise ValueError(f'For input string: "{text:.100}"')
    return value


class Message:
    """Topic, body, user flag and properties.

    Constructed with a topic, a message carries the property WAIT=true as Java's do; without one it has no properties.
    `properties` is never None. What Java reaches through MessageAccessor (put_property, clear_property) is public here.

    Java: org.apache.rocketmq.common.message.Message (4.9.8)
    """

    __slots__ = ("topic", "flag", "properties", "body", "transaction_id")

    def __init__(self, topic: str | None = None, body: bytes | memoryview = b"", tags: str | None = None,
                 keys: str | None = None, flag: int = 0, wait_store_msg_ok: bool = True) -> None:
        self.topic = topic
        self.flag = flag
        self.body = body
        self.transaction_id: str | None = None
        self.properties: dict[str, str] = {}
        if topic is None:
            return
        if tags:
            self.tags = tags
        if keys:
            self.set_keys(keys)
        self.wait_store_msg_ok = wait_store_msg_ok

    def put_property(self, name: str, value: str) -> None:
        """Set any property, the system's own ones too."""
        self.properties[name] = value

    def clear_property(self, name: str) -> None:
        """Remove a property, if it is there."""
        self.properties.pop(name, None)

    def put_user_property(self, name: str, value: str) -> None:
        """Set a property of the user. ValueError for a name that RocketMQ uses and for blank names and values."""
        if name in message_const.STRING_HASH_SET:
            raise ValueError(f"The Property<{name}> is used by system, input another please")
        if not value or not value.strip() or not name or not name.strip():
            raise ValueError("The name or value of property can not be null or blank string!")
        self.properties[name] = value

    def get_user_property(self, name: str) -> str | None:
        """A property, or None."""
        return self.properties.get(name)

    def get_property(self, name: str) -> str | None:
        """A property, or None."""
        return self.properties.get(name)

    @property
    def tags(self) -> str | None:
        """The tag (TAGS), or None."""
        return self.properties.get(message_const.PROPERTY_TAGS)

    @tags.setter
    def tags(self, tags: str) -> None:
        self.properties[message_const.PROPERTY_TAGS] = tags

    @property
    def keys(self) -> str | None:
        """The keys (KEYS), separated by single blanks, or None."""
        return self.properties.get(message_const.PROPERTY_KEYS)

    @keys.setter
    def keys(self, keys: str | Iterable[str]) -> None:
        self.set_keys(keys)

    def set_keys(self, keys: str | Iterable[str]) -> None:
        """Set the keys: one text, or several that get joined."""
        text = keys if isinstance(keys, str) else message_const.KEY_SEPARATOR.join(keys)
        self.properties[message_const.PROPERTY_KEYS] = text

    @property
    def delay_time_level(self) -> int:
        """The delay level (DELAY), 0 = none. ValueError when the property is no number."""
        text = self.properties.get(message_const.PROPERTY_DELAY_TIME_LEVEL)
        return 0 if text is None else parse_int(text)

    @delay_time_level.setter
    def delay_time_level(self, level: int) -> None:
        self.properties[message_const.PROPERTY_DELAY_TIME_LEVEL] = str(level)

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the answer waits for disk and slave (WAIT); true when the property is absent."""
        text = self.properties.get(message_const.PROPERTY_WAIT_STORE_MSG_OK)
        return text is None or text.lower() == "true"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, wait: bool) -> None:
        self.properties[message_const.PROPERTY_WAIT_STORE_MSG_OK] = "true" if wait else "false"

    @property
    def instance_id(self) -> str | None:
        """The client instance (INSTANCE_ID), or None."""
        return self.properties.get(message_const.PROPERTY_INSTANCE_ID)

    @instance_id.setter
    def instance_id(self, instance_id: str) -> None:
        self.properties[message_const.PROPERTY_INSTANCE_ID] = instance_id

    @property
    def buyer_id(self) -> str | None:
        """The buyer (BUYER_ID), or None."""
        return self.properties.get(message_const.PROPERTY_BUYER_ID)

    @buyer_id.setter
    def buyer_id(self, buyer_id: str) -> None:
        self.properties[message_const.PROPERTY_BUYER_ID] = buyer_id

    def __repr__(self) -> str:
        return (f"{type(self).__name__}(topic={self.topic!r}, flag={self.flag}, properties={self.properties}, "
                f"body of {len(self.body)} bytes, transaction_id={self.transaction_id!r})")


def clone_message(message: Message) -> Message:
    """A new message of the same topic, body, flag and the same (shared) properties, as Java's MessageAccessor does."""
    copy = Message(message.topic, message.body, flag=message.flag)
    copy.properties = message.properties
    return copy
