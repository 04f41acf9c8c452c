"""Rounds: kill a store at a point, open it again, hold it against what was acknowledged.

One Python process has imported everything and has a single thread; it forks a fresh process for each step, which is as
clean as a new one and is there at once.

    test --a line per step--> nursery --fork--> process that is killed, or that checks
         <-------result------         <--wait--
"""
import json
import logging
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.points import AGAIN, POINTS, Point
from tests.support.sources import ROOT

NOT_PASSED = 3
FAILED = 4
_STEP_TIMEOUT_S = 100
_LOG_SHOWN = 6000  # characters
# A point of the recovery may find nothing to do in what the kill before it left.
_TRIES = 8


@dataclass
class Outcome:
    """How a round ended: `failure` is empty when everything holds."""

    point: str
    seed: int
    passage: int
    records: int = 0
    failure: str = ""


class Nursery:
    """A process that forks one process per step."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.harness"], cwd=ROOT, text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, step: str, folder: Path, *arguments) -> tuple[int, str]:
        """Run one step in `folder`; its exit code (negative: the signal), and what it said."""
        self._process.stdin.write(json.dumps([step, str(folder), *arguments]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the nursery is gone"
        code, said = json.loads(line)
        return code, said

    def close(self) -> None:
        """End it; idempotent."""
        self._process.stdin.close()
        self._process.wait(_STEP_TIMEOUT_S)
        self._process.stdout.close()


class Rounds:
    """Rounds on one store after another: a store that failed, or has grown large, is left for a new one.

    `variant`: which of workload.VARIANTS the first store is; each next one is the next.
    """

    MAX_RECORDS = 800

    def __init__(self, nursery: Nursery, folder: Path, variant: int) -> None:
        self._nursery = nursery
        self._folder = folder
        self._variant = variant
        self._number = 0
        self._store = self._new_store()

    def _new_store(self) -> Path:
        self._number += 1
        store = self._folder / f"{self._number}"
        store.mkdir(parents=True)
        (store / "variant").write_text(str(self._variant))
        self._variant += 1
        return store

    def run(self, point: Point, seed: int) -> Outcome:
        """Kill at `point`, then check. The passage follows from the seed."""
        rng = random.Random(f"{point.name} {seed}")
        outcome = Outcome(point.name, seed, rng.randint(1, point.reach))
        outcome.failure = self._kill(point, outcome.passage, seed, rng)
        if not outcome.failure:
            code, said = self._nursery.run("check", self._store)
            outcome.failure = "" if code == 0 else f"exit code {code}: {said}"
            outcome.records = int(said) if code == 0 else 0
        if outcome.failure:
            outcome.failure += f"\nthe store: {self._store}; its log ends with\n{_end_of(self._store / 'log')}"
            self._store = self._new_store()
        elif outcome.records > self.MAX_RECORDS:
            shutil.rmtree(self._store)
            self._store = self._new_store()
        return outcome

    def _kill(self, point: Point, passage: int, seed: int, rng: random.Random) -> str:
        """Empty when the process was killed where it should be."""
        if point.first is None:
            return self._kill_once(point, passage, seed)
        failure = ""
        for _ in range(_TRIES):
            first = POINTS[point.first]
            failure = self._kill_once(first, rng.randint(1, first.reach), seed)
            if not failure and point.phase == AGAIN:
                failure = self._kill_once(POINTS["recovery: log forced"], 1, seed)
            failure = failure or self._kill_once(point, passage, seed)
            if not failure:
                return ""
            passage = rng.randint(1, passage)
        return failure

    def _kill_once(self, point: Point, passage: int, seed: int) -> str:
        note = self._store / "killed"
        note.unlink(missing_ok=True)
        code, said = self._nursery.run("be_killed", self._store, point.name, passage, seed)
        if code != -signal.SIGKILL:
            why = "was not passed" if code == NOT_PASSED else f"ended with {code}"
            return f"{point.name!r}, passage {passage}: {why} {said}"
        return "" if note.read_text() == point.name else f"killed at {note.read_text()!r}, not at {point.name!r}"


def _end_of(log_file: Path) -> str:
    """What the last step logged; of a long log its complaints, with their stacks, and its last lines."""
    if not log_file.exists():
        return "nothing"
    step = log_file.read_text("utf-8", "replace").rpartition("=== ")[2]
    if len(step) <= 2 * _LOG_SHOWN:
        return step
    entries = re.split(r"\n(?=\d{4}-\d\d-\d\d )", step)
    complaints = "\n".join(entry for entry in entries if re.search(r" (WARNING|ERROR|CRITICAL) ", entry[:100]))
    return f"{complaints[:_LOG_SHOWN]}\n...\n{step[-_LOG_SHOWN:]}"


def _in_child(step: Callable, folder: Path, arguments: list, answer: int) -> None:
    """The forked process: never comes back."""
    code = FAILED
    try:
        signal.alarm(_STEP_TIMEOUT_S)
        logging.basicConfig(filename=folder / "log", level=logging.INFO, force=True,
                            format=f"%(asctime)s {os.getpid()} %(threadName)s %(levelname)s %(message)s")
        logging.info("=== %s %s", step.__name__, arguments)
        said = step(folder, *arguments)
        os.write(answer, str(said).encode())
        code = 0 if said is not None else NOT_PASSED
    except BaseException:
        logging.exception("the step failed")
        os.write(answer, traceback.format_exc()[-3000:].encode())
    finally:
        os._exit(code)


def _serve() -> None:
    """The nursery: a line in, a process, a line out."""
    from tests.faults import workload
    steps = {"be_killed": workload.be_killed, "check": workload.check}
    for line in sys.stdin:
        name, folder, *arguments = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            _in_child(steps[name], Path(folder), arguments, writer)
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            said = file.read().decode("utf-8", "replace")
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(json.dumps([code, said]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
