"""Snapshots of a cluster, the rates between two of them, and a bounded history of their values.

- `Snapshot`: a cluster at one moment, as its name servers and brokers reported it; immutable. Sizes and offsets are
  bytes of the commit log; times that end in `_ms` are ms since 1970 by this host's clock; `at_s` is monotonic. An
  unreported value becomes None, or -1 for a counter.
- `Collector`: queries the name servers and brokers. In each round it sends two requests to each broker (runtime table,
  replication), every 5 s two to each name server and one to each master (all groups; less often if that takes long, see
  `GroupPoll`), and every minute one for each broker's settings. It does not ask a broker that gave no answer again for
  3 s.
- `picture`, `seconds_to_go`: rates and growth from two snapshots, and the time to consume a backlog; pure functions.
- `History`: the values of the last minutes, for sparklines and charts, in bounded memory.
"""
import math
import threading
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from rmqha.common.texts import real, whole
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, chosen
from rmqha.tools.check_base import Status
from rmqha.tools.connection import NO_ACCOUNT, Account
from rmqha.tools.replication.ask import Look, Told, ask_all
from rmqha.tools.replication.judgement import Case, log_problems, name_of
from rmqha.tools.replication.reader import PATIENCE_S, Group, NameServers, ask_name_servers, told_slave, view_of
from rmqha.tools.replication.views import BrokerView, Fault, MasterView, SlaveView
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.group_poll import GroupPoll
from rmqha.tools.view.progress import GroupState as GroupState
from rmqha.tools.view.progress import QueuePlace as QueuePlace
from rmqha.tools.view.progress import group_states as group_states
from rmqha.tools.view.progress import is_system_group as is_system_group

_FILE_SIZE = 1 << 30


@dataclass
class BrokerState(BrokerView):
    """One broker with its figures; with `error`, why it did not answer, all others but its place are empty."""

    error: str = ""
    boot_ms: int = 0
    file_size: int = _FILE_SIZE  # of a file of its commit log
    put_total: int = -1  # messages received from producers
    get_total: int = -1  # messages delivered to consumers
    disk_used: float | None = None  # 0 to 1, of the file system of the commit log
    queue_disk_used: float | None = None  # the same for the consume queues
    disk_text: str = ""
    # Above it, files are deleted before their retention time.
    disk_limit: float | None = None
    # Bytes in the log that are not yet in the queues.
    dispatch_behind: int = 0
    to_flush: str = ""
    earliest_ms: int = -1  # store time of the oldest message
    send_queue: int = 0  # waiting requests
    pull_queue: int = 0
    latency_99: str = ""  # of puts, ms; "" when not reported
    flush: str = ""
    # Of the last mastership in its log; None if roles do not change.
    epoch: int | None = None
    # Reported by a master whose role can change: the ids of the replicas in sync, joined by commas.
    sync_state_set: str = ""

    @property
    def role_text(self) -> str:
        """The role, with the epoch if roles can change."""
        return self.role if self.epoch is None else f"{self.role}, epoch {self.epoch}"

    @property
    def is_master(self) -> bool:
        """True if its id is a master's."""
        return self.broker_id == 0

    @property
    def log_size(self) -> int:
        """The size of the log in bytes."""
        return max(0, self.max_offset - self.min_offset)

    @property
    def segments(self) -> int:
        """The number of files of the log."""
        if self.log_size <= 0 or self.file_size <= 0:
            return 0
        return (self.max_offset - 1) // self.file_size - self.min_offset // self.file_size + 1


@dataclass(frozen=True)
class Snapshot:
    """The state at one moment. `groups_at_s` is when the groups were asked, which is not done in each round; 0 before.
    """

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
    # False: the state of a slave needs another poll.
    settled: bool = True

    @property
    def by_address(self) -> dict[str, BrokerState]:
        """The brokers by address."""
        return {broker.address: broker for broker in self.brokers}

    @property
    def groups_known(self) -> bool:
        """False until the groups have been asked for the first time."""
        return self.groups_at_s > 0

    @cached_property
    def behind(self) -> int:
        """The number of unread messages of all groups."""
        return sum(group.behind for group in self.groups)

    @cached_property
    def _groups_by_name(self) -> dict[str, GroupState]:
        return {group.name: group for group in self.groups}

    def group(self, name: str) -> GroupState | None:
        """Return the group of a name, or None."""
        return self._groups_by_name.get(name)


