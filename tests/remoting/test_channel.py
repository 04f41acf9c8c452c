"""Writing: rounds, full sockets, regions, closed channels."""
import socket
import struct
import threading

import pytest

from rmqha.common.futures import Round
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class Io:
    """Remembers what a channel asks of its IO thread."""

    def __init__(self) -> None:
        self.interest: list[Channel] = []
        self.gone: list[Channel] = []

    def update_interest(self, channel: Channel) -> None:
        self.interest.append(channel)

    def closed(self, channel: Channel) -> None:
        self.gone.append(channel)


class CountingSocket:
    """Counts the system calls."""

    def __init__(self, inner: socket.socket) -> None:
        self.inner = inner
        self.sends = 0

    def __getattr__(self, name: str) -> object:
        if name in ("send", "sendmsg"):
            self.sends += 1
        return getattr(self.inner, name)


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    left.setblocking(False)
    io, counting = Io(), CountingSocket(left)
    channel = Channel(counting, ("10.0.0.1", 5), io, 1 << 20, 1 << 19)
    yield channel, right, io, counting
    left.close()
    right.close()


def response(body: bytes | None = None) -> RemotingCommand:
    command = RemotingCommand.create_response_command(0, None)
    command.body = body
    return command


def drain(channel: Channel, peer: socket.socket, size: int) -> bytes:
    """Read `size` bytes at the peer, being the IO thread where the socket is full."""
    data = bytearray()
    while len(data) < size:
        data += peer.recv(1 << 20)
        if channel.is_blocked:
            channel.on_writable()
    return bytes(data)


def test_write_outside_a_round_goes_out_at_once(pair):
    channel, peer, _io, _ = pair
    channel.write(response(b"abc"))
    assert peer.recv(1000) == response(b"abc").encode()
    assert channel.pending_bytes == 0


def test_writes_of_a_round_go_out_in_one_system_call(pair):
    channel, peer, _io, counting = pair
    peer.setblocking(False)
    with Round():
        for _ in range(20):
            with Round():
                channel.write(response(b"abc"))
        with pytest.raises(BlockingIOError):
            peer.recv(1)
    assert counting.sends == 1
    assert peer.recv(1 << 20) == response(b"abc").encode() * 20


def test_round_that_grows_large_does_not_wait_for_its_end(pair):
    channel, peer, _io, _ = pair
    with Round():
        channel.write(response(bytes(300 << 10)))
        assert peer.recv(1000)


def test_full_socket_is_gone_on_with_when_it_is_writable(pair):
    channel, peer, io, _ = pair
    body = bytes(range(256)) * (4 << 10)
    results = []
    for index in range(4):
        channel.write(response(body), lambda ok, index=index: results.append((index, ok)))
    assert channel.is_blocked and io.interest and not channel.is_writable and len(results) < 4
    expected = response(body).encode() * 4
    assert drain(channel, peer, len(expected)) == expected
    assert results == [(0, True), (1, True), (2, True), (3, True)]
    assert channel.is_writable and not channel.is_blocked


def test_region_is_sent_without_the_body_and_released_once(pair):
    channel, peer, _io, _ = pair
    released = []
    command = response(b"ignored")
    command.set_file_region([memoryview(b"x" * 9000), b"", memoryview(b"yz")], lambda: released.append(1))
    channel.write(command)
    data = peer.recv(1 << 20)
    assert RemotingCommand.decode(data[4:]).body == b"x" * 9000 + b"yz" and released == [1]
    channel.close()
    assert released == [1]


def test_region_of_a_channel_that_closes_is_released_once(pair):
    channel, _peer, io, _ = pair
    released, results = [], []
    for _ in range(3):
        command = response()
        command.set_file_region([bytes(1 << 20)], lambda: released.append(1))
        channel.write(command, results.append)
    assert channel.is_blocked
    channel.close()
    channel.close()
    assert released == [1, 1, 1] and results.count(False) >= 1 and io.gone == [channel]
    command = response()
    command.set_file_region([b"x"], lambda: released.append(2))
    channel.write(command, results.append)
    assert released[-1] == 2 and results[-1] is False and not channel.is_active and not channel.is_writable


def test_region_of_a_command_that_does_not_encode_is_released(pair):
    channel, *_ = pair
    released = []
    command = response()
    command.opaque = None
    command.serialize_type = 1
    command.set_file_region([b"x"], lambda: released.append(1))
    with pytest.raises(struct.error):
        channel.write(command)
    assert released == [1] and channel.pending_bytes == 0


def test_peer_that_is_gone_closes_the_channel(pair):
    channel, peer, io, _ = pair
    peer.close()
    results = []
    for _ in range(3):
        channel.write(response(b"x"), results.append)
    assert not channel.is_active and io.gone == [channel] and results[-1] is False


def test_failing_callback_does_not_stop_the_others(pair):
    channel, *_ = pair
    results = []
    with Round():
        channel.write(response(), lambda ok: 1 / 0)
        channel.write(response(), results.append)
    assert results == [True]


def test_frames_of_many_threads_are_not_mixed(pair):
    channel, peer, _io, _ = pair

    def write(letter: bytes) -> None:
        for _ in range(50):
            with Round():
                for size in (1, 100, 9000):
                    channel.write(response(letter * size))

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    size = 3 * 50 * sum(len(response(b"a" * length).encode()) for length in (1, 100, 9000))
    data = drain(channel, peer, size)
    for thread in threads:
        thread.join()
    position = 0
    while position < size:
        length = int.from_bytes(data[position:position + 4], "big")
        body = RemotingCommand.decode(data[position + 4:position + 4 + length]).body
        assert len(set(body)) == 1
        position += 4 + length


def test_channels_are_equal_by_identity_and_tell_their_peer(pair):
    channel, *_ = pair
    assert {channel: 1}[channel] == 1 and channel != object()
    assert parse_channel_remote_addr(channel) == "10.0.0.1:5" and parse_channel_remote_addr(None) == ""
