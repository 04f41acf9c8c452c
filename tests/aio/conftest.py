"""The servers of tests/client for this folder, and waiting on an event loop."""
import asyncio
import time
from collections.abc import Callable

from tests.client.conftest import servers  # noqa: F401  # a fixture

# Waiting on an event loop.

_LIMIT_S = 240


async def turns(count: int = 20) -> None:
    """Run `count` turns of the loop, so that everything that can continue without outside help has continued."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(predicate: Callable[[], object], what: str = "") -> None:
    """Wait until the predicate is true; raise AssertionError after minutes."""
    end = time.monotonic() + _LIMIT_S
    while not predicate():
        assert time.monotonic() < end, f"timed out after {_LIMIT_S} s: {what or predicate}"
        await asyncio.sleep(0.005)


async def at_least(seconds: float) -> None:
    """Let at least that much time pass."""
    await asyncio.sleep(seconds)
