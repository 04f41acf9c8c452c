"""Asks name servers and brokers, and makes a snapshot of what they tell.

What that costs a cluster: each round two requests a broker (runtime table, replication), each 5 s one a name server
(two with rmqha's) and one a master (all groups), once a minute a broker's settings. A broker that gave no answer is
left alone for 3 s.
"""
import time
from collections.abc import Sequence
from typing import Self

from rmqha.common.protocol.table_bodies import ConsumeStatsList
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.answers import Look, Told, ask_all, in_parallel
from rmqha.tools.ha.broker_admin import Broker, BrokerAdmin, ReplicationToolError, chosen
from rmqha.tools.ha.evidence import Case
from rmqha.tools.ha.name_servers import NameServers, ask_name_servers
from rmqha.tools.ha.replication import PATIENCE_S, Group, told_slave, view_of
from rmqha.tools.ha.views import MasterView, SlaveView
from rmqha.tools.view.snapshot import (
    GroupState,
    Snapshot,
    broker_state,
    fault_texts,
    group_states,
    replication_state,
)

NAMES_EVERY_S = 5.0
GROUPS_EVERY_S = 5.0
CONFIG_EVERY_S = 60.0
RETRY_S = 3.0
_SETTLING = "LOOKING"
_KEPT_S = 2 * PATIENCE_S  # of earlier looks, by which a slave that stands still is known


class Collector:
    """Makes snapshots, one after the other, on one thread; a context manager. `cluster`, `broker`: only these.

    It goes on when a name server or a broker goes, and takes it in again when it comes back; the snapshot says who is
    missing. `collect` raises ReplicationToolError only as long as no name server has ever answered, or knows what was
    asked for.
    """

    def __init__(self, namesrv: str, timeout_ms: float, cluster: str | None = None, broker: str | None = None,
                 rpc_hook: RPCHook | None = None) -> None:
        self._admin = BrokerAdmin(namesrv, timeout_ms, rpc_hook)
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
        replication = tuple(replication_state(view_of(group, self._judge, _nobody_tells)) for group in self._by_name())
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
            names = ask_name_servers(self._namesrv, self._admin.timeout_ms)
        except ReplicationToolError as error:
            if not self._brokers:
                raise
            self._names.errors = {address: error.message for address in self._addresses()}
            return
        brokers = chosen(names.brokers, self._cluster, self._broker)
        self._names, self._brokers = names, brokers or self._brokers

    def _faults(self) -> tuple[tuple[str, str], ...]:
        missing = [fault for each, fault in self._names.missing()
                   if self._cluster in (None, each.cluster) and self._broker in (None, each.name, each.address)]
        return fault_texts(self._names.faults() + missing)

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
        answers = in_parallel(self._groups_of, list(chosen_of.values()), self._admin.timeout_ms, lambda address: (
            f"the broker {address} does not tell its groups within {self._admin.timeout_ms / 1000:g} s"))
        self._groups = group_states([each for each in answers.values() if not isinstance(each, str)])
        self._groups_errors = tuple(each for each in answers.values() if isinstance(each, str))

    def _groups_of(self, address: str) -> ConsumeStatsList | str:
        try:
            return self._admin.consume_stats(address)
        except ReplicationToolError as error:
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
