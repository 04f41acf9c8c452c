"""Results of the benchmarks, one JSON object per line: `--json FILE` appends to the file, `tests.bench.plots` reads it.

A line is a run or a row. A run records once what was started, when, and on which machine:

    {"run": "3f1c...", "benchmark": "send", "command": "python -m tests.bench.send ...", "arguments": {...},
     "machine": {"date": ..., "commit": ..., "Python": ..., "kernel": ..., "CPU": ..., "cores": 2, ...}}

A row belongs to a run that is above it. `values` has an entry for each round: a number, or a curve, which is a list of
[x, y]. In curves of latencies (`distribution`), x is the share of the messages whose latency was at most y.

    {"of": "3f1c...", "kind": "rmqha", "what": "rate", "unit": "msg/s", "case": {"threads": 16}, "values": [1.0, 2.0]}
"""
import argparse
import functools
import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from rmqha.native import kernels
from tests.support import real_rocketmq
from tests.support.sources import ROOT

Plain = str | int | float
Curve = tuple[tuple[float, float], ...]
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 1.0)
_PLACES = ("json", "folder", "git")  # arguments that only name folders of the machine


class ResultsError(Exception):
    """Raised for a line that is neither a run nor a row; the text names file and line."""


@dataclass(frozen=True)
class Run:
    """One start of a benchmark."""

    id: str
    benchmark: str
    command: str
    arguments: Mapping[str, object]
    machine: Mapping[str, object]

    @property
    def cores(self) -> int:
        """The number of cores that the processes were allowed to use."""
        return int(self.machine.get("usable cores", 0))  # type: ignore[call-overload]


@dataclass(frozen=True)
class Row:
    """The values of one quantity in each round, for one kind (java, rmqha, before, or machine)."""

    run: Run
    kind: str
    what: str
    unit: str
    case: Mapping[str, Plain]
    values: tuple[float, ...] | tuple[Curve, ...]

    @property
    def is_curve(self) -> bool:
        """True if each round gave a curve instead of a number."""
        return isinstance(self.values[0], tuple)


class Results:
    """The recorder of a benchmark's rows; without a file it records nothing."""

    def __init__(self, benchmark: str, arguments: argparse.Namespace) -> None:
        self._file: str | None = arguments.json
        if self._file is not None:
            self._id = uuid.uuid4().hex
            self._append({"run": self._id, "benchmark": benchmark, "command": command_line(benchmark, sys.argv[1:]),
                          "arguments": {name: value for name, value in vars(arguments).items() if name not in _PLACES},
                          "machine": machine()})

    def row(self, kind: str, what: str, unit: str, values: Iterable[float | Iterable[tuple[float, float]]],
            **case: Plain) -> None:
        """Record a row; `case` holds the conditions of the measurement: threads, size and so on."""
        if self._file is not None:
            rounds = [value if isinstance(value, (int, float)) else list(value) for value in values]
            self._append({"of": self._id, "kind": kind, "what": what, "unit": unit, "case": case, "values": rounds})

    def _append(self, line: dict[str, object]) -> None:
        assert self._file is not None
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option that `Results` reads."""
    parser.add_argument("--json", metavar="FILE", help="append the results to this file, one JSON object per line")


def command_line(benchmark: str, arguments: Sequence[str]) -> str:
    """Return the command that started the benchmark, without arguments that apply to one machine only."""
    kept: list[str] = []
    left = iter(arguments)
    for argument in left:
        name, given, _value = argument.partition("=")
        if name not in ("--json", "--folder", "--git"):
            kept.append(argument)
            continue
        if not given:
            next(left, None)
        if name == "--git":
            kept += ["--git", "REPOSITORY"]
    return shlex.join(["python", "-m", f"tests.bench.{benchmark}", *kept])


def machine() -> dict[str, object]:
    """Return the conditions of the figures: date, commit, versions, processor, memory."""
    optimized = "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS"))
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"),
        "Python": f"{platform.python_version()}{', profile-guided' if optimized else ''}",
        "compiled parts": kernels.told(),
        "kernel": f"{platform.system()} {platform.release()}",
        "CPU": _cpu_model(),
        "cores": os.cpu_count() or 0,
        "usable cores": len(os.sched_getaffinity(0)),
        "memory GiB": round(psutil.virtual_memory().total / (1 << 30), 1),
        "Java": _first_line("java", "-version"),
        "Java options": os.environ.get("RMQHA_JAVA_OPTIONS", ""),
        "RocketMQ": real_rocketmq.VERSION,
    }


@functools.cache
def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return "not known"
    return (done.stdout + done.stderr).partition("\n")[0].strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def distribution(values: Sequence[float]) -> list[tuple[float, float]]:
    """Return (share, value that this share does not exceed) of some latencies. Shares for which there are too few
    values are left out."""
    ordered = sorted(values)
    return [(share, ordered[min(len(ordered) - 1, int(len(ordered) * share))]) for share in SHARES
            if share == 1 or len(ordered) * (1 - share) >= 1]


def median_round(row: Row) -> int:
    """Return the number of the median round: by its number, or by the p99 of its distribution."""
    keys = [dict(value).get(0.99, value[-1][1]) if isinstance(value, tuple) else value for value in row.values]
    return sorted(range(len(keys)), key=keys.__getitem__)[len(keys) // 2]


def at_share(row: Row, share: float) -> float | None:
    """Return the median of the rounds' latencies at a share; None if a round does not have it."""
    found = [dict(curve).get(share) for curve in row.values]  # type: ignore[arg-type]
    known = [value for value in found if value is not None]
    return statistics.median(known) if len(known) == len(found) else None


