"""Brokers, controllers, their store and the network as one value, with the possible events and the invariants.

Roles and logs belong to the model, which changes them like ReplicasManager and AutoSwitchHAService. Rules makes the
decisions. Time advances in ticks, and each party's clock at its own pace. Messages are handled in any order, at any
time, or never. A killed broker keeps its log.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.ha.autoswitch.sync_state_set import Ask
from tests.controller.explorer.rules import MIN_IN_SYNC, NOW_NS, Frozen, Rules, Stored, Time, aged, identity

Event = tuple[Any, ...]
Message = tuple[Any, ...]
NOW = Time(0)
_AHEAD = Time(1 << 50)
_SPENDS = {"put": "puts", "kill": "kills", "elect": "elections", "choose": "elections", "ask": "asks",
           "timeout": "timeouts", "unlink": "unlinks", "look": "looks", "beat": "beats", "close": "breaks",
           "cut": "breaks", "lead": "leaders", "overtake": "leaders", "switch": "switches", "tick": "ticks"}


class Violation(Exception):
    """A violated invariant."""


class Bounds(NamedTuple):
    """Limits of the events on one path through the model. An event with the limit 0 never happens."""

    brokers: int = 3
    controllers: int = 2
    # The number of brokers with active connections to controllers.
    talkers: int = 3
    # The size of the first sync-state set. The other replicas have no link yet.
    in_sync: int = 3
    leases: bool = True
    # True if the master has a lease at the beginning, False if it has just started.
    has_asked: bool = True
    # False if any broker may seem dead, and any lease expired, at any time.
    heartbeats: bool = True
    puts: int = 0
    kills: int = 0  # of brokers
    elections: int = 0
    asks: int = 0  # for another sync-state set
    timeouts: int = 0  # of such requests
    # of a slave from its master
    unlinks: int = 0
    looks: int = 0  # at who is the master
    beats: int = 0
    breaks: int = 0  # connections of brokers to controllers
    leaders: int = 0  # changes of the leading controller
    switches: int = 0
    ticks: int = 0
    tick_ns: int = 1_000_000_000
    # of brokers' and controllers' clocks, in %
    pace: tuple[int, int] = (95, 105)


class Broker(NamedTuple):
    """A replica. `link`: a slave that reads its master's log. `reports`: a master's slaves."""

    up: bool = True
    role: str = ""  # "M", "S", "": none yet
    epoch: int = 0
    master: int | None = None
    log: tuple[int, ...] = ()
    epochs: tuple[EpochEntry, ...] = ()
    link: bool = False
    sync: Frozen | None = None
    # (slave, its report that is under way, end of the log at the last report)
    reports: tuple[tuple[int, int | None, int | None], ...] = ()
    # start of the bytes that it waits for
    since: int = 0
    lease: Time | None = None  # when it was requested
    # the leadership that it follows; 0: none yet
    term: int = 0
    connections: tuple[int | None, ...] = ()
    opened: int = 0


class Controller(NamedTuple):
    """A controller. `switching`: the replica to elect once the master has answered; `electing`: its pending write.

    `copy`: the store as it reads it while another controller leads without its knowledge. It cannot write then.
    """

    since: Time | None = None  # it leads since then
    term: int = 0  # the number of its leadership
    live: Frozen | None = None
    # The broker to elect, the time of the request to the master, and its number.
    switching: tuple[int, Time, int] | None = None
    electing: tuple[Stored, Stored] | None = None  # read, to be written
    copy: Stored | None = None


class State(NamedTuple):
    """The whole state. `spent`: the used part of the bounds, in their order."""

    stored: Stored
    brokers: tuple[Broker, ...]
    controllers: tuple[Controller, ...]
    net: frozenset[Message] = frozenset()
    acked: frozenset[tuple[int, int]] = frozenset()  # (offset, message)
    masters: frozenset[tuple[int, int]] = frozenset()  # (epoch, broker)
    spent: tuple[int, ...] = ()


class Model:
    """The possible events and their effects, within bounds."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        self.rules, self.bounds = rules, bounds
        self._counted = [name for name in Bounds._fields if name in (
            "puts", "kills", "elections", "asks", "timeouts", "unlinks", "looks", "beats", "breaks", "leaders",
            "switches", "ticks")]
        self._at = {name: at for at, name in enumerate(self._counted)}

    def initial(self) -> State:
        """Return the first state: broker 1 is the master, the first ones are in sync, the first controller leads."""
        bounds, rules = self.bounds, self.rules
        ids = range(1, bounds.brokers + 1)
        in_sync = ids[:bounds.in_sync]
        stored = Stored(1, 1, frozenset(in_sync), 5)
        first = (EpochEntry(1, 0),)
        connections = (0,) * bounds.controllers if bounds.heartbeats else ()
        has_asked = bounds.heartbeats and bounds.has_asked
        term = int(has_asked)
        sync = rules.sync_begin(1, 0, stored)
        for slave in in_sync[1:]:
            sync = rules.sync_call(sync, 0, "acknowledged", slave, 0, 0, True)[0]
        brokers = [Broker(True, "M", 1, 1, (), first, False, sync, tuple((slave, None, 0) for slave in in_sync[1:]),
                          lease=NOW if has_asked else None, term=term, connections=connections)]
        brokers += [Broker(True, "S", 1, 1, (), first, id_ in in_sync, term=term, connections=connections)
                    for id_ in ids[1:]]
        live = rules.live_call(None, "all")[0]
        lives = []
        for controller in range(bounds.controllers):
            heard = live
            for broker in ids if bounds.heartbeats else ():
                heard = rules.beat(heard, broker, (broker, controller, 0), term)
            if has_asked and not controller:
                heard = rules.live_call(heard, "grant", identity(1), (1, 0, 0))[0]
            lives.append(heard)
        controllers = [Controller(None if at else Time(-20_000_000_000), 0 if at else 1, heard)
                       for at, heard in enumerate(lives)]
        return State(stored, tuple(brokers), tuple(controllers), masters=frozenset(((1, 1),)),
                     spent=(0,) * len(self._counted))

    # The possible events.

    def _may(self, state: State, name: str) -> bool:
        return state.spent[self._at[name]] < getattr(self.bounds, name)

    def events(self, state: State) -> Iterator[Event]:
        """Yield all possible next events."""
        yield from self._of_logs(state)
        if self._may(state, "kills"):
            yield from (("kill", id_) for id_, broker in enumerate(state.brokers, 1) if broker.up)
        yield from (("start", id_) for id_, broker in enumerate(state.brokers, 1) if not broker.up)
        for message in state.net:
            if message[0] in ("look", "done"):
                yield "deliver", message
            elif message[0] == "ask":
                yield from (("decide", at, message) for at, each in enumerate(state.controllers)
                            if each.copy is None and self._serves(each))
        if self._may(state, "looks"):
            for id_, broker in enumerate(state.brokers, 1):
                if broker.up and not any(message[:2] == ("look", id_) for message in state.net):
                    yield from (("look", id_, at) for at, each in enumerate(state.controllers)
                                if each.since is not None)
        if self._may(state, "ticks"):
            yield ("tick",)
        if self.bounds.heartbeats:
            yield from self._of_connections(state)
            yield from self._of_controllers(state)
        elif self._may(state, "elections"):
            yield from (("choose", id_) for id_ in (None, *range(1, self.bounds.brokers + 1)))

    def _serves(self, controller: Controller) -> bool:
        return controller.since is not None and not (
            self.rules.one_at_a_time and (controller.switching or controller.electing))

    def _of_logs(self, state: State) -> Iterator[Event]:
        if not self.bounds.puts:
            return
        for id_, broker in enumerate(state.brokers, 1):
            if not broker.up:
                continue
            if broker.role == "M":
                sync = self._sync(broker)
                if self._may(state, "puts") and self._can_acknowledge(broker) and (
                        sync.is_settled and sync.confirm >= broker.since or not self.rules.opens_when_settled):
                    yield "put", id_
                for slave, report, _ in broker.reports:
                    if report is not None:
                        yield "report", id_, slave
                    if not self._is_linked(state, slave, id_):
                        yield "left", id_, slave
                if sync.asks and self._may(state, "asks"):
                    yield "ask", id_
                if self._may(state, "timeouts") and any(
                        message[0] in ("ask", "done") and message[1] == id_ and message[-1] for message in state.net):
                    yield "timeout", id_
            elif broker.role == "S" and broker.master is not None:
                master = state.brokers[broker.master - 1]
                if not master.up or master.role != "M":
                    continue
                if not broker.link:
                    yield "link", id_
                else:
                    if len(broker.log) < len(master.log):
                        yield "read", id_
                    if self._may(state, "unlinks"):
                        yield "unlink", id_

    def _of_connections(self, state: State) -> Iterator[Event]:
        for id_, broker in enumerate(state.brokers[:self.bounds.talkers], 1):
            if not broker.up:
                continue
            for at, number in enumerate(broker.connections):
                if number is None:
                    yield "connect", id_, at
                    continue
                if self._may(state, "beats") and not any(
                        message[:4] == ("beat", id_, at, number) for message in state.net):
                    yield "beat", id_, at
                if self._may(state, "breaks"):
                    yield "close", id_, at
                    yield "cut", id_, at
        for message in state.net:
            if message[0] == "beat":
                controller = state.controllers[message[2]]
                if controller.since is None or self._serves(controller):
                    yield "heard", message
            elif message[0] in ("end", "gone", "told", "renounced", "renounce"):
                yield "deliver", message

    def _of_controllers(self, state: State) -> Iterator[Event]:
        leads = None
        for at, controller in enumerate(state.controllers):
            if controller.electing is not None:
                yield "write", at
            if controller.since is None:
                continue
            if controller.copy is not None:
                yield "stop", at
                continue
            leads = at
            if controller.electing is not None:
                continue
            if controller.switching is not None:
                yield "give up", at
            else:
                yield from self._elections(state, at, controller)
        if self._may(state, "leaders"):
            for at, controller in enumerate(state.controllers):
                if at != leads and controller.copy is None:
                    yield "lead", at
                    if all(each.copy is None for each in state.controllers):
                        yield "overtake", at

    def _elections(self, state: State, at: int, controller: Controller) -> Iterator[Event]:
        stored, bounds = state.stored, self.bounds
        alive, may_replace = self._heard(state, controller)
        if self._may(state, "elections"):
            if self.rules.needs_election(stored, bounds.brokers, alive, may_replace):
                yield "elect", at, None
            for id_ in alive:
                if stored.master is None and state.brokers[id_ - 1].role != "M":
                    yield "elect", at, id_
        if self._may(state, "switches") and stored.master in alive:
            yield from (("switch", at, id_) for id_ in alive & stored.members if id_ != stored.master)

    def _heard(self, state: State, controller: Controller) -> tuple[frozenset[int], bool]:
        return self.rules.live_heard(controller.live, state.stored, self.bounds.brokers, controller.since,
                                     controller.term)

    def _can_acknowledge(self, broker: Broker) -> bool:
        return broker.up and broker.role == "M" and (not self.bounds.leases or self.rules.holds(broker.lease))

    def _sync(self, broker: Broker) -> Any:
        assert broker.sync is not None
        return self.rules.sync_look(broker.sync, len(broker.log))[1]

    @staticmethod
    def _is_linked(state: State, slave: int, master: int) -> bool:
        broker = state.brokers[slave - 1]
        return broker.up and broker.role == "S" and broker.master == master and broker.link

    # The effects of events.

    def after(self, state: State, event: Event) -> State:
        """Return the state after an event. Raise Violation."""
        name = event[0]
        spends = _SPENDS.get(name)
        if spends is not None:
            at = self._at[spends]
            state = state._replace(spent=(*state.spent[:at], state.spent[at] + 1, *state.spent[at + 1:]))
        result: State = getattr(self, "_on_" + name.replace(" ", "_"))(state, *event[1:])
        result = self._acknowledged(result)
        self._check(state, result)
        return result

    def _acknowledged(self, state: State) -> State:
        """Let each master acknowledge as soon as it can."""
        if not self.bounds.puts:
            return state
        acked, brokers = state.acked, state.brokers
        for at, broker in enumerate(brokers):
            if broker.role == "M":
                frozen, sync = self.rules.sync_look(broker.sync, len(broker.log))
                if frozen != broker.sync:
                    brokers = (*brokers[:at], broker._replace(sync=frozen), *brokers[at + 1:])
                if self._can_acknowledge(broker) and sync.confirm > broker.since and sync.is_settled:
                    acked |= frozenset(zip(range(broker.since, sync.confirm), broker.log[broker.since:sync.confirm],
                                           strict=False))
        return state._replace(brokers=brokers, acked=acked)

    def _check(self, before: State, state: State) -> None:
        stored = state.stored
        if state.acked is not before.acked or stored is not before.stored or state.brokers is not before.brokers:
            for member in stored.members:
                log = state.brokers[member - 1].log
                for offset, message in state.acked:
                    if offset >= len(log) or log[offset] != message:
                        raise Violation(f"message {message} was acknowledged at {offset}, and broker {member}, which "
                                        f"may be elected, since it is in the sync-state set, lacks it: {list(log)}")
        if stored is not before.stored and (
                stored.epoch < before.stored.epoch or stored.set_epoch < before.stored.set_epoch or
                (stored.master != before.stored.master and stored.epoch == before.stored.epoch)):
            raise Violation(f"epochs do not grow: {before.stored}, then {stored}")
        if len({epoch for epoch, _ in state.masters}) < len(state.masters):
            raise Violation(f"two brokers were the master of one epoch: {sorted(state.masters)}")
        if self.bounds.leases:
            can = [id_ for id_, broker in enumerate(state.brokers, 1) if self._can_acknowledge(broker)]
            if len(can) > 1:
                raise Violation(f"brokers {can} both may acknowledge")
            if can and stored.master != can[0]:
                raise Violation(f"broker {can[0]} may acknowledge, and is the master no more: {stored.master} is")
        self._check_logs(before, state)

    def _check_logs(self, before: State, state: State) -> None:
        if state.brokers is before.brokers or not self.bounds.puts:
            return
        written: dict[tuple[int, int], int] = {}
        for broker in state.brokers:
            for epoch, start, end in broker.epochs:
                for offset in range(start, min(end, len(broker.log))):
                    if written.setdefault((epoch, offset), broker.log[offset]) != broker.log[offset]:
                        raise Violation(f"two logs differ at {offset}, which both say is of epoch {epoch}")

    @staticmethod
    def _with(state: State, id_: int, **changes: Any) -> State:
        broker = state.brokers[id_ - 1]._replace(**changes)
        return state._replace(brokers=(*state.brokers[:id_ - 1], broker, *state.brokers[id_:]))

    @staticmethod
    def _controller(state: State, at: int, **changes: Any) -> State:
        controller = state.controllers[at]._replace(**changes)
        return state._replace(controllers=(*state.controllers[:at], controller, *state.controllers[at + 1:]))

    # Logs.

    def _on_put(self, state: State, id_: int) -> State:
        broker = state.brokers[id_ - 1]
        return self._with(state, id_, log=(*broker.log, state.spent[self._at["puts"]]))

    def _on_link(self, state: State, id_: int) -> State:
        slave = state.brokers[id_ - 1]
        assert slave.master is not None
        master = state.brokers[slave.master - 1]
        point = self.rules.point(len(master.log), master.epochs, len(slave.log), slave.epochs, slave.epoch)
        if point is None:
            return state
        log = slave.log[:point]
        state = self._with(state, id_, log=log, epochs=_epochs_up_to(master.epochs, point), link=True)
        return self._set_report(state, slave.master, id_, len(log), None)

    def _on_read(self, state: State, id_: int) -> State:
        slave = state.brokers[id_ - 1]
        assert slave.master is not None
        master = state.brokers[slave.master - 1]
        end = len(slave.log)
        state = self._with(state, id_, log=(*slave.log, master.log[end]), epochs=_epochs_up_to(master.epochs, end))
        return self._set_report(state, slave.master, id_, end + 1, self._report(state, slave.master, id_)[1])

    @staticmethod
    def _report(state: State, id_: int, slave: int) -> tuple[int | None, int | None]:
        """Return a slave's report that is under way, and the end of the log at its last report."""
        return next(((report, mark) for each, report, mark in state.brokers[id_ - 1].reports if each == slave),
                    (None, None))

    def _set_report(self, state: State, id_: int, slave: int, report: int | None, mark: int | None) -> State:
        others = [each for each in state.brokers[id_ - 1].reports if each[0] != slave]
        return self._with(state, id_, reports=tuple(sorted((*others, (slave, report, mark)))))

    def _on_unlink(self, state: State, id_: int) -> State:
        return self._with(state, id_, link=False)

    def _on_report(self, state: State, id_: int, slave: int) -> State:
        """Act like AutoSwitchHAService.slave_acknowledged: a slave that once held the whole log is near its end."""
        broker = state.brokers[id_ - 1]
        report, mark = self._report(state, id_, slave)
        assert report is not None
        end = len(broker.log)
        is_near = report >= end or (mark is not None and report >= mark)
        sync, _ = self.rules.sync_call(broker.sync, end, "acknowledged", slave, report, 0, is_near)
        if mark is None or is_near:
            mark = end
        return self._set_report(self._with(state, id_, sync=sync), id_, slave, None, mark)

    def _on_left(self, state: State, id_: int, slave: int) -> State:
        broker = state.brokers[id_ - 1]
        sync, _ = self.rules.sync_call(broker.sync, len(broker.log), "left", slave)
        reports = tuple(each for each in broker.reports if each[0] != slave)
        return self._with(state, id_, sync=sync, reports=reports)

    # The sync-state set.

    def _on_ask(self, state: State, id_: int) -> State:
        broker = state.brokers[id_ - 1]
        sync, ask = self.rules.sync_call(broker.sync, len(broker.log), "next_ask", MIN_IN_SYNC)
        state = self._with(state, id_, sync=sync)
        if ask is None:
            return state
        return state._replace(net=state.net | {("ask", id_, broker.epoch, ask, True)})

    def _on_decide(self, state: State, at: int, message: Message) -> State:
        _, id_, epoch, ask, is_waited_for = message
        alive = frozenset(range(1, self.bounds.brokers + 1))
        if self.bounds.heartbeats:
            alive, _ = self._heard(state, state.controllers[at])
        written, looks = self.rules.alter(state.stored, self.bounds.brokers, id_, epoch, ask, alive)
        if written is not None:
            state = state._replace(stored=written)
        net = state.net - {message}
        if is_waited_for:
            net |= {("done", id_, epoch, ask, "look" if looks else written, True)}
        return state._replace(net=net)

    def _on_timeout(self, state: State, id_: int) -> State:
        message = next(each for each in state.net if each[0] in ("ask", "done") and each[1] == id_ and each[-1])
        net = state.net - {message}
        if message[0] == "ask":
            net |= {(*message[:-1], False)}
        return self._answered(state._replace(net=net), id_, message[3], False)

    def _answered(self, state: State, id_: int, ask: Ask, is_over: bool) -> State:
        broker = state.brokers[id_ - 1]
        if broker.sync is None:
            return state
        return self._with(state, id_, sync=self.rules.sync_call(
            broker.sync, len(broker.log), "answered", ask, is_over)[0])

    def _on_deliver(self, state: State, message: Message) -> State:
        state = state._replace(net=state.net - {message})
        result: State = getattr(self, "_deliver_" + message[0])(state, *message[1:])
        return result

    def _deliver_done(self, state: State, id_: int, epoch: int, ask: Ask, decided: Any, _: bool) -> State:
        """Act like ReplicasManager.alter_sync_state_set."""
        broker, is_over = state.brokers[id_ - 1], decided is not None
        if decided == "look":
            decided = state.stored if (state.stored.master, state.stored.epoch) == (id_, epoch) else None
            is_over = decided is not None or not self.rules.doubts_when_deposed
        if decided is not None and broker.role == "M" and broker.epoch == epoch:
            state = self._decided(state, id_, decided)
        return self._answered(state, id_, ask, is_over or not self.rules.doubts_when_deposed)

    def _decided(self, state: State, id_: int, decided: Stored) -> State:
        broker = state.brokers[id_ - 1]
        return self._with(state, id_, sync=self.rules.sync_call(
            broker.sync, len(broker.log), "decide", decided.members, decided.set_epoch)[0])

    # Roles.

    def _on_look(self, state: State, id_: int, at: int) -> State:
        return state._replace(net=state.net | {("look", id_, state.controllers[at].copy or state.stored)})

    def _deliver_look(self, state: State, id_: int, told: Stored) -> State:
        """Act like ReplicasManager._follow and change_broker_role."""
        broker = state.brokers[id_ - 1]
        if told.master is None:
            return state
        if told.epoch > broker.epoch:
            if told.master != id_:
                return self._become_slave(state, id_, told)
            if broker.role == "M":
                return self._stay_master(state, id_, told)
            last = broker.epochs[-1].epoch if broker.epochs else -1
            if told.epoch >= last:
                return self._become_master(state, id_, told)
            for at, number in enumerate(broker.connections):
                if number is not None:
                    state = self._on_close(state, id_, at)
            return state
        if told.epoch == broker.epoch and broker.role == "M" and told.master == id_:
            return self._decided(state, id_, told)
        return state

    def _leave_role(self, state: State, id_: int, **changes: Any) -> State:
        net = frozenset((*each[:-1], False) if each[:2] == ("ask", id_) else each for each in state.net
                        if each[:2] != ("done", id_))
        state = self._with(state._replace(net=net), id_, sync=None, reports=(), link=False, **changes)
        for other, broker in enumerate(state.brokers, 1):
            if broker.master == id_ and broker.link:
                state = self._with(state, other, link=False)
        return self._renounce(state, id_) if self.rules.renounces_with_role else state

    def _become_slave(self, state: State, id_: int, told: Stored) -> State:
        return self._leave_role(state, id_, role="S", epoch=told.epoch, master=told.master)

    def _stay_master(self, state: State, id_: int, told: Stored) -> State:
        """Keep the role under a new epoch: slaves and pending requests stay."""
        broker = state.brokers[id_ - 1]
        self._check_master(state, id_, told.epoch)
        end = len(broker.log)
        net = frozenset((*each[:-1], False) if each[:2] == ("ask", id_) else each for each in state.net
                        if each[:2] != ("done", id_))
        sync, _ = self.rules.sync_call(broker.sync, end, "re_elected", id_, told.members, told.set_epoch)
        state = self._with(state._replace(net=net), id_, epoch=told.epoch, sync=sync,
                           epochs=_epochs_up_to((*broker.epochs, EpochEntry(told.epoch, end)), end))
        state = self._renounce(state, id_) if self.rules.renounces_with_role else state
        return state._replace(masters=state.masters | {(told.epoch, id_)})

    @staticmethod
    def _check_master(state: State, id_: int, epoch: int) -> None:
        if epoch < state.stored.epoch:
            # The answer is late: another broker is the master by now, and this one cannot acknowledge.
            return
        log = state.brokers[id_ - 1].log
        for offset, message in state.acked:
            if offset >= len(log) or log[offset] != message:
                raise Violation(f"broker {id_} becomes the master of epoch {epoch}, and lacks message {message}, which "
                                f"was acknowledged at {offset}: {list(log)}")

    def _become_master(self, state: State, id_: int, told: Stored) -> State:
        broker = state.brokers[id_ - 1]
        end = len(broker.log)
        self._check_master(state, id_, told.epoch)
        kept = _epochs_up_to(broker.epochs, end)
        goes_on = bool(kept) and kept[-1].epoch == told.epoch
        epochs = kept if goes_on else _epochs_up_to((*kept, EpochEntry(told.epoch, end)), end)
        state = self._leave_role(state, id_, role="M", epoch=told.epoch, master=id_, epochs=epochs, since=end)
        state = self._with(state, id_, sync=self.rules.sync_begin(id_, end, told, goes_on))
        return state._replace(masters=state.masters | {(told.epoch, id_)})

    def _on_kill(self, state: State, id_: int) -> State:
        broker = state.brokers[id_ - 1]
        state = self._leave_role(state, id_, role="", up=False, epoch=0, master=None, lease=None, term=0, since=0)
        net = frozenset((*each[:-1], None) if each[:2] == ("beat", id_) else each for each in state.net
                        if each[:2] not in (("look", id_), ("told", id_), ("renounce", id_), ("gone", id_)))
        ends = {("end", id_, at, number) for at, number in enumerate(broker.connections) if number is not None}
        none = (None,) * len(broker.connections)
        return self._with(state._replace(net=net | ends), id_, connections=none)

    def _on_start(self, state: State, id_: int) -> State:
        return self._with(state, id_, up=True)

    def _on_choose(self, state: State, id_: int | None) -> State:
        """Elect a broker that the controller considers alive, if it may."""
        alive = frozenset(() if id_ is None else (id_,))
        return self._written(state, self.rules.elect(state.stored, self.bounds.brokers, None, False, alive, True))

    @staticmethod
    def _written(state: State, written: Stored | None) -> State:
        return state if written is None else state._replace(stored=written)

    # Leases, and the connections that they depend on.

    def _renounce(self, state: State, id_: int) -> State:
        net = frozenset((*each[:-1], False) if each[0] in ("beat", "told") and each[1] == id_ and each[-1] else each
                        for each in state.net)
        return self._with(state._replace(net=net), id_, lease=None)

    def _on_connect(self, state: State, id_: int, at: int) -> State:
        broker = state.brokers[id_ - 1]
        number = broker.opened + 1
        connections = (*broker.connections[:at], number, *broker.connections[at + 1:])
        return self._with(state, id_, connections=connections, opened=number)

    def _on_close(self, state: State, id_: int, at: int) -> State:
        """Let the broker close a connection to a controller."""
        broker = state.brokers[id_ - 1]
        end = ("end", id_, at, broker.connections[at])
        state = self._disconnected(state, id_, at, self.rules.renounces_before_close)
        return state._replace(net=state.net | {end})

    def _disconnected(self, state: State, id_: int, at: int, renounces: bool) -> State:
        connections = state.brokers[id_ - 1].connections
        state = self._with(state, id_, connections=(*connections[:at], None, *connections[at + 1:]))
        return self._renounce(state, id_) if renounces else state

    def _on_cut(self, state: State, id_: int, at: int) -> State:
        """Let the controller, or its network, close a connection. The broker does not see it yet."""
        number = state.brokers[id_ - 1].connections[at]
        state = self._ended(state, at, (id_, at, number), not self.rules.tells_who_closed)
        return state._replace(net=state.net | {("gone", id_, at, number)})

    def _ended(self, state: State, at: int, channel: tuple[Any, ...], by_peer: bool) -> State:
        live = self.rules.live_call(state.controllers[at].live, "closed", channel, by_peer)[0]
        net = state.net
        if self.rules.unheard_ends:
            net = frozenset(each for each in net if not (each[0] == "beat" and each[1:4] == channel))
        return self._controller(state._replace(net=net), at, live=live)

    def _deliver_end(self, state: State, id_: int, at: int, number: int) -> State:
        return self._ended(state, at, (id_, at, number), True)

    def _deliver_gone(self, state: State, id_: int, at: int, number: int) -> State:
        if state.brokers[id_ - 1].connections[at] != number:
            return state
        return self._disconnected(state, id_, at, True)

    def _on_beat(self, state: State, id_: int, at: int) -> State:
        number = state.brokers[id_ - 1].connections[at]
        term = state.brokers[id_ - 1].term
        return state._replace(net=state.net | {("beat", id_, at, number, NOW, term, True, True)})

    def _on_heard(self, state: State, message: Message) -> State:
        """Act like Controller.on_broker_heartbeat."""
        _, id_, at, number, asked, asked_of, may_follow, is_fresh = message
        rules, channel, controller = self.rules, (id_, at, number), state.controllers[at]
        stored = controller.copy or state.stored
        state = state._replace(net=state.net - {message})
        live = rules.beat(controller.live, id_, channel, asked_of)
        answers = controller.since is not None and (
            asked_of == controller.term or controller.copy is None or not rules.asks_before_it_is_followed)
        lease_ms = 0
        if answers and stored.master == id_:
            live, lease_ms = rules.live_call(live, "grant", identity(id_), channel)
        state = self._controller(state, at, live=live)
        if not answers or is_fresh is None:
            return state
        told = ("told", id_, asked, stored.master, stored.epoch, lease_ms, controller.term, asked_of, may_follow,
                is_fresh)
        return state._replace(net=state.net | {told})

    def _deliver_told(self, state: State, id_: int, asked: Time, master: int | None, epoch: int, lease_ms: int,
                      *of: Any) -> State:
        """Act like ReplicasManager._told."""
        term, asked_of, may_follow, is_fresh = of
        broker = state.brokers[id_ - 1]
        counts, follows, is_kept = self.rules.follows(broker.term, term, asked_of, may_follow)
        if not counts:
            return state
        if follows != broker.term:
            net = frozenset((*each[:-2], False, each[-1]) if each[0] in ("beat", "told") and each[1] == id_ else each
                            for each in state.net)
            state = self._with(state._replace(net=net), id_, term=follows, lease=broker.lease if is_kept else None)
            broker = state.brokers[id_ - 1]
        if broker.role != "M":
            return state
        if (epoch, master) == (broker.epoch, id_):
            if not lease_ms:
                return state
            return self._with(state, id_, lease=self.rules.granted(broker.lease, asked, is_fresh))
        return self._renounce(state, id_) if epoch >= broker.epoch else state

    # Controllers.

    def _on_lead(self, state: State, at: int) -> State:
        for other, controller in enumerate(state.controllers):
            if controller.since is not None:
                electing = None if self.rules.checks_leader else controller.electing
                state = self._controller(state, other, since=None, term=0, electing=electing, copy=None)
        return self._controller(self._asked_before(state), at, since=NOW, term=self._next_term(state))

    def _next_term(self, state: State) -> int:
        return 1 + state.spent[self._at["leaders"]]

    def _asked_before(self, state: State) -> State:
        """Move everything noted or requested so far before now, even within a tick."""
        for at, controller in enumerate(state.controllers):
            state = self._controller(state, at, live=aged(controller.live, 1))
            if controller.switching is not None:
                heir, asked, number = controller.switching
                state = self._controller(state, at, switching=(heir, Time(asked.from_now_ns - 1), number))
        return state

    def _on_overtake(self, state: State, at: int) -> State:
        """Let a controller lead and write while the previous one believes to lead; its leases count until it stops."""
        for other, controller in enumerate(state.controllers):
            if controller.since is not None:
                electing = None if self.rules.checks_leader else controller.electing
                state = self._controller(state, other, copy=state.stored, electing=electing)
        return self._controller(state, at, since=_AHEAD if self.rules.waits_for_the_one_before else NOW,
                                term=self._next_term(state))

    def _on_stop(self, state: State, at: int) -> State:
        state = self._asked_before(self._controller(state, at, since=None, term=0, copy=None))
        for other, controller in enumerate(state.controllers):
            if controller.since is not None and self.rules.waits_for_the_one_before:
                state = self._controller(state, other, since=NOW)
        return state

    def _on_elect(self, state: State, at: int, asking: int | None) -> State:
        alive, may_replace = self._heard(state, state.controllers[at])
        written = self.rules.elect(state.stored, self.bounds.brokers, asking, False, alive, may_replace)
        if written is None:
            return state
        return self._controller(state, at, electing=(state.stored, written))

    def _on_write(self, state: State, at: int) -> State:
        electing = state.controllers[at].electing
        assert electing is not None
        state = self._controller(state, at, electing=None)
        return self._written(state, electing[1]) if state.stored == electing[0] else state

    def _on_switch(self, state: State, at: int, id_: int) -> State:
        if not self.rules.asks_before_switch:
            return self._written(state, self.rules.elect(
                state.stored, self.bounds.brokers, id_, True, self._heard(state, state.controllers[at])[0], True))
        number = state.spent[self._at["switches"]]
        return self._controller(state, at, switching=(id_, NOW, number))._replace(
            net=state.net | {("renounce", state.stored.master, at, number)})

    def _deliver_renounce(self, state: State, id_: int, at: int, number: int) -> State:
        state = self._renounce(state, id_)
        return state._replace(net=state.net | {("renounced", id_, at, number)})

    def _deliver_renounced(self, state: State, id_: int, at: int, number: int) -> State:
        """Ignore answers to other requests: each has its own number (`opaque`)."""
        controller = state.controllers[at]
        if controller.switching is None or controller.switching[2] != number:
            return state
        heir = controller.switching[0]
        asked_ns = NOW_NS + controller.switching[1].from_now_ns
        live = self.rules.live_call(controller.live, "renounced", identity(id_), asked_ns)[0]
        state = self._controller(state, at, live=live, switching=None)
        if controller.since is None or controller.copy is not None:
            return state
        alive, may_replace = self._heard(state, state.controllers[at])
        return self._written(state, self.rules.elect(state.stored, self.bounds.brokers, heir, True, alive, may_replace))

    def _on_give_up(self, state: State, at: int) -> State:
        return self._controller(state, at, switching=None)

    def _on_tick(self, state: State) -> State:
        broker_ns, controller_ns = (self.bounds.tick_ns * pace // 100 for pace in self.bounds.pace)
        brokers = tuple(broker._replace(
            lease=broker.lease and aged(broker.lease, broker_ns), sync=broker.sync and aged(broker.sync, broker_ns))
            for broker in state.brokers)
        controllers = tuple(each._replace(
            since=each.since and aged(each.since, controller_ns), live=aged(each.live, controller_ns),
            switching=each.switching and aged(each.switching, controller_ns)) for each in state.controllers)
        net = frozenset(aged(each, broker_ns) for each in state.net)
        return state._replace(brokers=brokers, controllers=controllers, net=net)


def _epochs_up_to(epochs: tuple[EpochEntry, ...], offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs that begin at or before `end`, each ending at the start of the next one."""
    kept = [EpochEntry(each.epoch, each.start_offset) for each in epochs if each.start_offset <= offset]
    for at in range(len(kept) - 1):
        kept[at] = kept[at]._replace(end_offset=kept[at + 1].start_offset)
    return tuple(kept)
