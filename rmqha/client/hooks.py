"""Interfaces of client hooks with the contexts that they receive, and the transaction listener."""
from enum import Enum
from typing import TYPE_CHECKING, Any

from rmqha.client.client_config import AccessChannel
from rmqha.client.results import CommunicationMode, SendResult
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import Message, MessageExt, MessageQueue, MessageType

if TYPE_CHECKING:
    from rmqha.client.impl.client_routes import MQProducerInner


@dataclass
class CheckForbiddenContext:
    """A send that a hook may forbid.

    Java: org.apache.rocketmq.client.hook.CheckForbiddenContext (4.9.8)
    """

    name_srv_addr: str | None
    group: str
    message: Message
    mq: MessageQueue
    broker_addr: str
    communication_mode: CommunicationMode
    unit_mode: bool = False


class CheckForbiddenHook:
    """A hook called before each try of a send. An MQClientException from it fails the try.

    Java: org.apache.rocketmq.client.hook.CheckForbiddenHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise MQClientException to forbid the send."""
        raise NotImplementedError


@dataclass
class ConsumeMessageContext:
    """One call of a listener. After the call, `props` has ConsumeContextType: the name of a ConsumeReturnType.

    Java: org.apache.rocketmq.client.hook.ConsumeMessageContext (4.9.8)
    """

    consumer_group: str
    msg_list: list[MessageExt]
    mq: MessageQueue
    success: bool = False
    status: str | None = None
    mq_trace_context: Any = None
    props: dict[str, str] = field(default_factory=dict)
    namespace: str | None = None
    access_channel: AccessChannel | None = None


class ConsumeMessageHook:
    """A hook called around each call of a listener. Its exceptions are logged and have no other effect.

    Java: org.apache.rocketmq.client.hook.ConsumeMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Run before the listener gets `context.msg_list`."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Run after the listener has returned or raised."""


class LocalTransactionState(Enum):
    """The outcome of a local transaction. For UNKNOW (Java's spelling) the broker checks again later.

    Java: org.apache.rocketmq.client.producer.LocalTransactionState (4.9.8)
    """

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


class TransactionListener:
    """The user's code that runs local transactions. It must remember their outcomes, even after a restart.

    Java: org.apache.rocketmq.client.producer.TransactionListener (4.9.8)
    """

    def execute_local_transaction(self, msg: Message, arg: Any) -> LocalTransactionState:
        """Run the local transaction of `msg`, whose half message is stored. Called in the sender's thread."""
        raise NotImplementedError

    def check_local_transaction(self, msg: MessageExt) -> LocalTransactionState:
        """Return the outcome of the local transaction of `msg`, because a broker checks it.

        Called by TransactionCheckThread_<group>_<n>.
        """
        raise NotImplementedError


@dataclass(slots=True)
class TransactionSendResult(SendResult):
    """The result of sending the half message, and the outcome of the local transaction.

    Java: org.apache.rocketmq.client.producer.TransactionSendResult (4.9.8)
    """

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOW


@dataclass
class EndTransactionContext:
    """A transaction that is about to end.

    Java: org.apache.rocketmq.client.hook.EndTransactionContext (4.9.8)
    """

    producer_group: str
    message: Message
    broker_addr: str
    msg_id: str | None
    transaction_id: str | None
    transaction_state: LocalTransactionState
    from_transaction_check: bool = False


class EndTransactionHook:
    """A hook called before END_TRANSACTION is sent. Its exceptions are logged and have no other effect.

    Java: org.apache.rocketmq.client.hook.EndTransactionHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Run before the outcome of a transaction is sent to the broker."""


@dataclass
class FilterMessageContext:
    """Messages of one pull; a hook removes from `msg_list` the messages that must not be consumed.

    Java: org.apache.rocketmq.client.hook.FilterMessageContext (4.9.8)
    """

    consumer_group: str
    msg_list: list[MessageExt]
    mq: MessageQueue
    unit_mode: bool = False


class FilterMessageHook:
    """A hook called with the messages of each pull. Its exceptions are logged and have no other effect.

    Java: org.apache.rocketmq.client.hook.FilterMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError

    def filter_message(self, context: FilterMessageContext) -> None:
        """Change `context.msg_list` in place."""
        raise NotImplementedError


@dataclass
class SendMessageContext:
    """One try of a send. `mq_trace_context` belongs to the hook, which may keep data there between its two methods.

    Java: org.apache.rocketmq.client.hook.SendMessageContext (4.9.8)
    """

    producer_group: str
    message: Message
    mq: MessageQueue
    broker_addr: str
    born_host: str
    communication_mode: CommunicationMode
    producer: "MQProducerInner"
    msg_type: MessageType = MessageType.Normal_Msg
    namespace: str | None = None
    send_result: SendResult | None = None
    exception: Exception | None = None
    mq_trace_context: Any = None
    props: dict[str, str] | None = None


class SendMessageHook:
    """A hook called around each try of a send. Its exceptions are logged and have no other effect.

    Java: org.apache.rocketmq.client.hook.SendMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Return a short name for log lines."""
        raise NotImplementedError

    def send_message_before(self, context: SendMessageContext) -> None:
        """Run before the request is sent."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """Run after the answer (`context.send_result`) or the failure (`context.exception`)."""
