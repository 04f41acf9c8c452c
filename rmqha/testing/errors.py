"""What goes wrong around a RocketMQ of a test, and how long that is waited for."""
import time
from collections.abc import Callable

_STEP_S = 0.002


class EmbeddedError(Exception):
    """It was asked for something that it can't do; the text says what, and what to do."""


def wait_until(predicate: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until `predicate` is true; EmbeddedError, which says `what` was waited for, when it is not in time."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            raise EmbeddedError(f"waited {timeout_s:g} s in vain until {what}")
        time.sleep(_STEP_S)
