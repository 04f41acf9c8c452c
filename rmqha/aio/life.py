"""Starting and ending what blocks, from a coroutine."""
import asyncio

from rmqha.client.common.lifecycle import Lifecycle


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
