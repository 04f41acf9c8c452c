"""Use asyncio: a thousand sends in flight, and two loops that share the received messages."""
import asyncio

from rmqha import ConsumeFromWhere, Message
from rmqha.aio import AsyncConsumer, AsyncProducer

COUNT = 1_000


async def worker(consumer: AsyncConsumer, seen: set[str]) -> int:
    """Handle messages until all have arrived. A message counts as consumed when the loop asks for the next one."""
    handled = 0
    async for message in consumer:
        await asyncio.sleep(0)  # your own work
        seen.add(message.keys or "")
        handled += 1
        if len(seen) == COUNT:
            consumer.stop()  # ends both loops when they ask for the next message
    return handled


async def main() -> None:
    async with AsyncProducer("async_out", max_in_flight=200) as producer:
        await asyncio.gather(*(
            producer.send(Message("Async", b"hello", keys=f"key-{number}")) for number in range(COUNT)))
        print(f"sent {COUNT}")
    seen: set[str] = set()
    async with AsyncConsumer("async_in", topics="Async",
                             consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET) as consumer:
        async with asyncio.timeout(60):
            handled = await asyncio.gather(worker(consumer, seen), worker(consumer, seen))
    print(f"received {len(seen)}, by two loops: {sum(handled)} messages")


asyncio.run(main())
