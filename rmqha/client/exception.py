"""Exceptions of the client other than the remoting ones, and checks of names and messages before anything is sent.

Java: org.apache.rocketmq.client.Validators (4.9.8)
"""
from rmqha.common import mix_all, topics
from rmqha.common.message.message import Message
from rmqha.common.message.message_decoder import MessageBatch
from rmqha.common.protocol import namespace_util, response_code
from rmqha.remoting.exception import RemotingException


class MQClientException(Exception):
    """An operation of the client failed. `response_code` is -1, a ClientErrorCode or a broker's response code.

    Java: org.apache.rocketmq.client.exception.MQClientException (4.9.8)
    """

    def __init__(self, error_message: str | None, response_code: int = -1) -> None:
        text = _java_text(error_message)
        text = text if response_code == -1 else f"CODE: {response_code}  DESC: {text}"
        super().__init__(namespace_util.attach_default_url(text))
        self.response_code = response_code
        self.error_message = error_message

    def with_response_code(self, response_code: int) -> "MQClientException":
        """Set the code without changing the text, like Java's fluent setResponseCode."""
        self.response_code = response_code
        return self


class RequestTimeoutException(MQClientException):
    """A request was sent, but no reply arrived in time.

    Java: org.apache.rocketmq.client.exception.RequestTimeoutException (4.9.8)
    """


class MQBrokerException(Exception):
    """A broker or name server answered with an error. The text contains its response code, remark and address.

    Java: org.apache.rocketmq.client.exception.MQBrokerException (4.9.8)
    """

    def __init__(self, response_code: int, error_message: str | None, broker_addr: str | None = None) -> None:
        broker = f" BROKER: {broker_addr}" if broker_addr is not None else ""
        text = f"CODE: {response_code}  DESC: {_java_text(error_message)}{broker}"
        super().__init__(namespace_util.attach_default_url(text))
        self.response_code = response_code
        self.error_message = error_message
        self.broker_addr = broker_addr


def _java_text(text: str | None) -> str:
    return "null" if text is None else text


CHARACTER_MAX_LENGTH = 255
TOPIC_MAX_LENGTH = 127

_ALLOWED = "^[%|a-zA-Z0-9_-]+$"
_NO_BATCH = "Failed to initiate the MessageBatch"


def check_group(group: str | None) -> None:
    """Raise MQClientException if `group` is not a valid group name."""
    if group is None or not group.strip():
        raise MQClientException("the specified group is blank")
    if len(group) > CHARACTER_MAX_LENGTH:
        raise MQClientException("the specified group is longer than group max length 255.")
    if topics.is_topic_or_group_illegal(group):
        raise MQClientException(
            f"the specified group[{group}] contains illegal characters, allowing only {_ALLOWED}")


def check_consumer_group(group: str | None) -> None:
    """Raise MQClientException if `group` is not a valid consumer group name."""
    check_group(group)
    if group == mix_all.DEFAULT_CONSUMER_GROUP:
        raise MQClientException(
            f"consumerGroup can not equal {mix_all.DEFAULT_CONSUMER_GROUP}, please specify another one.")


def check_message(msg: Message | None, max_message_size: int) -> None:
    """Raise MQClientException (MESSAGE_ILLEGAL) if `msg` cannot be sent; the size is that of the body, in bytes.

    For a batch, each message and the whole batch are checked, because the caller may have built it directly.
    """
    if isinstance(msg, MessageBatch) and not msg.is_checked:
        check_batch(msg.messages, max_message_size)
    _check_message(msg, max_message_size)


def check_batch(messages: list[Message], max_message_size: int) -> None:
    """Check each message as if it were sent alone, then check that they can be sent together.

    MQClientException (TypeError for a wrong type) names the first message that cannot be sent.
    """
    for number, msg in enumerate(messages):
        try:
            _check_message(msg, max_message_size)
            check_is_no_batch(msg, "part of a batch")
        except MQClientException as error:
            raise MQClientException(f"{_NO_BATCH}: message {number}: {error.error_message}",
                                    error.response_code) from error
        except TypeError as error:
            raise TypeError(f"{_NO_BATCH}: message {number}: {error}") from error
    try:
        MessageBatch.check(messages)
    except ValueError as error:
        raise MQClientException(f"{_NO_BATCH}: {error}") from error


def check_is_no_batch(msg: Message, what: str) -> None:
    """Raise MQClientException if `msg` is a batch, which brokers can't handle as `what`."""
    if isinstance(msg, MessageBatch):
        raise MQClientException(f"a batch can't be {what}: send its messages one by one", response_code.MESSAGE_ILLEGAL)


def _check_message(msg: Message | None, max_message_size: int) -> None:
    if msg is None:
        raise MQClientException("the message is null", response_code.MESSAGE_ILLEGAL)
    if not isinstance(msg, Message):
        raise TypeError(f"the object to send must be a Message, not {type(msg).__name__}")
    if msg.body is None:
        raise MQClientException("the message body is null", response_code.MESSAGE_ILLEGAL)
    if msg.topic is not None:
        msg.check_types()
    check_topic(msg.topic)
    is_not_allowed_send_topic(msg.topic)
    if len(msg.body) == 0:
        raise MQClientException("the message body length is zero", response_code.MESSAGE_ILLEGAL)
    if len(msg.body) > max_message_size:
        raise MQClientException(
            f"the message body size over max value, MAX: {max_message_size}", response_code.MESSAGE_ILLEGAL)


def check_topic(topic: str | None) -> None:
    """Raise MQClientException if `topic` is not a valid topic name."""
    if topic is None or not topic.strip():
        raise MQClientException("The specified topic is blank")
    if len(topic) > TOPIC_MAX_LENGTH:
        raise MQClientException(f"The specified topic is longer than topic max length {TOPIC_MAX_LENGTH}.")
    if topics.is_topic_or_group_illegal(topic):
        raise MQClientException(
            f"The specified topic[{topic}] contains illegal characters, allowing only {_ALLOWED}")


def is_system_topic(topic: str) -> None:
    """Raise MQClientException if `topic` is a system topic."""
    if topics.is_system_topic(topic):
        raise MQClientException(f"The topic[{topic}] is conflict with system topic.")


def is_not_allowed_send_topic(topic: str) -> None:
    """Raise MQClientException if sending to `topic` is forbidden."""
    if topics.is_not_allowed_send_topic(topic):
        raise MQClientException(f"Sending message to topic[{topic}] is forbidden.")


# The exceptions that any call of a client may raise.
CLIENT_ERRORS = (MQClientException, MQBrokerException, RemotingException)
