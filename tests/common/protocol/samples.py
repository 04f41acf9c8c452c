"""The bodies of tests/golden/model_bodies.json as they were filled when they were captured."""
from rmqha.common.admin.consume_stats import ConsumeStats
from rmqha.common.admin.offset_wrapper import OffsetWrapper
from rmqha.common.admin.topic_offset import TopicOffset
from rmqha.common.admin.topic_stats_table import TopicStatsTable
from rmqha.common.consumer.consume_from_where import ConsumeFromWhere
from rmqha.common.data_version import DataVersion
from rmqha.common.filter import filter_api
from rmqha.common.message.message_queue import MessageQueue, MessageQueueForC
from rmqha.common.protocol.body.broker_stats_data import BrokerStatsData
from rmqha.common.protocol.body.broker_stats_item import BrokerStatsItem
from rmqha.common.protocol.body.check_client_request_body import CheckClientRequestBody
from rmqha.common.protocol.body.cluster_info import ClusterInfo
from rmqha.common.protocol.body.cm_result import CMResult
from rmqha.common.protocol.body.connection import Connection
from rmqha.common.protocol.body.consume_message_directly_result import ConsumeMessageDirectlyResult
from rmqha.common.protocol.body.consume_queue_data import ConsumeQueueData
from rmqha.common.protocol.body.consume_stats_list import ConsumeStatsList
from rmqha.common.protocol.body.consume_status import ConsumeStatus
from rmqha.common.protocol.body.consumer_connection import ConsumerConnection
from rmqha.common.protocol.body.consumer_offset_serialize_wrapper import ConsumerOffsetSerializeWrapper
from rmqha.common.protocol.body.consumer_running_info import PROP_CONSUME_TYPE, ConsumerRunningInfo
from rmqha.common.protocol.body.get_consumer_status_body import GetConsumerStatusBody
from rmqha.common.protocol.body.group_list import GroupList
from rmqha.common.protocol.body.kv_table import KVTable
from rmqha.common.protocol.body.lock_batch_request_body import LockBatchRequestBody
from rmqha.common.protocol.body.lock_batch_response_body import LockBatchResponseBody
from rmqha.common.protocol.body.process_queue_info import ProcessQueueInfo
from rmqha.common.protocol.body.producer_info import ProducerInfo
from rmqha.common.protocol.body.producer_table_info import ProducerTableInfo
from rmqha.common.protocol.body.query_consume_queue_response_body import QueryConsumeQueueResponseBody
from rmqha.common.protocol.body.query_consume_time_span_body import QueryConsumeTimeSpanBody
from rmqha.common.protocol.body.query_correction_offset_body import QueryCorrectionOffsetBody
from rmqha.common.protocol.body.queue_time_span import QueueTimeSpan
from rmqha.common.protocol.body.register_broker_body import RegisterBrokerBody
from rmqha.common.protocol.body.reset_offset_body import ResetOffsetBody
from rmqha.common.protocol.body.reset_offset_body_for_c import ResetOffsetBodyForC
from rmqha.common.protocol.body.subscription_group_wrapper import SubscriptionGroupWrapper
from rmqha.common.protocol.body.topic_config_serialize_wrapper import TopicConfigSerializeWrapper
from rmqha.common.protocol.body.topic_list import TopicList
from rmqha.common.protocol.heartbeat.consume_type import ConsumeType
from rmqha.common.protocol.heartbeat.consumer_data import ConsumerData
from rmqha.common.protocol.heartbeat.heartbeat_data import HeartbeatData
from rmqha.common.protocol.heartbeat.message_model import MessageModel
from rmqha.common.protocol.heartbeat.producer_data import ProducerData
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData
from rmqha.common.protocol.route.broker_data import BrokerData
from rmqha.common.protocol.route.queue_data import QueueData
from rmqha.common.protocol.route.topic_route_data import TopicRouteData
from rmqha.common.protocol.topic.offset_moved_event import OffsetMovedEvent
from rmqha.common.subscription.subscription_group_config import SubscriptionGroupConfig
from rmqha.common.topic_config import TopicConfig
from rmqha.common.topic_filter_type import TopicFilterType

VERSION = DataVersion(1700000000000, 42)
QUEUE = MessageQueue("TopicTest", "broker-a", 3)
BROKER = BrokerData("DefaultCluster", "broker-a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"})
STATS = ConsumeStats({QUEUE: OffsetWrapper(10, 4, 1700000000002)}, 1.5)


def topics() -> TopicConfigSerializeWrapper:
    """Two topics that differ in every field."""
    return TopicConfigSerializeWrapper({
        "%RETRY%group": TopicConfig("%RETRY%group", 1, 1, 2, TopicFilterType.MULTI_TAG),
        "TopicTest": TopicConfig("TopicTest", 4, 8, 6, TopicFilterType.SINGLE_TAG, 3, True)}, VERSION)


def subscription() -> SubscriptionData:
    """To one tag, at a fixed time."""
    data = filter_api.build_subscription_data("TopicTest", "TagA")
    data.subVersion = 1700000000001
    return data


def registration() -> RegisterBrokerBody:
    """Topics and two filter servers."""
    return RegisterBrokerBody(topics(), ["10.0.0.1:1", "10.0.0.2:2"])


def running_info() -> ConsumerRunningInfo:
    """A push consumer of one queue."""
    return ConsumerRunningInfo(
        {PROP_CONSUME_TYPE: "CONSUME_PASSIVELY"}, [subscription()],
        {QUEUE: ProcessQueueInfo(commitOffset=11, cachedMsgCount=2, locked=True)},
        {"TopicTest": ConsumeStatus(pullRT=1.25, pullTPS=2.5, consumeOKTPS=1000.125, consumeFailedMsgs=4)}, "stack")


def bodies() -> dict[str, object]:
    """All bodies of the capture, by class name."""
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
