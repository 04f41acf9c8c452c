"""Connections, plain and with TLS: frames cut anywhere, buffers sent in one call, and requests served separately."""
from __future__ import annotations

import contextlib
import random
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import cast

from rmqha.common.futures import Round
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting import channel as channel_module
from rmqha.remoting import io_thread, large_requests, remoting_abstract, tls
from rmqha.remoting.channel import Channel
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH, FrameDecoder
from rmqha.remoting.io_thread import IoThread
from rmqha.remoting.protocol import remoting_command
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import Buffer, RemotingCommand
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.remoting.tls import MAX_RECORD, TlsSocket, build_ssl_context
from rmqha.remoting.tls_system_config import TlsSystemConfig
from tests.fast_ways.compare_sends import pieces_of
from tests.fast_ways.way import FAST, PLAIN, Kept, Plant, Way, lowered, replaced, some_size
from tests.remoting.support import Processor, Raw, echo, running_server

# Connections: frames out of reads that are cut anywhere, buffers sent in one call, and requests served separately.

LARGEST = 4 << 20
LARGEST_CASE = 6 << 20  # total bytes of its bodies
EXPRESS = 310  # the code that a case's lane serves
# Codes: with a body limit; with a body limit and a pool; without a limit.
SHARED, POOLED, FREE = 34, 41, 999


def drawn_command(rng: random.Random, code: int, opaque: int, room: int, largest: int = LARGEST) -> RemotingCommand:
    """Return a request whose fields and body have any length."""
    command = RemotingCommand(code, 0, rng.choice([None, "why"]), opaque)
    command.serialize_type = rng.choice(list(SerializeType))
    if rng.random() < 0.7:
        command.ext_fields = {"x": "é" * some_size(rng, largest=2000), "y": "z"}
    command.body = rng.randbytes(min(room, some_size(rng, [channel_module.JOIN_BELOW, io_thread.READ_BUFFER_SIZE],
                                                     largest))) or None
    return command


# -- reading --

class _Connection:
    """The parts of a channel that IoThread reads from."""

    def __init__(self) -> None:
        self.decoder = FrameDecoder()
        self.is_active, self.is_blocked, self.is_behind, self.is_shaking_hands = True, False, False, False
        self.active_ns, self.begun_bytes, self.remote_address = 0, 0, ("10.0.0.1", 1)
        self.is_held, self.pending_bytes, self.high_water_mark = False, 0, 1

    def send_queued(self) -> None:
        """Do nothing: nothing is written here."""

    def close(self) -> None:
        """Close it, as a Channel does."""
        self.is_active = False


class _Reader:
    """A handler and express lane that record what they are given."""

    def __init__(self, lane_takes: int) -> None:
        self.lane_takes = lane_takes  # most frames per call
        self.commands: list[tuple[object, ...]] = []

    def on_command(self, _channel: Channel, command: RemotingCommand) -> None:
        """Record a command, as a ChannelHandler."""
        self.commands.append(_seen(command))

    def serve(self, _channel: Channel, data: memoryview, position: int) -> int:
        """Record frames, as an ExpressLane."""
        for _ in range(self.lane_takes):
            end = position + 4 + int.from_bytes(data[position:position + 4])
            if len(data) - position < 8 or end > len(data):
                break
            command = RemotingCommand.decode(data[position + 4:end])
            if command.code != EXPRESS:
                break
            self.commands.append(_seen(command))
            position = end
        return position


def _seen(command: RemotingCommand) -> tuple[object, ...]:
    return command.opaque, command.code, command.remark, command.ext_fields, command.body


def _one_by_one(stream: bytes, most: int) -> tuple[list[tuple[object, ...]], bool]:
    """Return the commands of a stream that arrived in one piece, and whether the connection stays open."""
    found, position = [], 0
    while len(stream) - position >= 4:
        (length,) = struct.unpack_from(">i", stream, position)
        if length < 4 or length + 4 > most:
            return found, False
        if len(stream) - position - 4 < length:
            break
        try:
            found.append(_seen(RemotingCommand.decode(stream[position + 4:position + 4 + length])))
        except RemotingCommandException:
            return found, False
        position += 4 + length
    return found, True


