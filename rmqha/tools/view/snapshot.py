"""A cluster at one moment, as its name servers and brokers told it; nothing here changes once it is made.

Sizes and offsets are bytes of the commit log, times that end in `_ms` are ms since 1970 by this host's clock, `at_s` is
monotonic. What nobody told is None, or -1 for a counter.
"""
from dataclasses import dataclass

from rmqha.common.mix_all import is_sys_consumer_group
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList
from rmqha.tools.admin.default_mq_admin_ext import SYSTEM_GROUPS
from rmqha.tools.check.check_base import Status
from rmqha.tools.dialect.numbers import real, whole
from rmqha.tools.ha.answers import Told
from rmqha.tools.ha.judgement import log_problems, name_of
from rmqha.tools.ha.views import Fault, MasterView, SlaveView

_FILE_SIZE = 1 << 30


@dataclass(frozen=True)
class BrokerState:
    """One broker; `error` says why it told nothing, and then all else but its place is empty."""

    cluster: str
    name: str
    broker_id: int
    address: str
    error: str = ""
    role: str = ""
    version: str = ""
    boot_ms: int = 0
    min_offset: int = 0
    max_offset: int = 0
    file_size: int = _FILE_SIZE  # of a file of its commit log
    put_total: int = -1  # messages that producers have sent to it
    get_total: int = -1  # messages that consumers have got of it
    disk_used: float | None = None  # 0 to 1, of the file system of the commit log
    queue_disk_used: float | None = None  # the same of the consume queues'
    disk_text: str = ""
    disk_limit: float | None = None  # above it files are deleted before their time
    dispatch_behind: int = 0  # bytes that are in the log and not yet in the queues
    to_flush: str = ""
    earliest_ms: int = -1  # store time of the oldest message
    send_queue: int = 0  # requests that wait
    pull_queue: int = 0
    latency_99: str = ""  # of puts, ms; "" when it does not tell
    flush: str = ""
    epoch: int | None = None  # of the last mastership in its log; None where roles do not change
    sync_state_set: str = ""  # of a master whose role changes: ids of those in sync, joined by commas

    @property
    def role_text(self) -> str:
        """Its role, with the epoch where roles change."""
        return self.role if self.epoch is None else f"{self.role}, epoch {self.epoch}"

    @property
    def is_master(self) -> bool:
        """Whether its id is a master's."""
        return self.broker_id == 0

    @property
    def log_size(self) -> int:
        """Bytes between the log's beginning and its end."""
        return max(0, self.max_offset - self.min_offset)

    @property
    def segments(self) -> int:
        """How many files of the log that takes."""
        if self.log_size <= 0 or self.file_size <= 0:
            return 0
        return (self.max_offset - 1) // self.file_size - self.min_offset // self.file_size + 1


@dataclass(frozen=True)
class SlaveState:
    """A slave of a master, as the master and itself tell it; `status` is OK, WARNING, CRITICAL or UNKNOWN."""

    address: str
    broker_id: int | None
    state: str
    status: str
    ack_offset: int | None = None
    lag_bytes: int | None = None
    lag_seconds: float | None = None
    in_sync: bool | None = None
    note: str = ""
    registered: bool = True


