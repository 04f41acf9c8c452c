"""Browsing a topic whose queues are on a broker of RocketMQ 4.9.7 and on one of rmqha, beside consuming it."""
import random
import time
from collections.abc import Iterator

import pytest

from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.view.browse import Browser, Filters, Query, Row
from rmqha.tools.view.questions import QuestionError
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until
from tests.tools.test_browse import all_pages

pytestmark = pytest.mark.java

TOPIC, QUEUES = "Browsed", 2
NOISE = random.Random(5).randbytes(1 << 20)


@pytest.fixture(scope="module")
def sent(tmp_path_factory) -> Iterator[tuple[DefaultMQAdminExt, list]]:
    """Start the brokers and send messages of many sizes; yield a client, and (message, result) of each send."""
    folder, nodes = tmp_path_factory.mktemp("browse"), []
    try:
        namesrv = NamesrvNode("rmqha", folder / "namesrv")
        nodes.append(namesrv)
        namesrv.start()
        for kind in ("java", "rmqha"):
            nodes.append(BrokerNode(kind, folder / kind, namesrv.address, shared_jvm=True, brokerName=kind,
                                    mappedFileSizeCommitLog=64 << 20))
            nodes[-1].start()
        admin = DefaultMQAdminExt(namesrv.address, timeout_millis=30_000, requests_only=True)
        for node in nodes[1:]:
            admin.create_and_update_topic_config(node.address, TopicConfig(TOPIC, QUEUES, QUEUES))
        wait_until(lambda: len(admin.examine_topic_route_info(TOPIC).queueDatas) == 2, what="both brokers")
        with DefaultMQProducer("browsers", namesrv.address) as producer:
            yield admin, [send(producer, number) for number in range(120)]
        admin.shutdown()
    finally:
        for node in reversed(nodes):
            node.kill()


def send(producer: DefaultMQProducer, number: int) -> tuple:
    """Send a message: most are small; the others are compressed, and some of these remain large."""
    body = (NOISE[number:] if number % 20 == 7 else b"{\"order\": %d}" % number * 1000 if number % 7 == 3
            else b"order %d" % number)
    message = Message(TOPIC, body, tags="ab"[number % 2], keys=[f"k{number}", "all"])
    message.put_user_property("color", "red" if number % 3 else "blue")
    kind = ("java", "rmqha")[number // 2 % 2]
    return message, producer.send(message, queue=MessageQueue(TOPIC, kind, number % QUEUES))


def names(rows) -> list[str]:
    return [row.keys[0] for row in rows]


def wanted(sent, keep=lambda number: True) -> list[str]:
    return [f"k{number}" for number in range(len(sent[1])) if keep(number)]


def all_rows(sent, **query: object) -> list[Row]:
    pages = list(all_pages(Browser(sent[0]), Query(TOPIC, **query)))
    assert not any(page.errors for page in pages), pages
    return [row for page in pages for row in page.rows]


def test_pages_are_all_messages_in_both_directions(sent):
    for backwards in (False, True):
        rows = all_rows(sent, backwards=backwards, limit=17)
        assert [row.order for row in rows] == sorted((row.order for row in rows), reverse=backwards)
        assert sorted(names(rows)) == sorted(wanted(sent))
        for row in rows:
            message, result = sent[1][int(row.keys[0][1:])]
            assert (row.message_id, row.unique_id, row.queue_offset) == (
                result.offset_msg_id, result.msg_id, result.queue_offset)
            assert (row.broker, row.queue_id) == (result.message_queue.brokerName, result.message_queue.queueId)
            assert row.properties["color"] == message.properties["color"] and row.tags == message.tags
            if row.text is not None:
                assert message.body.startswith(row.text.encode()) and row.is_cut is (len(message.body) > 256)
            assert row.compression == ("zlib" if len(message.body) > 4096 else "")


@pytest.mark.parametrize(("filters", "keep"), [
    (Filters(tags="b"), lambda number: number % 2 == 1), (Filters(key="k77"), lambda number: number == 77),
    (Filters(key="all", tags="a || c"), lambda number: number % 2 == 0),
    (Filters(text='"order": 101}'), lambda number: number == 101),
    (Filters(text="order 11", tags="b"), lambda number: number in {11, 111, 113, 117, 119})])
@pytest.mark.parametrize("backwards", [False, True])
def test_filters_equal_a_scan(sent, filters, keep, backwards):
    assert sorted(names(all_rows(sent, filters=filters, backwards=backwards, limit=9))) == sorted(wanted(sent, keep))


def test_expression_is_refused_by_the_broker_without_property_filters(sent):
    page = Browser(sent[0]).browse(Query(TOPIC, filters=Filters(sql="color = 'blue'"), limit=1000))
    assert sorted(names(page.rows)) == sorted(wanted(sent, lambda number: number % 3 == 0 and number // 2 % 2 == 1))
    assert len(page.errors) == QUEUES and all(
        "does not support consumer to filter message by SQL92: it is a broker with enablePropertyFilter=false" in error
        for error in page.errors)


def test_pages_begin_at_a_time_and_at_an_offset(sent):
    rows = all_rows(sent, limit=1000)
    for at in (0, 30, 77, 119):
        begin = rows[at].store_ms
        assert names(all_rows(sent, time_ms=begin)) == names(row for row in rows if row.store_ms >= begin)
        assert names(all_rows(sent, time_ms=begin, backwards=True)) == names(
            row for row in reversed(rows) if row.store_ms <= begin)
    for broker in ("java", "rmqha"):
        assert [row.queue_offset for row in all_rows(sent, broker=broker, queue_id=1, offset=11)] == list(range(11, 30))


def test_tail_and_whole_messages(sent):
    admin, messages = sent
    browser, query = Browser(admin), Query(TOPIC)
    page = browser.tail(query)
    assert page.rows == () and page.at_end
    with DefaultMQProducer("browsers", admin.client_config.get_namesrv_addr()) as producer:
        new = [send(producer, number) for number in range(120, 124)]
        page = browser.tail(query, page.cursor)
        assert names(page.rows) == [f"k{number}" for number in range(120, 124)]
    messages += new
    for number in (0, 3, 7, 27):  # of both brokers: small, compressed, large
        message, result = messages[number]
        queue = result.message_queue
        whole = browser.whole(TOPIC, queue.brokerName, queue.queueId, result.queue_offset)
        assert whole.body == message.body and whole.keys == message.keys
    for broker in ("java", "rmqha"):
        with pytest.raises(QuestionError, match=f"queue {broker}:0 of topic 'Browsed' has no message 9999"):
            browser.whole(TOPIC, broker, 0, 9999)


def test_browsing_stores_nothing_at_the_broker(sent):
    admin = sent[0]
    address = next(broker.select_broker_addr() for broker in admin.examine_topic_route_info(TOPIC).brokerDatas
                   if broker.brokerName == "java")
    before = admin.fetch_broker_runtime_stats(address).table["commitLogMaxOffset"]
    for query in (Query(TOPIC), Query(TOPIC, offset=9999), Query(TOPIC, offset=9999, backwards=True),
                  Query(TOPIC, time_ms=round(time.time() * 1000) + 10_000)):
        list(all_pages(Browser(admin), query))
    with pytest.raises(QuestionError, match="has no message 9999"):
        Browser(admin).whole(TOPIC, "java", 0, 9999)
    assert admin.fetch_broker_runtime_stats(address).table["commitLogMaxOffset"] == before
    answer = Browser(admin)._reader._asked(address, Query(TOPIC).header(0, 0, 1))
    assert answer is None, f"{request_code.GET_MESSAGE_HEADS} is known to the original"
