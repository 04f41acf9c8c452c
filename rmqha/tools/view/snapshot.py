"""Snapshots of a cluster, the rates between two of them, and a bounded history of their values.

- `Snapshot`: a cluster at one moment, as its name servers and brokers reported it; its contents do not change. Sizes
  and offsets are bytes of the commit log, times that end in `_ms` are ms since 1970 by this host's clock, `at_s` is
  monotonic. A value that was not reported is None, or -1 for a counter.
- `Collector`: queries the name servers and brokers. In each round it sends two requests to each broker (runtime table,
  replication), every 5 s one to each name server (two to rmqha's) and one to each master (all groups), and every minute
  one for each broker's settings. It does not ask a broker that gave no answer again for 3 s.
- `picture`, `seconds_to_go`: rates and growth from two snapshots, and when a backlog is gone; pure functions.
- `History`: the values of the last minutes, for sparklines and charts, in bounded memory.
"""
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rmqha.common.mix_all import is_sys_consumer_group
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList
from rmqha.common.texts import real, whole
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, chosen
from rmqha.tools.admin.default_mq_admin_ext import SYSTEM_GROUPS
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Look, Told, ask_all, in_parallel
from rmqha.tools.replication.judgement import Case, log_problems, name_of
from rmqha.tools.replication.reader import PATIENCE_S, Group, NameServers, ask_name_servers, told_slave, view_of
from rmqha.tools.replication.views import BrokerView, Fault, MasterView, SlaveView
from rmqha.tools.terminal import CannotAnswerError

_FILE_SIZE = 1 << 30


