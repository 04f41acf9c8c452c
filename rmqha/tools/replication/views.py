"""The state of replication as `ha status`, `check ha` and `doctor` show it, with the checks of slaves' logs.

`ScrubView` is a slave's report on the checks of its log: scrubbing, and verifying records before they are acknowledged.
RocketMQ's slaves and those of older rmqha versions report neither; they have no view, and are not judged by it.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from rmqha.common.texts import whole
from rmqha.common.units import seconds_text, size_text
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.terminal import cell, counted

# Values of haScrubDamaged: the side whose copy of a record is damaged.
SLAVES_COPY, MASTERS_COPY = "slave", "master"
_OFF, _CANT = "OFF", "CANT"
_STATE, _VERIFIED = "haScrubState", "haVerifiedBytes"
DAMAGED_TODO = ("run rmqha store verify on the master's store; if that is clean, check memory and network of both "
                "hosts. The slave continues as soon as it receives a good record")
# The remedy if only a comparison of both stores shows which one is correct.
COMPARE_TODO = ("stop both, compare them with rmqha store diff, keep the correct one, and rebuild the other from an "
                "empty store")
_PROMISE_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True)
class LogFault:
    """A fault of a slave's log, found by its own checks; `kind` is a name for programs."""

    status: Status
    kind: str
    text: str
    todo: str


@dataclass(frozen=True)
class ScrubView:
    """A slave's report on scrubbing and verifying; offsets are of the commit log.

    `state`: OFF, WAITING, RUNNING, CANT; "" when it only reports on verifying. `unscrubbed_ms`: the age of the oldest
    byte not compared with the master; 0 when all are compared, -1 when unknown. `damaged`: records by the damaged side.
    """

    state: str
    position: int
    round_begin: int
    round_end: int
    rounds: int
    compared_bytes: int
    unscrubbed_ms: int
    promise_ms: int
    differences: int
    first_difference: int | None
    first_reason: str
    last_error: str
    verified_bytes: int
    verify_failures: int
    verify_failed_offset: int | None
    # The master's record at verify_failed_offset arrives damaged each time.
    gets_damaged: bool
    root: str  # the slave's store folder
    damaged: dict[str, int] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """True if scrubbing is enabled: it runs, or waits for idle time."""
        return self.state not in ("", _OFF)

    @property
    def is_stopped(self) -> bool:
        """True if the master can't be asked at present."""
        return self.state == _CANT

    @property
    def is_late(self) -> bool:
        """True if bytes have been waiting to be compared for longer than promised."""
        return self.is_on and 0 < self.promise_ms < self.unscrubbed_ms

    def text(self) -> str:
        """Return the progress of the checks; "" without checks."""
        parts = []
        if self.is_on:
            parts = [f"scrubbing {self.state}", f"round {self.rounds + 1}: compared up to {self.position:,} "
                     f"(range {self.round_begin:,} to {self.round_end:,})", self._age()]
        elif self.state:
            parts = ["scrubbing OFF"]
        if self.is_on and self.last_error:
            parts.append(f"last error: {cell(self.last_error)}")
        if self.verified_bytes or self.verify_failures:
            parts.append(f"{size_text(self.verified_bytes)} of received records verified")
        return "; ".join(parts)

    def _age(self) -> str:
        if self.unscrubbed_ms == 0:
            return "everything compared"
        if self.unscrubbed_ms < 0:
            return "nothing compared yet"
        return (f"the oldest uncompared bytes are {seconds_text(self.unscrubbed_ms / 1000)} old, at most "
                f"{seconds_text(self.promise_ms / 1000)} is promised")

    def faults(self, master: str) -> list[LogFault]:
        """Return all faults; `master` is the master's address, as HOST:PORT."""
        return [*self._differences(master), *self._failures(), *self._late()]

    def _differences(self, master: str) -> list[LogFault]:
        if not self.differences:
            return []
        reason = f" ({cell(self.first_reason)})" if self.first_reason else ""
        first = f", the first at offset {self.first_difference}{reason}" if self.first_difference is not None else ""
        text = f"{counted(self.differences, 'record')} of its log {'is' if self.differences == 1 else 'are'} not its " \
               f"master's{first}"
        of_slave, of_master = (self.damaged.get(whose, 0) for whose in (SLAVES_COPY, MASTERS_COPY))
        repair = f"stop the slave, rmqha store repair {cell(self.root) or 'ROOT'} --master {master} --apply, start it"
        if of_master:
            whose = "the master's copy is damaged" if of_master >= self.differences else (
                f"in {of_master} of them the master's copy is damaged")
            return [LogFault(Status.CRITICAL, "MASTER_DAMAGED", f"{text}: {whose}, its body CRC does not match",
                             "make this slave the master, and then repair the other's store from it; "
                             "never repair this slave from this master")]
        if of_slave:
            text += ": the slave's copy is damaged" if of_slave >= self.differences else (
                f": in {of_slave} of them the slave's copy is damaged")
            return [LogFault(Status.CRITICAL, "DIFFERS", text, repair)]
        return [LogFault(Status.CRITICAL, "DIFFERS", f"{text}: no CRC shows which copy is right",
                         f"inspect them with rmqha check ha --deep --range 0:; if the master's are right, {repair}")]

    def _failures(self) -> list[LogFault]:
        if not self.verify_failures:
            return []
        last = f", the last at offset {self.verify_failed_offset}" if self.verify_failed_offset is not None else ""
        return [LogFault(Status.WARNING, "VERIFY_FAILED", f"it has refused records that arrived damaged, "
                         f"{counted(self.verify_failures, 'time')} since its start{last}",
                         DAMAGED_TODO if self.gets_damaged else "they were good when fetched again: check memory and "
                         "network of both hosts. A restart of the slave clears the count")]

    def _late(self) -> list[LogFault]:
        if not self.is_late:
            return []
        why = f" ({self.state}: {cell(self.last_error)})" if self.last_error else f" ({self.state})"
        return [LogFault(Status.WARNING, "SCRUB_LATE", "bytes of its log have not been compared with its master's for "
                         f"{seconds_text(self.unscrubbed_ms / 1000)}, at most {seconds_text(self.promise_ms / 1000)} "
                         f"is promised{why}", "raise haScrubBytesPerSecond or haScrubPromise of the slave; if the "
                         "master can't be asked, check its port and its allowlist")]


