"""The IO thread: one thread that waits on all sockets of a server or a client.

    sockets, Waker --select--> IO thread: read -> decode -> serve (inline, or to an executor) -> one write per channel
    other threads  --post-->   [tasks] -> IO thread: register, watch for writable, close

Only this thread uses the selector, reads, and closes sockets.

Frames and rounds
-----------------
The thread works in rounds: select, one read of each ready socket, the frames of these reads, the posted tasks, and at
the end everything that the round has deferred (rmqha.common.futures). All requests of a round therefore share the costs
that do not depend on their number: one system call to the slaves, one per channel for the answers. The more requests
arrive, the more a round holds, and the cheaper each one becomes.

The price is that connections wait for one another, so a round has to be short, whatever one peer sends:

- A round reads a socket once, at most READ_BUFFER_SIZE bytes. What remains in the socket makes it ready again.
- When the frames of one read take longer than TURN_NS, the rest are kept in the decoder and served after the other
  connections have had their turn (`is_behind`). Otherwise one read full of small but expensive requests would delay
  the heartbeats of all other clients.
- A peer that sends requests but does not read the answers is not served further once more than the high-water mark is
  queued for it (`is_held`), so it can't fill the memory with answers.
- A round runs only the tasks that were posted before it got to them. Tasks that post tasks do not keep it from reading.
- Nothing that is served inline may block. It would block all connections, and it must not wait for an answer either:
  the bytes that the answer depends on are sent at the end of this very round.

While a channel is behind or held it is not read from. Its bytes stay in the kernel, TCP's window closes, and the peer
has to wait. `active_ns` advances with complete frames and reads of PROGRESS_SIZE, so a trickle of bytes does not keep a
connection from being idle.

Other parts
-----------
- `QuickEpollSelector`, `QuickPollSelector`: selectors with a short path for the most common outcome, in which each
  microsecond counts: one socket has bytes to read, and nothing else happened.
- `BegunFrames`: limits the total size of the incomplete frames of all connections. An untrusted peer needs only a
  connection to make a server keep 16 MiB. Over the limit, the connection whose frame began first is closed.
"""
import errno
import functools
import logging
import math
import select
import selectors
import socket
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rmqha.common.futures import Round
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import Waker
from rmqha.remoting.addresses import parse_channel_remote_addr, plain_address
from rmqha.remoting.channel import Channel, is_end_by_peer
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH, LENGTH_FIELD_SIZE, FrameError
from rmqha.remoting.interfaces import ExpressLane
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    import ssl


_EVENT_READ = selectors.EVENT_READ
_Ready = list[tuple[selectors.SelectorKey, int]]


