"""Waking all threads that wait for one event, at next to no cost while none waits.

    putting thread --wakeup_all()--> [notified, one flag per waiter] --> WriteSocketService, one per slave
"""
import threading


class _Waiter:
    __slots__ = ("notified",)

    def __init__(self) -> None:
        self.notified = False  # set by wakers, cleared by the waiter before it looks at its work


class WaitNotifyObject:
    """Each waiting thread has a flag of its own: a wake-up that comes while it works makes its next wait return.

    The Condition announces "some waiter's flag was set". Setting flags needs no lock: a waiter clears its flag before
    it looks at its work, so a waker that finds the flag set knows that its news will be seen.

    Java: org.apache.rocketmq.store.ha.WaitNotifyObject (4.9.8)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiters: dict[int, _Waiter] = {}  # thread id -> its flag; guarded by _changed
        self._flags: tuple[_Waiter, ...] = ()  # the same, replaced whole under _changed and read without it
        self._asleep = 0  # waiters that are about to wait or do; guarded by _changed, peeked at by wakers

    def wakeup_all(self) -> None:
        """Wake all waiters. Cheap when there are none, and when all were woken already."""
        news = False
        for waiter in self._flags:
            if not waiter.notified:
                waiter.notified = news = True
        # Order matters: the flag first, then the peek; all_wait_for_running does it the other way round.
        if news and self._asleep:
            with self._changed:
                self._changed.notify_all()

    def all_wait_for_running(self, interval_ms: float) -> None:
        """Wait until the next `wakeup_all`, or `interval_ms`; return at once when there was one since the last wait."""
        waiter = self._waiters.get(threading.get_ident()) or self._register()
        if waiter.notified:
            waiter.notified = False
            return
        with self._changed:
            self._asleep += 1
            if not waiter.notified:
                self._changed.wait(interval_ms / 1000)
            self._asleep -= 1
        waiter.notified = False

    def remove_from_waiting_thread_table(self) -> None:
        """The calling thread will wait no more."""
        with self._changed:
            self._waiters.pop(threading.get_ident(), None)
            self._flags = tuple(self._waiters.values())

    @property
    def waiting_threads(self) -> int:
        """How many threads are registered."""
        return len(self._flags)

    def _register(self) -> _Waiter:
        with self._changed:
            waiter = self._waiters[threading.get_ident()] = _Waiter()
            waiter.notified = True  # what happened before it was registered may be news to it
            self._flags = tuple(self._waiters.values())
            return waiter
