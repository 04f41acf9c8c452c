"""The servers of tests/client, once more for this folder, and waiting on an event loop."""
import asyncio
import time
from collections.abc import Callable

from tests.client.conftest import servers  # noqa: F401  # a fixture

# Waiting on an event loop.

_LIMIT_S = 240


async def turns(count: int = 20) -> None:
    """So many turns of the loop: what can go on without anybody else has gone on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(predicate: Callable[[], object], what: str = "") -> None:
    """Until it is true; AssertionError after minutes."""
    end = time.monotonic() + _LIMIT_S
    while not predicate():
        assert time.monotonic() < end, f"not within {_LIMIT_S} s: {what or predicate}"
        await asyncio.sleep(0.005)


async def at_least(seconds: float) -> None:
    """Let time pass; more may."""
    await asyncio.sleep(seconds)
