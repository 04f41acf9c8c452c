"""A stream of the format rocketmq-commitlog that is killed at random moments, while its log grows, rolls, loses old
files and is mounted elsewhere. Sometimes a second process runs on the same checkpoint.

    python -m tests.faults.streams --kills 20 [--seed 1] [--record]

Each start writes its batches into its own folder. At the end each batch must exist, be the same in each folder that has
it, and all batches together must have each message once. Prints the memory of the streams' Python processes.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow.parquet import ParquetDataset

from tests.store import support
from tests.support.sources import ROOT

_FILE_SIZE = 64 << 10
_SOURCE = "python_streaming_source_runner"
_REFUSED = ("CONCURRENT_STREAM_LOG_UPDATE", "ConcurrentModificationException", "Concurrent update to the log")
# The period in which a kill hits the start of Spark.
_START_S = 8


@dataclass
class Streams:
    """The store, where it is mounted, and the starts of the query so far."""

    folder: Path
    chance: random.Random
    written: int = 0
    starts: int = 0
    mounted: int = 0
    kills: int = 0
    # The outcomes of second processes.
    second: list[str] = field(default_factory=list)
    # The largest memory of a reader's process.
    most_kib: int = 0

    @property
    def root(self) -> Path:
        """The folder where the store is mounted."""
        return self.folder / "mnt" / f"m{self.mounted}"

    def command(self, *more: str) -> list[str]:
        """Return the command of another start of the query."""
        self.starts += 1
        return [sys.executable, "-m", "tests.pipeline.stream_process", str(self.folder / "mnt" / "*"),
                str(self.folder / "out" / str(self.starts)), str(self.folder / "checkpoint"), *more]

    def put(self, store, count: int) -> None:
        """Add messages."""
        for number in range(self.written, self.written + count):
            support.put(store, support.message(f"T{number % 3}", 0, b"x" * (number * 37 % 700), KEYS=str(number)))
        self.written += count

    def taken(self) -> int:
        """Return the end of the committed batches, from the checkpoint."""
        done = [int(path.name) for path in (self.folder / "checkpoint" / "commits").glob("[0-9]*")]
        if not done:
            return 0
        text = (self.folder / "checkpoint" / "offsets" / str(max(done))).read_text("utf-8")
        return max(each["offset"] for each in json.loads(text.splitlines()[-1])["logs"].values())

    def delete(self) -> None:
        """Delete files that were read completely, as the broker deletes old files."""
        taken = self.taken()
        for path in sorted((self.root / "commitlog").iterdir())[:-1]:
            if int(path.name) + _FILE_SIZE <= taken:
                path.unlink()

    def remount(self) -> None:
        """Mount the same store elsewhere."""
        before = self.root
        self.mounted += 1
        before.rename(self.root)

    def cycle(self) -> str:
        """Do one kill."""
        with support.open_store(self.root, mappedFileSizeCommitLog=_FILE_SIZE) as store:
            self.put(store, self.chance.randint(20, 400))
            has_second = self.chance.random() < 0.25
            with _killed_in_the_end(self.command()) as first:
                if self.chance.random() < 0.25:
                    time.sleep(self.chance.uniform(0, _START_S))
                    told = "while it started"
                else:
                    told = self._after_some_lines(store, first, has_second)
                self._note_memory(first.pid)
            self.kills += 1
            self.delete()
        if self.chance.random() < 0.3:
            self.remount()
            told += ", then mounted elsewhere"
        return told

    def _after_some_lines(self, store, first: subprocess.Popen, has_second: bool) -> str:
        steps = self.chance.randint(1, 8)
        lines = []
        for number in range(steps):
            lines.append(first.stdout.readline())
            self.put(store, self.chance.randint(0, 60))
            if number % 3 == 0:
                self.delete()
        assert all(line.startswith(("taking ", "taken ")) for line in lines), lines
        if has_second:
            self.second.append(self._run_second(store))
        time.sleep(self.chance.uniform(0, 0.5))
        return f"after {steps} steps" + (", a second one: " + self.second[-1] if has_second else "")

    def _run_second(self, store) -> str:
        """Run a second process on the same checkpoint, in parallel to the first; return its outcome."""
        with open(self.folder / "second.txt", "w+") as said, _killed_in_the_end(self.command(), said) as second:
            deadline = time.monotonic() + 60
            while second.poll() is None and time.monotonic() < deadline:
                self.put(store, 5)
                time.sleep(0.2)
            code = second.poll()
            said.seek(0)
            text = said.read()
        found = next((word for word in _REFUSED if word in text), None)
        if found:
            return f"refused with {found}"
        return "it continued until it was killed" if code is None else f"ended with {code}: {text[-300:]}"

    def _note_memory(self, group: int) -> None:
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(path.name)) == group and _SOURCE in (path / "cmdline").read_text():
                    text = (path / "status").read_text()
                    self.most_kib = max(self.most_kib, int(text.partition("VmHWM:")[2].split()[0]))
            except (OSError, ValueError, IndexError):
                continue  # it has ended

    def verdict(self) -> str:
        """Assert that no message is missing or repeated, and that no batch was repeated with other contents."""
        with support.open_store(self.root, mappedFileSizeCommitLog=_FILE_SIZE) as store:
            self.put(store, 50)
        subprocess.run(self.command("--to-end"), check=True, timeout=600, cwd=ROOT, stdout=subprocess.DEVNULL)
        batches: dict[int, list[str]] = {}
        again = 0
        for path in sorted((self.folder / "out").glob("*/batch=*")):
            if not (path / "_SUCCESS").exists():
                continue
            number = int(path.name.partition("=")[2])
            keys = ParquetDataset(path, partitioning=None).read(["keys"])["keys"].to_pylist()
            keys = sorted(keys, key=int)
            again += number in batches
            assert batches.setdefault(number, keys) == keys, f"batch {number} was repeated with other contents"
        assert sorted(batches) == list(range(len(batches))), sorted(batches)
        keys = [key for _, batch in sorted(batches.items()) for key in batch]
        assert keys == [str(number) for number in range(self.written)], _difference(keys, self.written)
        return (f"{self.written} messages once each in {len(batches)} batches, {again} of them repeated, over "
                f"{self.starts} starts, {self.kills} kills and {self.mounted} other mounts; second processes: "
                f"{', '.join(self.second) or 'no'}; memory of a stream's Python: {self.most_kib // 1024} MiB at most")


def _difference(keys: list[str], count: int) -> str:
    wanted = {str(number) for number in range(count)}
    missing = sorted(wanted - set(keys), key=int)
    return f"{len(keys)} of {count}, missing {missing[:10]} of {len(missing)}, in another order or twice"


@contextmanager
def _killed_in_the_end(command: list[str], stderr=subprocess.DEVNULL) -> Iterator[subprocess.Popen]:
    """Start a process, and kill it at the end together with its children."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
                          cwd=ROOT) as process:
        try:
            yield process
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                process.poll()


def run(folder: Path, kills: int, seed: int, say=print) -> Streams:
    """Run the whole campaign. Raise AssertionError if a promise was broken."""
    streams = Streams(folder, random.Random(seed))
    with support.open_store(streams.root, mappedFileSizeCommitLog=_FILE_SIZE) as store:
        streams.put(store, 100)
    for number in range(kills):
        say(f"{number + 1}: killed {streams.cycle()}")
    say(streams.verdict())
    return streams


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="append a line to the ledger")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streams") as folder:
        streams = run(Path(folder), given.kills, given.seed, lambda line: print(line, flush=True))
    if given.record:
        from tests.faults import ledger
        ledger.append([ledger.Entry(ledger.present_commit(), "kill of a Spark stream", "rmqha", given.seed,
                                    streams.kills, streams.written, 0)])


if __name__ == "__main__":
    main()
