"""Admin requests: the answer to each code, requests of a kind taking turns, and offsets that continue in quiet
queues."""
import json
import threading

import pytest

from rmqha.broker.processor import admin_handlers
from rmqha.broker.processor.admin_handlers import AdminTurns
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol import request_code as codes
from rmqha.common.protocol.admin_headers import (
    CloneGroupOffsetRequestHeader,
    ConsumeMessageDirectlyResultRequestHeader,
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    DeleteTopicRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rmqha.common.protocol.client_bodies import (
    ConsumerConnection,
    GetConsumerStatusBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerConnection,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
)
from rmqha.common.protocol.client_headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
)
from rmqha.common.protocol.table_bodies import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicStatsTable,
)
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import bodies, running_broker
from tests.support.wait import wait_until

MQ0 = MessageQueue("Stock", "broker-a", 0)


@pytest.fixture(scope="module")
def stocked(shared_broker):
    """Three messages in queue 0 of topic Stock; group `reader` has consumed two of them."""
    for index in range(3):
        shared_broker.send("Stock", b"m%d" % index, properties={"KEYS": f"key{index}", "TAGS": "a"})
    shared_broker.next_offset("Stock")
    shared_broker.controller.consumer_offset_manager.commit_offset("addr", "reader", "Stock", 0, 2)
    return shared_broker


def ask(broker, code, header=None, body=None, cls=None):
    """Ask, require SUCCESS, and return the answer's body as `cls`, or else the answer."""
    response = broker.call(code, header, body)
    assert response.code == response_code.SUCCESS, response
    return remoting_serializable.from_json(cls, response.body) if cls else response


def test_unknown_code_is_not_supported(stocked):
    for code in (55, 999, -1):
        response = stocked.call(code)
        assert (response.code, response.remark) == (3, f" request type {code} not supported")


def topic_header(name="Made", **fields):
    header = CreateTopicRequestHeader(topic=name, defaultTopic="TBW102", readQueueNums=3, writeQueueNums=2, perm=6,
                                      topicFilterType="SINGLE_TAG", topicSysFlag=0)
    for key, value in fields.items():
        setattr(header, key, value)
    return header


def test_topic_is_created_changed_and_deleted(broker):
    ask(broker, codes.UPDATE_AND_CREATE_TOPIC, topic_header())
    broker.send("Made")
    broker.next_offset("Made")
    ask(broker, codes.UPDATE_AND_CREATE_TOPIC, topic_header(readQueueNums=7))
    table = ask(broker, codes.GET_ALL_TOPIC_CONFIG, cls=TopicConfigSerializeWrapper)
    assert table.topicConfigTable["Made"].readQueueNums == 7 and table.dataVersion.counter == 2
    ask(broker, codes.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("Made"))
    assert "Made" not in ask(broker, codes.GET_ALL_TOPIC_CONFIG, cls=TopicConfigSerializeWrapper).topicConfigTable
    assert "Made" not in broker.store.consume_queue_table


@pytest.mark.parametrize("fields, remark", [
    ({"topic": "../x"}, "illegal characters"), ({"topic": "t" * 128}, "longer than"), ({"topic": " "}, "blank"),
    ({"topic": "TBW102"}, "conflict with system topic"), ({"topic": "broker-a"}, "conflict with system topic"),
    ({"topic": "rmq_sys_x"}, "conflict with system topic"), ({"writeQueueNums": -1}, "are illegal"),
    ({"readQueueNums": 65537}, "are illegal"), ({"writeQueueNums": 2**31 - 1}, "read: 3 write: 2147483647"),
    ({"topicFilterType": "NO_TAG"}, "value invalid"), ({"perm": None}, "<perm> is null"),
])
def test_invalid_topic_is_refused(stocked, fields, remark):
    response = stocked.call(codes.UPDATE_AND_CREATE_TOPIC, topic_header(**fields))
    assert response.code == response_code.SYSTEM_ERROR and remark in response.remark


def test_system_topics_are_not_deleted(stocked):
    response = stocked.call(codes.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("SCHEDULE_TOPIC_XXXX"))
    assert response.code == response_code.SYSTEM_ERROR and "conflict with system topic" in response.remark


