"""A master and its slave under load, a group's offsets, the final check of a life, and the base class of faults."""
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults import verdict
from tests.faults.drawn_messages import KIB, Drawing, crc_of
from tests.faults.pair_broker import Broker, Holdings
from tests.faults.senders import QUEUES, TOPIC, TOPICS, Acknowledged, Senders
from tests.faults.verdict import LogCopy, Place, Violation
from tests.support import store_compare
from tests.support.nodes import NamesrvNode
from tests.support.raw_remoting import Answer, RawClient, frame, header
from tests.support.wait import wait_until

# A consumer group's offsets, committed to the master without a pause, to check invariant D.
#
#     D  a committed offset is kept for as long as the broker lives, and a saved one for ever: the offsets in a broker's
#        file never decrease, not even on the slave, and a restarted master knows the offsets in its file
# (only for rmqha's files: the original deletes a file before it puts the next one in its place)

GROUP = "FaultsGroup"
_UPDATE_CONSUMER_OFFSET, _QUERY_CONSUMER_OFFSET = 15, 14
_PAUSE_S = 0.05
# Longer than any stop: a request that timed out could overwrite a later one.
_TIMEOUT_S = 120.0
# A broker first saves 10 s after its start.
_SAVED_MS = 60_000


def saved_offsets(broker: Broker) -> dict[int, int]:
    """Return queue id -> offset from the broker's file; {} if it does not exist."""
    path = Path(broker.store) / "config" / "consumerOffset.json"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    try:
        # numeric keys have no quotes
        table = json.loads(re.sub(r"([{,]\s*)(\d+)(\s*:)", r'\1"\2"\3', text))["offsetTable"]
    except (ValueError, KeyError) as failure:
        raise Violation(f"D: {path} is neither old nor new: {failure}: {text[:99]!r}") from None
    return {int(queue): offset for queue, offset in table.get(f"{TOPIC}@{GROUP}", {}).items()}


class Commits:
    """A thread that commits growing offsets after `go`. `check` compares them with the brokers' offsets."""

    def __init__(self, address: str, master: Broker, slave: Broker, seed: int):
        self._address = address
        self._master, self._brokers = master, [one for one in (master, slave) if one.kind == "rmqha"]
        self._rng = random.Random(f"commits {seed}")
        # Queue id -> (offset, pid of the master); used by the thread only.
        self._answered: dict[int, tuple[int, int]] = {}
        # The last two offsets in the file of each broker, by queue. The older one is certainly on the disk.
        self._saved: dict[tuple[str, int], tuple[int, int]] = {}
        # Offsets that a restarted master does not know; set by the thread.
        self._forgotten: Violation | None = None
        # How often the slave's file was seen with higher offsets.
        self.grown_on_slave = 0
        self._go, self._stopped, self._busy = threading.Event(), threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)
        self._thread.start()

    def go(self) -> None:
        """Start committing."""
        self._go.set()

    def pause(self) -> None:
        """Stop committing, and wait until no request is under way."""
        self._go.clear()
        wait_until(lambda: not self._busy, int(_TIMEOUT_S * 1000) + 10_000, "an answer to a committed offset")

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._go.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "commits hang"

    def _run(self) -> None:
        client, offset, met = None, 0, 0
        while not self._stopped.is_set():
            self._busy = self._go.is_set()
            if not self._busy:
                self._go.wait(0.1)
                continue
            process = self._master.process
            if process is None:  # it is being restarted
                time.sleep(_PAUSE_S)
                continue
            pid, queue, offset = process.pid, self._rng.randrange(QUEUES), offset + 1
            try:
                client = client or RawClient(self._address, _TIMEOUT_S)
                if met != pid:
                    self._meet(client)
                    met = pid
                answer = client.request(_UPDATE_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=queue,
                                        commitOffset=offset)
                if answer.code == 0:
                    self._answered[queue] = offset, pid
            except (OSError, EOFError):
                if client is not None:
                    client.socket.close()
                client = None
            time.sleep(_PAUSE_S)
        self._busy = False
        if client is not None:
            client.socket.close()

    def _meet(self, client: RawClient) -> None:
        """Check that a restarted master knows the offsets in its file, before anything is committed to it."""
        for queue in range(QUEUES):
            try:
                self._check_master(client, queue, self._saved.get((self._master.base_name, queue), (-1, -1))[0])
            except Violation as violation:
                self._forgotten = self._forgotten or violation

    def check(self) -> None:
        """Check both running brokers, while nothing is committed."""
        if self._forgotten is not None:
            raise self._forgotten
        self.look()
        answered, pid = dict(self._answered), self._master.pid
        with RawClient(self._address, _TIMEOUT_S) as client:
            for queue in range(QUEUES):
                offset, of_pid = answered.get(queue, (-1, 0))
                floor = self._saved.get((self._master.base_name, queue), (-1, -1))[0]
                if of_pid == pid:
                    floor = max(floor, offset)
                self._check_master(client, queue, floor)

    @staticmethod
    def _check_master(client: RawClient, queue: int, floor: int) -> None:
        answer = client.request(_QUERY_CONSUMER_OFFSET, consumerGroup=GROUP, topic=TOPIC, queueId=queue)
        known = int(answer.fields["offset"]) if answer.code == 0 else -1
        if known < floor:
            raise Violation(f"D: the master knows offset {known} of queue {queue} ({answer.code} {answer.remark}), and "
                            f"{floor} was committed")

    def look(self) -> None:
        """Compare the files with their earlier offsets. The brokers need not run."""
        for broker in self._brokers:
            found = saved_offsets(broker)
            grown = False
            for queue in range(QUEUES):
                key = broker.base_name, queue
                last, before = self._saved.get(key, (-1, -1))
                offset = found.get(queue, -1)
                if offset < last:
                    raise Violation(f"D: the {broker.base_name}'s file says {offset} for queue {queue}, after {last}")
                if offset > last:
                    self._saved[key], grown = (offset, last), last >= 0
            self.grown_on_slave += grown and broker.base_name == "slave"

    def wait_until_saved(self) -> None:
        """Wait until the master's file has all offsets committed so far."""
        wanted = {queue: offset for queue, (offset, _pid) in dict(self._answered).items()}

        def all_saved() -> bool:
            saved = saved_offsets(self._master)
            return all(saved.get(queue, -1) >= offset for queue, offset in wanted.items())
        wait_until(all_saved, _SAVED_MS, f"offsets {wanted} in the master's file")
        self.look()

    def lost_power(self, broker: Broker) -> None:
        """Forget the last offsets of a broker's file, which may not have been on its disk."""
        for key, (_last, before) in list(self._saved.items()):
            if key[0] == broker.base_name:
                self._saved[key] = before, before

    def set_up_anew(self, broker: Broker) -> None:
        """Forget the offsets of a broker with a new store."""
        for key in list(self._saved):
            if key[0] == broker.base_name:
                del self._saved[key]


