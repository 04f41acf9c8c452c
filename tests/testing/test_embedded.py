"""EmbeddedRocketMQ: each thing that it promises."""
import shutil
import socket
import subprocess
import sys
import time

import pytest

from rmqha.client.exception import MQClientException
from rmqha.common.message.message import Message, MessageQueue
from rmqha.testing import EmbeddedError, EmbeddedRocketMQ, node
from rmqha.testing.embedded import TemporaryFolder
from rmqha.testing.node import free_broker_port, parse_topology
from tests.support.own_threads import own_threads
from tests.support.wait import wait_until
from tests.testing.support import bodies, consuming, producing, send


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """One master."""
    with EmbeddedRocketMQ(store_dir=tmp_path_factory.mktemp("stores")) as mq:
        yield mq


@pytest.fixture
def mq(started):
    """One master, clean."""
    started.reset()
    return started


def test_it_takes_little_room_and_leaves_nothing(tmp_path):
    threads = own_threads()
    for _ in range(2):
        with EmbeddedRocketMQ(store_dir=tmp_path) as mq:
            assert list(tmp_path.iterdir())
            assert sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*")) < 200_000
            assert mq.messages("orders") == []
        assert not list(tmp_path.iterdir())
    wait_until(lambda: own_threads() <= threads, 60_000, "all threads are gone")


def test_message_comes_back_as_it_was_sent_in_the_order_of_queues_and_offsets(mq):
    mq.create_topic("orders", queues=3)
    with producing(mq) as producer:
        for queue, body in ((2, b"c"), (0, b"a" * 10_000), (2, b"d"), (1, b"b")):
            message = Message("orders", body, tags="paid", keys=["k1"])
            message.put_user_property("colour", "grün")
            result = producer.send(message, queue=MessageQueue("orders", "broker-a", queue))
    messages = mq.messages("orders")
    assert bodies(messages) == [b"a" * 10_000, b"b", b"c", b"d"]  # the first was sent compressed
    assert [(one.queue_id, one.queue_offset) for one in messages] == [(0, 0), (1, 0), (2, 0), (2, 1)]
    assert {(one.topic, one.tags, one.keys, one.get_user_property("colour"), one.broker_name) for one in messages} == {
        ("orders", "paid", "k1", "grün", "broker-a")}
    assert messages[1].msg_id == result.msg_id


def test_new_topic_has_the_queues_asked_for_at_once(mq):
    mq.create_topic("seven", queues=7)
    with producing(mq) as producer:
        assert {queue.queueId for queue in producer.fetch_publish_message_queues("seven")} == set(range(7))


@pytest.mark.parametrize("name, queues, why", [
    ("a b", 4, "illegal characters"), ("", 4, "blank"), ("TBW102", 4, "of the system"), ("fine", 0, "1 to 65536")])
def test_impossible_topic_is_refused_with_the_reason(mq, name, queues, why):
    with pytest.raises(EmbeddedError, match=why):
        mq.create_topic(name, queues)


def test_restart_keeps_messages_offsets_and_addresses(mq):
    mq.create_topic("orders", queues=1)
    with producing(mq) as producer:
        producer.send(Message("orders", b"before"))
        with consuming(mq, "billing", "orders") as seen:
            wait_until(lambda: seen == [b"before"])
        before = mq.namesrv_addr, mq.broker("broker-a").address
        mq.restart()
        assert (mq.namesrv_addr, mq.broker("broker-a").address) == before
        producer.send(Message("orders", b"after"))
    assert bodies(mq.messages("orders")) == [b"before", b"after"]
    with consuming(mq, "billing", "orders") as seen:
        wait_until(lambda: seen)
        assert seen == [b"after"]


def test_killed_broker_keeps_what_was_written_and_loses_what_was_not(mq):
    mq.create_topic("orders", queues=1)
    send(mq, "orders", b"1", b"2")
    offsets = mq.broker("broker-a").controller.consumer_offset_manager
    offsets.commit_offset("test", "billing", "orders", 0, 1)
    offsets.persist()
    offsets.commit_offset("test", "billing", "orders", 0, 2)  # to be saved some seconds later
    assert mq.kill_master() == "broker-a"
    assert not mq.broker("broker-a").is_running
    with pytest.raises(EmbeddedError, match=r"broker-a is down; restart\('broker-a'\)"):
        mq.messages("orders")
    with pytest.raises(EmbeddedError, match="no master runs"):
        mq.kill_master()
    mq.restart()
    assert bodies(mq.messages("orders")) == [b"1", b"2"]
    assert mq.broker("broker-a").controller.consumer_offset_manager.query_offset("billing", "orders", 0) == 1


def test_broker_whose_port_is_taken_starts_at_another_one(mq, monkeypatch):
    send(mq, "orders", b"1")
    port = mq.broker("broker-a").controller.server_config.listenPort
    mq.kill_master()
    with socket.create_server(("", port)) as taken:
        free = iter([taken.getsockname()[1], free_broker_port()])
        monkeypatch.setattr(node, "free_broker_port", lambda: next(free))  # the first is taken in between, too
        mq.restart()
        assert mq.broker("broker-a").controller.server_config.listenPort != taken.getsockname()[1]
        send(mq, "orders", b"2")
        assert set(bodies(mq.messages("orders"))) == {b"1", b"2"}


