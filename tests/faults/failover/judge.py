"""The invariants of three replicas with changing masters, checked repeatedly, each time for the new part.

    A  every in-sync log has every acknowledged message once, at its acknowledged place, with its body and properties,
       and a consumer reads it from its queue; at the end also from each slave
    B  all in-sync logs have the same bytes and complete records, with bodies that match their CRCs
    C  the offsets of each queue are 0, 1, 2 ... in the order of the log: none is given twice
    D  no message is stored twice: each attempt of a producer has its own name, so only a broker can have repeated it
    M  at most one master acknowledges at any time: all acknowledgements of an epoch (found by the offset in the log)
       are from one broker, and none is of a message that was sent after an acknowledgement of a later epoch

Logs are read as files, with the oracle of store_compare, up to the ends that their brokers report. At the end of a life
`store verify` is clean on the stores of rmqha.
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
_CLOSING_CHECKS = 10  # a relay passes a request on for some seconds at most
_SETTLE_MS = 90_000
_PULL_NOT_FOUND = (19, 20, 21)  # no message there yet
Queue = tuple[str, int]  # topic and number
# Name, queue, queue offset, CRC as in Ack.
Place = tuple[str, Queue, int, int]


def place_of(record: store_compare.Record) -> Place:
    """Return the place of a record in a log or from the wire."""
    properties = record.properties
    crc = crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))
    return properties.get("KEYS", ""), (record.topic, record.queue_id), record.queue_offset, crc


class Judge:
    """The checks of one life. `looked_to`: everything before this offset has been checked in all three logs."""

    def __init__(self, cluster: Cluster, traffic: Traffic):
        self.looked_to = 0
        self.records: dict[int, Place] = {}  # by offset in the log
        self._stored: dict[str, int] = {}  # name -> offset in the log
        self._cluster = cluster
        self._traffic = traffic
        # The number of checked acknowledgements.
        self._taken = 0
        # The next offset of each queue in the log.
        self._next: defaultdict[Queue, int] = defaultdict(int)
        # The offset up to which a consumer has read.
        self._read: defaultdict[Queue, int] = defaultdict(int)
        # Queue and offset of acknowledgements -> name.
        self._places: dict[tuple[Queue, int], str] = {}
        # epoch -> broker that acknowledged in it
        self._masters: dict[int, int] = {}
        # Epoch -> the acknowledged message that was sent last.
        self._last_sent: dict[int, Ack] = {}
        # Epoch -> the first acknowledgement.
        self._first_received: dict[int, Ack] = {}

    def look(self) -> int:
        """Compare the new parts of all three logs, once they are in sync; return the number of new acknowledgements."""
        # Read before the logs, so that all of them have these messages.
        acks = self._traffic.acks[self._taken:]
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
            if self._stored.setdefault(name, record.offset) != record.offset:
                raise Violation(f"D: {name} is stored at {self._stored[name]} and at {record.offset}")
            if queue_offset != self._next[queue]:
                raise Violation(f"C: {name} at {record.offset} has offset {queue_offset} of queue {queue}, expected "
                                f"{self._next[queue]}")
            self._next[queue] += 1

    def _look_for(self, ack: Ack) -> None:
        queue = ack.topic, ack.queue_id
        place = ack.name, queue, ack.queue_offset, ack.crc
        if self.records.get(ack.offset) != place:
            elsewhere = [offset for offset, found in self.records.items() if found[0] == ack.name]
            raise Violation(f"A: {ack} is missing: {self.records.get(ack.offset)}; by name at {elsewhere}, "
                            f"the logs are checked up to {self.looked_to}")
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
        """Check all epochs, last first: no message of an earlier one was sent after an answer of a later one."""
        earliest: Ack | None = None
        for epoch in sorted(self._masters, reverse=True):
            last, first = self._last_sent[epoch], self._first_received[epoch]
            if earliest is not None and last.sent > earliest.received:
                raise Violation(f"M: two masters at a time: {last} of epoch {epoch} was sent after {earliest}")
            if earliest is None or first.received < earliest.received:
                earliest = first

    def _consume(self) -> None:
        """Continue reading each queue like a consumer, up to the common end of all logs."""
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
        """Do the final check, after the load: all logs have the same end, and all queues match them.

        A relay may pass a request on whose producer has ended already. A check during which the logs grow finds too
        much or too little, so it is done again.
        """
        acknowledged = len(self._traffic.acks)
        for _ in range(_CLOSING_CHECKS):
            end = wait_until(self._looked_to_the_end, _SETTLE_MS, "all logs have the same end, of a complete record")
            try:
                self._check_to(end, acknowledged)
            except AssertionError:
                if self._is_end(end):
                    raise
            else:
                if self._is_end(end):
                    return (f"{acknowledged} acknowledged, {len(self.records)} stored, log {end}, "
                            f"epochs {self.epochs}")
        raise Violation(f"B: the logs still grow after the load, beyond {end}")

    def _is_end(self, end: int) -> bool:
        return all(replica.told_end() == end for replica in self._cluster.replicas)

    def _check_to(self, end: int, acknowledged: int) -> None:
        """Check the logs and queues of all replicas up to `end`, which is the end of all logs.

        `acknowledged`: the number of acknowledgements when the load ended.
        """
        replicas = self._cluster.replicas
        if not self._taken == acknowledged == len(self._traffic.acks):
            raise Violation("A: acknowledged without load")
        for replica in replicas[1:]:
            try:
                store_compare.compare_commit_logs(replicas[0].commit_log, replica.commit_log, end)
            except AssertionError as failure:
                raise Violation(f"B: {failure}") from failure
        for replica in replicas:
            self._close_one(replica, end)

    def _looked_to_the_end(self) -> int | None:
        """Return the common end of all logs if all records up to it are complete and checked."""
        ends = {replica.told_end() for replica in self._cluster.replicas}
        if len(ends) > 1:
            return None
        self.look()
        return ends.pop() if ends == {self.looked_to} else None

    def _close_one(self, replica: Replica, end: int) -> None:
        """Read one log completely again, from the files and over the wire."""
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
        """The number of epochs with acknowledgements."""
        return len(self._masters)


def journal(file: Path) -> list[Ack]:
    """Read a Traffic's journal, to analyze a failed life."""
    return [Ack(*json.loads(line)) for line in file.read_text("utf-8").splitlines()]
