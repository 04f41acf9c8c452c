"""The user's side of a transaction."""
from typing import Any

from rmqha.client.producer.local_transaction_state import LocalTransactionState
from rmqha.common.message.message import Message
from rmqha.common.message.message_ext import MessageExt


class TransactionListener:
    """Carries out local transactions, and remembers what became of them: the process may have been started anew.

    Java: org.apache.rocketmq.client.producer.TransactionListener (4.9.8)
    """

    def execute_local_transaction(self, msg: Message, arg: Any) -> LocalTransactionState:
        """The half message is stored: do what it announces. Called in the sender's thread."""
        raise NotImplementedError

    def check_local_transaction(self, msg: MessageExt) -> LocalTransactionState:
        """A broker asks what became of `msg`. Called by TransactionCheckThread_<group>_<n>."""
        raise NotImplementedError
