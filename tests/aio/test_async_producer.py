"""AsyncProducer with rmqha's own brokers, and async clients in another event loop than the one that started them."""
import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rmqha import ConsumeStatus as Status
from rmqha import (
    Message,
    MessageQueue,
    MQBrokerException,
    MQClientException,
    Producer,
    PushConsumer,
    RemotingException,
    RequestTimeoutException,
    SendResult,
    SendStatus,
    create_reply_message,
    select_message_queue_by_hash,
)
from rmqha.aio import AsyncConsumer, AsyncProducer
from rmqha.aio.async_producer import LoopInbox
from tests.aio.conftest import turns, until
from tests.support.in_process import start_broker
from tests.support.wait import own_threads, wait_until


def test_many_sends_are_in_flight_and_each_gets_its_own_answer(servers):
    async def scenario():
        topic = servers.unique("Aio")
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
            results = await asyncio.gather(*(producer.send(Message(topic, b"%d" % n)) for n in range(300)))
        assert {result.send_status for result in results} == {SendStatus.SEND_OK}
        assert len({result.msg_id for result in results}) == 300
        assert len({(result.message_queue, result.queue_offset) for result in results}) == 300
    asyncio.run(scenario())


def test_queue_selector_batch_and_oneway(servers):
    async def scenario():
        topic = servers.unique("Aio")
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
            await asyncio.to_thread(producer.producer.admin.create_topic, "TBW102", topic, 2)
            first = await producer.send(Message(topic, b"0"))
            again = await producer.send(Message(topic, b"1"), queue=first.message_queue)
            assert (again.message_queue, again.queue_offset) == (first.message_queue, first.queue_offset + 1)
            chosen = {(await producer.send(Message(topic, b"2"), selector=select_message_queue_by_hash, arg="17"))
                      .message_queue for _ in range(3)}
            assert len(chosen) == 1
            batch = await producer.send_batch([Message(topic, b"3"), Message(topic, b"4")], queue=again.message_queue)
            await producer.send_oneway(Message(topic, b"5"), queue=again.message_queue)
            end = batch.queue_offset + 3
            wait_until(lambda: producer.producer.admin.max_offset(again.message_queue) == end)
    asyncio.run(scenario())


def test_errors_are_the_same_as_the_clients(servers):
    async def scenario():
        topic = servers.unique("Aio")
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
            with pytest.raises(MQClientException, match="body is null|body length"):
                await producer.send(Message(topic, b""))
            with pytest.raises(TypeError, match="message body must be bytes"):
                await producer.send(Message(topic, "text"))
            with pytest.raises(MQClientException, match="topic not equal"):
                await producer.send(Message(topic, b"x"), queue=MessageQueue("Other", "broker-a", 0))
            with pytest.raises(MQBrokerException, match="request queueId"):
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", 4711))
            with pytest.raises(MQClientException, match="MessageBatch"):
                await producer.send_batch([])
            with pytest.raises(MQClientException, match="select message queue threw"):
                await producer.send(Message(topic, b"x"), selector=lambda queues, _msg, _arg: queues[4711])
        with pytest.raises(MQClientException, match="SHUTDOWN_ALREADY"):
            await producer.send(Message(topic, b"x"))
    asyncio.run(scenario())


def test_send_without_a_name_server_fails_and_leaves_no_thread():
    async def scenario():
        async with AsyncProducer("nowhere", "127.0.0.1:1") as producer:
            with pytest.raises(RemotingException, match="connect to"):
                await producer.send(Message("T", b"x"))
            assert producer._permits._value == 1_000
        with pytest.raises(MQClientException, match="maybe started once"):
            await producer.start()
    before = own_threads()
    asyncio.run(scenario())
    wait_until(lambda: own_threads() <= before)


class Held:
    """A producer whose asynchronous sends are answered when the test says so."""

    def __init__(self, producer: AsyncProducer) -> None:
        self.callbacks: list = []
        producer.producer.send_async = lambda _msg, callback, _timeout_ms, _queue: self.callbacks.append(callback)

    async def wait_for(self, count: int) -> None:
        await until(lambda: len(self.callbacks) >= count, f"{count} sends")

    def answer(self, number: int) -> None:
        self.callbacks[number].on_success(SendResult(SendStatus.SEND_OK, f"id-{number}", MessageQueue("T", "b", 0), 0))