# The end of a life, after the load: everything is read again, and all acknowledged messages from the slave.
#
#     files of both     read from their beginnings, by a new copy; the logs are compared, and the queues with the log
#     the slave's port  each acknowledged message by its offset (VIEW_MESSAGE_BY_ID), all queues as consumers pull them
#     `store verify`    clean on each store, while its broker runs
#
# The first two share nothing with rmqha except the slave itself; the third is rmqha's own command.

_VIEW_MESSAGE_BY_ID = 33
_AT_A_TIME = 16
_LAST_WORD_TIMEOUT_S = 60
_SUCCESS, _TOPIC_NOT_EXIST = 0, 17


def place_of(record: store_compare.Record) -> tuple[str, Place]:
    """Return name and place of a record received over the wire."""
    properties = record.properties
    crc = crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))
    return properties.get("KEYS", ""), (record.topic, record.queue_id, record.queue_offset, record.physical_offset, crc)


def check_by_offset(address: str, who: str, wanted: Sequence[tuple[str, Acknowledged]]) -> int:
    """Check that each message can be read from this broker by its offset, as it was sent; return the number."""
    with RawClient(address, _LAST_WORD_TIMEOUT_S) as client:
        for begin in range(0, len(wanted), _AT_A_TIME):
            some = dict(enumerate(wanted[begin:begin + _AT_A_TIME], begin))
            for opaque, (_, placed) in some.items():
                client.send(frame(header(_VIEW_MESSAGE_BY_ID, opaque, offset=placed.offset)))
            for _ in range(len(some)):
                opaque, answer = client.read_frame()
                name, placed = some.pop(opaque)
                found = [place_of(record) for record in _records(answer.body)] if answer.code == _SUCCESS else []
                if found != [(name, placed.place())]:
                    raise Violation(f"A: read from the {who} at {placed.offset}: {found or answer}, acknowledged was "
                                    f"{name} {placed}")
    return len(wanted)