def compare_reading(rng: random.Random) -> Counter[str]:
    """Compare one connection's reads, in a buffer that each read reuses, with turns that end between them."""
    taken: Counter[str] = Counter()
    begin = FrameDecoder.begin

    def counted(self: FrameDecoder, data: memoryview) -> memoryview:
        taken[PLAIN if self.buffered else FAST] += 1
        return begin(self, data)
    frames, room = [], LARGEST_CASE
    for opaque in range(rng.choice([1, 3, 10, 60])):
        frames.append(drawn_command(rng, rng.choice([EXPRESS, 100]), opaque, room).encode())
        room = max(0, room - len(frames[-1]))
    if rng.random() < 0.2:
        frames.insert(rng.randint(0, len(frames)), rng.choice([
            b"\0\0\0\3abc", b"\xff\xff\xff\xff", b"\0\0\0\4\0\0\0\1", b"\0\0\0\6\0\0\0\2[]", b"\0\0\0\4\2\0\0\0"]))
    if rng.random() < 0.3:
        frames[-1] = frames[-1][:rng.randrange(len(frames[-1]) + 1)]
    has_lane = rng.random() < 0.7
    # Far more than a read has.
    most = FRAME_MAX_LENGTH if has_lane else rng.choice([FRAME_MAX_LENGTH] * 2 + [1000])
    stream = b"".join(frames)
    expected, lives = _one_by_one(stream, most)
    reader, connection = _Reader(rng.choice([0, 1, 2, 100])), _Connection()
    io = IoThread("reads", reader, 0)  # type: ignore[arg-type]  # only what is read from it
    io._update_interest = lambda _channel: None  # type: ignore[method-assign]  # there is no socket
    io.express_lane = reader if has_lane else None
    connection.decoder.max_frame_length = most
    channel = cast(Channel, connection)
    buffer = io._buffer
    with (lowered(io_thread, TURN_NS=rng.choice([0, 0, 1 << 40])), replaced(FrameDecoder, "begin", counted)()):
        for piece in pieces_of(rng, frames, len(buffer)):
            if not connection.is_active:
                break
            buffer[:len(piece)] = piece
            io._serve_frames(channel, buffer[:len(piece)])
            buffer[:len(piece)] = bytes(len(piece))
            while connection.is_behind and connection.is_active:
                io.channels.add(channel)
                io._run_tasks()
    assert len(reader.commands) == len(expected), f"{len(reader.commands)} commands, {len(expected)}"
    for one, other in zip(reader.commands, expected):
        assert one == other, f"{str(one)[:500]}, {str(other)[:500]}"
    assert connection.is_active == lives
    return taken


def _frames_wait_for_more(self: FrameDecoder, view: memoryview, position: int) -> None:
    """Let the end of a turn keep what `frame_at` last waited for."""
    self._needed = max(self._needed, 64)
    self.end(view, position)


def _body_in_the_buffer(frame: remoting_command.Buffer) -> RemotingCommand:
    """Leave the body of a request in the buffer of the read."""
    command = _decode(frame)
    if command.body is not None:
        command.body = memoryview(frame)[len(frame) - len(command.body):]
    return command


def _length_field_forgotten(self: FrameDecoder, view: memoryview, position: int) -> memoryview | None:
    """Compute the missing bytes from the end of the length field."""
    frame = _frame_at(self, view, position)
    if frame is None and self._needed > 4:
        self._needed += 4
    return frame


_decode, _frame_at = RemotingCommand.decode, FrameDecoder.frame_at


# -- writing --

