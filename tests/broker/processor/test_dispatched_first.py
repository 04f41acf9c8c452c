"""Where queues end is told behind what was acknowledged before, though it gathers for its dispatch."""
import pytest

from rmqha.broker.processor import admin_handlers
from rmqha.common.protocol import request_code as codes
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import GetConsumeStatsRequestHeader, GetTopicStatsInfoRequestHeader
from rmqha.common.protocol.client_headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeQueueRequestHeader,
    SearchOffsetRequestHeader,
)
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.support.gathering import gathering
from tests.support.wait import wait_until


@pytest.fixture
def gathered(shared_broker, request, monkeypatch):
    """A topic with one message, which is acknowledged, and in no queue for minutes."""
    monkeypatch.setattr(admin_handlers, "_WAIT_S", 60)  # it takes milliseconds, but not on a busy machine
    topic = f"Gathered{abs(hash(request.node.name))}"
    shared_broker.next_offset(topic)
    with gathering(shared_broker.store):
        shared_broker.send(topic, b"one")
        assert shared_broker.store.get_max_offset_in_queue(topic, 0) == 0
        shared_broker.controller.consumer_offset_manager.commit_offset("addr", "reader", topic, 0, 0)
        yield topic


ASKED = {
    "max": (codes.GET_MAX_OFFSET, lambda topic: GetMaxOffsetRequestHeader(topic=topic, queueId=0),
            lambda answer: answer.ext_fields["offset"] == "1"),
    "min": (codes.GET_MIN_OFFSET, lambda topic: GetMinOffsetRequestHeader(topic=topic, queueId=0),
            lambda answer: answer.ext_fields["offset"] == "0"),
    "by time": (codes.SEARCH_OFFSET_BY_TIMESTAMP,
                lambda topic: SearchOffsetRequestHeader(topic=topic, queueId=0, timestamp=1 << 41),
                lambda answer: answer.ext_fields["offset"] == "0"),
    "earliest": (codes.GET_EARLIEST_MSG_STORETIME,
                 lambda topic: GetEarliestMsgStoretimeRequestHeader(topic=topic, queueId=0),
                 lambda answer: int(answer.ext_fields["timestamp"]) > 0),
    "topic": (codes.GET_TOPIC_STATS_INFO, lambda topic: GetTopicStatsInfoRequestHeader(topic=topic),
              lambda answer: b'"maxOffset":1' in answer.body),
    "group": (codes.GET_CONSUME_STATS, lambda topic: GetConsumeStatsRequestHeader(consumerGroup="reader", topic=topic),
              lambda answer: b'"brokerOffset":1' in answer.body),
    "queue": (codes.QUERY_CONSUME_QUEUE,
              lambda topic: QueryConsumeQueueRequestHeader(topic=topic, queueId=0, index=0, count=1),
              lambda answer: b'"maxQueueIndex":1' in answer.body),
}


@pytest.mark.parametrize("what", ASKED)
def test_what_gathers_is_dispatched_first(shared_broker, gathered, what):
    code, header, is_right = ASKED[what]
    answer = shared_broker.call(code, header(gathered))
    assert answer.code == response_code.SUCCESS and is_right(answer), (answer, answer.body)


def test_what_can_not_be_told_later_is_an_error(shared_broker, gathered):
    def serve() -> RemotingCommand:
        raise ValueError("the disk")
    answer = admin_handlers.answer(shared_broker.store, codes.GET_MAX_OFFSET, serve).get(60_000)
    assert answer.code == response_code.SYSTEM_ERROR and "the disk" in answer.remark


def test_a_request_without_its_fields_is_refused_in_the_same_words(shared_broker, gathered, caplog):
    behind = shared_broker.call(codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(queueId=0))
    assert "can't be told" in caplog.text and "Traceback" not in caplog.text
    wait_until(lambda: shared_broker.store.dispatch_behind_bytes() <= 0, 60_000, "dispatched")
    at_once = shared_broker.call(codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(queueId=0))
    assert (behind.code, behind.remark) == (at_once.code, at_once.remark)
    assert behind.code == response_code.SYSTEM_ERROR and "topic" in behind.remark


def test_who_asks_when_nothing_gathers_is_answered_at_once(shared_broker):
    shared_broker.next_offset("Nothing")
    answer = RemotingCommand.create_response_command(response_code.SUCCESS, None)
    for code in admin_handlers.TELL_ENDS:
        assert admin_handlers.answer(shared_broker.store, code, lambda: answer) is answer
