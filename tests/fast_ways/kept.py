"""What is costly to start, as servers are, and shared by many drawn cases."""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

T = TypeVar("T")
_entered: list[Kept] = []


class Kept(Generic[T]):
    """A context that is entered by the first case that uses it, and left after `most` cases, after one that failed
    (whatever made it fail may have left its marks), or by `leave_all`."""

    def __init__(self, make: Callable[[], AbstractContextManager[T]], most: int = 100) -> None:
        self._make = make
        self._most = most
        self._stack = contextlib.ExitStack()
        self._value: T | None = None
        self._uses = 0

    @contextlib.contextmanager
    def using(self) -> Iterator[T]:
        """Use it for one case."""
        if self._uses >= self._most:
            self.leave()
        if self._value is None:
            _entered.append(self)
            self._value = self._stack.enter_context(self._make())
        self._uses += 1
        try:
            yield self._value
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Leave it; the next case enters it again."""
        self._uses, self._value = 0, None
        if self in _entered:
            _entered.remove(self)
        self._stack.close()


def leave_all() -> None:
    """Leave each that is entered, before the process or a module of tests ends."""
    while _entered:
        _entered[-1].leave()
