"""A simulation of several controllers at one etcd: requests are lost, late, or not answered, and clocks drift.

A seed decides everything: the next action, the fate of each request, and how far time advances.
"""
import random
from contextlib import suppress

import pytest

from rmqha.common.controller_config import ControllerConfig
from rmqha.controller import etcd_leadership, etcd_store
from rmqha.controller.etcd_store import EtcdStore
from rmqha.controller.local_store import NotLeaderError, StoreConflictError, StoreFailedError
from rmqha.controller.replicas_info_manager import ReplicaSet
from tests.support import tiers
from tests.support.etcd import FakeEtcd, FakeEtcdClient

LEASE_S = 3
MS = 1_000_000
NAMES = ("broker-a", "broker-b")
STEPS, SEEDS = 400, tiers.pick(12, all=30, long=200)


class Controller:
    """One controller, whose services do a round when the simulation calls them. Without calls it is paused."""

    def __init__(self, world: "World", number: int) -> None:
        self.world, self.id = world, f"n{number}"
        self.rate, self.ahead_ns = world.random.uniform(0.9, 1.1), world.random.randrange(10**12)
        self.client = FakeEtcdClient(world.etcd, world.fate)
        self.client.meanwhile = world.meanwhile
        self.told: list[bool] = []
        # The number of its calls under way: its services make one at a time.
        self.busy = 0
        self.open()

    def open(self) -> None:
        """Start a new process."""
        config = ControllerConfig(etcdLeaseSeconds=LEASE_S)
        self.store = EtcdStore(config, self.id, f"{self.id}:1", self.clock, self.client)
        self.told.append(False)
        self.store.on_leader_changed = lambda: self.told.append(self.store.leads)

    def clock(self) -> int:
        return int(self.world.etcd.now_ns * self.rate) + self.ahead_ns

    @property
    def leads_alone(self) -> bool:
        return self.store.leads and self.clock() >= self.store.leads_since_ns

    @property
    def is_newest(self) -> bool:
        term = self.store._leadership.current()
        return term is not None and term.revision == self.world.newest_term()

    def elect(self) -> None:
        self.store._leadership.take_part()

    def keep(self) -> None:
        self.store._leadership.keep()

    def put(self) -> None:
        world = self.world
        name, epoch = world.random.choice(NAMES), next(world.epochs)
        new = None if world.random.random() < 0.1 else ReplicaSet("c", name, master_epoch=epoch)
        try:
            seen = self.store.get(name)
            # other controllers, and threads of this one, may act in between
            world.round()
            written = self.store.put(name, seen.version, new)
        except NotLeaderError:
            world.never.add(epoch)
        except StoreConflictError:
            pass
        except StoreFailedError:
            assert self.store._leadership.current() is None, "it has stopped leading"
        else:
            assert written.replica_set == new and written.version > seen.version
            if new is not None:
                world.written[epoch] = written.version
                assert world.values(name)[written.version] == new, "it exists"
            assert world.before(name, written.version) == (seen.version, seen.replica_set), "no write in between"

    def end(self) -> None:
        """Stop its process cleanly or kill it, and start a new one."""
        if self.world.random.random() < 0.5:
            self.store.shutdown()
        self.open()


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.etcd = FakeEtcd()
        self.trouble = 0.0
        self.epochs = iter(range(1, 1 << 30))
        self.written: dict[int, int] = {}
        self.never: set[int] = set()
        self.depth = 0
        self.led, self.held_off = 0, 0
        self.controllers = [Controller(self, number) for number in range(3)]

    def fate(self) -> str:
        if self.random.random() >= self.trouble:
            return "ok"
        return self.random.choice(("lost", "unheard", "late"))

    def meanwhile(self) -> None:
        """Let others act while an answer is under way: another thread may be faster, even of the same controller."""
        if self.depth < 4 and self.random.random() < 0.2:
            self.round()

    def round(self) -> None:
        """Make one controller act, or let time advance."""
        self.depth += 1
        one, kind = self.random.choice(self.controllers), self.random.random()
        one.busy += 1
        if kind < 0.35 and one.busy == 1:
            one.elect()
        elif kind < 0.65 and one.busy == 1:
            one.keep()
        elif kind < 0.85 and self.depth < 4:
            one.put()
        elif kind < 0.86 and one.busy == 1:
            one.end()
        elif kind < 0.90:
            self.do_late(one)
        elif kind < 0.92:
            self.trouble = self.random.choice((0.0, 0.0, 0.05, 0.3, 0.9))
        elif kind < 0.93:
            self.lose_leader_key()
        elif kind < 0.94:
            # whether it is right or not
            one.store._leadership.leader_has_gone(f"{self.random.choice(self.controllers).id}:1")
        else:
            self.etcd.advance(self.random.choice((1, 100, 500, 1000, 4000)) * MS)
        self.check()
        one.busy -= 1
        self.depth -= 1

    def do_late(self, one: Controller) -> None:
        if one.client.late:
            with suppress(Exception):
                one.client.late.pop(self.random.randrange(len(one.client.late)))()

    def lose_leader_key(self) -> None:
        """Delete the leader key: etcd may end a lease too early while its own leader changes."""
        for lease in set(self.etcd.lease_of.values()):
            self.etcd.revoke(lease)

    def check(self) -> None:
        leading = [one for one in self.controllers if one.store.leads]
        alone = [one for one in leading if one.leads_alone]
        self.led += bool(alone)
        self.held_off += len(leading) > 1
        # a former leader may believe that it leads until the next one may act on its own
        assert len(alone) <= 1 and (len(leading) <= 1 or not any(one.is_newest for one in alone)), \
            [one.id for one in leading]
        for one in leading if self.depth == 1 else ():
            if not one.is_newest:
                continue
            for name in NAMES:
                values = self.values(name)
                assert one.store.get(name).replica_set == (values[max(values)] if values else None)

    def newest_term(self) -> int:
        """Return the revision that created the last leader's key."""
        return max(revision for key, revision, value in self.etcd.history if key.endswith(b"/leader") and value)

    def values(self, name: str) -> dict[int, ReplicaSet | None]:
        """Return the values of a name's key, by revision."""
        return {revision: etcd_store.decode_record(value) for key, revision, value in self.etcd.history
                if key.decode() == f"/rmqha/controller/brokers/{name}"}

    def before(self, name: str, version: int) -> tuple[int, ReplicaSet | None]:
        earlier = {revision: value for revision, value in self.values(name).items() if revision < version}
        return max(earlier.items()) if earlier else (0, None)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.round()
        for one in self.controllers:
            for act in one.client.late:
                with suppress(Exception):
                    act()
        epochs = [value.master_epoch for name in NAMES for value in self.values(name).values() if value]
        assert len(epochs) == len(set(epochs)), "nothing was written twice"
        assert not self.never & set(epochs), "a refused value was never written"
        assert self.written.keys() <= set(epochs)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(etcd_store, "_PAUSE_S", 0)
    monkeypatch.setattr(etcd_leadership, "_PAUSE_MS", 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_controller_leads_and_nothing_is_lost_or_written_twice(seed):
    World(seed).run(STEPS)


def test_sequences_reach_the_interesting_states():
    worlds = [World(seed) for seed in range(20)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.led for world in worlds) > 1000
    assert sum(world.held_off for world in worlds) > 10, "a former leader still believes that it leads"
    assert sum(len(world.written) for world in worlds) > 100
    assert sum(len(world.never) for world in worlds) > 5


def test_leader_that_ends_soon_does_not_announce_its_predecessors_end():
    world = World(1)
    world.depth = 9  # no other actions
    first, second, third = world.controllers
    first.elect()
    world.lose_leader_key()
    second.elect()
    assert first.store.leads and second.store.leads and not second.leads_alone
    second.store.shutdown()
    third.elect()
    assert third.store.leads and not third.leads_alone
    while not third.leads_alone:
        world.etcd.advance(10 * MS)
        third.keep()
    assert not first.store.leads
    third.store.shutdown()
    second.elect()
    assert second.leads_alone


def _keep_always(self, term, name, answer, record):
    term.records[name] = etcd_leadership.Known(answer.revision, record)
    return record


PLANTED = {
    "an older answer takes the place of a newer one": (EtcdStore, "_keep", _keep_always),
    "the leader's key is not compared": (etcd_store, "created_at",
                                         lambda key, revision: etcd_store.written_at(b"-", 0)),
    "the version is not compared": (etcd_store, "written_at", lambda key, version: etcd_store.created_at(b"-", 0)),
    "a leader keeps leading longer than it may": (etcd_leadership, "_OWN_SHARE", 1.6),
    "a new leader does not wait for the previous one": (etcd_leadership, "_OTHERS_SHARE", 0.0),
    "an unknown term is kept": (etcd_leadership.EtcdLeadership, "drop", lambda self, term, why: None),
    "every leadership is known to have begun": (etcd_leadership, "held_seconds", lambda value, unknown: 0),
}


@pytest.mark.parametrize("fault", sorted(PLANTED))
def test_planted_faults_are_found(fault, monkeypatch):
    owner, name, planted = PLANTED[fault]
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises((AssertionError, NotLeaderError)):
        for seed in range(200):
            World(seed).run(STEPS)
