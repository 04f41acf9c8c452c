"""Searches of all states within bounds, the nearest first, and long walks; with a readable path to a violation."""
from __future__ import annotations

import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any

from tests.controller.explorer.model import Bounds, Event, Model, State, Violation
from tests.controller.explorer.planted import FOLLOWED, LEASES, LOGS
from tests.controller.explorer.rules import Time

# The bounds of the tests. Each test explores all states that are reachable within its bounds.

# Logs and sync-state sets of three replicas, each of which may seem dead at any time, regardless of leases; and leases
# of two replicas under two controllers, without messages.
SPACES = {
    "an election, a slave that leaves and comes back": LOGS._replace(unlinks=1, asks=1),
    "asks without an answer": LOGS._replace(unlinks=1, asks=2, timeouts=1, looks=0),
    "one that joins, asks without an answer": LOGS._replace(in_sync=2, asks=2, timeouts=1),
    "a kill": LOGS._replace(kills=1, asks=1),
    "a kill, one that joins": LOGS._replace(in_sync=2, kills=1, asks=2, elections=0),
    "two elections": LOGS._replace(elections=2, looks=2),
    "two messages": LOGS._replace(puts=2, looks=2),
    "connections": LEASES._replace(breaks=2, beats=2),
    "a leader": LEASES._replace(controllers=2, leaders=1, breaks=1, beats=2),
    "silence": LEASES._replace(ticks=3, beats=3),
    "a switch": LEASES._replace(controllers=2, leaders=1, switches=1, beats=2),
    "a new leader that the master follows": FOLLOWED._replace(breaks=1, beats=3),
    "a new leader, the master is killed": FOLLOWED._replace(kills=1, looks=1, beats=2),
    "a new leader, a restarted master": FOLLOWED._replace(has_asked=False, breaks=1, beats=3),
    "a new leader, a switch": FOLLOWED._replace(switches=1, beats=3),
    "a kill of the master": LEASES._replace(kills=1, beats=2, looks=2),
}
# Searches that take minutes, for the tier `long`.
LONG_SPACES = {
    "two elections, a slave that leaves": LOGS._replace(elections=2, unlinks=1, asks=1, looks=2),
    "one that joins and leaves, asks without an answer": LOGS._replace(in_sync=2, unlinks=1, asks=2, timeouts=1),
    "a kill in the middle of an ask": LOGS._replace(in_sync=2, kills=1, asks=2, timeouts=1, elections=0),
    "a kill, one that joins, an election": LOGS._replace(in_sync=2, kills=1, asks=2),
    "a controller that sleeps": LOGS._replace(in_sync=2, unlinks=1, asks=2, timeouts=1, ticks=1, looks=0, elections=0,
                                              tick_ns=12_000_000_000),
    "silence, and a connection": LEASES._replace(ticks=3, beats=2, breaks=1),
    "connections of three replicas": LEASES._replace(brokers=3, in_sync=3, breaks=1, beats=2),
    "connections, many heartbeats": LEASES._replace(breaks=2, beats=3),
    "two leaders": LEASES._replace(controllers=2, leaders=2, breaks=1, beats=2),
    "leaders and silence": LEASES._replace(controllers=2, leaders=1, ticks=3, beats=2),
    "a new leader, silence": FOLLOWED._replace(ticks=3, beats=4),
    "a new leader, the master is killed, many heartbeats": FOLLOWED._replace(kills=1, looks=1, beats=4),
    "a new leader, the master is killed twice": FOLLOWED._replace(kills=2, looks=2, beats=2),
    "two new leaders, the master is killed": FOLLOWED._replace(leaders=2, kills=1, looks=1, beats=3),
    "two new leaders, a connection": FOLLOWED._replace(leaders=2, breaks=1, beats=4),
    "a switch, and a connection": LEASES._replace(controllers=2, leaders=1, switches=1, breaks=1, beats=2),
    "two elections of masters": LEASES._replace(elections=2, breaks=2, beats=3, looks=2),
}

