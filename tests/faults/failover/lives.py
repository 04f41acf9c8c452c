"""Lives of a cluster under load, many of them in parallel; see __init__.py."""
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults import campaign
from tests.faults.failover.cluster import BOOT_MS, REPLICAS, Cluster, Plan, Replica, switch, warm_up
from tests.faults.failover.judge import Judge
from tests.faults.failover.traffic import Traffic
from tests.faults.pair_broker import Broker
from tests.support.nodes import ControllerNode
from tests.support.processes import ServerProcess
from tests.support.wait import wait_until

# Lives of a cluster under load. Each has some cycles, each with one fault; see __init__.py.

_FIRST_ACK_S = 90.0
_OFTEN_S, _SELDOM_S = 0.02, 0.2
# An rmqha controller may have to wait for the previous leader's leases.
_NEW_LEADER_S = 4.0


@dataclass(frozen=True)
class Life:
    """The task of a worker."""

    kind: str
    plan: Plan
    seed: int
    cycles: int
    folder: Path
    # Monotonic time after which no cycle begins.
    until: float = float("inf")
    seconds: float = 180.0  # of a sequence
    producers: int = 16
    pause_s: float = 0.04  # of a producer between messages
    stale: int = 0  # producers that always send to the same broker, which relays
    keep: bool = False  # True: the stores stay
    # In-sync replicas required for a kill of the master; 3: never while the third is catching up.
    least_in_sync: int = 2

    def label(self) -> str:
        """Return a short label for the output."""
        return f"{self.kind}, {self.plan}, seed {self.seed}"


@dataclass
class Outcome:
    """The result of a life. `times`: measurements in seconds, by their names."""

    life: Life
    cycles: int = 0
    acknowledged: int = 0
    relayed: int = 0  # of these
    maybe: int = 0
    unknown: int = 0
    seconds: float = 0.0
    times: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    failure: str = ""


class Failover:
    """One life. The seed determines all choices; the machine determines when they happen."""

    name = ""
    cycles_per_life = 50

    def __init__(self, life: Life):
        self.life = life
        self.rng = random.Random(f"{self.name} {life.seed}")
        self.cluster = Cluster(life.folder, life.plan, life.seed)
        self.traffic: Traffic | None = None
        self.judge: Judge | None = None
        self.times: defaultdict[str, list[float]] = defaultdict(list)

    def open(self) -> None:
        """Start all nodes and the load."""
        self.cluster.open()
        addresses = [replica.address for replica in self.cluster.replicas]
        self.traffic = Traffic(addresses, f"s{self.life.seed}", self.life.folder / "acknowledged.jsonl",
                               self.life.producers, self.life.pause_s, self.cluster.least_body,
                               self.cluster.largest_body, self.life.stale)
        self.judge = Judge(self.cluster, self.traffic)
        self.traffic.go()
        self.traffic.wait_for_more(50, BOOT_MS)

    def cycle(self) -> str:
        """Do one fault, and describe it in a few words. Raises Violation."""
        raise NotImplementedError

    def end(self) -> str:
        """Wait until the cluster has recovered, and compare everything with what was acknowledged."""
        self.cluster.wait_whole()
        self.traffic.wait_for_more(20, BOOT_MS)
        self.traffic.pause()
        return self.judge.close()

    def close(self) -> None:
        """Kill all processes."""
        if self.traffic is not None:
            self.traffic.close()
        for process in self.cluster.processes():
            thaw(process)
        self.cluster.close()

    # Parts of cycles.

    def await_new_master(self, old: Replica, since: float, what: str) -> float:
        """Return the seconds from `since` until another broker acknowledges a message sent later."""
        first = self.traffic.acked_by_other(old.index, since, _FIRST_ACK_S)
        seconds = first.received - since
        self.times[what].append(seconds)
        self.traffic.probe_s = _SELDOM_S
        return seconds

    def load(self, least_s: float, most_s: float) -> None:
        """Run the load for a while, with frequent probes from now on."""
        self.traffic.probe_s = _OFTEN_S
        time.sleep(max(self.rng.uniform(least_s, most_s), _SELDOM_S))


