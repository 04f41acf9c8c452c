"""Producers and consumers for asyncio that are closed when the test ends, also when it fails.

    fixture --AsyncClients--> test (a coroutine) --> AsyncProducer, AsyncConsumer
                                  |
                                  +--at its end, in its event loop--> AsyncClients.close

A client can only be closed in the event loop that has started it, and that loop does not run any more when pytest
finalizes a fixture. So `closing_at_end` lets the test itself close the clients, after its last line. This works with
each plugin that runs coroutines (pytest-asyncio, anyio), and needs none of them.
"""
from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rmqha.aio import AsyncConsumer, AsyncProducer
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.testing.cluster_parts import EmbeddedError
from rmqha.testing.isolated_topic import readable_name

if TYPE_CHECKING:
    from rmqha.aio.async_consumer import Topics
    from rmqha.testing.cluster_admin import Cluster

_Client = TypeVar("_Client", AsyncProducer, AsyncConsumer)


class AsyncClients:
    """Makes and starts asyncio clients of a cluster, and closes them. `mq` is the cluster.

    A group that is left out has a name of its own, and is deleted at the end. Use it in a coroutine test, or with
    `async with`, which closes the clients at the end of its block.
    """

    def __init__(self, mq: Cluster, test: str) -> None:
        self.mq = mq
        self._test = readable_name(test)
        self._clients: list[tuple[asyncio.AbstractEventLoop, AsyncProducer | AsyncConsumer]] = []  # the newest last
        self._groups: list[str] = []  # those to delete

    @property
    def namesrv_addr(self) -> str:
        """The address ("host:port") of the name server."""
        return self.mq.namesrv_addr

    async def producer(self, group: str | None = None, **settings: Any) -> AsyncProducer:
        """Return a started producer. `settings` are those of AsyncProducer."""
        return await self._started(AsyncProducer(group or self._own_group(), self.namesrv_addr, **settings))

    async def consumer(self, group: str | None = None, topics: Topics = (), **settings: Any) -> AsyncConsumer:
        """Return a started consumer of `topics`. `settings` are those of AsyncConsumer.

        Other than elsewhere, a new group begins with the first message of each queue.
        """
        settings.setdefault("consume_from_where", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        return await self._started(AsyncConsumer(group or self._own_group(), self.namesrv_addr, topics, **settings))

    def _own_group(self) -> str:
        self._groups.append(f"{self._test}-{os.urandom(4).hex()}")
        return self._groups[-1]

    async def _started(self, client: _Client) -> _Client:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise EmbeddedError("rocketmq_aio needs asyncio, and no asyncio event loop is running; with anyio, let the "
                                "fixture anyio_backend return 'asyncio'") from None
        await client.start()
        self._clients.append((loop, client))
        return client

    async def __aenter__(self) -> AsyncClients:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the clients that this event loop has started, the newest first."""
        if not self._clients:
            return  # and perhaps another library runs the coroutine
        here = asyncio.get_running_loop()
        own = [client for loop, client in self._clients if loop is here]
        self._clients = [(loop, client) for loop, client in self._clients if loop is not here]
        errors = []
        for client in reversed(own):
            try:
                await client.close()
            except Exception as error:  # the others have to be closed too
                errors.append(error)
        if errors:
            raise errors[0]

    def close_the_rest(self) -> None:
        """Close all other clients, when no event loop is running: in their own loop, or, if it is closed, without it.
        Then delete the groups."""
        while self._clients:
            loop, client = self._clients.pop()
            if loop.is_closed() or loop.is_running():
                _shut_down(client)
            else:
                loop.run_until_complete(client.close())
        while self._groups:
            self.mq.delete_group(self._groups.pop())


def _shut_down(client: AsyncProducer | AsyncConsumer) -> None:
    """Shut down a client whose event loop is closed. Nothing can await its sends any more."""
    if isinstance(client, AsyncConsumer):
        client.consumer.shutdown()
        return
    client.producer.shutdown()
    # What `close` would do, which needs the loop
    client._pool.shutdown()


@contextmanager
def closing_at_end(clients: AsyncClients, item: Any) -> Iterator[None]:
    """Close the clients at the end of a test (a pytest.Item): in its event loop if it is a coroutine. Clients of other
    loops are closed at the end of the block."""
    test: Any = getattr(item, "obj", None)
    is_coroutine = inspect.iscoroutinefunction(test)
    if is_coroutine:
        item.obj = _closing(test, clients)
    try:
        yield
    finally:
        if is_coroutine:
            item.obj = test  # for a plugin that runs it again
        clients.close_the_rest()


def _closing(test: Callable[..., Awaitable[Any]], clients: AsyncClients) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(test)
    async def closing(*arguments: Any, **named: Any) -> Any:
        try:
            return await test(*arguments, **named)
        finally:
            await clients.close()

    return closing
