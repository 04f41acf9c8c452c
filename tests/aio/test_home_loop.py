"""Async clients in another event loop than the one that has started them."""
import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rmqha import Message, MessageQueue, MQClientException
from rmqha.aio import AsyncConsumer, AsyncProducer
from tests.support.wait import wait_until

LIMIT_S = 120  # a call that hangs fails the test, and does not hang it
OTHER_LOOP = "belongs to the event loop that started it.*start one in this loop.*loop_scope"


async def _ends(call: Callable[[], Awaitable[object]]) -> object:
    return await asyncio.wait_for(call(), LIMIT_S)


def _ends_of_queues(producer: AsyncProducer, topic: str) -> dict[MessageQueue, int]:
    """Of each queue; of none, until the broker has told the name server of the topic that a send made."""
    try:
        queues = producer.producer.fetch_publish_message_queues(topic)
    except MQClientException:
        return {}
    return {queue: producer.producer.admin.max_offset(queue) for queue in queues}


def _calls_of_producer(producer: AsyncProducer, topic: str) -> dict[str, Callable[[], Awaitable[object]]]:
    message = Message(topic, b"from the other loop")
    return {"send": lambda: producer.send(message), "send_batch": lambda: producer.send_batch([message, message]),
            "send_oneway": lambda: producer.send_oneway(message), "request": lambda: producer.request(message, 60_000),
            "start": producer.start, "aenter": producer.__aenter__, "close": producer.close,
            "aexit": lambda: producer.__aexit__(None, None, None)}


def _calls_of_consumer(consumer: AsyncConsumer) -> dict[str, Callable[[], Awaitable[object]]]:
    async def iterate() -> None:
        async for message in consumer:
            raise AssertionError(f"came in the wrong loop: {message}")

    async def stop() -> None:
        consumer.stop()
    return {"receive": consumer.receive, "iterate": iterate, "stop": stop, "start": consumer.start,
            "aenter": consumer.__aenter__, "close": consumer.close,
            "aexit": lambda: consumer.__aexit__(None, None, None)}


PRODUCER_CALLS = list(_calls_of_producer(AsyncProducer("g"), "T"))
CONSUMER_CALLS = list(_calls_of_consumer(AsyncConsumer("g", topics="T")))


@pytest.mark.parametrize("home", ["runs", "closed"])
@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_producer_in_another_loop_refuses_at_once_and_nothing_is_stored(servers, call, home):
    topic = servers.unique("Loops")
    loop = asyncio.new_event_loop()
    producer = AsyncProducer(servers.unique("loops"), servers.namesrv)
    loop.run_until_complete(producer.start())
    sent = loop.run_until_complete(producer.send(Message(topic, b"at home")))
    wait_until(lambda: _ends_of_queues(producer, topic).get(sent.message_queue) == 1, 60_000, "the message is counted")
    ends = _ends_of_queues(producer, topic)
    if home == "closed":
        loop.close()
    with pytest.raises(MQClientException, match=OTHER_LOOP):
        asyncio.run(_ends(_calls_of_producer(producer, topic)[call]))
    assert _ends_of_queues(producer, topic) == ends
    if home == "closed":
        asyncio.run(asyncio.to_thread(producer.producer.shutdown))  # as the error says
        return
    assert loop.run_until_complete(_ends(lambda: producer.send(Message(topic, b"at home again")))).msg_id
    loop.run_until_complete(_ends(producer.close))
    loop.close()
    asyncio.run(_ends(producer.close))  # nothing is left to do


@pytest.mark.parametrize("home", ["runs", "closed"])
@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_consumer_in_another_loop_refuses_at_once(servers, call, home):
    topic = servers.unique("Loops")
    loop = asyncio.new_event_loop()
    consumer = AsyncConsumer(servers.unique("loops"), servers.namesrv, topics=topic)
    loop.run_until_complete(consumer.start())
    if home == "closed":
        loop.close()
    says = "maybe started once|" + OTHER_LOOP if call in ("start", "aenter") else OTHER_LOOP
    with pytest.raises(MQClientException, match=says):
        asyncio.run(_ends(_calls_of_consumer(consumer)[call]))
    if home == "closed":
        consumer.consumer.shutdown()
        return
    loop.run_until_complete(_ends(consumer.close))
    loop.close()
    asyncio.run(_ends(consumer.close))


def test_loop_over_messages_in_another_loop_acknowledges_nothing(servers):
    topic = servers.unique("Loops")
    loop = asyncio.new_event_loop()
    consumer = AsyncConsumer(servers.unique("loops"), servers.namesrv, topics=topic)
    consumer.consumer.consume_from_where = consumer.consumer.consume_from_where.CONSUME_FROM_FIRST_OFFSET

    async def first():
        async with AsyncProducer(servers.unique("loops"), servers.namesrv) as producer:
            await producer.send(Message(topic, b"x"))
        await consumer.start()
        messages = consumer.__aiter__()
        return messages, await messages.__anext__()
    messages, message = loop.run_until_complete(_ends(first))
    with pytest.raises(MQClientException, match=OTHER_LOOP):
        asyncio.run(_ends(messages.__anext__))
    assert not message.is_settled
    loop.run_until_complete(_ends(consumer.close))
    loop.close()


def test_second_start_does_not_end_the_first(servers):
    topic = servers.unique("Loops")

    async def scenario():
        async with AsyncProducer(servers.unique("loops"), servers.namesrv) as producer:
            with pytest.raises(MQClientException, match="maybe started once"):
                await producer.start()
            assert (await producer.send(Message(topic, b"x"))).msg_id
    asyncio.run(scenario())


def test_producer_that_could_not_start_may_be_tried_in_another_loop():
    async def scenario():
        with pytest.raises(MQClientException, match="illegal characters"):
            await producer.start()
    producer = AsyncProducer("bad group", "127.0.0.1:1")
    asyncio.run(scenario())
    with pytest.raises(MQClientException, match="maybe started once|illegal"):
        asyncio.run(_ends(producer.start))
