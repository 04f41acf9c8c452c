"""The controllers' view of brokers in automatic failover: their leader, the replicas, and which may become the master.

    configs of brokers, or --controller --> addresses --all at once--> ControllerViews --> the leader
    its replicas, its elect policy, each replica's own report --> FailoverView, and the faults in it

`failover_lines` prints the view of a broker name as text.
"""
from collections.abc import Iterable

from rmqha.common.protocol.cluster_bodies import ReplicaIdentity, ReplicasInfo
from rmqha.common.units import size_text
from rmqha.tools.admin.cluster_admin import ClusterAdmin, own_address, parsed_address
from rmqha.tools.check_base import Status
from rmqha.tools.replication.ask import Told, in_parallel
from rmqha.tools.replication.views import ControllerView, FailoverView, Fault, ReplicaView
from rmqha.tools.terminal import CannotAnswerError, cell, counted, render_table

_NOT_HEARD = "the controller gets no heartbeat from it"
_NOT_IN_SYNC = "it is not in the sync-state set, so it may lack acknowledged messages"
_ONLY_IF = "only when no in-sync replica is alive (enableElectUncleanMaster); the messages that it lacks are lost then"

# The last epoch of a replica, and the end of its log.
Position = tuple[int, int]


def split_addresses(text: str) -> list[str]:
    """Split `host:port;host:port` into controller addresses; CannotAnswerError when one is invalid."""
    addresses = [part.strip() for part in text.split(";") if part.strip()]
    for address in addresses:
        parsed_address(address, "the controller")
    return addresses


def controllers_of(config: dict[str, str]) -> list[str]:
    """Return the controllers that a broker's settings name; none when controllers do not choose its role."""
    if config.get("enableControllerMode") != "true":
        return []
    return [part.strip() for part in config.get("controllerAddr", "").split(";") if part.strip()]


class Controllers:
    """Asks controllers; each is asked for the leader only once, for any number of broker names."""

    def __init__(self, admin: ClusterAdmin, given: Iterable[str] = ()) -> None:
        self._admin = admin
        self._given = list(given)
        self._views: dict[str, ControllerView] = {}
        self._unclean: dict[str, bool] = {}

    def look(self, name: str, told: Iterable[Told]) -> FailoverView | None:
        """Return the controllers' view of a broker name; None when no controller is given or named by its brokers."""
        addresses = list(dict.fromkeys([*self._given, *(each for one in told for each in controllers_of(one.config))]))
        return self.look_at(name, addresses) if addresses else None

    def look_at(self, name: str, addresses: list[str]) -> FailoverView:
        """Return the view that these controllers have of a broker name."""
        view = FailoverView(self.ask(addresses))
        view.leader = leader_of(view.controllers)
        if not view.leader:
            return view
        try:
            info = self._admin.get_in_sync_state_data(view.leader, [name]).replicasInfoTable.get(name)
            view.unclean = self._is_unclean(view.leader)
        except CannotAnswerError as error:
            view.controllers.append(ControllerView(view.leader, error=error.message))
            return view
        if info is not None:
            _fill_in(view, info, self._positions(info))
        return view

    def ask(self, addresses: list[str]) -> list[ControllerView]:
        """Ask each controller for its metadata."""
        timeout_ms = self._admin.timeout_millis
        new = [address for address in addresses if address not in self._views]
        self._views |= in_parallel(self._ask, new, timeout_ms, lambda address: ControllerView(
            address, error=f"controller {address} did not answer within {timeout_ms / 1000:g} s")) if new else {}
        return [self._views[address] for address in addresses]

    def _ask(self, address: str) -> ControllerView:
        try:
            told = self._admin.get_controller_meta_data(address)
        except CannotAnswerError as error:
            return ControllerView(address, error=error.message)
        return ControllerView(address, told.group or "", bool(told.isLeader), told.controllerLeaderId or "",
                              told.controllerLeaderAddress or "", [p for p in (told.peers or "").split(";") if p])

    def _is_unclean(self, leader: str) -> bool:
        if leader not in self._unclean:
            config = self._admin.get_controller_config([leader])[leader]
            self._unclean[leader] = config.get("enableElectUncleanMaster") == "true"
        return self._unclean[leader]

    def _positions(self, info: ReplicasInfo) -> dict[str, Position | None]:
        """Return the position of each replica by its address; None for a replica that does not report it."""
        addresses = [each.brokerAddress for each in (*info.inSyncReplicas, *info.notInSyncReplicas)
                     if each.brokerAddress]
        return in_parallel(self._position, addresses, self._admin.timeout_millis, lambda _: None) if addresses else {}

    def _position(self, address: str) -> Position | None:
        try:
            cache = self._admin.get_broker_epoch_cache(address)
        except CannotAnswerError:  # the view shows a `?`
            return None
        return max((entry.epoch for entry in cache.epochList or ()), default=0), cache.maxOffset