def check_by_queue(address: str, who: str, copy: LogCopy, topics: Sequence[str] = TOPICS) -> int:
    """Check that a consumer pulls all messages of some topics in the log, queue by queue; return the number."""
    by_offset = {place[3]: (name, place) for name, places in copy.places.items() for place in places}
    with RawClient(address, _LAST_WORD_TIMEOUT_S) as client:
        queues = {key: units for key, units in copy.queues.items() if key[0] in topics}
        for (topic, queue_id), units in queues.items():
            index = min(units)
            while index in units:
                for record in _pulled(client, who, topic, queue_id, index):
                    found = place_of(record)
                    expected = by_offset[units[index][0]] if index in units else None
                    if found != expected:
                        raise Violation(f"A: a consumer reads {found} from the {who} at {topic}/{queue_id} {index}, "
                                        f"the log has {expected}")
                    index += 1
    return sum(map(len, queues.values()))


def _pulled(client: RawClient, who: str, topic: str, queue_id: int, index: int) -> list[store_compare.Record]:
    def known() -> Answer | None:
        answer = client.pull(topic, queue_id, index, 64)
        return None if answer.code == _TOPIC_NOT_EXIST else answer
    answer = wait_until(known, what=f"the {who} to know the topic {topic}, which it copies from its master every 10 s")
    records = list(_records(answer.body)) if answer.code == _SUCCESS else []
    if not records:
        raise Violation(f"A: {topic}/{queue_id} can't be read from the {who} at {index}: {answer}")
    return records


def _records(body: bytes) -> Iterator[store_compare.Record]:
    try:
        yield from store_compare.records_in(body)
    except (AssertionError, UnicodeDecodeError) as failure:
        raise Violation(f"A: the bytes read are not a record: {failure}: {body[:99]!r}") from failure


def check_store(broker: Broker) -> None:
    """Check that `store verify` is clean, without the index of the original, which loses entries at a kill."""
    properties = broker.properties
    index = ["--index-slots", str(properties["maxHashSlotNum"]), "--index-entries", str(properties["maxIndexNum"])]
    result = CliRunner().invoke(rmqha, [
        "store", "verify", str(broker.store), "--all", "--file-size", str(properties["mappedFileSizeCommitLog"]),
        *(index if broker.kind == "rmqha" else ["--no-index"])])
    if result.exit_code != 0:
        raise Violation(f"V: store verify of the {broker.base_name}: code {result.exit_code}: {result.output[:2000]} "
                        f"{result.exception!r}")


# A master and its slave under load: their start, and the comparison with what was acknowledged.

# Small files, so that a cycle rolls some of them; short heartbeat intervals, so that a cut is noticed soon.
SMALL = {
    "mappedFileSizeCommitLog": 256 * KIB, "mappedFileSizeConsumeQueue": 100 * 20, "maxHashSlotNum": 150,
    "maxIndexNum": 600, "maxMessageSize": 128 * KIB, "haSendHeartbeatInterval": 300, "haHousekeepingInterval": 3000,
    "slaveTimeout": 3000, "syncFlushTimeout": 5000, "flushDiskType": "SYNC_FLUSH", "defaultTopicQueueNums": QUEUES,
    "flushConsumerOffsetInterval": 1000, "fileReservedTime": 720, "cleanFileForciblyEnable": "false",
    "slaveReadEnable": "true",
}
# Sizes of log files, and the largest bodies: half of the lives roll files often, half have the largest bodies.
_FILE_SIZES = ((256 * KIB, 128 * KIB), (256 * KIB, 128 * KIB), (2048 * KIB, 1024 * KIB), (16384 * KIB, 4096 * KIB))
BOOT_MS = 120_000


def some_file_sizes(seed: str) -> dict[str, object]:
    """Return the file sizes for both brokers of one life."""
    file_size, largest = random.Random(f"files {seed}").choice(_FILE_SIZES)
    return {"mappedFileSizeCommitLog": file_size, "maxMessageSize": largest}


