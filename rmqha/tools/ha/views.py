"""How replication stands, as `ha status`, `check ha` and `doctor` show it."""
from dataclasses import dataclass, field

from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.scrub_view import DAMAGED_TODO, ScrubView

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
class MasterView:
    """A broker that was asked, and its slaves. `follows` is set when it is a slave itself."""

    cluster: str
    name: str
    address: str
    broker_id: int = 0
    role: str = ""
    version: str = ""
    min_offset: int = 0
    max_offset: int = 0
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
