"""Slaves have the same bytes as their master, under load from many senders with bodies of all sizes, without faults.

    python -m tests.faults.same_bytes --senders 24 --sizes 5000-30000 --seconds 60 --brokers rmqha-rmqha --slaves 4
    python -m tests.faults.same_bytes --matrix --seconds 60     both roles, all sizes, one and four slaves, and Java

A run starts a master and its slaves with default keys and ASYNC_FLUSH, in memory if there is enough, and deletes the
store at the end. When all slaves have reached the master's end, all brokers are killed. Then each record of the master
is compared with the bytes of each slave at its place, its checks (CRC, own offset) are verified with an oracle that
shares no code with rmqha (tests/support/store_compare.py), and each acknowledged message is compared with the message
sent, on all sides.

Prints a line for each run, and the first differing record of each side. The exit code is 1 if anything differs.
"""
import argparse
import itertools
import json
import mmap
import shutil
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults import sized_load
from tests.faults.pair_broker import Broker
from tests.faults.sized_load import FILL, PROFILES, TOPICS, Acknowledged, Plan, Sent
from tests.support import store_compare
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, RawClient
from tests.support.wait import wait_until

GIB = 1 << 30
BOOT_MS = 120_000
# For a slave that copies some GiB.
END_MS = 600_000
ROLES = ("SYNC_MASTER", "ASYNC_MASTER")
MATRIX = (("rmqha-rmqha", 1), ("rmqha-rmqha", 4), ("java-rmqha", 1), ("rmqha-java", 1))
_SPARE = 4 * GIB  # of memory, for the processes
_HEAD = struct.Struct(">II")
# All keys that do not concern the test have their defaults.
_DEFAULTS = dict.fromkeys(("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum",
                           "haSendHeartbeatInterval"))


class Log:
    """The files of a commit log, mapped."""

    def __init__(self, folder: Path) -> None:
        self._files: dict[int, mmap.mmap] = {}
        for start, file in store_compare.segments(folder).items():
            if file.stat().st_size:
                with open(file, "rb") as opened:
                    self._files[start] = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._size = len(next(iter(self._files.values()), b"")) or 1

    def close(self) -> None:
        """Unmap the files."""
        for file in self._files.values():
            file.close()

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes of one file; fewer, or none, if the file is shorter or missing."""
        file = self._files.get(offset - offset % self._size)
        return b"" if file is None else file[offset % self._size:offset % self._size + size]

    def places(self, end: int) -> Iterator[tuple[int, int]]:
        """Yield (offset, size) of each record from 0 to `end`, and of the blanks at the ends of files."""
        at = 0
        while at < end:
            head = self.read(at, _HEAD.size)
            size, magic = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
            room = self._size - at % self._size
            if magic == store_compare.BLANK_MAGIC:
                size = room
            assert 0 < size <= min(room, end - at), f"the master's log has no record at {at}: {head.hex()}"
            yield at, size
            at += size


def parse(data: bytes) -> store_compare.Record | None:
    """Return the record in these bytes; None if they cannot be a record."""
    try:
        is_message = _HEAD.unpack_from(data)[1] == store_compare.MESSAGE_MAGIC
        return next(store_compare.records_in(data)) if is_message else None
    except (AssertionError, struct.error, UnicodeDecodeError, IndexError):
        return None  # the caller counts it


def is_as_sent(record: store_compare.Record | None, sent: Acknowledged) -> bool:
    """Return whether a message can be read as it was acknowledged."""
    return record is not None and record.crc_ok and sent == Acknowledged(
        record.physical_offset, record.topic, record.queue_id, record.queue_offset, zlib.crc32(record.body),
        zlib.crc32(record.properties.get(FILL, "").encode()))


@dataclass
class Side:
    """The comparison of one broker's log with the master's."""

    name: str
    # Records and blanks whose bytes differ from the master's.
    differ: int = 0
    damaged: int = 0  # records whose own checks fail
    # Acknowledged messages that are not as sent.
    unreadable: int = 0
    # the first that differs or is damaged
    first: str = ""
    # The reason why it never reached the master's end.
    behind: str = ""

    @property
    def is_good(self) -> bool:
        """True if the log is the same and complete."""
        return not (self.differ or self.damaged or self.unreadable or self.behind)

    def look(self, offset: int, mine: bytes, theirs: bytes, sent: Acknowledged | None) -> None:
        """Compare a place of the log with the master's bytes, `mine`, and with the message sent."""
        is_blank = _HEAD.unpack_from(mine)[1] == store_compare.BLANK_MAGIC
        record = None if is_blank else parse(theirs)
        differs = theirs != mine
        damaged = not is_blank and (record is None or not record.crc_ok or record.physical_offset != offset)
        self.differ += differs
        self.damaged += damaged
        self.unreadable += sent is not None and not is_as_sent(record, sent)
        if (differs or damaged) and not self.first:
            wrong = [at for at, (a, b) in enumerate(itertools.zip_longest(mine, theirs)) if a != b]
            which = f"{len(wrong)} of {len(mine)} bytes, {wrong[0]} to {wrong[-1]}" if wrong else "its own checks"
            self.first = f"{self.name}: the first is the record at {offset}: {which}"


