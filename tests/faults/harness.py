"""Rounds: kill a store at a point, open it again, and compare it with what was acknowledged."""
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.common import sys_flags
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder, message_layout
from rmqha.common.message.message import Message, MessageExtBatch
from rmqha.common.message.message_const import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
)
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.message.message_layout import host_to_bytes
from rmqha.store import commit_log
from rmqha.store.append import MessageExtBrokerInner, MessageRow
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import FlushDiskType, MessageStoreConfig
from tests.faults.points import AGAIN, LOAD, POINTS, SHUTDOWN, Point, Trap
from tests.support import store_compare
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# The processes of a round: one puts messages until it is killed, the next one opens the store and checks it.
#
# Messages identify themselves: the body starts with the message's name and is filled with it, and the keys are made
# from it.

QUEUES = [("A", 0), ("A", 1), ("Ä", 0)]
PREPARED_TOPIC, DELAYED_TOPIC, GROUP = "Prepared", "Delayed", "g"
THREADS = 3
# Store time runs faster, so that the checkpoint covers most of a store that is written in a second.
_MS_PER_PUT = 30
_HOST = ("127.0.0.1", 10911)
_MAX_TIME = (1 << 63) - 1


# Stores alternate between these variants, which change the order of steps or skip some.
VARIANTS = [{}, {"dispatchBehindFlush": True}, {"messageIndexSafe": True}, {"preallocateMappedFile": False},
            {"warmMapedFileEnable": True, "flushLeastPagesWhenWarmMapedFile": 1}]


def config(root: Path, variant: int) -> MessageStoreConfig:
    """Return the configuration of a store with small files that are flushed all the time."""
    return MessageStoreConfig(
        **VARIANTS[variant % len(VARIANTS)],
        storePathRootDir=str(root), flushDiskType=FlushDiskType.SYNC_FLUSH, mappedFileSizeCommitLog=16384,
        mappedFileSizeConsumeQueue=400, maxHashSlotNum=20, maxIndexNum=80, haListenPort=0, flushIntervalConsumeQueue=20,
        flushConsumeQueueThoroughInterval=100, maxMsgsNumBatch=64, syncFlushTimeout=60_000)


