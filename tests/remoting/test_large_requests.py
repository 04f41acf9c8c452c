"""What takes long to decode: limits, turns, and who is served meanwhile."""
import json
import struct
import threading

import pytest

from rmqha.common.protocol import request_code
from rmqha.common.protocol.table_bodies import BODY_LIMITS, BodyLimit, code_name
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting import large_requests
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.remoting.support import (
    ECHO,
    Processor,
    Raw,
    address,
    echo,
    json_frame,
    request,
    running_client,
    running_server,
)
from tests.support.wait import wait_until

HEART_BEAT, LOCK, PULL, SEND = 34, 41, 11, 310
IO, ALONE = "NettyServerNIOSelector_1_1", "LargeRequestThread_1"
WAIT_MS = 60_000


@pytest.fixture
def server():
    with running_server() as started:
        yield started


@pytest.fixture
def client():
    with running_client() as started:
        yield started


class Gate(Processor):
    """Serves when it is opened; knows in which order it has served whom."""

    def __init__(self):
        self.opened, self.begun, self.served = threading.Event(), threading.Event(), []
        super().__init__(self.wait)

    def wait(self, channel, command):
        self.begun.set()
        assert self.opened.wait(240)
        self.served.append((channel.remote_address[1], command.opaque))
        return RemotingCommand.create_response_command(0, None)


def frame_of(code, opaque, body=b""):
    return json_frame(body, code=code, opaque=opaque)


def test_large_body_is_served_apart_and_a_small_one_where_it_was_read(server, client):
    processor = Processor(echo)
    server.register_processor(HEART_BEAT, processor)
    for size, thread in ((100, IO), (large_requests.LARGE_BODY, IO), (large_requests.LARGE_BODY + 1, ALONE),
                         (5_000_000, ALONE)):
        processor.threads.clear()
        body = b"x" * size
        assert client.invoke_sync(address(server), request(HEART_BEAT, body), WAIT_MS).body == body
        assert processor.threads == {thread}, size


def test_large_body_of_send_is_served_where_it_was_read(server, client):
    processor = Processor(echo)
    server.register_processor(SEND, processor)
    assert len(client.invoke_sync(address(server), request(SEND, b"[" * 4_000_000), WAIT_MS).body) == 4_000_000
    assert processor.threads == {IO}


@pytest.mark.parametrize("code, size, thread", [
    (PULL, 7_000, IO), (PULL, 10_000, ALONE), (SEND, 20_000, IO), (SEND, 40_000, IO), (SEND, 70_000, ALONE)])
def test_large_header_is_served_apart_unless_it_is_a_sends(server, client, code, size, thread):
    processor = Processor(echo)
    server.register_processor(code, processor)
    asked = request(code)
    asked.ext_fields = {"x": "x" * size}
    assert client.invoke_sync(address(server), asked, WAIT_MS).ext_fields == asked.ext_fields
    assert processor.threads == {thread}


def test_pool_of_a_code_serves_what_is_not_too_large_for_it(server, client):
    processor, pool = Processor(echo), NamedThreadPool("Pool_", 1, 10)
    server.register_processor(LOCK, processor, pool)
    for size, thread in ((20_000, "Pool_1"), (large_requests.ALONE, "Pool_1"), (large_requests.ALONE + 1, ALONE)):
        processor.threads.clear()
        assert client.invoke_sync(address(server), request(LOCK, b"x" * size), WAIT_MS).code == 0
        assert processor.threads == {thread}, size
    pool.shutdown()


@pytest.mark.parametrize("code", BODY_LIMITS, ids=code_name)
def test_body_beyond_limit_is_refused_with_number_and_limit(server, client, code):
    processor, limit = Processor(echo), BODY_LIMITS[code]
    server.register_processor(code, processor)
    if limit.max_bytes < 16 << 20:  # else the frame's limit comes first
        answer = client.invoke_sync(address(server), request(code, b"x" * (limit.max_bytes + 1)), WAIT_MS)
        assert answer.code == 1 and answer.remark == (
            f"the body of {code_name(code)} has {limit.max_bytes + 1} bytes, the limit is {limit.max_bytes}")
    marks = limit.marks[:1] * (limit.max_elements + 1)
    answer = client.invoke_sync(address(server), request(code, marks.ljust(17_000)), WAIT_MS)
    assert answer.code == 1 and f"has {limit.max_elements + 1} elements, counted by " in answer.remark
    assert answer.remark.endswith(f"the limit is {limit.max_elements}") and not processor.threads
    fine = marks[1:].ljust(17_000)
    assert client.invoke_sync(address(server), request(code, fine), WAIT_MS).code == 0


def test_others_are_served_while_a_large_one_is(server, client):
    gate = Gate()
    server.register_processor(HEART_BEAT, gate)
    with Raw(server) as other:
        other.send(frame_of(HEART_BEAT, 1, b"x" * 20_000))
        assert gate.begun.wait(240)
        assert client.invoke_sync(address(server), request(ECHO, b"x"), WAIT_MS).body == b"x"
        gate.opened.set()
        assert other.read().opaque == 1


