"""Programs whose output nobody reads any more, as in `mqbroker -p | head -1`."""
import logging
import os
import select
import sys
from collections.abc import Callable

ENDED_BY_PIPE = 141
"""The exit code of a program that could print no more, as shells have it."""


def nobody_reads() -> bool:
    """Whether the standard output is a pipe, or a connection, whose other end is closed."""
    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # there is no standard output, or it is no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _fd, event in poller.poll(0))


def discard_output() -> None:
    """From now on nothing that is printed goes anywhere; else the interpreter complains at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def run_while_read(main: Callable[[], int | None]) -> int:
    """The exit code of `main`; where nobody reads what it prints it ends without a word, with ENDED_BY_PIPE."""
    try:
        try:
            code = main() or 0
        except SystemExit:
            _flush()
            raise
        _flush()
        return code
    except BrokenPipeError:
        if not nobody_reads():
            raise
        discard_output()
        return ENDED_BY_PIPE


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


class ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """Writes to the standard output, and no more once nobody reads it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """A record that can't be printed."""
        if isinstance(sys.exc_info()[1], BrokenPipeError) and nobody_reads():
            discard_output()
        else:
            super().handleError(record)
