"""The state of replication, read from name servers, masters and slaves.

    name servers --lists--> brokers, all polled at once; undecided ones are polled again, until all is known
    polls --match--> connections of slaves --judge_slave--> MasterView

rmqha and 5.1.4 report each connection (request 907); rmqha adds states, times and refused slaves to its runtime table.
A 4.9 master reports nothing about its slaves: the listed ones are asked for their offsets, twice.

- `ask_name_servers`: asks each name server, since a dead or stale one must not speak for all.
- `first_difference`: compares records, the only bytes that a 4.9 broker returns on request. Each file of a commit log
  begins with a record, so two logs with files of the same size can be compared there without knowing any message. A
  difference is a proof; no difference is not: `rmqha store diff` compares everything.
- `differing`: settings that the replicas of one broker name should share; after a failover the new master uses its own.
- `cluster_options`, `controller_option`: command-line options that several replication commands share.
"""
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import nearest_key
from rmqha.common.mix_all import MASTER_ID, property_text
from rmqha.common.protocol.cluster_bodies import DepartedBroker
from rmqha.common.units import seconds_text
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.admin.cluster_admin import (
    DEFAULT_TIMEOUT_MS,
    Broker,
    ClusterAdmin,
    NoAnswerError,
    RefusedError,
    chosen,
    number,
    parsed_address,
)
from rmqha.tools.check_base import Status
from rmqha.tools.connection import namesrv_option
from rmqha.tools.replication.ask import Look, Told, ask_all, in_parallel
from rmqha.tools.replication.controllers import Controllers, controller_faults, faults_of
from rmqha.tools.replication.judgement import Case, Connection, Matches, Whose, judge_own_connection, judge_slave, match
from rmqha.tools.replication.views import (
    DEFAULT_FALLBEHIND_MAX,
    Fault,
    MasterView,
    Reading,
    RefusedView,
    SlaveView,
    scrub_view,
)
from rmqha.tools.terminal import CannotAnswerError, duration_type


