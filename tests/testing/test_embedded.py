"""EmbeddedRocketMQ: its guarantees, fault injection, clusters with slaves, and `python -m rmqha.testing.server`."""
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message, MessageQueue
from rmqha.common.protocol import response_code
from rmqha.testing import EmbeddedError, EmbeddedRocketMQ, RemoteRocketMQ, node
from rmqha.testing.cluster_parts import TemporaryFolder, free_broker_port, parse_topology
from tests.support import start_as
from tests.support.sources import ROOT
from tests.support.wait import lasting, own_threads, wait_until
from tests.testing.support import bodies, consuming, producing, send

# The guarantees of EmbeddedRocketMQ.


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    """A cluster of one master, shared by the module."""
    with EmbeddedRocketMQ(store_dir=tmp_path_factory.mktemp("stores")) as mq:
        yield mq


@pytest.fixture
def mq(started):
    """A cluster of one master, reset before the test."""
    started.reset()
    return started


def test_it_uses_little_disk_space_and_leaves_nothing(tmp_path):
    threads = own_threads()
    for _ in range(2):
        with EmbeddedRocketMQ(store_dir=tmp_path) as mq:
            assert list(tmp_path.iterdir())
            assert sum(file.stat().st_blocks * 512 for file in tmp_path.rglob("*")) < 200_000
            assert mq.messages("orders") == []
        assert not list(tmp_path.iterdir())
    wait_until(lambda: own_threads() <= threads, 60_000, "all threads are gone")


def test_messages_return_as_they_were_sent_in_the_order_of_queues_and_offsets(mq):
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


def test_new_topic_has_the_requested_queues_at_once(mq):
    mq.create_topic("seven", queues=7)
    with producing(mq) as producer:
        assert {queue.queueId for queue in producer.fetch_publish_message_queues("seven")} == set(range(7))


@pytest.mark.parametrize("name, queues, why", [
    ("a b", 4, "illegal characters"), ("", 4, "blank"), ("TBW102", 4, "of the system"), ("fine", 0, "1 to 65536")])
def test_invalid_topic_is_refused_with_the_reason(mq, name, queues, why):
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


def test_killed_broker_keeps_what_it_had_written_and_loses_the_rest(mq):
    mq.create_topic("orders", queues=1)
    send(mq, "orders", b"1", b"2")
    offsets = mq.broker("broker-a").controller.consumer_offset_manager
    offsets.commit_offset("test", "billing", "orders", 0, 1)
    offsets.persist()
    # Offsets are saved only after some seconds.
    offsets.commit_offset("test", "billing", "orders", 0, 2)
    assert mq.kill_master() == "broker-a"
    assert not mq.broker("broker-a").is_running
    with pytest.raises(EmbeddedError, match=r"broker-a is down; restart\('broker-a'\)"):
        mq.messages("orders")
    with pytest.raises(EmbeddedError, match="no master is running"):
        mq.kill_master()
    mq.restart()
    assert bodies(mq.messages("orders")) == [b"1", b"2"]
    assert mq.broker("broker-a").controller.consumer_offset_manager.query_offset("billing", "orders", 0) == 1


def test_broker_whose_port_is_taken_starts_at_another(mq, monkeypatch):
    send(mq, "orders", b"1")
    port = mq.broker("broker-a").controller.server_config.listenPort
    mq.kill_master()
    with socket.create_server(("", port)) as taken:
        free = iter([taken.getsockname()[1], free_broker_port()])
        # The first one is taken in the meantime, too.
        monkeypatch.setattr(node, "free_broker_port", lambda: next(free))
        mq.restart()
        assert mq.broker("broker-a").controller.server_config.listenPort != taken.getsockname()[1]
        send(mq, "orders", b"2")
        assert set(bodies(mq.messages("orders"))) == {b"1", b"2"}


def test_reset_clears_everything_and_the_producer_keeps_working(mq):
    mq.create_topic("orders", queues=1)
    addresses = mq.namesrv_addr, mq.broker("broker-a").address
    with producing(mq) as producer:
        delayed = Message("later", b"delayed")
        delayed.delay_time_level = 1  # one second
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


