"""What the tests of rmqha.testing share."""
from contextlib import contextmanager

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere


@contextmanager
def producing(mq, retries=2, timeout_ms=10_000):
    """A producer that runs."""
    producer = DefaultMQProducer("producers", mq.namesrv_addr)
    producer.retry_times_when_send_failed = retries
    producer.send_msg_timeout = timeout_ms
    with producer:
        yield producer


def send(mq, topic, *bodies, **message):
    """Send messages, one after the other; the results."""
    with producing(mq) as producer:
        return [producer.send(Message(topic, body, **message)) for body in bodies]


@contextmanager
def consuming(mq, group, topic):
    """A consumer of a group from the first message on; the list that it fills with bodies."""
    bodies = []

    def take(messages):
        bodies.extend(message.body for message in messages)

    consumer = DefaultMQPushConsumer(group, mq.namesrv_addr, take)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    with consumer:
        yield bodies


def bodies(messages):
    """Their bodies, in their order."""
    return [message.body for message in messages]
