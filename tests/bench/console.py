"""Times of the console's pages, and what the console costs, on a cluster at its limits: a broker has at most 100,000
topics, with those of the system.

    python -m tests.bench.console [--topics 99900] [--groups 5000] [--messages 10000000] [--bodies 500]
                                  [--dead-groups 20] [--masters 1] [--rounds 5] [--pause 2] [--idle 30] [--folder F]
                                  [--list] [--json F]

The first master has `--topics` topics with 8 queues each, `--groups` groups with offsets in a topic of their own,
`--messages` small messages in one topic, `--bodies` messages of 4 MiB in another, and dead letters of some groups.
Further masters have the same topics and groups, but no messages. The store is made on disk and built by the broker's
first start, which is not counted; with `--folder` it is kept there, and used again.

The console is started as users start it. `cold` is the time of a page's first request as soon as a new console answers,
which no user is quick enough for. Then each path is requested once, and again in each round, `--pause` seconds apart.
`CPU` is that of the console and of the brokers together for one request, with the polls that fall into it; `bytes` is
what the console has received from the servers. After the rounds it polls for `--idle` seconds without requests.
`--list`: `rmqha topic list` and `rmqha group list` are measured, too.
"""
import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import psutil

from rmqha.common.message import message_layout as layout
from rmqha.native import kernels
from tests.bench.results import Results, add_json
from tests.bench.startup import DEFAULT_STORE, say
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.sources import ROOT

_START_LIMIT_MS = 1_800_000
_QUEUES = 8
_SMALL_FILE, _SEGMENT = 300_000 * 20, 1 << 30
_LARGE_BODY = 4 << 20
_DEAD_LETTERS = 100  # of each group that has any
_HOST = layout.host_to_bytes(("10.0.0.1", 10911))
MANY, LARGE = "bench_many", "bench_large"
_SETTINGS = {**DEFAULT_STORE, "mappedFileSizeCommitLog": _SEGMENT, "mappedFileSizeConsumeQueue": _SMALL_FILE,
             "maxHashSlotNum": 100_000, "maxIndexNum": 400_000, "brokerClusterName": "BenchCluster",
             # a plain registration of so many topics exceeds the limits of a name server
             "compressedRegister": "true"}
# Written last: the store before it is complete.
_MADE = "made.json"


def topic_name(number: int) -> str:
    """Return the name of a topic without messages."""
    return f"orders_{number:05d}"


def group_name(number: int) -> str:
    """Return the name of a group."""
    return f"readers_{number:05d}"


# ---- the store


