"""Saying the same thing at most once in a while."""
import time


class RateLimit:
    """`allow(key)` is true once per interval and key. For one thread at a time, or where one more line is no harm.

    Keeps at most `MAX_KEYS` keys: a flood of new ones resets it.
    """

    MAX_KEYS = 1000

    def __init__(self, interval_ms: int) -> None:
        self._interval_ns = interval_ms * 1_000_000
        self._said: dict[object, int] = {}  # key -> when, monotonic ns

    def allow(self, key: object) -> bool:
        """Whether to say it now."""
        now = time.monotonic_ns()
        last = self._said.get(key)
        if last is not None and now - last < self._interval_ns:
            return False
        if len(self._said) >= self.MAX_KEYS:
            self._said.clear()
        self._said[key] = now
        return True
