"""Clusters with slaves: what is where, when a master is killed, and when the link is cut."""
import pytest

from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from rmqha.testing import EmbeddedError, EmbeddedRocketMQ
from tests.support.wait import wait_until
from tests.testing.support import bodies, consuming, producing, send


@pytest.fixture(scope="module")
def pair():
    """A master that waits for its slave."""
    with EmbeddedRocketMQ("1m-1s", sync=True) as mq:
        yield mq


@pytest.fixture
def mq(pair):
    """A master that waits for its slave, with the topic orders."""
    pair.reset()
    pair.create_topic("orders", queues=1)
    return pair


@pytest.mark.parametrize("sync, role", [(False, "ASYNC_MASTER"), (True, "SYNC_MASTER")])
def test_two_masters_and_two_slaves_are_there_at_once(sync, role):
    with EmbeddedRocketMQ("2m-2s", sync=sync) as mq:
        assert [(one.node, one.controller.message_store_config.brokerRole.name) for one in mq.brokers] == [
            ("broker-a", role), ("broker-b", role), ("broker-a-s", "SLAVE"), ("broker-b-s", "SLAVE")]
        table = mq._namesrv.controller.route_info_manager.get_all_cluster_info().brokerAddrTable
        assert {name: sorted(data.brokerAddrs) for name, data in table.items()} == {
            "broker-a": [0, 1], "broker-b": [0, 1]}
        mq.create_topic("orders")  # one that comes into being with a message is on one broker at first
        results = send(mq, "orders", *[b"%d" % number for number in range(16)])
        assert {result.message_queue.brokerName for result in results} == {"broker-a", "broker-b"}
        mq.wait_for_slaves()
        for name in ("broker-a", "broker-b"):
            assert bodies(mq.messages("orders", name)) == bodies(mq.messages("orders", name + "-s")) != []
        assert mq.messages("orders")[0].broker_name == "broker-a"


def test_producer_goes_on_with_the_other_master_and_nothing_acknowledged_is_lost():
    with EmbeddedRocketMQ("2m") as mq:
        mq.create_topic("orders", queues=2)
        with producing(mq) as producer:
            sent = {b"%d" % number for number in range(20)}
            for body in sorted(sent)[:10]:
                producer.send(Message("orders", body))
            assert mq.kill_master("broker-b") == "broker-b"
            for body in sorted(sent)[10:]:
                assert producer.send(Message("orders", body)).message_queue.brokerName == "broker-a"
        mq.restart("broker-b")
        assert set(bodies(mq.messages("orders"))) == sent


def test_sync_master_has_each_message_on_the_slave_before_it_answers(mq):
    assert [result.send_status for result in send(mq, "orders", b"1", b"2")] == [SendStatus.SEND_OK] * 2
    assert bodies(mq.messages("orders", "broker-a-s")) == [b"1", b"2"]


def test_consumer_reads_on_from_the_slave_when_the_master_is_killed(mq):
    send(mq, "orders", b"1", b"2")
    mq.wait_for_slaves()
    mq.kill_master()
    assert bodies(mq.messages("orders")) == [b"1", b"2"]
    with consuming(mq, "billing", "orders") as seen:
        wait_until(lambda: seen == [b"1", b"2"])
    with pytest.raises(EmbeddedError, match="broker-a-s can't get anything"):
        mq.wait_for_slaves()
    mq.restart("broker-a")
    assert [result.send_status for result in send(mq, "orders", b"3")] == [SendStatus.SEND_OK]
    assert bodies(mq.messages("orders", "broker-a-s")) == [b"1", b"2", b"3"]


def test_nothing_passes_a_cut_link_and_all_comes_when_it_is_healed(mq):
    with producing(mq) as producer:
        with mq.partition():
            result = producer.send(Message("orders", b"1"))
            assert result.send_status is SendStatus.SLAVE_NOT_AVAILABLE
            assert bodies(mq.messages("orders", "broker-a")) == [b"1"]
            assert mq.messages("orders", "broker-a-s") == []
            with pytest.raises(EmbeddedError, match="broker-a-s can't get anything"):
                mq.wait_for_slaves()
        mq.wait_for_slaves()
        assert bodies(mq.messages("orders", "broker-a-s")) == [b"1"]
        assert producer.send(Message("orders", b"2")).send_status is SendStatus.SEND_OK


def test_what_a_killed_master_had_alone_is_not_on_its_slave(mq):
    with mq.partition("broker-a"):
        send(mq, "orders", b"1")
        mq.kill_master()
        assert mq.messages("orders") == []  # the slave's
    mq.restart("broker-a")
    mq.wait_for_slaves()
    assert bodies(mq.messages("orders", "broker-a-s")) == [b"1"]


def test_only_the_pair_named_is_cut_off():
    with EmbeddedRocketMQ("2m-2s", sync=True) as mq:
        mq.create_topic("orders", queues=1)
        with producing(mq) as producer, mq.partition("broker-b"):
            results = [producer.send(Message("orders", b"%d" % number)) for number in range(4)]
        assert {result.message_queue.brokerName: result.send_status for result in results} == {
            "broker-a": SendStatus.SEND_OK, "broker-b": SendStatus.SLAVE_NOT_AVAILABLE}


def test_killed_slave_catches_up_after_its_restart(mq):
    mq.kill("broker-a-s")
    assert send(mq, "orders", b"1")[0].send_status is SendStatus.SLAVE_NOT_AVAILABLE
    mq.restart("broker-a-s")
    mq.wait_for_slaves()
    assert bodies(mq.messages("orders", "broker-a-s")) == [b"1"]


def test_restart_of_all_has_the_slaves_follow_again(mq):
    send(mq, "orders", b"1")
    mq.restart()
    assert send(mq, "orders", b"2")[0].send_status is SendStatus.SEND_OK
    assert bodies(mq.messages("orders", "broker-a-s")) == [b"1", b"2"]