class LogWriter:
    """Writes records one after the other, in files of 1 GiB."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._begin = self._size = 0
        self._file = self._next_file()
        self._ends: dict[tuple[str, int], int] = {}
        self._now = int(time.time() * 1000)

    def _next_file(self) -> BinaryIO:
        return open(self._folder / f"{self._begin:020d}", "wb", buffering=8 << 20)

    def write(self, topic: str, queue_id: int, body: bytes, crc: int, properties: bytes = b"TAGS\x01a") -> None:
        """Append one message to a queue."""
        name = layout.encode_topic(topic)
        size = layout.cal_msg_length(0, len(body), len(name) - 1, len(properties))
        if self._size + size + layout.END_FILE_MIN_BLANK_LENGTH > _SEGMENT:
            self._file.write(layout.encode_blank(_SEGMENT - self._size))
            self._end_file()
            self._begin, self._size = self._begin + _SEGMENT, 0
            self._file = self._next_file()
        offset = self._ends.get((topic, queue_id), 0)
        self._ends[topic, queue_id] = offset + 1
        self._file.write(layout.encode_record(crc, queue_id, 0, offset, self._begin + self._size, 0, self._now, _HOST,
                                              self._now, _HOST, 0, 0, body, name, properties))
        self._size += size

    def close(self) -> dict[tuple[str, int], int]:
        """Finish the last file; return the ends of the queues."""
        self._end_file()
        return self._ends

    def _end_file(self) -> None:
        self._file.truncate(_SEGMENT)
        self._file.close()


def make_store(store: Path, arguments: argparse.Namespace, with_messages: bool) -> None:
    """Write log, topics, groups and offsets of a broker, unless they are there."""
    wanted = {name: getattr(arguments, name) for name in ("topics", "groups", "messages", "bodies", "dead_groups")}
    made = store / _MADE
    if made.exists() and json.loads(made.read_text()) == wanted:
        return
    if store.exists():
        raise SystemExit(f"{store} has other contents; delete it, or choose another --folder")
    begin = time.monotonic()
    ends: dict[tuple[str, int], int] = {}
    if with_messages:
        log = LogWriter(store / "commitlog")
        body = b"b" * 20
        crc = zlib.crc32(body) & 0x7FFF_FFFF
        for number in range(arguments.messages):
            log.write(MANY, number % _QUEUES, body, crc)
        large = os.urandom(1024) * (_LARGE_BODY // 1024 - 1)
        crc = zlib.crc32(large) & 0x7FFF_FFFF
        for number in range(arguments.bodies):
            log.write(LARGE, number % _QUEUES, large, crc)
        crc = zlib.crc32(body) & 0x7FFF_FFFF
        for number in range(arguments.dead_groups * _DEAD_LETTERS):
            log.write(f"%DLQ%{group_name(number % arguments.dead_groups)}", 0, body, crc, b"RETRY_TOPIC\x01bench_many")
        ends = log.close()
    _write_tables(store / "config", arguments, ends)
    made.write_text(json.dumps(wanted))
    say(f"store made in {time.monotonic() - begin:.0f} s: {store}")


def _write_tables(folder: Path, arguments: argparse.Namespace, ends: dict[tuple[str, int], int]) -> None:
    folder.mkdir(parents=True)
    version = {"counter": 1, "timestamp": int(time.time() * 1000)}
    topics = [*map(topic_name, range(arguments.topics - arguments.dead_groups - 2)), MANY, LARGE]
    queues = {name: _QUEUES for name in topics}
    queues |= {f"%DLQ%{group_name(number)}": 1 for number in range(arguments.dead_groups)}
    table = {name: {"order": False, "perm": 6, "readQueueNums": count, "topicFilterType": "SINGLE_TAG",
                    "topicName": name, "topicSysFlag": 0, "writeQueueNums": count} for name, count in queues.items()}
    (folder / "topics.json").write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
    groups = {name: {"brokerId": 0, "consumeBroadcastEnable": True, "consumeEnable": True, "consumeFromMinEnable": True,
                     "groupName": name, "notifyConsumerIdsChangedEnable": True, "retryMaxTimes": 16,
                     "retryQueueNums": 1, "whichBrokerWhenConsumeSlowly": 1}
              for name in map(group_name, range(arguments.groups))}
    (folder / "subscriptionGroup.json").write_text(json.dumps(
        {"dataVersion": version, "subscriptionGroupTable": groups}))
    # Every tenth group reads the topic with the messages, the others an empty topic of their own.
    offsets = {f"{topic_name(number) if number % 10 else MANY}@{group_name(number)}": {
        queue_id: max(0, ends.get((MANY, queue_id), 0) - 10 * number) if number % 10 == 0 else 0
        for queue_id in range(_QUEUES)} for number in range(arguments.groups)}
    (folder / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


# ---- the console


class Console:
    """A running console, and what it and the brokers have used."""

    def __init__(self, namesrv: str, brokers: Iterable[BrokerNode]) -> None:
        self._begin = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rmqha.tools.rmqha_command", "console", "-n", namesrv, "--port", "0"], cwd=ROOT,
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1", "NAMESRV_ADDR": ""})
        assert self._process.stdout is not None
        found = re.search(r"http://([\d.]+):(\d+)", self._process.stdout.readline())
        if found is None:
            raise SystemExit("the console did not start")
        self._address = found[1], int(found[2])
        self.ready_s = time.monotonic() - self._begin
        self._console = psutil.Process(self._process.pid)
        self._brokers = [psutil.Process(broker.pid) for broker in brokers]

    def get(self, path: str) -> tuple[float, int, int]:
        """Return the seconds, the status and the size of an answer."""
        connection = http.client.HTTPConnection(*self._address, timeout=120)
        try:
            begin = time.monotonic()
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            seconds = time.monotonic() - begin
        finally:
            connection.close()
        if answer.status != 200:
            say(f"  {path[:60]}: {answer.status} {body[:300].decode()}")
        return seconds, answer.status, len(body)

    def used(self) -> tuple[float, float, int]:
        """Return the CPU seconds of the console and of the brokers, and the bytes received from servers."""
        return _cpu_s(self._console), sum(map(_cpu_s, self._brokers)), self._received()

    def _received(self) -> int:
        """Return the bytes that open connections have received, without those of the HTTP port."""
        try:
            told = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return 0
        lines, received = told.splitlines(), 0
        for line, more in zip(lines, lines[1:], strict=False):
            if f"pid={self._process.pid}," in line and line.split()[2].rpartition(":")[2] != str(self._address[1]):
                found = re.search(r"bytes_received:(\d+)", more)
                received += int(found[1]) if found else 0
        return received

    @property
    def rss_mib(self) -> float:
        """The memory that it uses."""
        return self._console.memory_info().rss / (1 << 20)

    @property
    def peak_mib(self) -> float:
        """The most memory that it has used."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]  # Linux has it

    def close(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def paths() -> Iterator[tuple[str, str]]:
    """Yield the requests of the pages, with their names."""
    page = "offset=0&limit=100"
    yield "topics", f"/api/topics?kind=user&q=&{page}"
    yield "groups", f"/api/groups?q=&{page}"
    yield "cluster", "/api/cluster"
    yield "search", "/api/search?q=orders_000"
    yield "topics, filtered", f"/api/topics?kind=all&q=orders_9&{page}"
    yield "topics, last page", "/api/topics?kind=user&q=&offset=99800&limit=100"
    yield "topic", f"/api/topics/{MANY}"
    yield "topic settings", f"/api/topics/{MANY}/settings"
    yield "messages, newest", f"/api/topics/{MANY}/messages?backwards=1&limit=50"
    yield "messages, oldest", f"/api/topics/{MANY}/messages?limit=50"
    yield "messages, by key", f"/api/topics/{MANY}/messages?limit=50&key=none"
    yield "messages of 4 MiB", f"/api/topics/{LARGE}/messages?backwards=1&limit=50"
    yield "group", f"/api/groups/{group_name(10)}"
    yield "group settings", f"/api/groups/{group_name(10)}/settings"
    yield "history", f"/api/history?kind=behind&name={group_name(10)}&minutes=15"
    yield "dead letters", "/api/dead-letters"
    yield "dead letters of one", f"/api/dead-letters/{quote(group_name(1))}"
    yield "store", "/api/store"


def measure_cold(namesrv: str, brokers: list[BrokerNode], results: Results) -> None:
    """Start a console for each of some pages, and request the page at once."""
    for name, path in paths():
        if name in ("topics", "groups", "cluster", "search", "messages, newest", "dead letters"):
            console = Console(namesrv, brokers)
            try:
                seconds, _status, _size = console.get(path)
            finally:
                console.close()
            say(f"cold: {name:20} {seconds:.3f} s")
            results.row("rmqha", "answer of a new console", "s", [seconds], path=name)


def measure(console: Console, arguments: argparse.Namespace, results: Results) -> None:
    """Request each path first, then in rounds; then let the console poll."""
    time.sleep(3)
    took: dict[str, list[float]] = {}
    used: dict[str, list[tuple[float, float, int]]] = {}
    sizes: dict[str, int] = {}
    say(f"the console answers {console.ready_s:.2f} s after its start")
    for number in range(arguments.rounds + 1):
        for name, path in paths():
            before = console.used()
            seconds, _status, sizes[name] = console.get(path)
            after = console.used()
            took.setdefault(name, []).append(seconds)
            # mypy knows no length of a generator
            used.setdefault(name, []).append(
                tuple(b - a for a, b in zip(before, after, strict=True)))  # type: ignore[arg-type]
        if number < arguments.rounds:
            time.sleep(arguments.pause)
    say(f"{'path':20} {'first s':>8} {'least s':>8} {'median s':>8} {'most s':>8} {'CPU ms':>8} {'brokers ms':>10} "
        f"{'bytes':>10} {'answer':>9}")
    for name, times in took.items():
        later, cost = times[1:], used[name][1:]
        say(f"{name:20} {times[0]:8.3f} {min(later):8.3f} {statistics.median(later):8.3f} {max(later):8.3f} "
            f"{min(each[0] for each in cost) * 1000:8.0f} {min(each[1] for each in cost) * 1000:10.0f} "
            f"{min(each[2] for each in cost):10,} {sizes[name]:9,}")
        results.row("rmqha", "first answer", "s", times[:1], path=name)
        results.row("rmqha", "later answers", "s", later, path=name)
    before = console.used()
    time.sleep(arguments.idle)
    after = console.used()
    console_s, brokers_s, received = (b - a for a, b in zip(before, after, strict=True))
    say(f"without requests: console {100 * console_s / arguments.idle:.1f} % of a core, brokers "
        f"{100 * brokers_s / arguments.idle:.1f} %, {received / arguments.idle / 1024:,.0f} KiB/s received")
    say(f"memory of the console: {console.rss_mib:.0f} MiB, at most {console.peak_mib:.0f} MiB")
    results.row("rmqha", "CPU without requests", "%", [100 * console_s / arguments.idle])
    results.row("rmqha", "CPU of the brokers without requests", "%", [100 * brokers_s / arguments.idle])
    results.row("rmqha", "most memory", "MiB", [console.peak_mib])


def measure_lists(namesrv: str, arguments: argparse.Namespace, results: Results) -> None:
    """Measure the commands that list topics and groups."""
    for what in ("topic", "group"):
        walls, cpus = [], []
        for _ in range(arguments.rounds):
            begin = time.monotonic()
            process = subprocess.Popen([sys.executable, "-m", "rmqha.tools.rmqha_command", what, "list", "-n", namesrv,
                                        "--timeout", "60"], cwd=ROOT, stdout=subprocess.DEVNULL)
            _pid, status, spent = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                say(f"rmqha {what} list ended with {process.returncode}")
            walls.append(time.monotonic() - begin)
            cpus.append(spent.ru_utime + spent.ru_stime)
        say(f"rmqha {what} list: least {min(walls):.2f} s, median {statistics.median(walls):.2f} s, CPU {min(cpus):.2f}"
            f" s, {spent.ru_maxrss / 1024:.0f} MiB")
        results.row("rmqha", f"{what} list", "s", walls)


def run(folder: Path, arguments: argparse.Namespace, results: Results) -> None:
    """Start the servers and measure."""
    with ExitStack() as stack:
        namesrv = NamesrvNode("rmqha", folder / "n")
        brokers = []
        for number in range(arguments.masters):
            home = folder / f"master-{number}"
            make_store(home / "store", arguments, number == 0)
            brokers.append(BrokerNode("rmqha", home, namesrv.address, brokerName=f"broker-{chr(97 + number)}",
                                      **_SETTINGS))
        for server in (namesrv, *brokers):
            stack.callback(server.kill)
        begin = time.monotonic()
        namesrv.start()
        for broker in brokers:
            broker.start(_START_LIMIT_MS)
            stack.callback(broker.stop, 300)
        time.sleep(15)  # registered, and no longer busy with its start
        say(f"servers started in {time.monotonic() - begin:.0f} s")
        if arguments.wait:
            say(f"name server {namesrv.address}; brokers {', '.join(str(broker.pid) for broker in brokers)}")
            input()
            return
        if arguments.list:
            measure_lists(namesrv.address, arguments, results)
        measure_cold(namesrv.address, brokers, results)
        console = Console(namesrv.address, brokers)
        stack.callback(console.close)
        measure(console, arguments, results)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=99_900)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--bodies", type=int, default=500, help="messages of 4 MiB")
    parser.add_argument("--dead-groups", type=int, default=20, help="groups with dead letters")
    parser.add_argument("--masters", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between rounds")
    parser.add_argument("--idle", type=float, default=30.0, help="seconds without requests")
    parser.add_argument("--folder", type=Path, help="folder that keeps the stores (default: a temporary one)")
    parser.add_argument("--list", action="store_true", help="measure `rmqha topic list` and `rmqha group list`, too")
    parser.add_argument("--wait", action="store_true", help="only start the servers, and wait for Enter")
    add_json(parser)
    arguments = parser.parse_args()
    results = Results("console", arguments)
    say(f"{kernels.told()}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if arguments.folder is not None:
        run(arguments.folder, arguments, results)
        return
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as folder:
        run(Path(folder), arguments, results)


if __name__ == "__main__":
    main()
