"""Transactions inside a broker. Bytes and answers beside Java's: tests/interop/test_transactions_beside_java.py."""
import zlib

import pytest

from rmqha.broker import topic_config_manager
from rmqha.common import sys_flags as flags
from rmqha.common import util_all
from rmqha.common.message import message_decoder
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from rmqha.common.sys_flags import CompressionType
from rmqha.store import commit_log
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import bodies, new_controller, running_broker
from tests.support.wait import wait_until

HALF, OP, GIVEN_UP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = (flags.TRANSACTION_COMMIT_TYPE, flags.TRANSACTION_ROLLBACK_TYPE,
                             flags.TRANSACTION_NOT_TYPE)
GROUP = "CID_RMQ_SYS_TRANS"


class Asked:
    """A stand-in for the producers: records the checks and the messages that are given up."""

    def __init__(self, listener):
        self.messages = []
        self._listener = listener

    def resolve_half_msg(self, message):
        self.messages.append((message.queue_offset, bytes(message.body)))

    def resolve_discard_msg(self, message):
        self._listener.resolve_discard_msg(message)


def half(broker, body=b"half", age_ms=60_000, sys_flag=0, **properties):
    """Send a half message that was born `age_ms` ago, and return the header that ends it."""
    response = broker.send("Orders", body, 1, {"TRAN_MSG": "true", "PGROUP": "producers", **properties},
                           g=util_all.current_time_millis() - age_ms, h=7, f=sys_flag)
    assert response.code == response_code.SUCCESS
    return EndTransactionRequestHeader(
        producerGroup="producers", tranStateTableOffset=int(response.ext_fields["queueOffset"]),
        commitLogOffset=message_decoder.decode_message_id(response.ext_fields["msgId"]).offset,
        commitOrRollback=COMMIT, msgId=response.ext_fields["msgId"])


def end(broker, header, outcome=COMMIT):
    header.commitOrRollback = outcome
    return broker.call(request_code.END_TRANSACTION, header)


def check(broker, timeout_ms=0, check_max=15):
    """Run one round of checks and return the messages asked about."""
    broker.next_offset(HALF)
    now = util_all.current_time_millis()
    # A round takes no message of the millisecond in which it begins.
    wait_until(lambda: util_all.current_time_millis() > now)
    controller = broker.controller
    asked = Asked(controller.transactional_message_check_listener)
    controller.transactional_message_service.check(timeout_ms, check_max, asked)
    broker.next_offset(HALF)
    return asked.messages


def done(broker, topic):
    return broker.controller.consumer_offset_manager.query_offset(GROUP, topic, 0)


def test_half_message_is_invisible_until_it_is_committed(broker):
    header = half(broker)
    assert (broker.next_offset("Orders", 1), broker.next_offset(HALF)) == (0, 1)
    assert end(broker, header).code == response_code.SUCCESS
    assert (broker.next_offset("Orders", 1), broker.next_offset(OP)) == (1, 1)
    message = message_decoder.decodes(broker.pull("Orders", 0, queue_id=1).body)[0]
    assert (message.body, message.flag, message.sys_flag & COMMIT) == (b"half", 7, COMMIT)
    assert message.prepared_transaction_offset == header.commitLogOffset


def test_rolled_back_message_is_never_delivered(broker):
    assert end(broker, half(broker), ROLLBACK).code == response_code.SUCCESS
    assert (broker.next_offset("Orders", 1), broker.next_offset(OP)) == (0, 1)


@pytest.mark.parametrize("change, remark", [
    ({"producerGroup": "others"}, "The producer group wrong"),
    ({"tranStateTableOffset": 9}, "The transaction state table offset wrong"),
    ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
    ({"commitLogOffset": -1}, "Find prepared transaction message failed"),
    ({"commitLogOffset": 1}, "Find prepared transaction message failed"),
])
@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_end_of_another_message_is_refused(broker, change, remark, outcome):
    header = half(broker)
    for name, value in change.items():
        setattr(header, name, value)
    response = end(broker, header, outcome)
    assert (response.code, response.remark) == (response_code.SYSTEM_ERROR, remark)
    assert broker.next_offset(OP) == 0


def test_only_half_messages_are_committed(broker):
    response = broker.send("Orders", properties={"PGROUP": "producers", "REAL_TOPIC": "../x", "REAL_QID": "0"})
    header = EndTransactionRequestHeader(
        producerGroup="producers", tranStateTableOffset=0, commitOrRollback=COMMIT, msgId="x",
        commitLogOffset=message_decoder.decode_message_id(response.ext_fields["msgId"]).offset)
    assert end(broker, header).remark == "The message is not a half message"


