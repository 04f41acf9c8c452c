"""One connection: a socket, and the queue of what is to be sent.

    any thread  --write--> [queue of buffers] --flush--> socket
    IO thread   --writable--> resumes where the socket was full;  reads;  is the only one to close the socket

The order of answers
--------------------
Many threads answer requests of one connection: the IO thread, the threads of pools, and those that complete a flush or
a replication. The bytes of two commands must never mix, or the peer loses the frame boundaries and with them the
connection. So there is one queue per channel, and both appending to it and sending from its head happen under the
channel's lock. A thread sends what the socket takes and leaves the rest to the IO thread, and while the socket is full
(`is_blocked`) other threads only append. Hence:

- Commands are sent whole, in the order of their `write` calls. `on_sent` callbacks belong to positions in this order.
- Answers are in the order in which requests are *completed*, which need not be the order in which they came. Requests
  that the IO thread serves inline and answers at once keep their order. One that waits for a disk or a slave, or that a
  pool serves, may be overtaken. Nothing needs more: the peer matches answers to its requests by their opaque.
- Within a round of the IO thread (rmqha.common.futures) the queue is sent once, at the end of the round, so a
  connection with many requests in one read gets all answers in one system call. More than FLUSH_IN_ROUND queued bytes
  do not wait for the end.
- If a send fails in a way that leaves unknown how many bytes went out, the connection is closed: nothing may follow.
"""
import itertools
import logging
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from rmqha.common.futures import ANSWER, at_round_end
from rmqha.remoting.addresses import plain_address
from rmqha.remoting.frame_decoder import FrameDecoder
from rmqha.remoting.protocol.remoting_command import Buffer, RemotingCommand

if TYPE_CHECKING:
    import ssl

    from rmqha.remoting.tls import TlsSocket

log = logging.getLogger("RocketmqRemoting")

# All in bytes. With more than this queued, the channel is no longer read from ...
HIGH_WATER_MARK = 4 << 20
# ... until less than this is queued.
LOW_WATER_MARK = 1 << 20
# With more than this queued, the queue is sent before the round ends.
FLUSH_IN_ROUND = 256 << 10
# A body up to this size is joined with its header into one buffer: copying it is cheaper than a second buffer.
JOIN_BELOW = 8 << 10
MAX_BUFFERS = 64  # buffers for one sendmsg

# For SO_LINGER: (switched on, seconds). With 0 seconds the last close of a socket drops what is queued in the kernel
# and sends RST; switched off, it sends what is queued and then FIN.
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
_SEND_AT_CLOSE = struct.pack("ii", 0, 0)

OnSent = Callable[[bool], None]


def water_marks(high: int, low: int) -> tuple[int, int]:
    """Return the configured marks if both are above 0, else the defaults."""
    return (high, low) if min(high, low) > 0 else (HIGH_WATER_MARK, LOW_WATER_MARK)


class ChannelLoop(Protocol):
    """A channel's IO thread, as the channel sees it. Any thread may call it.

    Java: io.netty.channel.EventLoop
    """

    def update_interest(self, channel: "Channel") -> None:
        """Make the selector watch for what the channel waits for: bytes to read, space to write."""

    def released(self, channel: "Channel") -> None:
        """Resume serving a channel that was held."""

    def closed(self, channel: "Channel") -> None:
        """Forget a channel that was closed, and close its socket."""


