"""What a thread does once at the end of its round, however often it was asked for inside: one phase for each effect.

    REPLICATE  send the slaves what was appended   | in the order in which they were asked for
    ANSWER     write what channels have queued     |
    COUNT      statistics of what was answered       | behind all of those, in the order in which they were asked for
    WAKE       services that would compete with      |
               this thread while it writes answers
"""
import logging
import threading
from collections.abc import Callable
from types import TracebackType

log = logging.getLogger("RocketmqRemoting")

# Plain numbers: a look at an enum's member costs more than all the rest of an `at_round_end`.
REPLICATE, ANSWER, COUNT, WAKE = range(4)
_FIRST_OF_THE_LAST = COUNT

Act = Callable[[], object]


class _ThisThread(threading.local):
    acts: "dict[Act, int] | None" = None  # of this thread's round: each once, with its phase
    single = False  # the round serves one connection


_this_thread = _ThisThread()


class Round:
    """`with Round():` what `at_round_end` is told inside happens once, at the end.

    Per thread. A round inside a round joins it. Services that complete many futures wrap their batch; what they wait
    for inside a round must not depend on what they wrote in it. A thread may use one for all its rounds, but not for
    one inside another. `single`: the round serves one connection.
    """

    __slots__ = ("single", "_outermost")

    def __init__(self, single: bool = False) -> None:
        self.single = single

    def __enter__(self) -> None:
        self._outermost = _this_thread.acts is None
        if self._outermost:
            _this_thread.acts, _this_thread.single = {}, self.single

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._outermost:
            acts, _this_thread.acts = _this_thread.acts, None
            last = []
            for act, phase in acts.items():  # type: ignore[union-attr]  # this round's own
                if phase >= _FIRST_OF_THE_LAST:
                    last.append(act)
                    continue
                try:
                    act()
                except BaseException as failure:
                    _failed(act, failure)
            for act in last:
                try:
                    act()
                except BaseException as failure:
                    _failed(act, failure)


def _failed(act: Act, failure: BaseException) -> None:
    """One that fails keeps nothing from the others, nor from the thread whose round it is."""
    log.error("flushing %s at the end of a round failed", getattr(act, "__self__", act), exc_info=failure)
    if isinstance(failure, KeyboardInterrupt):  # somebody at the keyboard, on the main thread
        raise failure


def at_round_end(phase: int, act: Act) -> bool:
    """True when this thread is in a round, at whose end `act` is called in its phase; else the caller does it now."""
    acts = _this_thread.acts
    if acts is None:
        return False
    acts[act] = phase
    return True


def serves_one_connection() -> bool:
    """Whether this thread's round serves one connection: what its read has brought is all that the round brings."""
    return _this_thread.single and _this_thread.acts is not None
