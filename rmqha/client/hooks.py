"""Interfaces of client hooks with the contexts that they receive, and the listener of transactions."""
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
    """A send that may be forbidden.

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
    """Called before each try of a send; MQClientException from here fails the try.

    Java: org.apache.rocketmq.client.hook.CheckForbiddenHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise MQClientException to forbid."""
        raise NotImplementedError


@dataclass
class ConsumeMessageContext:
    """One call of a listener. `props` holds ConsumeContextType, a ConsumeReturnType's name, when it ended.

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
    """Called around each call of a listener; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.ConsumeMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Before the listener gets `context.msg_list`."""

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """After it returned or raised."""


class LocalTransactionState(Enum):
    """UNKNOW (Java's spelling): the broker asks again.

    Java: org.apache.rocketmq.client.producer.LocalTransactionState (4.9.8)
    """

    COMMIT_MESSAGE = "COMMIT_MESSAGE"
    ROLLBACK_MESSAGE = "ROLLBACK_MESSAGE"
    UNKNOW = "UNKNOW"


class TransactionListener:
    """Carries out local transactions, and remembers how they ended, across restarts of the process too.

    Java: org.apache.rocketmq.client.producer.TransactionListener (4.9.8)
    """

    def execute_local_transaction(self, msg: Message, arg: Any) -> LocalTransactionState:
        """The half message is stored: do what it announces. Called in the sender's thread."""
        raise NotImplementedError

    def check_local_transaction(self, msg: MessageExt) -> LocalTransactionState:
        """A broker asks what became of `msg`. Called by TransactionCheckThread_<group>_<n>."""
        raise NotImplementedError


@dataclass(slots=True)
class TransactionSendResult(SendResult):
    """Where the half message went, and what the local transaction said.

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
    """Called before END_TRANSACTION leaves; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.EndTransactionHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def end_transaction(self, context: EndTransactionContext) -> None:
        """Called before the broker hears how a transaction ended."""


@dataclass
class FilterMessageContext:
    """Messages of one pull; a hook takes those out of `msg_list` that nobody is to see.

    Java: org.apache.rocketmq.client.hook.FilterMessageContext (4.9.8)
    """

    consumer_group: str
    msg_list: list[MessageExt]
    mq: MessageQueue
    unit_mode: bool = False


class FilterMessageHook:
    """Called with each pull's messages; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.FilterMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def filter_message(self, context: FilterMessageContext) -> None:
        """Change `context.msg_list` in place."""
        raise NotImplementedError


@dataclass
class SendMessageContext:
    """One try of a send. `mq_trace_context` is the hook's own, from before to after.

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
    """Called around each try of a send; what it raises is logged and changes nothing.

    Java: org.apache.rocketmq.client.hook.SendMessageHook (4.9.8)
    """

    def hook_name(self) -> str:
        """Short name for log lines."""
        raise NotImplementedError

    def send_message_before(self, context: SendMessageContext) -> None:
        """Before the request leaves."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """After the answer (`context.send_result`) or the failure (`context.exception`)."""
