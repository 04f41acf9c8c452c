"""Channels: writing, links that pass no data, frames split at any byte, and the quick selectors."""
import selectors
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.futures import Round
from rmqha.remoting.addresses import parse_channel_remote_addr, retransmits
from rmqha.remoting.channel import Channel
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH, FrameDecoder, FrameError
from rmqha.remoting.io_thread import QuickEpollSelector, QuickPollSelector
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from tests.faults import network
from tests.support.tiers import drawn
from tests.support.wait import wait_until

# Writing: rounds, full sockets, file regions, closed channels.


class Io:
    """Records a channel's calls to its IO thread."""

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
    """Read `size` bytes at the peer, acting as the IO thread when the socket is full."""
    data = bytearray()
    while len(data) < size:
        data += peer.recv(1 << 20)
        if channel.is_blocked:
            channel.on_writable()
    return bytes(data)


def test_write_outside_a_round_is_sent_at_once(pair):
    channel, peer, _io, _ = pair
    channel.write(response(b"abc"))
    assert peer.recv(1000) == response(b"abc").encode()
    assert channel.pending_bytes == 0


def test_writes_of_a_round_are_sent_in_one_system_call(pair):
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


def test_large_round_is_sent_before_its_end(pair):
    channel, peer, _io, _ = pair
    with Round():
        channel.write(response(bytes(300 << 10)))
        assert peer.recv(1000)


def test_write_to_a_full_socket_continues_when_it_is_writable(pair):
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


def test_region_of_a_closing_channel_is_released_once(pair):
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


def test_region_of_a_command_that_fails_to_encode_is_released(pair):
    channel, *_ = pair
    released = []
    command = response()
    command.opaque = None
    command.serialize_type = 1
    command.set_file_region([b"x"], lambda: released.append(1))
    with pytest.raises(struct.error):
        channel.write(command)
    assert released == [1] and channel.pending_bytes == 0


def test_disconnected_peer_closes_the_channel(pair):
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


def test_frames_of_many_threads_are_not_interleaved(pair):
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


def test_channels_are_equal_by_identity_and_show_their_peer(pair):
    channel, *_ = pair
    assert {channel: 1}[channel] == 1 and channel != object()
    assert parse_channel_remote_addr(channel) == "10.0.0.1:5" and parse_channel_remote_addr(None) == ""


# A link that no longer delivers is detected by the kernel's retransmissions.


def test_no_retransmits_for_good_closed_and_non_tcp_sockets():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.send(b"x")
        assert retransmits(client) == 0
    assert retransmits(client) == 0
    one, other = socket.socketpair()
    with one, other:
        assert retransmits(one) == 0


def test_bytes_that_never_arrive_are_counted_until_they_do():
    if not network.can_drop():
        pytest.skip("not installed: nft")
    seen = []
    # The thread has its own network.
    thread = threading.Thread(target=lambda: seen.append(_lost_and_found()))
    thread.start()
    thread.join(240)
    if seen == ["no network"]:
        pytest.skip("network namespaces do not work here")
    assert seen == ["lost and found"]


def _lost_and_found() -> str:
    if not network.isolate():
        return "no network"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        served, (_host, port) = server.accept()
        with served:
            rules = (f"add table inet t; add chain inet t i {{ type filter hook input priority 0; }}; "
                     f"add rule inet t i tcp dport {port} drop")
            subprocess.run(["nft", rules], check=True, timeout=600)
            served.send(b"lost")
            wait_until(lambda: retransmits(served) >= 4, 60_000, "sent repeatedly")
            assert retransmits(client) == 0
            subprocess.run(["nft", "flush", "ruleset"], check=True, timeout=600)
            wait_until(lambda: retransmits(served) == 0, 60_000, "delivered in the end")
    return "lost and found"


# Splitting frames out of a byte stream, at whatever places it is cut.


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def collect(decoder: FrameDecoder, data: bytes) -> list[bytes]:
    return [bytes(frame) for frame in decoder.feed(data)]


@given(st.lists(st.binary(min_size=4, max_size=60), max_size=8), st.lists(st.integers(1, 40), min_size=1))
def test_frames_are_whole_however_the_stream_is_cut(bodies, cuts):
    stream = b"".join(map(framed, bodies))
    decoder, frames, position, turn = FrameDecoder(), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        frames += collect(decoder, stream[position:position + size])
        position, turn = position + size, turn + 1
    assert frames == bodies and decoder.buffered == 0


def test_read_buffer_may_be_reused_after_a_feed():
    buffer = bytearray(framed(b"first") + framed(b"second")[:6])
    decoder = FrameDecoder()
    assert collect(decoder, memoryview(buffer)) == [b"first"]
    buffer[:] = b"x" * len(buffer)
    assert collect(decoder, framed(b"second")[6:]) == [b"second"]


