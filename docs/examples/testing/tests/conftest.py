"""Fixtures for the shop's tests."""
import time

import pytest
from shop import TOPIC, Billing, Shop


@pytest.fixture
def mq(rocketmq):
    """A clean RocketMQ with the topic for orders."""
    rocketmq.create_topic(TOPIC, queues=4)
    return rocketmq


@pytest.fixture
def shop(mq):
    """A shop."""
    with Shop(mq.namesrv_addr) as shop:
        yield shop


@pytest.fixture
def billing(mq):
    """The shop's billing, running."""
    with Billing(mq.namesrv_addr) as billing:
        yield billing


@pytest.fixture
def eventually():
    """eventually(predicate) waits until the predicate is true, for at most 10 s."""
    def wait(predicate):
        deadline = time.monotonic() + 10
        while not predicate():
            assert time.monotonic() < deadline, "not within 10 s"
            time.sleep(0.005)

    return wait