@dataclass
class Report:
    """The results of one run."""

    brokers: str
    slaves: int
    role: str
    sizes: str
    sent: Sent
    sides: list[Side]  # the master is first
    records: int = 0
    # Acknowledged messages where the master has no record.
    elsewhere: list[Acknowledged] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """True if something was acknowledged, and all sides have all of it."""
        return bool(self.sent.acknowledged) and not self.elsewhere and all(side.is_good for side in self.sides)

    def __str__(self) -> str:
        sent, slaves = self.sent, self.sides[1:]
        lines = [
            f"{'same' if self.is_good else 'DIFFERENT'}: {self.brokers}, {self.slaves} slave{'s'[:self.slaves > 1]}, "
            f"{self.role}, {self.sizes}: {self.records} records, {sent.bytes / sized_load.MIB:.0f} MiB in "
            f"{sent.seconds:.1f} s, {len(sent.acknowledged)} acknowledged; differ "
            f"{[side.differ for side in slaves]}, damaged {[side.damaged for side in self.sides]} (the master first), "
            f"acknowledged and not readable {[side.unreadable for side in self.sides]}"
            + (f"; other answers {dict(sent.others)}" if sent.others else "")]
        lines += [f"  {text}" for side in self.sides for text in (side.first, side.behind) if text]
        if self.elsewhere:
            lines.append(f"  the master has no record where {len(self.elsewhere)} were acknowledged: "
                         f"{self.elsewhere[0]}")
        return "\n".join(lines)


def end_of(broker: Broker) -> int:
    """Return the end of a running broker's log, as the broker reports it."""
    def reported() -> str | None:
        # the original fails in its first second
        answer = client.request(GET_BROKER_RUNTIME_INFO)
        return json.loads(answer.body)["table"]["commitLogMaxOffset"] if answer.code == 0 else None
    with RawClient(broker.address) as client:
        return int(wait_until(reported, BOOT_MS, f"runtime information of {broker.name}"))


class Cluster:
    """A master with slaves, without a name server."""

    def __init__(self, folder: Path, brokers: str, slaves: int, role: str, command: tuple[str, ...] = (),
                 **properties: object) -> None:
        kinds = brokers.partition("-")
        shared = {"flushDiskType": "ASYNC_FLUSH", **_DEFAULTS, **properties}
        self.master = Broker(kinds[0], folder / "master", "master", brokerRole=role, **shared)
        self.slaves = [Broker(kinds[2], folder / f"slave{number}", f"slave{number}", brokerRole="SLAVE",
                              brokerId=number, haMasterAddress=self.master.ha_address, **shared)
                       for number in range(1, slaves + 1)]
        self.all = [self.master, *self.slaves]
        for broker in self.all:
            if command and broker.kind == "rmqha":
                broker.command = [sys.executable, *command, "-c", str(broker.config_file)]

    def __enter__(self) -> "Cluster":
        try:
            for broker in self.all:
                broker.start(BOOT_MS)
            self._prime()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill all brokers with SIGKILL."""
        for broker in reversed(self.all):
            broker.kill()

    def _prime(self) -> None:
        """Create the topics, and send until a message is acknowledged and each slave has it."""
        with RawClient(self.master.address) as client:
            for topic, queues in TOPICS.items():
                client.create_topic(topic, queues)
            wait_until(lambda: client.send_message_once("Bytes0", b"first").code == 0, BOOT_MS, "an acknowledgement")
        self.wait_for_slaves()

    def wait_for_slaves(self) -> tuple[int, dict[str, str]]:
        """Wait until all slaves have reached the master's end; return it, and the other slaves with the reason."""
        end, behind = end_of(self.master), {}
        for slave in self.slaves:
            try:
                wait_until(lambda slave=slave: end_of(slave) >= end, END_MS, f"{slave.name} at the master's end {end}")
            except (AssertionError, OSError, EOFError) as error:
                behind[slave.name] = f"{error}; it says: {slave.tail()[-500:]}"
        return end, behind