class _Socket:
    """Accepts as many bytes as a case draws, and sometimes none."""

    def __init__(self, rng: random.Random, taken: Counter[str], most: int) -> None:
        self._rng, self._taken, self._most = rng, taken, most
        self.received = bytearray()

    def getsockname(self) -> tuple[str, int]:
        """Return an address, as a socket."""
        return "10.0.0.2", 2

    def recv_into(self, _buffer: memoryview) -> int:
        """Return no bytes, as a socket."""
        raise BlockingIOError

    def shutdown(self, _how: int) -> None:
        """Do nothing, as a socket."""

    def send(self, data: remoting_command.Buffer) -> int:
        """Accept some bytes, as a socket."""
        self._taken[PLAIN] += 1
        return self._take(bytes(data))

    def sendmsg(self, buffers: list[remoting_command.Buffer]) -> int:
        """Accept some bytes of several buffers, as a socket."""
        assert len(buffers) <= 1024, "more buffers than the system accepts"
        self._taken[FAST] += 1
        return self._take(b"".join(buffers))

    def _take(self, data: bytes) -> int:
        if self._rng.random() < 0.3:
            raise BlockingIOError
        size = len(data) if self._rng.random() < 0.4 else self._rng.randint(1, min(len(data), self._most))
        self.received += data[:size]
        return size


class _Io:
    """The parts of a thread that a channel calls."""

    def update_interest(self, _channel: Channel) -> None:
        """Ignore that it is full."""

    def closed(self, _channel: Channel) -> None:
        """Ignore that it is closed."""


def compare_writing(rng: random.Random) -> Counter[str]:
    """Compare the answers of rounds, with bodies and regions of any size, with their concatenated bytes."""
    taken: Counter[str] = Counter()
    expected = bytearray()
    ended: list[int] = []
    released: list[int] = []
    with lowered(channel_module, JOIN_BELOW=rng.choice([0, 100, 8 << 10]), MAX_BUFFERS=rng.choice([1, 2, 3, 64]),
                 FLUSH_IN_ROUND=rng.choice([0, 1000, 256 << 10])):
        peer = _Socket(rng, taken, rng.choice([1 << 20, 1 << 20, 5000, 30]))
        channel = Channel(peer, ("10.0.0.1", 1), _Io())  # type: ignore[arg-type]  # both have what is needed
        number, room, regions = 0, LARGEST if peer._most > 5000 else 20_000, 0
        # By number: the position after its last byte.
        due: list[int] = []
        for _ in range(rng.randint(1, 4)):
            with Round() if rng.random() < 0.8 else contextlib.nullcontext():
                for _ in range(rng.choice([1, 2, 5, 30, 100])):
                    command = drawn_command(rng, 0, number, room, LARGEST)
                    room = max(0, room - command.body_length)
                    if rng.random() < 0.3:
                        body = command.body or b""
                        cuts = sorted({0, len(body)} | {rng.randint(0, len(body))
                                                        for _ in range(rng.choice([0, 3, 70]))})
                        parts = [memoryview(body)[a:b] for a, b in zip(cuts, cuts[1:])] + [memoryview(b"")]
                        command.body = rng.choice([None, b"not this"])
                        command.set_file_region(parts, lambda at=number: released.append(at))
                        regions += 1
                    expected += command.encode()
                    if rng.random() < 0.3 and command.file_region is None:
                        channel.write_encoded(command.encode())
                        due.append(-1)
                    else:
                        channel.write(command, lambda ok, at=number: ended.append(at if ok else -1))
                        due.append(len(expected))
                    assert all(due[each] <= len(peer.received) for each in ended), "reported before it was sent"
                    number += 1
            while rng.random() < 0.5 and channel.is_blocked:
                channel.on_writable()
        while channel._queue:
            channel.on_writable()
    assert bytes(peer.received) == bytes(expected)
    assert ended == [each for each, end in enumerate(due) if end >= 0] and len(released) == regions
    assert channel.bytes_sent == len(expected) and channel.is_active
    return taken


def _rest_of_the_next_too(self: Channel) -> bool:
    """Skip the sent bytes of the first buffer also at the start of the next one."""
    before = len(self._queue)
    failed = _send_queue(self)
    if self._blocked and 1 < len(self._queue) < before:
        self._queue[0] = memoryview(self._queue[0])[1:]
    return failed