def scrub_view(told: Told) -> ScrubView | None:
    """Return the view of a slave that reports its checks; None for any other."""
    table = told.table
    if _STATE not in table and _VERIFIED not in table:
        return None
    return ScrubView(
        state=table.get(_STATE, ""), position=told.number("haScrubPosition"),
        round_begin=told.number("haScrubRoundBegin"), round_end=told.number("haScrubRoundEnd"),
        rounds=told.number("haScrubRounds"), compared_bytes=told.number("haScrubComparedBytes"),
        unscrubbed_ms=told.number("haScrubUnscrubbedMs", -1),
        promise_ms=told.setting("haScrubPromise", _PROMISE_MS),
        differences=told.number("haScrubDifferences"), first_difference=_offset(told, "haScrubFirstDifference"),
        first_reason=table.get("haScrubFirstReason", ""), last_error=table.get("haScrubLastError", ""),
        verified_bytes=told.number(_VERIFIED),
        verify_failures=told.number("haVerifyFailures"), verify_failed_offset=_offset(told, "haVerifyFailedOffset"),
        gets_damaged="haDivergedOffset" in table and table["haDivergedOffset"] == table.get("haVerifyFailedOffset"),
        root=told.config.get("storePathRootDir", ""), damaged=_damaged(table.get("haScrubDamaged", "")))


def _offset(told: Told, key: str) -> int | None:
    """Return an offset of the table, or None for -1 or a missing one."""
    offset = told.number(key, -1)
    return offset if offset >= 0 else None


def _damaged(text: str) -> dict[str, int]:
    """Parse `slave:2,master:1`; invalid parts are ignored, since they only make a text more precise."""
    counts = (part.split(":") for part in text.split(","))
    return {each[0]: count for each in counts if len(each) == 2 and (count := whole(each[1], -1, 0)) >= 0}


DEFAULT_FALLBEHIND_MAX = 256 * 1024 * 1024


@dataclass
class SlaveView:
    """One slave of a master, with None for unknown values. `connection` is its end of the replication connection.

    `status` is the meaning of its state alone, without limits for its lag; `note` is the reason.
    """

    address: str
    broker_id: int | None = None
    connection: str | None = None
    state: str = "IDLE"
    ack_offset: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    rate: float | None = None  # bytes/s
    in_sync: bool | None = None
    note: str = ""
    status: Status = Status.OK
    # At the name server; also True when no name server was asked.
    registered: bool = True
    # As one of the slaves that a master should have; a receiver does not count.
    counts: bool = True
    # None: it does not report checks of its log.
    scrub: ScrubView | None = None

    def set_offset(self, offset: int, master_max_offset: int, fallbehind_max: int) -> None:
        """Record that the slave holds the log below `offset`."""
        self.ack_offset = offset
        self.lag_bytes = master_max_offset - offset
        if self.lag_bytes <= 0:
            self.lag_seconds = 0.0
        if self.in_sync is None:
            self.in_sync = 0 <= self.lag_bytes < fallbehind_max

    def judge(self, status: Status, state: str, note: str = "") -> None:
        """Set the state and its status; a slave that does not replicate is not in sync."""
        self.status, self.state = status, state
        self.note = note or self.note
        if status is Status.CRITICAL:
            self.in_sync = False


