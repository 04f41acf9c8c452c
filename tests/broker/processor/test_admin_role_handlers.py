"""Handing over the master role, checksums of a log, and queue ends that include every acknowledged message."""
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException, BrokerOuterAPI
from rmqha.broker.processor import admin_handlers
from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol import request_code as codes
from rmqha.common.protocol.admin_headers import (
    GetConsumeStatsRequestHeader,
    GetTopicStatsInfoRequestHeader,
    HandoverMasterRequestHeader,
    HandoverMasterResponseHeader,
)
from rmqha.common.protocol.client_headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    QueryConsumeQueueRequestHeader,
    SearchOffsetRequestHeader,
)
from rmqha.common.protocol.controller_headers import GetCommitLogChecksumsRequestHeader
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.in_process import gathering, running_name_server
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

# A master hands over its role; meanwhile, producers are told why their sends are refused.

KEYS = {"brokerClusterName": "C", "enableAutoSwitchHA": True, "allAckInSyncStateSet": True}
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    with running_name_server(folder) as namesrv, \
            broker_at(folder / "master", namesrv, brokerRole=BrokerRole.SYNC_MASTER, **KEYS) as master, \
            broker_at(folder / "slave", namesrv, brokerRole=BrokerRole.SLAVE, brokerId=1, **KEYS) as slave:
        wait_until(lambda: len(master.store.ha_service.sync_state_set.members) == 2, WAIT_MS, "both in sync")
        yield master, slave


def test_master_being_handed_over_refuses_sends_with_the_reason_until_the_time_is_over(pair):
    master, _slave = pair
    assert master.send("T").code == response_code.SUCCESS
    answer = master.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(1, 10_000))
    assert answer.code == response_code.SUCCESS, answer.remark
    end = answer.decode_command_custom_header(HandoverMasterResponseHeader).maxOffset
    assert end == master.store.get_max_phy_offset() > 0
    refused = master.send("T")
    assert refused.code == response_code.SERVICE_NOT_AVAILABLE
    assert "the master role is being handed over to broker 1; this is automatic and soon over" in refused.remark
    wait_until(lambda: master.send("T").code == response_code.SUCCESS, WAIT_MS, "taken again")


def test_only_an_in_sync_slave_can_take_over(pair):
    master, slave = pair
    for broker, heir, reason in ((master, 7, "broker 7 is not in sync"), (master, 1000, "broker 1000 is the master"),
                                 (slave, 1000, "this broker is not the master")):
        answer = broker.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(heir, 100))
        assert answer.code == response_code.SYSTEM_ERROR and reason in answer.remark
    assert master.send("T").code == response_code.SUCCESS


def test_broker_with_a_fixed_role_refuses_a_handover(broker):
    answer = broker.call(request_code.HANDOVER_MASTER, HandoverMasterRequestHeader(1, 100))
    assert answer.code == response_code.SYSTEM_ERROR and "enableAutoSwitchHA=true" in answer.remark


# A broker returns checksums of its log to a tool or a slave.

WAIT_MS = 60_000
_FILE = 1 << 16


@contextmanager
def admin_api():
    api = MQClientAPIImpl(RemotingClientConfig(clientCallbackExecutorThreads=1), ClientConfig(), None)
    api.start()
    try:
        yield api
    finally:
        api.shutdown()


@contextmanager
def outer_api():
    api = BrokerOuterAPI(RemotingClientConfig())
    api.start()
    try:
        yield api
    finally:
        api.shutdown()


@pytest.fixture(scope="module", params=[admin_api, outer_api])
def api(request):
    with request.param() as one:
        yield one


