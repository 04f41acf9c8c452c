"""docs/how-to/topics-and-groups.md on two masters: each command and output, and a group that fails on messages."""
import re
import shlex

import pytest

from tests.pages.guided import LAPTOP, MASTER, MASTER_FILE, State, settings
from tests.pages.walk import Differs
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(900)]

SECOND, SECOND_FILE = "10.0.0.6", "/etc/rocketmq/broker-b.properties"
NAMESRV = "10.0.0.1"
# Messages per second in the last minute.
COUNTED = Differs(r"\b\d+(?:\.\d)?(?=/s in the last minute| +(?:[\d.]+ s|<duration>)\n?$)", "<rate>")
# A group that gives up at once. Six messages: it consumes the first three, and fails on the last three, one by one.
CONSUMER = """
import threading
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as Status
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.manage.dead_letters import list_dead_letters
from rmqha.tools.manage.masters import masters
from tests.support.wait import wait_until

NAMESRV = "10.0.0.1:9876"
seen = []
def listen(messages):
    seen.extend(messages)
    return Status.RECONSUME_LATER if int(messages[0].keys) > 1000 else Status.CONSUME_SUCCESS
def dead():
    with ClusterAdmin(NAMESRV, 60_000) as admin:
        rows, _outcomes = list_dead_letters(admin, masters(admin))
    return sum(row.count for row in rows)
def lag_is_none():
    consumer.default_mq_push_consumer_impl.persist_consumer_offset()
    with ClusterAdmin(NAMESRV, 60_000) as admin:
        return sum(max(0, place.brokerOffset - place.consumerOffset)
                   for place in admin.examine_consume_stats("billing").offsetTable.values()) == 0
consumer = DefaultMQPushConsumer("billing", NAMESRV, listen)
consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
consumer.max_reconsume_times = 0
consumer.subscribe("orders", "*")
with DefaultMQProducer("shop", NAMESRV) as producer, consumer:
    for number in (1, 2, 3, 1001, 1002, 1003):
        queue = MessageQueue("orders", "broker-b" if number == 1002 else "broker-a", number % 4)
        producer.send(Message("orders", b"order %d" % number, tags="paid", keys=str(number)), queue=queue)
        wait_until(lambda: dead() == max(0, number - 1000), 120_000, "it is a dead letter")
    wait_until(lambda: len(seen) >= 6 and lag_is_none(), 120_000, "all are consumed")
"""


def test_topics_and_dead_letters(walk_of):
    walk = walk_of("topics-and-groups", NAMESRV, MASTER, SECOND, LAPTOP)
    state = State(walk)
    state.name_server()
    state.has_file(MASTER, MASTER_FILE, settings())
    state.has_file(SECOND, SECOND_FILE, settings(brokerName="broker-b"))
    state.broker(MASTER, MASTER_FILE)
    state.broker(SECOND, SECOND_FILE)
    walk.until(LAPTOP, "NAMESRV_ADDR=10.0.0.1:9876 bin/mqadmin clusterList", "10.0.0.2:10911(?s:.*)10.0.0.6:10911")
    walk.types("What you need", LAPTOP)
    walk.types("Create a topic", LAPTOP)
    walk.tool(LAPTOP, f".venv/bin/python -c {shlex.quote(CONSUMER)}")
    walk.types("Look at topics", LAPTOP)
    for _step in range(3):
        walk.types("Change a topic", LAPTOP)
    walk.types("Delete a topic", LAPTOP)
    shown = walk.types("Find them", LAPTOP)
    walk.types("Send them again", LAPTOP)
    walk.types("Send them again", LAPTOP)
    (found,) = re.findall(r"([0-9A-F]{32}) .*order 1003", shown)
    walk.reads["C00002020DDA794B634298481B1E0004"] = found
    walk.types("Send them again", LAPTOP)
    for _step in range(2):
        walk.types("Look at groups", LAPTOP, differs=[COUNTED])
    for _step in range(3):
        walk.types("Move offsets", LAPTOP)
    walk.types("Pause a group", LAPTOP)
    for _step in range(2):
        walk.types("Create, change and delete a group", LAPTOP)
    walk.done()
