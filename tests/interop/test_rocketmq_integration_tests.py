"""RocketMQ's own published integration tests, with the official client, on two masters and a name server of rmqha.

A fast part runs by default; `bin/test long` runs all. A test that passes although its sends failed counts as failed.
"""
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import real_rocketmq, tiers
from tests.support.java_driver import IntegrationRunner, Outcome, Servers
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.tiers import in_long
from tests.support.wait import wait_until

# The limits of a class. A test that fails has waited for its messages.
LIMIT_S, LONG_LIMIT_S = 120, 300
pytestmark = pytest.mark.java

FAST = [
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvFailIT",
    "client.consumer.tag.TagMessageWithMulConsumerIT",
    "client.producer.async.AsyncSendExceptionIT",
    "client.producer.async.AsyncSendWithMessageQueueIT",
    "client.producer.async.AsyncSendWithOnlySendCallBackIT",
    "client.producer.batch.BatchSendIT",
    "client.producer.exception.msg.ChinaPropIT",
    "client.producer.exception.msg.MessageExceptionIT",
    "client.producer.exception.producer.ProducerGroupAndInstanceNameValidityIT",
    "client.producer.oneway.OneWaySendExceptionIT",
    "client.producer.oneway.OneWaySendIT",
    "client.producer.oneway.OneWaySendWithMQIT",
    "client.producer.order.OrderMsgIT",
    "client.producer.querymsg.QueryMsgByIdExceptionIT",
    "smoke.NormalMessageSendAndRecvIT",
    "tls.TLS_IT",
    "tls.TLS_Mix_IT",
]
LONG = [
    "client.consumer.balance.NormalMsgDynamicBalanceIT",
    "client.consumer.balance.NormalMsgStaticBalanceIT",
    "client.consumer.broadcast.normal.BroadCastNormalMsgNotRecvIT",
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvCrashIT",
    "client.consumer.broadcast.normal.BroadCastNormalMsgRecvStartLaterIT",
    "client.consumer.broadcast.normal.BroadCastNormalMsgTwoDiffGroupRecvIT",
    "client.consumer.broadcast.normal.NormalMsgTwoSameGroupConsumerIT",
    "client.consumer.broadcast.order.OrderMsgBroadCastIT",
    "client.consumer.broadcast.tag.BroadCastTwoConsumerFilterIT",
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubDiffTagIT",
    "client.consumer.broadcast.tag.BroadCastTwoConsumerSubTagIT",
    "client.consumer.cluster.DynamicAddAndCrashIT",
    "client.consumer.cluster.DynamicAddConsumerIT",
    "client.consumer.cluster.DynamicCrashConsumerIT",
    # Its pull consumer may overtake the consume queue: with Java's broker only 8 of 9 pass, too.
    "client.consumer.filter.SqlFilterIT",
    "client.consumer.tag.MulTagSubIT",
    "client.consumer.tag.TagMessageWith1ConsumerIT",
    "client.consumer.tag.TagMessageWithSameGroupConsumerIT",
    "client.consumer.topic.MulConsumerMulTopicIT",
    "client.consumer.topic.OneConsumerMulTopicIT",
    "client.producer.async.AsyncSendWithMessageQueueSelectorIT",
    "client.producer.exception.msg.MessageUserPropIT",
    "client.producer.oneway.OneWaySendWithSelectorIT",
    "client.producer.order.OrderMsgDynamicRebalanceIT",
    "client.producer.order.OrderMsgRebalanceIT",
    "client.producer.order.OrderMsgWithTagIT",
    "client.producer.querymsg.QueryMsgByIdIT",
    "client.producer.querymsg.QueryMsgByKeyIT",
    "client.producer.transaction.TransactionalMsgIT",
    # with a tolerance of half a second
    "delay.NormalMsgDelayIT",
    "tls.TLS_Mix2_IT",
]
# The one starts brokers of its own in the JVM, the other is a base class without tests.
LEFT_OUT = {"base.dledger.DLedgerProduceAndConsumeIT", "client.consumer.broadcast.BaseBroadCastIT"}
# The settings of the original's own base class; all others are the defaults.
SETTINGS = {"enablePropertyFilter": "true", "mappedFileSizeCommitLog": 100 << 20, "mappedFileSizeConsumeQueue": None,
            "maxIndexNum": 1000, "maxHashSlotNum": 4000}
