"""Slaves have the same bytes as their master, with records of any size; and the judge finds any damage."""
import random
import shutil
import zlib
from pathlib import Path

import pytest

from rmqha.store.message_store_config import BrokerRole
from tests.faults import same_bytes
from tests.faults.same_bytes import Log, Report, Side
from tests.faults.sized_load import LARGEST, MIB, PROFILES, Acknowledged, Plan, Sent
from tests.store.ha.test_ha_service import REAL_STORES_SEGMENT, make_store, put
from tests.support import store_compare
from tests.support.tiers import in_all, pick

MESSAGES = pick(1000, all=2000, long=4000)
# Each read of a slave counts as part of a stream, after which it predicts where the next bytes belong.
STREAMING = ("-c", "from rmqha.store.ha import master_connection\n"
                   "assert master_connection._STREAM_SIZE > 1\n"
                   "master_connection._STREAM_SIZE = 1\n"
                   "from rmqha.broker import broker_startup\n"
                   "broker_startup.main()")


def assert_same(report: same_bytes.Report, messages: int) -> None:
    """Assert that all messages were acknowledged, and are on all sides."""
    assert report.is_good and not report.sent.others, str(report)
    assert len(report.sent.acknowledged) == messages < report.records


@pytest.mark.parametrize("sizes, command", [
    ("5000-30000", ()), pytest.param("0-1M", STREAMING, marks=in_all),
    pytest.param("5000-30000", STREAMING, marks=in_all)])
def test_slave_has_the_same_bytes(tmp_path, sizes, command):
    report = same_bytes.run(tmp_path, Plan("", sizes, 3, messages=MESSAGES), command=command)
    assert_same(report, MESSAGES)


@pytest.mark.java
@pytest.mark.parametrize("brokers", ["java-rmqha", "rmqha-java"])
def test_slave_has_the_same_bytes_with_java(tmp_path, brokers):
    report = same_bytes.run(tmp_path, Plan("", "0-1M", 4, messages=1500), brokers, command=STREAMING)
    assert_same(report, 1500)


BOUNDS = {"5000-30000": (5000, 30_000), "1k-100k": (1000, 100_000), "0-4M": (0, LARGEST), "0-1M": (0, MIB)}
RECORDS = 70


@pytest.mark.parametrize("sizes", PROFILES)
def test_size_profiles_reach_their_bounds(sizes):
    rng = random.Random(5)
    drawn = [PROFILES[sizes](rng) for _ in range(100_000)]
    least, most = BOUNDS[sizes]
    assert least <= min(drawn) <= least * 1.01 and most * 0.99 <= max(drawn) <= most


@pytest.fixture(scope="module")
def master(tmp_path_factory) -> Path:
    """Return a commit log of two files."""
    root = tmp_path_factory.mktemp("master")
    store = make_store(root, BrokerRole.ASYNC_MASTER)
    assert store.load()
    store.start()
    try:
        for number in range(RECORDS):
            put(store, bytes([number]) * (1000 + number))
    finally:
        store.shutdown()
    return root / "commitlog"


@pytest.fixture
def judged(master, tmp_path):
    """Return judged(change, sent) -> the report on a changed copy of the log or with other messages sent."""
    def judge(change=lambda _files: None, sent=lambda all_sent: all_sent) -> Report:
        copy = tmp_path / "copy"
        shutil.copytree(master, copy)
        change(store_compare.segments(copy))
        acknowledged = [Acknowledged(one.offset, one.topic, one.queue_id, one.queue_offset, zlib.crc32(one.body), 0)
                        for one in store_compare.walk(master)]
        report = Report("", 1, "", "", Sent(sent(acknowledged)), [Side("master"), Side("slave")])
        logs = [Log(master), Log(copy)]
        same_bytes.compare(report, logs, store_compare.log_end(master))
        for one in logs:
            one.close()
        return report
    return judge


def flip(file: Path, at: int) -> None:
    """Flip one bit of a file."""
    with open(file, "r+b") as opened:
        opened.seek(at)
        byte = opened.read(1)[0]
        opened.seek(at)
        opened.write(bytes([byte ^ 4]))


def test_judge_finds_nothing_in_a_true_copy(judged):
    report = judged()
    assert report.is_good and report.records == RECORDS and str(report).startswith("same: ")


@pytest.mark.parametrize("at, checked", [
    (0, True), (4, True), (8, True), (28, True), (12, False), (45, False), (84, True), (500, True), (1091, False)],
    ids=["size", "magic", "CRC", "own offset", "queue", "born time", "body length", "body", "topic"])
def test_judge_finds_a_flipped_bit_anywhere_in_a_record(judged, master, at, checked):
    """Places outside a record's own checks are found by the comparison, and by the acknowledged messages."""
    third = list(store_compare.walk(master))[2].offset
    report = judged(lambda files: flip(files[0], third + at))
    slave = report.sides[1]
    assert (slave.differ, slave.damaged, report.sides[0].damaged) == (1, checked, 0)
    assert not report.is_good and f"record at {third}: 1 of" in str(report)
    assert slave.unreadable == (checked or at in (12, 1091))


def test_judge_finds_a_flipped_bit_in_the_blank_at_the_end_of_a_file(judged):
    report = judged(lambda files: flip(files[0], REAL_STORES_SEGMENT - 1))
    assert (report.sides[1].differ, report.sides[1].damaged, report.is_good) == (1, 0, False)


def test_judge_finds_a_missing_file(judged):
    report = judged(lambda files: files[REAL_STORES_SEGMENT].unlink())
    lost = report.sides[1].differ
    assert 0 < lost < RECORDS and report.sides[1].damaged == report.sides[1].unreadable == lost


@pytest.mark.parametrize("field, value", [
    ("topic", "Another"), ("queue_id", 7), ("queue_offset", 1 << 40), ("body_crc", 1), ("fill_crc", 1)])
def test_judge_finds_a_message_that_differs_from_the_one_sent(judged, field, value):
    report = judged(sent=lambda all_sent: [all_sent[0]._replace(**{field: value}), *all_sent[1:]])
    assert [side.unreadable for side in report.sides] == [1, 1] and not report.is_good


def test_judge_finds_a_missing_message(judged):
    report = judged(sent=lambda all_sent: [*all_sent, all_sent[0]._replace(offset=7)])
    assert not report.is_good and len(report.elsewhere) == 1 and "no record where 1" in str(report)


def test_run_without_acknowledged_messages_is_a_failure(judged):
    assert not judged(sent=lambda _all_sent: []).is_good


def test_slave_that_never_reaches_the_end_is_a_failure(judged):
    report = judged()
    report.sides[1].behind = "it stands"
    assert not report.is_good
