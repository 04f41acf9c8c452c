"""The job `report`: what it counts, over logs whose records are made here."""
import json
import os
from pathlib import Path

import pytest

from rmqha.common.message import message_layout as layout
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.jobs import report as job
from rmqha.pipeline.jobs.report import heat_slot_for, report, slot_for

SECOND, HOUR = 1000, 3_600_000
DAY = 24 * HOUR
BEGIN = 1_763_942_400_000  # 2025-11-24 00:00 UTC
CLIENT = layout.host_to_bytes(("10.0.3.7", 40112))


def record(topic: str, queue: int, index: int, offset: int, stored: int, latency: int = 5, key: str = "",
           host: str = "10.0.0.11", body: bytes = b"b" * 100) -> bytes:
    properties = f"KEYS\x01{key}\x02".encode() if key else b""
    broker = layout.host_to_bytes((host, 10911))
    return layout.encode_record(layout.body_crc32(body), queue, 0, index, offset, 0, stored - latency, CLIENT, stored,
                                broker, 0, 0, body, layout.encode_topic(topic), properties)


class Log:
    """A log that grows: `add` gives each record its place and its index."""

    def __init__(self, root: Path) -> None:
        self.root, self.data, self._next = root, b"", dict[tuple[str, int], int]()

    def add(self, topic: str, queue: int, stored: int, **more) -> None:
        index = self._next[topic, queue] = self._next.get((topic, queue), -1) + 1
        self.data += record(topic, queue, index, len(self.data), stored, **more)

    def write(self, offsets: dict | None = None) -> str:
        (self.root / "commitlog").mkdir(parents=True)
        (self.root / "commitlog" / f"{0:020d}").write_bytes(self.data)
        if offsets is not None:
            (self.root / "config").mkdir()
            text = json.dumps({"offsetTable": offsets})
            for queue in range(4):
                text = text.replace(f'"{queue}": ', f"{queue}:")
            (self.root / "config" / "consumerOffset.json").write_text(text)
        return str(self.root)


@pytest.fixture(scope="module")
def two_days(spark, tmp_path_factory):
    """The report on two days: 96 records of `orders` each half hour, 40 of `mail` at one time, one of a retry topic."""
    folder = tmp_path_factory.mktemp("report")
    log = Log(folder / "store")
    for number in range(96):
        log.add("orders", number % 2, BEGIN + number * HOUR // 2, latency=400 if number == 50 else 5,
                key=f"o-{number} hot" if number % 8 == 0 else f"o-{number}",
                host="10.0.0.11" if number < 60 else "10.0.0.12")
        if number == 20:
            for _ in range(40):
                log.add("mail", 3, BEGIN + 10 * HOUR + 7, latency=-2, key="hot")
    log.add("%RETRY%billing", 0, BEGIN + 2 * DAY, latency=DAY)
    half = bytearray(log.data)
    broken = half.index(b"o-33")  # its body is before
    half[broken - 30] ^= 1
    log.data = bytes(half)
    store = log.write({"orders@billing": {"0": 48, "1": 20}, "orders@gone": {"0": 48, "1": 48},
                       "nothing@billing": {"0": 5}})
    slave = Log(folder / "slave")
    slave.data = log.data[:log.data.index(b"o-90") - 150]
    found = report(spark, store, str(folder / "page.html"), {}, slaves=[slave.write()])
    return found, (folder / "page.html").read_text("utf-8")


def test_messages_times_and_damage_are_counted(two_days):
    found, page = two_days
    assert (found.messages, found.topicCount, found.queueCount) == (137, 3, 4)
    assert (found.begin, found.end) == (BEGIN, BEGIN + 2 * DAY)
    assert found.wrongCrc == 1 and found.holes == 0 and found.bornLater == 40
    assert found.slotMs == 10 * 60_000 and found.heatMs == HOUR
    assert sum(found.slots["messages"]) == 137 and found.slots["messages"][61] == 0
    assert sum(found.slots["bytes"]) == found.bytes
    assert "10.0.0.12" in page and '"messages": 137' in page


