"""A process whose main thread ends, with an exception say, while a client of it still runs."""
import subprocess

import pytest

from rmqha.client.life import Lifecycle
from tests.support import patience
from tests.support.sources import ROOT

LIMIT_S = 120
CLIENTS = {
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


def test_every_client_is_tried():
    public = {kind.__name__ for kind in _subclasses(Lifecycle) if kind.__name__.startswith("Default")
              or kind.__name__.endswith("Producer")}
    assert {kind for kind in public if "." not in kind} <= {name.partition(",")[0] for name in CLIENTS}


def _run(script, servers, kind):
    command = patience.command(["-c", script, servers.namesrv, servers.unique("End"), CLIENTS[kind]])
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize("kind", CLIENTS)
def test_process_ends_though_nobody_shuts_the_client_down(servers, kind):
    done = _run(SCRIPT, servers, kind)
    assert done.returncode == 1, done.stderr
    assert "a test that fails between start and shutdown" in done.stderr
    assert "THREADS ['MainThread']" in done.stdout
    assert "DEBUG the process ends, and nobody has shut down the client [" in done.stdout
    assert "Fatal Python error" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr


def test_what_was_pending_is_logged(servers):
    script = SCRIPT.replace("client.send(Message(TOPIC, b\"x\"))", """
    client.send(Message(TOPIC, b"x"))
    client.request_async(Message(TOPIC, b"x"), Callback(), 60_000)""").replace("class Started", """
from rmqha.client.producer.request_response_future import RequestCallback
Callback = RequestCallback

class Started""")
    done = _run(script, servers, "DefaultMQProducer")
    assert done.returncode == 1, done.stderr
    [line] = [line for line in done.stdout.splitlines() if "nobody has shut down" in line]
    assert "'end'" in line and "1 requests without an answer" in line


def test_client_that_is_shut_down_leaves_nothing_to_log(servers):
    script = SCRIPT.replace("names = ", "client.shutdown()\nnames = ")
    done = _run(script, servers, "DefaultMQProducer")
    assert done.returncode == 1 and "nobody has shut down" not in done.stdout, done.stderr