def test_reset_leaves_nothing_of_before_and_the_producer_goes_on(mq):
    mq.create_topic("orders", queues=1)
    addresses = mq.namesrv_addr, mq.broker("broker-a").address
    with producing(mq) as producer:
        delayed = Message("later", b"delayed")
        delayed.delay_time_level = 1  # a second
        producer.send(delayed)
        producer.send(Message("orders", b"before"))
        mq.broker("broker-a").controller.consumer_offset_manager.commit_offset("test", "billing", "orders", 0, 1)
        producer.admin.create_topic("TBW102", "made-by-client", 1)
        mq.slow_down(1)
        sent_at = time.monotonic()
        mq.reset()
        assert mq.faults == [] and (mq.namesrv_addr, mq.broker("broker-a").address) == addresses
        assert mq.messages("orders") == []
        with pytest.raises(MQClientException):
            producer.fetch_publish_message_queues("made-by-client")
        assert mq.broker("broker-a").controller.consumer_offset_manager.query_offset("billing", "orders", 0) == -1
        assert mq.broker("broker-a").store.get_max_phy_offset() == 0
        mq.create_topic("orders", queues=1)
        producer.send(Message("orders", b"after"))
        assert bodies(mq.messages("orders")) == [b"after"]
        wait_until(lambda: time.monotonic() > sent_at + 1.5)
        assert mq.messages("later") == []


def test_reset_empties_the_key_value_table_of_the_name_server(mq):
    kv = mq._namesrv.controller.kv_config_manager
    kv.put_kv_config("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    mq.reset()
    assert kv.get_kv_config("ORDER_TOPIC_CONFIG", "orders") is None


def test_two_clusters_in_one_process_know_nothing_of_each_other(mq):
    with EmbeddedRocketMQ() as other:
        send(mq, "orders", b"mine")
        send(other, "orders", b"other")
        assert bodies(mq.messages("orders")) == [b"mine"]
        assert bodies(other.messages("orders")) == [b"other"]


def test_config_reaches_the_brokers(tmp_path):
    with EmbeddedRocketMQ(store_dir=tmp_path, config={"flushDiskType": "SYNC_FLUSH", "autoCreateTopicEnable": False,
                                                      "transactionCheckInterval": 1000}) as mq:
        controller = mq.broker("broker-a").controller
        assert controller.message_store_config.flushDiskType.name == "SYNC_FLUSH"
        assert controller.broker_config.transactionCheckInterval == 1000
        with pytest.raises(MQClientException, match="No route info of this topic"):
            send(mq, "unknown", b"1")


@pytest.mark.parametrize("config, why", [
    ({"flushDiskTyp": "SYNC_FLUSH"}, "no key flushDiskTyp, did you mean flushDiskType?"),
    ({"brokerRole": "SLAVE"}, "brokerRole is set for each broker"),
    ({"flushDiskType": "NEVER"}, "flushDiskType=NEVER: ")])
def test_bad_config_is_refused_with_the_reason(tmp_path, config, why):
    with pytest.raises(EmbeddedError, match=why.replace("?", r"\?")):
        with EmbeddedRocketMQ(store_dir=tmp_path, config=config):
            raise AssertionError("it has started")
    assert not list(tmp_path.iterdir())


def test_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(EmbeddedError, match="no folder for the stores can be made in .*nowhere"):
        EmbeddedRocketMQ(store_dir=tmp_path / "nowhere").start()


def test_it_says_that_it_was_not_started():
    mq = EmbeddedRocketMQ()
    for use in (lambda: mq.namesrv_addr, lambda: mq.messages("orders"), mq.reset, mq.restart, mq.kill_master):
        with pytest.raises(EmbeddedError, match="it is not started"):
            use()


@pytest.mark.parametrize("topology, nodes", [
    ("1m", ["broker-a"]), ("1m-1s", ["broker-a", "broker-a-s"]),
    ("2m-2s", ["broker-a", "broker-b", "broker-a-s", "broker-b-s"]),
    ("1m-2s", ["broker-a", "broker-a-s", "broker-a-s2"])])
def test_topology_names_its_brokers(topology, nodes):
    assert [place.node for place in parse_topology(topology)] == nodes


@pytest.mark.parametrize("topology", ["", "0m", "2m-1s", "m", "1s", "1m-1s-sync", "10m"])
def test_topology_that_is_none_is_refused(topology):
    with pytest.raises(EmbeddedError, match="1m, 1m-1s, 2m"):
        EmbeddedRocketMQ(topology)


def test_unknown_node_is_refused_with_those_that_there_are(mq):
    for use in (mq.kill, mq.restart, mq.fill_disk, lambda node: mq.messages("orders", node)):
        with pytest.raises(EmbeddedError, match="there is no 'broker-z'; 1m has broker-a"):
            use("broker-z")


def test_folder_of_a_killed_process_goes_with_the_next_start(tmp_path):
    code = ("import os, signal, sys\nfrom rmqha.testing.embedded import TemporaryFolder\n"
            "folder = TemporaryFolder(sys.argv[1])\nos.kill(os.getpid(), signal.SIGKILL)")
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    mine = TemporaryFolder(tmp_path)
    left = [path.name for path in tmp_path.iterdir()]
    assert left == [mine.path.name]
    other = TemporaryFolder(tmp_path)
    assert mine.path.exists()
    for folder in (mine, other):
        folder.close()
    assert not list(tmp_path.iterdir())


def test_folder_in_which_something_was_left_goes_with_the_next_start(tmp_path, monkeypatch):
    left = TemporaryFolder(tmp_path)
    (left.path / "stores").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)  # as when somebody still writes there
        left.close()
    assert left.path.exists()
    TemporaryFolder(tmp_path).close()
    assert not list(tmp_path.iterdir())


def test_program_without_logging_hears_nothing_and_ends():
    code = ("from rmqha.testing import EmbeddedRocketMQ\n"
            "with EmbeddedRocketMQ('1m-1s') as mq:\n    mq.kill_master()\n    mq.restart()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout + done.stderr == ""
