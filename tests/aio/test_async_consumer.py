"""AsyncConsumer with rmqha's own brokers."""
import asyncio
import selectors
from collections import Counter

import pytest

from rmqha import ConsumeFromWhere, Message, MessageModel, MessageSelector, MQClientException, Producer
from rmqha.aio import AsyncConsumer
from tests.aio.conftest import at_least, turns, until
from tests.support.wait import own_threads, wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture(scope="module")
def producer(servers):
    """A producer shared by all tests of the module."""
    with Producer("aio-filler", servers.namesrv) as running:
        yield running


@pytest.fixture
def filled(servers, producer):
    """filled(tags...) -> a topic of one queue at each broker, with one message "<tag>-<number>" per tag."""
    def make(*tags: str) -> str:
        topic = servers.unique("AioIn")
        producer.admin.create_topic("TBW102", topic, 1)
        for number, tag in enumerate(tags):
            producer.send(Message(topic, f"{tag}-{number}".encode(), tags=tag))
        return topic
    return make


def consumer_of(servers, group: str, topics, **settings) -> AsyncConsumer:
    return AsyncConsumer(group, servers.namesrv, topics, consume_from_where=FIRST, **settings)


async def some(consumer: AsyncConsumer, count: int, ack_last: bool = True) -> list[str]:
    """Return the bodies of the next `count` messages, from a loop that is left with `break`."""
    bodies = []
    async for message in consumer:
        bodies.append(bytes(message.body).decode())
        if len(bodies) == count:
            if ack_last:
                message.ack()
            break
    return bodies


async def nothing_more(consumer: AsyncConsumer, seconds: float = 0.4) -> None:
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(consumer.receive(), seconds)


def test_each_message_is_delivered_once_in_queue_order_and_the_next_consumer_continues_after_it(
        servers, filled, producer):
    async def scenario():
        topic, group = filled(*"abcdefgh"), servers.unique("aio")
        async with consumer_of(servers, group, topic) as consumer:
            got = []
            async for message in consumer:
                got.append((message.broker_name, message.queue_offset, message.tags, message.topic))
                if len(got) == 8:
                    message.ack()
                    break
        assert sorted(tag for _broker, _offset, tag, _topic in got) == list("abcdefgh")
        assert {topic_ for *_others, topic_ in got} == {topic}
        for broker in ("broker-a", "broker-b"):
            offsets = [offset for name, offset, *_others in got if name == broker]
            assert offsets == sorted(offsets) and len(offsets) == 4
        producer.send(Message(topic, b"later"))
        async with consumer_of(servers, group, topic) as consumer:
            assert await some(consumer, 1) == ["later"]
            await nothing_more(consumer)
    asyncio.run(scenario())


def test_unacknowledged_message_of_a_loop_is_delivered_again(servers, filled):
    async def scenario():
        topic, group = filled("a"), servers.unique("aio")
        async with consumer_of(servers, group, topic) as consumer:
            assert await some(consumer, 1, ack_last=False) == ["a-0"]
        with pytest.raises(ZeroDivisionError):
            async with consumer_of(servers, group, topic) as consumer:
                async for _message in consumer:
                    raise ZeroDivisionError
        async with consumer_of(servers, group, topic) as consumer:
            assert await some(consumer, 1) == ["a-0"]
    asyncio.run(scenario())


def test_message_is_acknowledged_when_the_loop_continues(servers, filled):
    async def scenario():
        topic, group = filled("a"), servers.unique("aio")
        async with consumer_of(servers, group, topic) as consumer:
            messages = aiter(consumer)
            message = await anext(messages)
            assert not message.is_settled
            waiting = asyncio.ensure_future(anext(messages))
            await turns()
            assert message.is_settled and not message.ack() and not message.nack()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with consumer_of(servers, group, topic) as consumer:
            await nothing_more(consumer)
    asyncio.run(scenario())


def has_retry_topic(producer: Producer, group: str) -> bool:
    try:
        return len(producer.admin.fetch_subscribe_message_queues(f"%RETRY%{group}")) == 2
    except MQClientException:  # no route yet
        return False


def test_message_given_back_is_delivered_again_later(servers, filled, producer):
    async def scenario():
        topic, group = filled("a", "b"), servers.unique("aio")
        tries: Counter[str] = Counter()
        async with consumer_of(servers, group, topic):
            # The brokers create the group's retry topic; a consumer that starts before it has a route looks again only
            # after 30 s.
            pass
        await asyncio.to_thread(wait_until, lambda: has_retry_topic(producer, group))
        async with consumer_of(servers, group, topic) as consumer:
            async for message in consumer:
                tries[message.tags] += 1
                if message.tags == "a" and tries["a"] == 1:
                    assert message.nack() and message.is_settled
                elif message.tags == "a":
                    assert message.reconsume_times == 1 and message.topic == topic
                    message.ack()
                if tries == {"a": 2, "b": 1}:
                    break
            await nothing_more(consumer)
    asyncio.run(scenario())


def test_offsets_wait_for_the_oldest_when_acknowledged_by_hand_in_any_order(servers, producer):
    async def scenario():
        topic, group = servers.unique("AioIn"), servers.unique("aio")
        producer.admin.create_topic("TBW102", topic, 1)
        queue = producer.fetch_publish_message_queues(topic)[0]
        for number in range(4):
            producer.send(Message(topic, b"%d" % number), queue=queue)
        async with consumer_of(servers, group, topic, auto_ack=False) as consumer:
            messages = [await consumer.receive() for _ in range(4)]
            for number in (1, 3, 0):
                assert messages[number].ack()
        async with consumer_of(servers, group, topic, auto_ack=False) as consumer:
            # 2 was not settled, so it is delivered again, and 3 with it.
            assert [bytes((await consumer.receive()).body) for _ in range(2)] == [b"2", b"3"]
            await nothing_more(consumer)
    asyncio.run(scenario())


