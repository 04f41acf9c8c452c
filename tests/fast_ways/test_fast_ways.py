"""Each fast path gives the same result as the plain one, and the comparison finds the faults that are planted into
it."""
import re

import pytest

from tests.fast_ways.__main__ import PAGE, page
from tests.fast_ways.way import FAST, PLAIN, all_ways, leave_all
from tests.support import tiers
from tests.support.sources import ROOT

WAYS = all_ways()


def _of(way, *more):
    """Return the parameters of a test, which is skipped where the way can't be taken."""
    missing = ", ".join(way.missing())
    return pytest.param(way, *more, id="-".join(str(each.name) for each in (way, *more)).replace(" ", "-"),
                        marks=[pytest.mark.skip(reason=f"not installed: {missing}")] if missing else [])


@pytest.fixture(scope="module", autouse=True)
def _left_in_the_end():
    yield
    leave_all()


@pytest.mark.parametrize("way", [_of(way) for way in WAYS])
def test_fast_way_gives_the_same_result_as_the_plain_one(way):
    taken = way.run(range(tiers.pick(-(-way.seeds // 2), all=way.seeds)))
    assert taken[FAST] and taken[PLAIN], f"a way was never taken: {taken}"


@pytest.mark.parametrize("way, plant", [_of(way, plant) for way in WAYS for plant in way.plants])
def test_planted_fault_is_found(way, plant):
    assert way.found_at(plant, range(way.seeds)) is not None, f"no case of {way.name} finds: {plant.name}"


def test_each_way_has_a_planted_fault():
    assert WAYS and all(way.plants for way in WAYS)


def test_each_way_names_existing_code():
    wrong = []
    for way in WAYS:
        path, _, name = way.where.partition("::")
        text = (ROOT / path).read_text("utf-8") if (ROOT / path).is_file() else ""
        if not re.search(rf"\b{re.escape(name.rpartition('.')[2])}\b", text):
            wrong.append(way.where)
    assert not wrong


def test_page_lists_all_ways():
    assert PAGE.read_text("utf-8") == page(), "run: python -m tests.fast_ways --page"
