"""Pauses garbage collection while many objects are made at once, all of which stay."""
import gc
import threading


class _Pause:
    """A context manager: within it the cyclic collector rests, for all threads. For fractions of a second."""

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
