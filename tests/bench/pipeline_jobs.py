"""Benchmark of audit and rebuild at local[2] beside local[1]: how much faster two cores are.

    python -m tests.bench.pipeline_jobs [--mib 4096] [--body 1024] [--rounds 3] [--keep FOLDER]

A log and its copy are written once. Each round runs each job at both, with warm caches and in a running session. Prints
the seconds of each round, with the CPU seconds of all cores, the best of each, and the ratios. `python -m
tests.bench.pipeline --jobs` does the same after its scans.
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.pipeline import cpu_seconds, write_log

CORES = (1, 2)


def run_jobs(cores: int, folder: Path, messages: int) -> dict[str, tuple[float, float]]:
    """Return the wall and CPU seconds of each job at local[cores]. Each job runs once before that, to start workers
    and fill the caches."""
    from rmqha.pipeline.jobs.audit import audit
    from rmqha.pipeline.jobs.rebuild import Shape, parse_delays, rebuild
    from rmqha.pipeline.session import spark_session
    spark = spark_session(f"local[{cores}]", "benchmark", **{"spark.driver.memory": "2g", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("ERROR")
    master, slave, out = str(folder / "store"), str(folder / "slave"), folder / "rebuilt"

    def check_audit() -> None:
        found = audit(spark, master, slave)
        assert found.equal and found.messages == messages

    def check_rebuild() -> None:
        built = rebuild(spark, master, str(out), Shape(delays_ms=parse_delays()), compare=False)
        assert built.units == messages
        shutil.rmtree(out)
    seconds = {}
    for name, job in (("audit", check_audit), ("rebuild", check_rebuild)):
        job()
        begun, taken = time.perf_counter(), cpu_seconds()
        job()
        seconds[name] = time.perf_counter() - begun, cpu_seconds() - taken
    spark.stop()
    return seconds


def compare(mib: int, body: int, rounds: int, folder: Path) -> None:
    """Write the logs into `folder` if they are not there, run all jobs, and print the ratios."""
    if not (folder / "messages").exists():
        messages = write_log(folder / "store", mib << 20, body, "usual")
        # With its holes: brokers leave the rest of the last file unwritten.
        subprocess.run(["cp", "-r", "--sparse=always", str(folder / "store"), str(folder / "slave")], check=True)
        (folder / "messages").write_text(str(messages))
    messages = int((folder / "messages").read_text())
    best: dict[tuple[str, int], float] = {}
    for number in range(rounds):
        for cores in CORES:
            for job, (seconds, taken) in run_jobs(cores, folder, messages).items():
                best[job, cores] = min(seconds, best.get((job, cores), seconds))
                print(f"round {number + 1}  local[{cores}]  {job:8} {seconds:7.2f} s, {taken:6.2f} core s", flush=True)
    size = mib << 20
    for job in ("audit", "rebuild"):
        one, two = (best[job, cores] for cores in CORES)
        print(f"{job:8} local[1] {one:.2f} s ({size / one / 1e6:,.0f} MB/s of log), local[2] {two:.2f} s: "
              f"{one / two:.2f} times as fast; load {os.getloadavg()[0]:.1f}", flush=True)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=4096)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory() as temporary:
        compare(args.mib, args.body, args.rounds, args.keep or Path(temporary))


if __name__ == "__main__":
    main()
