"""The clients' processes."""
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.felt.records import Records
from tests.support import cpp_client, real_rocketmq
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

_ROOT = Path(__file__).resolve().parents[3]
_SUPPORT = _ROOT / "tests" / "support"
_GO_SOURCES = _SUPPORT / "go" / "felt"
_JAVA_SOURCES = _SUPPORT / "java" / "felt"
_GO_ELSEWHERE = Path("/usr/local/go/bin/go")
_START_MS = 120_000
_STOP_MS = 60_000
QUEUES = 4
# Transactions take longer: each is two requests.
_TRANSACTION_INTERVAL_MS = 100


@dataclass(frozen=True)
class Program:
    """One client. `most_tries`: of one send with default options; None if its records have the number."""

    name: str
    language: str  # go, java, cpp, rmqha
    version: str = ""  # of a Java client
    mode: str = "plain"  # ordered, transactions
    most_tries: int | None = None

    @property
    def topic(self) -> str:
        """Its own topic."""
        return f"felt-{self.name}"

    @property
    def group(self) -> str:
        """Its consumer group."""
        return f"felt-{self.name}-group"

    def why_unavailable(self) -> str | None:
        """Return why it can't run here, or None if it can."""
        return {"go": why_no_go, "java": lambda: why_no_java(self.version), "cpp": cpp_client.why_unavailable,
                "rmqha": lambda: None}[self.language]()


# The C++ client counts five attempts, but with one broker name it sends only at each second of them.
PROGRAMS = {program.name: program for program in (
    Program("go", "go", most_tries=4), Program("java4", "java", real_rocketmq.VERSION),
    Program("java5", "java", real_rocketmq.VERSION_5), Program("cpp", "cpp", most_tries=5), Program("rmqha", "rmqha"))}
ORDERED = Program("ordered", "java", real_rocketmq.VERSION, "ordered")
TRANSACTIONS = Program("transactions", "java", real_rocketmq.VERSION, "transactions")


def _go() -> str | None:
    return shutil.which("go") or (str(_GO_ELSEWHERE) if _GO_ELSEWHERE.exists() else None)


@functools.cache
def why_no_go() -> str | None:
    """Return why the Go client can't be built here, or None if it can."""
    if _go() is None:
        return "not installed: go"
    try:
        go_program()
    except AssertionError as failure:
        return f"the Go client can't be built: {failure}"
    return None


def why_no_java(version: str) -> str | None:
    """Return why a Java client can't run here, or None if it can."""
    reason = real_rocketmq.why_unavailable()
    if reason is None:
        try:
            _java_classes(version)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
            reason = f"the Java client can't be built: {failure}"
    return reason


@functools.cache
def go_program() -> Path:
    """Return the compiled Go client, named by the hash of its sources; AssertionError if it can't be built."""
    sources = sorted(file for file in _GO_SOURCES.iterdir() if file.is_file())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()[:16]
    program = Path.home() / ".cache" / "rmqha" / f"felt-go-{digest}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        new = program.with_suffix(f".{os.getpid()}")
        done = subprocess.run([_go() or "go", "build", "-mod=readonly", "-o", str(new), "."], cwd=_GO_SOURCES,
                              capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr[-1000:]
        new.replace(program)
    return program


def _java_classes(version: str) -> tuple[Path, Path]:
    """Return the jars and our compiled client."""
    lib = real_rocketmq.jars() if version == real_rocketmq.VERSION else real_rocketmq.jars_of(version)
    return lib, real_rocketmq.compiled(lib, sorted(_JAVA_SOURCES.rglob("*.java")))


@dataclass(frozen=True)
class Pace:
    """The rate and the size of a client's sends, and its time-out for one; 0: its default."""

    interval_ms: int = 20
    size: int = 256
    timeout_ms: int = 0


@dataclass
class Client:
    """A running client in `folder`, and its records."""

    program: Program
    folder: Path
    namesrv: str
    pace: Pace
    process: subprocess.Popen | None = None
    records: Records = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.records = Records(self.folder / "records.jsonl")

    @property
    def _output(self) -> Path:
        return self.folder / "output"

    def start(self) -> "Client":
        """Start it. It sends at once."""
        with open(self._output, "ab") as out:
            self.process = subprocess.Popen(
                killed_with_parent(self._command()), stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(self.folder), "PYTHONPATH": str(_ROOT)}, cwd=self.folder,
                start_new_session=True)
        return self

    def _command(self) -> list[str]:
        program = self.program
        interval = _TRANSACTION_INTERVAL_MS if program.mode == "transactions" else self.pace.interval_ms
        options = {"namesrv": self.namesrv, "topic": program.topic, "group": program.group,
                   "log": str(self.records.file), "interval": str(interval), "size": str(self.pace.size),
                   "sendtimeout": str(self.pace.timeout_ms)}
        if program.language == "go":
            return [str(go_program()), *_words("-", options)]
        if program.language == "java":
            lib, classes = _java_classes(program.version)
            return [*real_rocketmq.java_command(), f"-Duser.home={self.folder}",
                    f"-Drocketmq.client.logRoot={self.folder}/logs", "-Drocketmq.client.logLevel=WARN",
                    "-cp", f"{lib}/*:{classes}", "org.rmqha.felt.Felt", *_words("-", {**options, "mode": program.mode})]
        return [sys.executable, "-m", "tests.support.felt_client", "--client", program.language,
                *_words("--", options)]

    def wait_for(self, word: str, timeout_ms: int) -> None:
        """Wait until it prints a word; AssertionError with its output if it ends before."""
        def is_there() -> bool:
            text = self._output.read_text("utf-8", "replace")
            assert self.process is not None and self.process.poll() is None, f"{self.program.name}: {text[-3000:]}"
            return word in text.split()
        wait_until(is_there, timeout_ms, f"{self.program.name} is {word}")

    def sends_and_receives(self, since_us: int) -> bool:
        """Return whether a message that was sent after `since_us` was acknowledged, and received."""
        records = self.records.update()
        for send in reversed(records.sends):
            if send.begin < since_us:
                return False
            if send.ok and send.number in records.receptions:
                return True
        return False

    def stop_sending(self) -> None:
        """End the sends; the consumer continues."""
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.close()
        self.wait_for("stopped", _STOP_MS)

    def kill(self) -> None:
        """End it."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(60)


def _words(dash: str, options: dict[str, str]) -> list[str]:
    return [word for name, value in options.items() for word in (f"{dash}{name}", value)]


def start_all(clients: Iterable[Client]) -> None:
    """Start them, and wait until each sends and receives."""
    clients = list(clients)
    for client in clients:
        client.start()
    for client in clients:
        client.wait_for("ready", _START_MS)
    for client in clients:
        wait_until(lambda client=client: client.sends_and_receives(0), _START_MS,
                   f"{client.program.name} sends and receives")