class Process:
    """One process with `folder`: the store, the consumer offsets, and the list of acknowledged messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "store"
        settings = config(self.root, int((folder / "variant").read_text()))
        self.store = DefaultMessageStore(settings, None, None, BrokerConfig())
        self.offsets = ConsumerOffsetManager(settings, None, None)
        self._acknowledged = os.open(folder / "acknowledged", os.O_RDWR | os.O_APPEND | os.O_CREAT)
        _cut_torn_line(self._acknowledged)
        self.count = 0  # acknowledged by this process
        self._stop = threading.Event()

    def acknowledge(self, *fields) -> None:
        """Record messages with one write, so that they survive a kill, which may cut the write at the end of a page."""
        os.write(self._acknowledged, (json.dumps(fields) + "\n").encode())
        self.count += 1

    def open(self) -> None:
        """Load and start the store."""
        assert self.offsets.load(), "consumer offsets can't be loaded"
        assert self.store.load(), "the store can't be loaded"
        self.store.start()

    def run_clock(self) -> None:
        """Let store times continue from the newest in the log."""
        begin = max((record.store_timestamp for record in store_compare.walk(self.root / "commitlog")), default=0)
        now = max(begin + 1, int(time.time() * 1000))
        ticks = iter(range(now, now + 10_000_000, _MS_PER_PUT))
        commit_log.current_time_millis = lambda: next(ticks)

    def put_until_killed(self, seed: int, prefix: str) -> list[threading.Thread]:
        """Start the putting threads."""
        jobs = [threading.Thread(target=self._put, args=(random.Random(seed * 100 + number), f"{prefix}.{number}"),
                                 daemon=True) for number in range(THREADS)]
        jobs.append(threading.Thread(target=self._commit_offsets, daemon=True))
        for job in jobs:
            job.start()
        return jobs

    def stop_putting(self, jobs: list[threading.Thread]) -> None:
        """Wait for the last put."""
        self._stop.set()
        for job in jobs:
            job.join()

    def _put(self, rng: random.Random, prefix: str) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            topic, queue_id = rng.choice(QUEUES)
            if rng.random() < 0.1:
                self._put_batch([f"{prefix}.{number}.{part}" for part in range(rng.randint(2, 5))], topic, queue_id)
            elif rng.random() < 0.3:
                self._put_rows([f"{prefix}.{number}.{part}" for part in range(rng.randint(1, 4))], rng)
            else:
                self._put_one(f"{prefix}.{number}", topic, queue_id, rng)

    def _put_one(self, name: str, topic: str, queue_id: int, rng: random.Random) -> None:
        msg = make_message(name, topic, queue_id, rng.choice([40, 300, 900]))
        kind = rng.random()
        if kind < 0.05:
            msg.topic, msg.sys_flag = PREPARED_TOPIC, sys_flags.TRANSACTION_PREPARED_TYPE
        elif kind < 0.08:
            # Delivered at once or later, depending on the store's clock.
            msg.topic = DELAYED_TOPIC
            msg.put_property(PROPERTY_DELAY_TIME_LEVEL, "18")
            msg.properties_string = message_properties2string(msg.properties)
        result = self.store.put_message(msg)
        if result.is_ok:
            self.acknowledge(name, msg.topic, msg.queue_id, result.append_message_result.logics_offset)

    def _put_batch(self, names: list[str], topic: str, queue_id: int) -> None:
        parts = []
        for name in names:
            part = Message(topic, body_of(name, 100))
            part.properties = {PROPERTY_KEYS: f"k{name}"}
            parts.append(message_decoder.encode_message(part))
        batch = MessageExtBatch(topic, b"".join(parts))
        batch.queue_id, batch.born_host, batch.store_host, batch.properties = queue_id, _HOST, _HOST, {}
        result = self.store.put_messages(batch)
        if result.is_ok:
            for index, name in enumerate(names):
                self.acknowledge(name, topic, queue_id, result.append_message_result.logics_offset + index)

    def _put_rows(self, names: list[str], rng: random.Random) -> None:
        """Put several messages that only need to be appended, each to its own queue."""
        messages = [make_message(name, *rng.choice(QUEUES), rng.choice([40, 300, 900])) for name in names]
        result = self.store.put_rows([row_of(msg) for msg in messages], host_to_bytes(_HOST))
        if result is None:
            return
        # any: they are in the log, or at a file's end only the first
        result.status.get(90_000)
        for name, msg, offset in zip(names, messages, result.queue_offsets):
            self.acknowledge(name, msg.topic, msg.queue_id, offset)

    def _commit_offsets(self) -> None:
        offset = self.offsets.query_offset(GROUP, "A", 0)
        while not self._stop.wait(0.02):
            offset += 1
            self.offsets.commit_offset("client", GROUP, "A", 0, offset)
            if self.offsets.persist():
                self.acknowledge("offset", "A", 0, offset)


def make_message(name: str, topic: str, queue_id: int, size: int) -> MessageExtBrokerInner:
    """Return a message with two keys and a tag."""
    msg = MessageExtBrokerInner(topic, body_of(name, size))
    msg.queue_id, msg.born_host, msg.store_host = queue_id, _HOST, _HOST
    msg.born_timestamp = 1_600_000_000_000
    msg.properties = {PROPERTY_KEYS: f"k{name}", PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"u{name}",
                      PROPERTY_TAGS: f"tag{size}"}
    msg.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, f"tag{size}")
    msg.properties_string = message_properties2string(msg.properties)
    return msg


def row_of(msg: MessageExtBrokerInner) -> MessageRow:
    """Return a message as the express lane hands it to the store."""
    properties = msg.properties_string.encode()
    tail = message_layout.encode_topic(msg.topic) + message_layout.SHORT.pack(len(properties)) + properties
    return MessageRow(msg.topic, msg.queue_id, f"{msg.topic}-{msg.queue_id}",
                     MessageRow.record_size(len(msg.body), len(tail)), message_layout.body_crc32(msg.body), msg.flag, 0,
                     msg.born_timestamp, host_to_bytes(_HOST), 0, msg.body, tail)


def body_of(name: str, size: int) -> bytes:
    """Return `size` bytes that begin with the name."""
    unit = name.encode() + b"|"
    return (unit * (size // len(unit) + 1))[:max(size, len(unit))]


def be_killed(folder: Path, point_name: str, passage: int, seed: int) -> None:
    """Run with a planted point. Returns only if the point was not passed."""
    point = POINTS[point_name]
    trap = Trap(passage, lambda: (folder / "killed").write_text(point_name))
    point.plant(trap)
    process = Process(folder)
    trap.armed = point.phase not in (LOAD, SHUTDOWN)
    process.open()
    process.run_clock()
    if trap.armed:
        return
    trap.armed = point.phase == LOAD
    jobs = process.put_until_killed(seed, f"{seed}.{os.getpid()}.{time.time_ns()}")
    if point.phase == LOAD:
        threading.Event().wait()
    wait_until(lambda: process.count >= 60, 60_000, "60 acknowledgements")
    process.stop_putting(jobs)
    trap.armed = True
    process.store.shutdown()


def check(folder: Path) -> int:
    """Open a killed store, and compare everything with what was acknowledged; return the number of records."""
    process = Process(folder)
    process.open()
    store, acknowledged = process.store, read_acknowledged(folder)
    wait_until(lambda: store.dispatch_behind_bytes() <= 0, 60_000, "everything dispatched")
    _check_offsets(process, acknowledged)
    process.run_clock()
    for topic, queue_id in QUEUES:
        last = store.get_max_offset_in_queue(topic, queue_id)
        name = f"after.{time.time_ns()}"
        result = store.put_message(make_message(name, topic, queue_id, 40))
        assert result.is_ok, result
        offset = result.append_message_result.logics_offset
        assert offset == last, f"{topic}-{queue_id}: the next put got {offset}, expected {last}"
        process.acknowledge(name, topic, queue_id, offset)
    wait_until(lambda: store.dispatch_behind_bytes() <= 0, 60_000, "everything dispatched")
    records = list(store_compare.walk(process.root / "commitlog"))
    _check_messages(records, read_acknowledged(folder))
    _check_gets(store, records)
    _check_keys(store, records)
    store.shutdown()
    assert store.shut_down_normal and not (process.root / "abort").exists(), "no clean shutdown"
    _check_queues(process.root)
    return len(records)


def _cut_torn_line(fd: int) -> None:
    text = os.pread(fd, os.fstat(fd).st_size, 0)
    os.ftruncate(fd, text.rfind(b"\n") + 1)


def read_acknowledged(folder: Path) -> list[list]:
    """Return [name, topic, queue id, offset] of each message, and of the consumer offsets under the name "offset"."""
    file = folder / "acknowledged"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _check_offsets(process: Process, acknowledged: list[list]) -> None:
    saved = max((offset for name, *_, offset in acknowledged if name == "offset"), default=-1)
    found = process.offsets.query_offset(GROUP, "A", 0)
    assert found >= saved, f"consumer offset {found}, but {saved} was saved"


def _check_messages(records: list[store_compare.Record], acknowledged: list[list]) -> None:
    found: dict[str, list] = {}
    for record in records:
        found.setdefault(record.body.split(b"|", 1)[0].decode(), []).append(record)
    for name, topic, queue_id, offset in acknowledged:
        if name == "offset":
            continue
        places = [(each.topic, each.queue_id, each.queue_offset) for each in found.get(name, [])]
        assert places.count((topic, queue_id, offset)) == 1, f"{name} was put at {topic, queue_id, offset}: {places}"
        body = found[name][0].body
        assert body == body_of(name, len(body)), f"{name} has another body"


def _check_gets(store: DefaultMessageStore, records: list[store_compare.Record]) -> None:
    for topic, queue_id in QUEUES:
        expected = [each.offset for each in records if (each.topic, each.queue_id) == (topic, queue_id)]
        found, offset = [], 0
        while offset < store.get_max_offset_in_queue(topic, queue_id):
            result = store.get_message(GROUP, topic, queue_id, offset, 64)
            found += [message_decoder.decode(buffer, True, False).commit_log_offset
                      for buffer in result.message_buffer_list]
            result.release()
            assert result.next_begin_offset > offset, result.status
            offset = result.next_begin_offset
        assert found == expected, f"{topic}-{queue_id}: {len(found)} read of {len(expected)}"


def _check_keys(store: DefaultMessageStore, records: list[store_compare.Record]) -> None:
    lost = []
    for record in records:
        keys = [record.properties[name] for name in (PROPERTY_KEYS, PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
                if name in record.properties]
        for key in keys:
            found = store.index_service.query_offset(record.topic, key, 64, 0, _MAX_TIME).phy_offsets
            if found.count(record.offset) != 1:
                lost.append((key, record.offset, found))
    assert not lost, f"{len(lost)} keys of {len(records)} records are not found once, the first: {lost[:3]}"


def _check_queues(root: Path) -> None:
    store_compare.check_consume_queues(root)
    for key, folder in store_compare.queues_on_disk(root).items():
        first = next(store_compare.units(folder))[0]
        assert first == 0, f"{key} begins at {first}"


# Rounds: kill a store at a point, open it again, compare it with what was acknowledged.
#
# One Python process has imported everything and has a single thread. It forks a fresh process for each step, which is
# as clean as a new one and starts at once.
#
#     test --a line per step--> nursery --fork--> process that is killed, or that checks
#          <-------result------         <--wait--

NOT_PASSED = 3
FAILED = 4
_STEP_TIMEOUT_S = 100
_LOG_SHOWN = 6000  # characters
# A point of the recovery may have nothing to do after the kill before it.
_TRIES = 8


@dataclass
class Outcome:
    """The result of a round. `failure` is empty if everything holds."""

    point: str
    seed: int
    passage: int
    records: int = 0
    failure: str = ""


class Nursery:
    """A process that forks one process per step."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.harness"], cwd=ROOT, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, step: str, folder: Path, *arguments) -> tuple[int, str]:
        """Run one step in `folder`; return its exit code (negative: the signal) and its output."""
        self._process.stdin.write(json.dumps([step, str(folder), *arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery is gone"
        code, said = json.loads(line)
        return code, said

    def close(self) -> None:
        """End the process; idempotent."""
        self._process.stdin.close()
        self._process.wait(_STEP_TIMEOUT_S)
        self._process.stdout.close()


class Rounds:
    """Rounds on one store after another: a store that failed or has grown large is replaced by a new one.

    `variant`: the index of the first store's variant; each new store has the next one.
    """

    MAX_RECORDS = 800

    def __init__(self, nursery: Nursery, folder: Path, variant: int) -> None:
        self._nursery = nursery
        self._folder = folder
        self._variant = variant
        self._number = 0
        self._store = self._new_store()

    def _new_store(self) -> Path:
        self._number += 1
        store = self._folder / f"{self._number}"
        store.mkdir(parents=True)
        (store / "variant").write_text(str(self._variant))
        self._variant += 1
        return store

    def run(self, point: Point, seed: int) -> Outcome:
        """Kill at `point`, then check. The seed determines the passage."""
        rng = random.Random(f"{point.name} {seed}")
        outcome = Outcome(point.name, seed, rng.randint(1, point.reach))
        outcome.failure = self._kill(point, outcome.passage, seed, rng)
        if not outcome.failure:
            code, said = self._nursery.run("check", self._store)
            outcome.failure = "" if code == 0 else f"exit code {code}: {said}"
            outcome.records = int(said) if code == 0 else 0
        if outcome.failure:
            outcome.failure += f"\nthe store: {self._store}; its log ends with\n{_end_of(self._store / 'log')}"
            self._store = self._new_store()
        elif outcome.records > self.MAX_RECORDS:
            shutil.rmtree(self._store)
            self._store = self._new_store()
        return outcome

    def _kill(self, point: Point, passage: int, seed: int, rng: random.Random) -> str:
        """Return an empty text if the process was killed at the right point, else the reason."""
        if point.first is None:
            return self._kill_once(point, passage, seed)
        failure = ""
        for _ in range(_TRIES):
            first = POINTS[point.first]
            failure = self._kill_once(first, rng.randint(1, first.reach), seed)
            if not failure and point.phase == AGAIN:
                failure = self._kill_once(POINTS["recovery: log forced"], 1, seed)
            failure = failure or self._kill_once(point, passage, seed)
            if not failure:
                return ""
            passage = rng.randint(1, passage)
        return failure

    def _kill_once(self, point: Point, passage: int, seed: int) -> str:
        note = self._store / "killed"
        note.unlink(missing_ok=True)
        code, said = self._nursery.run("be_killed", self._store, point.name, passage, seed)
        if code != -signal.SIGKILL:
            why = "was not passed" if code == NOT_PASSED else f"ended with {code}"
            return f"{point.name!r}, passage {passage}: {why} {said}"
        return "" if note.read_text() == point.name else f"killed at {note.read_text()!r}, not at {point.name!r}"


def _end_of(log_file: Path) -> str:
    """Return the last step's log; of a long one only the warnings and errors, with their stacks, and the last lines."""
    if not log_file.exists():
        return "nothing"
    step = log_file.read_text("utf-8", "replace").rpartition("=== ")[2]
    if len(step) <= 2 * _LOG_SHOWN:
        return step
    entries = re.split(r"\n(?=\d{4}-\d\d-\d\d )", step)
    complaints = "\n".join(entry for entry in entries if re.search(r" (WARNING|ERROR|CRITICAL) ", entry[:100]))
    return f"{complaints[:_LOG_SHOWN]}\n...\n{step[-_LOG_SHOWN:]}"


def _in_child(step: Callable, folder: Path, arguments: list, answer: int) -> None:
    """Run the forked process. Never returns."""
    code = FAILED
    try:
        signal.alarm(_STEP_TIMEOUT_S)
        logging.basicConfig(filename=folder / "log", level=logging.INFO, force=True,
                            format=f"%(asctime)s {os.getpid()} %(threadName)s %(levelname)s %(message)s")
        logging.info("=== %s %s", step.__name__, arguments)
        said = step(folder, *arguments)
        os.write(answer, str(said).encode())
        code = 0 if said is not None else NOT_PASSED
    except BaseException:
        logging.exception("the step failed")
        os.write(answer, traceback.format_exc()[-3000:].encode())
    finally:
        os._exit(code)


def _serve() -> None:
    """Run the nursery: for each line of input one process and one line of output."""
    steps = {"be_killed": be_killed, "check": check}
    for line in sys.stdin:
        name, folder, *arguments = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _in_child(steps[name], Path(folder), arguments, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            said = file.read().decode("utf-8", "replace")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps([code, said]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
