"""The calls in the sources that log a warning or an error, and all texts in them, each with its gaps filled."""
import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from tests.support.sources import nodes

LEVELS = {"warning": "WARN", "warn": "WARN", "error": "ERROR", "exception": "ERROR", "critical": "ERROR"}
# CauseLog: `life.py` logs these at WARNING.
_CAUSES = {"raised": 1, "returned": 1, "happened": 1}
_COUNTED = " (further errors with this cause are only counted)"
_WITHOUT = ("rmqha/tools/", "rmqha/pipeline/", "rmqha/testing/")
_GAP = re.compile(r"%(?:\(\w+\))?[-#0 +]*(?:\d+|\*)?(?:\.\d+)?[sdrxifg]")
FILLED = "x1"


class LogCall(NamedTuple):
    """One call; `text` is None when it logs a text that is made elsewhere."""

    path: str
    line: int
    level: str
    text: str | None
    source: str


def filled(node: ast.expr | None) -> str | None:
    """Return the text of an expression with its gaps filled; None when it has no text of its own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _GAP.sub(FILLED, node.value).replace("%%", "%")
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else FILLED for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [filled(node.left), filled(node.right)]
        return None if parts == [None, None] else "".join(part or FILLED for part in parts)
    return None


def _level_in(node: ast.expr) -> str:
    """Return the level that an argument like `logging.WARNING` names, also in `... if ... else ...`."""
    parts = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,)
    return next((part.attr for part in parts if isinstance(part, ast.Attribute) and part.attr in ("WARNING", "ERROR")
                 and ast.unparse(part.value) == "logging"), "")


def _call_of(path: str, node: ast.AST) -> LogCall | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name = node.func.attr
    level = next((found for each in (*node.args, *(each.value for each in node.keywords))
                  if (found := _level_in(each))), "")
    if name not in LEVELS and name not in _CAUSES and not level:
        return None
    on = ast.unparse(node.func.value)
    if name in LEVELS and "log" in on.lower():
        place, said = 0, LEVELS[name]
    elif name in _CAUSES and "causes" in on:
        place, said = _CAUSES[name], "WARN"
    elif level and not name.startswith("set"):
        said, place = level.replace("WARNING", "WARN"), next(
            (number for number, each in enumerate(node.args) if filled(each) is not None), -1)
        if place < 0:
            return None
    else:
        return None
    argument = node.args[place] if len(node.args) > place else None
    text = filled(argument)
    if text is not None and name in _CAUSES:
        text += _COUNTED
    is_own = text is not None and text.replace(FILLED, "").strip(" :") != ""
    return LogCall(path, node.lineno, said, text if is_own else None, ast.unparse(argument) if argument else "")


@cache
def log_calls() -> tuple[LogCall, ...]:
    """Return every call that logs at WARNING or above, except those of tools, which print their errors."""
    return tuple(call for path, found in nodes().items() if not path.startswith(_WITHOUT)
                 for node in found if (call := _call_of(path, node)) is not None)


_ANSWERS = {"create_response_command": 1, "_answer": 1, "system_error": 0, "MQClientException": 0, "AclException": 0,
            "RequestTimeoutException": 0, "RemotingTooMuchRequestException": 0, "RemotingTimeoutException": 0}


@cache
def answers() -> tuple[LogCall, ...]:
    """Return every text that a server answers with, or that the client raises."""
    found = []
    for path, each in nodes().items():
        for node in () if path.startswith(_WITHOUT) else each:
            said: ast.expr | None = None
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith("remark"):
                said = node.value
            elif isinstance(node, ast.Call) and (name := ast.unparse(node.func).rpartition(".")[2]) in _ANSWERS:
                said = node.args[_ANSWERS[name]] if len(node.args) > _ANSWERS[name] else None
            text = filled(said)
            if text is not None and len(text.replace(FILLED, "")) > 8:
                found.append(LogCall(path, node.lineno, "", text, ""))
    return tuple(found)


@cache
def texts() -> tuple[str, ...]:
    """Return every text in the sources outside of `rmqha explain` itself, with its gaps filled."""
    return tuple(dict.fromkeys(_texts()))


def _texts() -> Iterator[str]:
    for path, found in nodes().items():
        if path.startswith("rmqha/tools/explain/"):
            continue
        for node in found:
            if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)):
                text = filled(node)
                if text is not None and len(text) > 8:
                    yield " ".join(text.split())