def _joined_without_its_end(self: Channel, buffers: list[remoting_command.Buffer], *rest: object) -> None:
    """Drop the buffers of a region that do not fit into one call."""
    _enqueue(self, buffers[:channel_module.MAX_BUFFERS + 2], *rest)  # type: ignore[arg-type]


def _all_ended(self: Channel) -> list[channel_module.OnSent]:
    """Report everything as sent at the first byte."""
    ended = [callback for _, callback in self._on_sent]
    self._on_sent.clear()
    return ended


_send_queue, _enqueue = Channel._send_queue, Channel._enqueue


# -- served apart --

class _Server:
    """A server that echoes requests, and counts which threads serve."""

    def __init__(self, server: RemotingServer, pool: NamedThreadPool) -> None:
        self.server = server
        self.threads: Counter[str] = Counter()
        for code, executor in ((SHARED, None), (POOLED, pool), (FREE, None)):
            server.register_processor(code, Processor(self._serve), executor)

    def _serve(self, channel: Channel, command: RemotingCommand) -> RemotingCommand:
        self.threads[PLAIN if threading.current_thread().name.startswith("Netty") else FAST] += 1
        return echo(channel, command)


@contextlib.contextmanager
def _running_server() -> Iterator[_Server]:
    pool = NamedThreadPool("Pool_", 2, 1000)
    try:
        with running_server() as server:
            yield _Server(server, pool)
    finally:
        pool.shutdown()


SERVER = Kept(_running_server)


def compare_served_apart(rng: random.Random) -> Counter[str]:
    """Check that each request gets its own answer, whichever thread serves it, and that nothing remains."""
    with SERVER.using() as kept, contextlib.ExitStack() as stack:
        limit, header = rng.choice([100, 1000, 8 << 10]), rng.choice([150, 500])
        stack.enter_context(lowered(large_requests, LARGE_HEADER=header))
        stack.enter_context(lowered(remoting_abstract, LARGE_HEADER=header, LARGE_BODY=limit, ALONE=4 * limit))
        stack.enter_context(lowered(large_requests, MAX_WAITING_OF_ONE=rng.choice([1, 4, 1000]),
                                    MAX_WAITING_BYTES=rng.choice([20_000, 1 << 26]), LARGE_HEADER_OF_SEND=300))
        before = kept.threads.copy()
        peers = [stack.enter_context(Raw(kept.server)) for _ in range(rng.randint(1, 3))]
        sent: list[list[RemotingCommand]] = []
        for peer in peers:
            commands = [drawn_command(rng, rng.choice([SHARED, POOLED, FREE]), opaque, 100_000, 30_000)
                        for opaque in range(rng.choice([1, 5, 20]))]
            peer.send(b"".join(command.encode() for command in commands))
            sent.append(commands)
        for peer, commands in zip(peers, sent):
            answers = {answer.opaque: answer for answer in (peer.read() for _ in commands)}
            assert sorted(answers) == [command.opaque for command in commands]
            for command in commands:
                answer = answers[command.opaque]
                if answer.code == 2:
                    assert "large" in (answer.remark or ""), answer.remark
                    continue
                assert answer.code == 0 and answer.body == command.body, f"a different body: {command}, {answer}"
                fields = {name: text for name, text in (command.ext_fields or {}).items() if text
                          or command.serialize_type is SerializeType.JSON}
                assert (answer.ext_fields or {}) == fields
        large = kept.server.large_requests
        assert large is not None and not large.waiting() and not large._bytes and not large._all_bytes
        return kept.threads - before


def _serve_the_last(self: large_requests.LargeRequests) -> None:
    """Release the size of the last arrived request instead of that of the served one."""
    with self._lock:
        channel, own = self._waiting.popitem(last=False)
        size, work = own.popleft()
        size = own[-1][0] if own else size
        self._all_bytes -= size
        self._bytes[channel] -= size
        if own:
            self._waiting[channel] = own
        else:
            del self._bytes[channel]
    work()