CONSUME_MS = tiers.pick(60_000, long=120_000)
READ_ONLY = 4


@pytest.fixture(scope="module")
def namesrv(module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> NamesrvNode:
    """Return a name server of rmqha; skip the tests without their jars."""
    reason = real_rocketmq.why_no_integration_jars()
    if reason is not None:
        assert os.environ.get("RMQHA_REQUIRE_JAVA") != "1", reason
        pytest.skip(reason)
    node = NamesrvNode("rmqha", tmp_path_factory.mktemp("integration-namesrv"))
    module_nodes.append(node)
    return node.start()


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory, namesrv: NamesrvNode) -> Iterator[IntegrationRunner]:
    """Yield one JVM for all classes."""
    started = IntegrationRunner(tmp_path_factory.mktemp("integration-runner"), CONSUME_MS)
    yield started
    started.shutdown()


@pytest.fixture(scope="module")
def masters(namesrv: NamesrvNode, module_nodes: list, tmp_path_factory: pytest.TempPathFactory) -> Servers:
    """Return two masters."""
    names = ("TestBrokerName_0", "TestBrokerName_1")
    nodes = [BrokerNode("rmqha", tmp_path_factory.mktemp(name), namesrv.address, name, brokerName=name,
                        brokerClusterName="DefaultCluster", **SETTINGS) for name in names]
    module_nodes.extend(nodes)
    for node in nodes:
        node.launch()
    for node in nodes:
        wait_until(lambda node=node: node.ready in node.output(), 60_000, f"the start of {node.name}")
    return Servers(namesrv.address, "DefaultCluster", names)


@pytest.fixture
def read_only_master(namesrv: NamesrvNode, module_nodes: list, tmp_path: Path) -> Servers:
    """Return a master that accepts no messages."""
    node = BrokerNode("rmqha", tmp_path, namesrv.address, brokerName="silent", brokerClusterName="SilentCluster",
                      brokerPermission=READ_ONLY, **SETTINGS)
    module_nodes.append(node)
    node.start()
    return Servers(namesrv.address, "SilentCluster", ("silent",))


def check(name: str, runner: IntegrationRunner, servers: Servers, limit_s: float) -> list[Outcome]:
    """Assert that all tests of the class have passed, except those that the original skips."""
    outcomes = runner.run(name, servers, limit_s)
    wrong = [str(outcome) for outcome in outcomes if outcome.result not in ("pass", "skip")]
    assert outcomes and not wrong, f"{name} on rmqha\n" + "\n".join([*wrong, runner.tail()])
    return outcomes


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", FAST)
def test_class_of_the_original_passes(name: str, runner, masters):
    assert "pass" in {outcome.result for outcome in check(name, runner, masters, LIMIT_S)}


@in_long
@pytest.mark.timeout(LONG_LIMIT_S + 60)
@pytest.mark.parametrize("name", LONG)
def test_slow_class_of_the_original_passes(name: str, runner, masters):
    if all(outcome.result == "skip" for outcome in check(name, runner, masters, LONG_LIMIT_S)):
        pytest.skip("the original skips it")


@pytest.mark.timeout(2 * LIMIT_S + 60)
def test_refused_sends_never_count_as_a_pass(runner, read_only_master):
    outcomes = {name: {one.test: one.result for one in runner.run(name, read_only_master, LIMIT_S)}
                for name in ("smoke.NormalMessageSendAndRecvIT", "tls.TLS_IT")}
    assert outcomes == {"smoke.NormalMessageSendAndRecvIT": {"testSynSendMessage": "fail"},
                        "tls.TLS_IT": {"testSendAndReceiveMessageOverTLS": "hollow"}}


def test_each_class_of_the_original_is_listed(namesrv):
    jar = next(real_rocketmq.integration_jars().glob("rocketmq-test-*-tests.jar"))
    with zipfile.ZipFile(jar) as classes:
        published = {name.removeprefix("org/apache/rocketmq/test/").removesuffix(".class").replace("/", ".")
                     for name in classes.namelist() if name.endswith("IT.class")}
    assert published - LEFT_OUT == {*FAST, *LONG} and len(published - LEFT_OUT) == len(FAST) + len(LONG) == 48