def broker_state(told: Told) -> BrokerState:
    """Return the state of a broker from its config and runtime table."""
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
    """Return all faults of the brokers of one name, except those that its slaves' states imply."""
    faults = [*view.faults, *(Fault(Status.CRITICAL, f"{refused.address} is refused: {refused.reason}")
                              for refused in view.refused)]
    faults += [Fault(problem.status, problem.text.removeprefix(f"{name_of(view)}'s "))
               for problem in log_problems(view, view.slaves)]
    return [*faults, Fault(view.error_status, view.error)] if view.error else faults


def at_one_moment(view: MasterView) -> MasterView:
    """Return the view with a lag of 0 for healthy slaves that were asked after their master and so seem ahead of it."""
    for slave in view.slaves:
        if slave.lag_bytes is not None and slave.lag_bytes < 0 and slave.status is Status.OK:
            slave.lag_bytes, slave.lag_seconds, slave.in_sync = 0, 0.0, True
    return view


def _count(text: str | None, default: int = 0) -> int:
    return whole(text, default, least=0)


def _ratio(text: str | None) -> float | None:
    """Return a ratio from 0 to 1; None for -1, reported when the disk can't be checked."""
    return real(text, 0, 1)


NAMES_EVERY_S = 5.0
CONFIG_EVERY_S = 60.0
RETRY_S = 3.0
_SETTLING = "LOOKING"
# For how long earlier polls are kept, to detect a slave whose log does not grow.
_KEPT_S = 2 * PATIENCE_S


class Collector:
    """Makes snapshots, one after the other, on one thread; a context manager. `cluster`, `broker`: only these.

    It continues when a name server or a broker fails, and includes it again when it returns; the snapshot shows which
    are missing. `collect` raises CannotAnswerError only until the first name server has answered and lists what was
    requested.
    """

    def __init__(self, namesrv: str, timeout_ms: float, cluster: str | None = None, broker: str | None = None,
                 account: Account = NO_ACCOUNT) -> None:
        self._admin = ClusterAdmin(namesrv, timeout_ms, account.rpc_hook, account.tls)
        self._namesrv, self._cluster, self._broker = namesrv, cluster, broker
        self._names = NameServers()
        self._names_at_s = -NAMES_EVERY_S
        self._brokers: list[Broker] = []
        self._told: Look = {}
        # Monotonic: when a silent broker was last asked, and when a broker's settings were read.
        self._asked_s: dict[Broker, float] = {}
        self._config_s: dict[Broker, float] = {}
        self._looks: list[tuple[float, Look]] = []
        self.group_poll = GroupPoll(namesrv, timeout_ms, account)
        self._settled = True

    def __enter__(self) -> Self:
        self._admin.__enter__()
        self.group_poll.__enter__()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.group_poll.__exit__()
        self._admin.__exit__()

    def collect(self, ask_groups: bool = False) -> Snapshot:
        """Poll the cluster; takes at most about 4 times the time-out when many servers are silent.

        `ask_groups`: ask the groups even if they are not due yet, and wait for them.
        """
        begin = time.monotonic()
        self._list_brokers(begin)
        look_at_s = time.monotonic()
        look = self._look(look_at_s)
        self._settled = True
        replication = tuple(at_one_moment(view_of(group, self._judge, _nobody_tells)) for group in self._by_name())
        groups = self.group_poll.poll(self._asked_for_groups(look), ask_groups)
        return Snapshot(
            at_ms=round(time.time() * 1000), at_s=look_at_s,
            name_servers=tuple((address, self._names.errors.get(address, "")) for address in self._addresses()),
            brokers=tuple(broker_state(look[each]) for each in self._brokers), replication=replication,
            groups=groups.groups, groups_at_s=groups.at_s, groups_errors=groups.errors,
            faults=self._faults(), took_s=time.monotonic() - begin, settled=self._settled)

    # ---- the known brokers

    def _addresses(self) -> list[str]:
        return [part.strip() for part in self._namesrv.split(";") if part.strip()]

    def _list_brokers(self, now: float) -> None:
        """Ask the name servers when due; when none answers, keep polling the known brokers."""
        if self._brokers and now - self._names_at_s < NAMES_EVERY_S:
            return
        self._names_at_s = now
        try:
            names = ask_name_servers(self._admin)
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
        """Poll the brokers; one that was silent a moment ago is not asked, and keeps its last result."""
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
        """Return the brokers of each name, with the polls in which all of them answered."""
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
            slave.status, slave.state, slave.note = Status.UNKNOWN, _SETTLING, "its state is known in a few seconds"
            self._settled = False
        return slave

    # ---- the groups

    def _asked_for_groups(self, look: Look) -> list[str]:
        """Return the address that is asked for all groups of each broker name: its master's, or else a slave's."""
        chosen_of: dict[tuple[str, str], str] = {}
        for each in sorted(self._brokers, key=lambda broker: broker.broker_id):
            if look[each].answered:
                chosen_of.setdefault((each.cluster, each.name), each.address)
        return list(chosen_of.values())


