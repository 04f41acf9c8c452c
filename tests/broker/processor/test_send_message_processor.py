"""Sending: the stored record, the answer, and the reasons for a refusal."""
import json
import struct
import threading

import pytest

from rmqha.common import java
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.broker.support import bodies, running_broker
from tests.support.wait import wait_until


def stored(broker, response):
    """Return the message that a send's answer names."""
    return broker.store.look_message_by_offset(message_decoder.decode_message_id(response.ext_fields["msgId"]).offset)


def test_unknown_topic_is_created_from_the_default_topic(broker):
    response = broker.send("Fresh")
    assert response.code == response_code.SUCCESS
    config = broker.controller.topic_config_manager.select_topic_config("Fresh")
    assert (config.readQueueNums, config.writeQueueNums, config.perm) == (4, 4, 6)
    path = broker.controller.topic_config_manager.config_file_path()
    with open(path, encoding="utf-8") as file:
        assert json.load(file)["topicConfigTable"]["Fresh"]["writeQueueNums"] == 4


def test_queue_offsets_count_up_per_queue(broker):
    offsets = [int(broker.send("Counted", queue_id=queue).ext_fields["queueOffset"]) for queue in (0, 0, 1, 0, 1)]
    assert offsets == [0, 1, 0, 2, 1]


def test_answer_has_region_trace_queue_and_id(broker):
    fields = broker.send("Answer", queue_id=2).ext_fields
    assert fields["MSG_REGION"] == "DefaultRegion" and fields["TRACE_ON"] == "true"
    assert fields["queueId"] == "2" and len(fields["msgId"]) == 32


def test_cluster_is_added_and_wait_is_not_stored(broker):
    response = broker.send("Properties", properties={"TAGS": "a", "WAIT": "true", "KEYS": "k"})
    assert stored(broker, response).properties == {"TAGS": "a", "KEYS": "k", "CLUSTER": "DefaultCluster"}


def test_record_has_its_sender_and_its_position(broker):
    message = stored(broker, broker.send("Hosts", body=b"x", h=7))
    assert message.store_host == broker.controller.addresses.store_host and message.born_host[0] == "127.0.0.1"
    assert message.flag == 7 and message.body == b"x" and message.born_timestamp >= 1_700_000_000_000


def test_long_header_is_accepted(broker):
    header = SendMessageRequestHeader("producer", "Long", "TBW102", 4, 1, 0, 5, 0, "")
    response = broker.call(request_code.SEND_MESSAGE, header, b"x")
    assert response.code == response_code.SUCCESS and response.ext_fields["queueId"] == "1"


def test_fast_port_accepts_sends_and_refuses_pulls(broker):
    response = broker.call(request_code.SEND_MESSAGE_V2, broker.send_header("Fast"), b"x", broker.fast_address)
    assert response.code == response_code.SUCCESS
    response = broker.call(request_code.PULL_MESSAGE, broker.pull_header("Fast", 0), address=broker.fast_address)
    assert response.code == response_code.REQUEST_CODE_NOT_SUPPORTED


def test_queue_minus_one_means_any_queue(broker):
    queues = {broker.send("Any", queue_id=-1).ext_fields["queueId"] for _ in range(40)}
    assert queues <= {"0", "1", "2", "3"} and len(queues) > 1


def test_batch_is_stored_as_single_messages(broker):
    body = message_decoder.encode_messages([Message(None, b"one"), Message(None, b"two")])
    response = broker.call(request_code.SEND_BATCH_MESSAGE, broker.send_header("Batch", m=True), body)
    assert response.code == response_code.SUCCESS
    ids = response.ext_fields["msgId"].split(",")
    offsets = [message_decoder.decode_message_id(msg_id).offset for msg_id in ids]
    assert [broker.store.look_message_by_offset(offset).body for offset in offsets] == [b"one", b"two"]
    assert response.ext_fields["queueOffset"] == "0" and broker.next_offset("Batch") == 2


def test_large_batch_is_stored_by_the_send_pool(broker, monkeypatch):
    # Creates the topic.
    broker.send("Batch")
    threads, store = [], broker.store
    put = store.async_put_messages
    monkeypatch.setattr(store, "async_put_messages",
                        lambda batch: threads.append(threading.current_thread().name) or put(batch))
    for size, thread in ((100, "NettyServerNIOSelector_1_1"), (40_000, "SendMessageThread_1")):
        body = message_decoder.encode_messages([Message(None, b"x" * size)] * 2)
        response = broker.call(request_code.SEND_BATCH_MESSAGE, broker.send_header("Batch", m=True), body)
        assert response.code == response_code.SUCCESS and threads.pop().startswith(thread[:-1])


