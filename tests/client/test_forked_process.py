"""Every class of the client, used in a process that was forked after its start."""
import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rmqha.aio import AsyncConsumer, AsyncProducer
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.mq_pull_consumer_schedule_service import MQPullConsumerScheduleService
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import TransactionListener
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.life import Lifecycle
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from tests.support.forked import in_forked_process

SAYS = "which was forked"
LISTENER = lambda messages: None  # noqa: E731
HARMLESS = {  # what neither asks a broker nor waits; `shutdown` and `with` have tests of their own
    *dir(Lifecycle), *dir(ClientConfig), "register_message_listener", "message_queue_changed", "callback_of",
    "put_task", "run_later"}


def _queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "broker-a", 0)


def _argument(name: str, topic: str) -> Any:
    given = {
        "msg": Message(topic, b"from the child"), "msgs": [Message(topic, b"a"), Message(topic, b"b")],
        "topic": topic, "message_queue": _queue(topic), "mq": _queue(topic), "message_queues": [_queue(topic)],
        "offsets": {_queue(topic): 0}, "offset": 0, "max_nums": 1, "timestamp": 0, "timeout_ms": 60_000,
        "sub_expression": "*", "delay_level": 0, "from_store": True, "namesrv_addr": "127.0.0.1:1"}
    return given.get(name)  # hooks, listeners, callbacks: None