class Channel:
    """A connected socket, plain or TLS, with a queue of what is to be sent. It equals only itself.

    Java: io.netty.channel.Channel
    """

    __slots__ = ("remote_address", "local_address", "attributes", "decoder", "high_water_mark", "low_water_mark",
                 "receive_into", "read_bytes", "active_ns", "sent_seen", "reading_paused", "is_behind", "is_held",
                 "begun_bytes", "ended_by_peer", "_socket", "_io", "_lock", "_queue", "_queued", "_sent", "_on_sent",
                 "_blocked", "_active", "_tls", "__weakref__")

    def __init__(self, connected: "socket.socket | TlsSocket", remote_address: tuple[str, int], io: ChannelLoop,
                 high_water_mark: int = HIGH_WATER_MARK, low_water_mark: int = LOW_WATER_MARK) -> None:
        self.remote_address = remote_address
        self.local_address: tuple[str, int] = plain_address(connected.getsockname())
        # For the code that serves the channel.
        self.attributes: dict[object, object] = {}
        # The peer has closed the connection, or its process has ended. Set before the channel is closed.
        self.ended_by_peer = False
        self.high_water_mark = high_water_mark
        self.low_water_mark = low_water_mark
        # Owned by the IO thread:
        # (buffer) -> number of bytes read; 0 at the end of the stream.
        self.receive_into = connected.recv_into
        self.decoder = FrameDecoder()
        self.read_bytes = 0
        # The monotonic time of the last progress.
        self.active_ns = 0
        # _sent at the last check for idle channels.
        self.sent_seen = 0
        self.reading_paused = False
        # Frames that were read wait until the other connections had their turn. Meanwhile nothing more is read.
        self.is_behind = False
        # Not served: until the peer has read its answers, or until enough of its waiting requests have begun. Such a
        # channel also has is_behind set.
        self.is_held = False
        # The bytes of an incomplete frame, as BegunFrames counts them.
        self.begun_bytes = 0
        # Guarded by _lock:
        self._socket = connected
        self._io = io
        self._lock = threading.Lock()
        self._queue: deque[Buffer] = deque()
        self._queued = 0  # bytes ever queued
        self._sent = 0  # bytes ever sent
        # (the value of _sent from which on the callback is due, callback), in ascending order.
        self._on_sent: deque[tuple[int, OnSent]] = deque()
        # The socket was full. The IO thread resumes when it is writable.
        self._blocked = False
        # Cleared once, by the first close.
        self._active = True
        # The TLS layer around a server's socket; written by the IO thread.
        self._tls: TlsSocket | None = None

    @property
    def is_active(self) -> bool:
        """True until the channel is closed or the peer disconnects."""
        return self._active

    @property
    def is_writable(self) -> bool:
        """True while the channel is active and not more than the high-water mark is queued."""
        return self._active and self.pending_bytes <= self.high_water_mark

    @property
    def pending_bytes(self) -> int:
        """The number of queued bytes that the socket has not taken yet."""
        return self._queued - self._sent

    @property
    def is_blocked(self) -> bool:
        """True while the socket is full and the IO thread waits until it is writable."""
        return self._blocked

    @property
    def bytes_sent(self) -> int:
        """The number of bytes that the socket has taken so far."""
        return self._sent

    @property
    def is_shaking_hands(self) -> bool:
        """True while the TLS handshake of a server's connection is not done."""
        return self._tls is not None and not self._tls.is_established

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def reset_if_process_dies(self) -> None:
        """Make the kernel send RST if the process ends, in whatever way, before `close`.

        A Java client fails its calls at once when it receives RST, but after their time-outs when it receives FIN: a
        consumer's pull after 30 s. `close` undoes this, so an orderly end loses nothing that the kernel has queued.
        """
        # Differs: the connections of a server's process that dies end with RST; in the original they end with FIN
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)

    def write(self, command: RemotingCommand, on_sent: OnSent | None = None) -> None:
        """Queue `command` and send the queue: at once, or at the end of this thread's Round.

        `on_sent(ok)` is called once: with True when the socket has taken the command's last byte, with False if the
        channel is closed before. The release of a file region is called at the same time. If encoding fails, its
        exception is raised and nothing is queued.
        """
        release = command.release_region
        try:
            header = command.encode_header()
        except Exception:
            if release is not None:
                release()
            raise
        region, body = command.file_region, command.body
        if region is not None:
            buffers = [header, *(buffer for buffer in region if len(buffer))]
        elif not body:
            buffers = [header]
        else:
            buffers = [header + body] if len(body) <= JOIN_BELOW else [header, body]
        self._enqueue(buffers, on_sent, release)

    def write_encoded(self, frames: bytes) -> None:
        """Queue commands that are already encoded, and send the queue as `write` does."""
        if not at_round_end(ANSWER, self.send_queued):
            self.send_queued(frames)
            return
        with self._lock:
            if not self._active:
                return
            self._queue.append(frames)
            self._queued += len(frames)
        if self._queued - self._sent > FLUSH_IN_ROUND:
            self.send_queued()

    def _enqueue(self, buffers: list[Buffer], on_sent: OnSent | None, release: Callable[[], None] | None) -> None:
        size = sum(map(len, buffers))
        with self._lock:
            active = self._active
            if active:
                self._queue.extend(buffers)
                self._queued += size
                if release is not None:
                    self._on_sent.append((self._queued, lambda _ok: release()))
                if on_sent is not None:
                    self._on_sent.append((self._queued, on_sent))
        if not active:
            _call([on_sent, release and (lambda _ok: release())], False)
        elif not at_round_end(ANSWER, self.send_queued) or self.pending_bytes > FLUSH_IN_ROUND:
            self.send_queued()

    def send_queued(self, more: bytes = b"") -> None:
        """Append `more` to the queue, and send as much of it as the socket takes; the IO thread sends the rest."""
        # Reading it without the lock is safe: the IO thread, which unblocks the channel, sends the queue afterwards.
        if self._blocked and not more:
            return
        with self._lock:
            if not self._active:
                return
            if more:
                self._queue.append(more)
                self._queued += len(more)
            if self._blocked:
                return
            failed = self._send_queue()
            ended = self._take_ended() if self._on_sent else ()
            blocked = self._blocked
        _call(ended, True)
        if failed:
            self.close()
        elif blocked:
            self._io.update_interest(self)

    def call_when_sent(self, callback: OnSent) -> None:
        """Call `callback(True)` when everything that is queued now is sent, `callback(False)` if it is closed first.

        It is called at once if nothing is queued or the channel is closed.
        """
        with self._lock:
            active, waits = self._active, self._active and self._queued > self._sent
            if waits:
                self._on_sent.append((self._queued, callback))
        if not waits:
            _call([callback], active)

    def hold(self) -> None:
        """Serve no further requests until `release`. Only for the IO thread, while it serves a command."""
        self.is_held = True

    def release(self) -> None:
        """Undo `hold`. For any thread."""
        self._io.released(self)

    def on_writable(self) -> None:
        """Send, now that the socket takes bytes again. Only for the IO thread. OSError if a TLS handshake fails."""
        is_full = self._tls is not None and not self._tls.push()
        with self._lock:
            self._blocked = is_full
        self.send_queued()

    def close(self) -> None:
        """Close the connection and drop the queued bytes. For any thread. The IO thread closes the socket later."""
        with self._lock:
            if not self._active:
                return
            self._active = False
            self._queue.clear()
            dropped, self._on_sent = [callback for _, callback in self._on_sent], deque()
            self._shutdown_socket()
        _call(dropped, False)
        self._io.closed(self)

    def release_socket(self) -> None:
        """Close the socket. Only for the IO thread, after the channel was unregistered from the selector."""
        self._socket.close()

    def start_tls(self, context: "ssl.SSLContext", buffer: memoryview, size: int) -> int:
        """Begin TLS as the server. The first `size` received bytes are in `buffer`. Otherwise like `receive_into`."""
        # Imported late: it is slow to import, and many clusters do not use TLS.
        from rmqha.remoting.tls import TlsSocket

        with self._lock:
            self._socket = self._tls = TlsSocket(
                self._socket, context, True, self._handshake_is_blocked)  # type: ignore[arg-type]  # begun once
            self.receive_into = self._tls.recv_into
        return self._tls.decrypt_in(buffer, size)

    def _handshake_is_blocked(self) -> None:
        with self._lock:
            self._blocked = True
        self._io.update_interest(self)

    def _shutdown_socket(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_AT_CLOSE)
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # the peer has disconnected already
            log.debug("shutdown of %s: %s", self, error)

    def _send_queue(self) -> bool:
        """Send until the queue is empty or the socket is full. Return True if the connection is broken. Under _lock."""
        queue = self._queue
        while queue:
            try:
                if len(queue) == 1:
                    sent = self._socket.send(queue[0])
                else:
                    sent = self._socket.sendmsg(list(itertools.islice(queue, MAX_BUFFERS)))
            except (BlockingIOError, InterruptedError):
                self._blocked = True
                return False
            except OSError as error:
                log.info("write to %s failed: %s", self, error)
                self.ended_by_peer = is_end_by_peer(error)
                return True
            except Exception:
                # It is unknown which of the bytes were sent, so nothing may follow them.
                log.exception("write to %s failed", self)
                return True
            self._sent += sent
            while sent:
                first = queue[0]
                if sent < len(first):
                    queue[0] = memoryview(first)[sent:]
                    break
                sent -= len(first)
                queue.popleft()
        return False

    def _take_ended(self) -> list[OnSent]:
        """Remove and return the callbacks that are due. Under _lock."""
        ended = []
        while self._on_sent and self._on_sent[0][0] <= self._sent:
            ended.append(self._on_sent.popleft()[1])
        return ended

    def __repr__(self) -> str:
        local, remote = self.local_address, self.remote_address
        state = "" if self._active else " closed"
        return f"[L:{local[0]}:{local[1]} R:{remote[0]}:{remote[1]}{state}]"


def is_end_by_peer(error: OSError) -> bool:
    """Return whether the peer has ended the connection, as opposed to the network or a time-out."""
    return isinstance(error, (ConnectionResetError, BrokenPipeError))


def _call(callbacks: Sequence[OnSent | None], ok: bool) -> None:
    for callback in callbacks:
        if callback is not None:
            try:
                callback(ok)
            except Exception:
                log.exception("a callback after writing failed")
