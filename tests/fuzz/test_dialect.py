"""No text of fastjson's dialect costs much more for a byte than others: counted in calls, which no machine changes."""
import random

import pytest

from rmqha.remoting.protocol import fastjson
from rmqha.remoting.protocol.fastjson import FrozenList, FrozenObject
from tests.fuzz.dialect import ALL, BROKEN, LEAVES, PRODUCTIONS, costly, drawn
from tests.fuzz.dialect_readers import READERS
from tests.support.cost import calls_of

TIMES = 5  # of the median, that a text may cost for a byte; less than in a campaign, whose texts are longer
SIZE = 800
SOME = ALL[::13]  # no divisor of the number of productions, or of shapes


class CountedObject(FrozenObject):
    """As its class; each look at what it holds is a call, also those that C makes."""

    __hash__ = FrozenObject.__hash__

    def __repr__(self) -> str:
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class CountedList(FrozenList):
    """Likewise."""

    __hash__ = FrozenList.__hash__

    def __repr__(self) -> str:
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(fastjson, "FrozenObject", CountedObject)
    monkeypatch.setattr(fastjson, "FrozenList", CountedList)
    monkeypatch.setattr(fastjson, "_FREE_COPIES", 0)  # a fixed number is much for texts as short as these


def costs_of(reader: str, texts=ALL) -> dict[str, float]:
    costs = {}
    for one in texts:
        data = one.make(SIZE).encode("utf-8", "replace")
        costs[one.name] = calls_of(lambda data=data: READERS[reader](data)) / len(data)
    return costs


@pytest.mark.parametrize("reader", READERS)
def test_each_text_costs_about_the_same_for_a_byte(counted, reader):
    assert costly(costs_of(reader, SOME), TIMES) == []


@pytest.mark.parametrize("planted", [
    lambda one: hash(frozenset(map(repr, one.items()))), lambda one: hash(repr(sorted(one, key=repr)))],
    ids=["text of the items", "text of the names"])
def test_planted_hash_of_all_levels_is_found(counted, monkeypatch, planted):
    monkeypatch.setattr(CountedObject, "__hash__", planted)
    found = costly(costs_of("any value", SOME), TIMES)
    assert any("key" in one for one in found), found


def test_every_production_stands_in_every_other_one():
    names = [one.name for one in ALL]
    for outer in PRODUCTIONS:
        for inner in PRODUCTIONS:
            assert sum(f": {inner} as {outer}, of" in name for name in names) == 3
        assert sum(name.startswith("wide: ") and name.endswith(f" as {outer}") for name in names) >= len(LEAVES)


def test_most_texts_are_read_and_grow():
    read = 0
    right = [one for one in ALL if not one.name.startswith("token") and not any(what in one.name for what in BROKEN)]
    for one in right[::7]:
        small, large = one.make(300), one.make(2400)
        assert len(small) < 2400 and len(large) > len(small), one.name
        try:
            fastjson.parse(small)
            read += 1
        except ValueError as error:
            assert str(error)
    assert read > len(right[::7]) * 2 // 3, (read, len(right[::7]))
    assert drawn(random.Random(3), 100) == drawn(random.Random(3), 100)
