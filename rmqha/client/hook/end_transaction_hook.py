"""The interface of end-transaction hooks."""
from dataclasses import dataclass

from rmqha.client.producer.transaction_listener import LocalTransactionState
from rmqha.common.message.message import Message


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
