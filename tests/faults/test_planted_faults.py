"""The fault suite itself: brokers with a fault in them are found out, by the kind of fault that is meant to find it."""

import pytest

from tests.faults import campaign
from tests.faults.planted import PLANTS
from tests.support.tiers import in_all, in_long

pytestmark = in_all

NOBODY: tuple[str, ...] = ()
# plant -> (kind of fault, plants of master and slave, what the verdict says)
FOUND_BY = {
    "ack_before_write": ("kill", (NOBODY, ("ack_before_write",)), "A: "),
    "ack_before_replica": ("kill", (("ack_before_replica",), NOBODY), "A: "),
    "ack_before_flush": ("power", (("ack_before_flush",), NOBODY), "A: "),
    "swallowed_eio": ("sync", (("swallowed_eio",), NOBODY), "after a failed fsync"),
    "tail_not_zeroed": ("tail", (("tail_not_zeroed",), NOBODY), "C on the master"),
    "offsets_not_loaded": ("kill", (("offsets_not_loaded",), NOBODY), "D: "),
    "lone_record_in_pieces": ("stop", (NOBODY, ("lone_record_in_pieces",)), "slave"),
    "first_ack_unchecked": ("liars", (("first_ack_unchecked",), NOBODY), "A: "),
}
CYCLES = 12  # at most; with this seed they are found in the first few
SEED = 2
MORE_SEEDS = {"lone_record_in_pieces": (3, 4)}  # where a life may not meet the fault: each record came in one piece


@pytest.mark.parametrize("plant", [plant if plant != "offsets_not_loaded" else pytest.param(plant, marks=in_long)
                                   for plant in FOUND_BY])  # that one wants a broker that has lived for a while
def test_planted_fault_is_found(plant, tmp_path):
    kind, plants, verdict = FOUND_BY[plant]
    reason = campaign.KINDS[kind].why_not()
    if reason:
        pytest.skip(reason)
    for seed in (SEED, *MORE_SEEDS.get(plant, ())):
        outcome = campaign.run_life(campaign.Life(kind, ("rmqha", "rmqha"), seed, CYCLES, tmp_path / f"life{seed}",
                                                 plants=plants))
        if outcome.failure:
            break
    assert verdict in outcome.failure, outcome


def test_each_plant_has_something_that_finds_it():
    assert set(FOUND_BY) == set(PLANTS)
