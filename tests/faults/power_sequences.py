"""Random sequences of events for a store and its slave, on disks that lose unforced data.

    python -m tests.faults.power_sequences --sequences 20000 --seed 1 [--jobs 2]

Prints one line for each failed sequence, then a summary; the exit code is 1 if one failed. A seed is one sequence:
`--sequences 1 --seed N` runs it again.
"""
from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

from rmqha.store import consume_queue_recovery
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from tests.faults import ledger
from tests.faults import machine as machines
from tests.faults.machine import Machine, Wrong, in_use

_STEPS = (5, 40)
_CHUNK = 50
# If set, file systems that lose names of synced files are skipped.
_JOURNALED = "RMQHA_JOURNALED_ONLY"


class Sequence:
    """One master, perhaps one slave, and their events."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = rng = random.Random(seed)
        self.seed = seed
        self.clock = machines.Clock(rng)
        self.done: list[str] = []
        keys = self._keys()
        journaled = rng.random() < 0.5 or bool(os.environ.get(_JOURNALED))
        self.master = Machine(folder / "master", BrokerRole.ASYNC_MASTER, keys, rng, journaled)
        self.slave: Machine | None = None
        if rng.random() < 0.5:
            self.slave = Machine(folder / "slave", BrokerRole.SLAVE, keys | {"transientStorePoolEnable": False}, rng,
                                 journaled)
        # A separate generator, so that a seed keeps its earlier sequence.
        limits = random.Random(f"limits of {seed}")
        self._units_looked_at = limits.choice((1, 2, 30, 4096))
        for machine in self._machines():
            machine.maps = limits.choice((1, 2, 1000))
        self.master_weights = self._weights()
        self.slave_weights = self._weights()

    def _keys(self) -> dict[str, object]:
        rng = self.rng
        keys: dict[str, object] = {
            "mappedFileSizeCommitLog": rng.choice((2048, 4096, 8192, 3000)),
            "mappedFileSizeConsumeQueue": rng.choice((60, 100, 500, 5000)),
            "maxHashSlotNum": rng.choice((3, 50)), "maxIndexNum": rng.choice((5, 20, 200)),
            "flushDiskType": rng.choice((FlushDiskType.SYNC_FLUSH,) * 3 + (FlushDiskType.ASYNC_FLUSH,)),
            "messageIndexSafe": rng.random() < 0.3, "preallocateMappedFile": rng.random() < 0.8}
        if rng.random() < 0.1:
            keys |= {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": 1000}
        if keys["flushDiskType"] is FlushDiskType.ASYNC_FLUSH and rng.random() < 0.3:
            keys |= {"transientStorePoolEnable": True, "transientStorePoolSize": 3}
        return keys

    def _weights(self) -> dict[str, float]:
        """Draw the weights of the steps: sequences differ in their rare steps."""
        weights = {name: self.rng.choice((1, 3)) for name in (
            "flush_log", "flush_log_a_little", "dispatch", "dispatch_some", "flush_queues", "flush_queues_a_little",
            "write_back", "flush_index", "clock")}
        return weights | {"append": 8, "power": 1, "kill": 1, "restart": 0.5, "cut_in": 0.6, "clean": 0.3, "feed": 6}

    def run(self) -> None:
        """Do all steps. Raise Wrong, or the store's own exception, if something does not hold."""
        disks = [machine.disk for machine in self._machines()]
        with in_use(*disks), mock.patch.object(time, "time_ns", self.clock), \
                mock.patch.object(consume_queue_recovery, "_UNITS_LOOKED_AT", self._units_looked_at):
            try:
                for machine in self._machines():
                    machine.open()
                for _ in range(self.rng.randrange(*_STEPS)):
                    self._step()
                for machine in self._machines():
                    self._lose_power(machine)
            finally:
                for machine in self._machines():
                    machine.give_up()

    def _machines(self) -> list[Machine]:
        return [self.master] if self.slave is None else [self.master, self.slave]

    def _step(self) -> None:
        rng = self.rng
        machine = rng.choice(self._machines())
        weights = self.master_weights if machine is self.master else self.slave_weights
        name = rng.choices(list(weights), list(weights.values()))[0]
        if name == "append":
            machine = self.master
        elif name == "feed":
            if self.slave is None:
                return
            machine = self.slave
        elif name == "clock":
            step = rng.choice((1, 10, 1000, 4000, 60_000, -1000, -10_000, -3_600_000, 3_600_000))
            self.clock.now_ms += step
            self.done.append(f"clock {step:+}")
            return
        self.done.append(f"{machine.disk.root.name} {name}")
        self.clock.now_ms += rng.choice((0, 1, 1, 100, 2000))
        if name in ("power", "kill", "restart"):
            {"power": self._lose_power, "kill": self._kill, "restart": self._restart}[name](machine)
        elif name == "cut_in":
            self._cut_in(machine)
        elif name == "feed":
            machine.feed(self.master)
        elif name == "append":
            machine.append(rng.choice((1, 1, 2, 6, 20)))
        else:
            machine.step(name)

    def _cut_in(self, machine: Machine) -> None:
        """Stop the machine in the middle of its next syncs, of any file."""
        machine.disk.syncs_left = self.rng.randrange(12)
        first = "append" if machine is self.master else "flush_log"
        what = self.rng.choice((first, "flush_log", "flush_queues", "restart", "kill", "power"))
        self.done[-1] += f" of {what}"
        stopped = machine.stops_in(what)
        machine.disk.syncs_left, machine.disk.is_cut = None, False
        if stopped and self.rng.random() < 0.8:
            self._lose_power(machine)
        elif stopped:
            self._kill(machine)
        elif what in ("power", "kill", "restart"):
            self._after_start(machine)

    def _lose_power(self, machine: Machine) -> None:
        machine.lose_power()
        self._after_start(machine)

    def _kill(self, machine: Machine) -> None:
        machine.kill()
        self._after_start(machine)

    def _restart(self, machine: Machine) -> None:
        machine.restart()
        self._after_start(machine)

    def _after_start(self, machine: Machine) -> None:
        machine.check()
        if self.slave is None:
            return
        if machine is self.master:
            if self.slave.end > self.master.end or self.slave.end < self.master.begin:
                self.done.append("slave set up from scratch")
                self.slave.set_up_anew()
        self.slave.check_against(self.master)