@pytest.fixture(scope="module")
def checksums_pair(tmp_path_factory):
    """A master, its slave, and the contents of their log, which has more than two files."""
    folder = tmp_path_factory.mktemp("pair")
    keys = {"mappedFileSizeCommitLog": _FILE}
    with running_broker(folder / "master", brokerRole=BrokerRole.SYNC_MASTER, **keys) as master, \
            broker_at(folder / "slave", None, brokerRole=BrokerRole.SLAVE, brokerId=1,
                      haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}", **keys) as slave:
        wait_until(lambda: master.store.ha_service.connection_list, WAIT_MS, "the slave")
        for number in range(40):
            assert master.send("T", bytes(range(256)) * (1 + number)).code == response_code.SUCCESS
        wait_until(lambda: slave.store.get_max_phy_offset() == master.store.get_max_phy_offset(), WAIT_MS, "the log")
        files = sorted(Path(folder, "master", "store", "commitlog").iterdir())
        held = b"".join(file.read_bytes() for file in files)[:master.store.get_max_phy_offset()]
        yield master, slave, held


def test_master_and_slave_return_the_checksums_of_their_logs(checksums_pair, api):
    master, slave, held = checksums_pair
    for broker in (master, slave):
        for offset, block_size, count in ((0, 4096, 4096), (1, 1, 4096), (_FILE - 9, 1000, 3), (len(held) - 5, 5, 2),
                                          (len(held), 1, 1), (1 << 50, 4096, 1)):
            told = api.get_commit_log_checksums(broker.address, offset, block_size, count, WAIT_MS)
            starts = range(offset, min(len(held), offset + block_size * count) - block_size + 1, block_size)
            assert told == (0, len(held), tuple(zlib.crc32(held[at:at + block_size]) for at in starts))


def test_invalid_request_is_refused_with_the_reason(checksums_pair, api):
    master, _slave, _held = checksums_pair
    with pytest.raises((MQBrokerException, BrokerAnswerException), match="blockSize is 0, and must be from 1 to"):
        api.get_commit_log_checksums(master.address, 0, 0, 1, WAIT_MS)


@pytest.mark.parametrize(("change", "reason"), [
    ({"offset": None}, "the custom field <offset> is null"),
    ({"blockSize": "x"}, "the custom field <blockSize> is invalid"),
    ({"count": str(1 << 31)}, "the custom field <count> is invalid"),
    ({"count": "4097"}, "count is 4097, and must be from 1 to 4096"),
    ({"blockSize": "1048576", "count": "17"}, "17 blocks of 1048576 bytes are 17825792 bytes"),
])
def test_invalid_fields_are_named(checksums_pair, change, reason):
    master, _slave, _held = checksums_pair

    class Odd(GetCommitLogChecksumsRequestHeader):
        def __init__(self):
            super().__init__(0, 1, 1)
            for name, value in change.items():
                setattr(self, name, value)

    answer = master.call(request_code.GET_COMMIT_LOG_CHECKSUMS, Odd())
    assert answer.code == response_code.SYSTEM_ERROR and reason in answer.remark


def test_broker_without_this_request_is_detected(checksums_pair, api, monkeypatch):
    master, _slave, _held = checksums_pair
    handlers = master.controller.remoting_server.default_request_processor.processor._handlers
    monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
    assert api.get_commit_log_checksums(master.address, 0, 1, 1, WAIT_MS) is None


def test_malformed_answer_is_an_error(checksums_pair, api, monkeypatch):
    master, _slave, _held = checksums_pair
    handlers = master.controller.remoting_server.default_request_processor.processor._handlers
    right = handlers[request_code.GET_COMMIT_LOG_CHECKSUMS]

    def odd(channel, request):
        answer = right(channel, request)
        answer.body += b"x"
        return answer

    monkeypatch.setitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS, odd)
    with pytest.raises(ValueError, match="13 bytes are not the checksums of at most 3 blocks"):
        api.get_commit_log_checksums(master.address, 0, 10, 3, WAIT_MS)


def test_blocks_are_returned_on_request(checksums_pair):
    master, slave, held = checksums_pair
    with admin_api() as api:
        for broker in (master, slave):
            for offset, size in ((0, 1), (_FILE - 9, 3000), (len(held) - 5, 5), (len(held) - 5, 6)):
                wanted = held[offset:offset + size] if offset + size <= len(held) else b""
                assert api.get_commit_log_bytes(broker.address, offset, size, WAIT_MS) == wanted