def _nobody_tells(_ha_address: str, _master: Told) -> str | None:
    """Return None for the broker at another HA address: only `ha status` asks for that, since it takes time."""
    return None


def _has_restarted(before: Told, now: Told) -> bool:
    return now.table.get("bootTimestamp") != before.table.get("bootTimestamp")


def snapshot_pair(collector: Collector, seconds: float) -> tuple[Snapshot, Snapshot]:
    """Return two snapshots, for rates; repeat the second until the state of all slaves is known."""
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
    """Rates per second: messages in and out, and growth of the log in bytes; None if unknown, as after a restart."""

    in_msgs: float | None = None
    out_msgs: float | None = None
    log_bytes: float | None = None


@dataclass(frozen=True)
class GroupRates:
    """Rates in messages per second: consumed, sent to its topics, and growth of the lag (below 0: it shrinks)."""

    consumed: float | None = None
    produced: float | None = None
    growth: float | None = None


@dataclass(frozen=True)
class Picture:
    """A snapshot with its rates, ready for display. Rates are by address, and by group."""

    snapshot: Snapshot
    brokers: Mapping[str, BrokerRates] = field(default_factory=dict)
    groups: Mapping[str, GroupRates] = field(default_factory=dict)

    def broker_rates(self, address: str) -> BrokerRates:
        """Return the rates of a broker; all None for a new one."""
        return self.brokers.get(address, BrokerRates())

    def group_rates(self, name: str) -> GroupRates:
        """Return the rates of a group; all None for a new one."""
        return self.groups.get(name, GroupRates())

    @property
    def in_msgs(self) -> float | None:
        """The total for all masters; replication to slaves does not count."""
        return total(self.broker_rates(broker.address).in_msgs for broker in self.snapshot.brokers if broker.is_master)

    @property
    def out_msgs(self) -> float | None:
        """The total for all brokers."""
        return total(rates.out_msgs for rates in self.brokers.values())


def rate(before: int, after: int, seconds: float) -> float | None:
    """Return the rate of a counter; None when it was not reported (below 0), was reset, or no time has passed."""
    if seconds <= 0 or before < 0 or after < before:
        return None
    return (after - before) / seconds


def total(values: Iterable[float | None]) -> float | None:
    """Return the sum of the known values; None when all are unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def picture(now: Snapshot, before: Snapshot | None, groups_before: Snapshot | None) -> Picture:
    """Return a snapshot with its rates. `groups_before`: the last snapshot with other group data than `now`."""
    return Picture(now, {} if before is None else broker_rates(before, now),
                   {} if groups_before is None else group_rates(groups_before, now))


def broker_rates(before: Snapshot, now: Snapshot) -> dict[str, BrokerRates]:
    """Return the rates by address, of brokers that answered both times and did not restart."""
    known, seconds = before.by_address, now.at_s - before.at_s
    return {broker.address: _broker_rates(known[broker.address], broker, seconds) for broker in now.brokers
            if broker.address in known and not broker.error and not known[broker.address].error}


def _broker_rates(before: BrokerState, now: BrokerState, seconds: float) -> BrokerRates:
    if before.boot_ms != now.boot_ms:
        return BrokerRates()
    return BrokerRates(rate(before.put_total, now.put_total, seconds), rate(before.get_total, now.get_total, seconds),
                       rate(before.max_offset, now.max_offset, seconds))


def group_rates(before: Snapshot, now: Snapshot) -> dict[str, GroupRates]:
    """Return the rates by group, over the queues that it had both times."""
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
    # If an offset was reset or a topic created again, the rate is unknown.
    return GroupRates(consumed if consumed >= 0 else None, produced if produced >= 0 else None, growth)


def seconds_to_go(behind: int, growth: float | None) -> float | None:
    """Return the seconds until a backlog is consumed at its present rate; None when it does not shrink."""
    if behind <= 0:
        return 0.0
    return behind / -growth if growth is not None and growth < 0 else None


def sparkline(values: Sequence[float | None], width: int, top: float | None = None) -> str:
    """Return the last `width` values as bars between 0 and the greatest (or `top`), with gaps for unknown values.

    All are at the right end: the newest value is always in the same place.
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
CLUSTER = ""  # the name of the sums over all brokers

Point = tuple[int, float | None]  # ms since 1970, value; None: unknown
Key = tuple[str, str]  # (kind, address or group)