class QuickEpollSelector(selectors.EpollSelector):
    """An EpollSelector with a short path for the most common outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: select.epoll

    def select(self, timeout: float | None = None) -> _Ready:
        """Select like the base class. A `timeout` (s) of 0 or less does not wait."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(timeout if timeout is None or timeout > 0 else 0, len(descriptors) or 1)
        if len(ready) == 1 and ready[0][1] == select.EPOLLIN and ready[0][0] in descriptors:
            return [(descriptors[ready[0][0]], _EVENT_READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


class QuickPollSelector(selectors.PollSelector):
    """A PollSelector with a short path for the most common outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: "select.poll"  # a type only for the checker; at run time it is a function

    def select(self, timeout: float | None = None) -> _Ready:
        """Select like the base class."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(None if timeout is None else max(0, math.ceil(timeout * 1000)))
        # Unlike epoll, poll reports only descriptors that are registered now.
        if len(ready) == 1 and ready[0][1] == select.POLLIN:
            return [(descriptors[ready[0][0]], _EVENT_READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


def _events(event: int) -> int:
    """Convert the system's events to EVENT_READ and EVENT_WRITE. An error or a hang-up becomes both."""
    return (event & ~select.EPOLLIN and selectors.EVENT_WRITE) | (event & ~select.EPOLLOUT and selectors.EVENT_READ)


log = logging.getLogger("RocketmqRemoting")

# Differs: the incomplete frames of all connections are limited in total; 4.9 keeps those of any number of connections
MAX_BEGUN_BYTES = 16 * FRAME_MAX_LENGTH


class BegunFrames:
    """The sizes of all incomplete frames. The IO threads of several servers can share one object."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Ordered by the time when the frames began, oldest first; guarded by _lock.
        self._bytes_of: OrderedDict[Channel, int] = OrderedDict()
        self._sum = 0  # guarded by _lock

    @property
    def all_bytes(self) -> int:
        """The total number of bytes kept now."""
        return self._sum

    def note(self, channel: Channel, size: int, begins: bool) -> None:
        """Record that a connection keeps `size` bytes of an incomplete frame. `begins`: the frame is a new one.

        If the total is too large, the connections whose frames began first are closed, except for the last one.
        """
        closed: list[tuple[Channel, int]] = []
        with self._lock:
            self._sum += size - self._bytes_of.get(channel, 0)
            if size == 0:
                self._bytes_of.pop(channel, None)
                return
            self._bytes_of[channel] = size
            if begins:
                self._bytes_of.move_to_end(channel)
            while self._sum > MAX_BEGUN_BYTES and len(self._bytes_of) > 1:
                closed.append(self._bytes_of.popitem(last=False))
                self._sum -= closed[-1][1]
        for one, held in closed:
            log.warning("incomplete frames exceed %d bytes; closing the connection with the oldest: %s, %d bytes",
                        MAX_BEGUN_BYTES, parse_channel_remote_addr(one), held)
            one.close()


# The most bytes that a round reads from one socket.
READ_BUFFER_SIZE = 256 << 10
# A read of this many bytes counts as progress even if no frame is complete.
PROGRESS_SIZE = 1024
# The time that a round spends on the frames of one connection.
TURN_NS = 10_000_000
TICK_MS = 1000
ACCEPTS_PER_ROUND = 64
# The selector may fail this often in a row, which takes about 5 s.
MAX_FAILURES = 10
# From a connection's first byte on.
TLS_HANDSHAKE_TIMEOUT_NS = 10 * 1_000_000_000
# Errors of accept() that mean: this connection is gone, but the next one in the queue may be fine.
_GONE_ALREADY = (errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT,
                 errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH)

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Handler = Callable[[int], None]


class ChannelHandler(Protocol):
    """The events of a server's or client's channels. All methods are called on the IO thread."""

    def on_accept(self, connected: socket.socket, address: tuple[str, int]) -> None:
        """Take over a new connection of a listening socket."""

    def on_first_byte(self, channel: Channel, first: int) -> "ssl.SSLContext | None":
        """Return the TLS context for a connection with this first byte; None for a plain one. May close the channel."""

    def on_command(self, channel: Channel, command: RemotingCommand) -> None:
        """Handle a received command."""

    def on_closed(self, channel: Channel) -> None:
        """Handle the end of a connection."""

    def on_idle(self, channel: Channel) -> None:
        """Handle a connection that was idle for too long, and is being closed."""

    def on_exception(self, channel: Channel, error: BaseException) -> None:
        """Handle a failure in reading or serving a connection, which is being closed."""

    def on_tick(self) -> None:
        """Do periodic work; called about once a second."""


class IoThread(ServiceThread):
    """The thread that selects, reads, decodes, passes commands to its ChannelHandler, and writes at each round's end.

    However it ends, it closes its listener and its channels. If it gives up after failures, `on_failed` is called.

    Java: io.netty.channel.nio.NioEventLoop
    """

    max_failures = MAX_FAILURES

    def __init__(self, name: str, handler: ChannelHandler, max_idle_seconds: int) -> None:
        super().__init__()
        self.name = name
        self.handler = handler
        self.max_idle_ns = max_idle_seconds * 1_000_000_000  # 0: never idle
        self.tick_ms = TICK_MS
        # "IO thread": used only by the IO thread.
        self.express_lane: ExpressLane | None = None  # set before the start
        # Before the start, the IO threads of one process may be given a common object.
        self.begun_frames = BegunFrames()
        self.channels: set[Channel] = set()  # IO thread
        self.now_ns = 0  # IO thread; the monotonic time of this round
        self._selector: selectors.BaseSelector = None  # type: ignore[assignment]  # IO thread; set by start
        self._waker: Waker | None = None  # set by start
        self._ident = 0  # the thread's id, while it runs
        # Appended to under _posting, taken by the IO thread.
        self._tasks: deque[Callable[[], None]] = deque()
        self._posting = threading.Lock()
        # The loop has ended, so tasks run where they are posted. Guarded by _posting.
        self._ended = False
        self._buffer = memoryview(bytearray(READ_BUFFER_SIZE))  # IO thread; holds one read at a time
        self._listener: socket.socket | None = None  # IO thread
        self._accepting = True  # IO thread; False while the process is out of descriptors
        # IO thread; the monotonic time by which each begun TLS handshake has to be done.
        self._handshakes: dict[Channel, int] = {}

    def get_service_name(self) -> str:
        """Return the thread's name."""
        return self.name

    def start(self) -> None:
        """Start the thread, once."""
        if self._waker is None and not self._ended:
            self._selector, self._waker = QuickEpollSelector(), Waker()
            self._selector.register(self._waker, selectors.EVENT_READ, lambda _events: self._waker.drain())
            if self._listener is not None:
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            self._waker.wakeup()  # tasks may be waiting already
            try:
                super().start()
            except RuntimeError:
                # The thread could not be started. The open port must not look as if it were served.
                self._close_all()
                raise

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop, close everything, join. Idempotent."""
        super().shutdown(interrupt)
        if self._waker is None and self._listener is not None:  # never started
            self._listener.close()

    def wakeup(self) -> None:
        """End the current select."""
        if self._waker is not None:
            self._waker.wakeup()

    def is_current_thread(self) -> bool:
        """True on the IO thread."""
        return threading.get_ident() == self._ident

    def post(self, task: Callable[[], None]) -> None:
        """Run `task` on the IO thread, or at once if this is the IO thread, or if the IO thread has ended."""
        if not self.is_current_thread():
            with self._posting:
                if not self._ended:
                    self._tasks.append(task)
                    self.wakeup()
                    return
        task()

    def answers(self, timeout_s: float) -> bool:
        """Return whether the thread is alive and runs a task within `timeout_s`."""
        came = threading.Event()
        self.post(came.set)
        return came.wait(timeout_s) and self.is_alive()

    def listen(self, listener: socket.socket) -> None:
        """Accept connections from a non-blocking listening socket, which the IO thread closes. Before `start`."""
        self._listener = listener

    def add(self, channel: Channel) -> None:
        """Begin to serve a channel."""
        self.post(functools.partial(self._add, channel))

    def update_interest(self, channel: Channel) -> None:
        """Make the selector watch for what the channel waits for: bytes to read, space to write."""
        self.post(functools.partial(self._update_interest, channel))

    def released(self, channel: Channel) -> None:
        """Resume serving a channel that was held."""
        # Never at once, not even on the IO thread: the caller may be in the middle of serving the channel's command.
        with self._posting:
            if not self._ended:
                self._tasks.append(functools.partial(self._release, channel))
                self.wakeup()

    def closed(self, channel: Channel) -> None:
        """Forget a channel that was closed, and close its socket."""
        self.post(functools.partial(self._remove, channel))

    def run(self) -> None:
        """Select and serve until stopped, then close everything."""
        log.info("%s service started", self.get_service_name())
        self._ident = threading.get_ident()
        try:
            self.keep_going(self._serve_until_stopped)
        finally:
            self._close_all()
            log.info("%s service end", self.get_service_name())

    def _serve_until_stopped(self) -> None:
        next_tick, writes, failed_rounds = 0, Round(), 0
        while not self.stopped:
            events = self._selector.select(self.tick_ms / 1000)
            self.now_ns = time.monotonic_ns()
            writes.single = len(events) == 1
            failed = False
            with writes:
                for key, mask in events:
                    try:
                        key.data(mask)
                    except BaseException as error:
                        failed = True
                        self._event_failed(key, error)
                if self._tasks:
                    self._run_tasks()
            if self.now_ns >= next_tick:
                next_tick = self.now_ns + self.tick_ms * 1_000_000
                self._tick()
            failed_rounds = failed_rounds + 1 if failed else 0
            if failed:
                self._pause_after(failed_rounds)

    def _event_failed(self, key: selectors.SelectorKey, error: BaseException) -> None:
        """Close the channel of a failed event for good. Otherwise the selector would report it again at once."""
        log.error("%s: handling an event failed", self.name, exc_info=error)
        if isinstance(key.fileobj, Channel):
            self._close_for_good(key.fileobj)

    def _close_for_good(self, channel: Channel) -> None:
        for act in (channel.send_queued, channel.close, functools.partial(self._remove, channel),
                    channel.release_socket):
            try:
                act()
            except BaseException as error:
                log.error("%s: closing %s failed", self.name, channel, exc_info=error)

    def _run_tasks(self) -> None:
        for _ in range(len(self._tasks)):
            try:
                self._tasks.popleft()()
            except BaseException as error:
                log.error("%s: a task failed", self.name, exc_info=error)

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                connected, address = self._listener.accept()  # type: ignore[union-attr]  # it was registered
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE_ALREADY:
                    log.warning("accept failed: %s", error)
                    continue
                log.error("accept failed: %s; not accepting for %d ms", error, self.tick_ms)
                self._selector.unregister(self._listener)  # type: ignore[arg-type]  # it was registered
                self._accepting = False
                return
            connected.setblocking(False)
            try:
                self.handler.on_accept(connected, plain_address(address))
            except OSError as error:  # the peer has disconnected already
                log.info("connection from %s failed: %s", address, error)
                connected.close()
            except BaseException:
                log.exception("connection from %s failed", address)
                connected.close()

    def _add(self, channel: Channel) -> None:
        if self._ended or not channel.is_active:
            channel.close()
            channel.release_socket()
            self.handler.on_closed(channel)
            return
        channel.active_ns = self.now_ns
        self.channels.add(channel)
        try:
            self._selector.register(channel, selectors.EVENT_READ, functools.partial(self._serve, channel))
        except (OSError, ValueError) as error:  # the system's limit of watched descriptors
            log.error("can't serve %s: %s", channel, error)
            self._close_for_good(channel)
            return
        if channel.is_blocked:
            self._update_interest(channel)

    def _update_interest(self, channel: Channel) -> None:
        if channel not in self.channels:
            return
        mark = channel.low_water_mark if channel.reading_paused else channel.high_water_mark
        channel.reading_paused = channel.is_blocked and channel.pending_bytes > mark
        events = 0 if channel.reading_paused or channel.is_behind else selectors.EVENT_READ
        if channel.is_blocked:
            events |= selectors.EVENT_WRITE
        key = self._selector.get_key(channel)
        if key.events != events:
            self._selector.modify(channel, events, key.data)

    def _remove(self, channel: Channel) -> None:
        if channel in self.channels:
            self.channels.discard(channel)
            self.begun_frames.note(channel, 0, False)
            try:
                self._selector.unregister(channel)
            finally:
                channel.release_socket()
                self.handler.on_closed(channel)

    def _serve(self, channel: Channel, events: int) -> None:
        if channel not in self.channels:  # closed earlier in this round
            return
        try:
            if events & _WRITE:
                channel.on_writable()
                self._update_interest(channel)
                if not channel.is_active:
                    return
            if events & _READ:
                self._read(channel)
        except BaseException as error:
            log.error("serving %s failed", channel, exc_info=error)
            try:
                self.handler.on_exception(channel, error)
            finally:
                channel.close()

    def _read(self, channel: Channel) -> None:
        try:
            size = channel.receive_into(self._buffer)
            if channel.read_bytes == 0 and size:
                size = self._first_read(channel, size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            log.log(logging.WARNING if channel.is_shaking_hands else logging.INFO, "read from %s failed: %s",
                    parse_channel_remote_addr(channel), error)
            channel.ended_by_peer = channel.is_active and is_end_by_peer(error)
            self.handler.on_exception(channel, error)
            channel.close()
            return
        if size == 0:
            channel.ended_by_peer = channel.is_active
            channel.close()
            return
        # Differs: a trickle of bytes that completes no frame does not keep a connection from being idle
        if size >= PROGRESS_SIZE:
            channel.active_ns = self.now_ns
        channel.read_bytes += size
        self._serve_frames(channel, self._buffer[:size])

    def _serve_frames(self, channel: Channel, data: memoryview) -> None:
        try:
            self._decode(channel, data)
        except (FrameError, RemotingCommandException) as error:
            self._undecodable(channel, error)
        buffered = channel.decoder.buffered
        if (buffered or channel.begun_bytes) and channel.is_active:
            self.begun_frames.note(channel, buffered, buffered != channel.begun_bytes + len(data))
            channel.begun_bytes = buffered
        if channel.is_blocked or channel.is_behind:
            self._update_interest(channel)

    def _release(self, channel: Channel) -> None:
        if channel.is_held:
            channel.is_held = False
            self._catch_up(channel)

    def _catch_up(self, channel: Channel) -> None:
        """Continue with a connection whose frames took too long for one round, or that was held."""
        if channel not in self.channels:
            return
        channel.is_behind = False
        try:
            self._serve_frames(channel, memoryview(b""))
            if not channel.is_behind:
                self._update_interest(channel)
        except Exception as error:
            log.exception("serving %s failed", channel)
            self.handler.on_exception(channel, error)
            channel.close()

    def _first_read(self, channel: Channel, size: int) -> int:
        """Handle a connection's first `size` bytes in the buffer. Return the number of plain bytes, like a read."""
        context = self.handler.on_first_byte(channel, self._buffer[0])
        if context is None:
            return size if channel.is_active else 0
        channel.read_bytes = size
        self._handshakes[channel] = self.now_ns + TLS_HANDSHAKE_TIMEOUT_NS
        return channel.start_tls(context, self._buffer, size)

    def _decode(self, channel: Channel, data: memoryview) -> None:
        lane, decoder = self.express_lane, channel.decoder
        view, position, turn_ends_ns = decoder.begin(data), 0, 0
        while position < len(view):
            if lane is not None:
                served = lane.serve(channel, view, position)
                if served > position:
                    channel.active_ns, position = self.now_ns, served
                    if channel.is_held:
                        decoder.pause(view, position)
                        channel.is_behind = True
                        return
                    if position == len(view):
                        return
            frame = decoder.frame_at(view, position)
            if frame is None:
                break
            position += LENGTH_FIELD_SIZE + len(frame)
            channel.active_ns = self.now_ns
            self.handler.on_command(channel, RemotingCommand.decode(frame))
            if not channel.is_active:
                return
            if channel.pending_bytes > channel.high_water_mark and self._is_clogged(channel):
                channel.hold()
                channel.call_when_sent(lambda _ok: channel.release())
            if channel.is_held:
                decoder.pause(view, position)
                channel.is_behind = True
                return
            if turn_ends_ns == 0:
                turn_ends_ns = time.monotonic_ns() + TURN_NS
            elif position < len(view) and time.monotonic_ns() > turn_ends_ns:
                # Differs: the thread that reads serves the frames of one connection for 10 ms at a time; Netty serves
                # everything that was read, because its pools do the work, not its thread
                decoder.pause(view, position)
                channel.is_behind = True
                self._tasks.append(functools.partial(self._catch_up, channel))
                self.wakeup()
                return
        decoder.end(view, position)

    @staticmethod
    def _is_clogged(channel: Channel) -> bool:
        """Return whether the peer does not read its answers, as opposed to this round not having sent them yet."""
        channel.send_queued()
        return channel.pending_bytes > channel.high_water_mark

    def _undecodable(self, channel: Channel, error: Exception) -> None:
        """Log why in one line, send the answers to the earlier requests, and close."""
        log.error("decode exception, %s: %s", parse_channel_remote_addr(channel), error)
        channel.send_queued()
        channel.close()

    def _tick(self) -> None:
        for look in (self._accept_again, self._check_handshakes, self._check_all_idle, self.handler.on_tick):
            try:
                look()
            except BaseException as error:
                log.error("%s: the tick failed", self.name, exc_info=error)

    def _accept_again(self) -> None:
        if not self._accepting and self._listener is not None:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            self._accepting = True

    def _check_handshakes(self) -> None:
        for channel, deadline in list(self._handshakes.items()):
            if not (channel.is_active and channel.is_shaking_hands):
                del self._handshakes[channel]
            elif self.now_ns > deadline:
                log.warning("TLS handshake timed out, %s", parse_channel_remote_addr(channel))
                self.handler.on_exception(channel, TimeoutError("TLS handshake"))
                channel.close()

    def _check_all_idle(self) -> None:
        if self.max_idle_ns:
            for channel in list(self.channels):
                self._check_idle(channel)

    def _check_idle(self, channel: Channel) -> None:
        if channel.bytes_sent != channel.sent_seen:
            channel.sent_seen = channel.bytes_sent
            channel.active_ns = self.now_ns
        elif self.now_ns - channel.active_ns > self.max_idle_ns:
            self.handler.on_idle(channel)
            channel.close()

    def _close_all(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for channel in list(self.channels):
            self._close_for_good(channel)
        with self._posting:
            self._ended = True
        while self._tasks:
            self._run_tasks()
        self._ident = 0
        if self._waker is not None:
            self._waker.close()
        self._selector.close()
