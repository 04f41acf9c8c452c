"""Hostile or careless peers that must do no harm: invalid bytes, slow peers, large requests, and answers that stay
unread."""
import errno
import json
import logging
import os
import resource
import socket
import struct
import threading
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common.protocol import request_code
from rmqha.common.protocol.table_bodies import BODY_LIMITS, BodyLimit, code_name
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting import io_thread, large_requests, request_lines
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH
from rmqha.remoting.protocol.header_codec import SYSTEM_BUSY
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from tests.remoting.support import (
    ECHO,
    Processor,
    Raw,
    address,
    echo,
    frame,
    json_frame,
    request,
    running_client,
    running_server,
)
from tests.support.wait import own_threads, wait_until

# Peers that must do no harm: invalid bytes, slow ones, too many of them. A well-behaved client beside them is always
# served.

CLOSED = {
    "length 0": struct.pack(">i", 0),
    "length 3": struct.pack(">i", 3) + b"abc",
    "negative length": struct.pack(">i", -1),
    "above 16 MiB": struct.pack(">i", FRAME_MAX_LENGTH - 3),
    "2^31 - 1": struct.pack(">i", 2**31 - 1),
    "header beyond the frame": frame(b"{}", header_length=100),
    "unknown serialize type": frame(b"{}", kind=7),
    "no JSON": frame(b"\x00\x01\x02"),
    "deep JSON": frame(b'{"a":' * 100_000),
    "NaN": frame(b'{"code":NaN}'),
    "wrong types": frame(b'{"code":[]}'),
    "a list": frame(b"[]"),
    "binary header cut": frame(b"\0", kind=1),
    "binary header with huge fields": frame(struct.pack(">hbhiiii", 1, 0, 0, 0, 0, 0, 2**31 - 1), kind=1),
    "header above 1 MiB": frame(b'{"a":"' + bytes(1 << 20) + b'"}'),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.fixture(scope="module")
def served():
    with running_server() as server, running_client() as client:
        yield server, client
        assert client.invoke_sync(address(server), request(body=b"good"), 30_000).body == b"good"


def assert_unharmed(served) -> None:
    server, client = served
    assert client.invoke_sync(address(server), request(body=b"good"), 30_000).body == b"good"


@pytest.mark.parametrize("what", CLOSED)
def test_invalid_bytes_close_the_connection_with_one_log_line(served, what, caplog):
    with caplog.at_level(logging.WARNING, "RocketmqRemoting"), Raw(served[0]) as raw:
        raw.send_until_closed(CLOSED[what])
        assert raw.is_closed()
        assert_unharmed(served)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and str(raw.socket and "127.0.0.1:") in lines[0], lines
    assert "decode exception" in lines[0]


def test_requests_before_invalid_bytes_are_answered(served):
    with Raw(served[0]) as raw:
        raw.send(json_frame(opaque=5) + json_frame(opaque=6) + struct.pack(">i", -1) + json_frame(opaque=7))
        assert [raw.read().opaque, raw.read().opaque] == [5, 6]
        assert raw.is_closed()


def test_frame_of_exactly_16_mib_is_served(served):
    server, _ = served
    header = json_frame(code=8)[8:]
    server.register_processor(8, Processor(lambda channel, asked: echo(channel, request(body=b"%d" % len(asked.body)))))
    with Raw(server) as raw:
        raw.send(frame(header, bytes(FRAME_MAX_LENGTH - 8 - len(header))))
        assert int(raw.read().body) == FRAME_MAX_LENGTH - 8 - len(header)
    assert_unharmed(served)


def test_request_sent_byte_by_byte_is_served(served):
    with Raw(served[0]) as raw:
        for byte in json_frame(b"body", opaque=9):
            raw.send(bytes([byte]))
        assert raw.read().opaque == 9


def test_trickle_without_a_whole_frame_is_idle():
    with running_server(serverChannelMaxIdleTimeSeconds=1) as server, running_client() as client:
        with Raw(server) as raw:
            raw.socket.settimeout(0.1)

            def trickle_ends() -> bool:
                try:
                    raw.send(b"\0")
                    return raw.socket.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            raw.send(struct.pack(">i", 1000))
            wait_until(trickle_ends, 60_000, "closed")
        assert client.invoke_sync(address(server), request(), 30_000).code == 0


def test_a_thousand_slow_peers_delay_no_other_client(served):
    server, client = served
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    slow = []
    try:
        for _ in range(1000):
            slow.append(socket.create_connection(("127.0.0.1", server.local_listen_port)))
        for byte in json_frame()[:4]:
            for each in slow:
                each.sendall(bytes([byte]))
            assert_unharmed(served)
        wait_until(lambda: len(server.io.channels) >= 1000, 60_000, "all are connected")
        assert_unharmed(served)
    finally:
        for each in slow:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_until(lambda: len(server.io.channels) <= 2, 60_000, "all are gone")


def test_connecting_and_closing_leaves_nothing(served):
    server, _ = served
    before = len(os.listdir("/proc/self/fd"))
    threads = len(own_threads())
    for _ in range(500):
        socket.create_connection(("127.0.0.1", server.local_listen_port)).close()
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, 60_000, "descriptors are back")
    assert len(own_threads()) <= threads
    assert_unharmed(served)


