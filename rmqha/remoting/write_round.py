"""Writing all answers of one round with one system call per connection."""
import logging
import threading
from types import TracebackType
from typing import Protocol

log = logging.getLogger("RocketmqRemoting")


class _ThisThread(threading.local):
    channels: "dict[Flushable, bool] | None" = None  # what this thread's round flushes; True: at its very end
    single = False  # the round serves one connection


_this_thread = _ThisThread()


class Flushable(Protocol):
    """What a round flushes: a channel."""

    def flush(self) -> None:
        """Write what is queued."""


class write_round:  # used like a function
    """`with write_round():` channels written to inside only queue; each is flushed once at the end.

    Per thread. A round inside a round joins it. Services that complete many futures wrap their batch; what they wait
    for inside a round must not depend on what they wrote in it. A thread may use one for all its rounds, but not for
    one inside another. `single`: the round serves one connection.
    """

    __slots__ = ("single", "_outermost")

    def __init__(self, single: bool = False) -> None:
        self.single = single

    def __enter__(self) -> None:
        self._outermost = _this_thread.channels is None
        if self._outermost:
            _this_thread.channels, _this_thread.single = {}, self.single

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._outermost:
            channels, _this_thread.channels = _this_thread.channels, None
            last = []
            for channel, is_last in channels.items():  # type: ignore[union-attr]  # this round's own
                if is_last:
                    last.append(channel)
                    continue
                try:
                    channel.flush()
                except BaseException as failure:
                    _failed(channel, failure)
            for one in last:
                try:
                    one.flush()
                except BaseException as failure:
                    _failed(one, failure)


def _failed(one: Flushable, failure: BaseException) -> None:
    """One that fails keeps nothing from the others, nor from the thread whose round it is."""
    log.error("flushing %s at the end of a round failed", one, exc_info=failure)
    if isinstance(failure, KeyboardInterrupt):  # somebody at the keyboard, on the main thread
        raise failure


def flush_at_end_of_round(channel: Flushable, last: bool = False) -> bool:
    """True when this thread is in a round, which will flush `channel`; else the caller flushes.

    What is `last` is flushed behind all answers: services that would compete with this thread while it writes them.
    """
    channels = _this_thread.channels
    if channels is None:
        return False
    channels[channel] = last
    return True


def serves_one_connection() -> bool:
    """Whether this thread's round serves one connection: what its read has brought is all that the round brings."""
    return _this_thread.single and _this_thread.channels is not None
