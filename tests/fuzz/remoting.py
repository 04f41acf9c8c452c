"""Broken requests against a running name server and broker: `python -m tests.fuzz.remoting --inputs 200000 --seed 1`.

After each input the connection either closes or answers a right request. At the end no thread has died, descriptors,
threads and memory are back, a good client was served all the while, and the logs tell of no error but those that
broken requests are answered with. `--java` asks the original the same, and compares.
"""
import argparse
import os
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults import ledger
from tests.fuzz.frames import Call, Fuzzer, Input
from tests.interop.request_code_cases import BROKER, BROKER_CODES, NAMESRV, NAMESRV_CODES, TOPIC, cases_of
from tests.interop.request_code_compare import Servers
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, GET_MAX_OFFSET, RawClient, frame, header
from tests.support.wait import wait_until
from tests.support.watch import GoodClient

MIB = 1 << 20
ANSWER_S = 60  # on a busy machine
CHECK_EVERY = 500  # inputs between two messages of the good client
CONNECTION_INPUTS = 200  # what a connection may hold (pulls, say) is given back after so many
SPARE = {"descriptors": 4, "threads": 40}  # pools make their threads on demand, up to their sizes
WARM_UP = 1000  # inputs before memory is measured
# Names that only a fault of rmqha's own has; what broken requests are answered with says what is wrong with them.
SLIPS = re.compile(r"^(AttributeError|TypeError|KeyError|IndexError|NameError|UnboundLocalError|AssertionError|"
                   r"RecursionError|MemoryError|ZeroDivisionError|UnicodeEncodeError|UnicodeDecodeError|OverflowError|"
                   r"struct\.error|RuntimeError|BufferError|ValueError|OSError|NotImplementedError)\b")
CLOSED, NOTHING = "closed", "no answer"


@dataclass
class Found:
    """What went wrong, with what it takes to see it again."""

    faults: list[str] = field(default_factory=list)
    outcomes: Counter = field(default_factory=Counter)


def calls_of(server: str, servers: Servers) -> list[Call]:
    """Each call of each code, its placeholders filled."""
    calls = []
    for code in BROKER_CODES if server == BROKER else NAMESRV_CODES:
        for case in cases_of(code):
            number = len(calls) % 50  # not too many topics and groups are made
            fields = {name: servers.filled(value, number) for name, value in (case.fields or {}).items()}
            body = servers.filled(case.body.decode(), number).encode() if case.body[:1] == b"{" else case.body
            head = {"code": code.number, "language": "JAVA", "version": 409, "flag": 0, "extFields": fields}
            calls.append(Call(head, body))
    return calls


def probe(server: str, opaque: int) -> bytes:
    """A right request."""
    if server == NAMESRV:
        return frame(header(GET_BROKER_CLUSTER_INFO, opaque))
    return frame(header(GET_MAX_OFFSET, opaque, topic=TOPIC, queueId=0))


class Target:
    """One port; `try_one` sends an input and says what came of it."""

    def __init__(self, name: str, address: str, fuzzer: Fuzzer):
        self.name = name
        self.address = address
        self.fuzzer = fuzzer
        self._probe_opaque = 0
        self._client: RawClient | None = None
        self._used = 0

    def try_one(self, one: Input) -> str:
        """The answer's code as text, or closed, or no answer; AssertionError when the right request is not served."""
        client = self._connected()
        self._probe_opaque += 1
        try:
            for piece in self.fuzzer.pieces(one.data):
                client.send(piece)
            if not one.is_complete:
                client.socket.shutdown(1)
                return self._until_closed(client, one)
            client.send(probe(self.name, self._probe_opaque))
            return self._until_probed(client, one)
        except TimeoutError:
            raise
        except (EOFError, OSError):
            self.close()
            return CLOSED

    def _connected(self) -> RawClient:
        if self._client is None or self._used >= CONNECTION_INPUTS:
            self.close()
            self._client = RawClient(self.address, ANSWER_S)
            self._client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # two writes, and then an answer
            self._used = 0
        self._used += 1
        return self._client

    def _until_probed(self, client: RawClient, one: Input) -> str:
        outcome = NOTHING
        while True:
            opaque, answer = client.read_frame()
            if not answer.flag & 1:
                continue  # a call of the broker to its client
            if opaque == self._probe_opaque and answer.code == 0:
                return outcome
            if opaque == one.opaque:
                outcome = str(answer.code)
            if answer.remark and SLIPS.match(answer.remark):
                raise AssertionError(f"answered with a slip: {answer.remark}")

    def _until_closed(self, client: RawClient, one: Input) -> str:
        try:
            while True:
                _opaque, answer = client.read_frame()
                if answer.remark and SLIPS.match(answer.remark):
                    raise AssertionError(f"answered with a slip: {answer.remark}")
        except (EOFError, ConnectionResetError):
            return f"half, {CLOSED}"
        finally:
            self.close()

    def close(self) -> None:
        """End the connection."""
        if self._client is not None:
            self._client.socket.close()
            self._client = None


