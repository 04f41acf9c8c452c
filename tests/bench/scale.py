"""Cost of many unused queues in a broker: its start, its space on disk, its descriptors, maps and idle CPU.

    python -m tests.bench.scale [--topics 100] [--queues 8] [--messages 1] [--rounds 1] [--idle 10] [--folder F]
                                [--only java|rmqha] [--slave] [--json F]

Each kind has its own store, made from the same log: `--messages` messages in each of `--queues` queues of `--topics`
topics. Its first start builds the queues and is not counted. In a round each kind in turn starts after a clean stop,
runs for `--idle` seconds without any client, is killed with kill -9, and starts again. The medians are printed. "Ready"
is the time from the start of the process to its "boot success". With `--slave`, a name server and a slave with all
queues run beside the master before kill -9: both are idle for another `--idle` seconds.
"""
import argparse
import json
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import psutil

from rmqha.common.message import message_layout as layout
from rmqha.native import kernels
from tests.bench import KINDS
from tests.bench.results import Results, add_json
from tests.bench.startup import DEFAULT_STORE, say
from tests.support import real_rocketmq
from tests.support.nodes import BrokerNode, NamesrvNode

_START_LIMIT_MS = 1_800_000
_STOP_LIMIT_S = 600
# By then the slave has its topics, offsets and groups, and both have dispatched.
_SETTLED_S = 15
_HOST = layout.host_to_bytes(("10.0.0.1", 10911))
_LOG_FILE = 256 << 20
# A small index: the benchmark is about costs that grow with the queues.
_SETTINGS = {**DEFAULT_STORE, "mappedFileSizeCommitLog": _LOG_FILE, "maxHashSlotNum": 100_000, "maxIndexNum": 400_000}


def _records(topics: int, queues: int, messages: int) -> Iterator[bytes]:
    """Yield adjacent records from offset 0 on: one message of each queue, then the next one of each."""
    now, begin, body = int(time.time() * 1000), 0, b"b" * 100
    crc = zlib.crc32(body) & 0x7FFF_FFFF
    for index in range(messages):
        for number in range(topics):
            topic = layout.encode_topic(f"scale_{number:05d}")
            for queue_id in range(queues):
                record = layout.encode_record(crc, queue_id, 0, index, begin, 0, now, _HOST, now, _HOST, 0, 0, body,
                                              topic, b"TAGS\x01a")
                begin += len(record)
                yield record


def make_log(folder: Path, topics: int, queues: int, messages: int) -> None:
    """Write the log: one file, as large as its records need."""
    folder.mkdir(parents=True)
    with open(folder / f"{0:020d}", "wb") as file:
        for record in _records(topics, queues, messages):
            file.write(record)
        if file.tell() + layout.END_FILE_MIN_BLANK_LENGTH > _LOG_FILE:
            raise SystemExit(f"the log has {file.tell():,} bytes, and its file {_LOG_FILE:,}")
        file.truncate(_LOG_FILE)


def make_topics(store: Path, topics: int, queues: int) -> None:
    """Write the topics of `make_log` as the broker's topic configuration."""
    table = {name: {"order": False, "perm": 6, "readQueueNums": queues, "topicFilterType": "SINGLE_TAG",
                    "topicName": name, "topicSysFlag": 0, "writeQueueNums": queues}
             for name in map("scale_{:05d}".format, range(topics))}
    file = store / "config" / "topics.json"
    file.parent.mkdir(parents=True)
    version = {"counter": topics, "timestamp": int(time.time() * 1000)}
    file.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}), "utf-8")


def disk_bytes(folder: Path) -> int:
    """Return the bytes that the file system has reserved for the files below a folder."""
    return sum(os.lstat(os.path.join(path, name)).st_blocks * 512
               for path, _folders, names in os.walk(folder) for name in names)


