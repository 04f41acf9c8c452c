"""The client for asyncio: `AsyncProducer` and `AsyncConsumer`, based on the blocking client.

    threads of the client --LoopInbox--> event loop: futures complete, messages arrive
    event loop --AsyncSendThread_<group>_<n>--> operations that may take time: a new route, a connection, compression

No thread waits for an answer, and nothing polls. The exceptions are those of the blocking client.
"""
from rmqha.aio.async_consumer import AsyncConsumer, AsyncMessage
from rmqha.aio.async_producer import AsyncProducer

__all__ = ["AsyncConsumer", "AsyncMessage", "AsyncProducer"]
