"""Scrubbing: a slave's log is compared with its master's, by checksums or byte by byte, and differences are found."""
import os
import random
import threading
from contextlib import contextmanager

import pytest

from rmqha.common.message.message_layout import BLANK_MAGIC_CODE
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.store.ha import scrub_service
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.ha.master_connection import CantAsk
from rmqha.store.message_store_config import BrokerRole
from tests.store.ha.test_ha_service import log_of, make_store, put
from tests.support.tiers import in_all
from tests.support.wait import wait_until

SEGMENT = 256 * 1024
QUICK = {"haScrubBytesPerSecond": 1 << 30, "haScrubPromise": 1000, "mappedFileSizeCommitLog": SEGMENT,
         "haSendHeartbeatInterval": 100}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(scrub_service, "_LOOK_MS", 20)
    monkeypatch.setattr(scrub_service, "_RETRY_MS", 50)
    monkeypatch.setattr(scrub_service, "_SURE_MS", 1)


@contextmanager
def opened(folder, role, address=None, **keys):
    store = make_store(folder, role, **{**QUICK, **keys})
    assert store.load()
    store.ha_service.scrub_service.ask_checksums = keys.pop("ask", None)
    store.update_ha_master_address(address)
    store.start()
    try:
        yield store
    finally:
        store.shutdown()


def by_checksums(master):
    """Answer as the master's main port does."""
    def ask(_address: str, offset: int, block_size: int, count: int) -> LogChecksums:
        crcs = (read_tail(master, offset + number * block_size, block_size) for number in range(count))
        return LogChecksums(max(0, master.get_min_phy_offset()), master.get_max_phy_offset(),
                         tuple(crc for crc in crcs if crc is not None))
    return ask


def by_bytes(_master):
    """Answer as a RocketMQ 4.9 master does, so that its HA port has to be read."""
    return lambda *_question: CantAsk.UNKNOWN_REQUEST


@pytest.fixture(params=[by_checksums, by_bytes], ids=["checksums", "bytes"])
def pair(request, tmp_path):
    """Return (master, slave) with the same log of three and a half files."""
    with opened(tmp_path / "master", BrokerRole.ASYNC_MASTER) as master:
        rng = random.Random(3)
        while master.get_max_phy_offset() < 3.5 * SEGMENT:
            put(master, rng.randbytes(rng.choice((0, 30, 1000, 5000, 40_000))))
        with opened(tmp_path / "slave", BrokerRole.SLAVE, haSyncFromFirstFile=True) as slave:
            slave.ha_service.scrub_service.ask_checksums = request.param(master)
            slave.update_ha_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")
            wait_until(lambda: slave.get_max_phy_offset() == master.get_max_phy_offset())
            yield master, slave


def rounds_pass(slave, count: int = 2) -> None:
    """Wait until `count` more rounds have ended."""
    wanted = slave.ha_service.scrub.rounds + count
    wait_until(lambda: slave.ha_service.scrub.rounds >= wanted, 120_000,
               f"a round; {vars(slave.ha_service.scrub)}")


def flip(store, offset: int, bit: int) -> None:
    """Flip a bit on the disk, bypassing the store."""
    path = os.path.join(store.message_store_config.get_store_path_commit_log(), f"{offset - offset % SEGMENT:020d}")
    file = os.open(path, os.O_RDWR)
    try:
        byte = os.pread(file, 1, offset % SEGMENT)
        os.pwrite(file, bytes((byte[0] ^ 1 << bit,)), offset % SEGMENT)
    finally:
        os.close(file)


def records_of(log: bytes) -> list[tuple[int, int]]:
    """Return (offset, size) of each record, blanks included."""
    found, at = [], 0
    while at < len(log):
        size = int.from_bytes(log[at:at + 4], "big")
        found.append((at, size))
        at += size
    return found


def is_blank(log: bytes, at: int) -> bool:
    """Return whether the blank that ends a file begins there."""
    return log[at + 4:at + 8] == BLANK_MAGIC_CODE.to_bytes(4, "big", signed=True)