def lying_batch(total: int, length: int) -> bytes:
    return struct.pack(">iiiii", total, 0, 0, 0, length) + b"x" + struct.pack(">h", 0)


BAD_SENDS = {
    "path": ({"b": "../../etc/x"}, b"x", response_code.SYSTEM_ERROR, "illegal characters"),
    "128 characters": ({"b": "t" * 128}, b"x", response_code.SYSTEM_ERROR, "longer than topic max length"),
    "empty topic": ({"b": ""}, b"x", response_code.SYSTEM_ERROR, "blank"),
    "schedule topic": ({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", response_code.NO_PERMISSION, "forbidden"),
    "half topic": ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, b"x", response_code.NO_PERMISSION, "forbidden"),
    "offset event": ({"b": "OFFSET_MOVED_EVENT"}, b"x", response_code.NO_PERMISSION, "forbidden"),
    "unknown default": ({"b": "Nobody", "c": "Nothing"}, b"x", response_code.TOPIC_NOT_EXIST, "apply first please"),
    "queue too high": ({"e": 4}, b"x", response_code.SYSTEM_ERROR, "request queueId[4] is illegal"),
    "queue far too high": ({"e": 2**31 - 1}, b"x", response_code.SYSTEM_ERROR, "is illegal"),
    "body too long": ({}, b"x" * (4 * 1024 * 1024 + 1), response_code.MESSAGE_ILLEGAL, "the message is illegal"),
    "properties too long": ({"i": "K\x01" + "v" * 32_768}, b"x", response_code.MESSAGE_ILLEGAL, "is illegal"),
    "no topic": ({"b": None}, b"x", response_code.SYSTEM_ERROR, "blank"),
    "no queue": ({"e": None}, b"x", response_code.SYSTEM_ERROR, "<e> is null"),
    "batch with a long body": ({"m": True}, lying_batch(23, 2**31 - 1), response_code.MESSAGE_ILLEGAL, ""),
    "batch with a negative body": ({"m": True}, lying_batch(23, -1), response_code.MESSAGE_ILLEGAL, ""),
    "batch of nothing": ({"m": True}, b"", response_code.MESSAGE_ILLEGAL, ""),
}


@pytest.mark.parametrize("case", BAD_SENDS, ids=str)
def test_invalid_send_gets_a_typed_answer_and_stores_nothing(shared_broker, case):
    fields, body, code, remark = BAD_SENDS[case]
    shared_broker.send("Target")
    before, log_end = shared_broker.next_offset("Target"), shared_broker.store.get_max_phy_offset()
    request = request_code.SEND_BATCH_MESSAGE if fields.get("m") else request_code.SEND_MESSAGE_V2
    response = shared_broker.call(request, shared_broker.send_header("Target", **fields), body)
    assert response.code == code and remark in (response.remark or ""), response
    assert shared_broker.next_offset("Target") == before
    assert shared_broker.store.get_max_phy_offset() == log_end
    assert shared_broker.send("Target").code == response_code.SUCCESS


def test_topic_is_not_created_when_creation_is_off(tmp_path):
    with running_broker(tmp_path, autoCreateTopicEnable=False) as broker:
        response = broker.send("Unknown")
        assert response.code == response_code.TOPIC_NOT_EXIST
        assert response.remark.startswith("topic[Unknown] not exist, apply first please!\nSee http")


def test_slave_refuses_sends(tmp_path):
    with running_broker(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1) as broker:
        response = broker.send("Target")
        assert response.code == response_code.SERVICE_NOT_AVAILABLE
        assert "service not available now" in response.remark and "CL: " in response.remark


def test_sends_are_refused_until_the_broker_accepts_them(tmp_path):
    with running_broker(tmp_path, startAcceptSendRequestTimeStamp=4_102_444_800_000) as broker:
        response = broker.send("Early")
        assert response.code == response_code.SYSTEM_ERROR
        assert response.remark.startswith("broker unable to service, until 2")


@pytest.mark.parametrize("status, code, remark", [
    (PutMessageStatus.CREATE_MAPEDFILE_FAILED, response_code.SYSTEM_ERROR, "create mapped file failed"),
    (PutMessageStatus.OS_PAGECACHE_BUSY, response_code.SYSTEM_ERROR, "[PC_SYNCHRONIZED]"),
    (PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, response_code.SYSTEM_ERROR, "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]"),
    (PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, response_code.MESSAGE_ILLEGAL, "the message is illegal"),
    (PutMessageStatus.UNKNOWN_ERROR, response_code.SYSTEM_ERROR, "UNKNOWN_ERROR"),
])
def test_each_put_status_has_its_answer(shared_broker, status, code, remark):
    processor = shared_broker.controller.remoting_server.processor_table[request_code.SEND_MESSAGE].processor
    response = RemotingCommand.create_response_command()
    processor._refuse(status, response)
    assert response.code == code and response.remark.startswith(remark)


def test_busy_store_refuses_sends(broker, monkeypatch):
    held_ms = 2 * broker.store.message_store_config.osPageCacheBusyTimeOutMills
    monkeypatch.setattr(broker.store.commit_log, "begin_time_in_lock", current_time_millis() - held_ms)
    response = broker.send("Busy")
    assert response.code == response_code.SYSTEM_BUSY and response.remark.startswith("[REJECTREQUEST]")


def send_back(broker, response, group="group", delay_level=1, version=java.CURRENT_VERSION, **fields):
    offset = message_decoder.decode_message_id(response.ext_fields["msgId"]).offset
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delayLevel=delay_level, **fields)
    request = RemotingCommand.create_request_command(request_code.CONSUMER_SEND_MSG_BACK, header)
    request.version = version
    return broker.client.invoke_sync(broker.address, request, 30_000)


