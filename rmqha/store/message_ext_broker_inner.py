"""A message on its way into the store."""
from rmqha.common.java import string_hash_code
from rmqha.common.message.message import MessageExt
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.texts import LATER


class MessageExtBrokerInner(MessageExt):
    """`properties_string` is what gets stored; `properties` is what the broker looks at. The body may be a view.

    Java: org.apache.rocketmq.store.MessageExtBrokerInner (4.9.8)
    """

    __slots__ = ("properties_string", "tags_code", "encoded_buff")

    def __init__(self, topic: str = LATER, body: bytes | memoryview = b"") -> None:
        super().__init__(topic, body)
        self.properties_string: str | None = None
        self.tags_code = 0
        self.encoded_buff = None

    @staticmethod
    def tags_string2tags_code(_filter_type: TopicFilterType | None, tags: str | None) -> int:
        """The code of a tag: its Java hash, 0 for none."""
        return string_hash_code(tags) if tags else 0
