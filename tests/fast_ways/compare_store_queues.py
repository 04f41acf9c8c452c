"""Fast paths of consume queues: opening, reading, and dispatch into them."""
from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.common.futures import WorkAhead
from rmqha.store import (
    consume_queue_layout,
    consume_queue_recovery,
    consume_queue_table,
    reput_message_service,
    store_marks,
)
from rmqha.store import dispatch as span_dispatcher
from rmqha.store.bulk.bulk_layout import RECORD, Run, Span, Stop
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE, pack_unit, unpack_unit
from rmqha.store.consume_queue_recovery import ConsumeQueueRecovery
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.dispatch import MessageArrivingListener, RecordDispatcher
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.index.index_service import IndexService
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MapKeeper, MappedFileQueue
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.results import SelectMappedBufferResult
from rmqha.store.store_marks import RecoveryBase
from tests.fast_ways.support_store import (
    NEVER,
    TOPICS,
    LogMaker,
    change,
    counting,
    cuts,
    dispatch_rest,
    files_of,
    loaded_store,
    queue_state,
    same,
    scratch,
    store_files,
    write_store,
)
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced
from tests.store.support import tree

# Fast paths of opening and reading consume queues: noted ends, bisection, unmapping and remapping idle files.

ENDS = "consumequeue.ends"
# The last units of a queue; a queue that begins with a wrong index seems to have very many.
_READ = 200


