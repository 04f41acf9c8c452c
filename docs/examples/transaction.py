"""Send messages that consumers see only if a local transaction succeeds."""
from typing import Any

from rmqha import (
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    MessageExt,
    PullConsumer,
    TransactionListener,
    TransactionProducer,
)

account = {"Ada": 10}


class Payment(TransactionListener):
    def execute_local_transaction(self, msg: Message, arg: Any) -> LocalTransactionState:
        if account["Ada"] < arg:
            return LocalTransactionState.ROLLBACK_MESSAGE
        account["Ada"] -= arg
        return LocalTransactionState.COMMIT_MESSAGE

    def check_local_transaction(self, msg: MessageExt) -> LocalTransactionState:
        """Return the outcome to a broker that does not know it: look it up in your database."""
        return LocalTransactionState.UNKNOW


with TransactionProducer("payments_out", transaction_listener=Payment()) as producer:
    for amount in (7, 5):  # the second amount exceeds the balance
        result = producer.send_message_in_transaction(Message("Payments", b"%d from Ada" % amount), amount)
        print(f"{amount}: {result.local_transaction_state.name}")
consumer = PullConsumer("payments_in", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe("Payments")
with consumer:
    while not (messages := consumer.poll()):
        pass
    print("paid:", [bytes(message.body).decode() for message in messages])
