"""Tests of the judge: each fault, planted into three logs or into the acknowledgements, is found."""
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults.drawn_messages import crc_of
from tests.faults.failover import lives
from tests.faults.failover.cluster import Cluster, Plan, read_epochs
from tests.faults.failover.judge import Judge
from tests.faults.failover.traffic import TOPIC, Ack, Refusals
from tests.faults.verdict import Violation
from tests.support.store_compare import MESSAGE_MAGIC


def record(offset: int, name: str, queue_id: int, queue_offset: int) -> bytes:
    """Return a record as it is stored in the log."""
    body, topic, properties = b"rest of " + name.encode(), TOPIC.encode(), f"KEYS\x01{name}\x02TAGS\x01Tag".encode()
    size, crc = 91 + len(body) + len(topic) + len(properties), zlib.crc32(body) & 0x7FFFFFFF
    return struct.pack(
        f">IIIiiqqiq8sq8siqi{len(body)}sb{len(topic)}sh{len(properties)}s",
        size, MESSAGE_MAGIC, crc, queue_id, 0, queue_offset, offset,
        0, 1, bytes(8), 1, bytes(8), 0, 0, len(body), body, len(topic), topic, len(properties), properties)


class Fake:
    """Three logs of messages m0, m1 ..., each acknowledged by the master of its epoch at the time of its number."""

    def __init__(self, folder: Path, count: int = 20, epochs: tuple = ((1, 0),)):
        log, self.acks = b"", []
        self.starts = {}
        for number in range(count):
            name, queue_id, queue_offset = f"m{number}", number % 2, number // 2
            self.starts[number] = len(log)
            data = record(len(log), name, queue_id, queue_offset)
            epoch = sum(first <= number for _, first in epochs) - 1
            crc = crc_of(b"rest of " + name.encode(), "Tag", "")
            self.acks.append(Ack(name, epoch % 3, TOPIC, queue_id, queue_offset, len(log), crc, float(number),
                                 number + 0.5))
            log += data
        self._epochs = [(epoch, self.starts[first]) for epoch, first in epochs]
        self.replicas = []
        for index in range(3):
            commit_log = folder / str(index)
            commit_log.mkdir()
            (commit_log / "00000000000000000000").write_bytes(log + bytes(1000))
            self.replicas.append(SimpleNamespace(name=f"b{index}", commit_log=commit_log))
        self._end = len(log)

    def ends_in_sync(self) -> list[int]:
        """Return the ends of the logs."""
        return [self._end] * 3

    def master(self) -> None:
        """Return None: no broker can be read from."""

    def epochs(self) -> list[tuple[int, int]]:
        """Return the epochs as in the master's file."""
        return self._epochs

    def look(self) -> int:
        """Run the judge."""
        return Judge(self, self).look()

    def change(self, number: int, **fields: object) -> None:
        """Change an acknowledgement."""
        self.acks[number] = self.acks[number]._replace(**fields)

    def write(self, index: int, at: int, data: bytes) -> None:
        """Change a log."""
        with open(self.replicas[index].commit_log / "00000000000000000000", "r+b") as file:
            file.seek(at)
            file.write(data)


TWO = ((1, 0), (2, 10))


def test_correct_logs_pass(tmp_path):
    fake = Fake(tmp_path, epochs=TWO)
    judge = Judge(fake, fake)
    assert judge.look() == 20
    assert judge.look() == 0
    assert judge.epochs == 2


def test_lost_message_is_found(tmp_path):
    fake = Fake(tmp_path)
    fake.change(7, name="gone")
    with pytest.raises(Violation, match="A: .*gone"):
        fake.look()


@pytest.mark.parametrize("change", [{"queue_offset": 99}, {"offset": 3}, {"crc": 1}, {"queue_id": 3}, {"topic": "T"}])
def test_message_at_another_place_is_found(tmp_path, change):
    fake = Fake(tmp_path)
    fake.change(7, **change)
    with pytest.raises(Violation, match="A: "):
        fake.look()


