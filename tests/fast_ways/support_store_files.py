"""Stores that lie still, and what may happen to their files meanwhile."""
from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_consume_queue_service import RETRY_TIMES_OVER
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.store_life import first_offset
from tests.fast_ways.support_store import loaded_store
from tests.fast_ways.support_store_log import LogMaker
from tests.store.support import tree


def write_store(rng: random.Random, root: Path, maker: LogMaker, clean: bool, **keys: Any) -> None:
    """A store with the log of `maker` that has run, dispatched and stopped: well, or by a crash.

    A slave may have a part of a record at its end. What a crash leaves may not be dispatched to the end.
    """
    with loaded_store(root, **keys) as store:
        end = len(maker.data)
        if keys.get("brokerRole") is BrokerRole.SLAVE and rng.random() < 0.3 and end:
            end = rng.randrange(end)
        begin = 0
        while begin < end:
            stop = min(end, store.commit_log.roll_next_file(begin))
            assert store.append_to_commit_log(begin, maker.data, begin, stop - begin)
            begin = stop
            if rng.random() < 0.3:
                store.reput_message_service.do_reput()
                store.flush()
                store.flush_consume_queue_service.do_flush(RETRY_TIMES_OVER)
        if clean or rng.random() < 0.7:
            store.reput_message_service.do_reput()
        if clean:
            store.shutdown()
            assert store.shut_down_normal
    if not clean:
        (root / "abort").touch()


def files_of(root: Path, folder: str) -> list[Path]:
    """All files below a folder of a store, in order."""
    return sorted(path for path in (root / folder).rglob("*") if path.is_file())


def change(path: Path, position: int, data: bytes) -> None:
    """Write to a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def _some_bytes(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Of a record of the last files, other ones; or nothing, as when a page never came to the disk."""
    if not maker.records:
        return
    record = rng.choice(maker.records[-rng.choice((3, 40, 200)):])
    at = record.offset + rng.choice((rng.randrange(record.size), rng.randrange(90), record.size - 1))
    size = rng.choice((1, 1, 2, 40))
    data = rng.choice((rng.randbytes(size), bytes(size), bytes(512 - at % 512)))
    path = root / "commitlog" / f"{at // maker.file_size * maker.file_size:020d}"
    with suppress(FileNotFoundError):
        change(path, at % maker.file_size, data[:maker.file_size - at % maker.file_size])


def _body(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """A byte of one of the last bodies is another."""
    bodies = [record.body for record in maker.records[-40:] if record.body]
    if bodies:
        at = rng.choice(rng.choice(bodies))
        path = root / "commitlog" / f"{at // maker.file_size * maker.file_size:020d}"
        with suppress(FileNotFoundError):
            change(path, at % maker.file_size, bytes((maker.data[at] ^ 0x40,)))


def _no_blank(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """At the end of a file."""
    path = rng.choice(files_of(root, "commitlog") or [None])  # type: ignore[list-item]
    if path is not None and maker.records:
        begin = int(path.name)
        end = max([record.offset + record.size - begin for record in maker.records
                   if begin <= record.offset < begin + maker.file_size], default=0)
        change(path, min(end, maker.file_size - 8), rng.choice((bytes(8), rng.randbytes(8))))


def _behind_the_end(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Something lies behind the log's end."""
    files = files_of(root, "commitlog")
    at = len(maker.data) % maker.file_size
    if files and at < maker.file_size - 100:
        change(files[-1], at, rng.randbytes(rng.choice((1, 4, 90))))


def _queues(rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """A queue, some units of it, or all queues are gone."""
    files = files_of(root, "consumequeue")
    if not files:
        return
    path, kind = rng.choice(files), rng.randrange(5)
    if kind == 0:
        shutil.rmtree(root / "consumequeue")
    elif kind == 1:
        shutil.rmtree(path.parent)
    elif kind == 2:
        path.unlink()
    else:
        at = rng.randrange(path.stat().st_size // 20) * 20 + rng.choice((0, 0, 3))
        change(path, at, bytes(path.stat().st_size - at) if kind == 3 else rng.randbytes(1))


def _index(rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """Its last file, or all of it, is gone."""
    files = files_of(root, "index")
    for path in files[-rng.choice((1, len(files) or 1)):]:
        path.unlink()


def _last_file(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """Of the log: nothing in it, or gone."""
    files = files_of(root, "commitlog")
    if files:
        files[-1].write_bytes(bytes(maker.file_size)) if rng.random() < 0.5 else files[-1].unlink()


def _checkpoint(_rng: random.Random, root: Path, _maker: LogMaker) -> None:
    """Nobody knows what was on the disk."""
    for path in root.glob("checkpoint*"):
        path.unlink()


DAMAGES: tuple[Callable[[random.Random, Path, LogMaker], None], ...] = (
    _some_bytes, _some_bytes, _body, _body, _no_blank, _behind_the_end, _queues, _queues, _index, _last_file,
    _checkpoint)


def damage(rng: random.Random, root: Path, maker: LogMaker) -> None:
    """None, or some of these."""
    if rng.random() < 0.3:
        _body(rng, root, maker)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        rng.choice(DAMAGES)(rng, root, maker)


def dispatch_rest(store: DefaultMessageStore) -> None:
    """What a start does next."""
    reput = store.reput_message_service
    reput.reput_from_offset = first_offset(store.commit_log, store.consume_queue_table, reput)
    reput.do_reput()


def store_files(root: Path) -> dict[str, Any]:
    """Log, queues and index; the names of index files tell the time."""
    files = tree(root)
    return {"log": {path: data for path, data in files.items() if path.startswith("commitlog/")},
            "queues": {path: data for path, data in files.items() if path.startswith("consumequeue/")},
            "index": [data for path, data in files.items() if path.startswith("index/")]}


def queue_state(store: DefaultMessageStore) -> dict[str, Any]:
    """All that a queue's next message and its readers go by."""
    return {f"{queue.topic}-{queue.queue_id}": (
        queue.max_physic_offset, queue.min_logic_offset, queue.get_max_offset_in_queue(),
        queue.mapped_file_queue.flushed_where, queue.mapped_file_queue.committed_where,
        [(file.file_from_offset, file.wrote_position, file.committed_position, file.flushed_position)
         for file in queue.mapped_file_queue.mapped_files]) for queue in store.all_consume_queues()}
