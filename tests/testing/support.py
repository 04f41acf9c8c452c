"""Helpers shared by the tests of rmqha.testing."""
from contextlib import contextmanager

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere


@contextmanager
def producing(mq, retries=2, timeout_ms=10_000):
    """A running producer."""
    producer = DefaultMQProducer("producers", mq.namesrv_addr)
    producer.retry_times_when_send_failed = retries
    producer.send_msg_timeout = timeout_ms
    with producer:
        yield producer


def send(mq, topic, *bodies, **message):
    """Send messages, one after the other, and return the results."""
    with producing(mq) as producer:
        return [producer.send(Message(topic, body, **message)) for body in bodies]


@contextmanager
def consuming(mq, group, topic):
    """Start a consumer of a group at the first message; yield the list to which it appends bodies."""
    bodies = []

    def take(messages):
        bodies.extend(message.body for message in messages)

    consumer = DefaultMQPushConsumer(group, mq.namesrv_addr, take)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    with consumer:
        yield bodies


def bodies(messages):
    """Return the messages' bodies, in order."""
    return [message.body for message in messages]
