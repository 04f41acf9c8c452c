"""Pauses garbage collection while many long-lived objects are created at once."""
import gc
import threading


class _Pause:
    """A context manager that disables the cyclic collector for all threads. Hold it for fractions of a second only.

    It may be nested and shared by threads: the collector is enabled again when the last holder leaves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0  # guarded by _lock
        self._was_enabled = False  # guarded by _lock

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._holders += 1

    def __exit__(self, *_exc: object) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0 and self._was_enabled:
                gc.enable()


no_garbage_collection = _Pause()