def test_latency_is_told_over_time_without_what_is_stored_later(two_days):
    found, _ = two_days
    at = 25 * HOUR // found.slotMs
    assert [found.slots[name][at] for name in ("p50", "p99", "max")] == [400, 400, 400]
    assert found.slots["max"][-1] is None and found.slots["p50"][1] is None  # a retry; nothing at all
    assert found.latency["p50"] == 5 and found.latency["max"] == 400
    assert dict(found.latencies)[-1] == 40 and dict(found.latencies)[2] == 95 and dict(found.latencies)[8] == 1
    assert sum(count for _, count in found.sizes) == 137


def test_topics_groups_and_masters_are_listed(two_days):
    found, _ = two_days
    assert [(row["topic"], row["messages"], row["queues"]) for row in found.topics] == [
        ("orders", 96, 2), ("mail", 40, 1), ("%RETRY%billing", 1, 1)]
    assert [sum(row["slots"]) for row in found.topics] == [96, 40, 1]
    assert found.groupsKnown and found.groupCount == 2 and found.backlogTotal == 28
    # queue 1 has the odd numbers: its index 20 is number 41
    assert found.backlog == [
        {"topic": "orders", "group": "billing", "messages": 28, "lost": 0, "since": BEGIN + 41 * HOUR // 2},
        {"topic": "orders", "group": "gone", "messages": 0, "lost": 0, "since": None}]
    assert [(row["host"], row["messages"]) for row in found.writers] == [("10.0.0.11:10911", 101),
                                                                        ("10.0.0.12:10911", 36)]


def test_a_slave_lacks_what_came_behind_its_end(two_days):
    found, _ = two_days
    slave, = found.slaves
    assert slave["messages"] in (7, 8) and slave["bytes"] > 7 * 200
    assert slave["since"] == BEGIN + (97 - slave["messages"]) * HOUR // 2


def test_only_keys_that_stand_out_are_hot(two_days):
    found, _ = two_days
    assert found.keyUses == 96 + 12 + 40 and 90 <= found.keyCount <= 106
    assert found.hottest == [{"topic": "mail", "key": "hot", "messages": 40}]  # 12 uses of another are not 10 times


def test_deleted_messages_and_an_odd_file_of_offsets(spark, tmp_path):
    log = Log(tmp_path / "store")
    log._next["T", 0] = 9
    log.add("T", 0, BEGIN)
    store = log.write({"T@g": {"0": 4}})
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.backlog == [{"topic": "T", "group": "g", "messages": 7, "lost": 6, "since": BEGIN}]
    assert found.slotMs == SECOND and found.slots["messages"] == [1]
    (tmp_path / "store" / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@g":[1]}}')
    with pytest.raises(PipelineError, match=r"consumerOffset.json is not as brokers write it"):
        report(spark, store, str(tmp_path / "page"), {})


def test_an_empty_store_has_a_page(spark, tmp_path):
    store = Log(tmp_path / "store").write({})
    os.truncate(tmp_path / "store" / "commitlog" / f"{0:020d}", 4096)
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.messages == 0 and found.slots["messages"] == [] and found.topics == [] and found.hottest == []


def test_the_driver_gets_a_bounded_number_of_topics(spark, tmp_path, monkeypatch):
    for name in ("LISTED_TOPICS", "LISTED_GROUPS"):
        monkeypatch.setattr(job, name, 3)
    log = Log(tmp_path / "store")
    for number in range(50):
        for _ in range(number // 10 + 1):
            log.add(f"T{number:02d}", 0, BEGIN + number)
    store = log.write({f"T{number:02d}@g": {"0": 0} for number in range(50)})
    found = report(spark, store, str(tmp_path / "page"), {})
    assert found.topicCount == 50 and [row["topic"] for row in found.topics] == ["T40", "T41", "T42"]
    assert found.groupCount == 50 and found.backlogTotal == 150 and len(found.backlog) == 3


@pytest.mark.parametrize("length", [0, 1, 999, 61_000, HOUR, 6 * HOUR, 3 * DAY, 30 * DAY, 4000 * DAY, 1 << 45])
def test_slots_are_few_and_columns_are_whole_slots(length):
    for begin in (BEGIN, BEGIN + 12_345_678, 0):
        slot = slot_for(begin, begin + length, job.MOST_SLOTS)
        heat = heat_slot_for(begin, begin + length, slot)
        assert 1 <= (begin + length) // slot - begin // slot + 1 <= job.MOST_SLOTS
        assert heat % slot == 0 and (begin + length) // heat - begin // heat < job.MOST_HEAT_SLOTS
        assert length < 6 * HOUR or heat >= HOUR
