"""Fast ways of opening and reading consume queues: noted ends, bisection, maps that go and come back."""
from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.store import consume_queue_table, store_marks
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.message_store_config import BrokerRole
from tests.fast_ways.support_store import counting, loaded_store, same, scratch
from tests.fast_ways.support_store_files import change, dispatch_rest, files_of, queue_state, store_files, write_store
from tests.fast_ways.support_store_log import LogMaker
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, replaced

ENDS = "consumequeue.ends"
_READ = 200  # the last units of a queue; one that begins with a wrong index seems to have very many


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
    """What a start makes of a store, with some messages more."""
    found: dict[str, Any] = {"loaded": False}
    with contextlib.suppress(AssertionError), loaded_store(root, **keys) as store:
        # told by both, and not opened by those who believe: the queues' maps
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
            if not found[-1]["loaded"]:  # what was looked at before the flaw was seen is rebuilt in the end
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
    condition="the last stop was clean, and no folder or file of a queue was changed since",
    plain="the files of each queue are looked at",
    compare=_compare_ends,
    plants=(
        Plant("files are not asked when they were changed", replaced(MappedFileQueue, "take_files", _asks_no_file)),
        Plant("a file with one unit counts as full", replaced(MappedFileQueue, "take_files", _at_the_file_end)),
        Plant("a queue's last record is noted to end later", replaced(consume_queue_table, "noted_end", _further_on)),
    ),
    seeds=30,
)

WAYS = [NOTED_ENDS]
