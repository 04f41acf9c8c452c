"""How replication stands, put together from what name servers, masters and slaves tell.

    name servers --lists--> brokers, all asked at once --look--> what nobody tells is looked at again, until it is known
    looks --match--> connections of slaves --judge_slave--> MasterView

rmqha and 5.1.4 tell each connection (request 907); rmqha adds states, times and refused slaves to its runtime table.
A 4.9 master tells nothing of its slaves: those that the name server lists are asked how far they are, twice.
"""
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rmqha.common.configuration import nearest_key
from rmqha.common.mix_all import MASTER_ID
from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.answers import Look, Told, ask_all
from rmqha.tools.ha.broker_admin import (
    Broker,
    BrokerAdmin,
    NoAnswerError,
    RefusedError,
    ReplicationToolError,
    number,
    parsed_address,
)
from rmqha.tools.ha.evidence import Case, Whose, judge_own_connection, judge_slave
from rmqha.tools.ha.matching import Connection, Matches, match
from rmqha.tools.ha.name_servers import same_ids
from rmqha.tools.ha.replica_settings import ADVICE as SETTINGS_ADVICE
from rmqha.tools.ha.replica_settings import differing, roles_change
from rmqha.tools.ha.samples import first_difference
from rmqha.tools.ha.scrub_view import scrub_view
from rmqha.tools.ha.views import DEFAULT_FALLBEHIND_MAX, Fault, MasterView, RefusedView, SlaveView

_REFUSED = "haRefusedSlave_"
_LOOK_AGAIN_S = 0.5
PATIENCE_S = 3.0  # for a log to go on
PROBE_PATIENCE_S = 10.0  # for a probe to arrive: a slave of 4.9 that has lost its master looks for it each 5 s


@dataclass
class Group:
    """The brokers of one name, as the name servers list them."""

    brokers: list[Broker]
    listed: bool = True  # False: one broker was given by its address, nobody was asked for the others
    looks: list[Look] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # monotonic s, when each look began
    faults: list[Fault] = field(default_factory=list)
    probe_offset: int | None = None  # where the probe is in the master's log; None: none was sent

    @property
    def masters(self) -> list[Broker]:
        """Those with a master's id."""
        return [each for each in self.brokers if each.is_master]

    @property
    def slaves(self) -> list[Broker]:
        """The others."""
        return [each for each in self.brokers if not each.is_master]


class Reader:
    """Reads groups. `probe(master)` sends it one message, for slaves of which nobody tells, and gives its offset; None:
    not wanted."""

    def __init__(self, admin: BrokerAdmin, patience_s: float = PATIENCE_S,
                 probe: Callable[[Broker], int] | None = None, probe_patience_s: float = PROBE_PATIENCE_S) -> None:
        self._admin = admin
        self._patience_s = patience_s
        self._probe = probe
        self._probe_patience_s = probe_patience_s
        self._whose: dict[str, str | None] = {}
        self._times_until = 0.0  # monotonic s: for questions that are asked topic by topic

    def read(self, groups: Sequence[Group]) -> list[MasterView]:
        """A view for each group."""
        begin = time.monotonic()
        first = ask_all(self._admin, [each for group in groups for each in group.brokers])
        for group in groups:
            group.looks.append({each: first[each] for each in group.brokers})
            group.times.append(begin)
        self._look_again(groups, self._patience_s if self._probe is None else 0)
        if self._probe is not None:
            self._probe_and_look(groups, self._probe)
        self._times_until = time.monotonic() + self._admin.timeout_ms / 1000
        views = [self._view(group) for group in groups]
        masters = {view.name for view in views if view.address}
        for view in views:
            near = nearest_key(view.name, masters) if not view.address else None
            view.error += f"; is {near} meant?" if near is not None else ""
        return views

    def _probe_and_look(self, groups: Sequence[Group], probe: Callable[[Broker], int]) -> None:
        """A message to each master of which too little is known; its slaves get it, or do not replicate."""
        probed = [group for group in groups if self._undecided(group)]
        for group in probed:
            try:
                group.probe_offset = probe(group.masters[0])
            except ReplicationToolError as error:
                group.faults.append(Fault(Status.WARNING, f"the probe failed: {error.message}"))
        if probed:
            self._look_again(probed, self._probe_patience_s, 1 + max(len(group.looks) for group in probed))

    def _look_again(self, groups: Sequence[Group], patience_s: float, least: int = 2) -> None:
        """Look until all is known, or the patience is at its end and each group has had `least` looks."""
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
        """A slave that the name server lists, with what further questions tell."""
        slave, told = told_slave(case, view, times), case.told
        if told.answered and slave.status is not Status.CRITICAL:
            differs = first_difference(self._admin, case.master_told, told, self._times_until)
            if differs is not None:
                slave.judge(Status.CRITICAL, "DIVERGED", f"its record at {differs} is not its master's")
        if told.answered and slave.lag_seconds is None and (slave.lag_bytes or 0) > 0:
            slave.lag_seconds = _lag_seconds(self._admin, view, case.slave, self._times_until)
        return slave

    def _who_serves(self, ha_address: str, master: Told) -> str | None:
        """Whose HA address that is: "" the master's own, None when nobody tells; asked at the port below."""
        key = f"{ha_address} {master.broker.address}"
        if key not in self._whose:
            self._whose[key] = self._ask_who(ha_address, master)
        return self._whose[key]

    def _ask_who(self, ha_address: str, master: Told) -> str | None:
        try:
            host, port = parsed_address(ha_address, "haMasterAddress")
            address = f"{host}:{port - 1}"
            config = self._admin.config(address)
        except ReplicationToolError:
            return None
        keys = ("brokerClusterName", "brokerName", "brokerId", "storePathRootDir")
        who = [tuple(each.get(key) for key in keys) for each in (config, master.config)]
        return "" if who[0] == who[1] else f"{who[0][1]} {who[0][2]} at {address}"