def test_slave_refuses_changes(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1) as broker:
        for code, header, body in (
                (codes.UPDATE_AND_CREATE_TOPIC, topic_header(), None),
                (codes.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader("T"), None),
                (codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, SubscriptionGroupConfig("g")),
                (codes.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("g"), None)):
            response = broker.call(code, header, body)
            assert response.code == response_code.SYSTEM_ERROR and "from slave broker" in response.remark


def test_offsets_and_times_of_a_queue(stocked):
    assert ask(stocked, codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("Stock", 0)).ext_fields == {"offset": "3"}
    assert ask(stocked, codes.GET_MIN_OFFSET, GetMinOffsetRequestHeader("Stock", 0)).ext_fields == {"offset": "0"}
    earliest = ask(stocked, codes.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader("Stock", 0))
    first = int(earliest.ext_fields["timestamp"])
    assert first == stocked.store.get_message_store_timestamp("Stock", 0, 0)
    found = ask(stocked, codes.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("Stock", 0, first - 1))
    assert found.ext_fields == {"offset": "0"}


@pytest.mark.parametrize("topic, queue_id", [("Nowhere", 0), ("../../etc", 0), ("Stock", -1), ("Stock", 2**31 - 1)])
def test_offsets_of_an_unknown_queue_create_nothing(stocked, topic, queue_id):
    for code, header in ((codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(topic, queue_id)),
                         (codes.GET_MIN_OFFSET, GetMinOffsetRequestHeader(topic, queue_id)),
                         (codes.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader(topic, queue_id)),
                         (codes.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader(topic, queue_id, 5))):
        assert stocked.call(code, header).code in (response_code.SUCCESS, response_code.SYSTEM_ERROR)


def test_topic_statistics(stocked):
    table = ask(stocked, codes.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("Stock"), cls=TopicStatsTable)
    assert len(table.offsetTable) == 4
    place = table.offsetTable[MQ0]
    assert (place.minOffset, place.maxOffset) == (0, 3) and place.lastUpdateTimestamp > 1_600_000_000_000
    response = stocked.call(codes.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader("Nowhere"))
    assert (response.code, response.remark) == (response_code.TOPIC_NOT_EXIST, "topic[Nowhere] not exist")


def test_system_topics_are_listed(stocked):
    topics = ask(stocked, codes.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, cls=TopicList).topicList
    assert {"TBW102", "broker-a", "DefaultCluster", "RMQ_SYS_TRANS_HALF_TOPIC"} <= topics


def test_cleaning_succeeds(stocked):
    for code in (codes.CLEAN_EXPIRED_CONSUMEQUEUE, codes.CLEAN_UNUSED_TOPIC, codes.DELETE_EXPIRED_COMMITLOG):
        ask(stocked, code)
    assert stocked.store.get_max_offset_in_queue("Stock", 0) == 3


def test_entries_of_a_queue_are_listed(stocked):
    header = QueryConsumeQueueRequestHeader("Stock", 0, 1, 5, "absent")
    body = ask(stocked, codes.QUERY_CONSUME_QUEUE, header, cls=QueryConsumeQueueResponseBody)
    assert (body.minQueueIndex, body.maxQueueIndex, len(body.queueData)) == (0, 3, 2)
    assert body.queueData[0].tagsCode == ord("a") and body.filterData == "absent@Stock is not online!"
    for index in (99, -5):
        response = ask(stocked, codes.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader("Stock", 0, index, 5))
        assert response.remark == f"Index {index} of 0@Stock is not exist!"
    response = stocked.call(codes.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader("Nowhere", 0, 0, 5))
    assert (response.code, response.remark) == (response_code.SYSTEM_ERROR, "0@Nowhere is not exist!")


def test_group_is_created_and_deleted_with_its_offsets(broker):
    ask(broker, codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=SubscriptionGroupConfig("g", retryMaxTimes=5))
    broker.controller.consumer_offset_manager.commit_offset("addr", "g", "T", 0, 3)
    groups = ask(broker, codes.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, cls=SubscriptionGroupWrapper)
    assert groups.subscriptionGroupTable["g"].retryMaxTimes == 5
    assert ask(broker, codes.GET_ALL_CONSUMER_OFFSET).body == b'{"offsetTable":{"T@g":{0:3}}}'
    ask(broker, codes.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader("g", True))
    assert ask(broker, codes.GET_ALL_CONSUMER_OFFSET).body == b'{"offsetTable":{}}'
    assert broker.call(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"{}").code == response_code.SYSTEM_ERROR
    assert broker.call(codes.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b"[1").code == response_code.SYSTEM_ERROR


