"""Reference counting of a resource that is deleted while others may still read it."""
import threading
import time


class ReferenceResource:
    """Counts holders; the owner counts as one. `shutdown` gives the owner's share back, the last release cleans up.

    Java: org.apache.rocketmq.store.ReferenceResource (4.9.8)
    """

    def __init__(self) -> None:
        self._ref_lock = threading.Lock()
        self.ref_count = 1  # written under _ref_lock
        self.available = True  # written under _ref_lock; once False it stays so
        self.cleanup_over = False  # written under _clean_lock
        self._clean_lock = threading.Lock()
        self._first_shutdown_ns = 0  # monotonic

    def hold(self) -> bool:
        """Take a share; False when the resource is going away."""
        with self._ref_lock:
            if self.available and self.ref_count > 0:
                self.ref_count += 1
                return True
        return False

    def shutdown(self, interval_forcibly_ms: int) -> None:
        """Refuse new holders; called again after the interval it takes the shares of those that never let go."""
        with self._ref_lock:
            if self.available:
                self.available = False
                self._first_shutdown_ns = time.monotonic_ns()
            elif self.ref_count > 0:
                if time.monotonic_ns() - self._first_shutdown_ns < interval_forcibly_ms * 1_000_000:
                    return
                self.ref_count = -1000 - self.ref_count
            else:
                return
        self.release()

    def release(self) -> None:
        """Give a share back; the last one cleans up."""
        with self._ref_lock:
            self.ref_count -= 1
            value = self.ref_count
        if value > 0:
            return
        with self._clean_lock:
            self.cleanup_over = self.cleanup(value)

    def cleanup(self, current_ref: int) -> bool:
        """Free the resource; True when it is free."""
        raise NotImplementedError

    @property
    def is_cleanup_over(self) -> bool:
        """True when nobody holds it and it is freed."""
        return self.ref_count <= 0 and self.cleanup_over