class Pair:
    """A SYNC_MASTER with SYNC_FLUSH and one slave, in `folder`. `senders` send to the master, `commits` commit to it.

    `namesrv`: with a name server, so that the slave finds its master's tables.
    Options of each side: properties, and `prefix`, `env`, `plants` of Broker. Bodies have up to the master's
    maxMessageSize, or all have `fixed_size` bytes, if that is given.
    """

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 master: dict | None = None, slave: dict | None = None, namesrv: bool = False,
                 fixed_size: int | None = None, **senders: object):
        self.folder = folder
        self.namesrv = NamesrvNode("rmqha", folder / "namesrv") if namesrv else None
        registered = {"namesrvAddr": self.namesrv.address} if namesrv else {}
        self.master = Broker(kinds[0], folder / "master", "master",
                             **{"brokerRole": "SYNC_MASTER", **SMALL, **registered, **(master or {})})
        self.slave = Broker(kinds[1], folder / "slave", "slave",
                            **{"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": self.master.ha_address, **SMALL,
                               **registered, **(slave or {})})
        self.copies = {broker.base_name: LogCopy(broker.commit_log) for broker in (self.master, self.slave)}
        # calls a function where the slave's ports can be reached
        self.near_slave: Callable[[Callable[[], tuple[int, int]]], tuple[int, int]] = lambda action: action()
        self._seed = seed
        largest = int(self.master.properties["maxMessageSize"])
        self._senders_options = {"drawing": Drawing(largest, fixed_size=fixed_size), **senders}
        self.senders: Senders | None = None
        self.commits: Commits | None = None
        # After a loss of power the original trusts a checkpoint that is ahead of its queues, and continues at their
        # ends: it reuses indices, and its slave has both messages. rmqha cannot prevent that.
        self.original_may_lose_units = False
        self.flawed_queues: list[Broker] = []

    def open(self, master_address: str) -> "Pair":
        """Start both, and send until the slave has its first message."""
        if self.namesrv is not None:
            self.namesrv.start(BOOT_MS)
        self.master.start(BOOT_MS)
        self.give_topics(self.slave)
        self.slave.start(BOOT_MS)
        self.commits = Commits(master_address, self.master, self.slave, self._seed)
        self.commits.go()
        self.senders = Senders(master_address, f"s{self._seed}", self._seed,
                               self.folder / "acknowledged.jsonl", **self._senders_options)
        self.senders.go()
        self.senders.wait_for_more(20, BOOT_MS)
        return self

    def end(self) -> str:
        """Do the final check of a successful life; return a summary."""
        self.copies = {broker.base_name: LogCopy(broker.commit_log) for broker in (self.master, self.slave)}
        told = self.settle()
        by_offset, by_queue = self.near_slave(self._read_from_slave)
        for broker in (self.master, self.slave):
            if broker not in self.flawed_queues:
                check_store(broker)
        return f"{told}; {by_offset} read from the slave by offset, {by_queue} by queue; both stores are clean"

    def _read_from_slave(self) -> tuple[int, int]:
        slave, copy = self.slave, self.copies["slave"]
        wanted = [(name, placed) for name, placed in self.senders.snapshot().items() if placed.offset >= copy.begin]
        return (check_by_offset(slave.address, "slave", wanted),
                0 if self.flawed_queues else check_by_queue(slave.address, "slave", copy))

    @staticmethod
    def give_topics(broker: Broker) -> None:
        """Create the topics on a slave that may have no name server to find its master, so that consumers can read."""
        table = {topic: {"order": False, "perm": 6, "readQueueNums": QUEUES, "writeQueueNums": QUEUES,
                         "topicName": topic, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0} for topic in TOPICS}
        config = broker.store / "config"
        config.mkdir(parents=True, exist_ok=True)
        with open(config / "topics.json", "w", encoding="ascii") as file:
            json.dump({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}, file)
            file.flush()
            # The next loss of power would lose unforced data.
            os.fsync(file.fileno())

    def close(self) -> None:
        """Kill all; idempotent."""
        for broker in (self.slave, self.master):
            if broker.is_alive:
                broker.thaw()
            broker.kill()
        if self.namesrv is not None:
            self.namesrv.kill()
        if self.senders is not None:
            self.senders.close()
        if self.commits is not None:
            self.commits.close()

    def settle(self) -> str:
        """Pause the senders, wait until the slave has caught up, and compare everything with what was acknowledged."""
        self.senders.pause()
        for broker in (self.master, self.slave):
            if not broker.is_alive:
                raise Violation(f"{broker.name} has ended on its own: {broker.tail()[-2000:]}")
        begin, end = verdict.check_equal(self.master, self.slave, self.copies)
        acknowledged = self.senders.snapshot()
        for broker in (self.master, self.slave):
            verdict.check_acknowledged(broker, self.copies[broker.base_name], acknowledged, limit=end)
            self._check_queues(broker)
        if self.senders.unanswered:
            raise Violation(f"E: {self.senders.unanswered[:3]}")
        self.commits.pause()
        self.commits.check()
        self.commits.go()
        return f"acknowledged {len(acknowledged)} maybe {self.senders.maybe} log {begin}..{end}"

    def _check_queues(self, broker: Broker) -> None:
        if broker in self.flawed_queues:
            return
        try:
            verdict.check_queues(broker, self.copies[broker.base_name])
        except Violation as violation:
            by_original = broker.kind != "rmqha" or (
                isinstance(violation, verdict.Repeat) and self.master in self.flawed_queues)
            if not by_original or not self.original_may_lose_units:
                raise
            self.flawed_queues.append(broker)

    def check_copy(self, broker: Broker) -> None:
        """Check that this broker's log has each message acknowledged so far, regardless of the other broker."""
        verdict.check_acknowledged(broker, self.copies[broker.base_name], self.senders.snapshot())
        self.commits.look()