def freeze(process: ServerProcess) -> None:
    """Send SIGSTOP."""
    os.kill(process.pid, signal.SIGSTOP)


def thaw(process: ServerProcess) -> None:
    """Send SIGCONT to a process, if it runs."""
    if process.is_alive:
        os.kill(process.pid, signal.SIGCONT)


class Kill(Failover):
    """One cycle: kill -9 of the master under load, and its restart while the next master has the load.

    With etcd, in some cycles a member of it is killed or stopped at about the same time, and in some the leading
    controller is killed just before. In one cycle of five, unless the life requires three in sync, the master is killed
    while two are in sync and the third is catching up.
    """

    name = "kill"

    def __init__(self, life: Life):
        super().__init__(life)
        self._shaken: ServerProcess | None = None
        self._killed: ControllerNode | None = None

    def cycle(self) -> str:
        self._mend_etcd()
        self._start_controller()
        members = self.life.least_in_sync if self.rng.random() < 0.2 else REPLICAS
        master = self.cluster.wait_whole(members=members)
        looked = self.judge.look() if members == REPLICAS else 0
        shake = self._shake_etcd() if self.cluster.etcd and self.rng.random() < 1 / 3 else ""
        self.load(0.2, 1.0)
        ended = self._kill_leader() if self.cluster.etcd and self.rng.random() < 1 / 6 else ""
        what = "kill" + (", two in sync" if members < REPLICAS else "") + (", etcd shaken" if shake else "") + (
            ", new leader" if time.monotonic() - self.cluster.leads_since < _NEW_LEADER_S else "")
        since = time.monotonic()
        master.process.kill()
        seconds = self.await_new_master(master, since, what)
        master.kill()
        time.sleep(self.rng.choice([0, 0, self.rng.uniform(0, 0.5)]))
        master.launch()
        return f"{what}: {master.name}{shake}{ended}, {seconds * 1000:.0f} ms; looked at {looked}"

    def _shake_etcd(self) -> str:
        self._shaken = self.rng.choice(self.cluster.etcd)
        if self.rng.random() < 0.5:
            self._shaken.kill()
            return f" and {self._shaken.name}"
        freeze(self._shaken)
        return f", {self._shaken.name} stopped"

    def _kill_leader(self) -> str:
        node = self.cluster.leading_controller()
        if node is None:
            return ""
        node.kill()
        self._killed, self.cluster.leads_since = node, time.monotonic()
        time.sleep(self.rng.uniform(0.3, 1.5))
        return f" and {node.name}"

    def _start_controller(self) -> None:
        if self._killed is not None:
            self._killed.start(BOOT_MS)
            self._killed = None

    def _mend_etcd(self) -> None:
        if self._shaken is None:
            return
        node, self._shaken = self._shaken, None
        if node.is_alive:
            thaw(node)
        else:
            node.launch()
        wait_until(node.is_healthy, BOOT_MS, f"{node.name} is healthy")

    def end(self) -> str:
        self._mend_etcd()
        self._start_controller()
        return super().end()


class Hang(Failover):
    """One cycle: SIGSTOP of the master, and SIGCONT after another broker has acknowledged for a while."""

    name = "hang"
    cycles_per_life = 20

    def cycle(self) -> str:
        master = self.cluster.wait_whole()
        looked = self.judge.look()
        self.load(0.2, 0.8)
        since = time.monotonic()
        freeze(master)
        try:
            seconds = self.await_new_master(master, since, "hang")
            time.sleep(self.rng.choice([0, self.rng.uniform(0, 2)]))
        finally:
            thaw(master)
        return f"SIGSTOP of {master.name}: {seconds:.2f} s; looked at {looked}"


