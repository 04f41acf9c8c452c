"""What must not harm: wrong bytes, slow peers, too many of them. A good client beside them is always served."""
import errno
import logging
import os
import resource
import socket
import struct
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH
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
from tests.support.own_threads import own_threads
from tests.support.wait import wait_until

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
def test_wrong_bytes_close_the_connection_with_one_log_line(served, what, caplog):
    with caplog.at_level(logging.WARNING, "RocketmqRemoting"), Raw(served[0]) as raw:
        raw.send_until_closed(CLOSED[what])
        assert raw.is_closed()
        assert_unharmed(served)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1 and str(raw.socket and "127.0.0.1:") in lines[0], lines
    assert "decode exception" in lines[0]


def test_requests_before_the_wrong_bytes_are_answered(served):
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


def test_a_byte_at_a_time_is_served(served):
    with Raw(served[0]) as raw:
        for byte in json_frame(b"body", opaque=9):
            raw.send(bytes([byte]))
        assert raw.read().opaque == 9


def test_trickle_without_a_frame_is_idle():
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


def test_a_thousand_slow_peers_cost_nobody_else(served):
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


def test_connects_and_closes_leave_nothing(served):
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
    """A listening socket that is out of descriptors while `poor`."""

    poor = True
    accepts = 0

    def accept(self):
        PoorSocket.accepts += 1
        if PoorSocket.poor:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_lack_of_descriptors_neither_spins_nor_ends_the_server(monkeypatch):
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
            wait_until(lambda: PoorSocket.accepts >= 2, 60_000, "tried again after a while")
            assert PoorSocket.accepts < 50
            PoorSocket.poor = False
            raw.send(json_frame(opaque=3))
            assert raw.read().opaque == 3
    finally:
        server.shutdown()


def test_flood_of_requests_is_served_whole_beside_a_good_client(served):
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
def test_any_bytes_leave_the_server_well(served, data):
    with Raw(served[0]) as raw:
        raw.send(data)
        raw.end()
    assert_unharmed(served)
