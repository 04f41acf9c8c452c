"""State of replication as `ha status`, `check ha` and `doctor` show it, with the checks of slaves' logs.

`ScrubView` is a slave's report on the checks of its log: scrubbing, and verifying records before they are acknowledged.
RocketMQ's slaves and those of older rmqha versions report neither; they have no view, and there is nothing to judge.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from rmqha.common.texts import whole
from rmqha.common.units import seconds_text, size_text
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told
from rmqha.tools.terminal import cell, counted

SLAVES_COPY, MASTERS_COPY = "slave", "master"  # whose copy of a record is damaged, in haScrubDamaged
_OFF, _CANT = "OFF", "CANT"
_STATE, _VERIFIED = "haScrubState", "haVerifiedBytes"
DAMAGED_TODO = ("rmqha store verify on the master's store; when that is good, look at memory and network of both "
                "hosts. The slave continues as soon as a good record comes")
_PROMISE_MS = 7 * 24 * 3_600_000


@dataclass(frozen=True)
class LogFault:
    """Something wrong with a slave's log, as its own checks found it; `kind` is a name for programs."""

    status: Status
    kind: str
    text: str
    todo: str


@dataclass(frozen=True)
class ScrubView:
    """What a slave reports of scrubbing and verifying; offsets are of the commit log.

    `state`: OFF, WAITING, RUNNING, CANT; "" when it reports of verifying alone. `unscrubbed_ms`: the age of the oldest
    byte not compared with the master, 0 when all is, -1 when it is not known. `damaged`: whose copy, and how many.
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
    gets_damaged: bool  # the master's record at verify_failed_offset, each time
    root: str  # the slave's store folder
    damaged: dict[str, int] = field(default_factory=dict)

    @property
    def is_on(self) -> bool:
        """Whether the log is being scrubbed, now or when there is time for it."""
        return self.state not in ("", _OFF)

    @property
    def is_stopped(self) -> bool:
        """Whether the master can't be asked at present."""
        return self.state == _CANT

    @property
    def is_late(self) -> bool:
        """Whether bytes wait to be compared for longer than promised."""
        return self.is_on and 0 < self.promise_ms < self.unscrubbed_ms

    def text(self) -> str:
        """How far the checks have come; "" when there are none."""
        parts = []
        if self.is_on:
            parts = [f"scrubbing {self.state}", f"round {self.rounds + 1} is at {self.position:,} of "
                     f"{self.round_begin:,} to {self.round_end:,}", self._age()]
        elif self.state:
            parts = ["scrubbing OFF"]
        if self.is_on and self.last_error:
            parts.append(f"last error: {cell(self.last_error)}")
        if self.verified_bytes or self.verify_failures:
            parts.append(f"{size_text(self.verified_bytes)} verified before they were acknowledged")
        return "; ".join(parts)

    def _age(self) -> str:
        if self.unscrubbed_ms == 0:
            return "all is compared"
        if self.unscrubbed_ms < 0:
            return "nothing is compared yet"
        return (f"what is due was appended or compared {seconds_text(self.unscrubbed_ms / 1000)} ago, "
                f"{seconds_text(self.promise_ms / 1000)} are promised")

    def faults(self, master: str) -> list[LogFault]:
        """All that is wrong; `master` is its master's address, as HOST:PORT."""
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
            whose = "the master's copy is the damaged one" if of_master >= self.differences else (
                f"in {of_master} of them the master's copy is the damaged one")
            return [LogFault(Status.CRITICAL, "MASTER_DAMAGED", f"{text}: {whose}, its body has another CRC than its "
                             "record says", "make this slave the master, and then repair the other's store from it; "
                             "never repair this slave from this master")]
        if of_slave:
            text += ": the slave's copy is the damaged one" if of_slave >= self.differences else (
                f": in {of_slave} of them the slave's copy is the damaged one")
            return [LogFault(Status.CRITICAL, "DIFFERS", text, repair)]
        return [LogFault(Status.CRITICAL, "DIFFERS", f"{text}: no CRC says which copy is the right one",
                         f"look at them with rmqha check ha --deep --range 0:; when the master's is right, {repair}")]

    def _failures(self) -> list[LogFault]:
        if not self.verify_failures:
            return []
        last = f", the last at offset {self.verify_failed_offset}" if self.verify_failed_offset is not None else ""
        return [LogFault(Status.WARNING, "VERIFY_FAILED", f"it has refused records that came damaged, "
                         f"{counted(self.verify_failures, 'time')} since its start{last}",
                         DAMAGED_TODO if self.gets_damaged else "what came again was good: look at memory and network "
                         "of both hosts. A restart of the slave clears the count")]

    def _late(self) -> list[LogFault]:
        if not self.is_late:
            return []
        why = f" ({self.state}: {cell(self.last_error)})" if self.last_error else f" ({self.state})"
        return [LogFault(Status.WARNING, "SCRUB_LATE", "bytes of its log were not compared with its master's for "
                         f"{seconds_text(self.unscrubbed_ms / 1000)}, {seconds_text(self.promise_ms / 1000)} are "
                         f"promised{why}", "raise haScrubBytesPerSecond or haScrubPromise of the slave; when the "
                         "master can't be asked, see its port and its white list")]


