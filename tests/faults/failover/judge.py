"""What must hold of three replicas, whoever was the master when; looked at again and again, each time at what is new.

    A  every acknowledged message is in every log that is in sync, once, where it was acknowledged to be, with its body
       and its properties, and a consumer reads it from its queue there; at the end also from each slave
    B  all logs in sync are the same bytes, and whole records: each one's body is that of its CRC
    C  the offsets of each queue are 0, 1, 2 ... in the order of the log: none is given twice
    M  at most one master acknowledges at any time: all acknowledgements of an epoch (which the offset in the log tells)
       come from one broker, and none is of a message that was sent behind an acknowledgement of a later epoch

Logs are read as files, with the oracle of store_compare; where they end is what their brokers say. At the end of a life
`store verify` finds nothing in the stores of rmqha.
"""
import bisect
import json
from collections import defaultdict
from pathlib import Path

from tests.faults import pair, verdict
from tests.faults.drawn_messages import crc_of
from tests.faults.failover.cluster import Cluster, Replica
from tests.faults.failover.traffic import TOPICS, Ack, Traffic
from tests.faults.senders import Acknowledged
from tests.faults.verdict import LogCopy, Violation
from tests.support import store_compare
from tests.support.raw_remoting import Answer, RawClient
from tests.support.wait import wait_until

_SHOWN = 3
_SETTLE_MS = 90_000
_PULL_NOT_FOUND = (19, 20, 21)  # no message there yet
Queue = tuple[str, int]  # topic and number
Place = tuple[str, Queue, int, int]  # name, queue, queue offset, CRC as of Ack


def place_of(record: store_compare.Record) -> Place:
    """Of a record in a log, or from the wire."""
    properties = record.properties
    crc = crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))
    return properties.get("KEYS", ""), (record.topic, record.queue_id), record.queue_offset, crc