_MANY = 1_000_000
_ALL = {"kills": _MANY, "elections": _MANY, "asks": _MANY, "timeouts": _MANY, "unlinks": _MANY, "looks": _MANY,
        "puts": _MANY}
WALKS = {
    "any replica may seem dead": Bounds(leases=False, heartbeats=False, **_ALL),
    "leases and connections": Bounds(beats=_MANY, breaks=_MANY, leaders=_MANY, switches=_MANY, ticks=_MANY, **_ALL),
}


# Searches of all states within bounds, the nearest first, and long walks; with a readable path to a violation.


@dataclass
class Found:
    """The results of a search."""

    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    # all states within the bounds were visited
    is_exhausted: bool = False
    events: Counter[str] = field(default_factory=Counter)
    # The number of states in which a second master has acknowledged a message.
    failovers: int = 0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        what = "all states within the bounds" if self.is_exhausted else "stopped"
        return f"{self.states:,} states, {self.steps:,} steps, {self.seconds:.1f} s: {what}"


def exhaust(model: Model, max_seconds: float = 3600, max_states: int = 5_000_000) -> Found:
    """Search breadth first, so that a trace is as short as possible."""
    begin, found = time.monotonic(), Found()
    first = model.initial()
    before: dict[State, tuple[State, Event] | None] = {first: None}
    ahead = deque((first,))
    while ahead:
        state = ahead.popleft()
        for event in model.events(state):
            found.steps += 1
            found.events[event[0]] += 1
            try:
                after = model.after(state, event)
            except Violation as violation:
                _note(found, violation, _way(before, state), event)
                ahead.clear()
                break
            way = state, event
            # hashed once: hashing takes longer than most steps
            if before.setdefault(after, way) is way:
                ahead.append(after)
                found.failovers += _is_failover(after)
        if len(before) > max_states or time.monotonic() - begin > max_seconds:
            break
    else:
        found.is_exhausted = found.violation is None
    found.states, found.seconds = len(before), time.monotonic() - begin
    return found


def walk(model: Model, seed: int, walks: int, steps: int, max_seconds: float = 3600) -> Found:
    """Walk random paths, which differ in their rare events and in their clocks."""
    begin, found, rng = time.monotonic(), Found(), random.Random(seed)
    for _ in range(walks):
        model = Model(model.rules, model.bounds._replace(pace=rng.choice(_PACES), tick_ns=rng.choice(_TICKS_NS)))
        weights = {name: rng.choice(_RARE) for name in _FAULTS}
        state = model.initial()
        way: list[tuple[State, Event]] = []
        for _ in range(steps):
            events: dict[str, list[Event]] = {}
            for event in model.events(state):
                events.setdefault(event[0], []).append(event)
            if not events:
                break
            # so that a seed always takes the same path
            kinds = sorted(events)
            kind = rng.choices(kinds, [weights.get(kind, 1) for kind in kinds])[0]
            event = rng.choice(sorted(events[kind], key=repr))
            found.steps += 1
            found.events[event[0]] += 1
            try:
                after = model.after(state, event)
            except Violation as violation:
                _note(found, violation, [*way, (state, event)], event)
                found.seconds = time.monotonic() - begin
                return found
            way.append((state, event))
            state = after
        found.states += len(way)
        found.failovers += _is_failover(state)
        if time.monotonic() - begin > max_seconds:
            break
    found.seconds = time.monotonic() - begin
    return found


_FAULTS = ("kill", "choose", "lead", "overtake", "tick", "close", "cut", "unlink", "timeout", "give up", "switch",
           "left")
_RARE = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3)
# In %. No two clocks differ by more than a tenth.
_PACES = ((95, 105), (105, 95), (100, 100), (98, 108))
_TICKS_NS = (100_000_000, 400_000_000, 1_000_000_000, 3_500_000_000)


def _is_failover(state: State) -> bool:
    return len(state.masters) > 1 and bool(state.acked) or len(state.masters) > 1 and any(
        broker.role == "M" and broker.lease is not None and broker.epoch > 1 for broker in state.brokers)


