"""A broker gives the checksums of its log to who asks for them: a tool, or a slave."""
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException, BrokerOuterAPI
from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.controller_headers import GetCommitLogChecksumsRequestHeader
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

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
def pair(tmp_path_factory):
    """A master and its slave, and the log of both: more than two files."""
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


def test_master_and_slave_give_the_checksums_of_their_logs(pair, api):
    master, slave, held = pair
    for broker in (master, slave):
        for offset, block_size, count in ((0, 4096, 4096), (1, 1, 4096), (_FILE - 9, 1000, 3), (len(held) - 5, 5, 2),
                                          (len(held), 1, 1), (1 << 50, 4096, 1)):
            told = api.get_commit_log_checksums(broker.address, offset, block_size, count, WAIT_MS)
            starts = range(offset, min(len(held), offset + block_size * count) - block_size + 1, block_size)
            assert told == (0, len(held), tuple(zlib.crc32(held[at:at + block_size]) for at in starts))


def test_a_wrong_request_is_refused_with_the_reason(pair, api):
    master, _slave, _held = pair
    with pytest.raises((MQBrokerException, BrokerAnswerException), match="blockSize is 0, and must be from 1 to"):
        api.get_commit_log_checksums(master.address, 0, 0, 1, WAIT_MS)


@pytest.mark.parametrize(("change", "reason"), [
    ({"offset": None}, "the custom field <offset> is null"),
    ({"blockSize": "x"}, "the custom field <blockSize> is wrong"),
    ({"count": str(1 << 31)}, "the custom field <count> is wrong"),
    ({"count": "4097"}, "count is 4097, and must be from 1 to 4096"),
    ({"blockSize": "1048576", "count": "17"}, "17 blocks of 1048576 bytes are 17825792 bytes"),
])
def test_fields_that_make_no_request_are_named(pair, change, reason):
    master, _slave, _held = pair

    class Odd(GetCommitLogChecksumsRequestHeader):
        def __init__(self):
            super().__init__(0, 1, 1)
            for name, value in change.items():
                setattr(self, name, value)

    answer = master.call(request_code.GET_COMMIT_LOG_CHECKSUMS, Odd())
    assert answer.code == response_code.SYSTEM_ERROR and reason in answer.remark


def test_who_does_not_know_the_request_is_seen(pair, api, monkeypatch):
    master, _slave, _held = pair
    handlers = master.controller.remoting_server.default_request_processor.processor._handlers
    monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
    assert api.get_commit_log_checksums(master.address, 0, 1, 1, WAIT_MS) is None


def test_an_answer_of_another_form_is_no_answer(pair, api, monkeypatch):
    master, _slave, _held = pair
    handlers = master.controller.remoting_server.default_request_processor.processor._handlers
    right = handlers[request_code.GET_COMMIT_LOG_CHECKSUMS]

    def odd(channel, request):
        answer = right(channel, request)
        answer.body += b"x"
        return answer

    monkeypatch.setitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS, odd)
    with pytest.raises(ValueError, match="13 bytes are not the checksums of at most 3 blocks"):
        api.get_commit_log_checksums(master.address, 0, 10, 3, WAIT_MS)


def test_the_blocks_come_too_when_they_are_asked_for(pair):
    master, slave, held = pair
    with admin_api() as api:
        for broker in (master, slave):
            for offset, size in ((0, 1), (_FILE - 9, 3000), (len(held) - 5, 5), (len(held) - 5, 6)):
                wanted = held[offset:offset + size] if offset + size <= len(held) else b""
                assert api.get_commit_log_bytes(broker.address, offset, size, WAIT_MS) == wanted