class Switch(Failover):
    """One cycle: a planned switch to another master."""

    name = "switch"

    def cycle(self) -> str:
        master = self.cluster.wait_whole()
        looked = self.judge.look()
        self.load(0.2, 0.5)
        warm_up()
        target = self.rng.choice([replica for replica in self.cluster.replicas if replica is not master])
        since = time.monotonic()
        switch(self.cluster, target)
        took = time.monotonic() - since
        self.times["command of a switch"].append(took)
        seconds = self.await_new_master(master, since, "switch")
        self.traffic.wait_for_more(self.life.producers * 2)
        refused = self.traffic.refusals.longest_s(since)
        self.times["longest wait of a producer at a switch"].append(refused)
        return (f"from {master.name} to {target.name}: command {took * 1000:.0f} ms, acknowledges after "
                f"{seconds * 1000:.0f} ms, longest wait {refused * 1000:.0f} ms; looked at {looked}")


class Mixed(Kill):
    """One cycle: one process is killed or stopped for a while, or the master is switched."""

    name = "mixed"

    def cycle(self) -> str:
        done = self.rng.choice([super().cycle, super().cycle, self._kill_controller, self._stop_some, self._switch])
        return done()

    def _kill_controller(self) -> str:
        self.cluster.wait_whole()
        self.judge.look()
        node = self.cluster.leading_controller()
        assert node is not None, "no controller leads"
        self.load(0.2, 0.6)
        since = time.monotonic()
        node.kill()
        time.sleep(self.rng.uniform(0, 1.5))
        if self.rng.random() < 0.3:
            master = self.rng.choice(self.cluster.replicas)
            master.kill()
            master.launch()
        node.start(BOOT_MS)
        self.cluster.leads_since = time.monotonic()
        self.traffic.wait_for_more(self.life.producers, BOOT_MS)
        wait = self.traffic.refusals.longest_s(since)
        self.times["longest wait of a producer at the end of a controller"].append(wait)
        return f"kill -9 of {node.name}, longest wait {wait * 1000:.0f} ms"

    def _stop_some(self) -> str:
        self.cluster.wait_whole()
        self.judge.look()
        process = self.rng.choice(self.cluster.processes())
        seconds = self.rng.choice([self.rng.uniform(0, 1), self.rng.uniform(2, 6)])
        freeze(process)
        try:
            time.sleep(seconds)
        finally:
            thaw(process)
        return f"SIGSTOP of {process.name} for {seconds:.1f} s"

    def _switch(self) -> str:
        return Switch.cycle(self)


