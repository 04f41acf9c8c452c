"""The methods of a cluster that all backends share: in the test's process, in another one, and of the real RocketMQ."""
import json
import os
import signal

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha import Message
from rmqha.testing import EmbeddedError, NotSupportedError, RemoteRocketMQ, RocketMQProcess
from rmqha.testing.control import CallServer
from rmqha.testing.java_servers import java_program, release_at
from tests.support import real_rocketmq
from tests.support.wait import wait_until
from tests.testing.support import JAVA, JAVA_5, OURS, bodies, consuming, producing, send


@pytest.mark.parametrize("cluster", [*OURS, JAVA, JAVA_5], indirect=True)
def test_topic_is_created_read_and_deleted(cluster):
    cluster.create_topic("orders", queues=2)
    with producing(cluster) as producer:
        assert {queue.queueId for queue in producer.fetch_publish_message_queues("orders")} == {0, 1}
    sent = [b"x" * 5_000, *(b"%d" % number for number in range(40))]  # more than one pull, and one is compressed
    send(cluster, "orders", *sent, tags="paid")
    messages = cluster.messages("orders")
    assert sorted(bodies(messages)) == sorted(sent)
    assert [(one.queue_id, one.queue_offset) for one in messages] == sorted(
        (one.queue_id, one.queue_offset) for one in messages)
    assert {(one.topic, one.tags, one.broker_name) for one in messages} == {("orders", "paid", "broker-a")}
    cluster.delete_topic("orders")
    assert cluster.messages("orders") == cluster.messages("unknown") == []
    assert "orders" not in cluster.admin.topics()
    cluster.delete_topic("unknown")


@pytest.mark.parametrize("cluster", [*OURS, JAVA], indirect=True)
def test_deleted_group_begins_again(cluster):
    cluster.create_topic("orders", queues=1)
    send(cluster, "orders", b"1", b"2")
    for _ in range(2):
        with consuming(cluster, "billing", "orders") as seen:
            wait_until(lambda seen=seen: seen == [b"1", b"2"])
        cluster.delete_group("billing")
    cluster.delete_group("unknown")
    cluster.delete_topic("orders")


@pytest.mark.parametrize("cluster", [*OURS, JAVA], indirect=True)
def test_slave_is_read_while_its_master_is_down_and_data_survive_the_restart(cluster):
    cluster.create_topic("kept", queues=1)
    send(cluster, "kept", b"1", b"2")
    # The slave has the messages before it has the table of topics
    wait_until(lambda: bodies(cluster.messages("kept", "broker-a-s")) == [b"1", b"2"])
    cluster.wait_for_slaves()
    assert bodies(cluster.messages("kept", "broker-a-s")) == [b"1", b"2"]
    addresses = cluster.namesrv_addr, [broker.address for broker in cluster.brokers]
    assert cluster.kill_master() == "broker-a"
    assert [(broker.node, broker.is_running) for broker in cluster.brokers] == [
        ("broker-a", False), ("broker-a-s", True)]
    assert bodies(cluster.messages("kept")) == [b"1", b"2"]
    with pytest.raises(EmbeddedError, match=r"broker-a is down; restart\('broker-a'\)"):
        cluster.messages("kept", "broker-a")
    with pytest.raises(EmbeddedError, match="unknown broker 'broker-z'; 1m-1s has broker-a, broker-a-s"):
        cluster.kill("broker-z")
    cluster.restart("broker-a")
    assert (cluster.namesrv_addr, [broker.address for broker in cluster.brokers]) == addresses
    assert bodies(cluster.messages("kept", "broker-a")) == [b"1", b"2"]
    cluster.reset()
    assert (cluster.namesrv_addr, [broker.address for broker in cluster.brokers]) == addresses
    assert cluster.messages("kept") == []
    cluster.create_topic("kept")
    send(cluster, "kept", b"3")
    assert bodies(cluster.messages("kept")) == [b"3"]


@pytest.mark.parametrize("cluster", ["process"], indirect=True)
def test_faults_are_injected_into_another_process(cluster):
    cluster.create_topic("orders")
    with producing(cluster, retries=0) as producer:
        with cluster.refuse("SYSTEM_BUSY", times=2) as busy:
            assert len(cluster.faults) == 1
            for _ in range(2):
                with pytest.raises(Exception, match="refused by the test"):
                    producer.send(Message("orders", b"1"))
            producer.send(Message("orders", b"1"))
            assert busy.hits == 2 and busy.is_active
        slow = cluster.slow_down(1, requests=["SEND_MESSAGE_V2"])
        full = cluster.fill_disk("broker-a")
        with pytest.raises(Exception, match="still failed"):
            producer.send(Message("orders", b"2"))
        cluster.partition()
        cluster.heal()
        assert cluster.faults == [] and not full.is_active and slow.hits >= 0
        producer.send(Message("orders", b"3"))
    assert sorted(bodies(cluster.messages("orders"))) == [b"1", b"3"]
    with pytest.raises(EmbeddedError, match="unknown response code 'BUSY'"):
        cluster.refuse("BUSY")
    with pytest.raises(NotSupportedError, match="runs in another process"):
        assert cluster.broker("broker-a").controller


