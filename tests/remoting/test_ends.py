"""The ends of a server's connections: RST when its process dies, and nothing lost when it closes in an orderly way."""
import contextlib
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_server import RemotingServer
from tests.remoting import ending_server
from tests.remoting.support import Processor, json_frame, running_server
from tests.support.nodes import BrokerNode, ControllerNode, NamesrvNode
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.start_as import killed_with_parent
from tests.support.tiers import drawn
from tests.support.wait import wait_until

WAIT_MS = 60_000


class Reader:
    """A client that reads only when it is told to, plain or with TLS. `received` are the bytes of the connection."""

    def __init__(self, port: int, is_tls: bool) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(WAIT_MS / 1000)
        # A small window, so that most of a large answer waits in the server's kernel.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        self.socket.connect(("127.0.0.1", port))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        if is_tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._tls = context.wrap_bio(self._incoming, self._outgoing)
            self._shake_hands(self._tls)

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(1 << 16))
        self.socket.sendall(self._outgoing.read())

    def send(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        self.socket.sendall(data)

    def read_one(self) -> None:
        """Read until some plain bytes have arrived."""
        while not self._plain(self.socket.recv(1 << 16)):
            pass

    def read_to_end(self) -> bytes:
        """Return all plain bytes until the server's FIN. ConnectionResetError when the connection ends with RST."""
        plain = bytearray()
        while data := self.socket.recv(1 << 16):
            plain += self._plain(data)
        return bytes(plain)

    def _plain(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        self._incoming.write(data)
        plain = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while piece := self._tls.read(1 << 16):
                plain += piece
        return bytes(plain)


# Processes that die.

@pytest.fixture
def in_process() -> Iterator[tuple[subprocess.Popen, int]]:
    """A server in a process of its own, and its port."""
    process = subprocess.Popen(killed_with_parent([sys.executable, "-m", ending_server.__name__]), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    yield process, int(process.stdout.readline())
    process.kill()
    process.wait(240)
    process.stdout.close()


def kill(process: subprocess.Popen, _reader: Reader) -> None:
    process.kill()


def ask_for(code: int) -> Callable[[subprocess.Popen, Reader], None]:
    return lambda _process, reader: reader.send(json_frame(code=code))


DEATHS = {"SIGKILL": kill, "os._exit": ask_for(ending_server.EXIT_AT_ONCE), "SIGSEGV": ask_for(ending_server.CRASH)}


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("death", DEATHS)
def test_process_that_dies_resets_its_connections(in_process, death, is_tls):
    process, port = in_process
    with Reader(port, is_tls) as one, Reader(port, is_tls) as other, Reader(port, False) as silent:
        for reader in (one, other):
            reader.send(json_frame(b"body"))
            reader.read_one()
        DEATHS[death](process, one)
        for reader in (one, other):
            with pytest.raises(ConnectionResetError):
                reader.read_to_end()
        # It may not have been accepted yet; the kernel resets it then, too.
        with pytest.raises(ConnectionResetError):
            silent.read_to_end()


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
def test_process_that_ends_in_order_delivers_what_the_kernel_has(in_process, is_tls):
    """The process is gone before the client reads; the kernel still sends what the process gave it, and then FIN."""
    process, port = in_process
    body = os.urandom(4 << 20)
    with Reader(port, is_tls) as reader:
        reader.send(json_frame(body))
        reader.read_one()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
        rest = reader.read_to_end()
        assert len(rest) > 1 << 16 and rest in body


# The programs.

def namesrv(folder) -> NamesrvNode:
    return NamesrvNode("rmqha", folder)


def broker(folder) -> BrokerNode:
    return BrokerNode("rmqha", folder, None)


def controller(folder) -> ControllerNode:
    return ControllerNode("rmqha", folder)


@pytest.mark.parametrize(("make", "code"), [(namesrv, 106), (broker, 26), (controller, 1005)])
def test_programs_reset_connections_when_killed_and_close_them_when_stopped(tmp_path, make, code):
    server: ServerProcess = make(tmp_path).start()
    with RawClient(server.address) as client:
        client.request(code)
        server.kill()
        with pytest.raises(ConnectionResetError):
            client.socket.recv(1)
    server.start()
    with RawClient(server.address) as client:
        client.request(code)
        server.stop()
        assert client.socket.recv(1) == b""


# Orderly closes: all paths on which a server closes a connection.

ANSWER, CLOSE = 203, 204


def shut_down(server: RemotingServer, _channel: Channel, _reader: Reader) -> None:
    server.shutdown()


def close(_server: RemotingServer, channel: Channel, _reader: Reader) -> None:
    channel.close()


def close_on_the_io_thread(_server: RemotingServer, _channel: Channel, reader: Reader) -> None:
    reader.send(json_frame(code=CLOSE))


def send_undecodable(_server: RemotingServer, _channel: Channel, reader: Reader) -> None:
    reader.send(b"\xff\xff\xff\xff")


def fail_an_event(server: RemotingServer, channel: Channel, _reader: Reader) -> None:
    io = server.io
    io.post(lambda: io._event_failed(io._selector.get_key(channel), MemoryError()))


def fail_to_serve(server: RemotingServer, _channel: Channel, reader: Reader) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    server.on_command = fail  # type: ignore[method-assign]
    reader.send(json_frame())


def be_idle(server: RemotingServer, _channel: Channel, _reader: Reader) -> None:
    server.io.max_idle_ns = 1


def give_up(server: RemotingServer, _channel: Channel, _reader: Reader) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    server.io.max_failures = 1
    server.io._tick = fail  # type: ignore[method-assign]


CLOSES = [shut_down, close, close_on_the_io_thread, send_undecodable, fail_an_event, fail_to_serve, be_idle, give_up]


def closed(end: Callable[[RemotingServer, Channel, Reader], None], is_tls: bool, size: int) -> tuple[bytes, int]:
    """Return what a client gets if it reads its answer only after the close, and how much of it the kernel had taken.

    The server has read all requests before: with unread bytes the kernel sends RST at any close.
    """
    def answer(_channel: Channel, _request: RemotingCommand) -> RemotingCommand:
        response = RemotingCommand.create_response_command(0, None)
        response.body = os.urandom(size)
        return response

    with running_server(writeBufferHighWaterMark=1 << 30, writeBufferLowWaterMark=1 << 29) as server:
        server.register_processor(ANSWER, Processor(answer))
        server.register_processor(CLOSE, Processor(lambda channel, _asked: channel.close()))
        with Reader(server.local_listen_port, is_tls) as reader:
            reader.send(json_frame(code=ANSWER))
            channel = wait_until(lambda: next((one for one in server.io.channels if one.bytes_sent or one.is_blocked),
                                              None), WAIT_MS, "an answer under way")
            end(server, channel, reader)
            wait_until(lambda: channel.fileno() == -1, WAIT_MS, "closed")
            return reader.read_to_end(), channel.bytes_sent


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("end", CLOSES, ids=lambda end: end.__name__)
def test_orderly_close_delivers_what_the_kernel_has(end, is_tls, caplog):
    caplog.set_level(logging.CRITICAL)
    got, sent = closed(end, is_tls, 4 << 20)
    assert 1 << 16 < len(got) < 4 << 20
    # The socket has also taken records of a TLS write that does not count as sent, because it is not complete.
    assert sent <= len(got) and (is_tls or sent == len(got))


@settings(max_examples=drawn(80), deadline=None, suppress_health_check=list(HealthCheck))
@given(end=st.sampled_from([shut_down, close, close_on_the_io_thread, send_undecodable]), is_tls=st.booleans(),
       size=st.one_of(st.integers(0, 1 << 18), st.integers(0, 6 << 20)))
def test_orderly_close_delivers_what_the_kernel_has_of_any_size(end, is_tls, size):
    got, sent = closed(end, is_tls, size)
    assert sent <= len(got) and (is_tls or sent == len(got))