_COARSE_MS, _COARSE_POINTS = 60_000, 360


class _Line:
    """The last values of a series with their times, oldest first, in 16 bytes each: a ring of two arrays."""

    __slots__ = ("_begin", "_most", "_times", "_values")

    def __init__(self, most: int) -> None:
        self._most = most
        self._times, self._values = array("q"), array("d")  # NaN: unknown
        self._begin = 0  # of the ring, once it is full

    def append(self, at_ms: int, value: float | None) -> None:
        """Add a value, and remove the oldest if there are too many."""
        number = math.nan if value is None else float(value)
        if len(self._times) < self._most:
            self._times.append(at_ms)
            self._values.append(number)
            return
        self._times[self._begin], self._values[self._begin] = at_ms, number
        self._begin = (self._begin + 1) % self._most

    @property
    def last_ms(self) -> int:
        """The time of the last value."""
        return self._times[self._begin - 1]

    def points(self, last: int | None = None) -> list[Point]:
        """Return all values, or the last ones."""
        count = len(self._times)
        first = 0 if last is None else max(0, count - last)
        places = [(self._begin + number) % count for number in range(first, count)]
        return [(self._times[each], None if math.isnan(self._values[each]) else self._values[each])
                for each in places]


class History:
    """Values of the last minutes: at most `points` per series and `series` of these. A new series replaces the one that
    has been silent for longest, so that groups that come and go don't fill the memory.

    In addition one value per minute of each series is kept for six hours.
    """

    def __init__(self, points: int = 900, series: int = 2_000) -> None:
        self.points = points
        self.series = series
        self._coarse: dict[Key, _Line] = {}  # guarded by _lock
        # In the order of their last points; guarded by _lock.
        self._series: dict[Key, _Line] = {}
        self._lock = threading.Lock()

    def add(self, picture: Picture) -> None:
        """Add all values of a picture."""
        values = _values(picture, self.series)
        at_ms = picture.snapshot.at_ms
        with self._lock:
            for key, value in values.items():
                line = self._series.pop(key, None) or _Line(self.points)
                line.append(at_ms, value)
                self._series[key] = line
                self._add_coarse(key, at_ms, value)
            while len(self._series) > self.series:
                oldest = next(iter(self._series))
                del self._series[oldest], self._coarse[oldest]

    def _add_coarse(self, key: Key, at_ms: int, value: float | None) -> None:
        line = self._coarse.get(key)
        if line is None:
            line = self._coarse[key] = _Line(_COARSE_POINTS)
        elif at_ms - line.last_ms < _COARSE_MS:
            return
        line.append(at_ms, value)

    def line(self, kind: str, name: str, last: int | None = None) -> list[Point]:
        """Return a series, oldest first: all points or the last ones; empty for an unknown series."""
        with self._lock:
            line = self._series.get((kind, name))
            return [] if line is None else line.points(last)

    def range(self, kind: str, name: str, last_ms: int) -> list[Point]:
        """Return the points of the last `last_ms`, oldest first; one per minute before those that are kept in full."""
        with self._lock:
            line, coarse = self._series.get((kind, name)), self._coarse.get((kind, name))
            if line is None or coarse is None:
                return []
            fine, earlier = line.points(), coarse.points()
        begin_ms = fine[-1][0] - last_ms
        return [point for point in earlier if begin_ms <= point[0] < fine[0][0]] + [
            point for point in fine if point[0] >= begin_ms]

    def values(self, kind: str, name: str, last: int) -> list[float | None]:
        """Return the last values of a series, without times."""
        return [value for _at, value in self.line(kind, name, last)]

    def __len__(self) -> int:
        return len(self._series)


def _values(picture: Picture, most: int) -> dict[Key, float | None]:
    """Return the values by series, the groups first: at most `most`, those that are the furthest behind last.
    """
    now = picture.snapshot
    values: dict[Key, float | None] = {(BEHIND, group.name): group.behind
                                       for group in sorted(now.groups, key=lambda each: each.behind)[-most:]}
    for broker in now.brokers:
        rates = picture.broker_rates(broker.address)
        values[IN, broker.address], values[OUT, broker.address] = rates.in_msgs, rates.out_msgs
        values[LOG, broker.address], values[DISK, broker.address] = rates.log_bytes, broker.disk_used
    for each in now.replication:
        for slave in each.slaves:
            values[LAG, slave.address] = slave.lag_bytes
    values[IN, CLUSTER], values[OUT, CLUSTER] = picture.in_msgs, picture.out_msgs
    values[BEHIND, CLUSTER] = now.behind
    return values
