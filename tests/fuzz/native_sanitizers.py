"""The C sources under ASan and UBSan: `python -m tests.fuzz.native_sanitizers --inputs 500000 --seed 1`.

Compiles each source with -fsanitize=address,undefined into a temporary folder, gives it random inputs, and holds what
it says against its twin in Python. The first access outside of a buffer, the first undefined behaviour and the first
difference end the run of that source. Needs gcc and its libasan.
"""
import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from types import ModuleType

from tests.faults import ledger
from tests.fuzz.native_twins import TARGETS, feed
from tests.support.sources import ROOT

WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type")
FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fPIC",
         "-shared", *WARNINGS)
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",
           "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONMALLOC": "malloc"}


def compile_source(source: str, folder: Path) -> Path:
    """Compile one source with the sanitizers."""
    made = folder / f"{TARGETS[source][0].rpartition('.')[2]}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["gcc", *FLAGS, f"-I{sysconfig.get_paths()['include']}", str(ROOT / source), "-o", str(made)],
                   check=True)
    return made


def run_child(source: str, made: Path, count: int, seed: int) -> bool:
    """Feed one source in a process that the sanitizers watch; whether all was well."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    child = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.native_sanitizers", "--child", source, str(made), "--inputs", str(count),
         "--seed", str(seed)], cwd=ROOT, check=False,
        env={**os.environ, **OPTIONS, "LD_PRELOAD": os.path.realpath(library.stdout.strip())})
    return child.returncode == 0


def load(source: str, made: Path) -> ModuleType:
    """The compiled module, from where it was made."""
    spec = importlib.util.spec_from_file_location(TARGETS[source][0], made)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(source: str, made: Path, count: int, seed: int) -> None:
    """In the watched process: feed, and tell."""
    begin = time.monotonic()
    outcomes = feed(TARGETS[source][1](load(source, made)), count, seed)
    said = ", ".join(f"{what} {times}" for what, times in sorted(outcomes.items()))
    sys.stdout.write(f"{source}: {count} inputs of seed {seed} in {time.monotonic() - begin:.0f} s: {said}\n")


def main() -> int:
    """Run what the command line asks for; 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=500_000, help="for each source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", action="append", choices=TARGETS, help="instead of all")
    parser.add_argument("--record", action="store_true", help="append the result to tests/faults/ledger.tsv")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]), options.inputs, options.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        well = {source: run_child(source, compile_source(source, Path(folder)), options.inputs, options.seed)
                for source in options.source or TARGETS}
    if options.record:
        ledger.append([ledger.Entry(ledger.present_commit(), f"fuzz {Path(source).stem}", "sanitizers", options.seed,
                                    options.inputs, 0, int(not fine)) for source, fine in well.items()])
    sys.stdout.write("nothing found\n" if all(well.values()) else "found something, see above\n")
    return 0 if all(well.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