@dataclass
class NameServers:
    """The brokers that each name server lists, by its address; `errors` of those that did not answer."""

    lists: dict[str, set[Broker]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    # Those that any of the name servers misses.
    departed: set[DepartedBroker] = field(default_factory=set)

    @property
    def brokers(self) -> list[Broker]:
        """All brokers that any name server lists, sorted."""
        return sorted(set().union(*self.lists.values()))

    def missing(self) -> list[tuple[DepartedBroker, Fault]]:
        """Return brokers that are missing, or replaced by another one with the same id, each with its fault."""
        places = {(each.cluster, each.name, each.broker_id): each.address for each in self.brokers}
        found = []
        for each in sorted(self.departed):
            there = places.get((each.cluster, each.name, each.broker_id))
            who = f"{each.name}, id {each.broker_id},"
            if each.since_ms >= 0 and there is None:
                found.append((each, Fault(Status.CRITICAL, f"{who} at {each.address} disappeared without unregistering "
                                          f"{seconds_text(each.since_ms / 1000)} ago", each.address)))
            elif each.since_ms < 0 and there not in (None, each.address):
                found.append((each, Fault(Status.CRITICAL, f"{who} is registered by {each.address} and by {there}: two "
                                          "brokers with the same brokerName and brokerId", each.address)))
        return found

    def faults(self) -> list[Fault]:
        """Return the faults: name servers that do not answer, and differences between their lists."""
        found = [Fault(Status.WARNING, error) for error in self.errors.values()]
        everything = self.brokers
        for address, listed in self.lists.items():
            found += [Fault(Status.WARNING, f"name server {address} does not know {each.name} {each.broker_id} at "
                            f"{each.address}, but another one does") for each in everything if each not in listed]
        return found


def ask_name_servers(admin: ClusterAdmin) -> NameServers:
    """Ask all name servers of `admin` at once; raise one's error when none answers."""
    timeout_ms = admin.timeout_millis
    addresses = [part.strip() for part in (admin.namesrv_addr or "").split(";") if part.strip()]
    answers = in_parallel(lambda address: _listed(admin, address), addresses, timeout_ms, lambda address: (
        NoAnswerError(f"name server {address} did not answer within {timeout_ms / 1000:g} s")))
    asked = NameServers()
    for address, answer in answers.items():
        if isinstance(answer, CannotAnswerError):
            asked.errors[address] = answer.message
        else:
            asked.lists[address], departed = answer
            asked.departed |= departed
    if not asked.lists:
        raise next(answer for answer in answers.values() if isinstance(answer, CannotAnswerError))
    return asked


def _listed(like: ClusterAdmin, address: str) -> tuple[set[Broker], set[DepartedBroker]] | CannotAnswerError:
    try:
        with like.another(address) as admin:
            return set(admin.brokers()), set(admin.fetch_departed_brokers())
    except CannotAnswerError as error:
        return error


def same_ids(brokers: list[Broker]) -> dict[tuple[str, str, int], set[str]]:
    """Return each (cluster, name, id) that is listed with several addresses."""
    places: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for each in brokers:
        places[each.cluster, each.name, each.broker_id].add(each.address)
    return {key: addresses for key, addresses in places.items() if len(addresses) > 1}


_FILE_SIZE = 1 << 30  # bytes, by default


def sample_offsets(master: Told, slave: Told) -> list[int]:
    """Return the start offsets of the first and the last file whose beginning both hold."""
    size = master.setting("mappedFileSizeCommitLog", _FILE_SIZE)
    end = min(master.max_offset, slave.max_offset)
    if size <= 0 or slave.setting("mappedFileSizeCommitLog", _FILE_SIZE) != size or end <= 0:
        return []
    last = (end - 1) // size * size
    first = -(-max(master.min_offset, slave.min_offset) // size) * size
    return sorted({first, last}) if first <= last else []


def first_difference(admin: ClusterAdmin, master: Told, slave: Told, deadline: float) -> int | None:
    """Return the lowest sample offset at which the two logs differ.

    None when they do not differ there, when a broker can't be asked, or after `deadline`, a monotonic time.
    """
    for offset in sample_offsets(master, slave):
        if time.monotonic() > deadline:
            return None
        try:
            records = [admin.view_record(told.broker.address, offset) for told in (slave, master)]
        except CannotAnswerError:
            return None
        if records[0] != records[1]:
            return offset
    return None


# Settings that decide on how many disks an acknowledged message is, when a replica leaves the sync-state set, and what
# a log holds.
SHARED = ("minInSyncReplicas", "inSyncReplicas", "totalReplicas", "allAckInSyncStateSet", "enableAutoInSyncReplicas",
          "haMaxTimeSlaveNotCatchup", "haMaxGapNotInSync", "haSlaveFallbehindMax", "slaveTimeout", "flushDiskType",
          "syncFlushTimeout", "haSlaveAckAfterFlush", "controllerLease", "enableControllerMode", "controllerAddr",
          "masterAddress", "maxMessageSize", "messageDelayLevel", "fileReservedTime")
ADVICE = ("set them to the same value on all replicas: mqadmin updateBrokerConfig with -b HOST:PORT for each one (-c "
          "reaches only the current master), or edit each replica's file and restart it")

Config = Mapping[str, str]


def roles_change(configs: Sequence[Config]) -> bool:
    """Return whether replicas with these settings change roles at run time."""
    return any("true" in (config.get("enableControllerMode"), config.get("enableAutoSwitchHA")) for config in configs)


def differing(configs: Mapping[str, Config]) -> list[str]:
    """Describe each shared setting that differs: `key=2 at A and B, 1 at C`. `configs` are the settings that each
    address reports; a missing key means its default."""
    found = []
    for key in SHARED:
        places: dict[str, list[str]] = {}
        for address, config in sorted(configs.items()):
            if config:
                value = config.get(key, _DEFAULTS[key])
                # A set: the order of the addresses does not matter.
                if key == "controllerAddr":
                    value = ";".join(sorted(part.strip() for part in value.split(";") if part.strip()))
                places.setdefault(value, []).append(address)
        if len(places) > 1:
            first, *others = sorted(places.items(), key=lambda each: (-len(each[1]), each[0]))
            found.append(", ".join([f"{key}={first[0] or '(not set)'} at {' and '.join(first[1])}",
                                    *(f"{value or 'not set'} at {' and '.join(where)}" for value, where in others)]))
    return found


def _defaults() -> dict[str, str]:
    values = {key: getattr(config, item.name) for config in (BrokerConfig(), MessageStoreConfig())
              for key, item in config_keys(type(config)).items() if key in SHARED}
    return {key: property_text(value) for key, value in values.items()}


_DEFAULTS = _defaults()


_REFUSED = "haRefusedSlave_"
_LOOK_AGAIN_S = 0.5
# Time for a log to grow.
PATIENCE_S = 3.0
# Time for a probe to arrive: a 4.9 slave that has lost its master reconnects every 5 s.
PROBE_PATIENCE_S = 10.0


@dataclass
class Group:
    """The brokers of one name, as the name servers list them."""

    brokers: list[Broker]
    # False: one broker was given by its address, and the others were not asked for.
    listed: bool = True
    looks: list[Look] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # monotonic s, the start of each poll
    faults: list[Fault] = field(default_factory=list)
    # The offset of the probe in the master's log; None: none was sent.
    probe_offset: int | None = None

    @property
    def masters(self) -> list[Broker]:
        """The brokers with a master's id."""
        return [each for each in self.brokers if each.is_master]

    @property
    def slaves(self) -> list[Broker]:
        """The brokers with a slave's id."""
        return [each for each in self.brokers if not each.is_master]


class Reader:
    """Reads groups. `probe(master)` sends it one message and returns its offset; None: send no probes.

    A probe decides the state of slaves that neither side reports.
    """

    def __init__(self, admin: ClusterAdmin, patience_s: float = PATIENCE_S,
                 probe: Callable[[Broker], int] | None = None, probe_patience_s: float = PROBE_PATIENCE_S) -> None:
        self._admin = admin
        self._patience_s = patience_s
        self._probe = probe
        self._probe_patience_s = probe_patience_s
        self._whose: dict[str, str | None] = {}
        # Monotonic s: the limit for questions that are asked topic by topic.
        self._times_until = 0.0

    def read(self, groups: Sequence[Group]) -> list[MasterView]:
        """Poll the brokers and return a view for each group."""
        begin = time.monotonic()
        first = ask_all(self._admin, [each for group in groups for each in group.brokers])
        for group in groups:
            group.looks.append({each: first[each] for each in group.brokers})
            group.times.append(begin)
        self._look_again(groups, self._patience_s if self._probe is None else 0)
        if self._probe is not None:
            self._probe_and_look(groups, self._probe)
        self._times_until = time.monotonic() + self._admin.timeout_millis / 1000
        views = [self._view(group) for group in groups]
        masters = {view.name for view in views if view.address}
        for view in views:
            near = nearest_key(view.name, masters) if not view.address else None
            view.error += f"; did you mean {near}?" if near is not None else ""
        return views

    def _probe_and_look(self, groups: Sequence[Group], probe: Callable[[Broker], int]) -> None:
        """Send a message to each master with undecided slaves: a slave that does not receive it does not replicate."""
        probed = [group for group in groups if self._undecided(group)]
        for group in probed:
            try:
                group.probe_offset = probe(group.masters[0])
            except CannotAnswerError as error:
                group.faults.append(Fault(Status.WARNING, f"the probe failed: {error.message}"))
        if probed:
            self._look_again(probed, self._probe_patience_s, 1 + max(len(group.looks) for group in probed))

    def _look_again(self, groups: Sequence[Group], patience_s: float, least: int = 2) -> None:
        """Poll until all is known, or `patience_s` has passed and each group was polled `least` times."""
        deadline = time.monotonic() + patience_s
        while undecided := [group for group in groups if self._undecided(group)]:
            late = time.monotonic() >= deadline
            if late and all(len(group.looks) >= least for group in undecided):
                return
            time.sleep(0 if late else _LOOK_AGAIN_S)
            before = {broker: told for group in undecided for broker, told in group.looks[-1].items()}
            answering = [broker for broker, told in before.items() if told.answered]
            begin = time.monotonic()
            look = ask_all(self._admin, answering, before)
            for group in undecided:
                group.times.append(begin)
                group.looks.append({each: look.get(each, before[each]) for each in group.brokers})

    def _undecided(self, group: Group) -> bool:
        if not group.masters or not group.looks[-1][group.masters[0]].answered:
            return False
        found = match(group.looks, group.masters[0], group.slaves)
        return found.unsure or any(_case(group, each, found, self._who_serves).is_undecided for each in group.slaves)

    def _view(self, group: Group) -> MasterView:
        return view_of(group, self._slave, self._who_serves)

    def _slave(self, case: Case, view: MasterView, times: Sequence[float]) -> SlaveView:
        """Return the view of a listed slave, with the results of further questions."""
        slave, told = told_slave(case, view, times), case.told
        if told.answered and slave.status is not Status.CRITICAL:
            differs = first_difference(self._admin, case.master_told, told, self._times_until)
            if differs is not None:
                slave.judge(Status.CRITICAL, "DIVERGED", f"its record at offset {differs} differs from its master's")
        if told.answered and slave.lag_seconds is None and (slave.lag_bytes or 0) > 0:
            slave.lag_seconds = _lag_seconds(self._admin, view, case.slave, self._times_until)
        return slave

    def _who_serves(self, ha_address: str, master: Told) -> str | None:
        """Return the broker at a HA address: "" for the master itself, None if unknown. Asks the port one below."""
        key = f"{ha_address} {master.broker.address}"
        if key not in self._whose:
            self._whose[key] = self._ask_who(ha_address, master)
        return self._whose[key]

    def _ask_who(self, ha_address: str, master: Told) -> str | None:
        try:
            host, port = parsed_address(ha_address, "haMasterAddress")
            address = f"{host}:{port - 1}"
            config = self._admin.get_broker_config(address)
        except CannotAnswerError:
            return None
        keys = ("brokerClusterName", "brokerName", "brokerId", "storePathRootDir")
        who = [tuple(each.get(key) for key in keys) for each in (config, master.config)]
        return "" if who[0] == who[1] else f"{who[0][1]} {who[0][2]} at {address}"


JudgeSlave = Callable[[Case, MasterView, Sequence[float]], SlaveView]


def view_of(group: Group, judge: JudgeSlave, whose: Whose) -> MasterView:
    """Return the view of a group by its polls; `judge` returns the view of each listed slave."""
    now = group.looks[-1]
    if not group.masters:
        first = group.slaves[0]
        waiting = [each.address for each in group.slaves if now[each].answered and now[each].waits_for_role]
        view = MasterView(first.cluster, first.name, "", error="no master of this name is registered" + (
            f"; {' and '.join(waiting)} wait{'s' if len(waiting) == 1 else ''} for a role" if waiting else ""))
    else:
        view = master_view(now[group.masters[0]])
    view.faults += _faults(group)
    configs = {broker.address: told.config for broker, told in now.items() if told.answered}
    if roles_change(list(configs.values())):
        view.faults += [Fault(Status.WARNING, f"settings differ: {text}", todo=ADVICE)
                        for text in differing(configs)]
    if view.error:
        view.slaves = [_slave_without_master(now[each]) for each in group.slaves]
        return view
    found = match(group.looks, group.masters[0], group.slaves)
    for slave in group.slaves:
        view.slaves.append(judge(_case(group, slave, found, whose), view, group.times))
    view.slaves += [_stranger(each, view, group) for each in found.left]
    if not group.listed and not view.slaves and not now[group.masters[0]].info and view.follows is None:
        view.note = "this broker does not report its slaves; give the name server (-n) to ask those that it lists"
    return view


def told_slave(case: Case, view: MasterView, times: Sequence[float]) -> SlaveView:
    """Return the view of a listed slave from its own and its master's answers, without further questions."""
    slave, told = SlaveView(case.slave.address, case.slave.broker_id), case.told
    if told.answered:
        slave.set_offset(told.max_offset, view.max_offset, view.fallbehind_max)
        slave.note, slave.scrub = told.table.get("haClientLastError", ""), scrub_view(told)
    else:
        slave.in_sync = False
    if case.connection is not None:
        _set_connection(slave, case.connection, view)
    judge_slave(case, slave)
    if slave.lag_bytes is not None and slave.lag_bytes < 0:
        slave.lag_seconds, slave.in_sync = None, False
    elif told.answered and slave.lag_seconds is None:
        slave.lag_seconds = _at_most_behind_s(case, times)
    return slave


def _case(group: Group, slave: Broker, found: Matches, whose: Whose) -> Case:
    return Case(slave, group.masters[0], group.looks, found.connections.get(slave), slave in found.maybe, whose,
                group.probe_offset)


def read_group(admin: ClusterAdmin, brokers: list[Broker], patience_s: float = PATIENCE_S) -> MasterView:
    """Return the view of the brokers of one name, as the name server lists them."""
    return Reader(admin, patience_s).read([Group(brokers)])[0]


def read_broker(admin: ClusterAdmin, broker: Broker) -> MasterView:
    """Return the view of one broker that is asked alone."""
    return Reader(admin).read([Group([broker], listed=False)])[0]


def master_view(told: Told) -> MasterView:
    """Return the view of a broker by its own answers, without its slaves."""
    broker, config = told.broker, told.config
    view = MasterView(broker.cluster, broker.name, broker.address, broker.broker_id)
    if not told.answered:
        view.error, view.error_status = told.error, Status.UNKNOWN if told.alive else Status.CRITICAL
        return view
    view.cluster = view.cluster or config.get("brokerClusterName", "")
    view.role = config.get("brokerRole", "")
    view.broker_id = told.setting("brokerId", broker.broker_id)
    view.fallbehind_max = told.setting("haSlaveFallbehindMax", DEFAULT_FALLBEHIND_MAX)
    view.version = told.table.get("brokerVersionDesc", "")
    view.min_offset, view.max_offset = told.min_offset, told.max_offset
    view.wanted_slaves = max(told.setting("totalReplicas", 1), told.setting("inSyncReplicas", 1),
                             2 if view.role == "SYNC_MASTER" else 1) - 1
    if told.role == "SLAVE":
        view.follows = _followed(told)
    if told.info is not None:
        view.max_offset = max(view.max_offset, told.info.masterCommitLogMaxOffset)
    view.refused = _refused(told)
    if view.name and config.get("brokerName", view.name) != view.name:
        view.faults.append(Fault(Status.CRITICAL, f"broker {config['brokerName']} answers at {broker.address}, not "
                                 f"{view.name}: the name server's list is stale, or two brokers register one address"))
    elif view.name and told.role == "SLAVE" and broker.broker_id == MASTER_ID:
        view.faults.append(Fault(Status.CRITICAL, f"{broker.address} is listed as the master, and "
                                 + ("waits for a role" if told.waits_for_role else "its brokerRole is SLAVE")
                                 + ": it refuses messages"))
    view.name = view.name or config.get("brokerName", "")
    return view


def _faults(group: Group) -> list[Fault]:
    return group.faults + [
        Fault(Status.CRITICAL, f"{name} {broker_id} is listed at {' and '.join(sorted(addresses))}: two brokers with "
              "the same brokerName and brokerId")
        for (_cluster, name, broker_id), addresses in same_ids(group.brokers).items()]


def _followed(told: Told) -> SlaveView:
    """Return the connection of a slave to its master, as the slave reports it."""
    client = told.info.haClientRuntimeInfo if told.info is not None and not told.info.master else None
    view = SlaveView(told.follows, state=told.table.get("haClientState", "UNKNOWN"), ack_offset=told.max_offset,
                     rate=client.transferredByteInSecond if client is not None else None,
                     note=told.table.get("haClientLastError", ""), scrub=scrub_view(told))
    judge_own_connection(told, view)
    return view


def _set_connection(slave: SlaveView, connection: Connection, view: MasterView) -> None:
    info = connection.info
    slave.connection, slave.state, slave.rate = connection.address, connection.state, info.transferredByteInSecond
    slave.in_sync = info.inSync
    if info.slaveAckOffset >= 0:
        slave.lag_seconds = None
        slave.set_offset(info.slaveAckOffset, info.slaveAckOffset + info.diff, view.fallbehind_max)
    if connection.lag_ms is not None and slave.lag_bytes:
        slave.lag_seconds = connection.lag_ms / 1000


def _stranger(connection: Connection, view: MasterView, group: Group) -> SlaveView:
    """Return the view of a connection that belongs to no listed slave."""
    slave = SlaveView(connection.address)
    _set_connection(slave, connection, view)
    slave.registered, slave.counts = not group.listed, bool(connection.identity)
    who = f"slave {connection.identity}" if connection.identity else "slave, or a receiver"
    if group.listed:
        slave.judge(Status.WARNING, connection.state, f"a {who} that the name server does not list")
    elif not connection.identity:
        slave.judge(Status.UNKNOWN, connection.state, "a slave or a receiver; give the name server (-n), which lists "
                    "the slaves")
    return slave


def _slave_without_master(told: Told) -> SlaveView:
    slave = SlaveView(told.broker.address, told.broker.broker_id)
    if not told.answered:
        slave.judge(Status.UNKNOWN if told.alive else Status.CRITICAL, "NOT_TOLD" if told.alive else "UNREACHABLE",
                    told.error)
        return slave
    slave.ack_offset, slave.scrub = told.max_offset, scrub_view(told)
    slave.judge(Status.CRITICAL, told.table.get("haClientState", "NOT_CONNECTED"),
                told.table.get("haClientLastError") or "its master does not answer")
    return slave


def _refused(told: Told) -> list[RefusedView]:
    """Return the refused slaves in a runtime table, see ha_service: `haRefusedSlave_HOST_OFFSET` = 3 or 4 offsets."""
    refused, names = [], ("slaveOffset", "masterMinOffset", "masterMaxOffset", "sameUpTo")
    for key, value in sorted(told.table.items()):
        if key.startswith(_REFUSED):
            address = key.removeprefix(_REFUSED).rpartition("_")[0]
            offsets = dict(zip(names, value.split(",")))
            refused.append(RefusedView(address, *(number(offsets, name, told.broker.address, -1) for name in names)))
    return refused


def _at_most_behind_s(case: Case, times: Sequence[float]) -> float | None:
    """Return an upper bound of the lag in s: the slave holds what its master held at an earlier poll."""
    held = [number for number, wanted in enumerate(case.wanted[:-1]) if wanted <= case.held[-1]]
    return times[-1] - times[held[-1]] if held else None


def _lag_seconds(admin: ClusterAdmin, view: MasterView, slave: Broker, deadline: float) -> float | None:
    """Return the lag in s by the newest messages of both; None when one can't be asked, or not in time."""
    try:
        behind = admin.newest_store_timestamp(slave.address, deadline)
        newest = admin.newest_store_timestamp(view.address, deadline) if behind is not None else None
    except (NoAnswerError, RefusedError):
        return None
    return max(newest - behind, 0) / 1000 if newest is not None and behind is not None else None


F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(command: F) -> F:
    """Add --namesrv, --broker, --cluster and --timeout."""
    for option in (
            click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
                         type=duration_type(0.1, 600), help="How long to wait for each answer."),
            click.option("-c", "--cluster", help="Show only the brokers of this cluster."),
            click.option("-b", "--broker", help="Show only this broker: its name, or its host:port."),
            namesrv_option):
        command = option(command)
    return command


def controller_option(command: F) -> F:
    """Add --controller."""
    return click.option("--controller", metavar="HOST:PORT",
                        help="Controllers of automatic failover, separated by semicolons; by default those in the "
                             "brokers' configuration.")(command)


def read_replication(admin: ClusterAdmin, cluster: str | None, broker: str | None, probe: bool = False,
                     controllers: Sequence[str] = ()) -> Reading:
    """Return the state of replication at the selected brokers; without a name server only one address is asked.

    `controllers` are asked in addition to those that the brokers name.
    """
    reader = Reader(admin, probe=admin.put_probe if probe else None)
    if not admin.namesrv_addr:
        if broker is None or ":" not in broker:
            raise CannotAnswerError("give a name server with -n host:port, or a broker's address with -b host:port")
        if cluster is not None:
            raise CannotAnswerError("--cluster needs the name server: give it with -n host:port")
        return _read(admin, reader, [Group([Broker("", "", 0, broker)], listed=False)], controllers, [])
    name_servers = ask_name_servers(admin)
    groups: dict[tuple[str, str], Group] = {}
    for each in chosen(name_servers.brokers, cluster, broker):
        groups.setdefault((each.cluster, each.name), Group([])).brokers.append(each)
    faults = name_servers.faults()
    for missing, fault in name_servers.missing():
        group = groups.get((missing.cluster, missing.name))
        if group is not None:
            group.faults.append(fault)
        elif cluster in (None, missing.cluster) and broker in (None, missing.name, missing.address):
            faults.append(fault)  # the last one of its name
    return _read(admin, reader, list(groups.values()), controllers, faults)


def _read(admin: ClusterAdmin, reader: Reader, groups: list[Group], given: Sequence[str],
          faults: list[Fault]) -> Reading:
    views, controllers = reader.read(groups), Controllers(admin, given)
    for group, view in zip(groups, views, strict=True):
        told = group.looks[-1].values()
        view.failover = controllers.look(view.name, told)
        if view.failover is not None:
            view.faults += faults_of(view.failover, view.name, view.address, told) if group.listed else (
                controller_faults(view.failover.controllers))
    return Reading(views, faults)
