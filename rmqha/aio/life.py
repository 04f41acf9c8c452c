"""Starting and ending what blocks, from a coroutine."""
import asyncio
from types import TracebackType
from typing import Self

from rmqha.client.common.lifecycle import Lifecycle


class AsyncLife:
    """`async with`: started, and closed in the end. A subclass gives both."""

    async def start(self) -> None:
        """Begin."""
        raise NotImplementedError

    async def close(self) -> None:
        """End. Idempotent."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.close()


async def start(client: Lifecycle) -> None:
    """Start `client` in a thread. When it fails, or the caller is cancelled meanwhile, it is ended again."""
    starting = asyncio.ensure_future(asyncio.to_thread(client.start))
    try:
        await asyncio.shield(starting)
    except BaseException:
        await asyncio.wait([starting])
        await shutdown(client)
        raise


async def shutdown(client: Lifecycle) -> None:
    """End `client` in a thread, to the end, also when the caller is cancelled meanwhile."""
    ending = asyncio.ensure_future(asyncio.to_thread(client.shutdown))
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await ending
        raise