@dataclass
class BrokerState(BrokerView):
    """One broker with its figures; `error` says why it told nothing, and then all else but its place is empty."""

    error: str = ""
    boot_ms: int = 0
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
    replication: tuple[MasterView, ...] = ()  # the brokers of each name
    groups: tuple[GroupState, ...] = ()
    groups_at_s: float = 0.0
    groups_errors: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()  # of the name servers
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
        return BrokerState(broker.cluster, broker.name, broker.address, broker.broker_id, error=told.error)
    limit = real(config.get("diskMaxUsedSpaceRatio"), 0, 100)
    return BrokerState(
        broker.cluster or config.get("brokerClusterName", ""), broker.name or config.get("brokerName", ""),
        broker.address, broker.broker_id,
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


def all_faults(view: MasterView) -> list[Fault]:
    """All that is wrong with the brokers of one name, but for what its slaves' states say."""
    faults = [*view.faults, *(Fault(Status.CRITICAL, f"{refused.address} is refused: {refused.reason}")
                              for refused in view.refused)]
    faults += [Fault(problem.status, problem.text.removeprefix(f"{name_of(view)}'s "))
               for problem in log_problems(view, view.slaves)]
    return [*faults, Fault(view.error_status, view.error)] if view.error else faults


def at_one_moment(view: MasterView) -> MasterView:
    """The view, with healthy slaves that were asked a moment after their master no longer ahead of it."""
    for slave in view.slaves:
        if slave.lag_bytes is not None and slave.lag_bytes < 0 and slave.status is Status.OK:
            slave.lag_bytes, slave.lag_seconds, slave.in_sync = 0, 0.0, True
    return view


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


def _count(text: str | None, default: int = 0) -> int:
    return whole(text, default, least=0)


def _ratio(text: str | None) -> float | None:
    """0 to 1; None for what is told of a disk that can't be asked (-1)."""
    return real(text, 0, 1)


NAMES_EVERY_S = 5.0
GROUPS_EVERY_S = 5.0
CONFIG_EVERY_S = 60.0
RETRY_S = 3.0
_SETTLING = "LOOKING"
_KEPT_S = 2 * PATIENCE_S  # of earlier looks, by which a slave that stands still is known


class Collector:
    """Makes snapshots, one after the other, on one thread; a context manager. `cluster`, `broker`: only these.

    It goes on when a name server or a broker goes, and takes it in again when it comes back; the snapshot says who is
    missing. `collect` raises CannotAnswerError only as long as no name server has ever answered, or knows what was
    asked for.
    """

    def __init__(self, namesrv: str, timeout_ms: float, cluster: str | None = None, broker: str | None = None,
                 rpc_hook: RPCHook | None = None) -> None:
        self._admin = ClusterAdmin(namesrv, timeout_ms, rpc_hook)
        self._namesrv, self._cluster, self._broker = namesrv, cluster, broker
        self._names = NameServers()
        self._names_at_s = -NAMES_EVERY_S
        self._brokers: list[Broker] = []
        self._told: Look = {}
        self._asked_s: dict[Broker, float] = {}  # monotonic, when a broker that is silent was asked last
        self._config_s: dict[Broker, float] = {}  # monotonic, when its settings were asked
        self._looks: list[tuple[float, Look]] = []
        self._groups: tuple[GroupState, ...] = ()
        self._groups_at_s = -GROUPS_EVERY_S
        self._groups_errors: tuple[str, ...] = ()
        self._settled = True

    def __enter__(self) -> Self:
        self._admin.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._admin.__exit__()

    def collect(self, ask_groups: bool = False) -> Snapshot:
        """Ask, and wait for the answers: at most about four times the time-out when much is silent.

        `ask_groups`: even if it is not yet time.
        """
        begin = time.monotonic()
        self._list_brokers(begin)
        look_at_s = time.monotonic()
        look = self._look(look_at_s)
        self._settled = True
        replication = tuple(at_one_moment(view_of(group, self._judge, _nobody_tells)) for group in self._by_name())
        if ask_groups or time.monotonic() - self._groups_at_s >= GROUPS_EVERY_S:
            self._ask_groups(look)
        return Snapshot(
            at_ms=round(time.time() * 1000), at_s=look_at_s,
            name_servers=tuple((address, self._names.errors.get(address, "")) for address in self._addresses()),
            brokers=tuple(broker_state(look[each]) for each in self._brokers), replication=replication,
            groups=self._groups, groups_at_s=self._groups_at_s, groups_errors=self._groups_errors,
            faults=self._faults(), took_s=time.monotonic() - begin, settled=self._settled)

    # ---- who is there

    def _addresses(self) -> list[str]:
        return [part.strip() for part in self._namesrv.split(";") if part.strip()]

    def _list_brokers(self, now: float) -> None:
        """Ask the name servers when it is time; when none answers, those known are still asked."""
        if self._brokers and now - self._names_at_s < NAMES_EVERY_S:
            return
        self._names_at_s = now
        try:
            names = ask_name_servers(self._namesrv, self._admin.timeout_millis)
        except CannotAnswerError as error:
            if not self._brokers:
                raise
            self._names.errors = {address: error.message for address in self._addresses()}
            return
        brokers = chosen(names.brokers, self._cluster, self._broker)
        self._names, self._brokers = names, brokers or self._brokers

    def _faults(self) -> tuple[Fault, ...]:
        missing = [fault for each, fault in self._names.missing()
                   if self._cluster in (None, each.cluster) and self._broker in (None, each.name, each.address)]
        return (*self._names.faults(), *missing)

    # ---- the brokers

    def _look(self, now: float) -> Look:
        """What each broker tells now; of one that was silent a moment ago its last word."""
        resting = {each: told for each, told in self._told.items()
                   if not told.alive and now - self._asked_s.get(each, 0.0) < RETRY_S}
        asked = [each for each in self._brokers if each not in resting]
        known = {each: told for each, told in self._told.items()
                 if told.answered and now - self._config_s.get(each, 0.0) < CONFIG_EVERY_S}
        answers = ask_all(self._admin, asked, known)
        for broker in asked:
            self._asked_s[broker] = now
            if broker not in known:
                self._config_s[broker] = now
            elif _has_restarted(known[broker], answers[broker]):
                self._config_s[broker] = 0.0
        self._told = {each: resting[each] if each in resting else answers[each] for each in self._brokers}
        self._looks = [(at_s, look) for at_s, look in self._looks if now - at_s <= _KEPT_S] + [(now, self._told)]
        return self._told

    def _by_name(self) -> list[Group]:
        """The brokers of each name, with the looks at which all of them were there."""
        groups: dict[tuple[str, str], Group] = {}
        for each in self._brokers:
            groups.setdefault((each.cluster, each.name), Group([])).brokers.append(each)
        for group in groups.values():
            for at_s, look in self._looks:
                if all(each in look and (look[each].answered or look is self._told) for each in group.brokers):
                    group.looks.append(look)
                    group.times.append(at_s)
        return list(groups.values())

    def _judge(self, case: Case, view: MasterView, times: Sequence[float]) -> SlaveView:
        slave = told_slave(case, view, times)
        if case.is_undecided and times[-1] - times[0] < PATIENCE_S or len(times) == 1 and slave.state == "AHEAD":
            slave.status, slave.state, slave.note = Status.UNKNOWN, _SETTLING, "it takes some seconds to know"
            self._settled = False
        return slave

    # ---- the groups

    def _ask_groups(self, look: Look) -> None:
        """All groups of each broker name, asked at its master, or else at a slave."""
        chosen_of: dict[tuple[str, str], str] = {}
        for each in sorted(self._brokers, key=lambda broker: broker.broker_id):
            if look[each].answered:
                chosen_of.setdefault((each.cluster, each.name), each.address)
        self._groups_at_s = time.monotonic()
        if not chosen_of:
            return
        answers = in_parallel(self._groups_of, list(chosen_of.values()), self._admin.timeout_millis, lambda address: (
            f"the broker {address} does not tell its groups within {self._admin.timeout_millis / 1000:g} s"))
        self._groups = group_states([each for each in answers.values() if not isinstance(each, str)])
        self._groups_errors = tuple(each for each in answers.values() if isinstance(each, str))

    def _groups_of(self, address: str) -> ConsumeStatsList | str:
        try:
            return self._admin.fetch_consume_stats_in_broker(address, False, self._admin.timeout_millis)
        except CannotAnswerError as error:
            return error.message


def _nobody_tells(_ha_address: str, _master: Told) -> str | None:
    """Who serves a HA address that is not the master's: `ha status` asks for that, which takes its time."""
    return None


def _has_restarted(before: Told, now: Told) -> bool:
    return now.table.get("bootTimestamp") != before.table.get("bootTimestamp")


def snapshot_pair(collector: Collector, seconds: float) -> tuple[Snapshot, Snapshot]:
    """Two snapshots, so that there are rates, until slaves that need several looks are known."""
    first = collector.collect()
    deadline = time.monotonic() + PATIENCE_S + seconds
    while True:
        time.sleep(seconds)
        second = collector.collect(ask_groups=True)
        if second.settled or time.monotonic() > deadline:
            return first, second


_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class BrokerRates:
    """Per second: messages in and out, bytes that the log grew by; None: not known, for instance after a restart."""

    in_msgs: float | None = None
    out_msgs: float | None = None
    log_bytes: float | None = None


@dataclass(frozen=True)
class GroupRates:
    """Messages per second: consumed, sent to its topics, and by how much the backlog grows (below 0: it shrinks)."""

    consumed: float | None = None
    produced: float | None = None
    growth: float | None = None


@dataclass(frozen=True)
class Picture:
    """A snapshot with its rates: what is shown. Rates are by address, and by group."""

    snapshot: Snapshot
    brokers: Mapping[str, BrokerRates] = field(default_factory=dict)
    groups: Mapping[str, GroupRates] = field(default_factory=dict)

    def broker_rates(self, address: str) -> BrokerRates:
        """All None for one that is new."""
        return self.brokers.get(address, BrokerRates())

    def group_rates(self, name: str) -> GroupRates:
        """All None for one that is new."""
        return self.groups.get(name, GroupRates())

    @property
    def in_msgs(self) -> float | None:
        """Of all masters; what slaves copy is not sent to them."""
        return total(self.broker_rates(broker.address).in_msgs for broker in self.snapshot.brokers if broker.is_master)

    @property
    def out_msgs(self) -> float | None:
        """Of all brokers."""
        return total(rates.out_msgs for rates in self.brokers.values())


def rate(before: int, after: int, seconds: float) -> float | None:
    """Of a counter; None when it was not told (below 0), has begun anew, or no time has passed."""
    if seconds <= 0 or before < 0 or after < before:
        return None
    return (after - before) / seconds


def total(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; None when none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def picture(now: Snapshot, before: Snapshot | None, groups_before: Snapshot | None) -> Picture:
    """`groups_before` is the last snapshot whose groups were asked at another time than those of `now`."""
    return Picture(now, {} if before is None else broker_rates(before, now),
                   {} if groups_before is None else group_rates(groups_before, now))


def broker_rates(before: Snapshot, now: Snapshot) -> dict[str, BrokerRates]:
    """By address, of the brokers that answered both times and ran all the while."""
    known, seconds = before.by_address, now.at_s - before.at_s
    return {broker.address: _broker_rates(known[broker.address], broker, seconds) for broker in now.brokers
            if broker.address in known and not broker.error and not known[broker.address].error}


def _broker_rates(before: BrokerState, now: BrokerState, seconds: float) -> BrokerRates:
    if before.boot_ms != now.boot_ms:
        return BrokerRates()
    return BrokerRates(rate(before.put_total, now.put_total, seconds), rate(before.get_total, now.get_total, seconds),
                       rate(before.max_offset, now.max_offset, seconds))


def group_rates(before: Snapshot, now: Snapshot) -> dict[str, GroupRates]:
    """By group, over the queues that it had both times."""
    known, seconds = {group.name: group for group in before.groups}, now.groups_at_s - before.groups_at_s
    return {group.name: _group_rates(known[group.name], group, seconds)
            for group in now.groups if group.name in known}


def _group_rates(before: GroupState, now: GroupState, seconds: float) -> GroupRates:
    if seconds <= 0:
        return GroupRates()
    places = {(place.topic, place.broker, place.queue_id): place for place in before.places}
    pairs = [(places[key], place) for place in now.places
             if (key := (place.topic, place.broker, place.queue_id)) in places]
    consumed = sum(after.offset - earlier.offset for earlier, after in pairs) / seconds
    produced = sum(after.end - earlier.end for earlier, after in pairs) / seconds
    growth = sum(after.behind - earlier.behind for earlier, after in pairs) / seconds
    # an offset that was set back, or a topic made anew: no speed
    return GroupRates(consumed if consumed >= 0 else None, produced if produced >= 0 else None, growth)


def seconds_to_go(behind: int, growth: float | None) -> float | None:
    """When a backlog is gone, if it goes on to shrink as it does; None when it does not."""
    if behind <= 0:
        return 0.0
    return behind / -growth if growth is not None and growth < 0 else None


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """The last `width` values as bars between 0 and the greatest (or `top`); a gap for what is not known.

    All are at the right end: the newest value always stands in the same place.
    """
    shown = [real(value) for value in list(values)[-width:]] if width > 0 else []
    highest = max([value for value in shown if value is not None] + [top or 0], default=0)
    bars = "".join(" " if value is None else _bar(value, highest) for value in shown)
    return bars.rjust(max(width, 0))


def _bar(value: float, highest: float) -> str:
    if value <= 0 or highest <= 0:
        return _BARS[0]
    return _BARS[min(len(_BARS) - 1, 1 + int(value / highest * (len(_BARS) - 1.001)))]


IN, OUT, LOG, LAG, BEHIND, DISK = "in", "out", "log", "lag", "behind", "disk"
KINDS = (IN, OUT, LOG, LAG, BEHIND, DISK)
CLUSTER = ""  # the name under which sums of all brokers stand

Point = tuple[int, float | None]  # ms since 1970, value; None: not known then
Key = tuple[str, str]  # (kind, address or group)


class History:
    """At most `points` of each series, and at most `series` of these: a new one takes the place of the one that has
    been silent for longest, so that groups that come and go don't fill the memory."""

    def __init__(self, points: int = 900, series: int = 2_000) -> None:
        self.points = points
        self.series = series
        self._series: dict[Key, deque[Point]] = {}  # in the order of their last points; guarded by _lock
        self._lock = threading.Lock()

    def add(self, picture: Picture) -> None:
        """Take all values of a moment."""
        values = _values(picture)
        at_ms = picture.snapshot.at_ms
        with self._lock:
            for key, value in values.items():
                line = self._series.pop(key, None) or deque(maxlen=self.points)
                line.append((at_ms, value))
                self._series[key] = line
            while len(self._series) > self.series:
                del self._series[next(iter(self._series))]

    def line(self, kind: str, name: str, last: int | None = None) -> list[Point]:
        """A series, oldest first: all of it, or its last points; empty for one that is not there."""
        with self._lock:
            points = list(self._series.get((kind, name), ()))
        return points if last is None else points[-last:]

    def values(self, kind: str, name: str, last: int) -> list[float | None]:
        """The same without times."""
        return [value for _at, value in self.line(kind, name, last)]

    def __len__(self) -> int:
        return len(self._series)


def _values(picture: Picture) -> dict[Key, float | None]:
    now = picture.snapshot
    values: dict[Key, float | None] = {(BEHIND, group.name): group.behind
                                       for group in sorted(now.groups, key=lambda each: each.behind)}
    for broker in now.brokers:
        rates = picture.broker_rates(broker.address)
        values[IN, broker.address], values[OUT, broker.address] = rates.in_msgs, rates.out_msgs
        values[LOG, broker.address], values[DISK, broker.address] = rates.log_bytes, broker.disk_used
    for each in now.replication:
        for slave in each.slaves:
            values[LAG, slave.address] = slave.lag_bytes
    values[IN, CLUSTER], values[OUT, CLUSTER] = picture.in_msgs, picture.out_msgs
    values[BEHIND, CLUSTER] = sum(group.behind for group in now.groups)
    return values
