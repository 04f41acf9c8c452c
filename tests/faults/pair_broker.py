"""One broker of a pair: its start with planted faults, also of C libraries, its stop, and the resources it holds."""
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support import store_compare
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, Answer, RawClient
from tests.support.wait import wait_until

# Small C libraries that are preloaded into a broker, compiled on demand.

_HERE = Path(__file__).parent


@functools.cache
def why_not() -> str | None:
    """Return why nothing can be compiled on this machine, or None if it can."""
    return None if shutil.which("gcc") else "not installed: gcc"


def compiled(name: str, folder: Path) -> Path:
    """Compile `name`.c of this package into `folder`, and return the library."""
    library = folder / f"{name}.so"
    done = subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_HERE / f"{name}.c"), "-ldl"],
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return library


# One broker of a pair: its start with planted faults, its stop, and the resources it holds.


def _good(answer: Answer) -> Answer | None:
    return answer if answer.code == 0 else None


class Broker(BrokerNode):
    """A broker of either kind. `prefix` precedes its command, `plants` are faults of planted.py (rmqha only)."""

    def __init__(self, kind: str, folder: Path, name: str, prefix: tuple[str, ...] = (),
                 env: dict[str, str] | None = None, plants: tuple[str, ...] = (), **properties: object):
        self._prefix, self._extra_env, self._plants = prefix, env or {}, plants
        super().__init__(kind, folder, None, name, **properties)

    def become(self, kind: str) -> "Broker":
        """Do as BrokerNode does, with prefix, environment and plants."""
        super().become(kind)
        if self._plants:
            assert kind == "rmqha", "faults are planted in rmqha only"
            self.command = [sys.executable, "-m", "tests.faults.planted", ",".join(self._plants),
                            "-c", str(self.config_file)]
        self.command = [*self._prefix, *self.command]
        self._env.update(self._extra_env)
        return self

    def lay_trap(self, point: str | None, passage: int) -> None:
        """Make the next starts kill themselves at the n-th passage of a point of process_faults.py; None: no more."""
        self._plants = tuple(plant for plant in self._plants if plant != "die") + (("die",) if point else ())
        self._extra_env = {**self._extra_env, "FAULTS_POINT": point or "", "FAULTS_PASSAGE": str(passage)}
        self.become(self.kind)

    @property
    def ends_by_its_files(self) -> bool:
        """True if the files show the end of the log. The original keeps old bytes after the end, and must be asked."""
        return self.kind == "rmqha" or bool(self._prefix) or not self.is_alive

    def log_end(self) -> int:
        """Return the end of its log, from the files or from the original's own answer."""
        if self.ends_by_its_files:
            return store_compare.log_end(self.commit_log)
        return int(self._runtime_info()["commitLogMaxOffset"])

    def _runtime_info(self) -> dict[str, str]:
        with RawClient(self.address) as client:
            # in its first second the original fails here: it has no sample of its statistics yet
            answer = wait_until(lambda: _good(client.request(GET_BROKER_RUNTIME_INFO)), 60_000, "runtime information")
        return json.loads(answer.body)["table"]

    def freeze(self) -> None:
        """Send SIGSTOP, and wait until the kernel reports all threads as stopped."""
        process = psutil.Process(self.pid)
        os.kill(self.pid, signal.SIGSTOP)
        wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 60_000, f"{self.name} stopped")

    def thaw(self) -> None:
        """Send SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_until_dispatched(self, timeout_ms: int = 60_000) -> None:
        """Wait until an idle rmqha broker has dispatched its whole log, which may be after it has acknowledged."""
        wait_until(lambda: self._runtime_info()["dispatchBehindBytes"] == "0", timeout_ms,
                   f"the whole log of the {self.base_name} is dispatched")


def _target(descriptor: Path) -> str | None:
    """Return the target of a descriptor of another process; None if it has been closed."""
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:
        return None


class Holdings:
    """A broker's descriptors, except store files, and its threads at creation. A fault must not leak them.

    The JVM starts and ends dozens of threads at any time; rmqha's pools start theirs on demand.
    """

    def __init__(self, broker: Broker):
        self._broker = broker
        self._spare = {"descriptors": 4, "threads": 60 if broker.kind == "java" else 4}
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        process = psutil.Process(self._broker.pid)
        links = map(_target, Path(f"/proc/{process.pid}/fd").iterdir())
        descriptors = sum(link is not None and not link.startswith(str(self._broker.folder)) for link in links)
        return {"descriptors": descriptors, "threads": process.num_threads()}

    def __str__(self) -> str:
        return ", ".join(f"{what} {count} -> {self._now()[what]}" for what, count in self._before.items())

    def assert_returned(self, timeout_ms: int = 60_000) -> None:
        """Wait until no more is held than at creation, with a small margin."""
        def returned() -> bool:
            return all(count <= self._before[what] + self._spare[what] for what, count in self._now().items())
        try:
            wait_until(returned, timeout_ms)
        except AssertionError:
            raise AssertionError(f"F: {self._broker.name} held {self._before}, now it holds {self._now()}") from None
