"""The IO thread: one thread that waits on all sockets of a server or a client.

    sockets, Waker --select--> IO thread: read -> decode -> serve (inline, or to an executor) -> one write a channel
    other threads  --post-->   [tasks] -> IO thread: register, watch for writable, close

Only this thread touches the selector, reads, and closes sockets.

- `QuickEpollSelector`, `QuickPollSelector`: selectors with a short path for the most common outcome, in which each
  microsecond counts: one socket has bytes to read, and nothing else happened.
- `BegunFrames`: limits the total size of the incomplete frames of all connections. An untrusted peer needs no more than
  a connection to make a server keep 16 MiB; over the limit, the connection whose frame began first is closed.
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
    """An EpollSelector that makes little of the commonest outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: select.epoll

    def select(self, timeout: float | None = None) -> _Ready:
        """As the class above; a `timeout` (s) that is not above 0 does not wait."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(timeout if timeout is None or timeout > 0 else 0, len(descriptors) or 1)
        if len(ready) == 1 and ready[0][1] == select.EPOLLIN and ready[0][0] in descriptors:
            return [(descriptors[ready[0][0]], _EVENT_READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


class QuickPollSelector(selectors.PollSelector):
    """A PollSelector that makes little of the commonest outcome."""

    _fd_to_key: dict[int, selectors.SelectorKey]  # the class above's own
    _selector: "select.poll"  # a type for the checker: at run time it is a function

    def select(self, timeout: float | None = None) -> _Ready:
        """As the class above."""
        descriptors = self._fd_to_key
        ready = self._selector.poll(None if timeout is None else max(0, math.ceil(timeout * 1000)))
        if len(ready) == 1 and ready[0][1] == select.POLLIN:  # poll is told of what is registered, and of nothing else
            return [(descriptors[ready[0][0]], _EVENT_READ)]
        return [(descriptors[fd], _events(event) & descriptors[fd].events) for fd, event in ready if fd in descriptors]


def _events(event: int) -> int:
    """EVENT_READ and EVENT_WRITE of what the system says; an error or a hang-up is both."""
    return (event & ~select.EPOLLIN and selectors.EVENT_WRITE) | (event & ~select.EPOLLOUT and selectors.EVENT_READ)


log = logging.getLogger("RocketmqRemoting")

# Differs: 4.9 keeps what any number of connections begins
MAX_BEGUN_BYTES = 16 * FRAME_MAX_LENGTH


class BegunFrames:
    """What is kept of frames whose end has not come. For the IO threads of any number of servers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes_of: OrderedDict[Channel, int] = OrderedDict()  # the one that began first comes first; by _lock
        self._sum = 0  # guarded by _lock

    @property
    def all_bytes(self) -> int:
        """That are kept now."""
        return self._sum

    def note(self, channel: Channel, size: int, begins: bool) -> None:
        """A connection has so many bytes of a frame, which `begins` with what was read now.

        When there are too many of all, the connections that began first are closed, but not the last one.
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
            log.warning("%d bytes of frames have begun, the connection whose frame began first is closed: %s, %d bytes",
                        MAX_BEGUN_BYTES, parse_channel_remote_addr(one), held)
            one.close()


READ_BUFFER_SIZE = 256 << 10  # bytes read from one socket per round
PROGRESS_SIZE = 1024  # bytes in one read that count as progress though no frame is complete
TURN_NS = 10_000_000  # of one connection in a round, when what it has sent takes long to serve
TICK_MS = 1000
ACCEPTS_PER_ROUND = 64
MAX_FAILURES = 10  # of the selector in a row, in about 5 s
TLS_HANDSHAKE_TIMEOUT_NS = 10 * 1_000_000_000  # from a connection's first byte on
# accept() with these: the connection is gone, and another one may wait behind it
_GONE_ALREADY = (errno.ECONNABORTED, errno.EINTR, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENOPROTOOPT,
                 errno.EHOSTDOWN, errno.ENONET, errno.EHOSTUNREACH, errno.EOPNOTSUPP, errno.ENETUNREACH)

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Handler = Callable[[int], None]


class ChannelHandler(Protocol):
    """What a server or client does with its channels; all on the IO thread."""

    def on_accept(self, connected: socket.socket, address: tuple[str, int]) -> None:
        """A new connection on a listening socket."""

    def on_first_byte(self, channel: Channel, first: int) -> "ssl.SSLContext | None":
        """A connection's first byte: the context when TLS is to be spoken. May close the channel."""

    def on_command(self, channel: Channel, command: RemotingCommand) -> None:
        """A command has arrived."""

    def on_closed(self, channel: Channel) -> None:
        """The connection is gone."""

    def on_idle(self, channel: Channel) -> None:
        """Nothing moved for too long; it is being closed."""

    def on_exception(self, channel: Channel, error: BaseException) -> None:
        """Reading or serving failed; it is being closed."""

    def on_tick(self) -> None:
        """About once a second."""


