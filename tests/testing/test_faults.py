"""Faults on purpose: what clients see of them, and that nothing of them is left."""

import pytest

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common.message.message import Message
from rmqha.common.protocol import response_code
from rmqha.testing import EmbeddedError, EmbeddedRocketMQ
from tests.support.wait import lasting, wait_until
from tests.testing.support import bodies, consuming, producing


@pytest.fixture(scope="module")
def started():
    """One master."""
    with EmbeddedRocketMQ() as mq:
        yield mq


@pytest.fixture
def mq(started):
    """One master with the topic orders, and no faults."""
    started.reset()
    started.create_topic("orders", queues=1)
    return started


def test_refused_sends_are_tried_again_and_none_is_stored_twice(mq):
    refused = mq.refuse("SYSTEM_ERROR", times=2)
    with producing(mq, retries=2) as producer:
        producer.send(Message("orders", b"third time lucky"))
    assert refused.hits == 2
    assert bodies(mq.messages("orders")) == [b"third time lucky"]


def test_refusals_reach_the_caller_with_code_and_remark(mq):
    with mq.refuse("SYSTEM_BUSY", times=3, remark="come back later") as refused:
        with producing(mq) as producer:
            for _ in range(3):  # no producer of RocketMQ tries again by itself when a broker is busy
                with pytest.raises(MQBrokerException, match="come back later") as failed:
                    producer.send(Message("orders", b"lost"))
                assert failed.value.response_code == response_code.SYSTEM_BUSY
            assert refused.hits == 3
            producer.send(Message("orders", b"through"))
    assert bodies(mq.messages("orders")) == [b"through"]


def test_refusal_without_times_goes_on_until_it_is_healed(mq):
    with producing(mq, retries=0) as producer:
        with mq.refuse("NO_PERMISSION"):
            for _ in range(5):
                with pytest.raises(MQClientException) as failed:
                    producer.send(Message("orders", b"lost"))
                assert failed.value.response_code == response_code.NO_PERMISSION
        producer.send(Message("orders", b"through"))
    assert bodies(mq.messages("orders")) == [b"through"]


def test_only_the_requests_named_are_refused(mq):
    with producing(mq) as producer, mq.refuse("SYSTEM_ERROR", requests=["PULL_MESSAGE"]) as refused:
        producer.send(Message("orders", b"1"))
        with consuming(mq, "billing", "orders") as seen:
            wait_until(lambda: refused.hits)
            assert seen == []
            refused.heal()
            wait_until(lambda: seen == [b"1"])


def test_slow_broker_answers_later_and_serves_side_by_side(mq):
    with producing(mq) as producer:
        producer.send(Message("orders", b"warm"))
        with mq.slow_down(150) as slow:
            with lasting(0.15):
                producer.send(Message("orders", b"slow"))
            assert slow.hits >= 1
        slowed = slow.hits
        producer.send(Message("orders", b"fast"))
        assert slow.hits == slowed
    assert bodies(mq.messages("orders")) == [b"warm", b"slow", b"fast"]


def test_consumers_of_a_slow_broker_get_their_messages_late(mq):
    with producing(mq) as producer:
        with mq.slow_down(200, requests=["PULL_MESSAGE"]) as slow, consuming(mq, "billing", "orders") as seen:
            producer.send(Message("orders", b"1"))
            wait_until(lambda: seen == [b"1"])
            assert slow.hits >= 1


def test_late_refusal_is_both(mq):
    with producing(mq, retries=0) as producer, mq.slow_down(100), mq.refuse("SYSTEM_BUSY", times=1):
        with lasting(0.1), pytest.raises(MQBrokerException):
            producer.send(Message("orders", b"lost"))


def test_full_disk_takes_no_messages_and_gives_those_it_has(mq):
    with producing(mq, retries=0) as producer:
        producer.send(Message("orders", b"before"))
        with mq.fill_disk():
            with pytest.raises(MQClientException) as failed:
                producer.send(Message("orders", b"lost"))
            assert failed.value.response_code == response_code.SERVICE_NOT_AVAILABLE
            with consuming(mq, "billing", "orders") as seen:
                wait_until(lambda: seen == [b"before"])
        producer.send(Message("orders", b"after"))
    assert bodies(mq.messages("orders")) == [b"before", b"after"]


def test_a_broker_without_faults_has_nothing_of_them_in_its_way(mq):
    server = mq.broker("broker-a").controller.remoting_server

    def way():
        return server.io.express_lane, server.default_request_processor, server.processor_table

    before = way()
    assert before[0] is not None
    first, second = mq.slow_down(5), mq.refuse("SYSTEM_BUSY", times=1)
    assert server.io.express_lane is None and server.processor_table is not before[2]
    first.heal()
    assert server.io.express_lane is None
    second.heal()
    second.heal()
    assert all(now is then for now, then in zip(way(), before, strict=True))
    assert mq.faults == []


def test_heal_ends_all_faults_and_restart_does_too(mq):
    for end in (mq.heal, mq.restart):
        faults = [mq.slow_down(50), mq.refuse("SYSTEM_BUSY"), mq.fill_disk()]
        assert mq.faults == faults
        end()
        assert mq.faults == [] and not any(fault.is_active for fault in faults)
        with producing(mq, retries=0) as producer:
            producer.send(Message("orders", b"through"))


def test_fault_that_outlives_its_cluster_is_over():
    with EmbeddedRocketMQ() as mq:
        slow, full = mq.slow_down(5), mq.fill_disk()
    assert not slow.is_active and not full.is_active
    slow.heal()
    full.heal()


@pytest.mark.parametrize("fault, why", [
    (lambda mq: mq.refuse("SYSTEM_BUZY"), "no response code has the name 'SYSTEM_BUZY', did you mean SYSTEM_BUSY?"),
    (lambda mq: mq.refuse("SUCCESS"), "SUCCESS refuses nothing"),
    (lambda mq: mq.refuse("SYSTEM_BUSY", times=0), "refuse 0 times: it has to be 1 or more"),
    (lambda mq: mq.refuse("SYSTEM_BUSY", requests=["SEND_MESAGE"]), "did you mean SEND_MESSAGE?"),
    (lambda mq: mq.slow_down(0), "slow_down by 0 ms: it has to be more than 0"),
    (lambda mq: mq.partition(), "1m has no slaves there to cut off")])
def test_impossible_fault_is_refused_with_the_reason(mq, fault, why):
    with pytest.raises(EmbeddedError) as failed:
        fault(mq)
    assert why in str(failed.value)
    assert mq.faults == []
