"""Many lives with many kinds of fault, in parallel. The seed determines the schedule; each cycle prints one line.

    main process --(kind, kinds of broker, seed, cycles) per life--> worker processes --a line per cycle--> stdout
                 <------------------counts of the life--------------
Most of a cycle is waiting (for a reconnect, a timeout), so more lives than cores run at a time. Each worker has its own
network, or else its own range of ports, so that a restarted broker finds its ports free.
"""
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import network
from tests.faults.link_faults import Liars, Link, ThroughProxy
from tests.faults.machine_faults import Clock, Descriptors, Full, Power, Sync, Tail
from tests.faults.pair import Fault
from tests.faults.process_faults import AtPoints, Idle, Kill, Probes, Stop
from tests.support import ports
from tests.support.start_as import end_with_parent

_KINDS = (Kill, AtPoints, Link, Power, Stop, ThroughProxy, Sync, Full, Tail, Liars, Clock, Descriptors, Probes, Idle)
KINDS: dict[str, type[Fault]] = {kind.name: kind for kind in _KINDS}


@dataclass(frozen=True)
class Life:
    """The task of a worker."""

    kind: str
    brokers: tuple[str, str]  # kinds of master and slave
    seed: int
    cycles: int
    folder: Path
    # Monotonic time after which no cycle begins.
    until: float = float("inf")
    plants: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    small: bool = False

    def label(self) -> str:
        """Return a short label for the output."""
        return f"{self.kind} {'-'.join(self.brokers)} seed {self.seed}"


@dataclass
class Outcome:
    """The result of a life."""

    life: Life
    cycles: int = 0
    acknowledged: int = 0
    maybe: int = 0
    seconds: float = 0.0
    notes: Counter = field(default_factory=Counter)
    failure: str = ""


def run_life(life: Life) -> Outcome:
    """Run the cycles one after another until one fails or the time is over. The folder of a good life is removed."""
    outcome, begin = Outcome(life), time.monotonic()
    fault = KINDS[life.kind](life.folder, life.seed, life.brokers, life.plants, life.small)
    try:
        _run_cycles(fault, outcome)
    # the campaign reports any failure, and continues
    except Exception as failure:
        outcome.failure = f"cycle {outcome.cycles + 1}: {failure}" + (
            "" if isinstance(failure, AssertionError) else f"\n{traceback.format_exc()}")
        print(f"{life.label()} FAILED in {outcome.failure}; the stores: {life.folder}", flush=True)
    finally:
        senders = fault.pair.senders if fault.pair is not None else None
        if senders is not None:
            outcome.acknowledged, outcome.maybe = len(senders.acknowledged), senders.maybe
        outcome.notes = fault.notes
        fault.close()
    outcome.seconds = time.monotonic() - begin
    if not outcome.failure:
        shutil.rmtree(life.folder)
    return outcome


def _run_cycles(fault: Fault, outcome: Outcome) -> None:
    life = outcome.life
    fault.open()
    while outcome.cycles < life.cycles and time.monotonic() < life.until:
        begin = time.monotonic()
        told = fault.cycle()
        outcome.cycles += 1
        print(f"{life.label()} cycle {outcome.cycles}: {told} ({time.monotonic() - begin:.1f} s)", flush=True)
    begin = time.monotonic()
    fault.end()
    print(f"{life.label()} end: {fault.told} ({time.monotonic() - begin:.1f} s)", flush=True)


def _run_in_worker(run_one, life):
    try:
        return run_one(life)
    # asked to end: all is torn down, and no one waits
    except SystemExit:
        os._exit(1)


def begin_worker(numbers, jobs: int, within: tuple[int, int]) -> None:
    """Set up the network or the ports of a new worker. When it is asked to end, or its campaign has died, it tears down
    everything that it has set up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    end_with_parent(signal.SIGTERM)
    number = numbers.get()
    if network.isolate():
        return
    ports.use_range(*within)
    ports.use_part(number, jobs)


def lives_of(kinds: list[str], brokers: tuple[str, str], seed: int, cycles: int | None, until: float, folder: Path):
    """Yield the schedule, with `cycles` of each kind in total; None: endless."""
    for kind, life_seed, count in turns(kinds, seed, cycles, lambda kind: KINDS[kind].cycles_per_life):
        yield Life(kind, brokers, life_seed, count, folder / f"{kind}-{life_seed}", until)


def turns(kinds: list[str], seed: int, cycles: int | None, cycles_per_life):
    """Yield kind, seed and cycles of each life: kinds alternate, and each life has the next seed."""
    left = {kind: cycles if cycles is not None else sys.maxsize for kind in kinds}
    for number in itertools.count():
        kind = kinds[number % len(kinds)]
        if not any(left.values()):
            return
        count = min(cycles_per_life(kind), left[kind])
        left[kind] -= count
        if count:
            yield kind, seed * 100_000 + number, count


def run(lives, jobs: int, until: float, run_one=run_life) -> list:
    """Run lives in `jobs` processes until none is left or the time is over; return their outcomes."""
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(jobs):
        numbers.put(number)
    outcomes = []
    with ProcessPoolExecutor(jobs, context, begin_worker, (numbers, jobs, ports.own_range())) as pool:
        running = {pool.submit(_run_in_worker, run_one, life) for life in itertools.islice(lives, jobs)}
        while running:
            done = next(as_completed(running))
            running.remove(done)
            outcomes.append(done.result())
            if time.monotonic() < until:
                running |= {pool.submit(_run_in_worker, run_one, life) for life in itertools.islice(lives, 1)}
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Return a line per kind and mix of brokers, and the failures."""
    rows: dict[tuple, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault((outcome.life.kind, outcome.life.brokers), []).append(outcome)
    lines = []
    for (kind, brokers), group in rows.items():
        notes = sum((outcome.notes for outcome in group), Counter())
        lines.append(f"{kind} {'-'.join(brokers)}: {sum(o.cycles for o in group)} cycles in {len(group)} lives, "
                     f"{sum(o.acknowledged for o in group)} acknowledged, {sum(o.maybe for o in group)} maybe, "
                     f"{sum(bool(o.failure) for o in group)} failed lives"
                     + "".join(f", {count} {note}" for note, count in sorted(notes.items())))
    for outcome in outcomes:
        if outcome.failure:
            lines.append(f"FAILED {outcome.life.label()}, {outcome.failure}; the stores: {outcome.life.folder}")
    return "\n".join(lines)
