"""Waking all threads that wait for one event, at almost no cost while no thread waits.

    putting thread --wakeup_all()--> [notified, one flag per waiter] --> WriteSocketService, one per slave
"""
import threading


class _Waiter:
    __slots__ = ("notified",)

    def __init__(self) -> None:
        # set by wakers, cleared by the waiter before it checks for work
        self.notified = False


class WaitNotifyObject:
    """An event with a flag per waiting thread: a wake-up that arrives while a thread works ends its next wait.

    The Condition signals that some waiter's flag was set. Setting flags needs no lock: a waiter clears its flag before
    it checks for work, so a waker that finds the flag already set knows that the waiter will see its change.

    Java: org.apache.rocketmq.store.ha.WaitNotifyObject (4.9.8)
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._waiters: dict[int, _Waiter] = {}  # thread id -> its flag; guarded by _changed
        # the same flags, replaced as a whole under _changed and read without it
        self._flags: tuple[_Waiter, ...] = ()
        # number of waiters that wait or are about to; guarded by _changed, read by wakers without it
        self._asleep = 0

    def wakeup_all(self) -> None:
        """Wake all waiters. Cheap without waiters, or when all have been woken already."""
        news = False
        for waiter in self._flags:
            if not waiter.notified:
                waiter.notified = news = True
        # The order matters: set the flag, then read `_asleep`. all_wait_for_running does it the other way round.
        if news and self._asleep:
            with self._changed:
                self._changed.notify_all()

    def all_wait_for_running(self, interval_ms: float) -> None:
        """Wait for the next `wakeup_all`, up to `interval_ms`; return at once if one came since the last wait."""
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
        """Unregister the calling thread, which will not wait again."""
        with self._changed:
            self._waiters.pop(threading.get_ident(), None)
            self._flags = tuple(self._waiters.values())

    @property
    def waiting_threads(self) -> int:
        """The number of registered threads."""
        return len(self._flags)

    def _register(self) -> _Waiter:
        with self._changed:
            waiter = self._waiters[threading.get_ident()] = _Waiter()
            # It may have missed a change that happened before it was registered.
            waiter.notified = True
            self._flags = tuple(self._waiters.values())
            return waiter
