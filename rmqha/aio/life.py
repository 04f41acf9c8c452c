"""Starting and ending what blocks, from a coroutine."""
import asyncio
from types import TracebackType
from typing import Self

from rmqha.client.common.lifecycle import Lifecycle
from rmqha.client.exception import MQClientException


class AsyncLife:
    """`async with`: started, and closed in the end, in one event loop. A subclass gives both."""

    _loop: asyncio.AbstractEventLoop | None = None  # from start on, for good

    def _check_home(self, client: Lifecycle, attribute: str) -> None:
        """Raise MQClientException in a forked process, and in another event loop than the one that has started this.

        `client` is the one below, which is found under `attribute`.
        """
        client.check_process()
        if self._loop is None or asyncio.get_running_loop() is self._loop:
            return
        name = type(self).__name__
        if self._loop.is_closed():
            cure = f"that loop is closed: end what is left with `await asyncio.to_thread(x.{attribute}.shutdown)`, and"
        else:
            cure = "use and close it in that loop, or"
        raise MQClientException(
            f"this {name} belongs to the event loop that started it, and can't be used in another: {cure} start one in "
            "this loop (with pytest-asyncio, give the fixture and its tests the same loop_scope)")

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
