"""A permit that is given back once."""
import threading

from rmqha.common.atomics import AtomicBoolean


class SemaphoreReleaseOnlyOnce:
    """Several parties may end a call; the first gives the permit back.

    Java: org.apache.rocketmq.remoting.common.SemaphoreReleaseOnlyOnce (4.9.8)
    """

    __slots__ = ("semaphore", "_released")

    def __init__(self, semaphore: threading.Semaphore) -> None:
        self.semaphore = semaphore
        self._released = AtomicBoolean()

    def release(self) -> None:
        """Give the permit back, the first time."""
        if self._released.compare_and_set(False, True):
            self.semaphore.release()