def leader_of(controllers: list[ControllerView]) -> str:
    """Return the leader's address, preferably by its own report; "" when no controller knows a leader."""
    told = [each.address for each in controllers if each.is_leader] or [each.leader for each in controllers]
    return next(filter(None, told), "")


def _fill_in(view: FailoverView, info: ReplicasInfo, positions: dict[str, Position | None]) -> None:
    view.known = True
    view.master_id, view.master = info.masterBrokerId, info.masterAddress or ""
    view.master_epoch, view.sync_state_set_epoch = info.masterEpoch or 0, info.syncStateSetEpoch or 0
    master_at = positions.get(view.master)
    for in_sync, identities in ((True, info.inSyncReplicas), (False, info.notInSyncReplicas)):
        view.replicas += [_replica(view, each, in_sync, positions.get(each.brokerAddress or ""), master_at)
                          for each in identities]
    view.replicas.sort(key=lambda each: each.broker_id)


def _replica(view: FailoverView, identity: ReplicaIdentity, in_sync: bool, position: Position | None,
             master_at: Position | None) -> ReplicaView:
    epoch, end = position if position is not None else (None, None)
    replica = ReplicaView(identity.brokerId or 0, identity.brokerAddress or "", bool(identity.alive), in_sync,
                          identity.brokerId is not None and identity.brokerId == view.master_id, epoch, end)
    reasons = [] if replica.alive else [_NOT_HEARD]
    if not in_sync:
        behind = master_at[1] - end if master_at is not None and end is not None else 0
        reasons.append(_NOT_IN_SYNC + (f", {size_text(behind)} now" if behind > 0 else ""))
    if reasons == [_NOT_IN_SYNC] and view.unclean:
        reasons = [_ONLY_IF]
    replica.may_lead, replica.why_not = not reasons, "; ".join(reasons)
    return replica


