"""Requests that take long to decode: off the thread that reads, one at a time, the connections taking turns.

    IO thread --take--> [by connection, in the order of their turns] --> LargeRequestThread_1: hooks, processor, answer

A body is looked at only as far as its size goes before it is this request's turn; with access control on, the hook
checks the signature before anybody parses it.
"""
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from rmqha.common.protocol import request_code
from rmqha.common.protocol.table_bodies import MAX_FRAME_BYTES, BodyLimit, code_name
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand

log = logging.getLogger("RocketmqRemoting")

LARGE_HEADER = 8 << 10  # bytes of a header from which on the request is not served on the thread that reads
LARGE_HEADER_OF_SEND = 64 << 10  # the same for a send, whose properties may have 32 KiB
LARGE_BODY = 8 << 10  # bytes of a body that is parsed, from which on likewise
ALONE = 256 << 10  # bytes of a body from which on the pool of its code does not serve it, either

# Differs: 4.9 decodes as many large bodies at a time as it has threads, and queues them by the ten thousand
MAX_WAITING_BYTES = 4 * MAX_FRAME_BYTES  # of all connections
MAX_WAITING_BYTES_OF_ONE = MAX_FRAME_BYTES  # of one connection
MAX_WAITING_OF_ONE = 4  # requests

_SENDS = frozenset((request_code.SEND_MESSAGE, request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE,
                    request_code.SEND_REPLY_MESSAGE, request_code.SEND_REPLY_MESSAGE_V2))

_Work = Callable[[], None]


class LargeRequests:
    """The queue of one server, or of all servers of a broker, and the thread that serves it. `shutdown()`."""

    def __init__(self, limits: Mapping[int, BodyLimit]) -> None:
        self.limits = limits
        self._pool = NamedThreadPool("LargeRequestThread_", 1)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Channel, deque[tuple[int, _Work]]] = OrderedDict()  # guarded by _lock
        self._bytes: dict[Channel, int] = {}  # that wait, by connection; guarded by _lock
        self._all_bytes = 0  # that wait; guarded by _lock

    def take(self, channel: Channel, command: RemotingCommand, work: _Work) -> str | None:
        """Have `work` done when it is this connection's turn. None; or, when there is no room, what fills it."""
        size = command.header_length + len(command.body or b"")
        with self._lock:
            own = self._waiting.get(channel, ())
            if self._all_bytes + size > MAX_WAITING_BYTES:
                return f"{self._all_bytes} bytes of large requests wait already"
            if own and (len(own) >= MAX_WAITING_OF_ONE
                        or self._bytes[channel] + size > MAX_WAITING_BYTES_OF_ONE):
                return f"{len(own)} large requests of this connection wait already"
            self._waiting.setdefault(channel, deque()).append((size, work))
            self._bytes[channel] = self._bytes.get(channel, 0) + size
            self._all_bytes += size
        self._pool.submit(self._serve_next)
        return None

    def waiting(self) -> int:
        """Requests that wait for their turn."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def shutdown(self) -> None:
        """Finish what waits. Idempotent."""
        self._pool.shutdown()

    def _serve_next(self) -> None:
        """The first request of the connection whose turn it is; each has one task in the pool."""
        with self._lock:
            channel, own = self._waiting.popitem(last=False)
            size, work = own.popleft()
            self._all_bytes -= size
            self._bytes[channel] -= size
            if own:
                self._waiting[channel] = own  # behind all others
            else:
                del self._bytes[channel]
        if channel.is_active:  # else nobody would read the answer
            work()


def has_large_header(command: RemotingCommand) -> bool:
    """Whether what the header says may take long to read: expressions, lists, properties."""
    length = command.header_length
    return length > LARGE_HEADER and (length > LARGE_HEADER_OF_SEND or command.code not in _SENDS)


def too_busy(command: RemotingCommand, reason: str) -> str:
    """The remark for a request that finds no room."""
    return f"[OVERLOAD]system busy, {code_name(command.code)} is large and {reason}, start flow control for a while"
