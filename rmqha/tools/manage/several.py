"""One command for several names: each is tried, and one that fails does not stop the others."""
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rmqha.tools.terminal import CannotAnswerError, WorkFailedError, cell, counted, emit, put


class Several:
    """The names of a command, with what it found out and the errors by name.

    With one name, programs get one object, and an error ends the command at once.
    With several, programs get a list, and `finish` ends the command.
    """

    def __init__(self, names: Sequence[str], what: str, output: str) -> None:
        self.names = list(dict.fromkeys(names))
        self.errors: dict[str, CannotAnswerError | WorkFailedError] = {}
        self._what = what
        self._output = output
        self._found: dict[str, Any] = {}

    @property
    def is_one(self) -> bool:
        """True for a single name."""
        return len(self.names) == 1

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Print an error of this name, so that the others are tried; raise the only name's."""
        try:
            yield
        except (CannotAnswerError, WorkFailedError) as error:
            if self.is_one:
                raise
            put(f"{cell(name)}: {error.message}", err=True)
            self.errors[name] = error

    def show(self, name: str, found: Any, put_text: Callable[[], None]) -> None:
        """Print what was found out about a name for people, or keep it for programs."""
        if self._output == "table":
            put_text()
        elif self.is_one:
            emit(found, self._output)
        else:
            self._found[name] = found

    def finish(self) -> None:
        """Print the list for programs; end the command with exit code 1 when some names failed, 2 when all did."""
        if self.is_one:
            return
        if self._output != "table":
            emit([self._found[name] if name in self._found else {"name": name, "error": self.errors[name].message}
                  for name in self.names], self._output)
        if not self.errors:
            return
        text = f"{counted(len(self.errors), self._what)} of {len(self.names)} failed"
        is_nothing_done = len(self.errors) == len(self.names) and all(
            isinstance(error, CannotAnswerError) for error in self.errors.values())
        raise CannotAnswerError(text) if is_nothing_done else WorkFailedError(text)