def test_broker_may_refuse_transactions(tmp_path):
    with running_broker(tmp_path, rejectTransactionMessage=True) as harness:
        response = harness.send("Orders", properties={"TRAN_MSG": "true"})
    assert response.code == response_code.NO_PERMISSION
    assert response.remark == "the broker[127.0.0.1] sending transaction message is forbidden"


def test_slave_neither_ends_nor_checks_transactions(tmp_path):
    controller = new_controller(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1)
    try:
        assert controller.initialize()
        controller.start()
        assert not controller.transactional_message_check_service.is_alive()
    finally:
        controller.shutdown()


def test_check_asks_about_unended_messages_and_puts_them_back(broker):
    headers = [half(broker, b"%d" % number) for number in range(4)]
    end(broker, headers[0])
    end(broker, headers[2], ROLLBACK)
    assert check(broker) == [(4, b"1"), (5, b"3")]
    assert (done(broker, HALF), done(broker, OP)) == (4, 2)
    assert check(broker) == [(6, b"1"), (7, b"3")]
    again = broker.store.get_message("g", HALF, 0, 6, 1, None)
    message = message_decoder.decode(again.message_buffer_list[0])
    again.release()
    assert (message.flag, message.properties["TRANSACTION_CHECK_TIMES"]) == (7, "2")


def test_answer_to_a_check_ends_the_message(broker):
    header = half(broker)
    assert check(broker) == [(1, b"half")]
    queue = broker.store.get_consume_queue(HALF, 0)
    header.tranStateTableOffset, header.commitLogOffset = 1, queue.get_unit(1)[0]
    header.fromTransactionCheck = True
    assert end(broker, header).code == response_code.SUCCESS
    assert check(broker) == [] and (done(broker, HALF), done(broker, OP)) == (2, 1)
    assert bodies(broker.pull("Orders", 0, queue_id=1)) == [b"half"]


def test_young_message_is_not_checked(broker):
    half(broker, age_ms=0)
    assert check(broker, timeout_ms=600_000) == [] and done(broker, HALF) == -1


