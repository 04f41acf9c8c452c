"""Broken requests to a running name server and broker: `python -m tests.fuzz.remoting --inputs 200000 --seed 1`.

After each input the server closes the connection or answers a valid request. At the end no thread has died,
descriptors, threads and memory have returned to their earlier values, a good client was served all the time, and the
logs have no errors except the answers to broken requests. `--java` sends the same to the original, and compares.
"""
import argparse
import copy
import json
import os
import random
import re
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.faults import ledger
from tests.interop.request_code_cases import BROKER, BROKER_CODES, NAMESRV, NAMESRV_CODES, TOPIC, cases_of
from tests.interop.request_code_compare import Servers
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import GET_BROKER_CLUSTER_INFO, GET_MAX_OFFSET, RawClient, frame, header
from tests.support.wait import wait_until
from tests.support.watch import GoodClient

# Frames with one to three errors: mutations of the calls of each request code, from a seed.
#
# Pure; written from the wire format, without code of rmqha.

MAX_FRAME = 16 * 1024 * 1024
GROWN = "@grown@"
FIRST_OPAQUE = 2_000_000
NUMBERS = [0, -1, 1, 7, 127, 128, 255, 32_767, 32_768, 65_535, 2**31 - 1, 2**31, -2**31, -2**31 - 1, 2**32, 2**63 - 1,
           2**63, -2**63, 10**40]
TEXTS = ["", " ", "null", "true", "-", "0x1", "1e9", "NaN", "a\u0000b", "\u00e9", "\ud83d\ude00", "\ud800", "../../etc",
         "a/b", "%s%n", "t" * 300, "k\x01v\x02", "\x01\x02\x01", "{}", "[]", "\"",
         "\\", "Codes", "CodesSend", "codes-group", "TBW102",
         "%RETRY%codes-group", "RMQ_SYS_TRANS_HALF_TOPIC", "\u0661\u0662"]