class Judge:
    """The verdict over one life. `looked_to`: in all three logs everything before that offset has been looked at."""

    def __init__(self, cluster: Cluster, traffic: Traffic):
        self.looked_to = 0
        self.records: dict[int, Place] = {}  # by offset in the log
        self._cluster = cluster
        self._traffic = traffic
        self._taken = 0  # acknowledgements that have been looked for
        self._next: defaultdict[Queue, int] = defaultdict(int)  # the offset that comes next in the log
        self._read: defaultdict[Queue, int] = defaultdict(int)  # the offset up to which a consumer has read
        self._places: dict[tuple[Queue, int], str] = {}  # of acknowledgements: queue and offset -> name
        self._masters: dict[int, int] = {}  # epoch -> who acknowledged in it
        self._last_sent: dict[int, Ack] = {}  # epoch -> the acknowledged message that was sent last
        self._first_received: dict[int, Ack] = {}  # epoch -> the first acknowledgement

    def look(self) -> int:
        """Once all three are in sync, hold all that is new against each other. The number of new acknowledgements."""
        acks = self._traffic.acks[self._taken:]  # before the logs are: what is acknowledged now is in all of them
        end = min(self._cluster.ends_in_sync())
        self._compare(end)
        self._walk(end)
        epochs = self._cluster.epochs()
        for ack in acks:
            self._look_for(ack)
            self._place_in_time(ack, epochs)
        self._check_order()
        self._taken += len(acks)
        self._consume()
        return len(acks)

    def _compare(self, end: int) -> None:
        first, *others = self._cluster.replicas
        mine = store_compare.read_range(first.commit_log, self.looked_to, end)
        for other in others:
            its = store_compare.read_range(other.commit_log, self.looked_to, end)
            if its != mine:
                self._differ(first, other, mine, its)

    def _differ(self, first: Replica, other: Replica, mine: bytes, its: bytes) -> None:
        at = next((i for i in range(min(len(mine), len(its))) if mine[i] != its[i]), min(len(mine), len(its)))
        raise Violation(f"B: {first.name} and {other.name} differ from {self.looked_to + at} on, "
                        f"the first log ends at {self.looked_to + len(mine)}: {mine[at:at + 60]!r} {its[at:at + 60]!r}")

    def _walk(self, end: int) -> None:
        log = self._cluster.replicas[0].commit_log
        for record in store_compare.walk(log, end, self.looked_to):
            if record.offset + record.size > end:
                break
            self.looked_to = record.offset + record.size
            if not record.crc_ok or record.physical_offset != record.offset:
                raise Violation(f"B: the record at {record.offset} is damaged")
            if record.topic not in TOPICS:
                continue
            place = self.records[record.offset] = place_of(record)
            name, queue, queue_offset, _ = place
            if queue_offset != self._next[queue]:
                raise Violation(f"C: {name} at {record.offset} has offset {queue_offset} of queue {queue}, where "
                                f"{self._next[queue]} is due")
            self._next[queue] += 1

    def _look_for(self, ack: Ack) -> None:
        queue = ack.topic, ack.queue_id
        place = ack.name, queue, ack.queue_offset, ack.crc
        if self.records.get(ack.offset) != place:
            elsewhere = [offset for offset, found in self.records.items() if found[0] == ack.name]
            raise Violation(f"A: {ack} is not there: {self.records.get(ack.offset)}; by name at {elsewhere}, "
                            f"the logs are looked at up to {self.looked_to}")
        other = self._places.setdefault((queue, ack.queue_offset), ack.name)
        if other != ack.name:
            raise Violation(f"C: {ack} has the place of {other}")

    def _place_in_time(self, ack: Ack, epochs: list[tuple[int, int]]) -> None:
        starts = [start for _, start in epochs]
        at = bisect.bisect_right(starts, ack.offset) - 1
        if at < 0:
            raise Violation(f"M: {ack} is before the first epoch: {epochs[:_SHOWN]}")
        epoch = epochs[at][0]
        master = self._masters.setdefault(epoch, ack.broker)
        if master != ack.broker:
            raise Violation(f"M: epoch {epoch} has two masters: {master} acknowledged, and then {ack}")
        if epoch not in self._last_sent or ack.sent > self._last_sent[epoch].sent:
            self._last_sent[epoch] = ack
        if epoch not in self._first_received or ack.received < self._first_received[epoch].received:
            self._first_received[epoch] = ack

    def _check_order(self) -> None:
        """Over all epochs, the last first: nothing of an earlier one was sent behind an answer of a later one."""
        earliest: Ack | None = None
        for epoch in sorted(self._masters, reverse=True):
            last, first = self._last_sent[epoch], self._first_received[epoch]
            if earliest is not None and last.sent > earliest.received:
                raise Violation(f"M: two masters at a time: {last} of epoch {epoch} was sent behind {earliest}")
            if earliest is None or first.received < earliest.received:
                earliest = first

    def _consume(self) -> None:
        """Read each queue on, as a consumer does, up to what all logs have."""
        master = self._cluster.master()
        if master is None:
            return
        with RawClient(master.address, 20) as client:
            for queue, end in self._next.items():
                while self._read[queue] < end:
                    self._pull(client, queue)

    def _pull(self, client: RawClient, queue: Queue) -> None:
        def pulled() -> Answer | None:
            answer = client.pull(*queue, self._read[queue], 512)
            if answer.code in _PULL_NOT_FOUND:
                return None
            if answer.code != 0:
                raise Violation(f"A: queue {queue} can't be read at {self._read[queue]}: {answer}")
            return answer
        answer = wait_until(pulled, 60_000, f"queue {queue} is read at {self._read[queue]}")
        for record in store_compare.records_in(answer.body):
            place, known = place_of(record), self.records.get(record.physical_offset)
            if place[1:3] != (queue, self._read[queue]) or (
                    record.physical_offset < self.looked_to and known != place):
                raise Violation(f"A: a consumer reads {place} at {queue} {self._read[queue]}, the log has {known}")
            if record.physical_offset >= self.looked_to:
                return  # not in all logs yet
            self._read[queue] += 1

    def close(self) -> str:
        """The last word, when nobody sends any more: all logs end alike, and all queues are what follows from them."""
        replicas = self._cluster.replicas
        wait_until(lambda: len({replica.told_end() for replica in replicas}) == 1, _SETTLE_MS,
                   "all logs end alike when nobody sends")
        self.look()
        if self._taken != len(self._traffic.acks):
            raise Violation("A: acknowledged while nobody sent")
        end = replicas[0].told_end()
        if self.looked_to != end:
            raise Violation(f"B: the logs end at {end}, whole records at {self.looked_to}")
        for replica in replicas[1:]:
            try:
                store_compare.compare_commit_logs(replicas[0].commit_log, replica.commit_log, end)
            except AssertionError as failure:
                raise Violation(f"B: {failure}") from failure
        for replica in replicas:
            self._close_one(replica, end)
        return f"{len(self._traffic.acks)} acknowledged, {len(self.records)} stored, log {end}, epochs {self.epochs}"

    def _close_one(self, replica: Replica, end: int) -> None:
        """All of one log is read once more, from the files and over the wire."""
        copy = LogCopy(replica.commit_log)
        verdict.check_records(replica, copy, end)
        verdict.check_queues(replica, copy)
        placed = [(ack.name, Acknowledged(ack.topic, ack.queue_id, ack.queue_offset, ack.offset, ack.crc))
                  for ack in self._traffic.acks]
        pair.check_by_offset(replica.address, replica.name, placed)
        pair.check_by_queue(replica.address, replica.name, copy, TOPICS)
        if replica.kind == "rmqha":
            pair.check_store(replica)

    @property
    def epochs(self) -> int:
        """In how many epochs something was acknowledged."""
        return len(self._masters)


def journal(file: Path) -> list[Ack]:
    """What a Traffic has written down, for whoever looks into a life that failed."""
    return [Ack(*json.loads(line)) for line in file.read_text("utf-8").splitlines()]