class IoThread(ServiceThread):
    """Selects, reads, decodes, hands to its ChannelHandler, and writes what is queued at the end of each round.

    However it ends, its listener and its channels are closed then; `on_failed` is told when nobody had asked it to.

    Java: io.netty.channel.nio.NioEventLoop
    """

    max_failures = MAX_FAILURES

    def __init__(self, name: str, handler: ChannelHandler, max_idle_seconds: int) -> None:
        super().__init__()
        self.name = name
        self.handler = handler
        self.max_idle_ns = max_idle_seconds * 1_000_000_000  # 0: never idle
        self.tick_ms = TICK_MS
        self.express_lane: ExpressLane | None = None  # set before the start
        self.begun_frames = BegunFrames()  # before the start, the IO threads of one process may share theirs
        self.channels: set[Channel] = set()  # IO thread
        self.now_ns = 0  # IO thread: monotonic time of this round
        self._selector: selectors.BaseSelector = None  # type: ignore[assignment]  # IO thread; made by start
        self._waker: Waker | None = None  # made by start
        self._ident = 0  # of the IO thread, while it runs
        self._tasks: deque[Callable[[], None]] = deque()  # appended under _posting, taken by the IO thread
        self._posting = threading.Lock()
        self._ended = False  # guarded by _posting: the loop is over, tasks run where they are posted
        self._buffer = memoryview(bytearray(READ_BUFFER_SIZE))  # IO thread: one read at a time
        self._listener: socket.socket | None = None  # IO thread
        self._accepting = True  # IO thread; False while descriptors are short
        self._handshakes: dict[Channel, int] = {}  # IO thread: begun, and the monotonic time until which they may take

    def get_service_name(self) -> str:
        """The thread's name."""
        return self.name

    def start(self) -> None:
        """Start the thread, once."""
        if self._waker is None and not self._ended:
            self._selector, self._waker = QuickEpollSelector(), Waker()
            self._selector.register(self._waker, selectors.EVENT_READ, lambda _events: self._waker.drain())
            if self._listener is not None:
                self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            self._waker.wakeup()  # tasks may wait already
            try:
                super().start()
            except RuntimeError:  # no more threads: what nobody serves must not look as if somebody did
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
        """Run `task` on the IO thread: at once when called there, or when the thread is no more; else soon."""
        if not self.is_current_thread():
            with self._posting:
                if not self._ended:
                    self._tasks.append(task)
                    self.wakeup()
                    return
        task()

    def answers(self, timeout_s: float) -> bool:
        """Whether the thread lives, and gets to a task within `timeout_s`."""
        came = threading.Event()
        self.post(came.set)
        return came.wait(timeout_s) and self.is_alive()

    def listen(self, listener: socket.socket) -> None:
        """Accept connections of a listening, non-blocking socket; the IO thread closes it. Before `start`."""
        self._listener = listener

    def add(self, channel: Channel) -> None:
        """Serve a channel."""
        self.post(functools.partial(self._add, channel))

    def update_interest(self, channel: Channel) -> None:
        """Watch for what the channel waits for: bytes to read, room to write."""
        self.post(functools.partial(self._update_interest, channel))

    def released(self, channel: Channel) -> None:
        """Serve the channel again, which was held."""
        with self._posting:  # never at once: it may be called by what serves a command of the channel
            if not self._ended:
                self._tasks.append(functools.partial(self._release, channel))
                self.wakeup()

    def closed(self, channel: Channel) -> None:
        """The channel was closed: forget it and close its socket."""
        self.post(functools.partial(self._remove, channel))

    def run(self) -> None:
        """Select and serve until stopped; then close everything."""
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
        """The selector would name it again at once: a channel goes for good."""
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
            except OSError as error:  # gone already
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
        except (OSError, ValueError) as error:  # the system watches no more descriptors
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
        # Differs: a trickle of bytes that completes no frame does not keep a connection from being idle.
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
        """The next turn of a connection whose frames took too long for one round."""
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
        """A connection's first `size` bytes are in the buffer: how many stay when TLS is taken off. As a read."""
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
                # Differs: Netty serves all that was read; its pools, not this thread, do the work
                decoder.pause(view, position)
                channel.is_behind = True
                self._tasks.append(functools.partial(self._catch_up, channel))
                self.wakeup()
                return
        decoder.end(view, position)

    @staticmethod
    def _is_clogged(channel: Channel) -> bool:
        """Whether so much is unwritten because the peer does not read, and not because this round is not over."""
        channel.send_queued()
        return channel.pending_bytes > channel.high_water_mark

    def _undecodable(self, channel: Channel, error: Exception) -> None:
        """Answer what came before, say why in one line, close."""
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
