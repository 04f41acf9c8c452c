"""Running streaming queries on machines that have much else to do."""
from collections.abc import Callable

from tests.support.wait import wait_until

# Spark gives the Python process of a stream's source ten seconds to start, and this is not to be configured.
_TOO_SLOW = "Python worker failed to connect back"
_TRIES = 30


def run_to_end(start: Callable) -> None:
    """Start a query that ends by itself and wait for it; again when Python was too slow to start, which is before
    anything was read. Raises what ended it.
    """
    for left in reversed(range(_TRIES)):
        try:
            start().awaitTermination()
            return
        except Exception as error:
            if _TOO_SLOW not in str(error) or not left:
                raise


def run_until(start: Callable, done: Callable[[], bool]) -> None:
    """Start a query and stop it when `done`; again when Python was too slow to start. Raises what ended it before."""
    for left in reversed(range(_TRIES)):
        query = start()
        try:
            wait_until(lambda: done() or not query.isActive, 300_000, "the query to come so far")
            if done():
                return
            error = query.exception()
            if _TOO_SLOW not in str(error) or not left:
                raise error
        finally:
            query.stop()