WAYS = [
    Way("frames of a read", "rmqha/remoting/frame_decoder.py::FrameDecoder",
        "a read begins where a frame does", "the beginning of a frame is copied, and so are the bytes that follow it",
        compare_reading,
        (Plant("frames left at the end of a connection's turn wait for more bytes",
               replaced(FrameDecoder, "pause", _frames_wait_for_more)),
         Plant("a body stays in the buffer of the read, which the next read overwrites",
               replaced(RemotingCommand, "decode", _body_in_the_buffer)),
         Plant("the decoder waits for four bytes more than the frame has",
               replaced(FrameDecoder, "frame_at", _length_field_forgotten)))),
    Way("answers in one call", "rmqha/remoting/channel.py::Channel._send_queue",
        "more than one buffer is queued when a round ends", "one buffer, one call", compare_writing,
        (Plant("one byte too many is skipped after a partial send",
               replaced(Channel, "_send_queue", _rest_of_the_next_too)),
         Plant("the buffers that do not fit into one call are lost",
               replaced(Channel, "_enqueue", _joined_without_its_end)),
         Plant("bytes are reported as sent too early", replaced(Channel, "_take_ended", _all_ended)))),
    Way("requests served apart", "rmqha/remoting/large_requests.py::LargeRequests",
        "a large body or header: one separate thread serves the request",
        "the thread that has read the request serves it", compare_served_apart,
        (Plant("a served request releases the size of another one that waits",
               replaced(large_requests.LargeRequests, "_serve_next", _serve_the_last)),), seeds=25),
]


# TLS: many buffers in one record, many records in one read, beside the plain bytes.

LARGEST = 4 << 20


@cache
def _contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server in test mode, and that of a client that trusts any certificate."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return build_ssl_context(False, TlsSystemConfig(tls_test_mode_enable=True)), client


class _Wire:
    """A socket that accepts any part of the bytes it is given, and returns the received bytes in any pieces."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.smooth = True  # until the handshake is done
        self.taken, self.waiting = bytearray(), bytearray()

    def send(self, data: Buffer) -> int:
        """Accept some bytes, as a socket."""
        if not self.smooth and self._rng.random() < 0.3:
            raise BlockingIOError
        size = len(data) if self.smooth or self._rng.random() < 0.5 else self._rng.randint(1, len(data))
        self.taken += data[:size]
        return size

    def recv_into(self, buffer: memoryview) -> int:
        """Return some of the received bytes, as a socket. BlockingIOError if there are none."""
        if not self.waiting:
            raise BlockingIOError
        size = min(len(buffer), len(self.waiting))
        if self._rng.random() < 0.5:
            size = self._rng.randint(1, size)
        buffer[:size] = self.waiting[:size]
        del self.waiting[:size]
        return size


class _TlsConnection:
    """A server's TLS socket, and a peer that uses only the standard library."""

    def __init__(self, rng: random.Random) -> None:
        server, client = _contexts()
        self.wire = _Wire(rng)
        self.socket = TlsSocket(self.wire, server, True)  # type: ignore[arg-type]  # it has what is needed
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.peer = client.wrap_bio(self._in, self._out)
        self.buffer = memoryview(bytearray(MAX_RECORD + rng.choice([1, 1000, 64 << 10, 240 << 10])))
        for _ in range(4):
            try:
                self.peer.do_handshake()
            except ssl.SSLWantReadError:
                pass  # the server has to send something first
            self.wire.waiting += self._out.read()
            assert self.read() == b""
            self._hear()
        assert self.socket.is_established
        self.wire.smooth = False

    def read(self) -> bytes:
        """Return all plain bytes that the server's side gets from the waiting bytes, through one reused buffer."""
        found = bytearray()
        while self.wire.waiting:
            try:
                size = self.socket.recv_into(self.buffer)
            except BlockingIOError:
                continue
            found += self.buffer[:size]
            self.buffer[:] = bytes(len(self.buffer))
        return bytes(found)

    def _hear(self) -> None:
        self._in.write(bytes(self.wire.taken))
        self.wire.taken.clear()

    def peer_writes(self, data: bytes) -> None:
        """Encrypt bytes and put them on the wire."""
        for begin in range(0, len(data), 1 << 20):
            self.peer.write(data[begin:begin + (1 << 20)])
        self.wire.waiting += self._out.read()

    def peer_reads(self) -> bytes:
        """Return the bytes that the peer has received."""
        self._hear()
        found = bytearray()
        while True:
            try:
                found += self.peer.read(1 << 20)
            except ssl.SSLWantReadError:
                return bytes(found)


