"""A real RocketMQ's output for the models: tests/golden/model_*.json."""
import json
from typing import Any

from rmqha.common import subscriptions
from rmqha.common.data_version import DataVersion
from rmqha.common.message.message import MessageQueue, MessageQueueForC
from rmqha.common.protocol.client_bodies import (
    PROP_CONSUME_TYPE,
    CheckClientRequestBody,
    CMResult,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumeQueueData,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    OffsetMovedEvent,
    ProcessQueueInfo,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    QueueTimeSpan,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmqha.common.protocol.cluster_bodies import ClusterInfo, RegisterBrokerBody
from rmqha.common.protocol.table_bodies import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    KVTable,
    OffsetWrapper,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData
from rmqha.common.subscriptions import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from tests.support.sources import ROOT


def golden(name: str) -> Any:
    """Return the content of tests/golden/model_<name>.json."""
    return json.loads((ROOT / "tests" / "golden" / f"model_{name}.json").read_text("utf-8"))


# The bodies of tests/golden/model_bodies.json as they were filled when they were captured.

VERSION = DataVersion(1700000000000, 42)
QUEUE = MessageQueue("TopicTest", "broker-a", 3)
BROKER = BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
STATS = ConsumeStats({QUEUE: OffsetWrapper(10, 4, 1700000000002)}, 1.5)


def topics() -> TopicConfigSerializeWrapper:
    """Return two topics that differ in every field."""
    return TopicConfigSerializeWrapper({
        "%RETRY%group": TopicConfig("%RETRY%group", 1, 1, 2, TopicFilterType.MULTI_TAG),
        "TopicTest": TopicConfig("TopicTest", 4, 8, 6, TopicFilterType.SINGLE_TAG, 3, True)}, VERSION)


def subscription() -> SubscriptionData:
    """Return a subscription to one tag, at a fixed time."""
    data = subscriptions.build_subscription_data("TopicTest", "TagA")
    data.subVersion = 1700000000001
    return data


def registration() -> RegisterBrokerBody:
    """Return a registration of topics and two filter servers."""
    return RegisterBrokerBody(topics(), ["10.0.0.1:1", "10.0.0.2:2"])


def running_info() -> ConsumerRunningInfo:
    """Return the information of a push consumer of one queue."""
    return ConsumerRunningInfo(
        {PROP_CONSUME_TYPE: "CONSUME_PASSIVELY"}, [subscription()],
        {QUEUE: ProcessQueueInfo(commitOffset=11, cachedMsgCount=2, locked=True)},
        {"TopicTest": ConsumeStatus(pullRT=1.25, pullTPS=2.5, consumeOKTPS=1000.125, consumeFailedMsgs=4)}, "stack")


def bodies() -> dict[str, object]:
    """Return all bodies of the capture by class name."""
    consumer = ConsumerData("cg", ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING,
                            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, {subscription()}, True)
    units = [ConsumeQueueData(1, 2, 3, "e", "b", True, "m")]
    all_bodies = [
        topics(), registration(), running_info(), STATS, HeartbeatData("10.0.0.1@1", {ProducerData("pg")}, {consumer}),
        TopicRouteData("broker-a:4", [QueueData("broker-a", 4, 8, 6, 1)], [BROKER], {"10.0.0.1:10911": ["f"]}),
        ClusterInfo({"broker-a": BROKER}, {"DefaultCluster": {"broker-a"}}),
        SubscriptionGroupWrapper({"cg": SubscriptionGroupConfig("cg", retryMaxTimes=3)}, VERSION),
        TopicStatsTable({QUEUE: TopicOffset(1, 2, 3)}), LockBatchRequestBody("cg", "cid", {QUEUE}),
        LockBatchResponseBody({QUEUE}), ConsumerOffsetSerializeWrapper({"TopicTest@cg": {0: 100, 1: 200}}),
        ConsumerConnection({Connection("cid", "10.0.0.3:5", "JAVA", 407)}, {"TopicTest": subscription()},
                           ConsumeType.CONSUME_ACTIVELY, MessageModel.BROADCASTING,
                           ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
        ProducerTableInfo({"pg": [ProducerInfo("cid", "10.0.0.4", "CPP", 1, 2)]}), KVTable({"k": "v"}),
        ResetOffsetBody({QUEUE: 9}), ResetOffsetBodyForC([MessageQueueForC("TopicTest", "broker-a", 3, 9)]),
        GetConsumerStatusBody({QUEUE: 9}, {"cid": {QUEUE: 9}}),
        QueryConsumeTimeSpanBody([QueueTimeSpan(QUEUE, 1700000000001, 1700000000002, 1700000000003, 4)]),
        QueryCorrectionOffsetBody({1: 2}), BrokerStatsData(*[BrokerStatsItem(5, 0.25, 3.0) for _ in range(3)]),
        ConsumeMessageDirectlyResult(consumeResult=CMResult.CR_LATER, remark="r", spentTimeMills=8),
        ConsumeStatsList([{"cg": [STATS]}], "10.0.0.1:10911", 6),
        QueryConsumeQueueResponseBody(subscription(), "f", units, 7, 1), TopicList({"TopicTest"}, "10.0.0.1:10911"),
        GroupList({"cg"}), CheckClientRequestBody("cid", "cg", subscription()), OffsetMovedEvent("cg", QUEUE, 5, 6)]
    return {type(body).__name__: body for body in all_bodies}
