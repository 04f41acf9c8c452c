"""Helpers for the data sources and Spark's Python workers: times, batch shares, and short error messages.

- `micros`: times of messages in tables, in microseconds; null outside the calendar. Spark and Python support the years
  1 to 9999 in the time zone in which a time is shown, so FIRST_MS and LAST_MS exclude a day at either end.
- `shares`: how much of a batch each part of a source may take.
- `parse_moment`: times given by users.
- `briefly`: keeps tracebacks out of errors, which Spark would show before the error raised by a data source.
- `settle`: for Spark's Python process, in which tasks run one after another.
- `told_by_task`, `told_by_spark`: one-line messages for errors of Spark and its tasks.

The module does not import pyspark.
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
    """Convert ms to microseconds; None outside the calendar, since a producer may store anything (say, nanoseconds)."""
    return timestamp * 1000 if FIRST_MS <= timestamp <= LAST_MS else None


KeyT = TypeVar("KeyT", bound=Any)


def shares(backlog: Mapping[KeyT, int], most: int) -> dict[KeyT, int]:
    """Divide `most` in proportion to the backlogs; if it is less than one each, the parts with the most get one."""
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
    """Parse a time in the syntax that all commands accept, as ms since 1970. PipelineError for other text."""
    try:
        return units.parse_time(text, now_ms)
    except units.UnitError as error:
        raise PipelineError(str(error)) from None


_P = ParamSpec("_P")
_R = TypeVar("_R")


def briefly(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function or generator that Spark calls: a PipelineError leaves it without a traceback and without its
    cause. Other errors are left as they are.
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


# The number of modules when they were last frozen.
_modules = 0


def settle() -> None:
    """Exclude everything imported so far from later garbage collections. Call it when a task begins.

    Spark makes each worker collect garbage after each task, and the next task waits. With PyArrow, NumPy and the rest
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
    """Return the message of a PipelineError raised in a task or in a format, extracted from Spark's report of it."""
    for line in reversed(str(error).splitlines()):
        for name in _OURS:
            if name in line:
                return line.partition(name)[2]
    return None


def told_by_spark(error: BaseException) -> str | None:
    """Return a message for an error that Spark raised; None for any other error."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
        return None
    name = type(error).__name__
    if name in ("Py4JNetworkError", "Py4JError") and "Py4JJavaError" not in name and not _causes(str(error)):
        return f"Spark's JVM has ended ({first_line(str(error))}). It may have had too little memory: see --memory"
    text = str(error)
    python = _of_python(text)
    if python is not None:
        return f"a task failed: {python}"
    causes = _causes(text)
    if name == "Py4JJavaError" and causes:
        return f"Spark: {causes[-1]}"
    return f"Spark: {first_line(text) or name}"


def first_line(text: str) -> str:
    """Return the first meaningful line of an error's text, without Spark's error class, SQLSTATE and position."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JVM_STACK.match(line)]
    return _said(lines[0]) if lines else ""


def _said(line: str) -> str:
    return _PLACE.sub("", _STATE.sub("", _CLASS.sub("", line)).strip()).strip()


def _of_python(text: str) -> str | None:
    """Return the last line of the last Python traceback: the kind of error and its message."""
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
    """Return the messages of the exceptions in a Java stack trace, outermost first."""
    found = []
    for line in text.splitlines():
        match = _CAUSE.match(line.strip().removeprefix(": "))
        if match and not _JVM_STACK.match(line):
            kind, said = match.groups()
            found.append(f"{kind}: {_said(said)}")
    return found