def faults_of(view: FailoverView, name: str, registered: str, told: Iterable[Told]) -> list[Fault]:
    """Return the faults of the controllers, of their view of a broker name, and of its ability to fail over.

    `registered`: the master's address at the name servers; "" when it has none.
    """
    answers = list(told)
    faults = controller_faults(view.controllers)
    if not view.leader:
        return faults
    if not view.known:
        return [*faults, Fault(Status.CRITICAL, f"controller {view.leader} does not know {name}: check that its "
                               "brokers have enableControllerMode=true and the right controllerAddr")]
    outside = [each.broker.address for each in answers if each.answered and not controllers_of(each.config)]
    faults += [Fault(Status.WARNING, f"{address} does not have enableControllerMode=true: it ignores the roles that "
                     "the controller assigns", address) for address in outside]
    if view.master_id is None:
        reasons = "; ".join(f"{each.address}: {each.why_not}" for each in view.replicas if each.why_not)
        return [*faults, Fault(Status.CRITICAL, "the controller has no master for it, and no replica that it may elect"
                               + (f" ({reasons})" if reasons else ""))]
    own = {each.broker.address: own_address(each.config, each.broker.address) for each in answers}
    if registered and own.get(registered, registered) != view.master:
        faults.append(Fault(Status.CRITICAL, f"the controller's master is {view.master}, but the name server lists "
                            f"{registered}" + (f", where {own[registered]} answers" if own.get(registered, registered)
                                               != registered else "")))
    faults += [Fault(Status.WARNING, f"replica {each.broker_id} at {each.address}: {_NOT_HEARD}", each.address)
               for each in view.replicas if not each.alive and not each.is_master]
    wanted = max((each.setting("minInSyncReplicas", 1) for each in answers if own[each.broker.address] == view.master),
                 default=1)
    if len(view.sync_state_set) < wanted:
        faults.append(Fault(Status.CRITICAL, f"the sync-state set has {counted(len(view.sync_state_set), 'replica')}, "
                            f"minInSyncReplicas={wanted}: no message is acknowledged"))
    if not any(each.may_lead for each in view.replicas if not each.is_master):
        faults.append(Fault(Status.WARNING, "no other replica may become the master now: if this master fails, "
                            "there will be no failover until it returns"))
    return faults


def controller_faults(controllers: list[ControllerView]) -> list[Fault]:
    """Return the faults of the controllers themselves."""
    silent = [each for each in controllers if each.error]
    answering = [each for each in controllers if not each.error]
    if not answering:
        return [Fault(Status.CRITICAL, "no controller answers: a failed master is not replaced, and a running one "
                      f"stops acknowledging when its lease expires: {'; '.join(each.error for each in silent)}")]
    faults = [Fault(Status.WARNING, each.error, each.address) for each in silent]
    if not leader_of(answering):
        return [*faults, Fault(Status.CRITICAL, "no controller leads: RocketMQ's need a majority of them alive, "
                               "rmqha's need their etcd")]
    leaders = sorted({each.leader for each in answering if each.leader})
    if len(leaders) > 1:
        faults.append(Fault(Status.WARNING, f"the controllers name different leaders: {', '.join(leaders)}; this is "
                            "normal only while the leadership changes"))
    faults += [Fault(Status.WARNING, f"controller {each.address} knows no leader") for each in answering
               if not each.leader]
    return faults


_HEADINGS = ("replica", "id", "heard", "in sync", "epoch", "log ends at", "may become master")
_RIGHT = {"id", "epoch", "log ends at"}


def failover_lines(view: FailoverView) -> list[str]:
    """Return the controllers, their current decision, and the replicas as lines of text."""
    lines = [f"controller {', '.join(map(_controller, view.controllers))}"]
    if not view.known:
        return lines
    master = "no master" if view.master_id is None else f"master: id {view.master_id} at {cell(view.master)}"
    members = ", ".join(map(str, view.sync_state_set)) or "nobody"
    lines.append(f"{master}, epoch {view.master_epoch}; sync-state set (epoch "
                 f"{view.sync_state_set_epoch}): {members}")
    table = render_table(_HEADINGS, [_cells(each) for each in view.replicas], _RIGHT)
    return lines + table.split("\n")


def _controller(view: ControllerView) -> str:
    if view.error:
        return f"{view.address} UNREACHABLE"
    if view.is_leader:
        return f"{view.address} leads" + (f" ({cell(view.leader_id)})" if view.leader_id else "")
    return f"{view.address} " + ("stands by" if view.leader else "knows no leader")


def _cells(each: ReplicaView) -> tuple[str, ...]:
    may = "is the master" if each.is_master else "yes" if each.may_lead else f"NO: {each.why_not}"
    return (cell(each.address), str(each.broker_id), _yes(each.alive), _yes(each.in_sync),
            "?" if each.epoch is None else str(each.epoch),
            "?" if each.max_offset is None else f"{each.max_offset:,}", may)


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
