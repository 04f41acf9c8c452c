"""Processes with clients: forked after a start, ended while a client runs, and the output of the client's log."""
import asyncio
import inspect
import os
import re
import subprocess
import sys
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
from tests.support import patience
from tests.support.processes import in_forked_process
from tests.support.sources import ROOT

# Every class of the client, used in a process that was forked after its start.

SAYS = "which was forked"
LISTENER = lambda messages: None  # noqa: E731
# Calls that neither contact a broker nor wait; `shutdown` and `with` have tests of their own.
HARMLESS = {
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
    """Return name -> call for each public method and property of a client."""
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
    """Return name -> the error that each call raised."""
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
            # The client's own process is not refused.
            assert "which was forked" not in str(_said({"start": client.start}))


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


def test_client_created_before_the_fork_and_started_after_it_works(servers):
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


def test_error_names_the_process_and_the_remedy(servers):
    with DefaultMQProducer(servers.unique("words"), servers.namesrv) as producer:
        def work() -> str:
            with pytest.raises(MQClientException) as raised:
                producer.send(Message("T", b"x"))
            return str(raised.value)
        said = in_forked_process(work)
    assert said.startswith("a DefaultMQProducer started in process ")
    assert "create and start one in each process after the fork" in said


# A process whose main thread ends, for example with an exception, while one of its clients still runs.

LIMIT_S = 120
PROCESS_END_CLIENTS = {
    "DefaultMQProducer": "DefaultMQProducer('end', ADDRESS)",
    "DefaultMQProducer, traced": "DefaultMQProducer('end', ADDRESS, enable_msg_trace=True)",
    "TransactionMQProducer": "TransactionMQProducer('end', ADDRESS, TransactionListener())",
    "DefaultMQPushConsumer": "subscribed(DefaultMQPushConsumer('end', ADDRESS, lambda messages: None))",
    "DefaultMQPushConsumer, orderly": "subscribed(DefaultMQPushConsumer('end', ADDRESS, Orderly()))",
    "DefaultMQPushConsumer, traced":
        "subscribed(DefaultMQPushConsumer('end', ADDRESS, lambda messages: None, enable_msg_trace=True))",
    "DefaultMQPullConsumer": "DefaultMQPullConsumer('end', ADDRESS)",
    "DefaultLitePullConsumer": "subscribed(DefaultLitePullConsumer('end', ADDRESS))",
    "MQPullConsumerScheduleService": "scheduled(MQPullConsumerScheduleService('end', ADDRESS))",
    "DefaultMQAdminExt": "started_admin(DefaultMQAdminExt(ADDRESS))",
    "AsyncProducer": "in_loop(AsyncProducer('end', ADDRESS))",
    "AsyncConsumer": "in_loop(AsyncConsumer('end', ADDRESS, topics=TOPIC))",
}
SCRIPT = """
import asyncio, logging, sys, threading
from rmqha.aio import AsyncConsumer, AsyncProducer
from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import MessageListenerOrderly
from rmqha.client.consumer.mq_pull_consumer_schedule_service import MQPullConsumerScheduleService
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.hooks import TransactionListener
from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
from rmqha.common.message.message import Message
from rmqha.common.message.message import MessageExt
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

ADDRESS, TOPIC, MAKE = sys.argv[1:]
logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format="%(levelname)s %(message)s")

class Orderly(MessageListenerOrderly):
    def consume_message(self, msgs, context):
        raise AssertionError

class Started:
    def start(self):
        pass

def subscribed(consumer):
    consumer.subscribe(TOPIC)
    return consumer

def scheduled(service):
    service.register_pull_task_callback(TOPIC, lambda queue, context: None)
    return service

def started_admin(admin):
    admin.api.get_broker_cluster_info(3000)
    return Started()

class LoopThatNobodyCloses(asyncio.SelectorEventLoop):
    def __del__(self):  # Python's own fails when its sockets were collected first
        pass

def in_loop(client):
    LoopThatNobodyCloses().run_until_complete(client.start())
    return Started()

client = eval(MAKE)
client.start()
if hasattr(client, "send") and not isinstance(client, TransactionMQProducer):
    client.send(Message(TOPIC, b"x"))
# those of a loop's executor are ended by the interpreter
names = sorted({thread.name for thread in threading.enumerate()
                if not thread.daemon and not thread.name.startswith("asyncio_")})
sys.stdout.write(f"THREADS {names}\\n")  # at once: other threads log into the same stream
raise KeyError("a test that fails between start and shutdown")
"""


def _subclasses(kind: type) -> set[type]:
    return {kind, *(deeper for direct in kind.__subclasses__() for deeper in _subclasses(direct))}


def test_every_client_is_covered():
    public = {kind.__name__ for kind in _subclasses(Lifecycle) if kind.__name__.startswith("Default")
              or kind.__name__.endswith("Producer")}
    assert {kind for kind in public if "." not in kind} <= {name.partition(",")[0] for name in PROCESS_END_CLIENTS}


def _run(script, servers, kind):
    command = patience.command(["-c", script, servers.namesrv, servers.unique("End"), PROCESS_END_CLIENTS[kind]])
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("kind", PROCESS_END_CLIENTS)
def test_process_ends_without_a_shutdown_of_the_client(servers, kind):
    done = _run(SCRIPT, servers, kind)
    assert done.returncode == 1, done.stderr
    assert "a test that fails between start and shutdown" in done.stderr
    assert "THREADS ['MainThread']" in done.stdout
    assert "DEBUG the process exits without a shutdown of the client [" in done.stdout
    assert "Fatal Python error" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr


def test_pending_requests_are_logged(servers):
    script = SCRIPT.replace("client.send(Message(TOPIC, b\"x\"))", """
    client.send(Message(TOPIC, b"x"))
    client.request_async(Message(TOPIC, b"x"), Callback(), 60_000)""").replace("class Started", """
from rmqha.client.producer.request_response_future import RequestCallback
Callback = RequestCallback

class Started""")
    done = _run(script, servers, "DefaultMQProducer")
    assert done.returncode == 1, done.stderr
    [line] = [line for line in done.stdout.splitlines() if "without a shutdown" in line]
    assert "'end'" in line and "1 requests without an answer" in line


def test_client_that_is_shut_down_leaves_nothing_to_log(servers):
    script = SCRIPT.replace("names = ", "client.shutdown()\nnames = ")
    done = _run(script, servers, "DefaultMQProducer")
    assert done.returncode == 1 and "without a shutdown" not in done.stdout, done.stderr


# A program that uses the client prints nothing unless it asks for it.

# The program has a name server that is down, and a cluster whose only broker is lost while a producer sends and a
# consumer pulls.
PROGRAM = """
import sys, threading, time
sys.path.insert(0, {root!r})
{setup}
from pathlib import Path
from rmqha import ConsumeStatus, Message, MQClientException, Producer, PushConsumer, RemotingException
from tests.support.in_process import running_name_server, start_broker

try:
    with Producer("silent", "127.0.0.1:1") as producer:
        producer.send(Message("T", b"x"))
    raise AssertionError("not reached")
except RemotingException:
    pass
with running_name_server(Path({folder!r})) as address:
    broker = start_broker("broker-a", address, Path({folder!r}))
    got = threading.Event()

    def listener(messages):
        got.set()
        return ConsumeStatus.CONSUME_SUCCESS

    with Producer("silent", address, send_msg_timeout=2_000) as producer:
        producer.send(Message("T", b"x"))
        with PushConsumer("silent-consumer", address, listener) as consumer:
            consumer.subscribe("T")
            assert got.wait(240)
            broker.shutdown()
            try:
                producer.send(Message("T", b"x"))
                raise AssertionError("not reached")
            except (MQClientException, RemotingException):
                pass
            time.sleep(1.2)  # the consumer pulls again, in vain
print("done")
"""
SERVERS = "import logging; [logging.getLogger('Rocketmq' + name).addHandler(logging.NullHandler()) for name in " \
          "('Broker', 'Store', 'Namesrv', 'Console', 'NamesrvConsole', 'Filter', 'Transaction', 'Stats')]"


def run(tmp_path, setup: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(root=str(ROOT), folder=str(tmp_path), setup=f"{SERVERS}\n{setup}")
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=600,
                            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert result.returncode == 0 and result.stdout == "done\n", result.stdout + result.stderr
    return result


def test_program_without_logging_prints_nothing(tmp_path):
    assert run(tmp_path, "").stderr == ""


@pytest.mark.parametrize("setup, line", [
    ("import logging; logging.basicConfig(level=logging.INFO)", r"^(INFO|WARNING):Rocketmq\w+:"),
    ("import rmqha; rmqha.log_to_stderr(); rmqha.log_to_stderr()",
     r"^\d{4}-\d\d-\d\d [\d:,]{12} (INFO   |WARNING) Rocketmq\w+ - "),
])
def test_program_with_logging_prints_each_event_once(tmp_path, setup, line):
    text = run(tmp_path, setup).stderr
    assert "Traceback" not in text
    for what in ("connect remote host[127.0.0.1:1] failed", "producer [silent] start OK", "consumer [silent-consumer]"):
        assert len([row for row in text.splitlines() if re.match(line, row) and what in row]) >= 1, text
    starts = [row for row in text.splitlines() if "consumer [silent-consumer] start OK" in row]
    assert len(starts) == 1, starts


def test_log_level_warning_prints_only_warnings(tmp_path):
    text = run(tmp_path, "import rmqha; rmqha.log_to_stderr('WARNING')").stderr
    assert "start OK" not in text and " WARNING Rocketmq" in text and " INFO " not in text
