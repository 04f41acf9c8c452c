"""Several messages sent as one."""
from collections.abc import Iterable, Iterator

from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message

RETRY_GROUP_TOPIC_PREFIX = "%RETRY%"


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
