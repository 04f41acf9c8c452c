"""The ports of a cluster beside the two main ones, and what strangers send there: fast port, controller, replication,
metrics, console.

The bystander asks at each door as it asks at the main ports. Inputs of the remoting doors are those of `cost_inputs`;
those of replication are greetings, questions and reports with lies in them, those of the HTTP doors odd requests.
Written from the formats, and sharing no code with rmqha.
"""
import json
import random
import struct
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.fuzz.cost_inputs import KIB, MIB, CostInput, CostInputs
from tests.fuzz.frames import Call
from tests.support import ports
from tests.support.controller_nodes import ControllerNode
from tests.support.nodes import BrokerNode
from tests.support.processes import ServerProcess

FAST, CONTROLLER, HA, METRICS, CONSOLE = "fast-broker", "controller", "ha", "metrics", "console"
NUMBERS = [0, 1, -1, 255, 1 << 20, 1 << 31, 1 << 62, (1 << 63) - 1, -(1 << 63)]
SIZES = (64, 512, 4 * KIB, 32 * KIB, 70 * KIB, 256 * KIB, MIB)
PATHS = {METRICS: ["/metrics", "/healthz", "/readyz", "/", "/nobody"],
         CONSOLE: ["/", "/static/app.js", "/api/session", "/api/cluster", "/api/groups", "/api/groups/codes-group",
                   "/api/topics", "/api/topics/Codes", "/api/store", "/api/history", "/api/messages", "/api/trace"]}


@dataclass(frozen=True)
class Door:
    """A port of a server; what the server holds is counted once, at its main port."""

    node: ServerProcess
    address: str

    @property
    def pid(self) -> int:
        """Of the server's process."""
        return self.node.pid

    @property
    def is_alive(self) -> bool:
        """Whether the server runs."""
        return self.node.is_alive


class Inputs(Protocol):
    """What one door gets, by number."""

    def input(self, number: int) -> CostInput:
        """Input `number`."""


class ConsoleNode(ServerProcess):
    """A console on a cluster, which shows it."""

    def __init__(self, folder: Path, namesrv: str):
        self.address = f"127.0.0.1:{ports.free_port()}"
        super().__init__("rmqha-console", [
            sys.executable, "-m", "rmqha.launch", "rmqha", "console", "--namesrv", namesrv, "--port",
            self.address.rpartition(":")[2]], folder, "console at")


class ReplicationInputs:
    """Reports, introductions and questions, whole, cut, and with numbers that lie."""

    def __init__(self, seed: int):
        self._seed = seed

    def input(self, number: int) -> CostInput:
        """Input `number`."""
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
    """Requests with long lines, many fields, bodies, odd ranges, and other than HTTP."""

    def __init__(self, door: str, seed: int):
        self._paths, self._seed = PATHS[door], seed

    def input(self, number: int) -> CostInput:
        """Input `number`."""
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
    """A right call of each code that a controller serves."""
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
    """What the controller, the port of replication and the HTTP doors get."""
    if door == CONTROLLER:
        return CostInputs(controller_calls(), seed)
    return ReplicationInputs(seed) if door == HA else HttpInputs(door, seed)


def more_doors(kind: str, folder: Path, broker: BrokerNode, namesrv: str, nodes: list) -> dict[str, Door]:
    """The doors that this kind has, of a cluster that runs: the original has no page of its own."""
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
