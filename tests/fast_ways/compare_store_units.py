"""Fast ways of reading consume queues: bisection, and maps that go and come back."""
from __future__ import annotations

import random
from collections import Counter
from typing import Any

from rmqha.store import consume_queue_layout, consume_queue_recovery
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, pack_unit, unpack_unit
from rmqha.store.consume_queue_recovery import ConsumeQueueRecovery
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MapKeeper
from rmqha.store.store_marks import RecoveryBase
from tests.fast_ways.support_store import counting, loaded_store, same, scratch
from tests.fast_ways.support_store_files import queue_state, store_files
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced

# Bisection.

def _some_units(rng: random.Random) -> tuple[bytes, int]:
    """Units as a queue's file has them: ever further in the log, some that point at no record; then zeros. How many
    they are without the zeros."""
    units, at = bytearray(), rng.choice((0, 1 << 40))
    for _ in range(rng.choice((0, 1, 2, 30, 300))):
        if rng.random() < 0.1:
            units += consume_queue_layout.PRE_BLANK_UNIT * rng.choice((1, 1, 5, 60))
            continue
        size = rng.randint(1, 300)
        units += pack_unit(at, size, rng.getrandbits(63))
        at += size + rng.choice((0, 0, 1000))
    return bytes(units) + bytes(CQ_STORE_UNIT_SIZE * rng.choice((0, 0, 1, 40))), len(units) // CQ_STORE_UNIT_SIZE


