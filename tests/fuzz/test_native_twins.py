"""The compiled functions and their twins in Python, with some thousand inputs each.

`python -m tests.fuzz.native_sanitizers` gives them any number, and detects accesses outside of their buffers.
"""
from types import SimpleNamespace

import pytest

from rmqha.broker.processor.send_codec import json_in_python, sends_in_python
from rmqha.store.bulk import bulk_python
from tests.fuzz.native_sanitizers import TARGETS, BulkTarget, Difference, Inputs, SendsTarget, feed
from tests.support.sources import ROOT

INPUTS = 2_000


@pytest.mark.parametrize("source", TARGETS)
def test_compiled_functions_agree_with_their_twins(source):
    module, make = TARGETS[source]
    compiled = pytest.importorskip(module, reason="no C compiler was there at the install")
    outcomes = feed(make(compiled), INPUTS, 50)
    same = {what: times for what, times in outcomes.items() if what.endswith(": same")}
    assert same and min(same.values()) > INPUTS // 4, outcomes


def test_each_source_is_fed():
    assert sorted(TARGETS) == sorted(str(source.relative_to(ROOT)) for source in (ROOT / "rmqha/native").glob("*.c"))


def test_same_seed_gives_the_same_native_inputs():
    one, two = Inputs(7), Inputs(7)
    assert [one.changed(b"some bytes", 0.9) for _ in range(99)] == [two.changed(b"some bytes", 0.9) for _ in range(99)]


def test_difference_from_a_twin_is_found():
    def off_by_one(*arguments):
        count, *rest = bulk_python.walk(*arguments)
        return (count + (count > 2), *rest)

    with pytest.raises(Difference, match="input [0-9]+ of seed 1: walk"):
        feed(BulkTarget(SimpleNamespace(walk=off_by_one, scan=bulk_python.scan, put_keys=bulk_python.put_keys)), 500, 1)

    def without_limit(data, position, cluster, host, routes, _max_body, most, send):
        return sends_in_python(data, position, cluster, host, routes, 1 << 30, most, send)

    with pytest.raises(Difference, match="read_simple_sends"):
        feed(SendsTarget(SimpleNamespace(read_simple_sends=without_limit, json_answers=json_in_python)), 500, 1)
