"""What rmqha's modules and some objects keep of names: whatever other threads of the process do, and its tests hold."""
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

from rmqha.common.stats import CallSnapshot

_AT_ONCE = 10_000  # objects asked for what they refer to in one call


def _is_own(name: object) -> bool:
    return str(name).partition(".")[0] == "rmqha"


def _is_own_namespace(one: ModuleType | type) -> bool:
    return _is_own(one.__name__ if isinstance(one, ModuleType) else one.__module__)


def _is_passed_through(kind: type) -> bool | None:
    """Whether what an object of that type refers to counts; not with the runner of tests. None: each tells for itself.

    Modules and classes of others do not count. Each module refers to pytest by its loader, and so to all tests and
    their parameters: most of a process.
    """
    if issubclass(kind, (ModuleType, type)):
        return None
    return str(kind.__module__).partition(".")[0] not in ("_pytest", "pluggy")


def _reachable(*roots: object) -> Iterator[object]:
    """All that rmqha's modules and `roots` refer to, each once."""
    own = [module for name, module in list(sys.modules.items()) if _is_own(name)]
    seen = {id(vars(module)) for name, module in list(sys.modules.items())
            if not _is_own(name) and isinstance(module, ModuleType)}
    found: list[object] = [*own, *roots]
    passed: dict[type, bool | None] = {}  # there are many objects, and few types
    while found:
        fresh = []
        for one in found:
            if id(one) not in seen:
                seen.add(id(one))
                kind = type(one)
                if kind not in passed:
                    passed[kind] = _is_passed_through(kind)
                counts = passed[kind]
                if counts or (counts is None and _is_own_namespace(one)):
                    fresh.append(one)
        yield from fresh
        found = []
        for first in range(0, len(fresh), _AT_ONCE):
            part = fresh[first:first + _AT_ONCE]
            found += gc.get_referents(*part)
            found += [key for one in part if isinstance(one, dict) for key in dict.copy(one)]  # left out by the above


def names_kept(mark: str, *roots: object) -> set[str | bytes]:
    """All strings and bytes with `mark` in them that are reachable."""
    in_bytes = mark.encode()
    return {one for one in _reachable(*roots)
            if (type(one) is str and mark in one) or (type(one) is bytes and in_bytes in one)}


def own_objects(*roots: object) -> Counter[type]:
    """How many objects of each of rmqha's types are reachable; without the samples that counters take by themselves."""
    types = Counter(map(type, _reachable(*roots)))
    return Counter({one: count for one, count in types.items() if _is_own(one.__module__) and one is not CallSnapshot})
