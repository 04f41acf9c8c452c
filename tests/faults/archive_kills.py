"""kill -9 of the jobs `archive` and `restore` at random moments. A second run has the result of an undisturbed one.

    python -m tests.faults.archive_kills --cycles 20 --seed 1 [--mib 24] [--folder FOLDER]

Each cycle starts a process with its own Spark session and one job, archive or restore, and kills it with its JVM after
a random part of the job's duration. Then another session runs the job again, and the result is compared: the log byte
for byte, the rows of the table, no stray files, no lock, no partial output.
"""
import argparse
import filecmp
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rmqha.pipeline.archive.archive import Sizes, archive
from rmqha.pipeline.archive.restore import restore, verify
from rmqha.pipeline.session import spark_session
from tests.bench.made_store import make_commit_log
from tests.support.sources import ROOT

_FILE = 2 << 20
_SIZES = Sizes(piece=1 << 20, run=2 * _FILE, chunk=4 << 20)
_READY_S = 300


def do(spark, what: str, source: str, target: str) -> None:
    """Run one job."""
    if what == "archive":
        archive(spark, source, target, sizes=_SIZES)
    else:
        restore(spark, source, target)


def session():
    """Return a small session that starts quickly."""
    spark = spark_session("local[2]", **{
        "spark.ui.enabled": "false", "spark.driver.memory": "768m", "spark.sql.shuffle.partitions": "2",
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"})
    spark.sparkContext.setLogLevel("OFF")
    return spark


def victim() -> None:
    """Run the process to kill: a session that does the job named on a line, and reports its steps."""
    spark = session()
    spark.range(10).count()
    print("ready", flush=True)
    what, source, target = sys.stdin.readline().rstrip("\n").split("\t")
    do(spark, what, source, target)
    print("done", flush=True)


class Victim:
    """The process to kill, which with its JVM forms its own process group."""

    def __init__(self, log: Path) -> None:
        self._log = log
        with open(log, "w", encoding="utf-8") as said:
            self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.archive_kills", "victim"], cwd=ROOT,
                                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True,
                                             start_new_session=True)

    def run(self, what: str, source: Path, target: Path, seconds: float | None) -> float:
        """Let it do the job for at most `seconds`, then kill it; return the seconds that it ran."""
        self._says("ready", _READY_S)
        begin = time.monotonic()
        self._process.stdin.write(f"{what}\t{source}\t{target}\n")
        self._process.stdin.flush()
        self._says("done", _READY_S if seconds is None else seconds)
        took = time.monotonic() - begin
        self.kill()
        return took

    def _says(self, word: str, seconds: float) -> None:
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        if ready and self._process.stdout.readline().strip() != word:
            raise AssertionError(f"the victim ended on its own: {self._log.read_text('utf-8', 'replace')[-3000:]}")

    def kill(self) -> None:
        """Kill the process and its JVM at once."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            assert self._process.poll() is not None
        self._process.wait()


def check_archive(spark, store: Path, target: Path, rows: int, out: Path) -> None:
    """Assert that an archive equals that of an undisturbed run."""
    archive(spark, str(store), str(target), sizes=_SIZES)
    found = verify(spark, str(target))
    assert (found.problems, found.notes, found.messages) == ([], [], rows), found
    assert spark.read.parquet(str(target / "data")).count() == rows
    assert not [path for path in (target / "_lock").iterdir() if not path.name.startswith(".")]
    check_restore(spark, store, target, out)


def check_restore(spark, store: Path, target: Path, out: Path) -> None:
    """Assert that the log is restored."""
    if not (out / "commitlog").exists():
        restore(spark, str(target), str(out))
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    assert sorted(path.name for path in (out / "commitlog").iterdir()) == names
    match, mismatch, errors = filecmp.cmpfiles(store / "commitlog", out / "commitlog", names, shallow=False)
    assert (mismatch, errors) == ([], []) and len(match) == len(names)
    assert [path.name for path in out.iterdir()] == ["commitlog"]
    shutil.rmtree(out)


def campaign(spark, folder: Path, cycles: int, seed: int, mib: int, took: dict[str, float] | None = None
             ) -> dict[str, int]:
    """Run all cycles; return how many kills of each job were before its end. Raise AssertionError if a kill did harm.

    `took`: seconds of each job, measured if not given.
    """
    chance = random.Random(seed)
    store, whole, out = folder / "store", folder / "whole", folder / "out"
    rows = make_commit_log(store / "commitlog", mib * 1800, 400, _FILE).count
    archive(spark, str(store), str(whole), sizes=_SIZES)
    if took is None:
        took = {"archive": Victim(folder / "victim.log").run("archive", store, folder / "first", None)}
        took["restore"] = Victim(folder / "victim.log").run("restore", whole, out, None)
        check_restore(spark, store, whole, out)
    early = dict.fromkeys(took, 0)
    following = Victim(folder / "victim.log")
    try:
        for cycle in range(cycles):
            for what in took:
                one, following = following, Victim(folder / "victim.log")
                seconds = chance.random() * took[what]
                target = folder / f"archive-{cycle}" if what == "archive" else out
                ran = one.run(what, store if what == "archive" else whole, target, seconds)
                early[what] += ran >= seconds
                if what == "archive":
                    left = len(list(target.glob("_manifest/*.json"))), len(list(target.glob("data/run=*")))
                    check_archive(spark, store, target, rows, out)
                    shutil.rmtree(target)
                else:
                    left = sorted(path.name for path in out.iterdir()) if out.exists() else []
                    check_restore(spark, store, whole, out)
                print(f"cycle {cycle} {what}: killed after {ran:.2f} s, left {left}: identical", flush=True)
    finally:
        following.kill()
    return early


def main() -> int:
    """Run and print; the exit code shows whether everything holds."""
    if sys.argv[1:] == ["victim"]:
        victim()
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=20, help="kills of each job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mib", type=int, default=24)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        early = campaign(session(), Path(temporary), options.cycles, options.seed, options.mib)
    print(f"{options.cycles} kills of each job, before its end: {early}; all identical; "
          f"{time.monotonic() - begin:.0f} s, seed {options.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