def test_reset_connections_leave_nothing(served):
    server, _ = served
    for _ in range(50):
        peer = socket.create_connection(("127.0.0.1", server.local_listen_port))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.sendall(json_frame(bytes(5000)))
        peer.close()
    wait_until(lambda: len(server.io.channels) <= 1, 60_000, "all are gone")
    assert_unharmed(served)


class PoorSocket(socket.socket):
    """A listening socket that has no file descriptors left while `poor`."""

    poor = True
    accepts = 0

    def accept(self):
        PoorSocket.accepts += 1
        if PoorSocket.poor:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_server_out_of_descriptors_neither_spins_nor_ends(monkeypatch):
    PoorSocket.poor, PoorSocket.accepts = True, 0
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", PoorSocket)
        server = RemotingServer(ServerConfig(listenPort=0))
        listener = server._bind()
    server._bind = lambda: listener
    server.register_processor(ECHO, Processor(echo))
    server.start()
    try:
        with Raw(server) as raw:
            wait_until(lambda: PoorSocket.accepts >= 2, 60_000, "retried after a while")
            assert PoorSocket.accepts < 50
            PoorSocket.poor = False
            raw.send(json_frame(opaque=3))
            assert raw.read().opaque == 3
    finally:
        server.shutdown()


def test_flood_of_requests_is_fully_served_beside_another_client(served):
    server, _ = served
    count = 5000
    with Raw(server) as raw:
        data = b"".join(json_frame(opaque=opaque) for opaque in range(count))
        sender = threading.Thread(target=raw.send, args=(data,))
        sender.start()
        assert_unharmed(served)
        assert [raw.read().opaque for _ in range(count)] == list(range(count))
        sender.join()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=300) | st.builds(frame, st.binary(max_size=100), kind=st.integers(0, 2)))
def test_arbitrary_bytes_do_not_harm_the_server(served, data):
    with Raw(served[0]) as raw:
        raw.send(data)
        raw.end()
    assert_unharmed(served)


# Requests that take long to decode: limits, turns, and the service of other clients meanwhile.

HEART_BEAT, LOCK, PULL, SEND = 34, 41, 11, 310
IO, ALONE = "NettyServerNIOSelector_1_1", "LargeRequestThread_1"
WAIT_MS = 60_000


class Gate(Processor):
    """Serves once it is opened, and records the order of the requests."""

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


def test_large_body_is_served_on_another_thread_and_a_small_one_on_the_reading_thread(server, client):
    processor = Processor(echo)
    server.register_processor(HEART_BEAT, processor)
    for size, thread in ((100, IO), (large_requests.LARGE_BODY, IO), (large_requests.LARGE_BODY + 1, ALONE),
                         (5_000_000, ALONE)):
        processor.threads.clear()
        body = b"x" * size
        assert client.invoke_sync(address(server), request(HEART_BEAT, body), WAIT_MS).body == body
        assert processor.threads == {thread}, size


def test_large_body_of_a_send_is_served_on_the_reading_thread(server, client):
    processor = Processor(echo)
    server.register_processor(SEND, processor)
    assert len(client.invoke_sync(address(server), request(SEND, b"[" * 4_000_000), WAIT_MS).body) == 4_000_000
    assert processor.threads == {IO}


@pytest.mark.parametrize("code, size, thread", [
    (PULL, 7_000, IO), (PULL, 10_000, ALONE), (SEND, 20_000, IO), (SEND, 40_000, IO), (SEND, 70_000, ALONE)])
def test_large_header_is_served_on_another_thread_unless_it_is_of_a_send(server, client, code, size, thread):
    processor = Processor(echo)
    server.register_processor(code, processor)
    asked = request(code)
    asked.ext_fields = {"x": "x" * size}
    assert client.invoke_sync(address(server), asked, WAIT_MS).ext_fields == asked.ext_fields
    assert processor.threads == {thread}