class Partition(Failover):
    """One cycle: a sequence of some minutes with cuts, stops, kills and jumping clocks, up to three at a time.

    Sometimes all faults are removed, and the cluster must recover on its own.
    """

    name = "partition"
    cycles_per_life = 1

    def __init__(self, life: Life):
        super().__init__(life)
        self._stopped: set[ServerProcess] = set()
        self._told: list[str] = []

    def cycle(self) -> str:
        self.traffic.probe_s = 0.05
        until = time.monotonic() + self.life.seconds
        while time.monotonic() < until:
            for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
                self._told.append(self.rng.choice(self._faults())())
                time.sleep(self.rng.choice([0, self.rng.uniform(0, 2)]))
            time.sleep(self.rng.choice([self.rng.uniform(0.2, 2), self.rng.uniform(2, 9)]))
            self._heal()
            if self.rng.random() < 0.6:
                self.cluster.wait_whole()
                self._told.append(f"[{self.judge.look()}]")
        return "; ".join(self._told)

    def _heal(self) -> None:
        self.cluster.star.heal()
        for process in self._stopped:
            thaw(process)
        self._stopped.clear()
        for process in self.cluster.processes():
            if not process.is_alive:
                process.kill()
                process.launch()

    def _faults(self) -> list[Callable[[], str]]:
        return [self._cut_from_controllers, self._cut_from_controllers, self._cut_from_replicas, self._isolate,
                self._cut_any, self._stop, self._stop, self._kill, self._step_clock,
                *([self._cut_from_etcd, self._cut_from_etcd] if self.cluster.etcd else [])]

    def _name(self, process: ServerProcess) -> str:
        return self.cluster.names[process.name]

    def _some_broker(self) -> Broker:
        """Draw a broker, usually the master."""
        master = self.cluster.master() if self.rng.random() < 0.7 else None
        return master or self.rng.choice(self.cluster.replicas)

    def _cut(self, sources: list[str], targets: list[str]) -> str:
        way = self.rng.choice(["both", "both", "to", "from"])
        if way == "from":
            sources, targets = targets, sources
        self.cluster.star.cut(sources, targets, way == "both")
        return f"{'+'.join(sources)} {'x' if way == 'both' else '->x'} {'+'.join(targets)}"

    def _cut_from_controllers(self) -> str:
        controllers = [self._name(node) for node in self.cluster.controllers]
        chosen = self.rng.sample(controllers, self.rng.randint(1, len(controllers)))
        return self._cut([self._name(self._some_broker())], chosen)

    def _cut_from_replicas(self) -> str:
        broker = self._some_broker()
        others = [self._name(other) for other in self.cluster.replicas if other is not broker]
        return self._cut([self._name(broker)], self.rng.sample(others, self.rng.randint(1, len(others))))

    def _isolate(self) -> str:
        broker = self._some_broker()
        return self._cut([self._name(broker)], [name for name in self.cluster.names.values()
                                                if name != self._name(broker)])

    def _cut_from_etcd(self) -> str:
        members = [self._name(node) for node in self.cluster.etcd]
        controller = self._name(self.cluster.leading_controller() or self.rng.choice(self.cluster.controllers))
        return self._cut([controller], self.rng.sample(members, self.rng.randint(1, len(members))))

    def _cut_any(self) -> str:
        one, other = self.rng.sample(sorted(self.cluster.names.values()), 2)
        return self._cut([one], [other])

    def _victim(self) -> ServerProcess:
        return self.rng.choice([self._some_broker(), self._some_broker(), *self.cluster.controllers,
                                *self.cluster.etcd[:1]])

    def _stop(self) -> str:
        process = self._victim()
        if not process.is_alive:
            return "no process stopped"
        freeze(process)
        self._stopped.add(process)
        if self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0.1, 5))
            thaw(process)
        return f"SIGSTOP {self._name(process)}"

    def _kill(self) -> str:
        process = self._victim()
        self._stopped.discard(process)
        process.kill()
        if self.rng.random() < 0.5:
            time.sleep(self.rng.uniform(0, 1))
            process.launch()
        return f"kill -9 {self._name(process)}"

    def _step_clock(self) -> str:
        if not self.life.plan.clocks:
            return "no clock"
        name = self._name(self.rng.choice([*self.cluster.replicas, *self.cluster.controllers]))
        seconds = self.rng.choice([-86_400, 86_400, -3600, 3600, -10, 10, -2, 2, 0])
        self.cluster.set_clock(name, seconds)
        return f"clock of {name} {seconds:+} s"

    def end(self) -> str:
        self._heal()
        return super().end()


KINDS: dict[str, type[Failover]] = {kind.name: kind for kind in (Kill, Hang, Switch, Mixed, Partition)}


def run_life(life: Life) -> Outcome:
    """Run the cycles one after another until one fails or the time is over. The folder of a good life is removed."""
    outcome, begin = Outcome(life), time.monotonic()
    fault = KINDS[life.kind](life)
    try:
        fault.open()
        while outcome.cycles < life.cycles and time.monotonic() < life.until:
            at = time.monotonic()
            told = fault.cycle()
            outcome.cycles += 1
            print(f"{life.label()}, cycle {outcome.cycles}: {told} ({time.monotonic() - at:.1f} s)", flush=True)
        print(f"{life.label()}, end: {fault.end()}", flush=True)
    # The campaign reports any failure, and continues.
    except Exception as failure:
        outcome.failure = f"cycle {outcome.cycles + 1}: {failure}" + (
            "" if isinstance(failure, AssertionError) else f"\n{traceback.format_exc()}")
        told = getattr(fault, "_told", [])
        print(f"{life.label()} FAILED in {outcome.failure}; {'; '.join(told)}; the stores: {life.folder}", flush=True)
    finally:
        if fault.traffic is not None:
            outcome.acknowledged, outcome.maybe = len(fault.traffic.acks), fault.traffic.maybe
            outcome.relayed = fault.traffic.relayed
            outcome.unknown, outcome.refused = fault.traffic.unknown, dict(fault.traffic.refused)
        outcome.times = dict(fault.times)
        fault.close()
    outcome.seconds = time.monotonic() - begin
    if not outcome.failure and not life.keep:
        shutil.rmtree(life.folder)
    return outcome