def test_connections_are_listed(stocked):
    stocked.heartbeat("online", "Stock", client_id="me", producers=("makers",))
    consumers = ask(stocked, codes.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader("online"),
                    cls=ConsumerConnection)
    assert [(one.clientId, one.language, one.version) for one in consumers.connectionSet] == [("me", "JAVA", 409)]
    assert set(consumers.subscriptionTable) == {"Stock"} and consumers.consumeType.name == "CONSUME_PASSIVELY"
    producers = ask(stocked, codes.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader("makers"),
                    cls=ProducerConnection)
    assert [one.clientId for one in producers.connectionSet] == ["me"]
    table = ask(stocked, codes.GET_ALL_PRODUCER_INFO, cls=ProducerTableInfo)
    assert table.data["makers"][0].clientId == "me"
    response = stocked.call(codes.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader("off"))
    assert (response.code, response.remark) == (response_code.CONSUMER_NOT_ONLINE, "the consumer group[off] not online")
    response = stocked.call(codes.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader("off"))
    assert (response.code, response.remark) == (response_code.SYSTEM_ERROR, "the producer group[off] not exist")


def test_consume_statistics(stocked):
    for topic in (None, "Stock"):
        stats = ask(stocked, codes.GET_CONSUME_STATS, GetConsumeStatsRequestHeader("reader", topic), cls=ConsumeStats)
        place = stats.offsetTable[MQ0]
        assert (place.brokerOffset, place.consumerOffset, stats.compute_total_diff()) == (3, 2, 1)
        assert place.lastTimestamp == stocked.store.get_message_store_timestamp("Stock", 0, 1)
    assert ask(stocked, codes.GET_CONSUME_STATS, GetConsumeStatsRequestHeader("nobody"), cls=ConsumeStats) == (
        ConsumeStats())


def test_consume_statistics_of_all_groups(stocked):
    stocked.controller.subscription_group_manager.find_subscription_group_config("reader")
    everything = ask(stocked, codes.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(False),
                     cls=ConsumeStatsList)
    stats = next(group["reader"] for group in everything.consumeStatsList if "reader" in group)
    assert stats[0].offsetTable[MQ0].consumerOffset == 2 and stats[0].compute_total_diff() == 1
    assert everything.totalDiff == sum(one.compute_total_diff() for group in everything.consumeStatsList
                                       for each in group.values() for one in each) > 0
    assert everything.brokerAddr == stocked.address
    ordered = ask(stocked, codes.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(True), cls=ConsumeStatsList)
    assert ordered.totalDiff == 0


def test_groups_that_consume_a_topic_are_listed(stocked):
    stocked.heartbeat("subscriber", "Stock")
    groups = ask(stocked, codes.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader("Stock"), cls=GroupList)
    assert {"reader", "subscriber"} <= groups.groupList


def test_consume_time_span(stocked):
    spans = ask(stocked, codes.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader("Stock", "reader"),
                cls=QueryConsumeTimeSpanBody).consumeTimeSpanSet
    span = next(span for span in spans if span.messageQueue == MQ0)
    assert 0 < span.minTimeStamp <= span.consumeTimeStamp <= span.maxTimeStamp and span.delayTime >= 0
    response = stocked.call(codes.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader("Nowhere", "reader"))
    assert response.code == response_code.TOPIC_NOT_EXIST


def test_lowest_offsets_of_other_groups(stocked):
    offsets = stocked.controller.consumer_offset_manager
    stocked.send("Corrected", b"one")
    offsets.commit_offset("addr", "quick", "Corrected", 0, 2)
    offsets.commit_offset("addr", "slow", "Corrected", 0, 1)
    header = QueryCorrectionOffsetHeader(None, "quick", "Corrected")
    assert ask(stocked, codes.QUERY_CORRECTION_OFFSET, header, cls=QueryCorrectionOffsetBody).correctionOffsets[0] == 1
    header.filterGroups = "slow,other"
    assert ask(stocked, codes.QUERY_CORRECTION_OFFSET, header, cls=QueryCorrectionOffsetBody).correctionOffsets[0] == 2
    assert offsets.query_offset("slow", "Corrected", 0) == 1