def compare(report: Report, logs: list[Log], end: int) -> None:
    """Compare all sides with the master's log and the acknowledged messages."""
    acknowledged = {one.offset: one for one in report.sent.acknowledged}
    assert len(acknowledged) == len(report.sent.acknowledged), "two messages were acknowledged at one place"
    for offset, size in logs[0].places(end):
        mine, sent = logs[0].read(offset, size), acknowledged.pop(offset, None)
        report.records += _HEAD.unpack_from(mine)[1] != store_compare.BLANK_MAGIC
        for side, log in zip(report.sides, logs, strict=True):
            side.look(offset, mine, log.read(offset, size), sent)
    report.elsewhere = list(acknowledged.values())


def run(folder: Path, plan: Plan, brokers: str = "rmqha-rmqha", slaves: int = 1, role: str = "SYNC_MASTER",
        command: tuple[str, ...] = (), **properties: object) -> Report:
    """Do one run, with its stores in `folder`. `command` starts rmqha's brokers instead of their own module."""
    with Cluster(folder, brokers, slaves, role, command, **properties) as cluster:
        address = cluster.master.address
        sent = sized_load.run_apart(Plan(**{**vars(plan), "address": address}))
        end, behind = cluster.wait_for_slaves()
    sides = [Side(broker.name, behind=behind.get(broker.name, "")) for broker in cluster.all]
    report = Report(brokers, slaves, role, plan.sizes, sent, sides)
    logs = [Log(broker.commit_log) for broker in cluster.all]
    try:
        compare(report, logs, end)
    finally:
        for log in logs:
            log.close()
    return report


def _new_folder(needed: int) -> Path:
    """Make a folder in memory, if there is enough."""
    memory = Path("/dev/shm")
    in_memory = memory.is_dir() and min(shutil.disk_usage(memory).free,
                                        psutil.virtual_memory().available) > needed + _SPARE
    return Path(tempfile.mkdtemp(prefix="same-bytes-", dir=memory if in_memory else None))


def _run_and_print(options: argparse.Namespace, brokers: str, slaves: int, role: str, sizes: str) -> bool:
    bound = min(int(options.gib * GIB), int(options.gib_in_all * GIB) // (1 + slaves))
    folder = _new_folder(bound * (1 + slaves))
    try:
        plan = Plan("", sizes, options.seed, options.senders, options.seconds, max_bytes=bound)
        report = run(folder, plan, brokers, slaves, role)
    finally:
        shutil.rmtree(folder)
    print(report, flush=True)
    return report.is_good


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.same_bytes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--senders", type=int, default=24)
    parser.add_argument("--sizes", choices=list(PROFILES), default="5000-30000")
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    parser.add_argument("--gib", type=float, default=3, help="a run ends when so much was sent")
    parser.add_argument("--gib-in-all", type=float, default=8, help="or when the logs of all brokers together have it")
    parser.add_argument("--brokers", default="rmqha-rmqha", help="kinds of master and slaves: java-rmqha, rmqha-java")
    parser.add_argument("--slaves", type=int, default=1)
    parser.add_argument("--role", choices=ROLES, default="SYNC_MASTER")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--matrix", action="store_true", help="all of them, one run after the other")
    return parser


def main() -> int:
    """Run and print; the exit code shows whether all sides are the same."""
    options = _parser().parse_args()
    if not options.matrix:
        return 0 if _run_and_print(options, options.brokers, options.slaves, options.role, options.sizes) else 1
    good = [_run_and_print(options, brokers, slaves, role, sizes) for brokers, slaves in MATRIX for role in ROLES
            for sizes in ("5000-30000", "1k-100k", "0-4M")]
    print(f"{sum(good)} of {len(good)} runs are the same on all sides")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
