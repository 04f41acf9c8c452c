"""Waiting for a fact instead of sleeping."""
import time
from collections.abc import Callable

_STEP_S = 0.01


def wait_until(predicate: Callable[[], object], timeout_ms: int = 60_000, what: str = "") -> object:
    """Poll `predicate` until it is true and return its value; AssertionError after `timeout_ms`."""
    deadline = time.monotonic() + timeout_ms / 1000
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_ms} ms: {what or predicate}")
        time.sleep(_STEP_S)