def test_offsets_are_cloned(stocked):
    for topic, group in (("Stock", "clone1"), (None, "clone2")):
        ask(stocked, codes.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader("reader", group, topic, True))
        assert stocked.controller.consumer_offset_manager.query_offset(group, "Stock", 0) == 2


def test_delay_offsets_are_returned_as_json(stocked):
    assert isinstance(json.loads(ask(stocked, codes.GET_ALL_DELAY_OFFSET).body)["offsetTable"], dict)


def test_runtime_information(stocked):
    wait_until(lambda: stocked.store.dispatch_behind_bytes() <= 0, 60_000, "the messages of other tests, dispatched")
    table = ask(stocked, codes.GET_BROKER_RUNTIME_INFO, cls=KVTable).table
    assert table["brokerVersionDesc"] == "V4_9_8" and table["brokerVersion"] == "409"
    assert int(table["msgPutTotalTodayNow"]) >= 3 and table["dispatchBehindBytes"] == "0"
    assert {"putTps", "getTransferedTps", "runtime", "bootTimestamp", "commitLogMaxOffset", "commitLogDirCapacity",
            "earliestMessageTimeStamp", "sendThreadPoolQueueSize", "remainHowManyDataToFlush"} <= set(table)


def test_statistics_of_a_topic(stocked):
    # A send is counted after its answer and before the connection's next request.
    ask(stocked, codes.GET_BROKER_RUNTIME_INFO)
    stocked.controller.broker_stats_manager.get_stats_item("TOPIC_PUT_NUMS", "Stock").sampling_in_seconds()
    header = ViewBrokerStatsDataRequestHeader("TOPIC_PUT_NUMS", "Stock")
    assert ask(stocked, codes.VIEW_BROKER_STATS_DATA, header, cls=BrokerStatsData).statsMinute.sum == 3
    for name in ("NO_STATS", "TOPIC_PUT_NUMS"):
        response = stocked.call(codes.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader(name, "x"))
        assert response.remark == f"The stats <{name}> <x> not exist"


def test_queues_are_locked_and_unlocked(stocked):
    body = LockBatchRequestBody("ordered", "c1", {MQ0})
    assert ask(stocked, codes.LOCK_BATCH_MQ, body=body, cls=LockBatchResponseBody).lockOKMQSet == {MQ0}
    body.clientId = "c2"
    assert ask(stocked, codes.LOCK_BATCH_MQ, body=body, cls=LockBatchResponseBody).lockOKMQSet == set()
    body.clientId = "c1"
    ask(stocked, codes.UNLOCK_BATCH_MQ, body=body)
    body.clientId = "c2"
    assert ask(stocked, codes.LOCK_BATCH_MQ, body=body, cls=LockBatchResponseBody).lockOKMQSet == {MQ0}


def test_configuration_is_shown_and_changed(broker):
    response = ask(broker, codes.GET_BROKER_CONFIG)
    assert json.loads(response.ext_fields["version"])["counter"] == 0
    assert b"traceOn=true\n" in response.body and b"fileReservedTime=72\n" in response.body
    ask(broker, codes.UPDATE_BROKER_CONFIG, body=b"traceOn=false\nfileReservedTime=48\nnobodyKnows=1\n")
    assert not broker.controller.broker_config.traceOn
    assert broker.controller.message_store_config.fileReservedTime == 48
    with open(broker.controller.configuration.store_path, encoding="utf-8") as file:
        assert "traceOn=false\n" in file.read()
    assert broker.send("Traced").ext_fields["TRACE_ON"] == "false"


@pytest.mark.parametrize("text", [
    "brokerConfigPath=/x", "rocketmqHome=/x", "configBlackList=", "storePathRootDir=/x", "storePathCommitLog=/x",
    "brokerId=3", "brokerRole=SLAVE", "listenPort=1", "messageStorePlugIn=evil", "brokerName=other",
    "haMasterAddress=1.2.3.4:5",
])
def test_keys_that_must_not_change_are_refused(stocked, text):
    response = stocked.call(codes.UPDATE_BROKER_CONFIG, body=text.encode() + b"\ntraceOn=true\n")
    assert (response.code, response.remark) == (response_code.NO_PERMISSION, "Can not update config in black list.")


