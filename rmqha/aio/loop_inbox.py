"""From threads into an event loop."""
import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

log = logging.getLogger("RocketmqClient")

_T = TypeVar("_T")


class LoopInbox(Generic[_T]):
    """`put` from any thread; `take` gets the items in the loop, in their order.

    What came together wakes the loop once: each wake-up is a system call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, take: Callable[[_T], None]) -> None:
        self._loop = loop
        self._take = take
        self._lock = threading.Lock()
        self._items: list[_T] = []  # guarded by _lock
        self._is_told = False  # the loop will come for the items; guarded by _lock

    def put(self, item: _T) -> None:
        """Hand `item` to the loop; one that is closed takes nothing."""
        with self._lock:
            self._items.append(item)
            if self._is_told:
                return
            self._is_told = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError as error:
            log.debug("nobody is there for %s: %s", item, error)

    def _deliver(self) -> None:
        with self._lock:
            items, self._items = self._items, []
            self._is_told = False
        for item in items:
            self._take(item)