# Many lives in parallel, each in a process with its own network; and their results.


def lives_of(kinds: list[str], plan: Plan, seed: int, cycles: int, folder: Path, **keys: object) -> Iterator[Life]:
    """Yield the schedule, with `cycles` of each kind in total."""
    for kind, life_seed, count in campaign.turns(kinds, seed, cycles, lambda kind: KINDS[kind].cycles_per_life):
        yield Life(kind, plan_of(kind, plan), life_seed, count, folder / f"{kind}-{life_seed}", **keys)


def plan_of(kind: str, plan: Plan) -> Plan:
    """Return the plan adapted to this kind."""
    if kind != "partition":
        return plan
    return replace(plan, partitions=True)


def run(lives: Iterable[Life], jobs: int) -> list[Outcome]:
    """Run lives in `jobs` processes until none is left."""
    return campaign.run(iter(lives), jobs, float("inf"), run_life)


def quantiles(values: list[float]) -> dict[str, float]:
    """Return count, minimum, median, percentiles and maximum, in milliseconds."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 1)
    return {"count": len(ordered), "min": at(0), "median": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1)}


def times_of(outcomes: Iterable[Outcome]) -> dict[str, dict[str, float]]:
    """Return all measurements by their names."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for what, values in outcome.times.items():
            times[what] += values
    return {what: quantiles(values) for what, values in sorted(times.items())}


def summary(outcomes: list[Outcome]) -> str:
    """Return lines with sums, times, refusals and failures."""
    lines = []
    groups: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.life.kind, str(outcome.life.plan)].append(outcome)
    for (kind, plan), group in groups.items():
        failed = [outcome for outcome in group if outcome.failure]
        lines.append(f"{kind}, {plan}: {sum(o.cycles for o in group)} cycles in {len(group)} lives, "
                     f"{sum(o.acknowledged for o in group)} acknowledged ({sum(o.relayed for o in group)} of them "
                     f"through relays), {sum(o.maybe for o in group)} maybe, "
                     f"{sum(o.unknown for o in group)} without an answer, {len(failed)} lives failed, "
                     f"{sum(o.seconds for o in group):.0f} s")
        for what, of in times_of(group).items():
            lines.append(f"  {what}: {of['count']} times, {of['min']} .. {of['max']} ms, median {of['median']}, "
                         f"p90 {of['p90']}, p99 {of['p99']}")
        refused: defaultdict[str, int] = defaultdict(int)
        for outcome in group:
            for why, count in outcome.refused.items():
                refused[why] += count
        lines += [f"  refused {count} times: {why}" for why, count in
                  sorted(refused.items(), key=lambda item: -item[1])[:8]]
        lines += [f"  FAILED {outcome.life.label()}: {outcome.failure}\n  {outcome.life.folder}" for outcome in failed]
    return "\n".join(lines)


def write_json(outcomes: list[Outcome], file: Path) -> None:
    """Write a JSON line for each life."""
    with open(file, "a", encoding="utf-8") as out:
        for outcome in outcomes:
            life = outcome.life
            out.write(json.dumps({
                "kind": life.kind, "plan": str(life.plan), "seed": life.seed, "cycles": outcome.cycles,
                "acknowledged": outcome.acknowledged, "relayed": outcome.relayed, "maybe": outcome.maybe,
                "unknown": outcome.unknown, "seconds": round(outcome.seconds, 1), "failure": outcome.failure,
                "times_ms": {what: [round(value * 1000, 1) for value in values]
                             for what, values in outcome.times.items()}}) + "\n")
    sys.stdout.flush()