def test_message_sets_its_own_immunity_time(broker):
    half(broker, b"long", age_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    half(broker, b"short", age_ms=5000, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
    assert check(broker, timeout_ms=600_000) == [(3, b"short")]
    stored = broker.store.get_message("g", HALF, 0, 2, 1, None)
    message = message_decoder.decode(stored.message_buffer_list[0])
    stored.release()
    assert (message.body, message.properties["TRAN_PREPARED_QUEUE_OFFSET"]) == (b"long", "0")


@pytest.mark.parametrize("level", ["1", "5", "18", "99", "soon", "-1"])
@pytest.mark.parametrize("outcome, arrives", [(COMMIT, [b"half"]), (ROLLBACK, [])])
def test_delay_level_of_a_half_message_is_ignored(broker, level, outcome, arrives):
    header = half(broker, DELAY=level)
    assert (broker.next_offset(HALF), broker.next_offset("SCHEDULE_TOPIC_XXXX")) == (1, 0)
    assert end(broker, header, outcome).code == response_code.SUCCESS
    assert broker.next_offset("Orders", 1) == len(arrives)
    assert (bodies(broker.pull("Orders", 0, queue_id=1)) if arrives else []) == arrives


def test_producer_of_a_half_message_with_a_delay_level_is_asked(broker):
    half(broker, DELAY="3")
    assert check(broker) == [(1, b"half")]


@pytest.mark.parametrize("check_max", [1, 2, 5])
def test_rounds_of_immunity_do_not_count_as_checks(broker, monkeypatch, check_max):
    header = half(broker, age_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    for _ in range(check_max + 2):
        assert check(broker, check_max=check_max) == []
    assert broker.next_offset(GIVEN_UP) == 0
    later = util_all.current_time_millis() + 700_000
    # Messages that a round puts back are not older than the round.
    for module in (util_all, commit_log):
        monkeypatch.setattr(module, "current_time_millis", lambda: later)
    for _ in range(check_max):
        later += 1
        controller = broker.controller
        asked = Asked(controller.transactional_message_check_listener)
        controller.transactional_message_service.check(0, check_max, asked)
        broker.next_offset(HALF)
        assert [body for _offset, body in asked.messages] == [b"half"]
    later += 1
    controller.transactional_message_service.check(0, check_max, asked)
    assert broker.next_offset(GIVEN_UP) == 1 and header


def test_immunity_longer_than_the_file_retention_does_not_discard(broker, monkeypatch):
    hour = 3_600_000
    hours = broker.controller.message_store_config.fileReservedTime
    half(broker, b"immune", age_ms=(hours + 1) * hour, CHECK_IMMUNITY_TIME_IN_SECONDS=str((hours + 2) * 3600))
    half(broker, b"immune before", age_ms=(hours + 1) * hour, CHECK_IMMUNITY_TIME_IN_SECONDS=str(2 * 3600))
    half(broker, b"old", age_ms=(hours + 1) * hour)
    assert [body for _offset, body in check(broker)] == [b"immune before"]
    assert broker.next_offset(GIVEN_UP) == 1


@pytest.mark.parametrize("brought", [{"TRANSACTION_CHECK_TIMES": "99"}, {"TRAN_PREPARED_QUEUE_OFFSET": "-1"},
                                     {"TRANSACTION_CHECK_TIMES": "15", "TRAN_PREPARED_QUEUE_OFFSET": "0"}])
def test_properties_of_an_earlier_transaction_do_not_count_when_a_message_is_forwarded(broker, brought):
    half(broker, b"plain", **brought)
    half(broker, b"immune", age_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="600", **brought)
    assert [body for _offset, body in check(broker)] == [b"plain"]
    assert (done(broker, HALF), broker.next_offset(GIVEN_UP)) == (2, 0)


def test_immune_message_ended_under_its_first_offset_is_done(broker):
    header = half(broker, age_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    assert check(broker) == [] and broker.next_offset(HALF) == 2
    assert end(broker, header).code == response_code.SUCCESS
    assert check(broker) == []
    # Found in the op topic, unless its offset was done before.
    assert broker.next_offset(HALF) in (2, 3)


def test_message_checked_too_often_is_discarded(broker):
    header = half(broker)
    for _ in range(3):
        check(broker, check_max=2)
    assert broker.next_offset(GIVEN_UP) == 1 and check(broker, check_max=2) == []
    resume = ResumeCheckHalfMessageRequestHeader(header.msgId)
    assert broker.call(request_code.RESUME_CHECK_HALF_MESSAGE, resume).code == response_code.SUCCESS
    assert [body for _offset, body in check(broker, check_max=2)] == [b"half"]


@pytest.mark.parametrize("msg_id", [None, "", "x", "0" * 32, "7F00000100002A9F00000000FFFFFFFF"])
def test_only_existing_messages_are_resumed(broker, msg_id):
    response = broker.call(request_code.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(msg_id))
    assert (response.code, response.remark) == (
        response_code.SYSTEM_ERROR,
        "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC.")


def test_check_continues_after_a_message_without_a_destination(broker, monkeypatch):
    half(broker)
    check(broker, check_max=1)
    monkeypatch.setattr(topic_config_manager, "MAX_AUTO_CREATED_TOPICS", 0)
    half(broker, b"next")
    bridge = broker.controller.transactional_message_service._bridge
    read = bridge.get_half_message

    def read_all_that_is_stored(*args):
        broker.next_offset(HALF)
        return read(*args)

    monkeypatch.setattr(bridge, "get_half_message", read_all_that_is_stored)
    assert [body for _offset, body in check(broker, check_max=1)] == [b"next"]
    # "half", its copy, "next", and its copy, which the round discards at once.
    assert (broker.next_offset(GIVEN_UP), done(broker, HALF)) == (0, 4)


def test_many_op_messages_are_read_in_batches(broker):
    headers = [half(broker, b"%d" % number) for number in range(80)]
    for header in headers[1:]:
        end(broker, header, ROLLBACK)
    broker.next_offset(OP)
    assert check(broker) == [(80, b"0")]
    assert (done(broker, HALF), done(broker, OP)) == (80, 79)


def test_check_ends_when_the_service_is_closed(broker):
    half(broker)
    broker.controller.transactional_message_service.close()
    assert check(broker) == []


def test_compressed_half_message_keeps_its_body(broker):
    compressed = flags.COMPRESSED_FLAG | CompressionType.ZLIB.compression_flag | flags.TRANSACTION_PREPARED_TYPE
    header = half(broker, zlib.compress(b"large" * 100), sys_flag=compressed)
    resume = ResumeCheckHalfMessageRequestHeader(header.msgId)
    assert broker.call(request_code.RESUME_CHECK_HALF_MESSAGE, resume).code == response_code.SUCCESS
    queue_end = broker.next_offset(HALF)
    for offset in range(queue_end):
        header.tranStateTableOffset = offset
        header.commitLogOffset = broker.store.get_consume_queue(HALF, 0).get_unit(offset)[0]
        assert end(broker, header).code == response_code.SUCCESS
    broker.next_offset("Orders", 1)
    assert bodies(broker.pull("Orders", 0, queue_id=1)) == [b"large" * 100] * 2
