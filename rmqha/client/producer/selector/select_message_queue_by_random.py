"""Any queue."""
import random
from typing import Any

from rmqha.common.message.message import Message
from rmqha.common.message.message_queue import MessageQueue


def select_message_queue_by_random(mqs: list[MessageQueue], msg: Message, arg: Any) -> MessageQueue:
    """One of the queues, by chance.

    Java: org.apache.rocketmq.client.producer.selector.SelectMessageQueueByRandom (4.9.8)
    """
    return random.choice(mqs)
