"""The same broken requests to the original and to rmqha: what becomes of each. `python -m tests.fuzz.beside_java`."""
import argparse
import json
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.remoting import CLOSED, NOTHING, Fuzzer, Input, calls_of, probe, stocked
from tests.interop.request_code_cases import BROKER, NAMESRV
from tests.interop.request_code_compare import Servers
from tests.support.raw_remoting import RawClient

BATCH = 40  # connections open at a time, to each server
PATIENCE_S = 5.0  # for an answer that one of them gives and the other does not
PROBE = 999_999
KINDS = ("java", "rmqha")
ROUNDS = 3  # a difference is seen in each
_NOT_SUPPORTED = "3"
_OWN = {30003}  # request codes that the original does not know


@dataclass
class Difference:
    """An input with two ends: an answer's code, `closed`, or `no answer`."""

    server: str
    java: str
    rmqha: str
    one: Input

    def is_known(self) -> bool:
        """Whether rmqha is stricter, or more patient, in one of the ways that are meant.

        It refuses what the original takes, or ends in an exception at: docs/reference/request-codes.md tells where.
        It closes at a header that only fastjson takes for JSON, and answers one whose serializeTypeCurrentRPC is no
        name. And where bytes follow that are no frame, an answer may come before the connection closes, or not. It
        serves requests of its own, which the original does not know.
        """
        if self.java == self.rmqha or not self._is_one_frame():
            return True
        if self.rmqha in ("1", "13", "16") and self.java != CLOSED:
            return True
        if self.java == _NOT_SUPPORTED and self._code() in _OWN:
            return True
        head = self._json_header()
        if self.rmqha == CLOSED:
            return head is None
        if self.java == CLOSED:
            return isinstance(head, dict) and not isinstance(head.get("serializeTypeCurrentRPC", ""), str)
        return False

    def _is_one_frame(self) -> bool:
        data = self.one.data
        return len(data) >= 8 and struct.unpack_from(">i", data) == (len(data) - 4,)

    def _code(self) -> object:
        head = self._json_header()
        if isinstance(head, dict):
            return head.get("code")
        return struct.unpack_from(">h", self.one.data, 8)[0] if len(self.one.data) >= 10 else None

    def _json_header(self) -> object:
        length = int.from_bytes(self.one.data[5:8], "big")
        try:
            return json.loads(self.one.data[8:8 + length])
        except ValueError:
            return None


class Attempt:
    """An input on a connection of its own, with a right request behind it."""

    def __init__(self, server: str, address: str, one: Input):
        self._client = RawClient(address, 60)
        self._one = one
        self.outcome = NOTHING
        try:
            self._client.send(one.data)
            if one.is_complete:
                self._client.send(probe(server, PROBE))
            else:
                self._client.socket.shutdown(1)
        except OSError:
            self.outcome = CLOSED

    def wait(self) -> "Attempt":
        """Until the right request is answered, or the connection closed."""
        self._read(60, lambda opaque: opaque == PROBE)
        return self

    def wait_for_answer(self) -> None:
        """A little, for the input's own answer."""
        if self.outcome == NOTHING:
            self._read(PATIENCE_S, lambda opaque: opaque == self._one.opaque)

    def _read(self, timeout_s: float, is_last) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            while self.outcome != CLOSED:
                self._client.socket.settimeout(max(0.001, deadline - time.monotonic()))
                opaque, answer = self._client.read_frame()
                if opaque == self._one.opaque and answer.flag & 1:
                    self.outcome = str(answer.code)
                if is_last(opaque):
                    return
        except TimeoutError:
            return
        except (EOFError, OSError):
            if self.outcome == NOTHING:
                self.outcome = CLOSED

    def close(self) -> None:
        """End the connection."""
        self._client.socket.close()


def compare(servers: dict[str, Servers], inputs: int, seed: int) -> list[Difference]:
    """Send `inputs` to each of the two kinds, half to the brokers, half to the name servers."""
    found = []
    for server in (BROKER, NAMESRV):
        calls = {kind: calls_of(server, one) for kind, one in servers.items()}
        fuzzers = {kind: Fuzzer(calls[kind], seed) for kind in KINDS}
        for begin in range(0, inputs // 2, BATCH):
            count = min(BATCH, inputs // 2 - begin)
            sent = [{kind: fuzzers[kind].next() for kind in KINDS} for _ in range(count)]
            found += _compare_batch(server, servers, sent)
    return found


def _compare_batch(server: str, servers: dict[str, Servers], sent: list[dict[str, Input]]) -> list[Difference]:
    """The differences that are seen again when the input is sent once more, alone.

    In a batch one input may read what another deletes, and each server serves the two in an order of its own. So all
    are sent one by one before, which leaves the same state in both, mostly: an input may still wait in a server's
    queue when the right request after it is answered, and be served after the next input. So a difference counts only
    when it is there after each of some rounds.
    """
    addresses = {kind: (one.broker if server == BROKER else one.namesrv).address for kind, one in servers.items()}
    found = _differences(server, addresses, sent)
    for _ in range(ROUNDS):
        for one in sent if found else ():
            _differences(server, addresses, [one])
        again = {at: _differences(server, addresses, [sent[at]]) for at in found}
        found = {at: seen[0] for at, seen in again.items() if seen}
    return list(found.values())


def _differences(server: str, addresses: dict[str, str], sent: list[dict[str, Input]]) -> dict[int, Difference]:
    """Send the inputs at once; by its place in `sent`, each that met two ends."""
    attempts = [{kind: Attempt(server, addresses[kind], one[kind]) for kind in KINDS} for one in sent]
    found = {}
    for at, (one, pair) in enumerate(zip(sent, attempts, strict=True)):
        for attempt in pair.values():
            attempt.wait()
        difference = Difference(server, pair["java"].outcome, pair["rmqha"].outcome, one["rmqha"])
        if not difference.is_known():
            for attempt in pair.values():
                attempt.wait_for_answer()
            difference = Difference(server, pair["java"].outcome, pair["rmqha"].outcome, one["rmqha"])
        if difference.java != difference.rmqha:
            found[at] = difference
    for pair in attempts:
        for attempt in pair.values():
            attempt.close()
    return found


def main() -> None:
    """Tell of all differences."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.beside_java", description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    nodes: list = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.callback(lambda: [node.kill() for node in reversed(nodes)])
        servers = {kind: stocked(kind, Path(folder) / kind, nodes) for kind in KINDS}
        for one in servers.values():
            stack.callback(one.close)
        for one in compare(servers, asked.inputs, asked.seed):
            known = "known" if one.is_known() else "NEW"
            sys.stdout.write(f"{known} {one.server}: {one.java} | {one.rmqha} {one.one.mutations}\n"
                             f"  {one.one.data[:600]!r}\n")


if __name__ == "__main__":
    main()
