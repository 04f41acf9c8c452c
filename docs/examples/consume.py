"""Receive the messages of send.py, and end after three of them.

Brokers store the group's offsets: when you start this program again, it waits for new messages.
"""
import threading

from rmqha import ConsumeFromWhere, ConsumeStatus, MessageExt, PushConsumer

WANTED = 3
received: list[MessageExt] = []
enough = threading.Event()


def listener(messages: list[MessageExt]) -> ConsumeStatus:
    """Handle messages, on several threads. After an exception or RECONSUME_LATER they are delivered again later."""
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
