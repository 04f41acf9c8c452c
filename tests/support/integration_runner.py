"""Runs RocketMQ's own integration tests, class after class, in one JVM: see java/integration."""
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import real_rocketmq
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

_SOURCES = Path(__file__).resolve().parent / "java" / "integration" / "src"
_MAIN = "org.rmqha.integration.Runner"
_PACKAGE = "org.apache.rocketmq.test"
_CLIENT_LOG_BYTES = 3000  # of its end, shown when a class fails


@dataclass(frozen=True)
class Outcome:
    """How one test ended: `result` is pass, fail, hollow (it passed although sends failed) or skip."""

    test: str
    result: str
    seconds: float
    note: str

    def __str__(self) -> str:
        return f"{self.test}: {self.result} after {self.seconds} s: {self.note}"


@dataclass(frozen=True)
class Servers:
    """What the tests run against; they make their topics on all brokers of the cluster."""

    namesrv: str
    cluster: str
    brokers: tuple[str, ...]


class IntegrationRunner:
    """The JVM; it starts with the first class, and again after one that did not end."""

    def __init__(self, folder: Path, consume_ms: int):
        self._folder = folder
        self._consume_ms = consume_ms  # how long a test waits for messages that don't come
        self._output = folder / "integration.out"
        self._answers = folder / "integration.jsonl"
        self._process: subprocess.Popen | None = None

    def run(self, name: str, servers: Servers, timeout_s: float) -> list[Outcome]:
        """Run a class, `smoke.SomeIT`, or a test of it, `smoke.SomeIT#test`; AssertionError when it does not end."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        begin, (type_name, _, method) = self._answers.stat().st_size, name.partition("#")
        order = {"class": f"{_PACKAGE}.{type_name}", "method": method or None, "namesrv": servers.namesrv,
                 "cluster": servers.cluster, "brokers": servers.brokers, "consumeMillis": self._consume_ms}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        try:
            wait_until(lambda: self._process.poll() is not None or '"done"' in self._answered(begin),
                       round(timeout_s * 1000), f"the end of {name}")
        except AssertionError as error:
            self.shutdown()
            raise AssertionError(f"{error}; ended so far:\n{self._answered(begin)}\n{self.tail()}") from None
        assert '"done"' in self._answered(begin), f"the JVM ended with code {self._process.poll()}:\n{self.tail()}"
        return [Outcome(**answer) for answer in map(json.loads, self._answered(begin).splitlines())
                if "done" not in answer]

    def shutdown(self) -> None:
        """Kill the JVM: clients that a test left open keep it alive."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(240)
            self._process.stdin.close()

    def tail(self) -> str:
        """The end of what the JVM printed."""
        return self._output.read_text("utf-8", "replace")[-_CLIENT_LOG_BYTES:] if self._output.exists() else ""

    def _start(self) -> None:
        lib = real_rocketmq.integration_jars()
        classes = real_rocketmq.compiled(lib, sorted(_SOURCES.rglob("*.java")))
        command = [*real_rocketmq.java_command(), f"-Duser.home={self._folder}",
                   f"-Drocketmq.client.logRoot={self._folder}/clientlogs", "-Drocketmq.client.logLevel=WARN",
                   "-cp", f"{classes}:{lib}/*", _MAIN]
        with self._output.open("ab") as output, self._answers.open("ab") as answers:
            self._process = subprocess.Popen(killed_with_parent(command), stdin=subprocess.PIPE, stdout=answers,
                                             stderr=output, text=True, encoding="utf-8", cwd=self._folder,
                                             start_new_session=True)

    def _answered(self, begin: int) -> str:
        """Whole lines since byte `begin`."""
        with self._answers.open("rb") as answers:
            answers.seek(begin)
            return answers.read().rpartition(b"\n")[0].decode("utf-8")