def test_back_pressure_and_cancellation(servers):
    async def scenario():
        async with AsyncProducer(servers.unique("aio"), servers.namesrv, max_in_flight=2) as producer:
            held, failures = Held(producer), []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failures.append(context))
            sends = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(3)]
            await held.wait_for(2)
            await turns()
            assert len(held.callbacks) == 2  # the third waits for a permit
            sends[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await sends[0]
            await turns()
            # A cancelled send is still in flight.
            assert len(held.callbacks) == 2
            held.answer(0)
            await held.wait_for(3)
            sends[2].cancel()
            held.answer(1)
            assert (await sends[1]).msg_id == "id-1"
            held.answer(2)
            waiting = [asyncio.ensure_future(producer.send(Message("T", b"x"))) for _ in range(3)]
            await held.wait_for(5)
            # A cancelled wait for a permit consumes none.
            waiting[2].cancel()
            held.answer(3)
            held.answer(4)
            await asyncio.gather(*waiting[:2])
            assert producer._permits._value == 2 and failures == []
    asyncio.run(scenario())


def test_leaving_the_context_waits_for_the_answers(servers):
    async def scenario():
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
            held = Held(producer)
            send = asyncio.ensure_future(producer.send(Message("T", b"x")))
            await held.wait_for(1)
            closing = asyncio.ensure_future(producer.close())
            await turns()
            assert not closing.done() and not send.done()
            with pytest.raises(MQClientException, match="service state not OK"):
                await producer.send(Message("T", b"too late"))
            held.answer(0)
            await closing
            assert (await send).msg_id == "id-0"
            await producer.close()  # idempotent
    asyncio.run(scenario())


def test_dead_broker_is_avoided(servers, tmp_path):
    async def scenario():
        topic = servers.unique("Aio")
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
            broker = start_broker("broker-dying", servers.namesrv, tmp_path)
            try:
                await asyncio.to_thread(producer.producer.admin.create_topic, "TBW102", topic, 1)
                results = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(12)))
                assert {result.message_queue.brokerName for result in results} == {
                    "broker-a", "broker-b", "broker-dying"}
            finally:
                broker.shutdown()
            results = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(12)))
            assert {result.send_status for result in results} == {SendStatus.SEND_OK}
            assert {result.message_queue.brokerName for result in results} == {"broker-a", "broker-b"}
    asyncio.run(scenario())


def test_request_and_reply(servers):
    async def scenario():
        topic, group = servers.unique("Aio"), servers.unique("aio")
        answering = Producer(servers.unique("aio"), servers.namesrv)

        def listener(messages):
            for message in messages:
                answering.send(create_reply_message(message, b"re: " + bytes(message.body)))
            return Status.CONSUME_SUCCESS

        with answering:
            answering.send(Message(topic, b"the topic exists"))
            with PushConsumer(group, servers.namesrv, listener) as consumer:
                consumer.subscribe(topic)
                async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer:
                    reply = await producer.request(Message(topic, b"hello"), 20_000)
                    assert bytes(reply.body) == b"re: hello"
                    with pytest.raises(RequestTimeoutException):
                        await producer.request(Message(servers.unique("Silent"), b"hello"), 300)
    asyncio.run(scenario())


def test_inbox_wakes_the_loop_once_for_items_that_arrive_together():
    async def scenario():
        taken: list[int] = []
        loop, wakes = asyncio.get_running_loop(), []
        call_soon = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda function: (wakes.append(1), call_soon(function))
        inbox = LoopInbox(loop, taken.append)
        for number in range(5):
            inbox.put(number)
        await turns(2)
        assert taken == [0, 1, 2, 3, 4] and len(wakes) == 1
        inbox.put(5)
        await turns(2)
        assert taken[-1] == 5 and len(wakes) == 2
        return inbox
    inbox = asyncio.run(scenario())
    # The loop is closed: nothing happens, and nothing is raised.
    inbox.put(6)


def test_invalid_arguments_are_named():
    with pytest.raises(ValueError, match="max_in_flight must be 1 or more, not 0"):
        AsyncProducer("g", max_in_flight=0)
    with pytest.raises(TypeError, match="no setting 'send_timeout_ms'; did you mean 'send_msg_timeout'"):
        AsyncProducer("g", send_timeout_ms=3)


# Async clients in another event loop than the one that started them.

# A hanging call fails the test instead of blocking it.
LIMIT_S = 120
OTHER_LOOP = "belongs to the event loop that started it.*start one in this loop.*loop_scope"


async def _ends(call: Callable[[], Awaitable[object]]) -> object:
    return await asyncio.wait_for(call(), LIMIT_S)


def _ends_of_queues(producer: AsyncProducer, topic: str) -> dict[MessageQueue, int]:
    """Return the end of each queue; empty until the broker has registered the topic that a send created."""
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
            raise AssertionError(f"delivered in the wrong loop: {message}")

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


def test_producer_that_failed_to_start_may_be_started_in_another_loop():
    async def scenario():
        with pytest.raises(MQClientException, match="illegal characters"):
            await producer.start()
    producer = AsyncProducer("bad group", "127.0.0.1:1")
    asyncio.run(scenario())
    with pytest.raises(MQClientException, match="maybe started once|illegal"):
        asyncio.run(_ends(producer.start))