def _calls(client: object, topic: str) -> dict[str, Callable[[], Any]]:
    """Name -> call, of each public method and property of a client."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, member in inspect.getmembers(type(client)):
        if name.startswith("_") or name in HARMLESS:
            continue
        if isinstance(member, property):
            calls[name] = lambda name=name: getattr(client, name)
        elif inspect.isfunction(member):
            arguments = {parameter.name: _argument(parameter.name, topic)
                         for parameter in list(inspect.signature(member).parameters.values())[1:]
                         if parameter.default is parameter.empty or parameter.name == "timeout_ms"}
            if name == "send_message_back":
                arguments["msg"] = MessageExt()
            calls[name] = lambda name=name, arguments=arguments: getattr(client, name)(**arguments)
    return calls


def _said(calls: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """Name -> what each call raised."""
    said = {}
    for name, call in calls.items():
        try:
            said[name] = f"gave {call()!r}"
        except Exception as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


CLIENTS = {
    "producer": lambda group, address: DefaultMQProducer(group, address),
    "traced producer": lambda group, address: DefaultMQProducer(group, address, enable_msg_trace=True),
    "transaction producer": lambda group, address: TransactionMQProducer(group, address, TransactionListener()),
    "push consumer": lambda group, address: DefaultMQPushConsumer(group, address, LISTENER),
    "pull consumer": DefaultMQPullConsumer,
    "lite pull consumer": DefaultLitePullConsumer,
}


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_call_in_a_forked_process_is_refused_at_once_and_nothing_is_stored(servers, kind):
    topic, other = servers.unique("Forked"), servers.unique("Alone")
    with DefaultMQProducer(servers.unique("maker"), servers.namesrv) as maker:
        maker.admin.create_topic("TBW102", topic, 1)
        queues = maker.fetch_publish_message_queues(topic)
        client = CLIENTS[kind](servers.unique("forked"), servers.namesrv)
        if hasattr(client, "subscribe"):
            client.subscribe(other)
        with client:
            if isinstance(client, DefaultMQProducer) and not isinstance(client, TransactionMQProducer):
                client.send(Message(topic, b"before"))
            ends = {queue: maker.admin.max_offset(queue) for queue in queues}
            calls = _calls(client, topic)
            assert len(calls) > 5
            said = in_forked_process(lambda: _said(calls))
            assert set(said) == set(calls)
            assert {name: text for name, text in said.items() if SAYS not in text} == {}
            assert {text.partition(":")[0] for text in said.values()} == {"MQClientException"}
            assert {queue: maker.admin.max_offset(queue) for queue in queues} == ends
            assert "which was forked" not in str(_said({"start": client.start}))  # its own process may go on


@pytest.mark.parametrize("kind", CLIENTS)
def test_shutdown_and_with_in_a_forked_process_leave_the_parents_client_alone(servers, kind):
    topic = servers.unique("Left")
    client = CLIENTS[kind](servers.unique("left"), servers.namesrv)
    if hasattr(client, "subscribe"):
        client.subscribe(topic)
    with client:
        def leave() -> str:
            client.shutdown()
            client.__exit__(None, None, None)
            return "left"
        assert in_forked_process(leave) == "left"
        if isinstance(client, DefaultMQProducer):
            assert client.send(Message(topic, b"after")).msg_id


def test_schedule_service_admin_and_shared_manager_in_a_forked_process(servers):
    topic = servers.unique("Others")
    service = MQPullConsumerScheduleService(servers.unique("schedule"), servers.namesrv)
    admin = DefaultMQAdminExt(servers.namesrv)
    manager = MQClientManager()
    shared = DefaultMQProducer(servers.unique("shared"), servers.namesrv, client_manager=manager)
    shared.instance_name = "shop"
    with service, shared:
        address = servers.brokers["broker-a"].broker_addr
        assert admin.get_broker_config(address)

        def second() -> None:
            another = DefaultMQProducer("another", servers.namesrv, client_manager=manager)
            another.instance_name = "shop"
            another.start()

        def work() -> dict[str, str]:
            said = _said({"register": lambda: service.register_pull_task_callback(topic, lambda queue, context: None),
                          "start": service.start, "admin": lambda: admin.get_broker_config(address),
                          "api": lambda: admin.api.get_broker_cluster_info(3000), "second": second})
            service.shutdown()
            admin.shutdown()
            return said
        said = in_forked_process(work)
        assert {name: text for name, text in said.items() if SAYS not in text} == {}
        assert admin.get_broker_config(address)
        assert shared.send(Message(topic, b"x")).msg_id
    admin.shutdown()


def test_client_that_is_made_before_the_fork_and_started_after_it_works(servers):
    topic = servers.unique("Later")
    producer = DefaultMQProducer(servers.unique("later"), servers.namesrv)

    def work() -> str:
        with producer:
            return producer.send(Message(topic, b"x")).send_status.name
    assert in_forked_process(work) == "SEND_OK"


def test_async_clients_in_a_forked_process(servers):
    topic = servers.unique("AsyncForked")

    async def scenario() -> None:
        async with AsyncProducer(servers.unique("aio"), servers.namesrv) as producer, \
                AsyncConsumer(servers.unique("aio"), servers.namesrv, topics=topic, auto_ack=False) as consumer:
            consumer.consumer.consume_from_where = consumer.consumer.consume_from_where.CONSUME_FROM_FIRST_OFFSET
            sent = await producer.send(Message(topic, b"before"))
            message = await consumer.receive()

            async def each() -> dict[str, str]:
                said = {}
                for name, call in {
                        "send": lambda: producer.send(Message(topic, b"x")),
                        "send_batch": lambda: producer.send_batch([Message(topic, b"x")]),
                        "send_oneway": lambda: producer.send_oneway(Message(topic, b"x")),
                        "request": lambda: producer.request(Message(topic, b"x"), 60_000),
                        "start": producer.start, "receive": consumer.receive, "start it": consumer.start}.items():
                    try:
                        said[name] = f"gave {await call()!r}"
                    except Exception as error:
                        said[name] = f"{type(error).__name__}: {error}"
                said |= _said({"ack": message.ack, "nack": message.nack, "subscribe": lambda: consumer.subscribe("T"),
                               "aiter": lambda: consumer.__aiter__()})
                await producer.close()
                await consumer.close()
                return said

            said = in_forked_process(lambda: asyncio.run(each()))
            assert {name: text for name, text in said.items() if SAYS not in text} == {}
            assert producer.producer.admin.max_offset(sent.message_queue) == sent.queue_offset + 1
            assert message.ack()
            assert (await producer.send(Message(topic, b"after"))).msg_id
    asyncio.run(scenario())


def test_error_says_which_process_and_what_to_do(servers):
    with DefaultMQProducer(servers.unique("words"), servers.namesrv) as producer:
        def work() -> str:
            with pytest.raises(MQClientException) as raised:
                producer.send(Message("T", b"x"))
            return str(raised.value)
        said = in_forked_process(work)
    assert said.startswith("a DefaultMQProducer that was started in process ")
    assert "make and start one after the fork" in said
