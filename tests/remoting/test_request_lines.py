"""Answers that nobody reads, requests of one connection, and frames that have begun: no peer costs the others much."""
import struct
import threading
from contextlib import ExitStack

import pytest

from rmqha.common.threads import NamedThreadPool
from rmqha.remoting import io_thread, request_lines
from rmqha.remoting.protocol.header_codec import SYSTEM_BUSY
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.remoting.support import Processor, Raw, echo, json_frame, running_server
from tests.support.wait import wait_until

CODE = 7
LARGE = bytes(2 << 20)
MARKS = {"writeBufferHighWaterMark": 1 << 20, "writeBufferLowWaterMark": 1 << 19}


class Counting:
    """Answers with a large body, and counts what it was asked."""

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
def test_answers_that_nobody_reads_end_the_serving_of_their_connection_alone(pool, in_pool):
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


def test_one_connection_leaves_threads_and_places_to_the_others(pool):
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


def test_no_request_of_a_closed_connection_is_begun(pool):
    gate, began = threading.Event(), []

    def wait_at_gate(channel, asked):
        began.append(asked.opaque)
        assert gate.wait(240)
        return echo(channel, asked)
    with running_server() as server:
        server.register_processor(CODE, Processor(wait_at_gate), pool)
        with Raw(server) as raw:
            raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(100)))
            wait_until(lambda: pool.queue_size() == 99)
        wait_until(lambda: not server.io.channels)
        gate.set()
        wait_until(lambda: pool.queue_size() == 0)
        with Raw(server) as other:
            other.send(json_frame(code=CODE, opaque=1000))
            assert other.read().opaque == 1000
        assert began == [0, 1000] and not server._request_lines._lines.get(None)


def test_requests_that_wait_have_one_sum_however_many_connections_send_them(pool, monkeypatch):
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
        wait_until(lambda: len(began) == 4)  # until a thread has begun one, it waits, too
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


def test_pool_that_is_shut_down_refuses_all(pool):
    with running_server() as server, Raw(server) as raw:
        server.register_processor(CODE, Processor(echo), pool)
        pool.shutdown()
        raw.send(b"".join(json_frame(code=CODE, opaque=number) for number in range(5)))
        assert [(one.opaque, one.code) for one in (raw.read() for _ in range(5))] == [(n, 2) for n in range(5)]


def test_frames_that_have_begun_have_one_sum(monkeypatch, caplog):
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
    assert "the connection whose frame began first is closed" in caplog.text


def test_frames_that_end_are_no_longer_counted():
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