def compare_tls(rng: random.Random) -> Counter[str]:
    """Compare buffers of any size in one direction, and reads of any size in the other."""
    taken: Counter[str] = Counter()
    with lowered(tls, ENCRYPT_AT_ONCE=rng.choice([100, 3000, 20_000, 256 << 10])):
        at_once, connection, room = tls.ENCRYPT_AT_ONCE, _TlsConnection(rng), LARGEST
        for _ in range(rng.choice([1, 3, 8])):
            most = min(room, at_once * 50)
            queue: list[Buffer] = []
            for _ in range(rng.choice([1, 2, 3, 70])):
                queue.append(rng.randbytes(max(1, min(most, some_size(rng, [at_once, 1 << 14], LARGEST)))))
                most = max(1, most - len(queue[-1]))
            expected = b"".join(queue)
            room = max(1, room - len(expected))
            received = bytearray()
            while queue:
                taken[FAST if len(queue) > 1 and len(queue[0]) < at_once else PLAIN] += 1
                try:
                    sent = (connection.socket.send(queue[0]) if len(queue) == 1
                            else connection.socket.sendmsg(queue[:64]))
                except BlockingIOError:
                    sent = 0
                while sent:  # as Channel does
                    if sent < len(queue[0]):
                        queue[0] = memoryview(queue[0])[sent:]
                        break
                    sent -= len(queue.pop(0))
                    if not sent:
                        break
                if rng.random() < 0.2:
                    received += connection.peer_reads()
            received += connection.peer_reads()
            assert bytes(received) == expected, f"{len(received)} bytes arrived, {len(expected)} were written"
            asked = rng.randbytes(some_size(rng, [1 << 14, len(connection.buffer)], min(room, LARGEST)))
            connection.peer_writes(asked)
            got = connection.read()
            assert got == asked, f"{len(got)} bytes were read, {len(asked)} written"
    return taken


def _gathers_behind_the_room(buffers: Sequence[Buffer]) -> Buffer:
    """Gather more buffers than fit."""
    first = buffers[0]
    if len(buffers) == 1 or len(first) >= tls.ENCRYPT_AT_ONCE:
        return memoryview(first)[:tls.ENCRYPT_AT_ONCE]
    parts, room = [], tls.ENCRYPT_AT_ONCE
    for buffer in buffers:
        parts.append(memoryview(buffer)[:room])
        room -= len(buffer)
    return b"".join(parts)


def _reads_one_record(self: TlsSocket, buffer: memoryview) -> int:
    """Decrypt one record per read."""
    try:
        size: int = self._ssl.read(len(buffer), buffer)  # type: ignore[assignment]  # a count
    except ssl.SSLWantReadError:
        return 0
    return size


def _encrypts_again(self: TlsSocket, buffers: Sequence[Buffer]) -> int:
    """Encrypt the same bytes again after a full socket."""
    self._encrypted = 0
    return _sendmsg(self, buffers)


_sendmsg = TlsSocket.sendmsg

WAYS += [
    Way("buffers under TLS", "rmqha/remoting/tls.py::TlsSocket",
        "several small buffers are encrypted together", "a part of one buffer is encrypted where it is", compare_tls,
        (Plant("the same bytes are encrypted again after the socket was full",
               replaced(TlsSocket, "sendmsg", _encrypts_again)),
         Plant("more bytes are gathered than the buffer holds", replaced(tls, "_gather", _gathers_behind_the_room)),
         Plant("only the first TLS record of a read is decrypted",
               replaced(TlsSocket, "_decrypt", _reads_one_record))), seeds=15),
]
