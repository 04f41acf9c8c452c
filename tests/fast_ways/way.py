"""A fast path and its comparison with the plain one; and shared objects that are expensive to start."""
from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pkgutil
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar
from unittest import mock

import tests.fast_ways

# The description of one fast path, and its comparison with the plain one.
#
# A case is drawn from a random.Random and compared. `compare` raises AssertionError if the two ways differ, and returns
# how often each was taken, so that a comparison that never takes the fast path fails, too. Sizes are drawn from 0 up to
# 4 MiB with a heavy tail, and around every threshold. If a threshold is a constant, `compare` lowers it for most cases,
# so that small data crosses it. A plant is a fault put into the fast path; some drawn case has to find it.

FAST, PLAIN = "fast", "plain"


@dataclass(frozen=True)
class Plant:
    """A fault in the fast path, present while the context is entered."""

    name: str
    plant: Callable[[], AbstractContextManager[object]]


@dataclass(frozen=True)
class Way:
    """A fast path.

    `where` is "path::name" of the code, `condition` says when the fast path is taken, `plain` what is taken otherwise.
    `seeds` is the number of cases that a usual run draws: enough to take both ways and to find each plant. `needs`
    names the modules that the fast path requires; if one is missing, it is skipped.
    """

    name: str
    where: str
    condition: str
    plain: str
    compare: Callable[[random.Random], Counter[str]]
    plants: tuple[Plant, ...]
    seeds: int = 40
    needs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def run(self, seeds: Iterable[int]) -> Counter[str]:
        """Compare one drawn case for each seed; an AssertionError names the seed."""
        taken: Counter[str] = Counter()
        for seed in seeds:
            try:
                taken += self.compare(random.Random(f"{self.name} {seed}"))
            except Exception as failure:
                raise AssertionError(f"{self.name}, seed {seed}: {failure!r}") from failure
        return taken

    def found_at(self, plant: Plant, seeds: Iterable[int]) -> int | None:
        """Return the first seed whose case finds a planted fault, or None."""
        with plant.plant():
            for seed in seeds:
                try:
                    self.compare(random.Random(f"{self.name} {seed}"))
                except Exception:  # whatever the fault leads to: it was noticed
                    return seed
        return None


def replaced(target: object, name: str, new: object) -> Callable[[], AbstractContextManager[object]]:
    """Return a plant that replaces an attribute of a class or module."""
    return lambda: mock.patch.object(target, name, new)


@contextlib.contextmanager
def lowered(module: object, **constants: object) -> Iterator[None]:
    """Give constants of a module other values for a while."""
    with contextlib.ExitStack() as stack:
        for name, value in constants.items():
            stack.enter_context(mock.patch.object(module, name, value))
        yield


def some_size(rng: random.Random, thresholds: Iterable[int] = (), largest: int = 4 << 20) -> int:
    """Return a size from 0 to `largest`, mostly small; one of four lies within 16 of a threshold."""
    thresholds = [each for each in thresholds if each <= largest]
    if thresholds and rng.random() < 0.25:
        return min(largest, max(0, rng.choice(thresholds) + rng.randint(-16, 16)))
    return min(largest, int(2 ** (rng.random() ** 2 * largest.bit_length())) - 1)


# All fast paths, in the order of the table.


def all_ways() -> list[Way]:
    """Return the WAYS of each module `compare_*` of this package, in the order of their names."""
    ways: list[Way] = []
    for module in sorted(pkgutil.iter_modules(tests.fast_ways.__path__), key=lambda each: each.name):
        if module.name.startswith("compare_"):
            ways += importlib.import_module(f"tests.fast_ways.{module.name}").WAYS
    return ways


# Objects that are expensive to start, such as servers, shared by many drawn cases.

T = TypeVar("T")
_entered: list[Kept] = []


class Kept(Generic[T]):
    """A context that the first case that uses it enters. It is left after `most` cases, after a failed case, which
    may have left marks in it, or by `leave_all`."""

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
    """Leave each entered context before the process or a module of tests ends."""
    while _entered:
        _entered[-1].leave()