def run_one(seed: int) -> tuple[str, Counter[str]]:
    """Return what is wrong with a sequence ("" if everything holds), and the counts of its steps."""
    folder = Path(tempfile.mkdtemp(prefix="power-", dir=_memory()))
    sequence = None
    try:
        sequence = Sequence(seed, folder)
        sequence.run()
        failure = ""
    except (Wrong, Exception) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
    finally:
        shutil.rmtree(folder)
    done = sequence.done if sequence is not None else []
    steps = Counter(" ".join(step.split()[:2]) for step in done)
    return failure and f"seed {seed}: {failure}\n    {'; '.join(done)}", steps


def run_some(first: int, count: int) -> tuple[list[str], Counter[str]]:
    """Run sequences one after another in this process."""
    failures, steps = [], Counter()
    logging.disable(logging.CRITICAL)
    try:
        for seed in range(first, first + count):
            failure, made = run_one(seed)
            steps += made
            if failure:
                failures.append(failure)
    finally:
        logging.disable(logging.NOTSET)
    return failures, steps


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    """Run and print; the exit code shows whether everything holds."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.power_sequences", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first sequence; the others follow")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="append the result to tests/faults/ledger.tsv")
    options = parser.parse_args()
    begin, steps, failed = time.monotonic(), Counter(), 0
    last = options.seed + options.sequences
    chunks = [(first, min(_CHUNK, last - first)) for first in range(options.seed, last, _CHUNK)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for failures, made in pool.map(run_some, *zip(*chunks, strict=True)):
            steps += made
            failed += len(failures)
            for failure in failures:
                print(failure, flush=True)
    seconds = time.monotonic() - begin
    print(", ".join(f"{count} {name}" for name, count in sorted(steps.items())))
    print(f"{options.sequences - failed} of {options.sequences} sequences hold, seeds {options.seed} to {last - 1}, "
          f"{seconds:.0f} s, {options.sequences / seconds:.0f} per second")
    if options.record:
        ledger.append([ledger.Entry(ledger.present_commit(), "power sequences", "in one process", options.seed,
                                    options.sequences, 0, failed)])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
