"""What a send in a transaction gives back."""
from dataclasses import dataclass

from rmqha.client.producer.local_transaction_state import LocalTransactionState
from rmqha.client.producer.send_result import SendResult


@dataclass(slots=True)
class TransactionSendResult(SendResult):
    """Where the half message went, and what the local transaction said.

    Java: org.apache.rocketmq.client.producer.TransactionSendResult (4.9.8)
    """

    local_transaction_state: LocalTransactionState = LocalTransactionState.UNKNOW
