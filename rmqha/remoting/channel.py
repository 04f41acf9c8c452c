"""One connection.

    any thread  --write--> [queue of buffers] --flush--> socket
    IO thread   --writable--> goes on where the socket was full;  reads;  alone closes
"""
import itertools
import logging
import socket
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

HIGH_WATER_MARK = 4 << 20  # bytes queued above which the channel is not read from
LOW_WATER_MARK = 1 << 20  # bytes queued below which it is again
FLUSH_IN_ROUND = 256 << 10  # bytes queued above which a round does not wait for its end
JOIN_BELOW = 8 << 10  # a body up to this size is copied behind its header: one buffer
MAX_BUFFERS = 64  # buffers for one sendmsg

OnSent = Callable[[bool], None]


def water_marks(high: int, low: int) -> tuple[int, int]:
    """The configured marks when both are above 0, else the defaults."""
    return (high, low) if min(high, low) > 0 else (HIGH_WATER_MARK, LOW_WATER_MARK)


class ChannelLoop(Protocol):
    """The IO thread of a channel, as the channel sees it: any thread may call it.

    Java: io.netty.channel.EventLoop
    """

    def update_interest(self, channel: "Channel") -> None:
        """Watch for what the channel waits for: bytes to read, room to write."""

    def released(self, channel: "Channel") -> None:
        """Serve the channel again, which was held."""

    def closed(self, channel: "Channel") -> None:
        """The channel was closed: forget it and close its socket."""


class Channel:
    """A connected socket, plain or TLS, with a queue of what is to be sent. Equality is identity.

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
        self.attributes: dict[object, object] = {}  # for whoever serves the channel
        self.ended_by_peer = False  # the other side has closed it, or its process has ended; set before it is closed
        self.high_water_mark = high_water_mark
        self.low_water_mark = low_water_mark
        # Owned by the IO thread:
        self.receive_into = connected.recv_into  # (buffer) -> bytes read; 0 at the end of the stream
        self.decoder = FrameDecoder()
        self.read_bytes = 0
        self.active_ns = 0  # monotonic time of the last progress
        self.sent_seen = 0  # _sent at the last look for idle channels
        self.reading_paused = False
        self.is_behind = False  # frames that were read wait for the next round; meanwhile nothing more is read
        self.is_held = False  # until its answers are read, or its requests begun; it is behind then
        self.begun_bytes = 0  # of a frame, as BegunFrames has them
        # Guarded by _lock:
        self._socket = connected
        self._io = io
        self._lock = threading.Lock()
        self._queue: deque[Buffer] = deque()
        self._queued = 0  # bytes ever queued
        self._sent = 0  # bytes ever sent
        self._on_sent: deque[tuple[int, OnSent]] = deque()  # (value of _sent from which on, callback)
        self._blocked = False  # the socket was full; the IO thread goes on when it is writable
        self._active = True  # cleared once, by the first close
        self._tls: TlsSocket | None = None  # around a server's socket; written by the IO thread

    @property
    def is_active(self) -> bool:
        """True until somebody closes it or the peer goes away."""
        return self._active

    @property
    def is_writable(self) -> bool:
        """True while less is queued than the high-water mark."""
        return self._active and self.pending_bytes <= self.high_water_mark

    @property
    def pending_bytes(self) -> int:
        """Bytes queued and not yet taken by the socket."""
        return self._queued - self._sent

    @property
    def is_blocked(self) -> bool:
        """True while the socket is full and the IO thread waits for it to be writable."""
        return self._blocked

    @property
    def bytes_sent(self) -> int:
        """Bytes that the socket has taken so far."""
        return self._sent

    @property
    def is_shaking_hands(self) -> bool:
        """True while a server's TLS connection can't be used yet."""
        return self._tls is not None and not self._tls.is_established

    def fileno(self) -> int:
        """The socket's descriptor, for selectors."""
        return self._socket.fileno()

    def write(self, command: RemotingCommand, on_sent: OnSent | None = None) -> None:
        """Queue `command`, and flush: at once, or at the end of this thread's Round.

        `on_sent(ok)` is called once: True when the socket has taken the last byte, False when the channel is closed
        before. A file region's release is called then, too. Raises what encoding raises, with nothing queued.
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
        """`write` of commands that are encoded already."""
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
        """Write what is queued, and `more`, as much as the socket takes; the IO thread writes the rest."""
        if self._blocked and not more:  # unguarded look: whoever unblocks it flushes as well
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
        """`callback(True)` when all that is queued now is sent, `callback(False)` when that won't be; at once if so."""
        with self._lock:
            active, waits = self._active, self._active and self._queued > self._sent
            if waits:
                self._on_sent.append((self._queued, callback))
        if not waits:
            _call([callback], active)

    def hold(self) -> None:
        """Serve no more of what comes until `release`. Only by the IO thread, while it serves a command."""
        self.is_held = True

    def release(self) -> None:
        """Undo `hold`. From any thread."""
        self._io.released(self)

    def on_writable(self) -> None:
        """The socket takes bytes again. Only by the IO thread. OSError when a handshake can't go on."""
        is_full = self._tls is not None and not self._tls.push()
        with self._lock:
            self._blocked = is_full
        self.send_queued()

    def close(self) -> None:
        """End the connection; what is queued is dropped. From any thread: the IO thread closes the socket, soon."""
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
        """Close the socket. Only by the IO thread, after it was unregistered."""
        self._socket.close()

    def start_tls(self, context: "ssl.SSLContext", buffer: memoryview, size: int) -> int:
        """Be the server of a TLS connection whose first `size` bytes stand in `buffer`; then as `receive_into`."""
        from rmqha.remoting.tls import TlsSocket  # heavy, and many clusters have none

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
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # the peer was faster
            log.debug("shutdown of %s: %s", self, error)

    def _send_queue(self) -> bool:
        """Send until the queue is empty or the socket full. True when the connection is broken. Under _lock."""
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
            except Exception:  # what of the buffers is out is not known: nothing may follow it
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
        """The callbacks of what is sent. Under _lock."""
        ended = []
        while self._on_sent and self._on_sent[0][0] <= self._sent:
            ended.append(self._on_sent.popleft()[1])
        return ended

    def __repr__(self) -> str:
        local, remote = self.local_address, self.remote_address
        state = "" if self._active else " closed"
        return f"[L:{local[0]}:{local[1]} R:{remote[0]}:{remote[1]}{state}]"


def is_end_by_peer(error: OSError) -> bool:
    """Whether the other side has ended the connection, and not the network or a time-out."""
    return isinstance(error, (ConnectionResetError, BrokenPipeError))


def _call(callbacks: Sequence[OnSent | None], ok: bool) -> None:
    for callback in callbacks:
        if callback is not None:
            try:
                callback(ok)
            except Exception:
                log.exception("a callback after writing failed")
