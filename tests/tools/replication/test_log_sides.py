"""The log of a broker for comparing: by its checksums, and through its HA port without acknowledging anything."""
import random
import socket
import zlib

import pytest

from rmqha.common.protocol import request_code
from rmqha.store.ha import ha_transfer
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.replication import log_match
from rmqha.tools.replication.log_match import BrokerSide, RangeGoneError, StreamSide, log_side, place_of
from rmqha.tools.replication.receive import Master
from rmqha.tools.terminal import CannotAnswerError
from tests.tools.check.test_check_deep import FILE, KEPT, WAIT_MS, records
from tests.tools.conftest import broker_at


class Alone:
    """A master without slaves."""

    def __init__(self, broker):
        self.master = broker
        self.end = broker.store.get_max_phy_offset()
        self.log = b"".join(self._files())

    def _files(self):
        offset, store = 0, self.master.store
        while offset < self.end:
            with store.get_commit_log_data(offset) as result:
                yield bytes(result.buffer)
                offset += result.size

    def forget_checksums(self, monkeypatch):
        handlers = self.master.controller.remoting_server.default_request_processor.processor._handlers
        monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    with broker_at(tmp_path_factory.mktemp("alone"), None, mappedFileSizeCommitLog=FILE, maxMessageSize=FILE,
                   **KEPT) as broker:
        for number in range(60):
            assert broker.send("T", bytes([number]) * (10 + number * 700 % 30_000)).code == 0
        yield Alone(broker)


@pytest.fixture
def admin():
    with ClusterAdmin(timeout_millis=WAIT_MS) as one:
        yield one


@pytest.fixture(params=[BrokerSide, StreamSide])
def side(request, alone, admin, monkeypatch):
    if request.param is StreamSide:
        alone.forget_checksums(monkeypatch)
    one = log_side(admin, alone.master.address, "master")
    assert type(one) is request.param and (one.begin, one.end, one.file_size) == (0, alone.end, FILE)
    yield one
    one.close()


def test_drawn_ranges_are_those_of_the_log(side, alone, monkeypatch):
    monkeypatch.setattr(log_match, "_KEPT", 1000)
    draw = random.Random(1)
    for _ in range(150):
        offset = draw.choice((0, FILE, 2 * FILE, draw.randrange(alone.end))) + draw.choice((0, 1, 77))
        size = min(draw.choice((1, 1000, FILE, 2 * FILE)), alone.end - offset)
        assert side.read(offset, size) == alone.log[offset:offset + size]
        count = max(size // 9, 1)
        if count <= 4096 and offset + 9 * count <= alone.end:
            assert side.checksums(offset, 9, count) == tuple(
                zlib.crc32(alone.log[at:at + 9]) for at in range(offset, offset + 9 * count, 9))


def test_the_record_around_each_drawn_byte_is_found(side, alone):
    known = records(alone)
    draw = random.Random(2)
    for offset, size in draw.sample(known, 12) + [known[0], known[-1]]:
        for at in (offset, offset + 3, offset + size // 2, offset + size - 1):
            place = place_of(side, at)
            assert (place.start, place.end, place.is_blank, place.reason) == (offset, offset + size, False, "")
    blank = max(offset + size for offset, size in known if offset < FILE)
    for at in (blank, blank + 7, FILE - 1):
        place = place_of(side, at)
        assert (place.start, place.end, place.is_blank) == (blank, FILE, True)


def test_what_is_not_there_is_an_error_with_the_range(side, alone):
    for offset, size in ((alone.end - 1, 2), (alone.end, 1), (1 << 40, 1)):
        with pytest.raises(RangeGoneError, match=f"does not hold {size} bytes at offset {offset} any more"):
            side.read(offset, size)
        with pytest.raises(RangeGoneError, match=f"does not hold {size} bytes at offset {offset} any more"):
            side.checksums(offset, size, 1)


def test_a_reader_reports_where_it_began_and_nothing_else(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    reports = []
    encode = ha_transfer.encode_report
    monkeypatch.setattr(log_match.ha_transfer, "encode_report", lambda offset: reports.append(offset) or encode(offset))
    monkeypatch.setattr(log_match, "_RECEIVE_SIZE", 4096)
    side = log_side(admin, alone.master.address, "master")
    for offset in range(0, alone.end - 5000, 5000):
        side._last_report = 0.0  # a report is due
        assert side.read(offset, 5000) == alone.log[offset:offset + 5000]
    assert len(reports) > 20 and set(reports) == {1}
    side.close()
    another = log_side(admin, alone.master.address, "master")
    assert another.read(70_000, 10) == alone.log[70_000:70_010] and set(reports) == {1, 70_000}
    another.close()


def test_a_sync_master_is_given_time_so_that_no_send_waits_for_what_is_reported(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    waits = []
    for role in ("ASYNC_MASTER", "SYNC_MASTER"):
        config = {**admin.get_broker_config(alone.master.address), "brokerRole": role, "slaveTimeout": "1500"}
        monkeypatch.setattr(ClusterAdmin, "get_broker_config", lambda _self, _address, config=config: config)
        log_side(admin, alone.master.address, "master", waits.append).close()
    assert waits == [6.5]


def test_a_connection_that_ends_is_made_again(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    side = log_side(admin, alone.master.address, "master")
    assert side.read(0, 100) == alone.log[:100]
    side._stream._socket.shutdown(socket.SHUT_RDWR)
    assert side.read(90, alone.end - 90) == alone.log[90:]
    side.close()


def test_a_port_that_is_none_of_replication_is_named(alone):
    port = int(alone.master.address.rpartition(":")[2])
    side = StreamSide("the master", Master("m", ("127.0.0.1", port), FILE, 0, alone.end, 1000, 1000))
    with pytest.raises(CannotAnswerError, match="the master is read through its HA port: 127.0.0.1:"):
        side.read(5, 10)


def test_a_broker_that_waits_for_all_its_peers_is_not_read(alone, admin, monkeypatch):
    alone.forget_checksums(monkeypatch)
    config = {**admin.get_broker_config(alone.master.address), "inSyncReplicas": "3"}
    monkeypatch.setattr(ClusterAdmin, "get_broker_config", lambda _self, _address: config)
    with pytest.raises(CannotAnswerError, match="inSyncReplicas above 2"):
        log_side(admin, alone.master.address, "master")
