"""A stored message as a consumer gets it."""
from rmqha.common.message import message_const
from rmqha.common.message.message_ext import MessageExt


class MessageClientExt(MessageExt):
    """A stored message whose `msg_id` is its producer's unique id, or the offset id when it has none.

    Java: org.apache.rocketmq.common.message.MessageClientExt (4.9.8)
    """

    __slots__ = ("offset_msg_id",)

    def _init_msg_id(self) -> None:
        self.offset_msg_id: str | None = None

    @property
    def msg_id(self) -> str | None:  # type: ignore[override]  # as in Java, a getter takes the attribute's place
        """UNIQ_KEY, else the offset id."""
        return self.properties.get(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) or self.offset_msg_id