def scrub_view(told: Told) -> ScrubView | None:
    """The view of a slave that reports of its checks; None of any other."""
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
    """An offset that is there, or not; -1 is none."""
    offset = told.number(key, -1)
    return offset if offset >= 0 else None


def _damaged(text: str) -> dict[str, int]:
    """`slave:2,master:1`; what has another form is passed over: it only makes a text more precise."""
    counts = (part.split(":") for part in text.split(","))
    return {each[0]: count for each in counts if len(each) == 2 and (count := whole(each[1], -1, 0)) >= 0}


DEFAULT_FALLBEHIND_MAX = 256 * 1024 * 1024


@dataclass
class SlaveView:
    """One slave of a master; what nobody tells is None. `connection` is its end of the replication connection.

    `status` is what its state means by itself, without limits for its lag; `note` says why.
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
    registered: bool = True  # at the name server; also when nobody was asked
    counts: bool = True  # as one of the slaves that a master should have; a receiver does not
    scrub: ScrubView | None = None  # None: it does not report how its log is checked

    def set_offset(self, offset: int, master_max_offset: int, fallbehind_max: int) -> None:
        """The slave holds the log below `offset`."""
        self.ack_offset = offset
        self.lag_bytes = master_max_offset - offset
        if self.lag_bytes <= 0:
            self.lag_seconds = 0.0
        if self.in_sync is None:
            self.in_sync = 0 <= self.lag_bytes < fallbehind_max

    def judge(self, status: Status, state: str, note: str = "") -> None:
        """What it is, and what that means; a slave that does not replicate is not in sync."""
        self.status, self.state = status, state
        self.note = note or self.note
        if status is Status.CRITICAL:
            self.in_sync = False


@dataclass
class RefusedView:
    """A slave that its master can't serve: the offset that it asked for, and what the master holds.

    `same_up_to`: up to where the slave has found both logs the same; -1 when it is not known.
    """

    address: str
    slave_offset: int
    master_min_offset: int
    master_max_offset: int
    same_up_to: int = -1

    @property
    def gets_damaged(self) -> bool:
        """Whether all that the slave holds is the master's, and the next record came damaged."""
        return self.same_up_to == self.slave_offset >= 0

    @property
    def todo(self) -> str:
        """What to do about it, where that is not to set the slave up again."""
        return DAMAGED_TODO if self.gets_damaged else ""

    @property
    def reason(self) -> str:
        """Why, in words."""
        if self.gets_damaged:
            return (f"the master's record at {self.slave_offset} comes damaged each time: the network damages it, or "
                    "the master's own copy is damaged")
        if self.slave_offset > self.master_max_offset:
            return (f"it is ahead of the master: it asks for {self.slave_offset}, the master ends at "
                    f"{self.master_max_offset} and has lost what the slave holds")
        if self.slave_offset >= self.master_min_offset:
            return (f"its log is another one: before {self.slave_offset} it holds other bytes than the master, as the "
                    "store of another master does, or one that went on by itself")
        return (f"it is too far behind: it asks for {self.slave_offset}, the master begins at "
                f"{self.master_min_offset} and has deleted what the slave needs")


@dataclass
class Fault:
    """Something that is wrong with the brokers of one name, beside what their slaves say."""

    status: Status
    text: str
    address: str = ""  # the broker's that it is about
    todo: str = ""  # what to do about it, where that is not said elsewhere


@dataclass
class ControllerView:
    """One controller of automatic failover, and who leads as it knows; `error`: why it could not be asked."""

    address: str
    group: str = ""
    is_leader: bool = False
    leader_id: str = ""
    leader: str = ""  # host:port
    peers: list[str] = field(default_factory=list)  # `id-host:port`
    error: str = ""


@dataclass
class ReplicaView:
    """A replica as the controller has it; its epoch and the end of its log by its own word, None when it tells nothing.

    `may_lead`: whether the controller would make it the master, were the present one gone; `why_not` has the reasons.
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
    """What the controllers say of the brokers of one name. `known`: the one that leads knows it."""

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
        """The ids of those that hold all that was acknowledged."""
        return sorted(each.broker_id for each in self.replicas if each.in_sync)


@dataclass
class BrokerView:
    """A broker's place in the cluster, and what it says of itself; offsets are of the commit log."""

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
    """A broker that was asked, and its slaves. `follows` is set when it is a slave itself."""

    fallbehind_max: int = DEFAULT_FALLBEHIND_MAX
    wanted_slaves: int = 0  # by its own config
    slaves: list[SlaveView] = field(default_factory=list)
    refused: list[RefusedView] = field(default_factory=list)
    follows: SlaveView | None = None  # its own connection; `address` is the master's HA port
    faults: list[Fault] = field(default_factory=list)
    failover: FailoverView | None = None  # None: no controller chooses its master
    error: str = ""  # why it could not be asked
    error_status: Status = Status.CRITICAL  # UNKNOWN when it has answered with an error
    note: str = ""


@dataclass
class Reading:
    """All that was asked for; `faults` are those of the name servers."""

    views: list[MasterView] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
