"""Benchmark of replication beside the real broker: sending by a master, receiving by a slave, and catching up.

    python -m tests.bench.ha [--gib 2] [--rounds 3] [--only reader|ingest|catchup] [--folder F] [--json F]

`reader`: a raw reader of the HA port receives the whole log of 1 KiB messages (`--gib` files of 1 GiB) in the master's
default frames of 32 KiB.

`ingest`: a raw master sends that log in frames of 32 KiB to a slave, until the slave has reported the log's end.

`catchup`: a slave that has only the log's first record follows a master of the same kind until it has everything and
has dispatched it. The time begins with the first byte that it appends; the results have its size every 100 ms.

Kinds alternate, and medians are printed. Reader and raw master are written in Python, which sends and receives without
holding the GIL.
"""
import argparse
import json
import mmap
import os
import shutil
import socket
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench import KINDS, OTHER
from tests.bench.made_store import MadeLog, make_commit_log
from tests.bench.results import Results, add_json
from tests.bench.startup import DEFAULT_STORE, GIB, digest_of_queues, say
from tests.support import real_rocketmq
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, RawClient
from tests.support.wait import wait_until

FRAME = 32 * 1024
_HEADER = struct.Struct(">qi")
_BUFFER = 1 << 20
_FRAMES_A_WRITE = 32
# With head and properties, a record has about 1 KiB.
_BODY = 800
_LIMIT_S = 600
_SAMPLE_S = 0.1


class Frames:
    """Adds up the body sizes of a stream of frames without copying them. AssertionError if a frame is not the next
    one."""

    def __init__(self, first: int) -> None:
        self.received = 0
        self._first = first
        self._left = 0  # remaining bytes of the current body
        self._header = b""

    def feed(self, data: memoryview) -> None:
        """Process the next bytes of the stream."""
        position, end = 0, len(data)
        while position < end:
            if self._left:
                taken = min(self._left, end - position)
                self._left -= taken
                self.received += taken
                position += taken
                continue
            missing = _HEADER.size - len(self._header)
            self._header += bytes(data[position:position + missing])
            position += missing
            if len(self._header) == _HEADER.size:
                offset, self._left = _HEADER.unpack(self._header)
                assert offset == self._first + self.received, f"a frame at {offset} after {self.received} bytes"
                self._header = b""


def read_all(port: int, size: int) -> float:
    """Return the seconds until a raw reader has the log's bytes from 1 to `size`. After a first report of 0 the
    master would begin at the last file."""
    buffer = memoryview(bytearray(_BUFFER))
    frames = Frames(1)
    with socket.create_connection(("127.0.0.1", port), _LIMIT_S) as master:
        begin = time.monotonic()
        master.sendall((1).to_bytes(8, "big"))
        while frames.received < size - 1:
            count = master.recv_into(buffer)
            assert count, "the master closed the connection"
            frames.feed(buffer[:count])
        return time.monotonic() - begin


def measure_reader(kind: str, folder: Path, made: MadeLog) -> float:
    """Return the bytes per second sent by a master of `kind`."""
    master = BrokerNode(kind, folder, None, **DEFAULT_STORE)
    master.start(_LIMIT_S * 1000)
    try:
        return made.size / read_all(master.ha_port, made.size)
    finally:
        master.stop(300)


def send_all(slave: socket.socket, commit_log: Path, size: int) -> float:
    """Return the seconds from the slave's first report, which is 0, to its report of `size`."""
    report = int.from_bytes(slave.recv(8, socket.MSG_WAITALL), "big")
    assert report == 0, f"the slave already has {report} bytes"
    begin = time.monotonic()
    for file in sorted(commit_log.iterdir()):
        start = int(file.name)
        with open(file, "rb") as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            with memoryview(mapped) as view:
                _send_file(slave, view, start, min(len(view), size - start))
    while report < size:
        data = slave.recv(8, socket.MSG_WAITALL)
        assert len(data) == 8, f"the slave closed the connection at {report}"
        report = int.from_bytes(data, "big")
    return time.monotonic() - begin


def _send_file(slave: socket.socket, view: memoryview, start: int, length: int) -> None:
    for block in range(0, length, FRAME * _FRAMES_A_WRITE):
        parts = []
        for position in range(block, min(block + FRAME * _FRAMES_A_WRITE, length), FRAME):
            body = min(FRAME, length - position)
            parts += [(start + position).to_bytes(8, "big") + body.to_bytes(4, "big"), view[position:position + body]]
        _send_parts(slave, parts)


def _send_parts(slave: socket.socket, parts: list[bytes | memoryview]) -> None:
    total = sum(map(len, parts))
    sent = slave.sendmsg(parts)
    if sent < total:
        slave.sendall(b"".join(parts)[sent:])