def test_two_clusters_in_one_process_are_independent(mq):
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
    ({"flushDiskTyp": "SYNC_FLUSH"}, "unknown key flushDiskTyp, did you mean flushDiskType?"),
    ({"brokerRole": "SLAVE"}, "brokerRole is set by the cluster"),
    ({"flushDiskType": "NEVER"}, "flushDiskType=NEVER: ")])
def test_invalid_config_is_refused_with_the_reason(tmp_path, config, why):
    with pytest.raises(EmbeddedError, match=why.replace("?", r"\?")):
        with EmbeddedRocketMQ(store_dir=tmp_path, config=config):
            raise AssertionError("the cluster has started")
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_named_in_the_error(tmp_path):
    with pytest.raises(EmbeddedError, match="can't create a folder for the stores in .*nowhere"):
        EmbeddedRocketMQ(store_dir=tmp_path / "nowhere").start()


def test_use_before_the_start_is_an_error():
    mq = EmbeddedRocketMQ()
    for use in (lambda: mq.namesrv_addr, lambda: mq.messages("orders"), mq.reset, mq.restart, mq.kill_master):
        with pytest.raises(EmbeddedError, match="the cluster is not started"):
            use()


@pytest.mark.parametrize("topology, nodes", [
    ("1m", ["broker-a"]), ("1m-1s", ["broker-a", "broker-a-s"]),
    ("2m-2s", ["broker-a", "broker-b", "broker-a-s", "broker-b-s"]),
    ("1m-2s", ["broker-a", "broker-a-s", "broker-a-s2"])])
def test_topology_names_its_brokers(topology, nodes):
    assert [place.node for place in parse_topology(topology)] == nodes


@pytest.mark.parametrize("topology", ["", "0m", "2m-1s", "m", "1s", "1m-1s-sync", "10m"])
def test_invalid_topology_is_refused(topology):
    with pytest.raises(EmbeddedError, match="1m, 1m-1s, 2m"):
        EmbeddedRocketMQ(topology)


def test_unknown_node_is_refused_with_a_list_of_the_nodes(mq):
    for use in (mq.kill, mq.restart, mq.fill_disk, lambda node: mq.messages("orders", node)):
        with pytest.raises(EmbeddedError, match="unknown broker 'broker-z'; 1m has broker-a"):
            use("broker-z")