JudgeSlave = Callable[[Case, MasterView, Sequence[float]], SlaveView]


def view_of(group: Group, judge: JudgeSlave, whose: Whose) -> MasterView:
    """A group by the looks that were taken; `judge` gives what is said of each slave that is listed."""
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
        view.faults += [Fault(Status.WARNING, f"settings differ: {text}", todo=SETTINGS_ADVICE)
                        for text in differing(configs)]
    if view.error:
        view.slaves = [_slave_without_master(now[each]) for each in group.slaves]
        return view
    found = match(group.looks, group.masters[0], group.slaves)
    for slave in group.slaves:
        view.slaves.append(judge(_case(group, slave, found, whose), view, group.times))
    view.slaves += [_stranger(each, view, group) for each in found.left]
    if not group.listed and not view.slaves and not now[group.masters[0]].info and view.follows is None:
        view.note = "this broker tells nothing of its slaves; those at the name server are asked (-n)"
    return view


def told_slave(case: Case, view: MasterView, times: Sequence[float]) -> SlaveView:
    """A slave that the name server lists, by what it and its master have told; asks nobody."""
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


def read_group(admin: BrokerAdmin, brokers: list[Broker], patience_s: float = PATIENCE_S) -> MasterView:
    """The brokers of one name, as the name server lists them."""
    return Reader(admin, patience_s).read([Group(brokers)])[0]


def read_broker(admin: BrokerAdmin, broker: Broker) -> MasterView:
    """One broker, asked alone."""
    return Reader(admin).read([Group([broker], listed=False)])[0]


def master_view(told: Told) -> MasterView:
    """What a broker tells of itself; its slaves are added by others."""
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
        view.faults.append(Fault(Status.CRITICAL, f"at {broker.address} {config['brokerName']} answers, not "
                                 f"{view.name}: the name server's list is stale, or two brokers register one address"))
    elif view.name and told.role == "SLAVE" and broker.broker_id == MASTER_ID:
        view.faults.append(Fault(Status.CRITICAL, f"{broker.address} is listed as the master, and "
                                 + ("waits for a role" if told.waits_for_role else "its brokerRole is SLAVE")
                                 + ": it refuses what is sent"))
    view.name = view.name or config.get("brokerName", "")
    return view


def _faults(group: Group) -> list[Fault]:
    return group.faults + [
        Fault(Status.CRITICAL, f"{name} {broker_id} is listed at {' and '.join(sorted(addresses))}: two brokers of one "
              "brokerName and brokerId")
        for (_cluster, name, broker_id), addresses in same_ids(group.brokers).items()]


def _followed(told: Told) -> SlaveView:
    """A slave's own side of its connection."""
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
    """A connection of which no listed slave knows."""
    slave = SlaveView(connection.address)
    _set_connection(slave, connection, view)
    slave.registered, slave.counts = not group.listed, bool(connection.identity)
    who = f"slave {connection.identity}" if connection.identity else "slave, or a receiver"
    if group.listed:
        slave.judge(Status.WARNING, connection.state, f"a {who} that the name server does not list")
    elif not connection.identity:
        slave.judge(Status.UNKNOWN, connection.state, "a slave or a receiver: give the name server (-n), which knows "
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
                told.table.get("haClientLastError") or "its master gives no answer")
    return slave


def _refused(told: Told) -> list[RefusedView]:
    """The refused slaves in a runtime table, see ha_status: `haRefusedSlave_HOST_OFFSET` = three offsets, or four."""
    refused, names = [], ("slaveOffset", "masterMinOffset", "masterMaxOffset", "sameUpTo")
    for key, value in sorted(told.table.items()):
        if key.startswith(_REFUSED):
            address = key.removeprefix(_REFUSED).rpartition("_")[0]
            offsets = dict(zip(names, value.split(",")))
            refused.append(RefusedView(address, *(number(offsets, name, told.broker.address, -1) for name in names)))
    return refused


def _at_most_behind_s(case: Case, times: Sequence[float]) -> float | None:
    """For how long at most the slave lacks something: it holds what its master held at an earlier look."""
    held = [number for number, wanted in enumerate(case.wanted[:-1]) if wanted <= case.held[-1]]
    return times[-1] - times[held[-1]] if held else None


def _lag_seconds(admin: BrokerAdmin, view: MasterView, slave: Broker, deadline: float) -> float | None:
    """From the newest messages in the queues of both; None when one can't be asked, or not within the time."""
    try:
        behind = admin.newest_store_timestamp(slave.address, deadline)
        newest = admin.newest_store_timestamp(view.address, deadline) if behind is not None else None
    except (NoAnswerError, RefusedError):
        return None
    return max(newest - behind, 0) / 1000 if newest is not None and behind is not None else None
