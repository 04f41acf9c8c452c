"""A counter per thread."""
import random
import threading


class ThreadLocalIndex:
    """Counts up per thread from a random start, so that threads and producers spread over the queues.

    Java: org.apache.rocketmq.client.common.ThreadLocalIndex (4.9.8)
    """

    __slots__ = ("_local",)

    def __init__(self) -> None:
        self._local = threading.local()

    def increment_and_get(self) -> int:
        """The next number of this thread, from 0 to 2^31-1; wraps to 0."""
        index: int | None = getattr(self._local, "index", None)
        if index is None:
            index = random.getrandbits(31)
        self._local.index = index = (index + 1) & 0x7FFFFFFF
        return index
