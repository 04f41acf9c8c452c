"""Errors as the original's users know them: Java's names and texts, cause by cause."""
import re
import sys

_TWIN = re.compile(r"^\s*Java: ([\w.$]+)", re.MULTILINE)


def java_name(error: BaseException) -> str:
    """The name of the Java class that an exception stands for; its own when it has no twin."""
    found = _TWIN.search(type(error).__doc__ or "")
    return found.group(1) if found else f"{type(error).__module__}.{type(error).__qualname__}"


def stack_trace(error: BaseException) -> str:
    """`error` and its causes, a line each (or more, if its text has more), without the frames."""
    lines: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        lines.append(f"{'Caused by: ' if lines else ''}{java_name(cause)}: {cause}\n")
        cause = cause.__cause__
    return "".join(lines)


def print_stack_trace(error: BaseException) -> None:
    """Tell of an error that does not end the command, on standard error."""
    sys.stderr.write(stack_trace(error))
