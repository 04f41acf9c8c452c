"""All paths through a model of replicas and controllers, within bounds. Every planted fault is found."""

import pytest

from rmqha.controller.replicas_info_manager import ReplicaSet
from tests.controller.explorer.model import Bounds, Model, Violation
from tests.controller.explorer.planted import LOGS, PLANTED
from tests.controller.explorer.rules import NOW_NS, Rules, Stored, Time, aged, freeze, replica_set, thaw
from tests.controller.explorer.search import LONG_SPACES, SPACES, WALKS, exhaust, walk
from tests.support import tiers

_WALKS = tiers.pick(1, all=10, long=400)  # of ten paths each
# Each of these takes about a second or more.
SLOW = {"a leader", "a new leader, the master is killed", "a new leader, a restarted master",
        "connections", "silence", "a switch", "leases and connections", "any replica may seem dead",
        "a master that renounced its lease is replaced when the controller leads again",
        "a controller that slept executes a forgotten request",
        "a broker accepts leases from any controller that claims to lead", "a controller that no longer leads writes",
        "a new leader does not wait until the previous one has stopped"}
# Planted faults that are found only after many states.
LATE = {"a controller answers a broker that follows another one without confirming that it leads",
        "a broker follows the sender of an answer to a request of an earlier leadership",
        "a refusal because of another master counts as news of the set"}


def _of(name, *value):
    tier = (tiers.in_long,) if name in LATE else (tiers.in_all,) if name in SLOW else ()
    return pytest.param(*value or (name,), marks=tier, id=name)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*(_of(name) for name in SPACES), *(pytest.param(name, marks=tiers.in_long)
                                                                      for name in LONG_SPACES)])
def test_every_state_within_the_bounds_keeps_the_promises(name):
    found = exhaust(Model(Rules(), (SPACES | LONG_SPACES)[name]))
    print(f"{name}: {found}")
    assert found.violation is None, "\n".join(found.trace)
    assert found.is_exhausted and found.states > 5000


def test_spaces_have_failovers_and_every_kind_of_event():
    spaces = [exhaust(Model(Rules(), bounds)) for bounds in (
        LOGS._replace(looks=2), SPACES["a switch"], SPACES["a kill of the master"])]
    assert all(found.failovers for found in spaces)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [_of(name) for name in WALKS])
def test_every_state_on_long_walks_keeps_the_promises(name):
    for seed in range(1, _WALKS + 1):
        found = walk(Model(Rules(), WALKS[name]), seed, 10, 400)
        assert found.violation is None, "\n".join((f"seed {seed}", *found.trace))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("planted", [_of(planted.what, planted) for planted in PLANTED])
def test_planted_fault_is_found(planted):
    found = exhaust(Model(planted.rules(), planted.bounds), max_states=200_000)
    assert found.violation, f"{planted.what}: {found}"
    print(f"{planted.what}: {found}", *found.trace, sep="\n")
    assert 1 < len(found.trace) < 25 and found.trace[-1].strip() == found.violation


def test_slow_searches_name_existing_faults():
    planted = {planted.what for planted in PLANTED}
    assert LATE < planted and SLOW < planted | {*SPACES, *WALKS}


def test_trace_is_readable():
    planted = next(each for each in PLANTED if each.what == "a removed replica stops counting at once")
    assert exhaust(Model(planted.rules(), planted.bounds)).trace == [
        "  1. broker 1 takes a message",
        "  2. broker 2 gets the next message from its master",
        "  3. master 1 hears how far broker 2 is",
        "  4. broker 3 loses its master",
        "  5. master 1 sees that broker 3 has left",
        "     message 1 was acknowledged at 0, and broker 3, which may be elected, since it is in the sync-state set, "
        "lacks it: []"]


def test_model_raises_its_own_violations():
    model = Model(Rules(), LOGS)
    state = model.initial()
    with pytest.raises(Violation, match="both may acknowledge"):
        both = state._replace(brokers=tuple(
            broker._replace(role="M", lease=Time(0)) for broker in state.brokers))
        Model(Rules(), Bounds())._check(state, both)
    with pytest.raises(Violation, match="lacks it"):
        model._check(state, state._replace(acked=frozenset(((0, 1),))))


def test_frozen_objects_thaw_unchanged_and_age():
    class Thing:
        def __init__(self) -> None:
            self._lock = object()
            self.times, self.number, self.names = {"a": NOW_NS - 5}, 7, {"x", "y"}

    frozen = freeze(Thing())
    assert hash(frozen) and thaw(frozen, Thing).times == {"a": NOW_NS - 5}
    later = thaw(aged(frozen, 10), Thing)
    assert later.times == {"a": NOW_NS - 15} and later.number == 7 and later.names == {"x", "y"}
    assert isinstance(replica_set(Stored(1, 2, frozenset((1,)), 3), 3), ReplicaSet)