@pytest.mark.parametrize("length", [0, 1, 3, -1, -2**31, FRAME_MAX_LENGTH - 3, 2**31 - 1])
def test_invalid_length_is_refused_after_the_frames_before_it(length):
    decoder = FrameDecoder()
    frames = decoder.feed(framed(b"good") + struct.pack(">i", length) + b"rest")
    assert bytes(next(frames)) == b"good"
    with pytest.raises(FrameError):
        next(frames)


def test_frame_of_exactly_16_mib_is_accepted():
    body = bytes(FRAME_MAX_LENGTH - 4)
    decoder, stream = FrameDecoder(), framed(body)
    frames = []
    for position in range(0, len(stream), 1 << 18):
        frames += [len(frame) for frame in decoder.feed(stream[position:position + (1 << 18)])]
    assert frames == [len(body)]


def test_memory_grows_with_received_and_not_announced_bytes():
    decoder = FrameDecoder()
    assert collect(decoder, struct.pack(">i", FRAME_MAX_LENGTH - 4) + b"abc") == []
    assert decoder.buffered == 7


@settings(max_examples=drawn(200))
@given(st.lists(st.binary(max_size=100)))
def test_arbitrary_bytes_are_frames_or_refused(pieces):
    decoder = FrameDecoder()
    try:
        for piece in pieces:
            for frame in decoder.feed(piece):
                assert len(frame) >= 4
    except FrameError as error:
        assert "frame length" in str(error)
    else:
        assert decoder.buffered <= sum(map(len, pieces))


# The quick selectors compared with Python's.

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Pairs = list[tuple[socket.socket, socket.socket]]


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Three connected pairs; the first of each is watched."""
    made = [socket.socketpair() for _ in range(3)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def nothing(_pairs: Pairs) -> None:
    """No event."""


def one_byte(pairs: Pairs) -> None:
    """One socket is readable."""
    pairs[0][1].send(b"x")


def bytes_for_all(pairs: Pairs) -> None:
    """All sockets are readable."""
    for _watched, other in pairs:
        other.send(b"x")


def hang_up(pairs: Pairs) -> None:
    """One peer closes, with unread bytes before its end."""
    pairs[1][1].send(b"x")
    pairs[1][1].close()


def half_closed(pairs: Pairs) -> None:
    """One socket receives no more bytes."""
    pairs[2][1].shutdown(socket.SHUT_WR)


def full(pairs: Pairs) -> None:
    """One socket accepts no more bytes, and has some to read."""
    pairs[0][0].setblocking(False)
    with pytest.raises(BlockingIOError):
        while True:
            pairs[0][0].send(bytes(1 << 16))
    pairs[0][1].send(b"x")


def in_order(ready: list[tuple[selectors.SelectorKey, int]]) -> list[tuple[selectors.SelectorKey, int]]:
    """Return the events sorted by descriptor."""
    return sorted(ready, key=lambda pair: pair[0].fd)


@pytest.mark.parametrize("happens", [nothing, one_byte, bytes_for_all, hang_up, half_closed, full])
@pytest.mark.parametrize("events", [(READ, READ, READ), (WRITE, READ, READ), (READ | WRITE, WRITE, READ | WRITE)])
@pytest.mark.parametrize(("quick", "plain"), [(QuickEpollSelector, selectors.EpollSelector),
                                              (QuickPollSelector, selectors.PollSelector)])
@pytest.mark.parametrize("timeout", [0, -1, 0.0005])
def test_ready_events_are_the_same(pairs: Pairs, happens: Callable[[Pairs], None], events: tuple[int, ...],
                                   quick: type[selectors.BaseSelector], plain: type[selectors.BaseSelector],
                                   timeout: float) -> None:
    with quick() as one, plain() as other:
        for (watched, _end), event in zip(pairs, events, strict=True):
            for selector in (one, other):
                selector.register(watched, event, data=event)
        happens(pairs)
        assert in_order(one.select(timeout)) == in_order(other.select(timeout))
        for selector in (one, other):
            selector.modify(pairs[0][0], READ, data="new")
            selector.unregister(pairs[1][0])
        assert in_order(one.select(timeout)) == in_order(other.select(timeout))


@pytest.mark.parametrize("quick", [QuickEpollSelector, QuickPollSelector])
def test_select_without_a_timeout_waits_for_the_first_event(pairs: Pairs, quick: type[selectors.BaseSelector]) -> None:
    with quick() as selector:
        key = selector.register(pairs[0][0], READ)
        one_byte(pairs)
        assert selector.select() == [(key, READ)]


def test_socket_closed_too_early_gives_no_event(pairs: Pairs) -> None:
    """A process that holds a copy of its descriptor keeps it in the kernel's list."""
    with QuickEpollSelector() as selector:
        selector.register(pairs[0][0], READ)
        with pairs[0][0].dup():
            pairs[0][0].close()
            selector.unregister(pairs[0][0])
            one_byte(pairs)
            assert selector.select(0) == []
