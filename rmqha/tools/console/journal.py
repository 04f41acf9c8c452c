"""The console's log: each change with its user and its outcome, and each sign-in. It never has a secret or a body.

    changes.py, app.py --> Journal --> logger RocketmqTools.console --> tools.log, standard error

- `set_up`: lets the log of this process go to its file and to standard error.
- `Journal`: writes the lines. A refusal that repeats is written once a minute, so that no stranger can fill the log.
"""
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from rmqha.common import logs
from rmqha.tools.console.access import Person
from rmqha.tools.terminal import cell
from rmqha.tools.view.questions import QuestionError

TOOLS = "RocketmqTools"
log = logging.getLogger(f"{TOOLS}.console")

_PLAIN = re.compile(r"[\w%|.,:=@/+-]{1,255}", re.ASCII)
_MOST_OF_NAME = 255
_MOST_OF_LINE = 4096
_REPEAT_S = 60.0
# Lines of different refusals, and of addresses that open the page with the token, within that time.
_MOST_REFUSALS, _MOST_ARRIVALS = 100, 1000


def set_up() -> str | None:
    """Let the tools' loggers write to their files, and the console's lines also to standard error.

    Return the log file; None when there is only standard error, because the file can't be written.
    """
    try:
        logs.setup_tools_logging()
    except OSError as error:
        click.echo(f"the log can't be written: {error.filename}: {error.strerror}", err=True)
    file = next(iter(logs.log_files(TOOLS)), None)
    if file is None:
        # Without a folder all loggers write to standard error: the libraries' lines would hide the console's.
        for handler in logging.getLogger().handlers:
            handler.setLevel(logging.WARNING)
    for old in log.handlers[:]:
        log.removeHandler(old)
    if file is not None or not logging.getLogger(TOOLS).handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logs.JavaLevelFormatter())
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    return file


def named(name: str) -> str:
    """Return a name for the log: quoted unless it is plain, so that it can't look like other parts of a line."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name[:_MOST_OF_NAME])


class Journal:
    """Writes the console's log. Thread-safe."""

    def __init__(self) -> None:
        self._refusals, self._arrivals = _Recent(_MOST_REFUSALS), _Recent(_MOST_ARRIVALS)

    @contextmanager
    def change(self, person: Person, what: str) -> Iterator[list[str]]:
        """Write a line when a change has ended. The yielded list takes its outcome; "done" if it stays empty."""
        outcome: list[str] = []
        try:
            yield outcome
        except BaseException as error:
            text = error.message if isinstance(error, (QuestionError, click.ClickException)) else type(error).__name__
            outcome.insert(0, f"failed: {text}")
            raise
        finally:
            _put(f"{shown(person)}: {what}: {'; '.join(outcome) or 'done'}")

    def signed_in(self, person: Person) -> None:
        """Note that an account has signed in, or that the page was opened with the token."""
        line = f"{shown(person)}: signed in with the role {person.role.word}"
        if person.has_session or self._arrivals.is_new(line):
            _put(line)

    def refused_sign_in(self, account: str | None, address: str) -> None:
        """Note a wrong secret key of an account, or with None a wrong access key: that may be a secret in the wrong
        field."""
        who = "an unknown access key" if account is None else f"{named(account)} with a wrong secret key"
        _put(f"sign-in refused: {who} from {named(address)}")

    def refused(self, what: str, address: str) -> None:
        """Note a refusal, unless it was noted within the last minute."""
        line = f"{what} from {named(address)}"
        if self._refusals.is_new(line):
            _put(line)


class _Recent:
    """The lines of the last minute, at most a number of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._lines: dict[str, float] = {}

    def is_new(self, line: str) -> bool:
        """Return whether a line is to be written: it is not among the recent ones, and those are not too many."""
        now = time.monotonic()
        with self._lock:
            self._lines = {each: at for each, at in self._lines.items() if now - at < _REPEAT_S}
            if line in self._lines or len(self._lines) >= self._most:
                return False
            self._lines[line] = now
            return True


def shown(person: Person) -> str:
    """Return the user's name, "local" for a user of this host without a sign-in, and the address."""
    who = "local" if person.name is None else named(person.name)
    return f"{who} from {named(person.address)}" if person.address else who


def _put(line: str) -> None:
    log.info("console: %s", cell(line[:_MOST_OF_LINE]))
