"""The cost of strangers' requests for others: `python -m tests.fuzz.cost --inputs 100000 [--java] [--acl] [--tls]`.

Costly and broken requests are sent to a name server and a broker over several connections, and to all other doors of a
cluster (the fast port, a controller, the ports of replication and metrics, a console), while a bystander in another
process sends requests every few milliseconds. A run fails if the bystander has waited too long, if memory grows with
the inputs, if threads or descriptors are leaked, or if a server dies. With --java too long is more than half a second
longer than the bystander of 4.9.7, which gets the same inputs, or, at a door that 4.9.7 does not have, of rmqha servers
without inputs. Inputs that were under way during a long wait are sent again, each alone; `--only 17,4711` does that for
any input.
"""
import argparse
import base64
import hashlib
import hmac
import json
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tests.fuzz import bystander
from tests.fuzz.bystander import Sample, Told, Wait
from tests.fuzz.cost_inputs import KIB, MIB, CostInput, CostInputs
from tests.fuzz.remoting import Call, calls_of
from tests.interop.request_code_cases import BROKER, NAMESRV
from tests.interop.request_code_compare import Servers
from tests.support import ports, real_rocketmq
from tests.support.nodes import BrokerNode, ControllerNode, NamesrvNode
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.sources import ROOT
from tests.support.wait import at_least, wait_until

# The other ports of a cluster besides the two main ones, and the strangers' inputs: fast port, controller, replication,
# metrics, console.
#
# The bystander uses each door like the main ports. Inputs of the remoting doors are those of `cost_inputs`; those of
# replication are handshakes, requests and reports with wrong numbers; those of the HTTP doors are odd requests. Written
# from the formats, without code of rmqha.

FAST, CONTROLLER, HA, METRICS, CONSOLE = "fast-broker", "controller", "ha", "metrics", "console"
NUMBERS = [0, 1, -1, 255, 1 << 20, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63)]
SIZES = (64, 512, 4 * KIB, 32 * KIB, 70 * KIB, 256 * KIB, MIB)
PATHS = {METRICS: ["/metrics", "/healthz", "/readyz", "/master", "/ready?lag=1MiB", "/", "/nobody"],
         CONSOLE: ["/", "/static/app.js", "/api/session", "/api/cluster", "/api/groups", "/api/groups/codes-group",
                   "/api/topics", "/api/topics/Codes", "/api/store", "/api/history", "/api/messages", "/api/trace"]}


@dataclass(frozen=True)
class Door:
    """A port of a server. The server's resources are counted once, at its main port."""

    node: ServerProcess
    address: str

    @property
    def pid(self) -> int:
        """The pid of the server's process."""
        return self.node.pid

    @property
    def is_alive(self) -> bool:
        """True if the server runs."""
        return self.node.is_alive


class Inputs(Protocol):
    """The inputs of one door, by number."""

    def input(self, number: int) -> CostInput:
        """Return input `number`."""


class ConsoleNode(ServerProcess):
    """A console process that shows a cluster."""

    def __init__(self, folder: Path, namesrv: str):
        self.address = f"127.0.0.1:{ports.free_port()}"
        super().__init__("rmqha-console", [
            sys.executable, "-m", "rmqha.launch", "rmqha", "console", "--namesrv", namesrv, "--port",
            self.address.rpartition(":")[2]], folder, "console at")


