"""Numbers and flags that several threads change. Reads take no lock: one attribute load is atomic under the GIL."""
import threading

from rmqha.common.java_compat import int32, int64


class AtomicLong:
    """A 64-bit signed counter that wraps like Java's.

    Java: java.util.concurrent.atomic.AtomicLong
    """

    __slots__ = ("_value", "_lock")
    _wrap = staticmethod(int64)

    def __init__(self, value: int = 0) -> None:
        self._value = value  # written under _lock
        self._lock = threading.Lock()

    def get(self) -> int:
        """The value now."""
        return self._value

    def set(self, value: int) -> None:
        """Replace the value."""
        with self._lock:
            self._value = self._wrap(value)

    def add_and_get(self, delta: int) -> int:
        """Add and return the new value."""
        with self._lock:
            self._value = value = self._wrap(self._value + delta)
            return value

    def get_and_add(self, delta: int) -> int:
        """Add and return the value before."""
        with self._lock:
            before = self._value
            self._value = self._wrap(before + delta)
            return before

    def increment_and_get(self) -> int:
        """Add 1 and return the new value."""
        return self.add_and_get(1)

    def decrement_and_get(self) -> int:
        """Take 1 away and return the new value."""
        return self.add_and_get(-1)

    def get_and_increment(self) -> int:
        """Add 1 and return the value before."""
        return self.get_and_add(1)

    def compare_and_set(self, expected: int, value: int) -> bool:
        """Set `value` if the value is `expected`."""
        with self._lock:
            if self._value != expected:
                return False
            self._value = self._wrap(value)
            return True

    def set_max(self, value: int) -> bool:
        """Raise to `value`, which the type holds; False when it is not higher."""
        with self._lock:
            if value <= self._value:
                return False
            self._value = value
            return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


class AtomicInteger(AtomicLong):
    """A 32-bit signed counter that wraps like Java's.

    Java: java.util.concurrent.atomic.AtomicInteger
    """

    __slots__ = ()
    _wrap = staticmethod(int32)


class AtomicBoolean:
    """A flag with compare-and-set.

    Java: java.util.concurrent.atomic.AtomicBoolean
    """

    __slots__ = ("_value", "_lock")

    def __init__(self, value: bool = False) -> None:
        self._value = value  # written under _lock
        self._lock = threading.Lock()

    def get(self) -> bool:
        """The value now."""
        return self._value

    def set(self, value: bool) -> None:
        """Replace the value."""
        with self._lock:
            self._value = value

    def compare_and_set(self, expected: bool, value: bool) -> bool:
        """Set `value` if the value is `expected`."""
        with self._lock:
            if self._value != expected:
                return False
            self._value = value
            return True
