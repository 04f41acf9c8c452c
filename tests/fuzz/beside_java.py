"""Comparison of the original and rmqha with the same broken requests: `python -m tests.fuzz.beside_java`."""
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

# Connections to each server at a time.
BATCH = 40
# The wait for an answer that only one of the two servers gives.
PATIENCE_S = 5.0
PROBE = 999_999
KINDS = ("java", "rmqha")
# A difference must occur in every round.
ROUNDS = 3
_NOT_SUPPORTED = "3"
# Request codes that the original does not have.
_OWN = {30003, 30004}


@dataclass
class Difference:
    """An input with two different outcomes: an answer's code, `closed`, or `no answer`."""

    server: str
    java: str
    rmqha: str
    one: Input

    def is_known(self) -> bool:
        """Return whether rmqha is stricter, or more tolerant, in an intended way.

        rmqha refuses requests that the original accepts or answers with an exception: see
        docs/reference/request-codes.md. It closes at a header that only fastjson accepts as JSON, and answers one with
        an invalid name in serializeTypeCurrentRPC. If bytes follow that are not a frame, an answer may or may not
        arrive before the connection closes. rmqha also serves requests of its own.
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
    """An input on its own connection, followed by a valid request."""

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
        """Wait until the valid request is answered, or the connection is closed."""
        self._read(60, lambda opaque: opaque == PROBE)
        return self

    def wait_for_answer(self) -> None:
        """Wait briefly for the input's own answer."""
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
        """Close the connection."""
        self._client.socket.close()


def compare(servers: dict[str, Servers], inputs: int, seed: int) -> list[Difference]:
    """Send `inputs` to each of the two kinds, half of them to the brokers and half to the name servers."""
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
    """Return the differences that occur again when the input is sent alone.

    In a batch one input may read what another deletes, and each server handles the two in its own order. So all inputs
    are first sent one by one, which usually leaves the same state in both: an input may still wait in a server's queue
    when the valid request after it is answered, and be handled after the next input. So a difference counts only if it
    occurs in each of several rounds.
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
    """Send the inputs at once; return those with two outcomes, by their positions in `sent`."""
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
    """Print all differences."""
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
