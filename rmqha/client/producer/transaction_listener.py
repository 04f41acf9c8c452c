"""The user's side of a transaction."""
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rmqha.client.producer.send_result import SendResult
from rmqha.common.message.message import Message, MessageExt


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
