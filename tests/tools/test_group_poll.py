"""The poll of all groups: beside the pictures of the brokers, and only so often as the brokers can bear it."""
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.connection import NO_ACCOUNT
from rmqha.tools.view import group_poll as module
from rmqha.tools.view.group_poll import GROUPS_EVERY_S, GROUPS_SHARE, GroupPoll, Groups
from rmqha.tools.view.snapshot import Collector
from tests.remoting.support import Processor, running_server
from tests.support.wait import wait_until


class Broker:
    """A server that reports one group, whose offset is the number of the request."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = threading.Event()
        self.may.set()
        self.before_answer = lambda: None
        self.address = ""

    def serve(self, _channel, _request) -> RemotingCommand:
        self.asked += 1
        stats = ConsumeStats({MessageQueue("T", "b", 0): OffsetWrapper(100, self.asked, 0)})
        self.before_answer()
        assert self.may.wait(60)
        response = RemotingCommand.create_response_command(0, None)
        response.body = remoting_serializable.encode(ConsumeStatsList([{"readers": [stats]}]))
        return response


@contextmanager
def running_broker():
    broker = Broker()
    with running_server() as server:
        server.register_processor(request_code.GET_BROKER_CONSUME_STATS, Processor(broker.serve))
        broker.address = f"127.0.0.1:{server.local_listen_port}"
        try:
            yield broker
        finally:
            broker.may.set()


@pytest.fixture
def broker():
    with running_broker() as made:
        yield made


@pytest.fixture
def poll():
    with GroupPoll("127.0.0.1:1", 6_000, NO_ACCOUNT) as made:
        yield made


def offsets(groups: Groups) -> list[int]:
    return [place.offset for group in groups.groups for place in group.places]


def test_groups_of_a_quick_broker_are_in_the_same_picture(broker, poll, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_S", 60)
    found = poll.poll([broker.address])
    assert offsets(found) == [1] and found.at_s > 0 and not found.errors
    assert poll.poll([broker.address]) is found and poll.poll([]) is found


def test_slow_broker_does_not_hold_up_the_pictures(broker, poll):
    came = threading.Event()
    poll.on_late = came.set
    broker.may.clear()
    assert poll.poll([broker.address]) == Groups()
    wait_until(lambda: broker.asked, 60_000, "asked")
    for _ in range(3):
        assert poll.poll([broker.address]) == Groups()
    assert broker.asked == 1
    broker.may.set()
    assert came.wait(60)
    assert offsets(poll.poll([broker.address])) == [1]


def test_groups_that_must_be_new_are_asked_for_and_waited_for(broker, poll):
    assert [offsets(poll.poll([broker.address], now=True)) for _ in range(3)] == [[1], [2], [3]]


def test_long_answers_are_asked_for_less_often(broker, poll, monkeypatch):
    clock = SimpleNamespace(now_s=100.0)
    monkeypatch.setattr(module, "_WAIT_S", 60)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now_s))

    def next_after(seconds: float) -> list[int]:
        clock.now_s += seconds
        return offsets(poll.poll([broker.address]))
    assert next_after(0) == [1]
    assert next_after(GROUPS_EVERY_S - 1) == [1]
    assert next_after(1) == [2]
    broker.before_answer = lambda: setattr(clock, "now_s", clock.now_s + 4.0)
    assert next_after(GROUPS_EVERY_S) == [3]
    broker.before_answer = lambda: None
    poll.on_late = lambda: None
    assert next_after(4 / GROUPS_SHARE - 5) == [3]
    assert next_after(1) == [4]


def test_broker_without_an_answer_is_an_error_and_the_others_are_shown(broker, poll):
    found = poll.poll([broker.address, "127.0.0.1:1"], now=True)
    assert offsets(found) == [1] and len(found.errors) == 1 and "127.0.0.1:1 can't be reached" in found.errors[0]


def test_malformed_answer_is_an_error(broker, poll):
    with running_server() as server:
        def serve(_channel, _request):
            response = RemotingCommand.create_response_command(0, None)
            response.body = b'{"consumeStatsList":[[]]}'
            return response
        server.register_processor(request_code.GET_BROKER_CONSUME_STATS, Processor(serve))
        found = poll.poll([f"127.0.0.1:{server.local_listen_port}"], now=True)
    assert found.groups == () and "sent an answer that can't be read" in found.errors[0]


def test_picture_says_whether_its_groups_are_known(cluster, monkeypatch):
    with Collector(cluster.namesrv, 5_000) as collector:
        with monkeypatch.context() as patched:
            patched.setattr(collector.group_poll, "poll", lambda *_arguments: Groups())
            assert not collector.collect().groups_known
        assert collector.collect(ask_groups=True).groups_known