@pytest.mark.parametrize("cluster", [JAVA], indirect=True)
def test_faults_in_the_broker_are_not_supported_by_rocketmq(cluster):
    for inject in (lambda: cluster.refuse("SYSTEM_BUSY"), lambda: cluster.slow_down(10), cluster.fill_disk,
                   cluster.partition):
        with pytest.raises(NotSupportedError, match=f"RocketMQ {real_rocketmq.VERSION} can't inject this fault"):
            inject()
    cluster.heal()


def test_existing_cluster_has_the_same_calls(cluster_of_another):
    mq = RemoteRocketMQ(cluster_of_another.namesrv_addr)
    mq.create_topic("there", queues=1)
    send(mq, "there", b"1")
    assert bodies(mq.messages("there")) == bodies(cluster_of_another.messages("there")) == [b"1"]
    mq.delete_topic("there")
    assert cluster_of_another.messages("there") == []
    mq.close()


@pytest.fixture
def cluster_of_another():
    """A cluster in another process, which this test does not share."""
    with RocketMQProcess() as mq:
        yield mq


def test_process_that_has_ended_is_an_error_and_not_a_wait(cluster_of_another):
    assert cluster_of_another.is_running
    os.kill(cluster_of_another.pid, signal.SIGKILL)
    wait_until(lambda: not cluster_of_another.is_running)
    with pytest.raises(EmbeddedError, match="create_topic: the RocketMQ for the tests has exited"):
        cluster_of_another.create_topic("orders")
    cluster_of_another.stop()
    with pytest.raises(EmbeddedError, match="is not started"):
        assert cluster_of_another.namesrv_addr


@pytest.mark.java
def test_jvms_end_with_the_process_that_started_them(release):
    mq = RocketMQProcess(rocketmq_home=release(real_rocketmq.VERSION))
    mq.start()
    jvm, server = psutil.Process(mq.broker("broker-a").pid), psutil.Process(mq.pid)
    assert jvm.name() == "java" and jvm.parent() == server
    server.kill()
    wait_until(lambda: not jvm.is_running(), what="the end of the JVM")
    mq.stop()


class Recorder:
    """A cluster that records its calls."""

    def __init__(self):
        self.calls = []
        self.brokers = []

    def __getattr__(self, name):
        return lambda *arguments, **named: self.calls.append((name, arguments, named))


@given(st.lists(st.binary() | st.text().map(str.encode) | st.fixed_dictionaries(
    {"id": st.integers() | st.text(), "call": st.sampled_from(["kill", "reset", "stop", "__init__", "hits", "nodes"]),
     "arguments": st.lists(st.integers() | st.text(), max_size=2), "named": st.just({})})
    .map(lambda call: json.dumps(call).encode()), max_size=5), st.integers(1, 50))
def test_any_input_is_answered_or_ignored(lines, size):
    cluster = Recorder()
    server = CallServer(cluster)
    data = b"\n".join(lines) + b"\n"
    answers = [json.loads(answer) for start in range(0, len(data), size)
               for answer in server.take(data[start:start + size])]
    assert all(("result" in answer) != ("error" in answer) for answer in answers)
    assert {name for name, _arguments, _named in cluster.calls} <= {"kill", "reset"}


@pytest.mark.parametrize("files, why", [
    ([], "is not a binary release"),
    (["lib/rocketmq-broker-5.3.1.jar"], "is not a binary release"),
    (["lib/rocketmq-broker-4.9.7.jar", "lib/rocketmq-broker-5.1.4.jar"], "several releases of RocketMQ: 4.9.7, 5.1.4")])
def test_folder_without_a_release_is_refused(tmp_path, files, why):
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    with pytest.raises(EmbeddedError, match=why):
        release_at(tmp_path)


@pytest.mark.parametrize("folder", ["lib", "."])
def test_release_is_found_with_its_version(tmp_path, folder):
    (tmp_path / folder).mkdir(exist_ok=True)
    for name in ("rocketmq-broker-5.3.1.jar", "rocketmq-namesrv-5.3.1.jar", "netty-all-4.1.65.Final.jar"):
        (tmp_path / folder / name).touch()
    assert release_at(tmp_path) == (tmp_path / folder, "5.3.1")


def test_missing_java_and_keys_of_rmqha_are_refused_before_a_start(tmp_path, monkeypatch):
    for name in ("rocketmq-broker-4.9.7.jar", "rocketmq-namesrv-4.9.7.jar"):
        (tmp_path / name).touch()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(EmbeddedError, match="java was not found in JAVA_HOME=/nowhere/bin"):
        RocketMQProcess(rocketmq_home=tmp_path)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmbeddedError, match="java was not found on PATH, and JAVA_HOME is not set"):
        java_program()
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.touch()
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NotSupportedError, match="metricsPort is a key of rmqha, which RocketMQ 4.9.7 does not have"):
        RocketMQProcess(rocketmq_home=tmp_path, config={"metricsPort": 9090})
    with pytest.raises(EmbeddedError, match="unknown key maxMessageSizes, did you mean maxMessageSize"):
        RocketMQProcess(rocketmq_home=tmp_path, config={"maxMessageSizes": 1})
    with pytest.raises(EmbeddedError, match="listenPort is set by the cluster"):
        RocketMQProcess(rocketmq_home=tmp_path, config={"listenPort": 1})