def test_next_start_deletes_the_folder_of_a_killed_process(tmp_path):
    code = ("import os, signal, sys\nfrom rmqha.testing.cluster_parts import TemporaryFolder\n"
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


def test_next_start_deletes_a_folder_that_could_not_be_emptied(tmp_path, monkeypatch):
    left = TemporaryFolder(tmp_path)
    (left.path / "stores").mkdir()
    with monkeypatch.context() as patched:
        # As when another process still writes there.
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        left.close()
    assert left.path.exists()
    TemporaryFolder(tmp_path).close()
    assert not list(tmp_path.iterdir())


def test_program_without_logging_prints_nothing_and_ends():
    code = ("from rmqha.testing import EmbeddedRocketMQ\n"
            "with EmbeddedRocketMQ('1m-1s') as mq:\n    mq.kill_master()\n    mq.restart()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout + done.stderr == ""


# Injected faults as clients see them, and that nothing remains of them.


@pytest.fixture(scope="module")
def faults_started():
    """A cluster of one master, for the tests of faults."""
    with EmbeddedRocketMQ() as mq:
        yield mq


@pytest.fixture
def faults_mq(faults_started):
    """A cluster of one master with the topic orders, and no faults."""
    faults_started.reset()
    faults_started.create_topic("orders", queues=1)
    return faults_started


def test_refused_sends_are_retried_and_none_is_stored_twice(faults_mq):
    refused = faults_mq.refuse("SYSTEM_ERROR", times=2)
    with producing(faults_mq, retries=2) as producer:
        producer.send(Message("orders", b"third time lucky"))
    assert refused.hits == 2
    assert bodies(faults_mq.messages("orders")) == [b"third time lucky"]


def test_refusals_reach_the_caller_with_code_and_remark(faults_mq):
    with faults_mq.refuse("SYSTEM_BUSY", times=3, remark="come back later") as refused:
        with producing(faults_mq) as producer:
            # No producer of RocketMQ retries on its own when a broker is busy.
            for _ in range(3):
                with pytest.raises(MQBrokerException, match="come back later") as failed:
                    producer.send(Message("orders", b"lost"))
                assert failed.value.response_code == response_code.SYSTEM_BUSY
            assert refused.hits == 3
            producer.send(Message("orders", b"through"))
    assert bodies(faults_mq.messages("orders")) == [b"through"]


def test_refusal_without_a_count_lasts_until_it_is_healed(faults_mq):
    with producing(faults_mq, retries=0) as producer:
        with faults_mq.refuse("NO_PERMISSION"):
            for _ in range(5):
                with pytest.raises(MQClientException) as failed:
                    producer.send(Message("orders", b"lost"))
                assert failed.value.response_code == response_code.NO_PERMISSION
        producer.send(Message("orders", b"through"))
    assert bodies(faults_mq.messages("orders")) == [b"through"]


def test_only_the_named_requests_are_refused(faults_mq):
    with producing(faults_mq) as producer, faults_mq.refuse("SYSTEM_ERROR", requests=["PULL_MESSAGE"]) as refused:
        producer.send(Message("orders", b"1"))
        with consuming(faults_mq, "billing", "orders") as seen:
            wait_until(lambda: refused.hits)
            assert seen == []
            refused.heal()
            wait_until(lambda: seen == [b"1"])


def test_slow_broker_answers_later_and_serves_in_parallel(faults_mq):
    with producing(faults_mq) as producer:
        producer.send(Message("orders", b"warm"))
        with faults_mq.slow_down(150) as slow:
            with lasting(0.15):
                producer.send(Message("orders", b"slow"))
            assert slow.hits >= 1
        slowed = slow.hits
        producer.send(Message("orders", b"fast"))
        assert slow.hits == slowed
    assert bodies(faults_mq.messages("orders")) == [b"warm", b"slow", b"fast"]


def test_consumers_of_a_slow_broker_get_their_messages_late(faults_mq):
    with producing(faults_mq) as producer:
        with faults_mq.slow_down(200, requests=["PULL_MESSAGE"]) as slow, consuming(faults_mq, "billing",
                                                                                    "orders") as seen:
            producer.send(Message("orders", b"1"))
            wait_until(lambda: seen == [b"1"])
            assert slow.hits >= 1


def test_refusal_with_a_delay_is_late(faults_mq):
    with producing(faults_mq, retries=0) as producer, faults_mq.slow_down(100), faults_mq.refuse("SYSTEM_BUSY",
                                                                                                 times=1):
        with lasting(0.1), pytest.raises(MQBrokerException):
            producer.send(Message("orders", b"lost"))


def test_broker_with_a_full_disk_takes_no_messages_but_serves_stored_ones(faults_mq):
    with producing(faults_mq, retries=0) as producer:
        producer.send(Message("orders", b"before"))
        with faults_mq.fill_disk():
            with pytest.raises(MQClientException) as failed:
                producer.send(Message("orders", b"lost"))
            assert failed.value.response_code == response_code.SERVICE_NOT_AVAILABLE
            with consuming(faults_mq, "billing", "orders") as seen:
                wait_until(lambda: seen == [b"before"])
        producer.send(Message("orders", b"after"))
    assert bodies(faults_mq.messages("orders")) == [b"before", b"after"]


def test_broker_without_faults_runs_no_fault_code(faults_mq):
    server = faults_mq.broker("broker-a").controller.remoting_server

    def way():
        return server.io.express_lane, server.default_request_processor, server.processor_table

    before = way()
    assert before[0] is not None
    first, second = faults_mq.slow_down(5), faults_mq.refuse("SYSTEM_BUSY", times=1)
    assert server.io.express_lane is None and server.processor_table is not before[2]
    first.heal()
    assert server.io.express_lane is None
    second.heal()
    second.heal()
    assert all(now is then for now, then in zip(way(), before, strict=True))
    assert faults_mq.faults == []


def test_heal_and_restart_end_all_faults(faults_mq):
    for end in (faults_mq.heal, faults_mq.restart):
        faults = [faults_mq.slow_down(50), faults_mq.refuse("SYSTEM_BUSY"), faults_mq.fill_disk()]
        assert faults_mq.faults == faults
        end()
        assert faults_mq.faults == [] and not any(fault.is_active for fault in faults)
        with producing(faults_mq, retries=0) as producer:
            producer.send(Message("orders", b"through"))


def test_fault_whose_cluster_has_closed_is_over():
    with EmbeddedRocketMQ() as mq:
        slow, full = mq.slow_down(5), mq.fill_disk()
    assert not slow.is_active and not full.is_active
    slow.heal()
    full.heal()


@pytest.mark.parametrize("fault, why", [
    (lambda mq: mq.refuse("SYSTEM_BUZY"), "unknown response code 'SYSTEM_BUZY', did you mean SYSTEM_BUSY?"),
    (lambda mq: mq.refuse("SUCCESS"), "SUCCESS does not refuse requests"),
    (lambda mq: mq.refuse("SYSTEM_BUSY", times=0), "refuse 0 times: it must be 1 or more"),
    (lambda mq: mq.refuse("SYSTEM_BUSY", requests=["SEND_MESAGE"]), "did you mean SEND_MESSAGE?"),
    (lambda mq: mq.slow_down(0), "slow_down by 0 ms: the delay must be greater than 0"),
    (lambda mq: mq.partition(), "1m has no slaves to cut off")])
def test_invalid_fault_is_refused_with_the_reason(faults_mq, fault, why):
    with pytest.raises(EmbeddedError) as failed:
        fault(faults_mq)
    assert why in str(failed.value)
    assert faults_mq.faults == []


# Clusters with slaves: the copies of messages when a master is killed, and when the link is cut.


@pytest.fixture(scope="module")
def pair():
    """A master that waits for its slave, shared by the module."""
    with EmbeddedRocketMQ("1m-1s", sync=True) as mq:
        yield mq


@pytest.fixture
def replicated_mq(pair):
    """A master that waits for its slave, with the topic orders, reset before the test."""
    pair.reset()
    pair.create_topic("orders", queues=1)
    return pair


@pytest.mark.parametrize("sync, role", [(False, "ASYNC_MASTER"), (True, "SYNC_MASTER")])
def test_two_masters_and_two_slaves_start_together(sync, role):
    with EmbeddedRocketMQ("2m-2s", sync=sync) as mq:
        assert [(one.node, one.controller.message_store_config.brokerRole.name) for one in mq.brokers] == [
            ("broker-a", role), ("broker-b", role), ("broker-a-s", "SLAVE"), ("broker-b-s", "SLAVE")]
        table = mq._namesrv.controller.route_info_manager.get_all_cluster_info().brokerAddrTable
        assert {name: sorted(data.brokerAddrs) for name, data in table.items()} == {
            "broker-a": [0, 1], "broker-b": [0, 1]}
        # A topic created by its first message is on one broker only.
        mq.create_topic("orders")
        results = send(mq, "orders", *[b"%d" % number for number in range(16)])
        assert {result.message_queue.brokerName for result in results} == {"broker-a", "broker-b"}
        mq.wait_for_slaves()
        for name in ("broker-a", "broker-b"):
            assert bodies(mq.messages("orders", name)) == bodies(mq.messages("orders", name + "-s")) != []
        assert mq.messages("orders")[0].broker_name == "broker-a"


def test_producer_continues_with_the_other_master_and_no_acknowledged_message_is_lost():
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


def test_sync_master_answers_only_when_the_slave_has_the_message(replicated_mq):
    assert [result.send_status for result in send(replicated_mq, "orders", b"1", b"2")] == [SendStatus.SEND_OK] * 2
    assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1", b"2"]


def test_consumer_continues_at_the_slave_when_the_master_is_killed(replicated_mq):
    send(replicated_mq, "orders", b"1", b"2")
    replicated_mq.wait_for_slaves()
    replicated_mq.kill_master()
    assert bodies(replicated_mq.messages("orders")) == [b"1", b"2"]
    with consuming(replicated_mq, "billing", "orders") as seen:
        wait_until(lambda: seen == [b"1", b"2"])
    with pytest.raises(EmbeddedError, match="broker-a-s can't replicate"):
        replicated_mq.wait_for_slaves()
    replicated_mq.restart("broker-a")
    assert [result.send_status for result in send(replicated_mq, "orders", b"3")] == [SendStatus.SEND_OK]
    assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1", b"2", b"3"]


def test_nothing_crosses_a_cut_link_and_everything_arrives_when_it_is_healed(replicated_mq):
    with producing(replicated_mq) as producer:
        with replicated_mq.partition():
            result = producer.send(Message("orders", b"1"))
            assert result.send_status is SendStatus.SLAVE_NOT_AVAILABLE
            assert bodies(replicated_mq.messages("orders", "broker-a")) == [b"1"]
            assert replicated_mq.messages("orders", "broker-a-s") == []
            with pytest.raises(EmbeddedError, match="broker-a-s can't replicate"):
                replicated_mq.wait_for_slaves()
        replicated_mq.wait_for_slaves()
        assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1"]
        assert producer.send(Message("orders", b"2")).send_status is SendStatus.SEND_OK


def test_messages_that_only_a_killed_master_had_are_not_on_its_slave(replicated_mq):
    with replicated_mq.partition("broker-a"):
        send(replicated_mq, "orders", b"1")
        replicated_mq.kill_master()
        assert replicated_mq.messages("orders") == []  # read from the slave
    replicated_mq.restart("broker-a")
    replicated_mq.wait_for_slaves()
    assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1"]


def test_only_the_named_pair_is_cut_off():
    with EmbeddedRocketMQ("2m-2s", sync=True) as mq:
        mq.create_topic("orders", queues=1)
        with producing(mq) as producer, mq.partition("broker-b"):
            results = [producer.send(Message("orders", b"%d" % number)) for number in range(4)]
        assert {result.message_queue.brokerName: result.send_status for result in results} == {
            "broker-a": SendStatus.SEND_OK, "broker-b": SendStatus.SLAVE_NOT_AVAILABLE}


def test_killed_slave_catches_up_after_its_restart(replicated_mq):
    replicated_mq.kill("broker-a-s")
    assert send(replicated_mq, "orders", b"1")[0].send_status is SendStatus.SLAVE_NOT_AVAILABLE
    replicated_mq.restart("broker-a-s")
    replicated_mq.wait_for_slaves()
    assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1"]


def test_slaves_follow_again_after_a_restart_of_all(replicated_mq):
    send(replicated_mq, "orders", b"1")
    replicated_mq.restart()
    assert send(replicated_mq, "orders", b"2")[0].send_status is SendStatus.SEND_OK
    assert bodies(replicated_mq.messages("orders", "broker-a-s")) == [b"1", b"2"]


# `python -m rmqha.testing.server`: its output, its end, and its answer to invalid arguments.

COMMAND = [sys.executable, "-m", "rmqha.testing.server"]


def start(*arguments, stdin=subprocess.PIPE):
    """Start the server; return the process, and the name server's address that it prints."""
    process = subprocess.Popen(start_as.command([*COMMAND, *arguments], ctrl_c=True), stdin=stdin,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    line = process.stdout.readline()
    assert line.startswith("NAMESRV_ADDR="), process.communicate()
    return process, RemoteRocketMQ(line.removeprefix("NAMESRV_ADDR=").strip())


def test_it_serves_until_its_standard_input_ends():
    process, remote = start("--topology", "1m-1s", "--sync")
    assert {name: sorted(ids) for name, ids in remote.brokers().items()} == {"broker-a": [0, 1]}
    assert process.poll() is None
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_serves_until_a_signal_when_its_input_is_not_held_open(number):
    process, remote = start("--forever", stdin=subprocess.DEVNULL)
    assert remote.brokers()
    process.send_signal(number)
    assert process.communicate(timeout=600) == ("", "") and process.returncode == 0


@pytest.mark.parametrize("arguments, why", [
    (["--topology", "9"], "invalid topology '9'; use numbers of masters and slaves"),
    (["--config", "maxMessageSize=much"], "config: maxMessageSize=much: "),
    (["--port", "70000"], "the name server can't start: 70000 (listenPort) is not a valid port: 0 to 65535")])
def test_invalid_arguments_give_one_line_and_an_exit_code(arguments, why):
    done = subprocess.run([*COMMAND, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT,
                          timeout=600, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(why) and done.stderr.count("\n") == 1