def test_only_the_head_of_a_blank_is_compared(pair):
    master, slave = pair
    scrub, log = slave.ha_service.scrub, log_of(master)
    blanks = [at for at, size in records_of(log) if is_blank(log, at) and size > 8]
    rounds_pass(slave, 1)
    for at in blanks:
        flip(slave, at + 8, 3)
    rounds_pass(slave)
    assert scrub.differences == 0
    flip(slave, blanks[0] + 6, 0)
    rounds_pass(slave)
    assert scrub.differences >= 1 and scrub.first_difference <= blanks[0] + 6


def test_equal_logs_are_compared_completely_in_every_round(pair):
    master, slave = pair
    scrub = slave.ha_service.scrub
    rounds_pass(slave)
    assert scrub.round_begin == 0 and scrub.differences == 0
    assert scrub.compared_bytes >= 2 * master.get_max_phy_offset()
    put(master, b"more")
    wait_until(lambda: scrub.position == master.get_max_phy_offset())
    assert scrub.differences == 0 and log_of(slave) == log_of(master)


@pytest.mark.parametrize("seed", range(4))
def test_each_flipped_bit_is_found_in_its_record_and_forgotten_when_it_is_restored(pair, seed):
    master, slave = pair
    rng, scrub, log = random.Random(seed), slave.ha_service.scrub, log_of(master)
    rounds_pass(slave, 1)
    chosen = sorted(rng.sample([each for each in records_of(log) if not is_blank(log, each[0])], 5))
    flips = [(at + rng.randrange(size), rng.randrange(8)) for at, size in chosen]
    for at, bit in flips:
        flip(slave, at, bit)
    rounds_pass(slave)
    for (begin, size), (at, _bit) in zip(chosen, flips):
        hits = [each for each in scrub.found if each.offset <= at < each.offset + each.size]
        assert len(hits) == 1, f"not one difference at {at} of the record from {begin} to {begin + size}: {scrub.found}"
        assert hits[0].where != "master"
    assert scrub.differences == len(scrub.found) == 5
    for at, bit in flips:
        flip(slave, at, bit)
    rounds_pass(slave)
    assert scrub.differences == 0 and log_of(slave) == log


def test_scrubbing_does_not_change_the_masters_acknowledgements(pair):
    master, slave = pair
    rounds_pass(slave)
    end = master.get_max_phy_offset()
    assert master.ha_service.push2_slave_max_offset.get() == end
    assert all(connection.slave_ack_offset == end or connection.slave_request_offset <= end
               for connection in master.ha_service.connection_list)


def test_a_master_that_does_not_answer_is_asked_again(pair):
    master, slave = pair
    service, scrub = slave.ha_service.scrub_service, slave.ha_service.scrub
    rounds_pass(slave, 1)
    real, answers = service.ask_checksums, threading.Event()
    service.ask_checksums = lambda *question: real(*question) if answers.is_set() else CantAsk.NO_ANSWER
    service._leave_master()
    put(master, b"unseen")
    wait_until(lambda: scrub.state == "CANT")
    wait_until(lambda: scrub.round_end == master.get_max_phy_offset() and scrub.unscrubbed_ms() > 0)
    assert "does not respond" in scrub.last_error
    answers.set()
    wait_until(lambda: scrub.position == master.get_max_phy_offset() and not scrub.last_error)


@in_all
def test_a_log_is_not_streamed_for_a_few_bytes(pair, monkeypatch):
    master, slave = pair
    scrub, config = slave.ha_service.scrub, slave.message_store_config
    wait_until(lambda: scrub.rounds)
    config.haScrubPromise = 1 << 30
    wait_until(lambda: scrub.state == "WAITING" and scrub.position == master.get_max_phy_offset())
    monkeypatch.setattr(scrub_service, "_STREAM_AGAIN_MS", 1 << 40)
    monkeypatch.setattr(scrub_service, "_STREAM_MIN", 10_000)
    before = scrub.position
    put(master, b"little")
    wait_until(lambda: scrub.round_end == master.get_max_phy_offset())
    gathers = slave.ha_service.scrub_service._may_gather
    if slave.ha_service.scrub_service._master.is_streamed:
        assert gathers(slave.ha_service.scrub_service._master, scrub.round_end) and scrub.position == before
    put(master, bytes(20_000))
    wait_until(lambda: scrub.position == master.get_max_phy_offset())
    assert scrub.differences == 0