def _a_file_cut(rng: random.Random, root: Path) -> None:
    path = rng.choice(files_of(root, "consumequeue"))
    os.truncate(path, rng.choice((0, 20, path.stat().st_size // 2, path.stat().st_size - 1)))


def _a_file_written(rng: random.Random, root: Path) -> None:
    path = rng.choice(files_of(root, "consumequeue"))
    at = rng.randrange(path.stat().st_size // 20) * 20
    change(path, at, bytes(path.stat().st_size - at))


def _a_file_gone(rng: random.Random, root: Path) -> None:
    path = rng.choice(files_of(root, "consumequeue"))
    rng.choice((path.unlink, lambda: shutil.rmtree(path.parent), lambda: shutil.rmtree(path.parent.parent)))()


def _a_file_more(rng: random.Random, root: Path) -> None:
    path = rng.choice(files_of(root, "consumequeue"))
    last = max(path.parent.iterdir())
    shutil.copy2(path, last.with_name(f"{int(last.name) + last.stat().st_size:020d}"))


def _a_queue_more(rng: random.Random, root: Path) -> None:
    path = rng.choice(files_of(root, "consumequeue"))
    shutil.copytree(path.parent, path.parent.with_name("7"), dirs_exist_ok=True)


def _another_checkpoint(_rng: random.Random, root: Path) -> None:
    for path in root.glob("checkpoint*"):
        path.unlink()


def _bits_of_the_file(rng: random.Random, root: Path) -> None:
    data = bytearray((root / ENDS).read_bytes())
    data[rng.randrange(len(data) - 1)] ^= 1 << rng.randrange(8)
    (root / ENDS).write_bytes(data[:rng.choice((len(data), len(data), rng.randrange(len(data))))])


def _end_of_the_log(rng: random.Random, root: Path) -> None:
    change(files_of(root, "commitlog")[-1], 4, rng.choice((bytes(4), rng.randbytes(4))))


def _touched(rng: random.Random, root: Path) -> None:
    os.utime(rng.choice(files_of(root, "consumequeue")))


CHANGES = (_a_file_cut, _a_file_written, _a_file_gone, _a_file_more, _a_queue_more, _another_checkpoint,
           _bits_of_the_file, _end_of_the_log, _touched)


def _keys(rng: random.Random, maker: LogMaker) -> dict[str, Any]:
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": maker.file_size, "maxHashSlotNum": 7, "maxIndexNum": 1000,
                            "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000))}
    if rng.random() < 0.3:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    if rng.random() < 0.3:
        keys["brokerRole"] = BrokerRole.SLAVE
    return keys


def _opened(root: Path, keys: dict[str, Any], expire: bool) -> dict[str, Any]:
    """Return the state of a store after a start and some more messages."""
    found: dict[str, Any] = {"loaded": False}
    with contextlib.suppress(AssertionError), loaded_store(root, **keys) as store:
        # Reported by both. The queues' maps are left out: a start that uses the noted ends does not open them.
        found = {"loaded": True, "state": queue_state(store), "table": dict(store.commit_log.topic_queue_table),
                 "end": store.get_max_phy_offset(), "dispatched": store.store_checkpoint.dispatched,
                 "logics": store.consume_queue_table.max_physic_offset()}
        dispatch_rest(store)
        if expire and len(store.commit_log.mapped_file_queue.mapped_files) > 1:
            store.commit_log.mapped_file_queue.delete_expired_file_by_time(0, 0, 0, True)
            store.clean_consume_queue_service.run()
        found["read"] = {f"{queue.topic}-{queue.queue_id}": [
            queue.get_unit(index) for index in range(
                max(queue.get_min_offset_in_queue(), queue.get_max_offset_in_queue() - _READ),
                queue.get_max_offset_in_queue())]
            for queue in store.all_consume_queues()}
        found["behind"] = queue_state(store)
    return found


def _compare_ends(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    maker = LogMaker(rng, rng.choice((4096, 8192)), rng.choice((0, 0, 0.1)), rng.choice((0, 300)))
    keys = _keys(rng, maker)
    maker.add(rng.choice((0, 5, 60, 120)))
    expire, lies = rng.random() < 0.3, rng.choice((0, 1, 1, 2))
    believed = ConsumeQueueTable._take

    def take(self: ConsumeQueueTable, noted: store_marks.QueueEnds) -> bool:
        done = believed(self, noted)
        taken[FAST if done else PLAIN] += 1
        return done

    with scratch() as root, mock.patch.object(ConsumeQueueTable, "_take", take):
        write_store(rng, root / "written", maker, True, **keys)
        for _ in range(lies):
            if files_of(root / "written", "consumequeue") and (root / "written" / ENDS).exists():
                with contextlib.suppress(FileNotFoundError):
                    rng.choice(CHANGES)(rng, root / "written")
        found = []
        for noted in (True, False):
            shutil.copytree(root / "written", root / "store")
            if not noted:
                (root / "store" / ENDS).unlink(missing_ok=True)
            with counting(taken, *([] if noted else [(ConsumeQueueTable, "_load_folders", PLAIN)])):
                found.append(_opened(root / "store", keys, expire))
            found[-1]["files"] = store_files(root / "store")
            # Files that were checked before the flaw was found are rebuilt in the end.
            if not found[-1]["loaded"]:
                found[-1]["files"] = found[-1]["files"]["log"]
            shutil.rmtree(root / "store")
        same(*found, "opened")
    return taken


def _asks_no_file(self: MappedFileQueue, first: int, mtimes: list[int], end: int) -> None:
    with mock.patch("rmqha.store.mapped_file_queue.check_mtime"):
        _TAKE_FILES(self, first, mtimes, end)


def _at_the_file_end(self: MappedFileQueue, first: int, mtimes: list[int], end: int) -> None:
    _TAKE_FILES(self, first, mtimes, end)
    if self.mapped_files and end % self.mapped_file_size == 20:
        self.mapped_files[-1].set_positions(self.mapped_file_size)


def _further_on(queue: ConsumeQueue, log_min_offset: int) -> Any:
    noted = _NOTED_END(queue, log_min_offset)
    return noted and noted._replace(max_physic_offset=noted.max_physic_offset + 1)


_TAKE_FILES, _NOTED_END = MappedFileQueue.take_files, consume_queue_table.noted_end

NOTED_ENDS = Way(
    name="store: queue ends noted at a clean stop",
    where="rmqha/store/store_marks.py::read",
    condition="the last stop was clean, and no folder or file of a queue was changed after it",
    plain="the files of each queue are scanned",
    compare=_compare_ends,
    plants=(
        Plant("the files' times are not checked", replaced(MappedFileQueue, "take_files", _asks_no_file)),
        Plant("a file with one unit counts as full", replaced(MappedFileQueue, "take_files", _at_the_file_end)),
        Plant("a queue's last record is noted to end later", replaced(consume_queue_table, "noted_end", _further_on)),
    ),
    seeds=30,
)

WAYS = [NOTED_ENDS]


# Fast paths of reading consume queues: bisection, and maps that go and come back.

# Bisection.

def _some_units(rng: random.Random) -> tuple[bytes, int]:
    """Return units as in a queue's file, and their number without the trailing zeros: their log offsets grow, and
    some point to no record."""
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
    """Return an offset of the log, mostly that of a unit or close to it."""
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
    condition="always, but recovery checks the last 4,096 (_UNITS_LOOKED_AT) known units one by one",
    plain="each unit is checked; only the test does so for all units",
    compare=_compare_bisection,
    plants=(
        Plant("units after the last complete block are not counted",
              replaced(consume_queue_layout, "count_valid_units", _valid_but_the_last_block)),
        Plant("units without a record count with their own offset",
              replaced(consume_queue_layout, "first_unit_at", _goes_by_the_blank)),
        Plant("a record that ends at the offset counts as beyond it",
              replaced(consume_queue_layout, "first_unit_behind",
                       lambda units, place, real=consume_queue_layout.first_unit_behind: real(units, place - 1))),
    ),
    seeds=40,
)


# Maps.

class _Queues:
    """One case: the same calls for the queues of two stores, of which one keeps all maps."""

    def __init__(self, rng: random.Random, stores: list[Any]) -> None:
        self.rng, self.stores, self.log_end = rng, stores, 0
        # Regions that readers hold, and the bytes that must stay in them.
        self.held: list[tuple[Any, bytes]] = []
        self.ends: Counter[int] = Counter()

    def put(self) -> None:
        """Put a run of units."""
        number, count = self.rng.randrange(4), self.rng.choice((1, 2, 7, 30))
        units = b"".join(pack_unit(self.log_end + 100 * each, 100, each) for each in range(count))
        self.log_end += 100 * count
        for store in self.stores:
            assert store.consume_queue_table.find_queue("T", number).put_units(self.ends[number], memoryview(units))
        self.ends[number] += count

    def read(self) -> None:
        """Read some units; the reader may keep them."""
        number = self.rng.randrange(4)
        index = self.rng.randint(0, self.ends[number])
        found = [store.consume_queue_table.find_queue("T", number).get_index_buffer(index) for store in self.stores]
        same(*[None if each is None else bytes(each.buffer) for each in found], f"units of {number} from {index} on")
        keeps = self.rng.random() < 0.5
        for each in found:
            if each is not None and keeps:
                self.held.append((each, bytes(each.buffer)))
            elif each is not None:
                each.release()

    def flush(self) -> None:
        """Flush, including bytes that were written through a map that is gone."""
        for store in self.stores:
            store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)

    def expire(self) -> None:
        """Delete the first files."""
        place = self.rng.randint(0, self.log_end)
        same(*[[queue.delete_expired_file(place) for queue in store.all_consume_queues()] for store in self.stores],
             "deleted")

    def make_room(self) -> None:
        """Act as if the system refused another map."""
        self.stores[0].map_keeper.make_room()

    def release(self) -> None:
        """Let the oldest reader release its region."""
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
    # A copy, so that writes to it are lost.
    return memoryview(bytearray(real(self)))


def _begins_again(self: MappedFile, real: Any = MappedFile.drop_map) -> None:
    real(self)
    self.wrote_position = self.wrote_position // 60 * 60


MAPS = Way(
    name="store: maps of idle queues",
    where="rmqha/store/mapped_file_queue.py::MapKeeper",
    condition="more files of queues are in use than half of the maps or descriptors that the process may have",
    plain="each file keeps its map",
    compare=_compare_maps,
    plants=(
        Plant("a file is mapped again as a copy", replaced(MappedFile, "_map_again", _a_new_map)),
        Plant("unwritten bytes are lost with the map", replaced(MappedFile, "drop_map", _begins_again)),
    ),
    seeds=20,
)

WAYS += [BISECTION, MAPS]


# Fast paths of dispatch: spans instead of records, and another thread that scans ahead.

_Ways = Callable[[], dict[str, int]]
"""Draws thresholds of the service for one dispatch."""


class _Listener(MessageArrivingListener):
    """Waits for some queues, and records its notifications by queue."""

    def __init__(self, queues: set[tuple[str, int]]) -> None:
        self.queues = queues
        self.told: dict[tuple[str, int], list[Any]] = defaultdict(list)

    def is_waiting(self, topic: str, queue_id: int) -> bool:
        return (topic, queue_id) in self.queues

    def arriving(self, topic: str, queue_id: int, *rest: object) -> None:
        self.told[topic, queue_id].append(rest)


class _Side:
    """One of the two stores, and how it dispatches."""

    def __init__(self, store: DefaultMessageStore, listener: _Listener, draw_ways: _Ways) -> None:
        self.store, self.listener, self.draw_ways = store, listener, draw_ways
        self.service = store.reput_message_service
        self.says_places = True  # all records contain their place

    def append(self, data: bytes | bytearray, begin: int, end: int) -> None:
        """Append a piece of the log, in which a file may end."""
        while begin < end:
            stop = min(end, self.store.commit_log.roll_next_file(begin))
            assert self.store.append_to_commit_log(begin, data, begin, stop - begin)
            begin = stop

    def dispatch(self, after: int = -1, act: Callable[[], object] | None = None) -> None:
        """Dispatch the available records. `act` runs before span or round number `after`; by default it stops, as
        the service does when its role changes."""
        with lowered(reput_message_service, **self.draw_ways()), self._acting(after, act or self.service.make_stop):
            limit = self.service._limit()
            self.service.do_reput()
            assert not self.says_places or all(queue.max_physic_offset <= limit
                                               for queue in self.store.all_consume_queues()), limit

    @contextlib.contextmanager
    def _acting(self, after: int, act: Callable[[], object]) -> Iterator[None]:
        real = ReputMessageService._dispatch_span
        left = [after]

        def dispatch_span(service: ReputMessageService, *args: Any) -> int:
            left[0] -= 1
            if left[0] == 0:
                act()
            return real(service, *args)

        try:
            with mock.patch.object(ReputMessageService, "_dispatch_span", dispatch_span):
                yield
        finally:
            self.service._stopped = False

    def delete(self, topic: str, after: int) -> None:
        """Delete a topic, perhaps during a dispatch, which then removes its queues between two records."""
        def act() -> None:
            with mock.patch.object(self.service, "run_between_records", self.service._between.append):
                self.store.delete_topic(topic)

        if after:
            self.dispatch(after, act)
        if topic not in self.store.deleted_topics.marks:
            self.store.delete_topic(topic)

    def built(self, root: Path) -> dict[str, Any]:
        """Return everything that dispatch has written."""
        stats, files = self.store.store_stats_service, tree(root)
        queues = [queue for queue in self.store.all_consume_queues() if queue.mapped_file_queue.mapped_files]
        return {"queues": {path: data for path, data in files.items() if path.startswith("consumequeue/")},
                "index": [data for path, data in files.items() if path.startswith("index/")],
                "ends": {f"{queue.topic}-{queue.queue_id}": (
                    queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(), queue.is_dirty)
                    for queue in queues},
                "dispatched": self.store.store_checkpoint.dispatched_timestamp,
                "came to": self.service.reput_from_offset,
                "counted": (dict(stats.put_message_topic_times_total), dict(stats.put_message_topic_size_total)),
                "flags": (self.store.running_flags.is_writeable, self.store.running_flags.is_cq_writeable)}


class _Case:
    """One log for two stores: its pieces, deletions and truncations at the same places, and dispatch at any time."""

    def __init__(self, rng: random.Random, sides: tuple[_Side, _Side], maker: LogMaker, is_slave: bool,
                 together: bool) -> None:
        self.rng, self.sides, self.maker = rng, sides, maker
        self.is_slave, self.together = is_slave, together
        self.at = 0  # the end of the log that the stores have
        self.may_delete = rng.random() < 0.3
        self.has_cut = False
        for side in sides:
            side.says_places = not maker.odd

    def more(self) -> None:
        """Append some more records, in pieces; a slave gets them cut anywhere."""
        rng, maker = self.rng, self.maker
        maker.add(rng.choice((1, 2, 5, 20, 60)))
        ends = [record.offset + record.size for record in maker.records if record.offset + record.size > self.at]
        places = [rng.randrange(self.at, len(maker.data)) for _ in range(rng.choice((0, 1, 4)))] if self.is_slave \
            else rng.sample(ends, min(len(ends), rng.choice((0, 1, 4))))
        for begin, end in cuts(maker.data, [self.at, *places]):
            if end <= self.at:
                continue
            for side in self.sides:
                side.append(maker.data, begin, end)
            self.at = end
            self._dispatch()

    def _dispatch(self) -> None:
        if self.together:
            moments = [self.rng.random() < 0.5] * 2
        else:
            moments = [self.rng.random() < 0.4, self.rng.random() < 0.9]
        for side, is_due in zip(self.sides, moments):
            if is_due:
                side.dispatch()

    def flush(self) -> None:
        """Flush, so that the flushed records may be dispatched."""
        for side in self.sides:
            side.store.flush()

    def cut(self) -> None:
        """Change the role: records at the end are replaced by others, perhaps during a dispatch."""
        rng, service = self.rng, self.sides[0].service
        if not self.maker.records:
            return
        self.sides[0].dispatch(rng.randint(1, 6))
        places = [record.offset for record in self.maker.records[-30:]]
        offset = service.reput_from_offset if service.reput_from_offset in places and rng.random() < 0.5 \
            else rng.choice(places)
        for side in self.sides:
            side.store.truncate_dirty_files(offset)
        self.maker.cut(offset, self.sides[0].store.deleted_topics.marks)
        self.at, self.has_cut = offset, True
        # Sometimes the replacing records have the same size.
        if rng.random() < 0.5:
            self.maker.rng = random.Random(0)

    def delete(self) -> None:
        """Delete a topic; its next message is its first again."""
        if not self.may_delete:
            return
        left = [topic for topic in TOPICS if topic not in self.sides[0].store.deleted_topics.marks]
        if left:
            topic = self.rng.choice(left)
            self.sides[0].delete(topic, self.rng.choice((0, 1, 2, 4)) if not self.together else 0)
            self.sides[1].delete(topic, 0)
            for key in [key for key in self.maker.next_offsets if key[0] == topic.encode()]:
                del self.maker.next_offsets[key]

    def compare(self, roots: list[Path]) -> None:
        """Compare both stores after everything is dispatched."""
        self.flush()
        for side in self.sides:
            side.dispatch()
        found = [side.built(root) for side, root in zip(self.sides, roots)]
        # Records without a unit may differ, also those whose unit is gone.
        if self.may_delete or self.maker.odd or self.has_cut:
            for each in found:
                del each["dispatched"]
        # Truncated records were counted, and reported, where they were dispatched.
        if self.has_cut:
            for each in found:
                del each["counted"]
        same(found[0], found[1], "built")
        with_unit = {record.store_timestamp for record in self.maker.records if record.has_unit}
        told = [{queue: [each for each in told if each[2] in with_unit] for queue, told in side.listener.told.items()}
                # The notification of a record without a unit is not needed.
                for side in self.sides]
        same(*[{queue: entries for queue, entries in each.items() if entries} for each in told], "told")


def _single() -> dict[str, int]:
    return {"BULK_BYTES": NEVER, "_AHEAD_BYTES": NEVER}


def _spans(rng: random.Random) -> dict[str, int]:
    return {"BULK_BYTES": rng.choice((1, 1, 200, 2048, NEVER)), "_AHEAD_BYTES": NEVER}


def _ahead(rng: random.Random) -> dict[str, int]:
    return {"BULK_BYTES": rng.choice((1, 1, 200)), "_AHEAD_BYTES": rng.choice((1, 1, 4000, NEVER))}


def _compare(rng: random.Random, counted: list[tuple[object, str, str]], fast: _Ways, plain: _Ways,
             truncates: bool) -> Counter[str]:
    taken: Counter[str] = Counter()
    is_slave, together, odd = rng.random() < 0.4, rng.random() < 0.5, rng.choice((0, 0, 0.1, 0.5))
    if truncates:
        together, odd = False, 0
    maker = LogMaker(rng, rng.choice((5000, 16384)), odd if together else odd * 0.2, rng.choice((0, 300, 2500)),
                     # A truncation keeps one of two equal keys of a record.
                     repeats=not truncates)
    keys: dict[str, Any] = {
        "mappedFileSizeCommitLog": maker.file_size, "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000)),
        "maxHashSlotNum": rng.choice((3, 50)), "maxIndexNum": rng.choice((5, 40, 1000)),
        "messageIndexEnable": rng.random() < 0.9, "preallocateMappedFile": rng.random() < 0.5,
        "dispatchBehindFlush": rng.random() < 0.3}
    if rng.random() < 0.4:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    if is_slave:
        keys["brokerRole"] = BrokerRole.SLAVE
    queues = {(topic, queue_id) for topic in TOPICS for queue_id in range(3) if rng.random() < 0.3}
    with scratch() as root, lowered(span_dispatcher, SPAN_RECORDS=rng.choice((1, 3, 20, 1 << 15))), \
            lowered(reput_message_service, usable_cores=lambda: 2), \
            counting(taken, *counted), contextlib.ExitStack() as stack:
        sides = []
        for name, draw_ways in (("fast", fast), ("plain", plain)):
            listener = _Listener(queues)
            sides.append(_Side(stack.enter_context(loaded_store(root / name, listener, **keys)), listener, draw_ways))
        case = _Case(rng, (sides[0], sides[1]), maker, is_slave, together)
        for _ in range(rng.randint(1, 6)):
            case.more()
            if truncates:
                rng.choice((case.cut, case.cut, case.delete, case.flush, case.flush))()
            elif rng.random() < 0.4:
                rng.choice((case.delete, case.flush))()
        case.compare([root / "fast", root / "plain"])
    return taken


def _compare_spans(rng: random.Random) -> Counter[str]:
    counted: list[tuple[object, str, str]] = [
        (RecordDispatcher, "dispatch_span", FAST), (RecordDispatcher, "do_dispatch", PLAIN)]
    return _compare(rng, counted, partial(_spans, rng), _single, False)


def _compare_ahead(rng: random.Random) -> Counter[str]:
    counted: list[tuple[object, str, str]] = [(WorkAhead, "begin", FAST), (ReputMessageService, "_scan", PLAIN)]
    return _compare(rng, counted, partial(_ahead, rng), rng.choice((_single, partial(_spans, rng))), True)


# Faults.

def _to_the_neighbouring_queue(self: RecordDispatcher, span: Span, run: Run, units: memoryview,
                               real: Any = RecordDispatcher._put_run) -> bool:
    first = span.runs[0]
    return bool(real(self, span, run._replace(queue_id=first.queue_id) if run.topic == first.topic else run, units))


def _without_the_last_run(self: RecordDispatcher, span: Span, real: Any = RecordDispatcher.dispatch_span) -> None:
    real(self, span._replace(runs=span.runs[:-1]) if len(span.runs) > 3 else span)


def _all_of_them(self: ConsumeQueue, index: int, units: memoryview, real: Any = ConsumeQueue._put_block) -> int:
    size = int(real(self, index, units))
    if size:
        offset, record_size, _ = unpack_unit(units, len(units) - CQ_STORE_UNIT_SIZE)
        self.max_physic_offset = offset + record_size
    return size


def _in_a_full_file(_self: IndexService, index_file: Any, rows: bytes, first: int) -> None:
    if index_file is not None:
        index_file.put_key_rows(rows, first)


def _not_of_the_last(self: ReputMessageService, listener: Any, span: Span, result: SelectMappedBufferResult,
                     real: Any = ReputMessageService._notify_of_span) -> None:
    real(self, listener, span._replace(records=span.records[:RECORD.size * max(1, span.count - 1)]), result)


def _kept_for_a_place(self: ReputMessageService, buffer: memoryview, position: int, size: int, start: int) -> Span:
    # Keyed by log offset; entries are never discarded.
    found: dict[int, Span] = self.__dict__.setdefault("kept", {})
    span = found.pop(start + position, None) or self._dispatcher.scan(buffer, position, size, start)
    if span.stop is Stop.LIMIT:
        found[start + span.position] = self._dispatcher.scan(buffer, span.position, size, start)
    return span


def _up_to_the_end_of_the_file(self: ReputMessageService, result: SelectMappedBufferResult, position: int, size: int,
                               work: WorkAhead, real: Any = ReputMessageService._dispatch_span) -> int:
    return int(real(self, result, position, result.size if work.threads else size, work))


SPANS = Way(
    name="store: spans in dispatch",
    where="rmqha/store/reput_message_service.py::ReputMessageService._dispatch_span",
    condition="2 KiB (BULK_BYTES) or more to dispatch, the bulk kernel is compiled, no unusual option is on",
    plain="record by record",
    compare=_compare_spans,
    plants=(
        Plant("units go to the neighbouring queue", replaced(RecordDispatcher, "_put_run", _to_the_neighbouring_queue)),
        Plant("the last run is left out", replaced(RecordDispatcher, "dispatch_span", _without_the_last_run)),
        Plant("units that do not fit into the queue's file count as put",
              replaced(ConsumeQueue, "_put_block", _all_of_them)),
        Plant("keys after a full index file are lost", replaced(IndexService, "_put_rows", _in_a_full_file)),
        Plant("a span's last record is not announced",
              replaced(ReputMessageService, "_notify_of_span", _not_of_the_last)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=24,
)
SCAN_AHEAD = Way(
    name="store: a thread that scans ahead",
    where="rmqha/store/reput_message_service.py::ReputMessageService._scan",
    condition="16 MiB (_AHEAD_BYTES) or more of a file to dispatch, and two cores",
    plain="scanning and dispatching alternately",
    compare=_compare_ahead,
    plants=(
        Plant("scanned records outlive a truncation", replaced(ReputMessageService, "_scan", _kept_for_a_place)),
        Plant("records that may not be dispatched yet are scanned too",
              replaced(ReputMessageService, "_dispatch_span", _up_to_the_end_of_the_file)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS += [SPANS, SCAN_AHEAD]
