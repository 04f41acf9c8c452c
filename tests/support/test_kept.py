"""Names are found wherever an object holds them; dropped names are not found."""
import functools
from collections import OrderedDict, deque
from types import SimpleNamespace

import pytest

from rmqha.common import mix_all
from rmqha.common.message.message import MessageQueue
from tests.support.tiers import in_all
from tests.support.watch import names_kept, own_objects

pytestmark = in_all


class Slotted:
    __slots__ = ("name",)


def slotted(name: str) -> Slotted:
    one = Slotted()
    one.name = name
    return one


def cached(names: list[str]) -> object:
    function = functools.lru_cache(len)
    for name in names:
        function(name)
    return function


HOLDERS = {
    "dict of numbers": lambda names: dict.fromkeys(names, 1),
    "dict of dicts": lambda names: {1: dict.fromkeys(names, 1)},
    "values": lambda names: dict(enumerate(names)),
    "set": set,
    "queue": deque,
    "ordered": OrderedDict.fromkeys,
    "tuples": lambda names: [((name, 1), 2) for name in names],
    "attributes": lambda names: [SimpleNamespace(name=name) for name in names],
    "slots": lambda names: list(map(slotted, names)),
    "cache": cached,
    "closures": lambda names: [lambda name=name: name for name in names],
    "bytes": lambda names: {name.encode(): 0 for name in names},
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_names_are_found_until_they_are_dropped(holder, monkeypatch):
    mark = f"kept by another thread as {holder}, number "
    held = [HOLDERS[holder]([f"{mark}{number}" for number in range(7)])]
    assert len(names_kept(mark, held)) == 7 and not names_kept(mark)
    monkeypatch.setattr(mix_all, "_held_of_a_test", held, raising=False)
    assert len(names_kept(mark)) == 7
    held.clear()
    assert not names_kept(mark)


def test_own_objects_are_counted_by_type():
    queues = [MessageQueue("T", "b", number) for number in range(9)]
    assert (own_objects(queues) - own_objects())[MessageQueue] == len(queues)
