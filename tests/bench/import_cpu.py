"""CPU time of programs until they are imported, and the number of modules that they load.

    python -m tests.bench.import_cpu [--rounds 30] [--before FOLDER] [--only broker] [--json F]

Measures user and system time of a whole interpreter: with a broker's modules, a producer's, those of one sub-command of
mqadmin, and of `rmqha --help`; beside them an interpreter that does nothing, whose time is part of each. The minimum of
the rounds is what the work costs, even if other programs use the machine. The first round, which may write bytecode,
does not count. `--before`: the folder of another checkout; rounds alternate between it and this one.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.bench.results import Results, add_json
from tests.bench.startup import say
from tests.support.program_starts import STARTS, telling
from tests.support.sources import ROOT

CASES = {"nothing": ["-c", "pass"], **STARTS}


def environment(root: Path, home: str) -> dict[str, str]:
    """Return the environment of a user who has the checkout on the path, with bytecode."""
    left_out = ("PYTHONDONTWRITEBYTECODE", "NAMESRV_ADDR", "ROCKETMQ_HOME")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {**kept, "PYTHONPATH": str(root), "HOME": home}


def cpu_seconds(arguments: list[str], env: Mapping[str, str], folder: str) -> float:
    """Return the CPU seconds of one interpreter, user and system."""
    process = subprocess.Popen([sys.executable, *arguments], env=env, cwd=folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
    _pid, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, arguments
    return used.ru_utime + used.ru_stime


def modules_loaded(arguments: list[str], env: Mapping[str, str], folder: str) -> tuple[int, int]:
    """Return how many modules are loaded at the end, and how many of these are rmqha's."""
    done = subprocess.run([sys.executable, *telling(arguments)], env=env, cwd=folder, text=True, capture_output=True,
                          check=True)
    names = done.stderr.split()
    return len(names), sum(name.partition(".")[0] == "rmqha" for name in names)


def measure(name: str, roots: Mapping[str, Path], rounds: int, results: Results) -> None:
    """Measure one case in each checkout, alternating."""
    seconds = {kind: [] for kind in roots}
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-") as home:
        for number in range(rounds + 1):
            for kind, root in roots.items():
                used = cpu_seconds(CASES[name], environment(root, home), home)
                if number:
                    seconds[kind].append(used)
        for kind, root in roots.items():
            loaded, own = modules_loaded(CASES[name], environment(root, home), home)
            say(f"{name:13} {kind:7} median {statistics.median(seconds[kind]) * 1000:5.0f} ms   "
                f"least {min(seconds[kind]) * 1000:5.0f} ms   modules {loaded:4d}, of rmqha {own:3d}")
            results.row(kind, "CPU of the import", "s", seconds[kind], program=name)


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--before", type=Path, help="the folder of another checkout")
    parser.add_argument("--only", choices=CASES)
    add_json(parser)
    arguments = parser.parse_args()
    results = Results("import_cpu", arguments)
    roots = {"rmqha": ROOT}
    if arguments.before is not None:
        roots["before"] = arguments.before.resolve()
    for name in [arguments.only] if arguments.only else CASES:
        measure(name, roots, arguments.rounds, results)


if __name__ == "__main__":
    main()
