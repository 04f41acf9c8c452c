"""One run: the cluster, the clients, the events one after another, and what they felt."""
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.faults.failover.cluster import warm_up
from tests.faults.felt import check, figures
from tests.faults.felt.events import EVENTS
from tests.faults.felt.figures import Table, Window
from tests.faults.felt.programs import Client, Pace, Program, start_all
from tests.faults.felt.system import NAMES, Route, Server, Setup, System
from tests.support.wait import wait_until

_AGAIN_MS = 180_000
_DRAIN_MS = 120_000
_ROUTE_S = 60


@dataclass(frozen=True)
class Task:
    """The options of a run."""

    setup: Setup
    events: tuple[str, ...]
    rounds: int
    programs: tuple[Program, ...]
    folder: Path
    # Between an event and the next one, at least.
    settle_s: float = 35.0
    pace: Pace = Pace()
    seed: int = 1


@dataclass
class Result:
    """The outcome of a run. `violations` is empty if everything holds."""

    table: Table = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    errors: dict[str, dict[str, int]] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)


class Run:
    """The cluster and the clients of a task."""

    def __init__(self, task: Task):
        self.task = task
        self.system = System(task.folder / "servers", task.setup, [program.topic for program in task.programs])
        self.clients: list[Client] = []
        self.windows: list[Window] = []
        self._rng = random.Random(f"felt {task.seed}")
        self._result = Result()

    def run(self) -> Result:
        """Do everything. Servers and clients have ended then; their files stay."""
        try:
            self.system.open()
            warm_up()
            self.clients = [Client(program, self.task.folder / program.name, self.system.namesrv_address,
                                   self.task.pace) for program in self.task.programs]
            start_all(self.clients)
            try:
                for event in self.task.events * self.task.rounds:
                    self._round(event)
            except AssertionError as failure:
                # The servers: the figures until then are of use, too.
                self._result.violations.append(f"event {len(self.windows) + 1}: {failure}")
            self._end()
        finally:
            for client in self.clients:
                client.kill()
            self.system.close()
        return self._result

    def _round(self, event: str) -> None:
        number = len(self.windows)
        name = NAMES[number % self.task.setup.names]
        master = self.system.wait_name(name)
        # The clients ask for routes each 30 s: events come at any time in between.
        time.sleep(self._rng.uniform(1, 8))
        begin, begin_us = time.monotonic(), _now_us()
        with ThreadPoolExecutor(1) as pool:
            # The route of one address for all replicas does not change.
            is_routed = event != "none" and self.task.setup.way is None
            routing = pool.submit(self._routed, master, begin) if is_routed else None
            text = EVENTS[event](self.system, master, self._rng)
            routed_s = routing.result() if routing is not None else None
        time.sleep(max(begin + self.task.settle_s - time.monotonic(), 0))
        self.system.recover(master)
        self.system.wait_name(name)
        self.system.check_alive()
        self._await_clients()
        window = Window(number + 1, event, text, begin_us, _now_us(),
                        None if routed_s is None else round(routed_s * 1000))
        self.windows.append(window)
        text = figures.text_of([(window, self._figures(window))]).split("\n\n")[0]
        print(f"so far: {text}\n", flush=True)

    def _routed(self, master: Server, begin: float) -> float | None:
        route = Route(self.system.namesrv.address, self.task.programs[0].topic, master.broker_name)
        return route.changed_after(master.address, begin, min(_ROUTE_S, self.task.settle_s))

    def _await_clients(self) -> None:
        """Wait until each client sends and receives again; the ones that don't are a violation."""
        since = _now_us()
        for client in self.clients:
            try:
                wait_until(lambda client=client: client.sends_and_receives(since), _AGAIN_MS)
            except AssertionError:
                self._result.violations.append(
                    f"{client.program.name}: does not send and receive within {_AGAIN_MS // 1000} s, after event "
                    f"{len(self.windows) + 1}")

    def _figures(self, window: Window) -> dict[str, figures.Figures]:
        return {client.program.name: figures.figures_of(client.program, client.records.update(), window)
                for client in self.clients}

    def _end(self) -> None:
        for client in self.clients:
            client.stop_sending()
        try:
            wait_until(lambda: not self._outstanding(), _DRAIN_MS)
        except AssertionError:
            print(f"not received: {self._outstanding()}", flush=True)
        result, copies = self._result, check.copies_in_logs(self.system)
        result.table = [(window, self._figures(window)) for window in self.windows]
        result.violations += check.violations(self.clients, copies)
        for client in self.clients:
            name, sends = client.program.name, client.records.sends
            result.sends[name] = len(sends)
            result.duplicates[name] = check.duplicates(client, copies)
            for window in self.windows:
                result.errors[f"{window.number}. {window.event}, {name}"] = figures.errors_of(sends, window)

    def _outstanding(self) -> dict[str, int]:
        """Return how many acknowledged messages each client has not received."""
        counts = {}
        for client in self.clients:
            records = client.records.update()
            missing = sum(number not in records.receptions for number in records.acknowledged()
                          if figures.is_expected(client.program, number))
            if missing:
                counts[client.program.name] = missing
        return counts


def _now_us() -> int:
    return time.time_ns() // 1000


def text_of(task: Task, result: Result) -> str:
    """Return the whole report."""
    errors = [f"  {where}: {count} x {text}" for where, counts in result.errors.items()
              for text, count in counts.items()]
    sent = ", ".join(f"{name} {count} ({result.duplicates[name]} stored more than once)"
                     for name, count in result.sends.items())
    return "\n".join([
        f"{task.setup}; {task.rounds} rounds of {', '.join(task.events)}", "", figures.text_of(result.table),
        *(["thrown, or not OK:", *errors] if errors else []), f"sends: {sent}",
        *(f"VIOLATION: {text}" for text in result.violations)])


def write_json(task: Task, result: Result, file: Path) -> None:
    """Append the result as one line."""
    with open(file, "a", encoding="utf-8") as out:
        out.write(json.dumps({
            "setup": asdict(task.setup), "events": list(task.events), "rounds": task.rounds, "seed": task.seed,
            "settle_s": task.settle_s, "pace": asdict(task.pace), "violations": result.violations,
            "errors": result.errors, "duplicates": result.duplicates, "sends": result.sends,
            "table": [{**asdict(window), "clients": {name: asdict(each) for name, each in by_client.items()}}
                      for window, by_client in result.table]}) + "\n")
