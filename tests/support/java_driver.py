"""Control of the Java driver, one JVM for all tests, and of RocketMQ's own integration tests in one JVM."""
import itertools
import json
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import real_rocketmq
from tests.support.processes import ServerProcess
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

# The Java driver: one JVM for all tests, a JSON object per line in each direction, commands in parallel.


class DriverError(AssertionError):
    """Raised when a command failed in Java; the text is its stack trace."""


@dataclass
class Sent:
    """One message sent by the Java producer: `status` is SendStatus' name, or the exception's text."""

    index: int
    status: str
    msg_id: str | None = None
    offset_msg_id: str | None = None
    broker_name: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None

    @property
    def ok(self) -> bool:
        """True if it was acknowledged."""
        return self.status == "SEND_OK"


@dataclass
class Job:
    """A running command."""

    command: dict
    done: threading.Event = field(default_factory=threading.Event)
    answer: dict | None = None
    progress: int = 0  # written only by the reader thread

    def result(self, timeout_s: float = 280) -> dict:
        """Wait for the answer and return it; DriverError if the command failed."""
        assert self.done.wait(timeout_s), f"the driver did not answer within {timeout_s} s: {str(self.command)[:300]}"
        if not self.answer["ok"]:
            raise DriverError(self.answer["error"])
        return self.answer

    def wait_progress(self, count: int, timeout_ms: int = 110_000) -> None:
        """Wait until the command has reported `count` (or is done)."""
        wait_until(lambda: self.progress >= count or self.done.is_set(), timeout_ms, f"progress of {count}")


@dataclass(frozen=True)
class Timing:
    """The result of a produce job: acknowledged messages, seconds, and the latencies of sends.

    `latency_us` has for some shares (0.5, 0.99 and so on, up to 1) the microseconds that this share of the sends did
    not exceed.
    """

    acknowledged: int
    seconds: float
    latency_us: dict[float, int]

    @property
    def median_us(self) -> int:
        """The median latency of a send."""
        return self.latency_us[0.5]

    @property
    def p99_us(self) -> int:
        """The p99 latency of a send."""
        return self.latency_us[0.99]


@dataclass
class Workload:
    """Messages that Java and Python can both compute: see load.py. `sizes` are repeated cyclically."""

    topic: str
    count: int
    sizes: list[int]
    first: int = 0
    seed: int = 7
    tags: tuple[str, ...] = ("TagA", "TagB", "TagC")

    def part(self, first: int, count: int) -> "Workload":
        """Return the same messages, from index `first` on."""
        return Workload(self.topic, count, self.sizes, first, self.seed, self.tags)

    def fields(self) -> dict:
        """Return the fields of a command for the driver."""
        return {"topic": self.topic, "first": self.first, "count": self.count, "sizes": self.sizes, "seed": self.seed,
                "tags": list(self.tags)}


