"""Helpers for the data sources and the Python workers of Spark: times, batch shares, and short error messages.

- `micros`: times of messages in tables, in microseconds; null outside the calendar. Spark and Python support the years
  1 to 9999 in the time zone in which a time is shown, so FIRST_MS and LAST_MS leave out a day at either end.
- `shares`: how much of a batch each part of a source may take.
- `parse_moment`: times given by users.
- `briefly`: Spark shows the traceback of an error raised by a data source before the error itself.
- `settle`: for the Python process of Spark, in which tasks run one after another.
- `told_by_task`, `told_by_spark`: one-line messages for errors of Spark and its tasks.

The module imports no pyspark.
"""
import functools
import gc
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from rmqha.common import units
from rmqha.pipeline.format_options import PipelineError

FIRST_MS = -62_135_510_400_000  # 0001-01-02
LAST_MS = 253_402_214_399_999  # 9999-12-30


def micros(timestamp: int) -> int | None:
    """Of ms; None beyond the calendar, whatever a producer has put there (nanoseconds, for instance)."""
    return timestamp * 1000 if FIRST_MS <= timestamp <= LAST_MS else None


KeyT = TypeVar("KeyT", bound=Any)


def shares(backlog: Mapping[KeyT, int], most: int) -> dict[KeyT, int]:
    """At most `most` in all: of each its part of the backlog, at least one of some, those with most first."""
    total = sum(backlog.values())
    if total <= most:
        return dict(backlog)
    found = {key: count * most // total for key, count in backlog.items()}
    left = most - sum(found.values())
    for key in sorted(backlog, key=lambda each: (found[each] - backlog[each], each)):
        if left and found[key] < backlog[key]:
            found[key] += 1
            left -= 1
    return found


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """ms since 1970, of a time as all commands take it; PipelineError for another text."""
    try:
        return units.parse_time(text, now_ms)
    except units.UnitError as error:
        raise PipelineError(str(error)) from None


_P = ParamSpec("_P")
_R = TypeVar("_R")


def briefly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """For what Spark calls, generators too: a PipelineError comes out of it without the way that it came, and without
    what it was made of. Other errors are left as they are.
    """
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except PipelineError as error:
            raise error.with_traceback(None) from None

    @functools.wraps(function)
    def generator(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[Any]:
        try:
            yield from cast(Iterator[Any], function(*args, **kwargs))
        except PipelineError as error:
            raise error.with_traceback(None) from None

    return cast(Callable[_P, _R], generator) if inspect.isgeneratorfunction(function) else call


_modules = 0  # that were imported when they were left out last


def settle() -> None:
    """To be called when a task begins: leaves what was imported out of all garbage collections to come.

    Spark has each worker collect garbage behind each task, and the next one waits. With PyArrow, NumPy and the rest
    that takes 15 ms and more, however little the tasks do.
    """
    global _modules
    if len(sys.modules) > _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


_OURS = ("PipelineError: ", "VanishedError: ")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w*(?:Error|Exception|Refused|Interrupt)\w*): (.+)$")
_PYTHON_TRACEBACK = "Traceback (most recent call last)"
_JVM_STACK = re.compile(r"^\s+at [\w.$/<>]+\(")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_PLACE = re.compile(r";?( line \d+ pos \d+)?;$")
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")
_NO_SUCH_FILE = "FileNotFoundError"


def told_by_task(error: BaseException) -> str | None:
    """The message of a PipelineError that was raised in a task or in a format, out of Spark's report of it."""
    for line in reversed(str(error).splitlines()):
        for name in _OURS:
            if name in line:
                return line.partition(name)[2]
    return None


def told_by_spark(error: BaseException) -> str | None:
    """What is wrong, when Spark raised `error`; None for an error of anybody else."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
        return None
    name = type(error).__name__
    if name in ("Py4JNetworkError", "Py4JError") and "Py4JJavaError" not in name and not _causes(str(error)):
        return f"Spark's JVM is gone ({first_line(str(error))}): perhaps it had too little memory, see --memory"
    text = str(error)
    python = _of_python(text)
    if python is not None:
        return f"a task failed: {python}"
    causes = _causes(text)
    if name == "Py4JJavaError" and causes:
        return f"Spark: {causes[-1]}"
    return f"Spark: {first_line(text) or name}"


def first_line(text: str) -> str:
    """The first line that says something of an error's text, without Spark's names and numbers of its kind."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JVM_STACK.match(line)]
    return _said(lines[0]) if lines else ""


def _said(line: str) -> str:
    return _PLACE.sub("", _STATE.sub("", _CLASS.sub("", line)).strip()).strip()


def _of_python(text: str) -> str | None:
    """The last line of the last traceback of Python: its kind and what it says."""
    if _PYTHON_TRACEBACK not in text:
        return None
    for line in text.rpartition(_PYTHON_TRACEBACK)[2].splitlines()[1:]:
        if line.strip() and not line.startswith((" ", "\t")):
            said = line.strip()
            hint = "; each machine that runs tasks needs the files at the same path" \
                if said.startswith(_NO_SUCH_FILE) else ""
            return said + hint
    return None


def _causes(text: str) -> list[str]:
    """What the exceptions of a Java stack say, outermost first."""
    found = []
    for line in text.splitlines():
        match = _CAUSE.match(line.strip().removeprefix(": "))
        if match and not _JVM_STACK.match(line):
            kind, said = match.groups()
            found.append(f"{kind}: {_said(said)}")
    return found
