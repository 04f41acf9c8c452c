"""`Answers`: recent answers to questions, for any number of viewers.

    get --new enough--> the kept answer, at once
        --older, but not too old--> the kept answer, at once; meanwhile one thread asks again
        --too old, or none--> ask and wait; others that ask the same wait for this answer

If an older answer may be returned, one that takes long to get counts as new for longer, so that asking takes at most
SHARE of the time.
"""
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rmqha.common.threads import NamedThreadPool, RejectedExecutionError

log = logging.getLogger("RocketmqTools")

T = TypeVar("T")

SHARE = 0.1
_MAX_ANSWERS = 400
# Questions that are asked again at the same time.
_THREADS = 2
_MAX_WAITING = 100


@dataclass(frozen=True)
class _Kept(Generic[T]):
    """An answer; monotonic times until which it is new enough, and may be returned at all."""

    answer: T
    new_until_s: float
    until_s: float


@dataclass
class _Asking(Generic[T]):
    """A question that a thread is asking, or will ask. `ended` is set once the answer or the error is there."""

    is_begun: bool = False  # guarded by Answers._lock
    ended: threading.Event = field(default_factory=threading.Event)
    answer: T | None = None
    error: BaseException | None = None


class Answers:
    """A cache of recent answers by question. Thread-safe. `shutdown` ends its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # In the order in which they were given; guarded by _lock.
        self._kept: dict[object, _Kept[object]] = {}
        # Replaced by `forget`, so that no caller takes an answer from before a change; guarded by _lock.
        self._asking: dict[object, _Asking[object]] = {}
        self._pool = NamedThreadPool("QuestionThread_", _THREADS, _MAX_WAITING)

    def shutdown(self) -> None:
        """End the threads. A question that is being asked gets no answer any more."""
        self._pool.shutdown(1_000)

    def get(self, question: object, ttl_s: float, ask: Callable[[], T], stale_s: float = 0.0) -> T:
        """Return the answer to a question, or raise what `ask` raises.

        `ttl_s`: so long an answer is new enough. `stale_s`: so much longer it is returned nevertheless, while a thread
        asks again. If that fails, the error is raised once the answer is too old.
        """
        now = time.monotonic()
        with self._lock:
            kept = self._kept.get(question)
            if kept is not None and now < kept.until_s:
                if now >= kept.new_until_s and question not in self._asking:
                    self._ask_later(question, ttl_s, ask, stale_s)
                return kept.answer  # type: ignore[return-value]  # the same question has the same type of answer
            asking = self._asking.get(question)
            if asking is None:
                asking = self._asking[question] = _Asking()
        # Unless a thread is asking already: do not wait for a thread that may be busy with other questions.
        self._ask(question, asking, ttl_s, ask, stale_s)
        asking.ended.wait()
        if asking.error is not None:
            raise asking.error
        return asking.answer  # type: ignore[return-value]  # as above

    def has(self, question: object) -> bool:
        """Return whether `get` would return an answer at once."""
        with self._lock:
            kept = self._kept.get(question)
            return kept is not None and time.monotonic() < kept.until_s

    def later(self, work: Callable[[], object]) -> None:
        """Do some work on another thread, such as questions whose answers will be needed soon."""
        with contextlib.suppress(RejectedExecutionError):  # shut down
            self._pool.submit(work)

    def forget(self) -> None:
        """Clear the cache, after a change. Answers to questions that were asked before are not kept."""
        with self._lock:
            self._kept.clear()
            self._asking = {}

    def _ask_later(self, question: object, ttl_s: float, ask: Callable[[], T], stale_s: float) -> None:
        """Ask again on another thread. Called under _lock."""
        asking = self._asking[question] = _Asking()
        try:
            self._pool.submit(self._ask, question, asking, ttl_s, ask, stale_s)
        except RejectedExecutionError:  # shut down
            del self._asking[question]

    def _ask(self, question: object, asking: _Asking[T], ttl_s: float, ask: Callable[[], T], stale_s: float) -> None:
        """Ask, unless another thread has begun to."""
        with self._lock:
            if asking.is_begun:
                return
            asking.is_begun = True
        begin = time.monotonic()
        try:
            asking.answer = ask()
        except BaseException as error:  # `get` raises it
            asking.error = error
        end = time.monotonic()
        with self._lock:
            if self._asking.get(question) is asking:
                del self._asking[question]
                if asking.error is None:
                    new_until_s = end + (max(ttl_s, (end - begin) / SHARE) if stale_s else ttl_s)
                    self._kept.pop(question, None)
                    self._kept[question] = _Kept(asking.answer, new_until_s, new_until_s + stale_s)
                    while len(self._kept) > _MAX_ANSWERS:
                        del self._kept[next(iter(self._kept))]
                elif (kept := self._kept.get(question)) is not None:
                    log.info("no newer answer to %s: %s", question, asking.error)
                    # Do not ask again at once.
                    self._kept[question] = _Kept(kept.answer, end + ttl_s, kept.until_s)
        asking.ended.set()
