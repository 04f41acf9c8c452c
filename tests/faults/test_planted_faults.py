"""Tests of the fault suite: each planted fault is found by the kind of fault that is meant to find it."""

import pytest

from tests.faults import campaign
from tests.faults.planted import PLANTS
from tests.support.tiers import in_all, in_long

pytestmark = in_all

NOBODY: tuple[str, ...] = ()
# plant -> (kind of fault, plants of master and slave, part of the verdict)
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
# See test_failover.py: a pair without a controller does not relay.
FOUND_IN_A_FAILOVER = {"relay_repeats_sends"}
# At most; with this seed the first few find them.
CYCLES = 12
SEED = 2
# A life may miss the fault, if each record arrives in one piece.
MORE_SEEDS = {"lone_record_in_pieces": (3, 4)}


@pytest.mark.parametrize("plant", [plant if plant != "offsets_not_loaded" else pytest.param(plant, marks=in_long)
                                   # needs a broker that has run for a while
                                   for plant in FOUND_BY])
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


def test_every_plant_has_a_kind_that_finds_it():
    assert set(FOUND_BY) | FOUND_IN_A_FAILOVER == set(PLANTS)