def test_changed_byte_in_one_log_is_found(tmp_path):
    fake = Fake(tmp_path)
    fake.write(2, 777, b"\xff")
    with pytest.raises(Violation, match="B: b0 and b2 differ from 777 on"):
        fake.look()


def test_body_with_a_wrong_crc_in_all_logs_is_found(tmp_path):
    fake = Fake(tmp_path)
    for index in range(3):
        # In the body of a message that need not be acknowledged.
        fake.write(index, fake.starts[7] + 89, b"\xff")
    del fake.acks[7]
    with pytest.raises(Violation, match="B: the record at .* is damaged"):
        fake.look()


def test_repeated_offset_is_found(tmp_path):
    fake = Fake(tmp_path)
    for index in range(3):
        fake.write(index, fake.starts[9], record(fake.starts[9], "m9", 1, 3))
    with pytest.raises(Violation, match="C: m9 .* has offset 3 of queue .*1., expected 4"):
        fake.look()


def test_two_masters_of_one_epoch_are_found(tmp_path):
    fake = Fake(tmp_path, epochs=TWO)
    fake.change(15, broker=2)
    with pytest.raises(Violation, match="M: epoch 2 has two masters: 1"):
        fake.look()


def test_old_master_that_acknowledges_after_the_new_one_is_found(tmp_path):
    fake = Fake(tmp_path, epochs=TWO)
    # The new master's first answer arrived at 10.5.
    fake.change(9, sent=10.4, received=30.0)
    assert fake.look() == 20
    fake.change(9, sent=10.6, received=30.0)
    with pytest.raises(Violation, match="M: two masters at a time: .*m9.* of epoch 1 was sent after .*m10"):
        fake.look()


def test_ends_belong_to_one_mastership(tmp_path, monkeypatch):
    """An earlier master that the controller still names may have a log that diverges from the others."""
    cluster, ends = Cluster(tmp_path, Plan(), 1), iter([(971, 120, 120), (990, 990, 990), (995, 995, 995)])
    states = iter([(11, 29), (12, 30), (12, 31), (12, 32), (12, 32), (12, 32)])
    cluster.replicas = [SimpleNamespace(address=str(index), told_end=lambda index=index: now[index])
                        for index in range(3)]
    now = []

    def state():
        epoch, set_epoch = next(states)
        return {"masterEpoch": epoch, "syncStateSetEpoch": set_epoch,
                "inSyncReplicas": [{"brokerAddress": str(index)} for index in range(3)]}
    monkeypatch.setattr(cluster, "state", state)
    monkeypatch.setattr(cluster, "wait_whole", lambda: now.__setitem__(slice(None), next(ends)))
    assert cluster.ends_in_sync() == [995] * 3


def test_epoch_file_is_not_read_while_it_is_written(tmp_path):
    file = tmp_path / "epochs"
    assert read_epochs(file) == []
    file.write_text("2\n12345\n1-0\n3-1000\n")
    assert read_epochs(file) == [(1, 0), (3, 1000)]
    file.write_text("2\n12345\n1-0\n3-")
    assert read_epochs(file) == []


def test_waits_of_producers_are_measured():
    refusals = Refusals()
    refusals.note(1.0, 1.05)
    refusals.note(2.0, 2.5)
    refusals.note(3.0, 3.2)
    assert (refusals.longest_s(0), refusals.longest_s(3.0), refusals.longest_s(9)) == (0.5, pytest.approx(0.2), 0.0)


def test_same_seed_gives_the_same_schedule(tmp_path):
    def schedule(seed: int) -> list:
        return list(lives.lives_of(["kill", "partition"], Plan(), seed, 60, tmp_path))
    assert schedule(1) == schedule(1)
    assert not {life.seed for life in schedule(1)} & {life.seed for life in schedule(2)}
    assert sum(life.cycles for life in schedule(1)) == 2 * 60
    assert all(life.plan.partitions == (life.kind == "partition") for life in schedule(1))


def test_quantiles_are_computed():
    assert lives.quantiles([0.1, 0.2, 0.3]) == {
        "count": 3, "min": 100.0, "median": 200.0, "p90": 300.0, "p99": 300.0, "max": 300.0}
