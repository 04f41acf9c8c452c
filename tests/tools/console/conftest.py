"""A cluster with a consumed topic, and the console on it."""
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.view.questions import QuestionError, asked
from tests.support.wait import wait_until

TOPIC, GROUP, EVIL = "Orders", "readers", '<img src=x onerror="document.title=\'pwned\'"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def orders(cluster):
    """The cluster with three messages in a topic, sent with a trace and consumed by a group, and their description."""
    with ExitStack() as stack:
        admin = DefaultMQAdminExt(cluster.namesrv)
        stack.callback(admin.shutdown)
        admin.create_and_update_topic_config(cluster.master.address, TopicConfig(TOPIC, 2, 2))
        wait_until(lambda: TOPIC in admin.fetch_all_topic_list().topicList, what="a route")
        seen = []

        def listen(messages):
            seen.extend(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        with DefaultMQProducer("makers", cluster.namesrv, enable_msg_trace=True) as producer:
            sent = [producer.send(Message(TOPIC, body, tags="A", keys=f"key-{number} all"))
                    for number, body in enumerate((EVIL.encode(), b"\x00\xff" * 10, "tää".encode() * 10))]
        consumer = DefaultMQPushConsumer(GROUP, cluster.namesrv, listen)
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(TOPIC, "*")
        stack.enter_context(consumer)
        wait_until(lambda: len(seen) == 3, what="all consumed")
        consumer.default_mq_push_consumer_impl.persist_consumer_offset()
        wait_until(lambda: _traced(admin, sent[0].msg_id), what="the trace")
        yield SimpleNamespace(namesrv=cluster.namesrv, cluster=cluster, sent=sent, admin=admin)


def _traced(admin, msg_id):
    try:
        return asked(lambda: admin.mq_admin.query_message("RMQ_SYS_TRACE_TOPIC", msg_id, 9, 0, 1 << 62).message_list)
    except QuestionError:
        return None