def anonymous_bytes(server: ServerProcess) -> int:
    """Memory that is no file's."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) * 1024


def held(server: ServerProcess) -> dict[str, int]:
    """Threads, and descriptors of everything but files: each queue of a new topic has a file."""
    links = []
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(descriptor))
    return {"descriptors": sum(not link.startswith("/") for link in links),
            "threads": psutil.Process(server.pid).num_threads()}


def slips_in_logs(folder: Path) -> list[str]:
    """Last lines of the stacks in a server's logs, and of threads that died."""
    found = []
    for log in [*folder.rglob("*.log"), *folder.glob("*.out")]:
        inside = False
        for line in log.read_text("utf-8", "replace").splitlines():
            if line.startswith("Traceback (most recent call last)"):
                inside = True
            elif "Exception in thread" in line:
                found.append(f"{log.name}: {line}")
            elif inside and line[:1] not in ("", " "):
                inside = False
                found.append(f"{log.name}: {line[:300]}")
    return found


def stocked(kind: str, folder: Path, nodes: list) -> Servers:
    """A name server and a broker of `kind` that hold what the calls speak of."""
    namesrv = NamesrvNode(kind, folder / "namesrv")
    nodes.append(namesrv)
    namesrv.start()
    broker = BrokerNode(kind, folder / "broker", namesrv.address, mappedFileSizeCommitLog=64 * MIB)
    nodes.append(broker)
    broker.start()
    servers = Servers(namesrv, broker)
    servers.stock()
    return servers


def fuzz(servers: Servers, inputs: int, seed: int, limit_bytes: int, tell=lambda text: None) -> Found:
    """Send `inputs` to broker and name server, two thirds to the former, and look at what they leave."""
    found = Found()
    good = GoodClient(servers.broker.address)
    targets = [Target(name, address, Fuzzer(calls_of(name, servers), seed + number)) for number, (name, address) in
               enumerate(((BROKER, servers.broker.address), (NAMESRV, servers.namesrv.address),
                          (BROKER, servers.broker.address)))]
    watched: list[tuple[ServerProcess, dict[str, int], int]] = []
    for number in range(inputs):
        target = targets[number % len(targets)]
        one = target.fuzzer.next()
        try:
            outcome = target.try_one(one)
        except (AssertionError, TimeoutError) as failure:
            target.close()
            outcome = "fault"
            found.faults.append(f"seed {seed}, input {number} to the {target.name}, {one.mutations}: {failure!r}\n"
                                f"  {one.data[:400]!r}")
        found.outcomes[f"{target.name}: {outcome}"] += 1
        if number % CHECK_EVERY == 0:
            good.check()
            tell(f"{number} inputs, {len(found.faults)} faults\n")
        if number == min(WARM_UP, inputs // 2):
            for one_target in targets:
                one_target.close()
            watched = [(server, held(server), anonymous_bytes(server))
                       for server in (servers.broker, servers.namesrv)]
    for target in targets:
        target.close()
    good.check()
    for server, held_before, bytes_before in watched:
        _check_server(server, held_before, bytes_before, limit_bytes, found)
    good.close()
    return found


def _check_server(server: ServerProcess, held_before: dict[str, int], bytes_before: int, limit_bytes: int,
                  found: Found) -> None:
    assert server.is_alive, f"{server.name} is dead"

    def is_returned() -> bool:
        return all(count <= held_before[what] + SPARE[what] for what, count in held(server).items())
    try:
        wait_until(is_returned, 60_000)
    except AssertionError:
        found.faults.append(f"{server.name} holds {held(server)}, before: {held_before}")
    grown = anonymous_bytes(server) - bytes_before
    found.outcomes[f"{server.name}: MiB grown"] = grown // MIB
    if grown > limit_bytes:
        found.faults.append(f"{server.name} has grown by {grown // MIB} MiB")
    found.faults += [f"{server.name}: {slip}" for slip in sorted(set(slips_in_logs(server.output_file.parent)))]


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.remoting", description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kind", default="rmqha", choices=("rmqha", "java"))
    parser.add_argument("--limit-mib", type=int, default=96, help="how much more memory a server may hold at the end")
    parser.add_argument("--record", action="store_true", help="append the result to tests/faults/ledger.tsv")
    asked = parser.parse_args()
    nodes: list = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [node.kill() for node in reversed(nodes)])
        servers = stocked(asked.kind, Path(folder), nodes)
        stack.callback(servers.close)
        begin = time.monotonic()
        found = fuzz(servers, asked.inputs, asked.seed, asked.limit_mib * MIB, sys.stderr.write)
    sys.stdout.write(f"{asked.inputs} inputs of seed {asked.seed} in {time.monotonic() - begin:.0f} s\n")
    sys.stdout.writelines(f"{count:8} {outcome}\n" for outcome, count in sorted(found.outcomes.items()))
    sys.stdout.writelines(f"FAULT {fault}\n" for fault in found.faults)
    if asked.record:
        ledger.append([ledger.Entry(ledger.present_commit(), "fuzz remoting", asked.kind, asked.seed, asked.inputs, 0,
                                    len(found.faults))])
    return 1 if found.faults else 0


if __name__ == "__main__":
    sys.exit(main())
