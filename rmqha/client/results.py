"""Results and callbacks of sends, pulls and queries, and the creation of reply messages.

- `QueryResult`: messages found by key.
- `SendResult`, `PullResult`: returned at once, or passed to a `SendCallback` or `PullCallback`.
- `FindBrokerResult`: the broker to send a request to.
- `CommunicationMode`: how a request is sent.

Java: org.apache.rocketmq.client.utils.MessageUtil (4.9.8)
"""
from collections.abc import Callable
from enum import Enum

from rmqha.client import life
from rmqha.client.exception import MQClientException
from rmqha.common import mix_all
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.subscriptions import PullStatus as PullStatus


@dataclass(slots=True)
class QueryResult:
    """The messages found, and the time (ms) up to which the brokers' indexes reach.

    Java: org.apache.rocketmq.client.QueryResult (4.9.8)
    """

    index_last_update_timestamp: int
    message_list: list[MessageExt] = field(default_factory=list)


class SendStatus(Enum):
    """The status of a stored message. Only SEND_OK means that it is as safe as the broker's configuration promises.

    Java: org.apache.rocketmq.client.producer.SendStatus (4.9.8)
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


@dataclass(slots=True)
class SendResult:
    """The result of a send: the queue and ids of the message.

    `msg_id` is the client's id, `offset_msg_id` the broker's (address and log offset). For a batch, both contain the
    ids of all messages, separated by commas, and `queue_offset` is that of the first message.

    Java: org.apache.rocketmq.client.producer.SendResult (4.9.8)
    """

    send_status: SendStatus
    msg_id: str | None
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    region_id: str | None = None
    trace_on: bool = True

    def __str__(self) -> str:
        offset_msg_id = "null" if self.offset_msg_id is None else self.offset_msg_id
        return (f"SendResult [sendStatus={self.send_status.name}, msgId={self.msg_id}, offsetMsgId={offset_msg_id}, "
                f"messageQueue={self.message_queue}, queueOffset={self.queue_offset}]")


class SendCallback:
    """A callback for the result of a send.

    Exactly one of its two methods is called, on a thread of the remoting client. It must return quickly and pass longer
    work to another thread.

        producer.send_async(message, SendCallback(on_success=results.append, on_exception=errors.append))

    Java: org.apache.rocketmq.client.producer.SendCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[SendResult], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, send_result: SendResult) -> None:
        """Handle the broker's answer; check `send_result.send_status`."""
        if self._on_success is not None:
            self._on_success(send_result)

    def on_exception(self, error: Exception) -> None:
        """Handle the failure of all tries; `error` is the error of the last one."""
        if self._on_exception is not None:
            self._on_exception(error)


@dataclass(slots=True)
class PullResult:
    """The result of a pull: the messages, the offset to pull next, and the queue's bounds. Offsets are queue offsets.

    Java: org.apache.rocketmq.client.consumer.PullResult (4.9.8)
    """

    pull_status: PullStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    msg_found_list: list[MessageExt] = field(default_factory=list)


@dataclass(slots=True)
class PullResultExt(PullResult):
    """A PullResult before decoding, with the id of the broker to ask next time, and the bytes of the records.

    Java: org.apache.rocketmq.client.impl.consumer.PullResultExt (4.9.8)
    """

    suggest_which_broker_id: int = 0
    message_binary: bytes | memoryview | None = None


class PullCallback:
    """A callback for the result of a pull.

    Exactly one of its two methods is called, on a thread of the remoting client. It must return quickly.

    Java: org.apache.rocketmq.client.consumer.PullCallback (4.9.8)
    """

    def __init__(
        self,
        on_success: Callable[[PullResult], object] | None = None,
        on_exception: Callable[[Exception], object] | None = None,
    ) -> None:
        self._on_success = on_success
        self._on_exception = on_exception

    def on_success(self, pull_result: PullResult) -> None:
        """Handle the broker's answer; check `pull_result.pull_status`."""
        if self._on_success is not None:
            self._on_success(pull_result)

    def on_exception(self, error: Exception) -> None:
        """Handle a missing answer or an error answer."""
        if self._on_exception is not None:
            self._on_exception(error)


@dataclass(frozen=True, slots=True)
class FindBrokerResult:
    """A broker's address ("ip:port"), whether it is a slave, and the version of its last heartbeat answer (0: unknown).

    Java: org.apache.rocketmq.client.impl.FindBrokerResult (4.9.8)
    """

    broker_addr: str
    slave: bool
    broker_version: int = 0


class CommunicationMode(Enum):
    """The way to send a request: wait for the answer, pass it to a callback, or do without an answer.

    Java: org.apache.rocketmq.client.impl.CommunicationMode (4.9.8)
    """

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


def create_reply_message(request_message: Message, body: bytes) -> Message:
    """Return a message that, when sent, goes to the client that sent `request_message`.

    MQClientException if `request_message` is not a request.
    """
    cluster = request_message.get_property(message_const.PROPERTY_CLUSTER)
    if cluster is None:
        raise MQClientException(
            "create reply message fail, requestMessage error, property[" + message_const.PROPERTY_CLUSTER
            + "] is null.", life.CREATE_REPLY_MESSAGE_EXCEPTION)
    reply = Message()
    reply.topic = mix_all.get_reply_topic(cluster)
    reply.body = body
    reply.put_property(message_const.PROPERTY_MESSAGE_TYPE, mix_all.REPLY_MESSAGE_FLAG)
    for name in (message_const.PROPERTY_CORRELATION_ID, message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT,
                 message_const.PROPERTY_MESSAGE_TTL):
        value = request_message.get_property(name)
        if value is not None:
            reply.put_property(name, value)
    return reply
