"""Receive what send.py has sent, and end after three messages.

A group remembers at the brokers how far it has come: started again, this waits for the next messages.
"""
import threading

from rmqha import ConsumeFromWhere, ConsumeStatus, MessageExt, PushConsumer

WANTED = 3
received: list[MessageExt] = []
enough = threading.Event()


def listener(messages: list[MessageExt]) -> ConsumeStatus:
    """Called on many threads. An exception, or RECONSUME_LATER, and the messages come again after a while."""
    received.extend(messages)
    if len(received) >= WANTED:
        enough.set()
    return ConsumeStatus.CONSUME_SUCCESS


consumer = PushConsumer("fruit_packers", message_listener=listener,
                        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe("Fruit", "apples || pears")
with consumer:
    enough.wait()
for message in received[:WANTED]:
    print(f"{message.keys}: {bytes(message.body).decode()} for {message.get_user_property('buyer')}")