@dataclass(frozen=True)
class Replication:
    """The brokers of one name: who is master, and how far its slaves are. `faults` are (status, text)."""

    cluster: str
    name: str
    master: str  # its address; "" when none is registered
    slaves: tuple[SlaveState, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class QueuePlace:
    """A group in one queue; `consumed_ms` is the store time of the last message that it has consumed, 0 for none."""

    topic: str
    broker: str
    queue_id: int
    end: int
    offset: int
    consumed_ms: int

    @property
    def behind(self) -> int:
        """Messages that wait."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True)
class GroupState:
    """How far a group is in all queues of all its topics. `tps` is what the brokers count, messages per second."""

    name: str
    places: tuple[QueuePlace, ...] = ()
    tps: float = 0.0

    @property
    def behind(self) -> int:
        """Messages that wait."""
        return sum(place.behind for place in self.places)

    @property
    def topics(self) -> tuple[str, ...]:
        """Sorted."""
        return tuple(sorted({place.topic for place in self.places}))

    @property
    def consumed(self) -> int:
        """The sum of its offsets: how it grows is how fast the group is."""
        return sum(place.offset for place in self.places)

    @property
    def ends(self) -> int:
        """The sum of its queues' ends: how it grows is how fast its topics are written."""
        return sum(place.end for place in self.places)

    def delay_ms(self, now_ms: int) -> int | None:
        """How old the last consumed message is in the queue that is furthest behind; 0 when none is behind."""
        late = [place for place in self.places if place.behind]
        times = [place.consumed_ms for place in late if place.consumed_ms > 0]
        if not late:
            return 0
        return max(0, now_ms - min(times)) if times else None


@dataclass(frozen=True)
class Snapshot:
    """All that is known of a moment. `groups_at_s` is when the groups were asked, which is not done each time."""

    at_ms: int
    at_s: float
    name_servers: tuple[tuple[str, str], ...] = ()  # (address, error); "" for one that answers
    brokers: tuple[BrokerState, ...] = ()
    replication: tuple[Replication, ...] = ()
    groups: tuple[GroupState, ...] = ()
    groups_at_s: float = 0.0
    groups_errors: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()  # (status, text), of the name servers
    took_s: float = 0.0
    settled: bool = True  # False: some slave's state needs another look

    @property
    def by_address(self) -> dict[str, BrokerState]:
        """The brokers."""
        return {broker.address: broker for broker in self.brokers}

    def group(self, name: str) -> GroupState | None:
        """One group."""
        return next((group for group in self.groups if group.name == name), None)


def broker_state(told: Told) -> BrokerState:
    """From a broker's config and runtime table."""
    broker, table, config = told.broker, told.table, told.config
    if not told.answered:
        return BrokerState(broker.cluster, broker.name, broker.broker_id, broker.address, error=told.error)
    limit = real(config.get("diskMaxUsedSpaceRatio"), 0, 100)
    return BrokerState(
        broker.cluster or config.get("brokerClusterName", ""), broker.name or config.get("brokerName", ""),
        broker.broker_id, broker.address,
        role=told.role,
        version=table.get("brokerVersionDesc", ""),
        boot_ms=_count(table.get("bootTimestamp")),
        min_offset=told.min_offset,
        max_offset=told.max_offset,
        file_size=whole(config.get("mappedFileSizeCommitLog"), _FILE_SIZE, least=1),
        put_total=_count(table.get("msgPutTotalTodayNow"), -1),
        get_total=_count(table.get("msgGetTotalTodayNow"), -1),
        disk_used=_ratio(table.get("commitLogDiskRatio")),
        queue_disk_used=_ratio(table.get("consumeQueueDiskRatio")),
        disk_text=table.get("commitLogDirCapacity", "").rstrip("."),
        disk_limit=limit / 100 if limit is not None else None,
        dispatch_behind=_count(table.get("dispatchBehindBytes")),
        to_flush=table.get("remainHowManyDataToFlush", ""),
        earliest_ms=_count(table.get("earliestMessageTimeStamp"), -1),
        send_queue=_count(table.get("sendThreadPoolQueueSize")),
        pull_queue=_count(table.get("pullThreadPoolQueueSize")),
        latency_99=table.get("putLatency99", ""),
        flush=config.get("flushDiskType", ""),
        epoch=_count(table["haLastEpoch"]) if "haLastEpoch" in table else None,
        sync_state_set=table.get("haSyncStateSet", ""),
    )


def replication_state(view: MasterView) -> Replication:
    """From the view that `ha status` has, too."""
    faults = [*_texts(view.faults), *((Status.CRITICAL.name, f"{refused.address} is refused: {refused.reason}")
                                      for refused in view.refused)]
    faults += [(problem.status.name, problem.text.removeprefix(f"{name_of(view)}'s "))
               for problem in log_problems(view, view.slaves)]
    if view.error:
        faults.append((view.error_status.name, view.error))
    return Replication(view.cluster, view.name, view.address, tuple(map(_slave_state, view.slaves)), tuple(faults))


def _slave_state(slave: SlaveView) -> SlaveState:
    lag, seconds, in_sync = slave.lag_bytes, slave.lag_seconds, slave.in_sync
    if lag is not None and lag < 0 and slave.status is Status.OK:  # it was asked a moment after its master
        lag, seconds, in_sync = 0, 0.0, True
    return SlaveState(slave.address, slave.broker_id, slave.state, slave.status.name, slave.ack_offset, lag, seconds,
                      in_sync, slave.note, slave.registered)


def group_states(answers: list[ConsumeStatsList]) -> tuple[GroupState, ...]:
    """The groups of all brokers that were asked, sorted by name; those of the system only when they consume."""
    found: dict[str, list[ConsumeStats]] = {}
    for answer in answers:
        for each in answer.consumeStatsList:
            for group, stats in each.items():
                found.setdefault(group, []).extend(stats)
    return tuple(GroupState(group, _places(stats), sum(real(one.consumeTps) or 0.0 for one in stats))
                 for group, stats in sorted(found.items()) if stats or not is_system_group(group))


def is_system_group(name: str) -> bool:
    """Whether the brokers made it for themselves or for tools."""
    return name in SYSTEM_GROUPS or is_sys_consumer_group(name)


def _places(stats: list[ConsumeStats]) -> tuple[QueuePlace, ...]:
    places = [QueuePlace(queue.topic, queue.brokerName, queue.queueId, place.brokerOffset, place.consumerOffset,
                         place.lastTimestamp) for one in stats for queue, place in one.offsetTable.items()]
    return tuple(sorted(places, key=lambda each: (each.topic, each.broker, each.queue_id)))


def _texts(faults: list[Fault]) -> list[tuple[str, str]]:
    return [(fault.status.name, fault.text) for fault in faults]


def fault_texts(faults: list[Fault]) -> tuple[tuple[str, str], ...]:
    """(status, text) of each."""
    return tuple(_texts(faults))


def _count(text: str | None, default: int = 0) -> int:
    return whole(text, default, least=0)


def _ratio(text: str | None) -> float | None:
    """0 to 1; None for what is told of a disk that can't be asked (-1)."""
    return real(text, 0, 1)
