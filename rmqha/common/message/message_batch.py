"""Several messages sent as one."""
from collections.abc import Iterable, Iterator

from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_layout as layout
from rmqha.common.message.message import Message

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"
# A broker adds the batch's own properties, with the name of its cluster, to those of each message, and what comes to
# more than the limit has the whole batch refused (a broker of 4.9 stores what nobody can read). Room for them.
MAX_PROPERTIES_IN_BATCH = layout.MAX_PROPERTIES_LENGTH - 1024
_UNIQUE_KEY_SIZE = len(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) + 32 + 2


def properties_size(message: Message) -> int:
    """Bytes of a message's properties as they are sent, with the unique key that it is given when it has none."""
    size = len(message_decoder.message_properties2string(message.properties).encode("utf-8", "replace"))
    has_key = message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX in message.properties
    return size if has_key else size + _UNIQUE_KEY_SIZE


def size_in_batch(message: Message) -> int:
    """Bytes that a message takes in the body of a batch, which is what brokers limit."""
    return layout.BATCH_HEAD.size + len(message.body) + layout.SHORT.size + properties_size(message)


def may_join_batch(message: Message) -> bool:
    """Whether a message may go together with others; one that may not is fine when it is sent alone."""
    return (message.delay_time_level <= 0 and not message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
            and properties_size(message) <= MAX_PROPERTIES_IN_BATCH)


class MessageBatch(Message):
    """Messages of one topic that go as the body of one SEND_BATCH_MESSAGE.

    Java: org.apache.rocketmq.common.message.MessageBatch (4.9.8)
    """

    __slots__ = ("messages", "is_checked")

    def __init__(self, messages: list[Message]) -> None:
        super().__init__()
        self.messages = messages
        self.is_checked = False  # the producer that has made it has looked at each message

    def encode(self) -> bytes:
        """The request's body."""
        return message_decoder.encode_messages(self.messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    @staticmethod
    def generate_from_list(messages: Iterable[Message]) -> "MessageBatch":
        """A batch; ValueError when there are no messages or they may not go together."""
        batch = MessageBatch(list(messages))
        MessageBatch.check(batch.messages)
        return batch.take_over()

    def take_over(self) -> "MessageBatch":
        """Be of the messages' topic, and wait as they do; self. The messages may go together."""
        self.topic = self.messages[0].topic
        self.wait_store_msg_ok = self.messages[0].wait_store_msg_ok
        return self

    @staticmethod
    def check(messages: list[Message]) -> None:
        """ValueError when there are no messages or they may not go together; it names the first that may not."""
        if not messages:
            raise ValueError("a batch needs a message")
        for number, message in enumerate(messages):
            try:
                _check(messages[0], message)
            except ValueError as error:
                raise ValueError(f"message {number}: {error}") from error


def _check(first: Message, message: Message) -> None:
    if message.delay_time_level > 0:
        raise ValueError("TimeDelayLevel is not supported for batching")
    if message.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        raise ValueError("Retry Group is not supported for batching")
    if message.topic != first.topic:
        raise ValueError("The topic of the messages in one batch should be the same")
    if message.wait_store_msg_ok != first.wait_store_msg_ok:
        raise ValueError("The waitStoreMsgOK of the messages in one batch should the same")