def test_invalid_config_value_changes_nothing(stocked):
    before = stocked.controller.message_store_config.fileReservedTime
    response = stocked.call(codes.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=soon\n")
    assert response.code == response_code.SYSTEM_ERROR and "fileReservedTime" in response.remark
    assert stocked.controller.message_store_config.fileReservedTime == before


class Consumer:
    """A consumer that answers the broker's requests."""

    def __init__(self, broker, group):
        self.broker = broker
        self.requests = []
        self.got = threading.Event()
        for code in (codes.RESET_CONSUMER_CLIENT_OFFSET, codes.GET_CONSUMER_STATUS_FROM_CLIENT,
                     codes.GET_CONSUMER_RUNNING_INFO, codes.CONSUME_MESSAGE_DIRECTLY,
                     codes.NOTIFY_CONSUMER_IDS_CHANGED):
            broker.client.register_processor(code, self)
        broker.heartbeat(group, "Stock", client_id="answering")

    def reject_request(self):
        return False

    def process_request(self, channel, request):
        self.requests.append(request)
        self.got.set()
        response = RemotingCommand.create_response_command(0, None)
        if request.code == codes.GET_CONSUMER_STATUS_FROM_CLIENT:
            response.body = remoting_serializable.encode(GetConsumerStatusBody(messageQueueTable={MQ0: 2}))
        elif request.code != codes.NOTIFY_CONSUMER_IDS_CHANGED:
            response.body = b"told"
        return response


@pytest.fixture(scope="module")
def consumer(stocked):
    """An online consumer of the group `served`."""
    stocked.controller.consumer_offset_manager.commit_offset("addr", "served", "Stock", 0, 2)
    return Consumer(stocked, "served")


def of_code(consumer, code):
    return [request for request in consumer.requests if request.code == code]


def test_members_are_notified_when_their_group_changes(consumer):
    wait_until(lambda: of_code(consumer, codes.NOTIFY_CONSUMER_IDS_CHANGED), 60_000, "the notice")
    assert of_code(consumer, codes.NOTIFY_CONSUMER_IDS_CHANGED)[0].ext_fields == {"consumerGroup": "served"}


def test_offsets_are_reset_through_the_consumers(stocked, consumer):
    for queue_id in (1, 2, 3):
        stocked.controller.consumer_offset_manager.commit_offset("addr", "served", "Stock", queue_id, 0)
    header = ResetOffsetRequestHeader(topic="Stock", group="served", timestamp=0, isForce=False)
    table = ask(stocked, codes.INVOKE_BROKER_TO_RESET_OFFSET, header, cls=ResetOffsetBody).offsetTable
    assert table[MQ0] == 0
    wait_until(lambda: of_code(consumer, codes.RESET_CONSUMER_CLIENT_OFFSET), 60_000, "the push")
    pushed = of_code(consumer, codes.RESET_CONSUMER_CLIENT_OFFSET)[0]
    assert remoting_serializable.from_json(ResetOffsetBody, pushed.body).offsetTable == table
    header = ResetOffsetRequestHeader(topic="Stock", group="served", timestamp=-1, isForce=False)
    assert ask(stocked, codes.INVOKE_BROKER_TO_RESET_OFFSET, header, cls=ResetOffsetBody).offsetTable[MQ0] == 2
    header.isForce = True
    assert ask(stocked, codes.INVOKE_BROKER_TO_RESET_OFFSET, header, cls=ResetOffsetBody).offsetTable[MQ0] == 3


@pytest.mark.parametrize("topic, group, code, remark", [
    ("Nowhere", "served", response_code.SYSTEM_ERROR, "[reset-offset] reset offset failed, no topic"),
    ("Stock", "unknown", response_code.SYSTEM_ERROR, "THe consumer group <unknown> not exist"),
    ("Stock", "sleeping", response_code.CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset"),
])
def test_impossible_offset_reset_reports_the_reason(stocked, topic, group, code, remark):
    for queue_id in range(4):
        stocked.controller.consumer_offset_manager.commit_offset("addr", "sleeping", "Stock", queue_id, 0)
    header = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=-1, isForce=True)
    response = stocked.call(codes.INVOKE_BROKER_TO_RESET_OFFSET, header)
    assert response.code == code and response.remark.startswith(remark)


def test_consumer_status_is_requested_from_the_clients(stocked, consumer):
    header = GetConsumerStatusRequestHeader("Stock", "served")
    body = ask(stocked, codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, cls=GetConsumerStatusBody)
    assert body.consumerTable == {"answering": {MQ0: 2}}
    header.group = "unknown"
    assert stocked.call(codes.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header).code == response_code.SYSTEM_ERROR


def test_running_information_is_the_clients_own(stocked, consumer):
    header = GetConsumerRunningInfoRequestHeader("served", "answering", False)
    assert ask(stocked, codes.GET_CONSUMER_RUNNING_INFO, header).body == b"told"
    header.clientId = "gone"
    response = stocked.call(codes.GET_CONSUMER_RUNNING_INFO, header)
    assert response.remark == "The Consumer <served> <gone> not online"


def test_message_is_passed_to_a_consumer(stocked, consumer):
    msg_id = message_decoder.create_message_id(stocked.controller.addresses.store_host,
                                               stocked.store.get_min_phy_offset())
    header = ConsumeMessageDirectlyResultRequestHeader("served", "answering", msg_id)
    assert ask(stocked, codes.CONSUME_MESSAGE_DIRECTLY, header).body == b"told"
    request = of_code(consumer, codes.CONSUME_MESSAGE_DIRECTLY)[0]
    assert message_decoder.decode(request.body).body == b"m0" and request.ext_fields["brokerName"] == "broker-a"
    for bad in ("zz", None, message_decoder.create_message_id(("1.2.3.4", 5), 2**40)):
        header.msgId = bad
        assert stocked.call(codes.CONSUME_MESSAGE_DIRECTLY, header).code == response_code.SYSTEM_ERROR


def test_messages_are_found_by_key(stocked):
    header = QueryMessageRequestHeader("Stock", "key1", 5, 0, 2**62)
    response = ask(stocked, codes.QUERY_MESSAGE, header)
    assert [message.body for message in message_decoder.decodes(response.body)] == [b"m1"]
    header.key = "nothing"
    response = stocked.call(codes.QUERY_MESSAGE, header)
    assert (response.code, response.remark) == (response_code.QUERY_NOT_FOUND,
                                                "can not find message, maybe time range not correct")


def test_message_is_viewed_by_its_offset(stocked):
    response = ask(stocked, codes.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(stocked.store.get_min_phy_offset()))
    assert message_decoder.decode(response.body).body == b"m0"
    for offset in (-1, 2**62, 5):
        response = stocked.call(codes.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        assert response.remark == f"can not find message by the offset, {offset}"


# Admin requests of a kind take turns; consumers' requests have their own threads.


@pytest.fixture
def crowd():
    """Serve a code in threads that all block; report how many are inside, and release them at the end."""
    gate, inside, answers, threads = threading.Event(), [], [], []

    def serve():
        inside.append(1)
        gate.wait(240)
        return RemotingCommand.create_response_command(response_code.SUCCESS, None)

    def begin(turns, code, count):
        threads.extend(threading.Thread(target=lambda: answers.append(turns.run(code, serve))) for _ in range(count))
        for thread in threads:
            thread.start()
        return inside, answers

    def end():
        gate.set()
        for thread in threads:
            thread.join(240)
    yield begin, end
    end()


def test_computing_requests_take_turns(crowd):
    begin, end = crowd
    inside, answers = begin(AdminTurns(), request_code.GET_ALL_TOPIC_CONFIG, 6)
    wait_until(lambda: len(inside) == admin_handlers.COMPUTING_AT_ONCE, 60_000)
    assert not answers
    end()
    assert len(inside) == len(answers) == 6


def test_requests_that_wait_for_clients_are_refused_beyond_a_limit(crowd):
    begin, end = crowd
    inside, answers = begin(AdminTurns(), request_code.GET_CONSUMER_RUNNING_INFO, admin_handlers.WAITING_AT_ONCE + 3)
    wait_until(lambda: len(answers) == 3, 60_000)
    assert {answer.code for answer in answers} == {response_code.SYSTEM_BUSY}
    assert len(inside) == admin_handlers.WAITING_AT_ONCE
    end()
    assert sum(answer.code == response_code.SUCCESS for answer in answers) == admin_handlers.WAITING_AT_ONCE


def test_consumers_are_served_while_all_admin_threads_are_taken(broker):
    broker.send("T")
    broker.next_offset("T")
    turns = broker.controller.admin_turns
    with turns.computing, turns.computing:
        header = QueryTopicConsumeByWhoRequestHeader("T")
        askers = [threading.Thread(target=broker.call, args=(request_code.QUERY_TOPIC_CONSUME_BY_WHO, header))
                  for _ in range(20)]
        for asker in askers:
            asker.start()
        pool = broker.controller.pools.admin_broker_executor
        wait_until(lambda: pool.queue_size() > 0, 60_000, "all 16 threads are taken")
        assert broker.call(request_code.GET_MAX_OFFSET, GetMaxOffsetRequestHeader("T", 0)).ext_fields == {"offset": "1"}
        answer = broker.call(request_code.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader("T", 0, 0))
        assert answer.code == response_code.SUCCESS
    for asker in askers:
        asker.join(240)


def test_request_to_many_silent_consumers_ends(broker, monkeypatch):
    monkeypatch.setattr("rmqha.broker.client.broker2_client.ALL_ANSWERS_S", -1.0)
    broker.heartbeat("readers", "T")
    answer = broker.call(request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                         GetConsumerStatusRequestHeader("T", "readers", None))
    assert answer.code == response_code.SUCCESS and b"consumerTable" in answer.body


# CLEAN_EXPIRED_CONSUMEQUEUE (306): the offsets of quiet topics continue.

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
BEFORE, AFTER = 7, 3


def _expire(broker, topic):
    """Delete all messages of a queue from the log."""
    for _ in range(8):
        broker.send("Busy", b"-" * 200_000)
    broker.next_offset("Busy")
    log = broker.store.commit_log
    log.delete_expired_file(0, 0, 0, True)
    assert broker.store.get_consume_queue(topic, 0).get_last_offset() < log.get_min_offset()


def _clean(broker):
    assert broker.call(request_code.CLEAN_EXPIRED_CONSUMEQUEUE).code == response_code.SUCCESS


@pytest.mark.parametrize("topic", ["Quiet", "%RETRY%billing"])
def test_group_of_a_quiet_queue_gets_messages_sent_after_the_cleaning(tmp_path, topic):
    with running_broker(tmp_path) as broker:
        # The heartbeat creates the retry topic.
        broker.heartbeat("billing", "Quiet")
        for number in range(BEFORE):
            broker.send(topic, b"before %d" % number)
        assert broker.next_offset(topic) == BEFORE
        _expire(broker, topic)
        _clean(broker)
        sent = [broker.send(topic, b"after %d" % number) for number in range(AFTER)]
        assert [int(answer.ext_fields["queueOffset"]) for answer in sent] == list(range(BEFORE, BEFORE + AFTER))
        assert broker.next_offset(topic) == BEFORE + AFTER
        assert bodies(broker.pull(topic, BEFORE)) == [b"after %d" % number for number in range(AFTER)]
    # Offsets do not start again after a restart either.
    with running_broker(tmp_path) as broker:
        assert broker.next_offset(topic) == BEFORE + AFTER
        assert bodies(broker.pull(topic, BEFORE)) == [b"after %d" % number for number in range(AFTER)]


def test_offsets_of_a_cleaned_queue_continue_after_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        for number in range(BEFORE):
            broker.send("Quiet", b"before %d" % number)
        broker.next_offset("Quiet")
        _expire(broker, "Quiet")
        _clean(broker)
    with running_broker(tmp_path) as broker:
        assert int(broker.send("Quiet", b"after").ext_fields["queueOffset"]) == BEFORE


def test_offsets_of_the_half_topic_continue(tmp_path):
    with running_broker(tmp_path) as broker:
        for _ in range(BEFORE):
            broker.send("Quiet", b"half", properties={"TRAN_MSG": "true", "PGROUP": "producers"})
        broker.next_offset(HALF)
        _expire(broker, HALF)
        _clean(broker)
        answer = broker.send("Quiet", b"half", properties={"TRAN_MSG": "true", "PGROUP": "producers"})
        assert int(answer.ext_fields["queueOffset"]) == BEFORE


def test_expired_queue_of_an_unknown_topic_is_deleted(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("Gone", b"x")
        broker.next_offset("Gone")
        _expire(broker, "Gone")
        del broker.controller.topic_config_manager.topic_config_table["Gone"]
        _clean(broker)
        assert "Gone" not in broker.store.consume_queue_table and "Busy" in broker.store.consume_queue_table