def test_message_sent_back_is_delivered_again_from_the_retry_topic(broker):
    sent = broker.send("Work", b"again", properties={"TAGS": "a"})
    assert send_back(broker, sent).code == response_code.SUCCESS
    wait_until(lambda: broker.next_offset("%RETRY%group"), 60_000, "the delayed message")
    message = message_decoder.decodes(broker.pull("%RETRY%group", 0, group="group").body)[0]
    assert message.body == b"again" and message.reconsume_times == 1
    assert message.properties["RETRY_TOPIC"] == "Work"
    assert message.properties["ORIGIN_MESSAGE_ID"] == sent.ext_fields["msgId"]
    assert message.properties["DELAY"] == "1"


@pytest.mark.parametrize("fields", [{"delay_level": -1}, {"maxReconsumeTimes": 0}], ids=str)
def test_message_that_failed_too_often_becomes_a_dead_letter(broker, fields):
    sent = broker.send("Work", b"dead")
    assert send_back(broker, sent, **fields).code == response_code.SUCCESS
    assert broker.next_offset("%DLQ%group") == 1
    assert bodies(broker.pull("%DLQ%group", 0)) == [b"dead"]


def test_old_client_cannot_set_the_number_of_retries(broker):
    sent = broker.send("Work")
    old = java.Version["V3_4_9"] - 1
    assert send_back(broker, sent, version=old, maxReconsumeTimes=0).code == response_code.SUCCESS
    assert broker.controller.topic_config_manager.select_topic_config("%DLQ%group") is None


def test_message_of_a_group_without_retries_is_dropped(broker):
    sent = broker.send("Work")
    broker.controller.subscription_group_manager.find_subscription_group_config("group").retryQueueNums = 0
    assert send_back(broker, sent).code == response_code.SUCCESS
    assert broker.controller.topic_config_manager.select_topic_config("%RETRY%group") is None


def test_sending_back_a_missing_message_is_an_error(broker):
    header = ConsumerSendMsgBackRequestHeader(offset=123_456, group="group", delayLevel=0)
    response = broker.call(request_code.CONSUMER_SEND_MSG_BACK, header)
    assert (response.code, response.remark) == (response_code.SYSTEM_ERROR, "look message by offset failed, 123456")


def test_group_name_that_is_a_path_gets_no_retry_topic(broker):
    sent = broker.send("Work")
    response = send_back(broker, sent, group="../../evil")
    assert response.code == response_code.SYSTEM_ERROR and "not exist" in response.remark


def test_orderly_retry_beyond_its_limit_becomes_a_dead_letter(broker):
    response = broker.send("%RETRY%orderly", b"last", c="TBW102", j=16)
    assert response.code == response_code.SUCCESS
    assert broker.next_offset("%DLQ%orderly") == 1 and broker.next_offset("%RETRY%orderly") == 0
