"""Ways of choosing the queue that a message goes to."""
import random
from typing import Any

from rmqha.common.java import string_hash_code
from rmqha.common.message.message import Message, MessageQueue


def select_message_queue_by_hash(mqs: list[MessageQueue], msg: Message, arg: Any) -> MessageQueue:
    """The queue that `arg` hashes to, as in Java for texts and for numbers of 32 bits.

        producer.send(message, selector=select_message_queue_by_hash, arg="order-17")

    Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash (4.9.8)
    """
    hash_code = arg if isinstance(arg, int) else string_hash_code(str(arg))
    return mqs[abs(hash_code) % len(mqs)]


def select_message_queue_by_random(mqs: list[MessageQueue], msg: Message, arg: Any) -> MessageQueue:
    """One of the queues, by chance.

    Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom (4.9.8)
    """
    return random.choice(mqs)