def test_one_is_served_at_a_time_and_connections_take_turns(server):
    gate = Gate()
    server.register_processor(HEART_BEAT, gate)
    large = b"x" * 20_000
    with Raw(server) as first, Raw(server) as many, Raw(server) as one:
        first.send(frame_of(HEART_BEAT, 0, large))
        assert gate.begun.wait(240)
        many.send(b"".join(frame_of(HEART_BEAT, opaque, large) for opaque in range(1, 5)))
        wait_until(lambda: server.large_requests.waiting() == 4, WAIT_MS, "four wait")
        one.send(frame_of(HEART_BEAT, 9, large))
        wait_until(lambda: server.large_requests.waiting() == 5, WAIT_MS, "five wait")
        gate.opened.set()
        assert one.read().opaque == 9
        assert [many.read().opaque for _ in range(4)] == [1, 2, 3, 4]
    assert [opaque for _, opaque in gate.served] == [0, 1, 9, 2, 3, 4]


def test_connection_with_too_many_waiting_is_told_that_the_system_is_busy(server):
    gate = Gate()
    server.register_processor(HEART_BEAT, gate)
    large = b"x" * 20_000
    with Raw(server) as peer:
        peer.send(frame_of(HEART_BEAT, 0, large))
        assert gate.begun.wait(240)
        peer.send(b"".join(frame_of(HEART_BEAT, opaque, large) for opaque in range(1, 7)))
        for opaque in (5, 6):
            answer = peer.read()
            assert (answer.opaque, answer.code) == (opaque, 2)
            assert answer.remark == ("[OVERLOAD]system busy, HEART_BEAT (34) is large and 4 large requests of this "
                                        "connection wait already, start flow control for a while")
        gate.opened.set()
        assert [peer.read().opaque for _ in range(5)] == [0, 1, 2, 3, 4]


def test_all_connections_together_have_a_limit_of_bytes(server, monkeypatch):
    monkeypatch.setattr(large_requests, "MAX_WAITING_BYTES", 50_000)
    gate = Gate()
    server.register_processor(HEART_BEAT, gate)
    with Raw(server) as first, Raw(server) as second, Raw(server) as third:
        first.send(frame_of(HEART_BEAT, 0, b"x" * 20_000))
        assert gate.begun.wait(240)
        first.send(frame_of(HEART_BEAT, 1, b"x" * 20_000))
        second.send(frame_of(HEART_BEAT, 2, b"x" * 20_000))
        wait_until(lambda: server.large_requests.waiting() == 2, WAIT_MS, "two wait")
        third.send(frame_of(HEART_BEAT, 3, b"x" * 20_000))
        answer = third.read()
        assert answer.code == 2 and "bytes of large requests wait already" in answer.remark
        gate.opened.set()
        assert second.read().opaque == 2
        third.send(frame_of(HEART_BEAT, 4, b"x" * 20_000))
        assert third.read().opaque == 4


def test_one_way_request_beyond_limit_gets_no_answer(server, client):
    processor = Processor(echo)
    server.register_processor(HEART_BEAT, processor)
    with Raw(server) as peer:
        peer.send(json_frame(b"[" * 500_000, code=HEART_BEAT, flag=2))
        peer.send(frame_of(ECHO, 2))
        assert peer.read().opaque == 2
    assert not processor.threads


def test_connection_whose_frames_take_long_lets_others_have_their_turn(server, monkeypatch):
    monkeypatch.setattr("rmqha.remoting.io_thread.TURN_NS", 0)
    with Raw(server) as peer, Raw(server) as other:
        count = 2000
        peer.send(b"".join(frame_of(ECHO, opaque) for opaque in range(count)) + frame_of(ECHO, count)[:-3])
        other.send(frame_of(ECHO, 7))
        assert other.read().opaque == 7
        assert [peer.read().opaque for _ in range(count)] == list(range(count))
        peer.send(frame_of(ECHO, count)[-3:])
        assert peer.read().opaque == count


def test_frame_error_behind_a_pause_closes_the_connection(server, monkeypatch):
    monkeypatch.setattr("rmqha.remoting.io_thread.TURN_NS", 0)
    with Raw(server) as peer:
        peer.send(b"".join(frame_of(ECHO, opaque) for opaque in range(5)) + struct.pack(">i", -1))
        assert [peer.read().opaque for _ in range(5)] == list(range(5))
        assert peer.is_closed()


def subscription(index):
    return {"classFilterMode": False, "codeSet": [-12345678, 7], "expressionType": "TAG", "subString": "a||b",
            "subVersion": 1700000000000, "tagsSet": ["a", "b"], "topic": f"namespace%topic-{index}"}


def queue(index):
    return {"brokerName": "broker-a", "queueId": index % 16, "topic": f"namespace%topic-{index // 16}"}


def topic(index):
    return {"order": False, "perm": 6, "readQueueNums": 8, "topicFilterType": "SINGLE_TAG", "topicName": f"t-{index}",
            "topicSysFlag": 0, "writeQueueNums": 8}


@pytest.mark.parametrize("code, body", [
    (request_code.HEART_BEAT, {"clientID": "c", "consumerDataSet": [
        {"groupName": "g", "subscriptionDataSet": [subscription(index) for index in range(10_000)]}]}),
    (request_code.LOCK_BATCH_MQ, {"consumerGroup": "g", "mqSet": [queue(index) for index in range(20_000)]}),
    (request_code.REGISTER_BROKER, {"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 1, "timestamp": 2},
        "topicConfigTable": {f"t-{index}": topic(index) for index in range(50_000)}}}),
], ids=lambda value: code_name(value) if isinstance(value, int) else "")
def test_limits_leave_room_for_the_largest_real_bodies(code, body):
    data = json.dumps(body, separators=(",", ":")).encode()
    limit: BodyLimit = BODY_LIMITS[code]
    assert limit.bytes_excess(code, data) is None and limit.elements_excess(code, data) is None
