"""The client for asyncio: `AsyncProducer` and `AsyncConsumer`, over the same core as the others.

    threads of the client --LoopInbox--> event loop: futures end, messages come
    event loop --AsyncSendThread_<group>_<n>--> what may take time: a new route, a connection, compression

No thread waits for an answer, and nothing polls. What is raised are the client's exceptions.
"""
from rmqha.aio.async_consumer import AsyncConsumer, AsyncMessage
from rmqha.aio.async_producer import AsyncProducer

__all__ = ["AsyncConsumer", "AsyncMessage", "AsyncProducer"]