def _place(rng: random.Random, units: bytes) -> int:
    """An offset of the log, mostly at or beside that of a unit."""
    if not units:
        return rng.randrange(1 << 41)
    offset, size, _ = unpack_unit(units, rng.randrange(len(units) // CQ_STORE_UNIT_SIZE) * CQ_STORE_UNIT_SIZE)
    return max(0, offset + rng.choice((0, 0, 1, -1, size, size - 1, size + 1)))


def _compare_bisection(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    at_once = rng.choice((1, 4, 64))
    with lowered(consume_queue_layout, _COUNTED_FIRST=rng.choice((1, 3)), _COUNTED_AT_ONCE=at_once,
                 _MANY_BLANKS=consume_queue_layout.PRE_BLANK_UNIT * at_once), \
            lowered(consume_queue_recovery, _UNITS_LOOKED_AT=rng.choice((1, 5, 50))):
        for _ in range(10):
            units, count = _some_units(rng)
            place = _place(rng, units)
            parts = [unpack_unit(units, number * CQ_STORE_UNIT_SIZE) for number in range(len(units) // 20)]
            filled = [number for number, part in enumerate(parts) if not consume_queue_layout.is_blank(*part[:2])]
            base = RecoveryBase(1 << 60, place, True, False, False, rng.random() < 0.5)
            number = rng.randint(0, max(len(parts) - 1, 0))
            plain = (count, next((each for each in filled if parts[each][0] >= place), len(parts)), count,
                     max([each for each in filled if each <= number], default=-1), next(iter(filled), len(parts)))
            view = memoryview(units)
            fast = (consume_queue_layout.count_valid_units(view),
                    consume_queue_layout.first_unit_at(view, len(parts), place),
                    ConsumeQueueRecovery._count_units(view, base),
                    consume_queue_layout.filled_unit_before(view, number), consume_queue_layout.count_blank_units(view))
            same(fast, plain, f"units {parts[:20]}, {place}")
            only = [parts[each] for each in filled]
            same(consume_queue_layout.first_unit_behind(b"".join(pack_unit(*part) for part in only), place),
                 next((number for number, part in enumerate(only) if part[0] + part[1] > place), len(only)), "behind")
            taken[FAST] += len(fast) + 1
            taken[PLAIN] += len(plain) + 1
    return taken


def _valid_but_the_last_block(buffer: memoryview, real: Any = consume_queue_layout.count_valid_units) -> int:
    count = int(real(buffer))
    return count - count % 4 if count > 4 else count


def _goes_by_the_blank(buffer: memoryview, count: int, phy_offset: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if unpack_unit(buffer, middle * CQ_STORE_UNIT_SIZE)[0] >= phy_offset:
            high = middle
        else:
            low = middle + 1
    return low


BISECTION = Way(
    name="store: bisection in a queue",
    where="rmqha/store/consume_queue_layout.py::first_unit_at",
    condition="always; recovery looks at the last 4,096 (_UNITS_LOOKED_AT) sure units one by one",
    plain="each unit is looked at",
    compare=_compare_bisection,
    plants=(
        Plant("units behind the last whole block are not counted",
              replaced(consume_queue_layout, "count_valid_units", _valid_but_the_last_block)),
        Plant("units that point at no record count with their own offset",
              replaced(consume_queue_layout, "first_unit_at", _goes_by_the_blank)),
        Plant("a record that ends at the place lies behind it",
              replaced(consume_queue_layout, "first_unit_behind",
                       lambda units, place, real=consume_queue_layout.first_unit_behind: real(units, place - 1))),
    ),
    seeds=40,
)


# Maps.

class _Queues:
    """One case: the same calls of the queues of two stores, of which one keeps all maps."""

    def __init__(self, rng: random.Random, stores: list[Any]) -> None:
        self.rng, self.stores, self.log_end = rng, stores, 0
        self.held: list[tuple[Any, bytes]] = []  # what readers hold, and what it has to stay
        self.ends: Counter[int] = Counter()

    def put(self) -> None:
        """A run of units."""
        number, count = self.rng.randrange(4), self.rng.choice((1, 2, 7, 30))
        units = b"".join(pack_unit(self.log_end + 100 * each, 100, each) for each in range(count))
        self.log_end += 100 * count
        for store in self.stores:
            assert store.find_consume_queue("T", number).put_units(self.ends[number], memoryview(units))
        self.ends[number] += count

    def read(self) -> None:
        """Some units; the reader may keep them."""
        number = self.rng.randrange(4)
        index = self.rng.randint(0, self.ends[number])
        found = [store.find_consume_queue("T", number).get_index_buffer(index) for store in self.stores]
        same(*[None if each is None else bytes(each.buffer) for each in found], f"units of {number} from {index} on")
        keeps = self.rng.random() < 0.5
        for each in found:
            if each is not None and keeps:
                self.held.append((each, bytes(each.buffer)))
            elif each is not None:
                each.release()

    def flush(self) -> None:
        """Those that were written through a map that is gone, too."""
        for store in self.stores:
            store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)

    def expire(self) -> None:
        """Files in front go."""
        place = self.rng.randint(0, self.log_end)
        same(*[[queue.delete_expired_file(place) for queue in store.all_consume_queues()] for store in self.stores],
             "deleted")

    def make_room(self) -> None:
        """The system gives no more maps."""
        self.stores[0].map_keeper.make_room()

    def release(self) -> None:
        """Who has read longest lets go."""
        for _store in self.stores if self.held else ():
            found, expected = self.held.pop(0)
            same(bytes(found.buffer), expected, "what a reader holds")
            found.release()


def _compare_maps(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    keys = {"mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000))}
    with scratch() as root, counting(taken, (MappedFile, "drop_map", FAST), (MapKeeper, "note", PLAIN)), \
            loaded_store(root / "fast", **keys) as fast, loaded_store(root / "plain", **keys) as plain:
        fast.map_keeper.limit, plain.map_keeper.limit = rng.choice((1, 2, 5)), 1 << 30
        case = _Queues(rng, [fast, plain])
        for _ in range(rng.randint(1, 60)):
            rng.choice([case.put] * 4 + [case.read] * 6 + [case.flush, case.expire, case.make_room, case.release])()
        while case.held:
            case.release()
        states = []
        for store in (fast, plain):
            states.append((queue_state(store), {
                f"{queue.queue_id}": [queue.get_unit(index) for index in range(queue.get_min_offset_in_queue(),
                                                                               queue.get_max_offset_in_queue())]
                for queue in store.all_consume_queues()}))
        same(*states, "queues")
        same(*[store_files(root / name)["queues"] for name in ("fast", "plain")], "files")
    return taken


def _a_new_map(self: MappedFile, real: Any = MappedFile._map_again) -> memoryview:
    return memoryview(bytearray(real(self)))  # a copy: what is written there goes nowhere


def _begins_again(self: MappedFile, real: Any = MappedFile.drop_map) -> None:
    real(self)
    self.wrote_position = self.wrote_position // 60 * 60


MAPS = Way(
    name="store: maps of queues that go and come back",
    where="rmqha/store/mapped_file_queue.py::MapKeeper",
    condition="more files of queues are in use than half of the maps or descriptors that the process may have",
    plain="each file keeps its map",
    compare=_compare_maps,
    plants=(
        Plant("a map that comes back is a copy", replaced(MappedFile, "_map_again", _a_new_map)),
        Plant("what a file has unwritten goes with its map", replaced(MappedFile, "drop_map", _begins_again)),
    ),
    seeds=20,
)

WAYS = [BISECTION, MAPS]