class JavaDriver:
    """The official Java client and mqadmin, controlled from Python."""

    def __init__(self, folder: Path):
        command, env = real_rocketmq.driver_command(folder)
        self._server = ServerProcess("java-driver", command, folder, "", env)
        self._ids = itertools.count(1)
        self._jobs: dict[int, Job] = {0: Job({"cmd": "start"})}  # guarded by _lock
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None

    def start(self) -> "JavaDriver":
        """Start the JVM and wait for its first line."""
        server = self._server
        with open(server.output_file, "ab") as err:
            self._process = subprocess.Popen(
                killed_with_parent(server.command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                text=True, env=server._env, encoding="utf-8", cwd=server.output_file.parent, start_new_session=True)
        threading.Thread(target=self._read, name="java-driver-reader", daemon=True).start()
        self._jobs[0].result()
        return self

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._process.pid

    def shutdown(self) -> None:
        """End the JVM."""
        self._process.stdin.close()
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(240)

    def _read(self) -> None:
        for line in self._process.stdout:
            answer = json.loads(line)
            with self._lock:
                job = self._jobs[answer["id"]]
            if "progress" in answer:
                job.progress = max(job.progress, answer["progress"])
            else:
                job.answer = answer
                job.done.set()

    def submit(self, cmd: str, **fields: object) -> Job:
        """Send a command and return its job."""
        assert self._process.poll() is None, "the Java driver has ended: " + self._server.tail()
        job = Job({"id": next(self._ids), "cmd": cmd, **fields})
        with self._lock:
            self._jobs[job.command["id"]] = job
            self._process.stdin.write(json.dumps(job.command) + "\n")
            self._process.stdin.flush()
        return job

    def start_produce(self, namesrv: str, load: Workload, threads: int = 8, **options: object) -> Job:
        """Start sending `load`; options are the names in `defaults`."""
        defaults = {"group": "interop-producer", "timeoutMs": 30_000, "retries": 0, "compressOver": 1 << 30,
                    "progressEvery": 500, "batch": 1, "delayLevel": 0, "pauseOnErrorMs": 50}
        return self.submit("produce", namesrv=namesrv, threads=threads, **load.fields(), **{**defaults, **options})

    def produce(self, namesrv: str, load: Workload, threads: int = 8, **options: object) -> list[Sent]:
        """Send `load`; return the result of each message (of each batch, if batch > 1), by index."""
        return self.sent(self.start_produce(namesrv, load, threads, **options))

    def produce_timed(self, namesrv: str, load: Workload, threads: int) -> Timing:
        """Send `load`; return how long that took, without the producer's start and end."""
        answer = self.start_produce(namesrv, load, threads, group=f"timed-{load.topic}").result(600)
        ok = sum(Sent(*row).ok for row in answer["results"])
        return Timing(ok, answer["seconds"], dict(answer["latencyUs"]))

    @staticmethod
    def sent(job: Job, timeout_s: float = 280) -> list[Sent]:
        """Return the results of a produce job, by index."""
        return sorted((Sent(*row) for row in job.result(timeout_s)["results"]), key=lambda sent: sent.index)

    def start_consume(self, namesrv: str, load: Workload, group: str, until: int | None = None, expression: str = "*",
                      deadline_ms: int = 240_000, linger_ms: int = 1000, **options: object) -> Job:
        """Start consuming with a push consumer until `until` distinct messages of `load` have arrived.

        `options`: heartbeatMs, the pause between its heartbeats.
        """
        until = load.count if until is None else until
        return self.submit("consume", namesrv=namesrv, group=group, until=until, expression=expression,
                           deadlineMs=deadline_ms, lingerMs=linger_ms, progressEvery=100, **load.fields(), **options)

    def consume(self, namesrv: str, load: Workload, group: str, **options: object) -> dict:
        """Consume and return the report: distinct, repeats, total, foreign, bad[], missing[], queues{}."""
        return self.start_consume(namesrv, load, group, **options).result(280)

    def drain(self, namesrv: str, topic: str, group: str, count: int, pull_batch: int = 32) -> float:
        """Return the seconds from the first to the last of `count` messages that a new group's push consumer
        receives."""
        answer = self.submit("drain", namesrv=namesrv, topic=topic, group=group, count=count, pullBatch=pull_batch,
                             deadlineMs=240_000).result()
        assert answer["seen"] >= count, f"only {answer['seen']} of {count} messages arrived"
        return answer["seconds"]

    def pull(self, namesrv: str, load: Workload, broker_id: int = 0, group: str = "interop-pull") -> dict:
        """Read each queue completely from the broker with that id; return the same report."""
        return self.submit("pull", namesrv=namesrv, group=group, brokerId=broker_id, **load.fields()).result()

    def pull_from_slave(self, namesrv: str, load: Workload) -> dict:
        """Read each queue completely from the broker with id 1, repeatedly while it does not know the topic.

        The original clears its topics for a moment when it copies the master's.
        """
        def pulled() -> dict | None:
            try:
                return self.pull(namesrv, load, broker_id=1)
            except DriverError as error:
                if "CODE: 17 " not in str(error):
                    raise
                return None
        return wait_until(pulled, 60_000, "the slave knows the topic")

    def query_keys(self, namesrv: str, topic: str, keys: list[str]) -> list[list[int]]:
        """Query by key; return the indices of the messages found for each key (64 at most)."""
        return self.submit("queryKey", namesrv=namesrv, topic=topic, group="interop-query", keys=keys).result()["found"]

    def send_mixed(self, namesrv: str, topic: str, messages: list[dict], deadline_ms: int = 240_000) -> list[list]:
        """Send messages that are described one by one (see Mixed.java), in order; return [status, ...] of each
        description."""
        return self.submit("sendMixed", namesrv=namesrv, topic=topic, group="mixed-producer", messages=messages,
                           deadlineMs=deadline_ms).result()["results"]

    def read_mixed(self, namesrv: str, topic: str, group: str, until: int, expression: str = "*",
                   deadline_ms: int = 240_000, linger_ms: int = 300) -> list[dict]:
        """Consume `topic` from its start until `until` messages have arrived; return the fields of each (see
        Mixed.java)."""
        return self.submit("readMixed", namesrv=namesrv, topic=topic, group=group, until=until, expression=expression,
                           deadlineMs=deadline_ms, lingerMs=linger_ms).result()["messages"]

    def admin(self, *args: str, home: Path | None = None) -> str:
        """Run mqadmin and return its output; `home`/conf/tools.yml holds its credentials."""
        return self.submit("admin", args=list(args), home=None if home is None else str(home)).result()["out"]

    def create_topic(self, namesrv: str, broker: str, topic: str, queues: int = 4) -> None:
        """Run mqadmin updateTopic on one broker, until the name server returns a route with that number of queues."""
        self.admin("updateTopic", "-n", namesrv, "-b", broker, "-t", topic, "-r", str(queues), "-w", str(queues))
        wanted = f'"writeQueueNums":{queues}'
        wait_until(lambda: wanted in "".join(self.admin("topicRoute", "-n", namesrv, "-t", topic).split()),
                   60_000, f"route of {topic}")


def assert_all_read(report: dict, load: Workload, sent: list[Sent] | None = None) -> None:
    """Check that no message is lost or repeated, that each body is right, and that each queue has exactly the
    offsets that the producer received."""
    summary = {key: report[key] for key in ("distinct", "repeats", "foreign", "bad", "missing")}
    assert summary == {"distinct": load.count, "repeats": 0, "foreign": 0, "bad": [], "missing": []}, summary
    for queue, offsets in report["queues"].items():
        assert offsets["count"] == offsets["max"] - offsets["min"] + 1, f"{queue}: {offsets}"
    if sent is not None:
        by_queue: dict[str, set[int]] = {}
        for one in sent:
            by_queue.setdefault(f"{one.broker_name}/{one.queue_id}", set()).add(one.queue_offset)
        told = {queue: {"count": len(offsets), "min": min(offsets), "max": max(offsets)}
                for queue, offsets in by_queue.items()}
        assert report["queues"] == told


# RocketMQ's own integration tests, class after class, in one JVM: see java/integration.

_SOURCES = Path(__file__).resolve().parent / "java" / "integration" / "src"
_MAIN = "org.rmqha.integration.Runner"
_PACKAGE = "org.apache.rocketmq.test"
_CLIENT_LOG_BYTES = 3000  # of its end, shown when a class fails


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test: `result` is pass, fail, hollow (it passed although sends failed) or skip."""

    test: str
    result: str
    seconds: float
    note: str

    def __str__(self) -> str:
        return f"{self.test}: {self.result} after {self.seconds} s: {self.note}"


@dataclass(frozen=True)
class Servers:
    """The servers that the tests run against; tests create their topics on all brokers of the cluster."""

    namesrv: str
    cluster: str
    brokers: tuple[str, ...]


class IntegrationRunner:
    """The JVM of the tests. It starts with the first class, and again after a class that did not end."""

    def __init__(self, folder: Path, consume_ms: int):
        self._folder = folder
        self._consume_ms = consume_ms  # how long a test waits for messages that don't arrive
        self._output = folder / "integration.out"
        self._answers = folder / "integration.jsonl"
        self._process: subprocess.Popen | None = None

    def run(self, name: str, servers: Servers, timeout_s: float) -> list[Outcome]:
        """Run a class, `smoke.SomeIT`, or one of its tests, `smoke.SomeIT#test`; AssertionError if it does not end."""
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
        """Return the end of the JVM's output."""
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
        """Return the complete lines since byte `begin`."""
        with self._answers.open("rb") as answers:
            answers.seek(begin)
            return answers.read().rpartition(b"\n")[0].decode("utf-8")