@dataclass
class RefusedView:
    """A slave that its master can't serve: the offset that it requested, and the range that the master holds.

    `same_up_to`: the offset up to which the slave found both logs equal; -1 when unknown.
    """

    address: str
    slave_offset: int
    master_min_offset: int
    master_max_offset: int
    same_up_to: int = -1

    @property
    def gets_damaged(self) -> bool:
        """True if the slave's log equals the master's, and the next record arrived damaged."""
        return self.same_up_to == self.slave_offset >= 0

    @property
    def todo(self) -> str:
        """The remedy."""
        if self.gets_damaged:
            return DAMAGED_TODO
        if self.same_up_to >= 0:
            return (f"run rmqha ha rejoin: it truncates the slave's log at {self.same_up_to}, where the logs begin to "
                    "differ, and saves the truncated bytes to a file")
        return "set it up again with an empty store" if self.slave_offset < self.master_min_offset else COMPARE_TODO

    @property
    def reason(self) -> str:
        """The reason of the refusal, as text."""
        if self.gets_damaged:
            return (f"the master's record at {self.slave_offset} arrives damaged each time: the network damages it, or "
                    "the master's own copy is damaged")
        if self.slave_offset > self.master_max_offset:
            return (f"it is ahead of the master: it requests {self.slave_offset}, but the master ends at "
                    f"{self.master_max_offset} and has lost what the slave holds")
        if self.slave_offset >= self.master_min_offset:
            return (f"its log diverged: somewhere before {self.slave_offset} its bytes differ from the master's (it "
                    "was a master itself, or followed another one)")
        return (f"it is too far behind: it requests {self.slave_offset}, but the master begins at "
                f"{self.master_min_offset} and has deleted what the slave needs")


@dataclass
class Fault:
    """A fault of the brokers of one name, other than those of their slaves."""

    status: Status
    text: str
    # The broker that it concerns.
    address: str = ""
    # The remedy, if it is not obvious from the text.
    todo: str = ""


@dataclass
class ControllerView:
    """One controller of automatic failover, and the leader that it knows; `error`: why it could not be asked."""

    address: str
    group: str = ""
    is_leader: bool = False
    leader_id: str = ""
    leader: str = ""  # host:port
    peers: list[str] = field(default_factory=list)  # `id-host:port`
    error: str = ""


@dataclass
class ReplicaView:
    """A replica as the controller lists it; epoch and log end are its own report, None when it does not answer.

    `may_lead`: whether the controller would elect it if the current master failed; `why_not` has the reasons.
    """

    broker_id: int
    address: str
    alive: bool
    in_sync: bool
    is_master: bool = False
    epoch: int | None = None
    max_offset: int | None = None
    may_lead: bool = False
    why_not: str = ""


@dataclass
class FailoverView:
    """The controllers' view of the brokers of one name. `known`: the leader knows the name."""

    controllers: list[ControllerView]
    leader: str = ""
    known: bool = False
    unclean: bool = False  # enableElectUncleanMaster
    master_id: int | None = None
    master: str = ""
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    replicas: list[ReplicaView] = field(default_factory=list)

    @property
    def sync_state_set(self) -> list[int]:
        """The ids of the replicas that hold every acknowledged message."""
        return sorted(each.broker_id for each in self.replicas if each.in_sync)


@dataclass
class BrokerView:
    """A broker's place in the cluster, and its own report; offsets are of the commit log."""

    cluster: str
    name: str
    address: str  # "" when no master of the name is registered
    broker_id: int = 0
    role: str = ""
    version: str = ""
    min_offset: int = 0
    max_offset: int = 0


@dataclass
class MasterView(BrokerView):
    """A broker that was asked, and its slaves. `follows` is set if it is a slave itself."""

    fallbehind_max: int = DEFAULT_FALLBEHIND_MAX
    wanted_slaves: int = 0  # by its own config
    slaves: list[SlaveView] = field(default_factory=list)
    refused: list[RefusedView] = field(default_factory=list)
    # Its own connection; `address` is the master's HA port.
    follows: SlaveView | None = None
    faults: list[Fault] = field(default_factory=list)
    # None: no controller chooses its master.
    failover: FailoverView | None = None
    # Why it could not be asked.
    error: str = ""
    # UNKNOWN when it has answered with an error.
    error_status: Status = Status.CRITICAL
    note: str = ""


@dataclass
class Reading:
    """The result of a reading; `faults` are those of the name servers."""

    views: list[MasterView] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
