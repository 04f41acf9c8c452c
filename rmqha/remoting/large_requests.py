"""Requests that take long to decode: served off the IO thread, one at a time, with the connections taking turns.

    IO thread --take--> [by connection, in the order of their turns] --> LargeRequestThread_1: hooks, processor, answer

Until a request's turn, only the size of its body is checked. With access control on, the hook checks the signature
before the body is parsed.
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

# All in bytes. A request with a longer header is not served on the IO thread.
LARGE_HEADER = 8 << 10
# The same limit for a send, whose properties may have 32 KiB.
LARGE_HEADER_OF_SEND = 64 << 10
# A request with a longer body that is to be parsed is not served on the IO thread.
LARGE_BODY = 8 << 10
# A request with a longer body is not served by the pool of its code either, but by the one thread here.
ALONE = 256 << 10

# Differs: one thread decodes all large bodies, and the number and size of those that wait are limited; 4.9 decodes as
# many at a time as it has threads, and queues up to ten thousand of them

# The limits of what waits: bytes of all connections, bytes of one connection, requests of one connection.
MAX_WAITING_BYTES = 4 * MAX_FRAME_BYTES
MAX_WAITING_BYTES_OF_ONE = MAX_FRAME_BYTES
MAX_WAITING_OF_ONE = 4

SENDS = frozenset((request_code.SEND_MESSAGE, request_code.SEND_MESSAGE_V2, request_code.SEND_BATCH_MESSAGE,
                    request_code.SEND_REPLY_MESSAGE, request_code.SEND_REPLY_MESSAGE_V2))

_Work = Callable[[], None]


class LargeRequests:
    """The queue of one server, or of all servers of a broker, and the thread that serves it. Needs a `shutdown()`."""

    def __init__(self, limits: Mapping[int, BodyLimit]) -> None:
        self.limits = limits
        self._pool = NamedThreadPool("LargeRequestThread_", 1)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Channel, deque[tuple[int, _Work]]] = OrderedDict()  # guarded by _lock
        self._bytes: dict[Channel, int] = {}  # waiting bytes by connection; guarded by _lock
        self._all_bytes = 0  # waiting bytes of all connections; guarded by _lock

    def take(self, channel: Channel, command: RemotingCommand, work: _Work) -> str | None:
        """Run `work` when it is this connection's turn. Return None, or why the request is not accepted."""
        size = command.header_length + len(command.body or b"")
        with self._lock:
            own = self._waiting.get(channel, ())
            if self._all_bytes + size > MAX_WAITING_BYTES:
                return f"{self._all_bytes} bytes of large requests are already waiting"
            if own and (len(own) >= MAX_WAITING_OF_ONE
                        or self._bytes[channel] + size > MAX_WAITING_BYTES_OF_ONE):
                return f"{len(own)} large requests of this connection are already waiting"
            self._waiting.setdefault(channel, deque()).append((size, work))
            self._bytes[channel] = self._bytes.get(channel, 0) + size
            self._all_bytes += size
        self._pool.submit(self._serve_next)
        return None

    def waiting(self) -> int:
        """Return the number of requests that wait for their turn."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def shutdown(self) -> None:
        """Serve the waiting requests, then end the thread. Idempotent."""
        self._pool.shutdown()

    def _serve_next(self) -> None:
        """Serve the first request of the connection whose turn it is. The pool has one task per waiting request."""
        with self._lock:
            channel, own = self._waiting.popitem(last=False)
            size, work = own.popleft()
            self._all_bytes -= size
            self._bytes[channel] -= size
            if own:
                self._waiting[channel] = own  # after all others
            else:
                del self._bytes[channel]
        if channel.is_active:  # otherwise the answer could not be sent
            work()


def has_large_header(command: RemotingCommand) -> bool:
    """Return whether the header may take long to decode: its expressions, lists or properties."""
    length = command.header_length
    return length > LARGE_HEADER and (length > LARGE_HEADER_OF_SEND or command.code not in SENDS)


def too_busy(command: RemotingCommand, reason: str) -> str:
    """Return the remark of the answer to a request that was not accepted."""
    return f"[OVERLOAD]system busy, {code_name(command.code)} is large and {reason}, start flow control for a while"