def _way(before: dict[State, tuple[State, Event] | None], state: State) -> list[tuple[State, Event]]:
    way = []
    step = before[state]
    while step is not None:
        way.append(step)
        step = before[step[0]]
    return way[::-1]


def _note(found: Found, violation: Violation, way: list[tuple[State, Event]], event: Event) -> None:
    found.violation = str(violation)
    lines = [f"{at:3}. {say(each)}" for at, (_, each) in enumerate(way, 1)]
    if not way or way[-1][1] is not event:
        lines.append(f"{len(lines) + 1:3}. {say(event)}")
    found.trace = [*lines, f"     {violation}"]


_SAYINGS = {
    "put": "broker {0} takes a message",
    "link": "broker {0} links up with its master, and cuts its log back if it must",
    "read": "broker {0} gets the next message from its master", "unlink": "broker {0} loses its master",
    "report": "master {0} hears how far broker {1} is", "left": "master {0} sees that broker {1} has left",
    "ask": "master {0} asks for another sync-state set", "timeout": "master {0} no longer waits for the answer",
    "kill": "broker {0} is killed", "start": "broker {0} starts",
    "look": "controller {1} tells broker {0} who is the master",
    "choose": "the controller elects {0}", "connect": "broker {0} connects to controller {1}",
    "beat": "broker {0} sends a heartbeat to controller {1}",
    "close": "broker {0} closes its connection to controller {1}",
    "cut": "controller {1} loses its connection from broker {0}, which does not see it yet",
    "lead": "controller {0} leads from now on", "stop": "controller {0} knows now that it leads no more",
    "overtake": "controller {0} leads from now on, and the one before does not know it yet",
    "elect": "controller {0} elects a master, asked by {1}",
    "write": "controller {0} writes whom it has elected", "give up": "controller {0} no longer waits for the master",
    "switch": "controller {0} asks the master to give its lease up for broker {1}", "tick": "time advances",
}


def say(event: Event) -> str:
    """Return an event in words."""
    name, *args = event
    if name == "deliver":
        return _delivery(args[0])
    if name == "heard":
        return f"controller {args[0][2]} hears the heartbeat of broker {args[0][1]} over connection {args[0][3]}"
    if name == "decide":
        _, id_, epoch, ask, is_waited_for = args[1]
        late = "" if is_waited_for else ", for which no one waits any more"
        return (f"controller {args[0]} decides that broker {id_}, master of epoch {epoch}, wants {_set(ask.members)} "
                f"behind set {ask.epoch}{late}")
    return _SAYINGS[name].format(*args)


def _delivery(message: tuple[Any, ...]) -> str:
    name, id_, *rest = message
    if name == "look":
        told = rest[0]
        return (f"broker {id_} hears that {told.master} is the master of epoch {told.epoch}, in sync "
                f"{_set(told.members)}, set {told.set_epoch}")
    if name == "done":
        said = {None: "refused", "look": "refused, and looks what it is"}
        return f"broker {id_} hears that its set is {said.get(rest[2]) or _set(rest[2].members)}"
    if name == "end":
        return f"controller {rest[0]} sees the end of connection {rest[1]} from broker {id_}"
    if name == "gone":
        return f"broker {id_} sees the end of its connection {rest[1]} to controller {rest[0]}"
    if name == "told":
        asked, master, epoch, lease_ms, term, _, _, is_fresh = rest
        lease = f", and that its lease is {lease_ms} ms" if lease_ms else ""
        late = "" if is_fresh else ", asked before it last gave a lease up"
        return (f"broker {id_} hears from leadership {term} that {master} is the master of epoch {epoch}{lease}"
                f"{_ago(asked)}{late}")
    if name == "renounce":
        return f"broker {id_} gives its lease up, asked by the switch number {rest[1]}"
    return f"controller {rest[0]} hears from broker {id_}, asked by the switch number {rest[1]}, that it has no lease"


def _ago(asked: Time) -> str:
    return f", asked {-asked.from_now_ns / 1e9:.2f} s ago" if asked.from_now_ns else ""


def _set(members: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(members))) + "}"