def measure_ingest(kind: str, folder: Path, commit_log: Path, made: MadeLog) -> float:
    """Return the bytes per second received by a slave of `kind`, including its reports."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_LIMIT_S)
        slave = BrokerNode(kind, folder, None, **DEFAULT_STORE, brokerRole="SLAVE", brokerId=1,
                           haMasterAddress=f"127.0.0.1:{listener.getsockname()[1]}")
        slave.start()
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_LIMIT_S)
                return made.size / send_all(connection, commit_log, made.size)
        finally:
            slave.stop(300)
            shutil.rmtree(folder)


def runtime(client: RawClient) -> tuple[int, int]:
    """Return the end of a broker's commit log, and how many bytes are not dispatched yet.

    Return (-1, -1) in the first second of the real broker.
    """
    answer = client.request(GET_BROKER_RUNTIME_INFO)
    # The real broker's statistics have no sample yet, which raises an exception there.
    if answer.code:
        return -1, -1
    table = json.loads(answer.body)["table"]
    return int(table["commitLogMaxOffset"]), int(table["dispatchBehindBytes"])


class Progress:
    """Waits for a slave to have the whole log, and records every 100 ms how much it holds."""

    def __init__(self, client: RawClient, first: int, size: int) -> None:
        self._client = client
        self._size = size
        self.points: list[tuple[float, float]] = []  # (seconds, MB)
        wait_until(lambda: runtime(client)[0] > first, 60_000, "the slave takes bytes")
        self._begin = time.monotonic()

    def until_done(self) -> float:
        """Return the seconds until the slave has everything and has dispatched it."""
        wait_until(self._look, _LIMIT_S * 1000, "the slave has everything")
        return self.points[-1][0]

    def _look(self) -> bool:
        held, behind = runtime(self._client)
        elapsed, done = time.monotonic() - self._begin, (held, behind) == (self._size, 0)
        if held >= 0 and (done or not self.points or elapsed >= self.points[-1][0] + _SAMPLE_S):
            self.points.append((round(elapsed, 3), held / 1e6))
        return done


def measure_catchup(kind: str, folder: Path, commit_log: Path, made: MadeLog) -> tuple[Progress, str]:
    """Return the progress of a slave that catches up, including dispatch, and a hash of its consume queues."""
    master = BrokerNode(kind, folder / "master", None, **DEFAULT_STORE)
    master.commit_log.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(commit_log, master.commit_log)
    slave = BrokerNode(kind, folder / "slave", None, **DEFAULT_STORE, brokerRole="SLAVE", brokerId=1,
                       haMasterAddress=master.ha_address)
    first = give_first_record(commit_log, slave.commit_log)
    master.start(_LIMIT_S * 1000)
    try:
        slave.start(_LIMIT_S * 1000)
        with RawClient(slave.address) as client:
            progress = Progress(client, first, made.size)
            progress.until_done()
    finally:
        slave.stop(300)
        master.stop(300)
    digest = digest_of_queues(slave.store)
    shutil.rmtree(folder)
    return progress, digest


def give_first_record(source: Path, target: Path) -> int:
    """Write a log of one record, so that the slave requests the master's whole log; return the record's size."""
    first = sorted(source.iterdir())[0]
    with open(first, "rb") as file:
        length = int.from_bytes(file.read(4), "big")
        file.seek(0)
        record = file.read(length)
    target.mkdir(parents=True)
    with open(target / first.name, "wb") as file:
        file.write(record)
        file.truncate(GIB)
    return length


def compare(name: str, arguments: argparse.Namespace, results: Results, measure: Callable[[str], float]) -> None:
    """Alternate between the kinds; print medians and ratio."""
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(arguments.rounds):
        for kind, seen in rates.items():
            seen.append(measure(kind) / 1e6)
    for kind, seen in rates.items():
        say(f"{name:8} {kind:6} {statistics.median(seen):8,.0f} MB/s  (min {min(seen):,.0f}, max {max(seen):,.0f})")
        results.row(kind, name, "MB/s", seen, gib=arguments.gib)
    say(f"{name:8} rmqha / {OTHER}: {statistics.median(rates['rmqha']) / statistics.median(rates[OTHER]):.2f}")


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("reader", "ingest", "catchup"))
    parser.add_argument("--folder", help="folder for the stores (default: the system's temporary folder)")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("ha", arguments)
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=arguments.folder) as temporary:
        folder = Path(temporary)
        made = make_commit_log(folder / "log", int(arguments.gib * GIB / 1050), _BODY, GIB)
        say(f"{made.count:,} messages, {made.size / GIB:.2f} GiB; java options: {os.environ['RMQHA_JAVA_OPTIONS']}")
        wanted = [arguments.only] if arguments.only else ["reader", "ingest", "catchup"]
        if "reader" in wanted:
            node = folder / "reader"
            (node / "store").mkdir(parents=True)
            os.symlink(folder / "log", node / "store" / "commitlog")
            compare("reader", arguments, results, lambda kind: measure_reader(kind, node, made))
            shutil.rmtree(node)
        if "ingest" in wanted:
            compare("ingest", arguments, results,
                    lambda kind: measure_ingest(kind, folder / f"slave-{kind}", folder / "log", made))
        if "catchup" in wanted:
            digests = set()
            courses: dict[str, list[list[tuple[float, float]]]] = {kind: [] for kind in KINDS}

            def catchup(kind: str) -> float:
                progress, digest = measure_catchup(kind, folder / f"pair-{kind}", folder / "log", made)
                digests.add(digest)
                courses[kind].append(progress.points)
                return made.size / progress.points[-1][0]
            compare("catchup", arguments, results, catchup)
            for kind, course in courses.items():
                results.row(kind, "held by the slave", "MB", course, gib=arguments.gib)
            say(f"catchup  consume queues of all slaves equal: {'yes' if len(digests) == 1 else 'NO'}")


if __name__ == "__main__":
    main()
