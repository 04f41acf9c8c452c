"""A batch as the broker stores it."""
from rmqha.common.message.message_ext import MessageExt


class MessageExtBatch(MessageExt):
    """A batch request: `body` is the encoded messages, `encoded_buff` the records that the store made of them.

    Java: org.apache.rocketmq.common.message.MessageExtBatch (4.9.8)
    """

    __slots__ = ("encoded_buff",)

    def __init__(self, topic: str | None = None, body: bytes | memoryview = b"") -> None:
        super().__init__(topic, body)
        self.encoded_buff: bytes | bytearray | memoryview | None = None