def read(files: Iterable[Path]) -> list[Row]:
    """The rows of all files, in their order; ResultsError names the first line that is wrong."""
    rows: list[Row] = []
    for file in files:
        rows += parse(str(file), file.read_bytes().split(b"\n"))
    return rows


def parse(name: str, lines: Iterable[bytes]) -> list[Row]:
    """The rows of one file; empty lines count for nothing."""
    runs: dict[str, Run] = {}
    rows: list[Row] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            if not isinstance(fields, dict):
                raise ValueError("not an object")
            if "run" in fields:
                run = _run(fields)
                runs[run.id] = run
            else:
                rows.append(_row(fields, runs))
        except KeyError as error:
            raise ResultsError(f"{name}:{number}: {error} is missing") from error
        except (ValueError, RecursionError) as error:
            raise ResultsError(f"{name}:{number}: {error}") from error
    return rows


def _run(fields: dict[str, object]) -> Run:
    run = Run(_text(fields, "run"), _text(fields, "benchmark"), _text(fields, "command"),
              _object(fields, "arguments"), _object(fields, "machine"))
    if type(run.machine.get("usable cores", 0)) is not int:
        raise ValueError("'usable cores' is not an integer")
    return run


def _row(fields: dict[str, object], runs: Mapping[str, Run]) -> Row:
    of = _text(fields, "of")
    if of not in runs:
        raise ValueError(f"no run {of!r} above it")
    case, values = _object(fields, "case"), fields["values"]
    if not all(isinstance(value, str) or _is_number(value) for value in case.values()):
        raise ValueError("'case' has a value that is neither text nor number")
    if not isinstance(values, list) or not values:
        raise ValueError("'values' has no round")
    kind, what, unit = _text(fields, "kind"), _text(fields, "what"), _text(fields, "unit")
    if all(map(_is_number, values)):
        return Row(runs[of], kind, what, unit, case, tuple(map(float, values)))  # type: ignore[arg-type]
    return Row(runs[of], kind, what, unit, case, tuple(map(_curve, values)))  # type: ignore[arg-type]


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise ValueError(f"'{name}' is not a text")
    return value


def _object(fields: Mapping[str, object], name: str) -> dict[str, object]:
    value = fields[name]
    if not isinstance(value, dict):
        raise ValueError(f"'{name}' is not an object")
    return value


def _curve(value: object) -> Curve:
    if not isinstance(value, list) or not value or not all(
            isinstance(point, list) and len(point) == 2 and all(map(_is_number, point)) for point in value):
        raise ValueError("a round of 'values' is neither a number nor a list of [x, y]")
    return tuple((float(x), float(y)) for x, y in value)


def _is_number(value: object) -> bool:
    """Return whether a plot can show the value: a finite number, not larger than a float holds."""
    if isinstance(value, float):
        return math.isfinite(value)
    return type(value) is int and abs(value) < 1 << 63