# Queue ends include every acknowledged message, even one that is still waiting in a group for its dispatch.


@pytest.fixture
def gathered(shared_broker, request, monkeypatch):
    """A topic with one message that is acknowledged but stays undispatched."""
    # Milliseconds are enough, except on a busy machine.
    monkeypatch.setattr(admin_handlers, "_WAIT_S", 60)
    topic = f"Gathered{abs(hash(request.node.name))}"
    shared_broker.next_offset(topic)
    with gathering(shared_broker.store):
        shared_broker.send(topic, b"one")
        assert shared_broker.store.get_max_offset_in_queue(topic, 0) == 0
        shared_broker.controller.consumer_offset_manager.commit_offset("addr", "reader", topic, 0, 0)
        yield topic


ASKED = {
    "max": (codes.GET_MAX_OFFSET, lambda topic: GetMaxOffsetRequestHeader(topic=topic, queueId=0),
            lambda answer: answer.ext_fields["offset"] == "1"),
    "min": (codes.GET_MIN_OFFSET, lambda topic: GetMinOffsetRequestHeader(topic=topic, queueId=0),
            lambda answer: answer.ext_fields["offset"] == "0"),
    "by time": (codes.SEARCH_OFFSET_BY_TIMESTAMP,
                lambda topic: SearchOffsetRequestHeader(topic=topic, queueId=0, timestamp=1 << 41),
                lambda answer: answer.ext_fields["offset"] == "0"),
    "earliest": (codes.GET_EARLIEST_MSG_STORETIME,
                 lambda topic: GetEarliestMsgStoretimeRequestHeader(topic=topic, queueId=0),
                 lambda answer: int(answer.ext_fields["timestamp"]) > 0),
    "topic": (codes.GET_TOPIC_STATS_INFO, lambda topic: GetTopicStatsInfoRequestHeader(topic=topic),
              lambda answer: b'"maxOffset":1' in answer.body),
    "group": (codes.GET_CONSUME_STATS, lambda topic: GetConsumeStatsRequestHeader(consumerGroup="reader", topic=topic),
              lambda answer: b'"brokerOffset":1' in answer.body),
    "queue": (codes.QUERY_CONSUME_QUEUE,
              lambda topic: QueryConsumeQueueRequestHeader(topic=topic, queueId=0, index=0, count=1),
              lambda answer: b'"maxQueueIndex":1' in answer.body),
}


@pytest.mark.parametrize("what", ASKED)
def test_gathered_messages_are_dispatched_first(shared_broker, gathered, what):
    code, header, is_right = ASKED[what]
    answer = shared_broker.call(code, header(gathered))
    assert answer.code == response_code.SUCCESS and is_right(answer), (answer, answer.body)


def test_failure_of_a_deferred_answer_is_an_error(shared_broker, gathered):
    def serve() -> RemotingCommand:
        raise ValueError("the disk")
    answer = admin_handlers.answer(shared_broker.store, codes.GET_MAX_OFFSET, serve).get(60_000)
    assert answer.code == response_code.SYSTEM_ERROR and "the disk" in answer.remark


def test_request_without_its_fields_gets_the_same_error_when_deferred(shared_broker, gathered, caplog):
    behind = shared_broker.call(codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(queueId=0))
    assert "cannot determine the end of a queue" in caplog.text and "Traceback" not in caplog.text
    wait_until(lambda: shared_broker.store.dispatch_behind_bytes() <= 0, 60_000, "dispatched")
    at_once = shared_broker.call(codes.GET_MAX_OFFSET, GetMaxOffsetRequestHeader(queueId=0))
    assert (behind.code, behind.remark) == (at_once.code, at_once.remark)
    assert behind.code == response_code.SYSTEM_ERROR and "topic" in behind.remark


def test_answer_is_immediate_when_nothing_is_gathered(shared_broker):
    shared_broker.next_offset("Nothing")
    answer = RemotingCommand.create_response_command(response_code.SUCCESS, None)
    for code in admin_handlers.TELL_ENDS:
        assert admin_handlers.answer(shared_broker.store, code, lambda: answer) is answer