def test_message_of_a_queue_lost_to_another_consumer_is_neither_delivered_nor_acknowledged(servers, filled):
    async def scenario():
        topic, group = filled(*"abcd"), servers.unique("aio")
        async with consumer_of(servers, group, topic, auto_ack=False) as consumer:
            message = await consumer.receive()
            await until(lambda: len(consumer._ready) >= 3)
            impl = consumer.consumer.default_mq_push_consumer_impl
            for process_queue in list(impl.rebalance_impl.process_queue_table.values()):
                process_queue.dropped = True  # as by a rebalance
            await nothing_more(consumer, 0.2)
            assert message.ack()
        async with consumer_of(servers, group, topic) as consumer:
            assert sorted(await some(consumer, 4)) == ["a-0", "b-1", "c-2", "d-3"]
    asyncio.run(scenario())


def test_several_loops_share_a_consumer_and_stop_ends_them(servers, filled):
    async def scenario():
        topic, group, seen = filled(*"abcdefgh"), servers.unique("aio"), []
        async with consumer_of(servers, group, topic) as consumer:
            async def work() -> str:
                async for message in consumer:
                    seen.append(message.tags)
                    await turns()
                    if len(seen) == 8:
                        consumer.stop()
                return "ended"
            assert await asyncio.wait_for(asyncio.gather(*(work() for _ in range(3))), 30) == ["ended"] * 3
            with pytest.raises(MQClientException, match="has stopped"):
                await consumer.receive()
        assert sorted(seen) == list("abcdefgh")
        async with consumer_of(servers, group, topic) as consumer:
            await nothing_more(consumer)
    asyncio.run(scenario())


def test_tags_selectors_and_broadcasting(servers, filled):
    async def scenario():
        topic, other = filled(*"abac"), filled(*"xyz")
        wanted = {topic: "a || c", other: MessageSelector.by_tag("y")}
        async with consumer_of(servers, servers.unique("aio"), wanted) as consumer:
            assert sorted(await some(consumer, 4)) == ["a-0", "a-2", "c-3", "y-1"]
        async with consumer_of(servers, servers.unique("aio"), [topic, other],
                               message_model=MessageModel.CLUSTERING) as consumer:
            assert len(await some(consumer, 7)) == 7
    asyncio.run(scenario())


def test_hooks_see_the_outcome_of_each_message(servers, filled):
    seen: list[tuple[str, bool]] = []

    class Hook:
        def consume_message_before(self, context):
            seen.append(("before", context.msg_list[0].tags == "a"))

        def consume_message_after(self, context):
            seen.append((context.status, context.success))

    async def scenario():
        consumer = consumer_of(servers, servers.unique("aio"), filled("a"))
        consumer.consumer.register_consume_message_hook(Hook())
        async with consumer:
            await some(consumer, 1)
    asyncio.run(scenario())
    assert seen == [("before", True), ("CONSUME_SUCCESS", True)]


def test_consumer_does_not_poll_while_no_message_arrives(servers, filled):
    class Counting(selectors.DefaultSelector):
        rounds = 0

        def select(self, timeout=None):
            Counting.rounds += 1
            return super().select(timeout)

    async def scenario():
        async with consumer_of(servers, servers.unique("aio"), filled("a")) as consumer:
            await some(consumer, 1)
            waiting = asyncio.ensure_future(consumer.receive())
            # The start may still cause some rounds at first.
            for _ in range(20):
                before = Counting.rounds
                await at_least(0.5)
                if Counting.rounds - before <= 2:  # the sleep itself
                    break
            else:
                pytest.fail("the consumer polls while no message arrives")
            waiting.cancel()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Counting())) as runner:
        runner.run(scenario())


def test_wrong_use_is_reported_and_leaves_no_thread(servers):
    async def scenario():
        consumer = AsyncConsumer(servers.unique("aio"), servers.namesrv)
        with pytest.raises(MQClientException, match="please start it first"):
            aiter(consumer)
        with pytest.raises(MQClientException, match="please start it first"):
            await consumer.receive()
        with pytest.raises(MQClientException, match="subscription is null"):
            await consumer.start()
        with pytest.raises(MQClientException, match="subscription exception"):
            AsyncConsumer("g", servers.namesrv, {"T": "||"})
        async with consumer_of(servers, servers.unique("aio"), servers.unique("AioIn")) as consumer:
            with pytest.raises(MQClientException, match="subscribe before start"):
                consumer.subscribe("Other")
            with pytest.raises(MQClientException, match="maybe started once"):
                await consumer.start()
        await consumer.close()  # idempotent
    before = own_threads()
    asyncio.run(scenario())
    wait_until(lambda: not [thread for thread in own_threads() - before
                            if thread.name.startswith(("ConsumeMessage", "PullMessage", "Rebalance"))])


def test_cancelled_start_is_undone(servers):
    async def scenario():
        consumer = consumer_of(servers, servers.unique("aio"), servers.unique("AioIn"))
        starting = asyncio.ensure_future(consumer.start())
        await turns(2)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert consumer.consumer.default_mq_push_consumer_impl.service_state.name == "SHUTDOWN_ALREADY"
    asyncio.run(scenario())