class Broker:
    """One kind's broker with its store and its measurements."""

    def __init__(self, kind: str, folder: Path, arguments: argparse.Namespace) -> None:
        self.kind = kind
        self._idle_s = arguments.idle
        make_log(folder / "store" / "commitlog", arguments.topics, arguments.queues, arguments.messages)
        make_topics(folder / "store", arguments.topics, arguments.queues)
        self._namesrv = NamesrvNode(kind, folder / "n") if arguments.slave else None
        address = self._namesrv.address if self._namesrv else None
        self._node = BrokerNode(kind, folder, address, **_SETTINGS)
        self._slave = BrokerNode(kind, folder / "slave", address, "slave", brokerId=1, brokerRole="SLAVE",
                                 haMasterAddress=self._node.ha_address, **_SETTINGS) if arguments.slave else None
        self.measured: dict[str, list[float]] = {}

    def _note(self, name: str, value: float) -> None:
        self.measured.setdefault(name, []).append(value)

    def _start(self) -> float:
        begin = time.monotonic()
        self._node.start(_START_LIMIT_MS)
        return time.monotonic() - begin

    def build(self) -> None:
        """Start for the first time: queues and index are built from the log."""
        if self._namesrv is not None:
            self._namesrv.start()
        self._note("build s", self._start())
        self._node.stop(_STOP_LIMIT_S)

    def round(self) -> None:
        """Measure a start after a clean stop, and one after kill -9."""
        self._note("clean s", self._start())
        self._look()
        if self._slave is not None:
            self._look_at_both(self._slave)
        self._node.kill()
        self._note("kill -9 s", self._start())
        begin = time.monotonic()
        self._node.stop(_STOP_LIMIT_S)
        self._note("stop s", time.monotonic() - begin)
        self._note("queues MiB", disk_bytes(self._node.store / "consumequeue") / (1 << 20))

    def _look_at_both(self, slave: BrokerNode) -> None:
        for again in (False, True):  # its stop flushes the new files of its queues
            slave.start(_START_LIMIT_MS)
            self._node.wait_for_slave()
            time.sleep(_SETTLED_S)
            if not again:
                slave.stop(_STOP_LIMIT_S)
        pids = self._node.pid, slave.pid
        before = [_cpu_s(pid) for pid in pids]
        time.sleep(self._idle_s)
        for name, pid, begin in zip(("master", "slave"), pids, before, strict=True):
            self._note(f"idle CPU of a {name} with both %", 100 * (_cpu_s(pid) - begin) / self._idle_s)
        slave.stop(_STOP_LIMIT_S)

    def _look(self) -> None:
        process = psutil.Process(self._node.pid)
        before = _cpu_s(process.pid)
        time.sleep(self._idle_s)
        self._note("idle CPU %", 100 * (_cpu_s(process.pid) - before) / self._idle_s)
        self._note("descriptors", process.num_fds())
        self._note("maps", len(Path(f"/proc/{process.pid}/maps").read_text().splitlines()))
        self._note("RSS MiB", process.memory_info().rss / (1 << 20))

    def stop(self) -> None:
        """Stop everything, whatever has happened."""
        for server in (self._node, self._slave, self._namesrv):
            if server is not None:
                server.kill()


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def measure(folder: Path, arguments: argparse.Namespace, results: Results) -> None:
    """Run all rounds, and print the table of the medians."""
    kinds = [kind for kind in KINDS if arguments.only in (None, kind)]
    brokers = [Broker(kind, folder / kind, arguments) for kind in kinds]
    try:
        for broker in brokers:
            broker.build()
        for _ in range(arguments.rounds):
            for broker in brokers:
                broker.round()
    finally:
        for broker in brokers:
            broker.stop()
    say(f"{arguments.topics * arguments.queues:,} queues  " + " ".join(f"{kind:>12}" for kind in kinds))
    for name in brokers[0].measured:
        values = " ".join(f"{statistics.median(broker.measured[name]):12,.2f}" for broker in brokers)
        say(f"{name:14} {values}")
        what, _space, unit = name.rpartition(" ")
        for broker in brokers:
            results.row(broker.kind, what or name, unit if what else "", broker.measured[name],
                        queues=arguments.topics * arguments.queues)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--queues", type=int, default=8, help="queues of each topic")
    parser.add_argument("--messages", type=int, default=1, help="messages of each queue")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--idle", type=float, default=10.0, help="seconds")
    parser.add_argument("--folder", help="folder for the stores (default: the system's temporary folder)")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--slave", action="store_true")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    if arguments.only is None and (reason := real_rocketmq.why_unavailable()) is not None:
        say(f"the original can't run here: {reason}")
        arguments.only = "rmqha"
    results = Results("scale", arguments)
    say(f"{kernels.told()}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=arguments.folder) as folder:
        measure(Path(folder), arguments, results)


if __name__ == "__main__":
    main()