def test_requests_up_to_the_limit_are_served_in_the_pool_of_their_code(server, client):
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
    # Otherwise the frame's limit applies first.
    if limit.max_bytes < 16 << 20:
        answer = client.invoke_sync(address(server), request(code, b"x" * (limit.max_bytes + 1)), WAIT_MS)
        assert answer.code == 1 and answer.remark == (
            f"the body of {code_name(code)} has {limit.max_bytes + 1} bytes, the limit is {limit.max_bytes}")
    marks = limit.marks[:1] * (limit.max_elements + 1)
    answer = client.invoke_sync(address(server), request(code, marks.ljust(17_000)), WAIT_MS)
    assert answer.code == 1 and f"has {limit.max_elements + 1} elements, counted by " in answer.remark
    assert answer.remark.endswith(f"the limit is {limit.max_elements}") and not processor.threads
    fine = marks[1:].ljust(17_000)
    assert client.invoke_sync(address(server), request(code, fine), WAIT_MS).code == 0


def test_others_are_served_while_a_large_request_is(server, client):
    gate = Gate()
    server.register_processor(HEART_BEAT, gate)
    with Raw(server) as other:
        other.send(frame_of(HEART_BEAT, 1, b"x" * 20_000))
        assert gate.begun.wait(240)
        assert client.invoke_sync(address(server), request(ECHO, b"x"), WAIT_MS).body == b"x"
        gate.opened.set()
        assert other.read().opaque == 1


def test_large_requests_are_served_one_at_a_time_and_connections_take_turns(server):
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


def test_connection_with_too_many_waiting_requests_gets_system_busy(server):
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
                                        "connection are already waiting, start flow control for a while")
        gate.opened.set()
        assert [peer.read().opaque for _ in range(5)] == [0, 1, 2, 3, 4]


def test_waiting_bytes_of_all_connections_are_limited(server, monkeypatch):
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
        assert answer.code == 2 and "bytes of large requests are already waiting" in answer.remark
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


def test_connection_whose_frames_take_long_lets_others_take_turns(server, monkeypatch):
    monkeypatch.setattr("rmqha.remoting.io_thread.TURN_NS", 0)
    with Raw(server) as peer, Raw(server) as other:
        count = 2000
        peer.send(b"".join(frame_of(ECHO, opaque) for opaque in range(count)) + frame_of(ECHO, count)[:-3])
        other.send(frame_of(ECHO, 7))
        assert other.read().opaque == 7
        assert [peer.read().opaque for _ in range(count)] == list(range(count))
        peer.send(frame_of(ECHO, count)[-3:])
        assert peer.read().opaque == count


def test_frame_error_after_a_pause_closes_the_connection(server, monkeypatch):
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
def test_limits_allow_the_largest_real_bodies(code, body):
    data = json.dumps(body, separators=(",", ":")).encode()
    limit: BodyLimit = BODY_LIMITS[code]
    assert limit.bytes_excess(code, data) is None and limit.elements_excess(code, data) is None


# Unread answers, the requests of one connection, and incomplete frames: no peer costs the others much.

CODE = 7
LARGE = bytes(2 << 20)
MARKS = {"writeBufferHighWaterMark": 1 << 20, "writeBufferLowWaterMark": 1 << 19}


class Counting:
    """Answers with a large body, and counts its requests."""

    def __init__(self):
        self.begun = 0

    def __call__(self, _channel, _request):
        self.begun += 1
        response = RemotingCommand.create_response_command(0, None)
        response.body = LARGE
        return response


@pytest.fixture
def pool():
    made = NamedThreadPool("Pool_", 4, 10_000)
    yield made
    made.shutdown()


@pytest.mark.parametrize("in_pool", [True, False], ids=["pool", "inline"])
def test_unread_answers_stop_the_serving_of_their_connection_only(pool, in_pool):
    counting = Counting()
    with running_server(**MARKS) as server, Raw(server) as raw, Raw(server) as bystander:
        server.register_processor(CODE, Processor(counting), pool if in_pool else None)
        server.register_processor(CODE + 1, Processor(echo), pool)
        raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(200)))
        wait_until(lambda: any(channel.pending_bytes > 1 << 20 for channel in server.io.channels))
        for number in range(20):
            bystander.send(json_frame(code=CODE + 1, opaque=number))
            assert bystander.read().opaque == number
        channel = max(server.io.channels, key=lambda one: one.pending_bytes)
        assert channel.pending_bytes < 4 * len(LARGE) and counting.begun < 10
        assert [raw.read().opaque for _ in range(200)] == list(range(200))
        wait_until(lambda: pool.queue_size() == 0)


def test_one_connection_leaves_threads_and_queue_places_to_the_others(pool):
    gate, began = threading.Event(), []

    def wait_at_gate(channel, asked):
        began.append(asked.opaque)
        assert gate.wait(240)
        return echo(channel, asked)
    with running_server() as server, Raw(server) as raw, Raw(server) as bystander:
        server.register_processor(CODE, Processor(wait_at_gate), pool)
        server.register_processor(CODE + 1, Processor(echo), pool)
        raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(1000)))
        wait_until(lambda: pool.queue_size() >= request_lines.LONG_LINE)
        for number in range(10):
            bystander.send(json_frame(code=CODE + 1, opaque=number))
            assert bystander.read().opaque == number
        assert began == [0] and pool.queue_size() <= request_lines.LONG_LINE + 1
        gate.set()
        assert sorted(raw.read().opaque for _ in range(1000)) == list(range(1000))
        assert began == list(range(1000))
        wait_until(lambda: pool.queue_size() == 0)


