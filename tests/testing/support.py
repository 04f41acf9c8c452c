"""Helpers shared by the tests of rmqha.testing."""
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.testing import EmbeddedRocketMQ, RocketMQProcess
from tests.support import real_rocketmq
from tests.support.sources import ROOT

_LOADED = any(entry.value == "rmqha.testing.plugin" for entry in entry_points(group="pytest11"))


def run_pytest(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run pytest in a folder, with the plugin, as a user does who has installed rmqha."""
    plugin = [] if _LOADED else ["-p", "rmqha.testing.plugin"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "NAMESRV_ADDR"))}
    env |= {"PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", *arguments], cwd=folder,
                          env=env, capture_output=True, text=True, timeout=600, check=False)


def outcome(done: subprocess.CompletedProcess) -> str:
    """Return the last line without the time: "2 passed, 1 error in 0.30s" becomes "2 passed, 1 error"."""
    line = done.stdout.strip().splitlines()[-1].strip("= ")
    return line.partition(" in ")[0]


OURS = ["embedded", "process"]
JAVA = pytest.param(real_rocketmq.VERSION, marks=pytest.mark.java)
JAVA_5 = pytest.param(real_rocketmq.VERSION_5, marks=pytest.mark.java)


def started_cluster(kind, home, topology="1m-1s"):
    """Return a cluster with a slave, to be used with `with`; for RocketMQ 5 without one, which takes long to start."""
    if kind == "embedded":
        return EmbeddedRocketMQ(topology)
    return RocketMQProcess("1m" if kind == real_rocketmq.VERSION_5 else topology, rocketmq_home=home)


@contextmanager
def producing(mq, retries=2, timeout_ms=10_000):
    """A running producer."""
    producer = DefaultMQProducer("producers", mq.namesrv_addr)
    producer.retry_times_when_send_failed = retries
    producer.send_msg_timeout = timeout_ms
    with producer:
        yield producer


def send(mq, topic, *bodies, **message):
    """Send messages, one after the other, and return the results."""
    with producing(mq) as producer:
        return [producer.send(Message(topic, body, **message)) for body in bodies]


@contextmanager
def consuming(mq, group, topic):
    """Start a consumer of a group at the first message; yield the list to which it appends bodies."""
    bodies = []

    def take(messages):
        bodies.extend(message.body for message in messages)

    consumer = DefaultMQPushConsumer(group, mq.namesrv_addr, take)
    consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer.subscribe(topic)
    with consumer:
        yield bodies


def bodies(messages):
    """Return the messages' bodies, in order."""
    return [message.body for message in messages]