VALUES = [None, True, False, 1.5, [], {}, [[]], {"a": {"b": []}}, *NUMBERS[:8], *TEXTS[:6]]
HEADER_KEYS = ["code", "flag", "opaque", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC"]
BODIES = [b"", b"{", b"[]", b"null", b"{}", b"\x00" * 64, b"\xff" * 64, b"[" * 2000, b'{"a":' * 500, b'{"a":1,"a":2}',
          b"\x78\x9c" + b"\x00" * 40, struct.pack(">i", 2**31 - 1) * 20, struct.pack(">i", -1) * 20, b"a=b\nc", b"=\n"]


@dataclass
class Call:
    """A request before its encoding. `header` is as in JSON, with `extFields`; `grown` replaces GROWN in it."""

    header: dict[str, object]
    body: bytes
    binary: bool = False
    grown: bytes = b""


@dataclass
class Input:
    """Bytes to send, their mutations, and the opaque of the request if they still contain it."""

    data: bytes
    mutations: list[str]
    opaque: int

    @property
    def is_complete(self) -> bool:
        """True if the bytes end with a complete frame; else the server waits for more. A closing length counts too."""
        at = 0
        while len(self.data) - at >= 4:
            (length,) = struct.unpack_from(">i", self.data, at)
            if not 0 <= length <= MAX_FRAME - 4:
                return True
            at += 4 + length
        return at == len(self.data)


def encoded(call: Call) -> tuple[int, bytes]:
    """Return (serialize type, header)."""
    if not call.binary:
        header = json.dumps(call.header).encode("utf-8", "surrogatepass")
        return 0, header.replace(b'"%b"' % GROWN.encode(), call.grown) if call.grown else header
    head = call.header
    parts = []
    fields = head.get("extFields")
    for name, value in (fields.items() if isinstance(fields, dict) else ()):
        key, text = _bytes(name), _bytes(value)
        parts += (struct.pack(">H", len(key) & 0xFFFF), key, struct.pack(">i", len(text)), text)
    pairs = b"".join(parts)
    remark = _bytes(head["remark"]) if head.get("remark") is not None else b""
    fixed = struct.pack(">hbhiii", _number(head.get("code"), 16), 0, _number(head.get("version"), 16),
                        _number(head.get("opaque"), 32), _number(head.get("flag"), 32), len(remark))
    return 1, fixed + remark + struct.pack(">i", len(pairs)) + pairs


def _bytes(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")


def _number(value: object, bits: int) -> int:
    number = value if isinstance(value, int) else 0
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


class Fuzzer:
    """A generator of inputs from `calls`, the same for the same seed."""

    def __init__(self, calls: list[Call], seed: int):
        self._calls = calls
        self._rng = random.Random(seed)
        self._count = 0
        self._of_calls: list[Callable[[Call], str]] = [
            self._change_value, self._change_value, self._drop_field, self._add_field, self._change_header,
            self._change_code, self._change_flag, self._change_body, self._change_body, self._swap_kind]
        self._of_bytes: list[Callable[[bytearray], str]] = [
            self._flip, self._flip, self._insert, self._delete, self._lie_about_length, self._lie_about_header,
            self._change_kind, self._cut, self._splice]

    def next(self) -> Input:
        """Return the next input: one in ten is valid, most are changed before or after their encoding."""
        rng = self._rng
        self._count += 1
        opaque = FIRST_OPAQUE + self._count
        source = rng.choice(self._calls)
        head = {**source.header, "opaque": opaque, "extFields": dict(source.header["extFields"])}
        call = Call(head, source.body, rng.random() < 0.4)
        kind = rng.random()
        mutations = [rng.choice(self._of_calls)(call) for _ in range(rng.randint(1, 3))] if 0.1 < kind < 0.75 else []
        data = bytearray(framed(call))
        if kind > 0.6:
            mutations += [rng.choice(self._of_bytes)(data) for _ in range(rng.randint(1, 2)) if data]
        return Input(bytes(data), mutations, opaque)

    def pieces(self, data: bytes) -> list[bytes]:
        """Return `data` as one write, or split at odd places."""
        rng = self._rng
        if len(data) < 2 or rng.random() < 0.9:
            return [data]
        cuts = sorted({rng.randrange(1, len(data)) for _ in range(rng.randint(1, 4))})
        return [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def _fields(self, call: Call) -> dict[str, object] | None:
        fields = call.header.get("extFields")
        return fields if isinstance(fields, dict) else None

    def _value(self) -> object:
        rng = self._rng
        which = rng.random()
        if which < 0.4:
            return str(rng.choice(NUMBERS))
        if which < 0.8:
            return rng.choice(TEXTS)
        return copy.deepcopy(rng.choice(VALUES))

    def _change_value(self, call: Call) -> str:
        fields = self._fields(call)
        if not fields:
            return "nothing"
        name = self._rng.choice(list(fields))
        fields[name] = self._value()
        return f"{name}={fields[name]!r:.30}"

    def _drop_field(self, call: Call) -> str:
        fields = self._fields(call)
        if not fields:
            return "nothing"
        name = self._rng.choice(list(fields))
        del fields[name]
        return f"without {name}"

    def _add_field(self, call: Call) -> str:
        fields = self._fields(call)
        if fields is None:
            return "nothing"
        for _ in range(self._rng.choice((1, 1, 5, 300))):
            fields[f"{self._rng.choice(TEXTS)}{len(fields)}"] = self._value()
        return "more fields"

    def _change_header(self, call: Call) -> str:
        name = self._rng.choice(HEADER_KEYS)
        if self._rng.random() < 0.3:
            call.header.pop(name, None)
            return f"header without {name}"
        call.header[name] = copy.deepcopy(self._rng.choice(VALUES))
        return f"header {name}={call.header[name]!r:.30}"

    def _change_code(self, call: Call) -> str:
        known = self._rng.choice(self._calls).header["code"]
        call.header["code"] = self._rng.choice((known, self._rng.randrange(1100)))
        return f"code {call.header['code']}"

    def _change_flag(self, call: Call) -> str:
        call.header["flag"] = self._rng.choice((1, 2, 3, -1, 1 << 30))
        return f"flag {call.header['flag']}"

    def _change_body(self, call: Call) -> str:
        rng = self._rng
        which = rng.randrange(4)
        if which == 0 or not call.body:
            call.body = rng.choice(BODIES)
        elif which == 1:
            call.body = call.body[:rng.randrange(len(call.body))]
        elif which == 2:
            at = rng.randrange(len(call.body))
            call.body = call.body[:at] + rng.randbytes(rng.choice((1, 1, 4))) + call.body[at + 1:]
        else:
            call.body = rng.randbytes(rng.choice((1, 10, 1000, 70_000)))
        return f"body of {len(call.body)}"

    def _swap_kind(self, call: Call) -> str:
        call.binary = not call.binary
        return "binary" if call.binary else "JSON"

    def _flip(self, data: bytearray) -> str:
        at = self._place(data)
        data[at] ^= 1 << self._rng.randrange(8)
        return f"bit of {at}"

    def _insert(self, data: bytearray) -> str:
        at = self._place(data)
        data[at:at] = self._rng.randbytes(self._rng.choice((1, 2, 4, 100)))
        return f"bytes at {at}"

    def _delete(self, data: bytearray) -> str:
        at = self._place(data)
        del data[at:at + self._rng.choice((1, 2, 4, 50))]
        return f"without bytes at {at}"

    def _place(self, data: bytearray) -> int:
        """Draw a position, half of the time within the first bytes, where the lengths are."""
        return self._rng.randrange(min(len(data), 40) if self._rng.random() < 0.5 else len(data))

    def _lie_about_length(self, data: bytearray) -> str:
        length = self._rng.choice((0, 1, 3, 4, len(data) - 5, len(data) - 3, len(data) + 40, -1, MAX_FRAME - 4,
                                   MAX_FRAME - 3, 2**31 - 1, -2**31))
        data[:4] = struct.pack(">i", length)
        return f"length {length}"

    def _lie_about_header(self, data: bytearray) -> str:
        length = self._rng.choice((0, 1, 16, 21, len(data), len(data) - 9, 0xFFFFFF, self._rng.randrange(200)))
        if len(data) >= 8:
            data[5:8] = (length & 0xFFFFFF).to_bytes(3, "big")
        return f"header length {length}"

    def _change_kind(self, data: bytearray) -> str:
        if len(data) >= 8:
            data[4] = self._rng.choice((0, 1, 2, 5, 127, 255))
        return "serialize type"

    def _cut(self, data: bytearray) -> str:
        at = self._rng.randrange(len(data))
        del data[at:]
        return f"cut at {at}"

    def _splice(self, data: bytearray) -> str:
        other = framed(self._rng.choice(self._calls))
        at = self._place(data)
        data[at:] = other[self._rng.randrange(len(other)):]
        return f"another call from {at}"


def framed(call: Call) -> bytes:
    """Return the frame of a call."""
    kind, head = encoded(call)
    return struct.pack(">iI", 4 + len(head) + len(call.body), kind << 24 | len(head) & 0xFFFFFF) + head + call.body


MIB = 1 << 20
ANSWER_S = 60  # on a busy machine
# The number of inputs between two messages of the good client.
CHECK_EVERY = 500
# The inputs per connection, after which its state (such as pulls) is freed.
CONNECTION_INPUTS = 200
# Pools start their threads on demand, up to their sizes.
SPARE = {"descriptors": 4, "threads": 40}
WARM_UP = 1000  # inputs before memory is measured
# Exceptions that only bugs of rmqha raise. Answers to broken requests describe the error in the request.
SLIPS = re.compile(r"^(AttributeError|TypeError|KeyError|IndexError|NameError|UnboundLocalError|AssertionError|"
                   r"RecursionError|MemoryError|ZeroDivisionError|UnicodeEncodeError|UnicodeDecodeError|OverflowError|"
                   r"struct\.error|RuntimeError|BufferError|ValueError|OSError|NotImplementedError)\b")
CLOSED, NOTHING = "closed", "no answer"


@dataclass
class Found:
    """The faults found, with the data to reproduce them."""

    faults: list[str] = field(default_factory=list)
    outcomes: Counter = field(default_factory=Counter)


def calls_of(server: str, servers: Servers) -> list[Call]:
    """Return each call of each code, with its placeholders filled in."""
    calls = []
    for code in BROKER_CODES if server == BROKER else NAMESRV_CODES:
        for case in cases_of(code):
            # Limits the number of topics and groups.
            number = len(calls) % 50
            fields = {name: servers.filled(value, number) for name, value in (case.fields or {}).items()}
            body = servers.filled(case.body.decode(), number).encode() if case.body[:1] == b"{" else case.body
            head = {"code": code.number, "language": "JAVA", "version": 409, "flag": 0, "extFields": fields}
            calls.append(Call(head, body))
    return calls


def probe(server: str, opaque: int) -> bytes:
    """Return a valid request."""
    if server == NAMESRV:
        return frame(header(GET_BROKER_CLUSTER_INFO, opaque))
    return frame(header(GET_MAX_OFFSET, opaque, topic=TOPIC, queueId=0))


class Target:
    """One port. `try_one` sends an input and returns its outcome."""

    def __init__(self, name: str, address: str, fuzzer: Fuzzer):
        self.name = name
        self.address = address
        self.fuzzer = fuzzer
        self._probe_opaque = 0
        self._client: RawClient | None = None
        self._used = 0

    def try_one(self, one: Input) -> str:
        """Return the response code as text, `closed`, or `no answer`. Raise AssertionError if a valid request fails."""
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
            self._client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # two writes before an answer
            self._used = 0
        self._used += 1
        return self._client

    def _until_probed(self, client: RawClient, one: Input) -> str:
        outcome = NOTHING
        while True:
            opaque, answer = client.read_frame()
            if not answer.flag & 1:
                # a request of the broker to its client
                continue
            if opaque == self._probe_opaque and answer.code == 0:
                return outcome
            if opaque == one.opaque:
                outcome = str(answer.code)
            if answer.remark and SLIPS.match(answer.remark):
                raise AssertionError(f"answered with a bug: {answer.remark}")

    def _until_closed(self, client: RawClient, one: Input) -> str:
        try:
            while True:
                _opaque, answer = client.read_frame()
                if answer.remark and SLIPS.match(answer.remark):
                    raise AssertionError(f"answered with a bug: {answer.remark}")
        except (EOFError, ConnectionResetError):
            return f"half, {CLOSED}"
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.socket.close()
            self._client = None


def anonymous_bytes(server: ServerProcess) -> int:
    """Return the anonymous memory."""
    status = Path(f"/proc/{server.pid}/status").read_text("ascii")
    return int(re.search(r"RssAnon:\s*(\d+) kB", status)[1]) * 1024


def held(server: ServerProcess) -> dict[str, int]:
    """Return the counts of threads and of descriptors except files: each queue of a new topic has a file."""
    links = []
    for descriptor in Path(f"/proc/{server.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # already closed
            links.append(os.readlink(descriptor))
    return {"descriptors": sum(not link.startswith("/") for link in links),
            "threads": psutil.Process(server.pid).num_threads()}


def slips_in_logs(folder: Path) -> list[str]:
    """Return the last lines of bugs' stacks in a server's logs, and of threads that died."""
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
    """Return a name server and a broker of `kind` with the data that the calls use."""
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
    """Send `inputs` to broker and name server, two thirds to the former, and check what remains."""
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
    """Run the command line."""
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