def test_no_request_of_a_closed_connection_is_started(pool):
    gate, began = threading.Event(), []

    def wait_at_gate(channel, asked):
        began.append(asked.opaque)
        assert gate.wait(240)
        return echo(channel, asked)
    with running_server() as server:
        server.register_processor(CODE, Processor(wait_at_gate), pool)
        with Raw(server) as raw:
            raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(100)))
            wait_until(lambda: began and pool.queue_size() == 99)
        wait_until(lambda: not server.io.channels)
        gate.set()
        wait_until(lambda: pool.queue_size() == 0)
        with Raw(server) as other:
            other.send(json_frame(code=CODE, opaque=1000))
            assert other.read().opaque == 1000
        assert began == [0, 1000] and not server._request_lines._lines.get(None)


def test_waiting_requests_share_one_limit_across_connections(pool, monkeypatch):
    monkeypatch.setattr(request_lines, "MAX_WAITING_BYTES", 5500, raising=False)
    gate, began = threading.Event(), []

    def wait_at_gate(channel, asked):
        began.append(asked.opaque)
        assert gate.wait(240)
        return echo(channel, asked)
    with running_server() as server, ExitStack() as stack:
        server.register_processor(CODE, Processor(wait_at_gate), pool)
        raws = [stack.enter_context(Raw(server)) for _ in range(12)]
        frame = json_frame(b"x" * 1000, code=CODE)
        for raw in raws[:4]:
            raw.send(frame)
        # A request counts as waiting until a thread starts it.
        wait_until(lambda: len(began) == 4)
        for raw in raws[4:9]:
            raw.send(frame)
        wait_until(lambda: pool.queue_size() == 5)
        for raw in raws[9:]:
            raw.send(frame * 2)
            raw.socket.settimeout(60)
            assert [raw.read().code for _ in range(2)] == [SYSTEM_BUSY] * 2
        sums = server._request_lines.waiting_bytes
        assert 5000 < sums.sum <= 5500
        raws[8].socket.close()
        gate.set()
        wait_until(lambda: sums.sum == 0 and pool.queue_size() == 0)
        raws[-1].send(frame)
        assert raws[-1].read().code == 0


def test_pool_that_is_shut_down_refuses_every_request(pool):
    with running_server() as server, Raw(server) as raw:
        server.register_processor(CODE, Processor(echo), pool)
        pool.shutdown()
        raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(5)))
        assert [(one.opaque, one.code) for one in (raw.read() for _ in range(5))] == [(n, 2) for n in range(5)]


def test_incomplete_frames_share_one_limit(monkeypatch, caplog):
    monkeypatch.setattr(io_thread, "MAX_BEGUN_BYTES", 1 << 20)
    size = 300_000
    begun = struct.pack(">iI", 1 << 20, 10) + bytes(size - 8)
    with running_server() as server, running_server() as other, Raw(server) as bystander:
        other.io.begun_frames = server.io.begun_frames
        sums = server.io.begun_frames
        peers = []
        for number in range(8):
            peers.append(Raw(server if number % 2 else other))
            peers[-1].send(begun)
            if number > 2:
                assert peers[number - 3].is_closed()
            known = min(number + 1, 3) * size
            wait_until(lambda known=known: sums.all_bytes == known)
        bystander.send(json_frame(bytes(20_000), code=100, opaque=5))
        assert bystander.read().opaque == 5
        wait_until(lambda: len(server.io.channels) + len(other.io.channels) == 4)
        for peer in peers:
            peer.socket.close()
        wait_until(lambda: sums.all_bytes == 0)
    assert "closing the connection with the oldest" in caplog.text


def test_completed_frames_are_no_longer_counted():
    with running_server() as server, Raw(server) as raw:
        frame = json_frame(bytes(200_000), code=100, opaque=5)
        for cut in (1, 3, 100, 150_000, len(frame) - 1):
            raw.send(frame[:cut])
            wait_until(lambda known=cut: server.io.begun_frames.all_bytes == known)
            raw.send(frame[cut:] + frame[:7])
            assert raw.read().opaque == 5
            wait_until(lambda: server.io.begun_frames.all_bytes == 7)
            raw.send(frame[7:])
            assert raw.read().opaque == 5
            wait_until(lambda: server.io.begun_frames.all_bytes == 0)