# The base class of faults: a pair of brokers that lives for some cycles, each with one fault.

# Keys that 4.9 lacks: the slave shows its last record, copies the whole history, and acknowledges forced data.
TRUST = {"haHandshakeEnable": "true", "haSyncFromFirstFile": "true", "haSlaveAckAfterFlush": "true"}
# Maximum of messages before a fault.
_FEW, _MANY = 40, 120


class Fault:
    """One life of a pair. `seed` determines all choices; the machine determines when they happen.

    `plants`: faults of planted.py for the master and the slave, which the cycles are expected to find. `small`: skip
    what takes long.
    """

    name = ""
    cycles_per_life = 20
    address_of_master = "127.0.0.1"
    # True if the kind is run only when it is named.
    by_name_only = False
    # True if the original is known to fail as a master.
    master_of_rmqha_only = False

    def __init__(self, folder: Path, seed: int, kinds: tuple[str, str] = ("rmqha", "rmqha"),
                 plants: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()), small: bool = False):
        self.folder = folder
        self.seed = seed
        self.kinds = kinds
        self.plants = plants
        self.small = small
        self.rng = random.Random(f"{self.name} {seed}")
        self.trusting = kinds == ("rmqha", "rmqha") and random.Random(f"settings {seed}").random() < 0.5
        self.file_sizes = some_file_sizes(f"{self.name} {seed}")
        self.pair: Pair | None = None
        self.holdings: list[Holdings] = []
        self.told = ""  # a summary, set by `end`
        # Counts of events, summed up at the end.
        self.notes: Counter[str] = Counter()

    @classmethod
    def why_not(cls) -> str | None:
        """Return why this kind is not available on this machine, or None if it is."""
        return None

    def sides(self) -> tuple[dict, dict]:
        """Return the options of both: plants, file sizes, and for every other pair rmqha's own settings."""
        settings = {**self.file_sizes, **(TRUST if self.trusting else {})}
        return {"plants": self.plants[0], **settings}, {"plants": self.plants[1], **settings}

    def make(self) -> Pair:
        """Return the pair, not started."""
        raise NotImplementedError

    def open(self) -> None:
        """Make and start the pair."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.notes["lives with handshake, whole history and acks after flush"] += self.trusting
        self.pair = self.make()
        master = self.pair.master
        self.pair.open(f"{self.address_of_master}:{master.port}")

    def load(self) -> None:
        """Send until some messages are acknowledged: first with few senders, whose records arrive singly, then all."""
        self.pair.senders.go(self.rng.randint(1, 3))
        self.pair.senders.wait_for_more(self.rng.randint(1, _FEW), BOOT_MS)
        self.pair.senders.go()
        self.pair.senders.wait_for_more(self.rng.randint(1, _FEW if self.small else _MANY), BOOT_MS)

    def cycle(self) -> str:
        """Do one fault to the pair, check, and describe it in a few words. Raises Violation."""
        raise NotImplementedError

    def hold(self) -> None:
        """At the first call, record the descriptors and threads of both brokers, which live through all cycles."""
        if not self.holdings:
            self.holdings = [Holdings(broker) for broker in (self.pair.master, self.pair.slave)]

    def end(self) -> None:
        """Do the final check of a successful life: brokers that lived through all cycles hold no more descriptors and
        threads than at first, and both stores are complete."""
        brokers = self.pair.master, self.pair.slave
        self.notes["empty files of the original removed"] += sum(broker.empty_files for broker in brokers)
        for holdings in self.holdings:
            holdings.assert_returned()
        self.told = self.pair.end()

    def close(self) -> None:
        """Kill what runs, and tear down what was set up. Called after a failure, too."""
        if self.pair is not None:
            self.pair.close()