class ReplicationInputs:
    """Reports, handshakes and requests: valid, truncated, and with wrong numbers."""

    def __init__(self, seed: int):
        self._seed = seed

    def input(self, number: int) -> CostInput:
        """Return input `number`."""
        rng = random.Random(f"{self._seed}/ha/{number}")
        kind = rng.choice(("reports", "introduction", "questions", "noise", "nothing"))
        begin, end, size = rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(SIZES)
        who = struct.pack(">4shqqh", b"RMQH", 2, begin, end, 4) + b"1.2;"
        if kind == "reports":
            data = b"".join(struct.pack(">q", rng.choice(NUMBERS)) for _ in range(size // 8))
        elif kind == "introduction":
            data = rng.choice((who, struct.pack(">4shqiIh", b"RMQH", 1, end, rng.choice((0, 7, 1 << 22)), 0, 0)))
        elif kind == "questions":
            count = rng.choice((1, 64, 4096, -1, 1 << 30))
            blocks = struct.pack(">iI", rng.choice((1, 64 * KIB, 1 << 30, -1)), 0) * max(0, min(count, 4096))
            data = who + (struct.pack(">4sqi", b"RMQC", rng.choice((0, begin)), count) + blocks) * rng.choice((1, 8))
        else:
            data = rng.randbytes(size) if kind == "noise" else b""
        if rng.random() < 0.2:
            data = data[:rng.randrange(len(data) + 1)]
        return CostInput(number, 0, f"{kind} of {len(data)} bytes", data, -1, False)


class HttpInputs:
    """HTTP requests with long lines, many fields, bodies, odd ranges, and bytes that are not HTTP."""

    def __init__(self, door: str, seed: int):
        self._paths, self._seed = PATHS[door], seed

    def input(self, number: int) -> CostInput:
        """Return input `number`."""
        rng = random.Random(f"{self._seed}/http/{number}")
        path, size = rng.choice(self._paths), rng.choice(SIZES)
        kind, fields, body = rng.choice(("right", "path", "query", "fields", "field", "body", "many", "noise")), [], b""
        method = rng.choice(("GET", "GET", "GET", "HEAD", "POST", "X"))
        if kind == "path":
            path += rng.choice(("/", "a", "%2e", "/..", "%")) * (size // 2)
        elif kind == "query":
            path += "?" + rng.choice(("a=1&", "topic=Codes&", "&", "key=%00", "begin=9")) * (size // 9)
        elif kind == "fields":
            fields = [f"X-{one}: {one}" for one in range(size // 12)]
        elif kind == "field":
            name = rng.choice(("Cookie: ", "Range: bytes=0-", "Authorization: Bearer ", "X:"))
            fields = [name + "0,1-" * (size // 4)]
        elif kind == "body":
            method, body = "POST", rng.choice((b"[" * size, b"{" * size, json.dumps(["a"] * (size // 5)).encode()))
            fields = [f"Content-Length: {rng.choice((len(body), 10**18, -1))}", "Content-Type: application/json"]
        data = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *fields, "", ""]).encode() + body
        if kind == "many":
            data *= max(1, min(size, 4 * KIB) // len(data))
        elif kind == "noise":
            data = rng.randbytes(size)
        if rng.random() < 0.2:
            data = data[:rng.randrange(len(data) + 1)]
        return CostInput(number, 0, f"HTTP, {kind}, {method}, {len(data)} bytes", data, -1, False)


def controller_calls() -> list[Call]:
    """Return a valid call of each code that a controller serves."""
    fields = {"clusterName": "c", "brokerName": "b", "brokerId": "1", "masterBrokerId": "1", "masterEpoch": "1",
              "appliedBrokerId": "1", "registerCheckCode": "h:1;2", "brokerAddress": "127.0.0.1:1",
              "brokerAddr": "127.0.0.1:1", "designateElect": "false", "epoch": "1", "maxOffset": "9",
              "confirmOffset": "9", "heartbeatTimeoutMills": "5000", "electionPriority": "1",
              "brokerControllerIdsToClean": "7", "isCleanLivingBroker": "false"}
    bodies = {1001: b'{"syncStateSet":[1],"syncStateSetEpoch":1}', 1006: b'["b"]',
              1009: b"scanNotActiveBrokerInterval=5000\n"}
    return [Call({"code": code, "language": "JAVA", "version": 409, "flag": 0, "extFields": dict(fields)},
                 bodies.get(code, b"")) for code in (904, *range(1001, 1007), *range(1009, 1015))]


def inputs_at(door: str, seed: int) -> Inputs:
    """Return the inputs of the controller, the replication port and the HTTP doors."""
    if door == CONTROLLER:
        return CostInputs(controller_calls(), seed)
    return ReplicationInputs(seed) if door == HA else HttpInputs(door, seed)


def more_doors(kind: str, folder: Path, broker: BrokerNode, namesrv: str, nodes: list) -> dict[str, Door]:
    """Return the other doors of a running cluster of this kind. The original has no HTTP pages."""
    doors = {FAST: Door(broker, f"127.0.0.1:{broker.port - 2}"), HA: Door(broker, broker.ha_address)}
    if kind == "rmqha":
        controller, console = ControllerNode(kind, folder / "controller"), ConsoleNode(folder / "console", namesrv)
        for node in (controller, console):
            nodes.append(node)
            node.start()
        metrics = broker.properties["metricsPort"]
        doors |= {CONTROLLER: Door(controller, controller.address), CONSOLE: Door(console, console.address),
                  METRICS: Door(broker, f"127.0.0.1:{metrics}")}
    return doors


CONNECTIONS = 3  # per server and kind
ANSWER_S = 300.0
# The seconds that the bystander may wait longer than the original's, or at all.
MORE_S = 0.5
# The maximum number of inputs that are sent again alone.
SUSPECTS = 24
# The parts of a run. Between them nothing is under way, and memory is measured.
PARTS = 8
REST_S = 0.5
# The pause after an input that is sent alone: a pool may still work when the request after it is answered.
AFTER_S = 2.0
# The allowed growth of memory in the second half of a run.
SLACK_MIB = 48
SPARE = {"descriptors": 8, "threads": 60}  # pools start threads on demand
SETTLED_MS = 60_000
PROBE = 1 << 30
CALM = "calm"  # servers without inputs
FUZZER = ("fuzzKey", "fuzzSecret")
CHIEF = ("chiefKey", "chiefSecret")
# The address of the senders. Requests from 127.0.0.1 need no signature.
STRANGER = "127.0.0.9"
ACCOUNTS = """\
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: fuzzKey
  secretKey: fuzzSecret
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
- accessKey: chiefKey
  secretKey: chiefSecret
  admin: true
"""


@dataclass
class Sent:
    """A sent input, with the times from its start to the answer or the end of the connection."""

    server: str
    one: CostInput
    begin: float
    end: float
    outcome: str


@dataclass
class Report:
    """The results of a run, by server: `rmqha broker`, `java namesrv`."""

    told: dict[str, Told] = field(default_factory=dict)
    outcomes: Counter = field(default_factory=Counter)
    suspects: dict[str, dict[int, CostInput]] = field(default_factory=dict)  # by server, then number
    # One line for each input that was sent again.
    alone: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def sign(call: Call) -> None:
    """Add an account's key and signature."""
    fields = call.header["extFields"]
    fields["AccessKey"] = FUZZER[0]
    content = "".join(str(fields[name]) for name in sorted(fields)).encode("utf-8", "surrogatepass") + call.body
    digest = hmac.new(FUZZER[1].encode(), content, hashlib.sha1).digest()
    fields["Signature"] = base64.b64encode(digest).decode()


class Kind:
    """A name server and a broker of one kind (`rmqha`, `java`) with data. `command` replaces that of the broker.

    `all_doors`: with the other ports of a cluster. With `tls` strangers and bystanders use TLS with rmqha.
    """

    def __init__(self, kind: str, folder: Path, nodes: list, acl: bool, command: list[str] | None = None,
                 all_doors: bool = False, tls: bool = False, name: str = ""):
        self.kind, self.name = kind, name or kind
        self.tls = tls and kind == "rmqha"
        namesrv = NamesrvNode(kind, folder / "namesrv")
        nodes.append(namesrv)
        namesrv.start()
        properties = {"aclEnable": "true"} if acl else {}
        if all_doors and kind == "rmqha":
            properties["metricsPort"] = str(ports.free_port())
        broker = BrokerNode(kind, folder / "broker", namesrv.address, mappedFileSizeCommitLog=64 * MIB, **properties)
        if acl:
            (folder / "home" / "conf").mkdir(parents=True)
            (folder / "home" / "conf" / "plain_acl.yml").write_text(ACCOUNTS, "utf-8")
            if kind == "java":  # required by Java
                logback = real_rocketmq.jars().parent / "home" / "conf" / "logback_broker.xml"
                shutil.copy(logback, folder / "home" / "conf")
            broker._env["ROCKETMQ_HOME"] = str(folder / "home")
        if command is not None:
            broker.command = [*command, *broker.command[-2:]]
        nodes.append(broker)
        broker.start()
        self.servers = Servers(namesrv, broker)
        self.servers.stock()
        self.nodes: dict[str, ServerProcess | Door] = {BROKER: broker, NAMESRV: namesrv}
        if all_doors:
            self.nodes |= more_doors(kind, folder, broker, namesrv.address, nodes)
        self.acl = acl

    def inputs(self, server: str, seed: int) -> Inputs:
        """Return the inputs of one door."""
        if server in (BROKER, NAMESRV, FAST):
            to_broker = server != NAMESRV
            return CostInputs(calls_of(BROKER if to_broker else NAMESRV, self.servers), seed,
                              sign if self.acl and to_broker else None)
        return inputs_at(server, seed)


class Bystanders:
    """A process with a bystander at each server."""

    def __init__(self, kinds: list[Kind], calm: Kind | None = None):
        servers = [f"{kind.name} {server}={node.address}={node.pid}" for kind in kinds
                   for server, node in kind.nodes.items()]
        if calm is not None:
            servers += [f"{CALM} {server}={calm.nodes[server].address}={calm.nodes[server].pid}"
                        for server in _without_java(kinds)]
        account = ["--account", *CHIEF] if kinds[0].acl else []
        if any(kind.tls for kind in kinds):
            account.append("--tls")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.bystander", *servers, *account], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout.readline() == "ready\n", "the bystander did not start"

    def end(self) -> dict[str, Told]:
        """Stop them, and return their observations by server."""
        text, _ = self._process.communicate(timeout=2 * ANSWER_S)
        return {one.server: one for one in bystander.from_json(text)}

    def kill(self) -> None:
        """Kill the process, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Sender:
    """One connection to a server. `send` returns the outcome of an input."""

    def __init__(self, kind: Kind, server: str):
        self.name = f"{kind.name} {server}"
        self._server, self._address, self._tls = server, kind.nodes[server].address, kind.tls
        self._is_remoting = server not in bystander.OTHER_PROTOCOLS
        self._client: RawClient | None = None

    def send(self, one: CostInput) -> Sent:
        """Send an input and a valid request after it; wait until that is answered or the connection is closed."""
        begin, outcome = time.monotonic(), "closed"
        try:
            client = self._connected()
            client.send(one.data)
            if one.is_whole:
                client.send(bystander.question(self._server, PROBE))
            else:
                client.socket.shutdown(socket.SHUT_WR)
            outcome = self._read(client, one.opaque) if self._is_remoting else self._drain(client.socket)
        except TimeoutError:
            outcome = "no answer"
            self.close()
        except (EOFError, OSError):
            self.close()
        return Sent(self.name, one, begin, time.monotonic(), outcome)

    def _connected(self) -> RawClient:
        if self._client is None:
            host, port = self._address.rsplit(":", 1)
            self._client = RawClient.__new__(RawClient)
            self._client.socket = socket.create_connection((host, int(port)), ANSWER_S, source_address=(STRANGER, 0))
            self._client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls and self._is_remoting:
                self._client.socket = bystander.encrypted(self._client.socket)
        return self._client

    def _drain(self, sock: socket.socket) -> str:
        """Read until the server closes, which it does because this side has shut down its direction."""
        size = 0
        while data := sock.recv(1 << 16):
            size += len(data)
        self.close()
        return "answered" if size else "closed"

    @staticmethod
    def _read(client: RawClient, opaque: int) -> str:
        outcome = "probe only"
        while True:
            answered, answer = client.read_frame()
            if answer.flag & 1 and answered == opaque:
                outcome = str(answer.code)
            if answered == PROBE:
                return outcome

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.socket.close()
            self._client = None


class Run:
    """A run of inputs `numbers` of a seed to all servers of the kinds, in parallel from several threads."""

    def __init__(self, kinds: list[Kind], seed: int, tell: Callable[[str], object] = lambda text: None):
        self._kinds, self._seed, self._tell = kinds, seed, tell
        self._lock = threading.Lock()
        self.sent: list[Sent] = []  # slow inputs; guarded by _lock
        self.outcomes: Counter = Counter()  # guarded by _lock
        self.errors: list[str] = []  # guarded by _lock
        self._deadline = float("inf")

    def send_all(self, numbers: range, seconds_max: float) -> None:
        """Send all inputs; two thirds of those to main ports are for the brokers. Stop early when the time is over."""
        self._deadline = time.monotonic() + seconds_max
        servers = [NAMESRV if part % 3 == 2 else BROKER for part in range(2 * CONNECTIONS)]
        servers += dict.fromkeys(door for kind in self._kinds for door in kind.nodes if door not in servers)
        threads = [threading.Thread(target=self._send, args=(part, server, numbers[part::len(servers)]), daemon=True)
                   for part, server in enumerate(servers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _send(self, part: int, server: str, numbers: range) -> None:
        try:
            kinds = [kind for kind in self._kinds if server in kind.nodes]
            inputs = {kind.kind: kind.inputs(server, self._seed) for kind in kinds}
            senders = {kind.kind: Sender(kind, server) for kind in kinds}
            for number in numbers:
                if time.monotonic() > self._deadline:
                    break
                for kind, sender in senders.items():
                    self._note(sender.send(inputs[kind].input(number)))
                if number % 1000 < numbers.step and part == 0:
                    self._tell(f"{number} inputs\n")
            for sender in senders.values():
                sender.close()
        # Reported as a fault, else a thread would be missing.
        except Exception as error:
            with self._lock:
                self.errors.append(f"thread {part} to the {server}: {error!r}")

    def _note(self, sent: Sent) -> None:
        with self._lock:
            self.outcomes[f"{sent.server}: {sent.outcome}"] += 1
            if sent.end - sent.begin > bystander.NOTED_S / 3 or sent.outcome == "no answer":
                # The data is made again on request.
                self.sent.append(replace(sent, one=replace(sent.one, data=b"")))


def _without_java(kinds: list[Kind]) -> list[str]:
    """Return the doors of rmqha that the original does not have, or that this run does not compare."""
    java = {server for kind in kinds if kind.kind == "java" for server in kind.nodes}
    return [server for server in dict.fromkeys(door for kind in kinds for door in kind.nodes) if server not in java]


def measure(kinds: list[Kind], numbers: range, seed: int, seconds_max: float = float("inf"),
            tell: Callable[[str], object] = lambda text: None, slack_mib: int = SLACK_MIB,
            more_s: float = MORE_S, calm: Kind | None = None) -> Report:
    """Send the inputs in parallel to bystanders, and judge: they may wait `more_s` longer than those of the original.

    At a door that the original does not have, they may wait `more_s` longer than at `calm`, a door without inputs.
    """
    report = Report()
    run = Run(kinds, seed, tell)
    bystanders = Bystanders(kinds, calm)
    try:
        before = {f"{kind.name} {server}": bystander.sample(node.pid) for kind in kinds
                  for server, node in kind.nodes.items()}
        rests = _send_in_parts(run, kinds, numbers, seconds_max)
        report.told = bystanders.end()
    finally:
        bystanders.kill()
    report.outcomes = run.outcomes
    report.faults += run.errors
    limits = _limits(report, kinds, more_s)
    for server, told in report.told.items():
        report.faults += _waits_that_are_too_long(told, limits.get(server))
        report.suspects[server] = _suspects(told, run.sent, limits.get(server, MORE_S))
    for kind in kinds:
        for server, node in kind.nodes.items():
            name = f"{kind.name} {server}"
            if kind.kind != "java" and not (isinstance(node, Door) and node.node in kind.nodes.values()):
                report.faults += _growth(name, rests.get(name, []), slack_mib)
                report.faults += _held(name, node, before[name])
    report.faults += [f"no answer in {ANSWER_S:.0f} s: input {sent.one.number} to the {sent.server}, {sent.one.what}"
                      for sent in run.sent if sent.outcome == "no answer" and not sent.server.startswith("java")]
    return report


def _send_in_parts(run: Run, kinds: list[Kind], numbers: range, seconds_max: float) -> dict[str, list[int]]:
    """Send all inputs; return the idle memory after each part, in bytes by server."""
    rests: dict[str, list[int]] = {}
    for part in range(PARTS):
        run.send_all(numbers[part * len(numbers) // PARTS:(part + 1) * len(numbers) // PARTS], seconds_max / PARTS)
        at_least(REST_S)
        for kind in kinds:
            for server, node in kind.nodes.items():
                if node.is_alive:
                    rests.setdefault(f"{kind.name} {server}", []).append(bystander.sample(node.pid).anonymous_bytes)
    return rests


def _limits(report: Report, kinds: list[Kind], more_s: float) -> dict[str, float]:
    """Return the longest allowed waits of rmqha's bystanders."""
    limits = {}
    for server in dict.fromkeys(door for kind in kinds for door in kind.nodes):
        other = report.told.get(f"java {server}") or report.told.get(f"{CALM} {server}")
        longest = other.longest.own if other is not None and other.longest is not None else 0.0
        limits[f"rmqha {server}"] = longest + more_s
    return {name: limit for name, limit in limits.items() if any(name.startswith(kind.kind) for kind in kinds)}


def _waits_that_are_too_long(told: Told, limit: float | None) -> list[str]:
    if limit is None:
        return []
    if not told.questions:
        return [f"the bystander of the {told.server} was never answered"]
    return [f"the bystander of the {told.server} waited {wait.seconds:.2f} s for a {wait.what}"
            f"{', ' + wait.failure if wait.failure else ''}; {wait.own:.2f} s of it are the server's, "
            f"{limit:.2f} s are allowed"
            for wait in told.waits if wait.own > limit or wait.failure]


def _suspects(told: Told, sent: list[Sent], limit: float) -> dict[int, CostInput]:
    """Return the inputs of a server that were under way in its longest waits, the slowest first."""
    found: dict[int, CostInput] = {}
    for wait in sorted(told.waits, key=lambda wait: -wait.own):
        if wait.own > limit / 2 or wait.failure:
            during = [one for one in sent if one.server == told.server and one.begin < wait.begin + wait.seconds
                      and one.end > wait.begin]
            for one in sorted(during, key=lambda one: one.begin - one.end):
                found.setdefault(one.one.number, one.one)
    return dict(list(found.items())[:SUSPECTS])


def growth(rests: list[int]) -> float:
    """Return the growth over the second half of the samples, as the median of slopes, so that one peak counts
    little."""
    half = rests[len(rests) // 2:]
    slopes = [(later - earlier) / (at - before) for before, earlier in enumerate(half)
              for at, later in enumerate(half) if at > before]
    return statistics.median(slopes) * (len(half) - 1) if slopes else 0.0


def _growth(name: str, rests: list[int], slack_mib: int) -> list[str]:
    grown = growth(rests) / MIB
    if grown <= slack_mib:
        return []
    return [f"the {name} grows: by {grown:.0f} MiB in the second half, {slack_mib} are allowed; MiB at rest: "
            f"{[one // MIB for one in rests]}"]


def _held(name: str, node: BrokerNode | NamesrvNode, before: Sample) -> list[str]:
    if not node.is_alive:
        return [f"the {name} is dead"]

    def is_back() -> bool:
        now = bystander.sample(node.pid)
        return (now.threads <= before.threads + SPARE["threads"]
                and now.descriptors <= before.descriptors + SPARE["descriptors"])
    try:
        wait_until(is_back, SETTLED_MS)
    except AssertionError:
        return [f"the {name} holds {bystander.sample(node.pid)}, before: {before}"]
    return []


def send_alone(kinds: list[Kind], server: str, number: int, seed: int) -> str:
    """Send one input to each kind, in parallel to the bystander only; return a line about its waits."""
    bystanders, parts, one = Bystanders(kinds), [], None
    try:
        for kind in kinds:
            if server not in kind.nodes:
                continue
            one = kind.inputs(server, seed).input(number)
            sender = Sender(kind, server)
            sent = sender.send(one)
            sender.close()
            parts.append((kind.kind, sent))
        at_least(AFTER_S)
        told = bystanders.end()
    finally:
        bystanders.kill()
    text = f"input {number} alone to the {server}, code {one.code}, {len(one.data)} bytes, {one.what}:"
    for kind, sent in parts:
        longest = told[f"{kind} {server}"].longest or Wait(server, "", 0, 0)
        text += (f" {kind} answered {sent.outcome} after {sent.end - sent.begin:.2f} s, the bystander waited "
                 f"{longest.own:.2f} s;")
    return text


def told_lines(report: Report) -> list[str]:
    """Return readable lines with the measurements."""
    lines = []
    for server, told in sorted(report.told.items()):
        longest = told.longest or Wait(server, "nothing", 0, 0)
        first, last = told.samples[0], told.samples[-1]
        peak = max(one.anonymous_bytes for one in told.samples)
        lines.append(
            f"{server}: longest wait {longest.own * 1000:.0f} ms for a {longest.what} ({longest.machine * 1000:.0f} ms "
            f"more for the machine) of {told.questions}; memory {first.anonymous_bytes // MIB} MiB to "
            f"{last.anonymous_bytes // MIB} MiB, peak {peak // MIB}; threads {first.threads} to {last.threads}, "
            f"descriptors {first.descriptors} to {last.descriptors}, CPU {last.cpu_s - first.cpu_s:.0f} s")
    return lines + [f"{count:8} {outcome}" for outcome, count in sorted(report.outcomes.items())]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.cost", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--java", action="store_true", help="the same inputs to 4.9.7, beside")
    parser.add_argument("--acl", action="store_true", help="with access control; some inputs are signed")
    parser.add_argument("--tls", action="store_true", help="speak TLS to the servers of rmqha")
    parser.add_argument("--main-ports", action="store_true", help="only the main ports of name server and broker")
    parser.add_argument("--seconds-max", type=float, default=float("inf"))
    parser.add_argument("--slack-mib", type=int, default=SLACK_MIB)
    parser.add_argument("--only", help="numbers of inputs to send alone, with commas between")
    asked = parser.parse_args()
    nodes: list = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [node.kill() for node in reversed(nodes)])
        names = ["rmqha", "java"] if asked.java else ["rmqha"]
        kinds = [Kind(name, Path(folder) / name, nodes, asked.acl, all_doors=not asked.main_ports, tls=asked.tls)
                 for name in names]
        for kind in kinds:
            stack.callback(kind.servers.close)
        if asked.only:
            for number in map(int, asked.only.split(",")):
                for server in kinds[0].nodes:
                    sys.stdout.write(send_alone(kinds, server, number, asked.seed) + "\n")
            return 0
        begin = time.monotonic()
        calm = Kind("rmqha", Path(folder) / CALM, nodes, asked.acl, all_doors=not asked.main_ports, tls=asked.tls,
                    name=CALM) if asked.java else None
        if calm is not None:
            stack.callback(calm.servers.close)
        report = measure(kinds, range(asked.inputs), asked.seed, asked.seconds_max, sys.stderr.write, asked.slack_mib,
                         calm=calm)
        sys.stdout.write(f"inputs of seed {asked.seed} in {time.monotonic() - begin:.0f} s\n")
        sys.stdout.writelines(f"{line}\n" for line in told_lines(report))
        for server, suspects in report.suspects.items():
            for number in suspects if server.startswith("rmqha") else ():
                line = send_alone(kinds, server.partition(" ")[2], number, asked.seed)
                sys.stdout.write(line + "\n")
        sys.stdout.writelines(f"FAULT {fault}\n" for fault in report.faults)
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
