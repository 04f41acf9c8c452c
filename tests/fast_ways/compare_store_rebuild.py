"""Fast way of the tools: the records of a block at once, where a rebuild or a check goes over a log."""
from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

from rmqha.store import store_path_config_helper as paths
from rmqha.store.bulk import bulk
from rmqha.store.bulk.bulk_layout import Span
from rmqha.tools.store_files import builders, reading, rebuild
from rmqha.tools.store_files.builders import IndexBuilder, QueueBuilder
from rmqha.tools.store_files.readers import StoreReader
from rmqha.tools.store_files.reading import RunOfUnits
from rmqha.tools.store_files.rebuild import Rebuild
from rmqha.tools.store_files.verify import LogCheck, Verification
from rmqha.tools.terminal import CannotAnswerError
from tests.fast_ways.support_store import counting, same, scratch
from tests.fast_ways.support_store_files import damage, write_store
from tests.fast_ways.support_store_log import TOPICS, LogMaker
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced
from tests.store.support import tree


def _rebuilt(root: Path, target: Path | None, with_index: bool, queue_file_size: int) -> dict[str, Any]:
    """What a rebuild says, and writes when it has a target."""
    try:
        done = Rebuild(StoreReader(str(root)), str(target) if target else None, skip_damage=True,
                       queue_file_size=queue_file_size, with_index=with_index).run()
    except CannotAnswerError as error:
        return {"refused": str(error)}
    said = asdict(done)
    for built in said["index"] if target else ():
        del built["name"]  # the time
    files = tree(target) if target else {}
    return {"said": said, "queues": {path: data for path, data in files.items() if path.startswith("consumequeue")},
            "index": [data for path, data in sorted(files.items()) if path.startswith("index")]}


def _compare(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    maker = LogMaker(rng, rng.choice((4096, 16384)), rng.choice((0, 0, 0.1, 0.6)), rng.choice((0, 300, 1000)))
    keys: dict[str, Any] = {
        "mappedFileSizeCommitLog": maker.file_size, "mappedFileSizeConsumeQueue": rng.choice((60, 200, 1000)),
        "maxHashSlotNum": rng.choice((3, 50)), "maxIndexNum": rng.choice((40, 1000))}
    if rng.random() < 0.3:
        keys |= {"enableLmq": True, "enableMultiDispatch": True}
    maker.add(rng.choice((1, 20, 60, 120)))
    real = Rebuild._take

    def take(self: Rebuild, span: Span) -> bool:
        done = real(self, span)
        taken[FAST] += done and span.count > 0
        return done

    with scratch() as root, contextlib.ExitStack() as stack:
        write_store(rng, root / "store", maker, rng.random() < 0.8, **keys)
        damage(rng, root / "store", maker)
        if rng.random() < 0.3:
            os.makedirs(root / "store" / "config", exist_ok=True)
            marks = {rng.choice(TOPICS): rng.choice(maker.records).offset for _ in range(2)}
            Path(paths.get_deleted_topics_path(str(root / "store"))).write_text(json.dumps({"deletedTopics": marks}))
        stack.enter_context(lowered(reading, BLOCK=rng.choice((600, 3000, 1 << 20))))
        stack.enter_context(lowered(builders, _WINDOW=rng.choice((3, 70))))
        stack.enter_context(lowered(rebuild, _BUFFERS=rng.choice((60, 1000, 1 << 20))))
        with_target, with_index, verifies = rng.random() < 0.6, rng.random() < 0.8, rng.random() < 0.4
        found = []
        for way in ("fast", "plain"):
            with mock.patch.object(Rebuild, "_take", take), counting(
                    taken, (Rebuild, "_record", PLAIN), (LogCheck, "_record", PLAIN)), \
                    lowered(bulk, is_compiled=lambda fast=way == "fast": fast):
                target = root / way if with_target else None
                found.append(_rebuilt(root / "store", target, with_index, keys["mappedFileSizeConsumeQueue"]))
                if verifies:
                    found[-1]["verified"] = str(Verification(StoreReader(str(root / "store")), limit=50).run().__dict__)
        same(*found, "rebuild")
    return taken


def _of_the_first_queue(span: Span, real: Any = rebuild.runs_of) -> list[RunOfUnits] | None:
    runs = real(span)
    return runs and [run._replace(queue_id=runs[0].queue_id) if run.topic == runs[0].topic else run for run in runs]


def _without_the_last_key(self: IndexBuilder, rows: bytes, real: Any = IndexBuilder.put_rows) -> None:
    real(self, rows[:-24] if len(rows) > 24 * 8 else rows)


def _counts_one_less(self: QueueBuilder, index: int, units: bytes, real: Any = QueueBuilder.put_run) -> None:
    real(self, index, units)
    if self.next_index % 3 == 0:
        self.next_index -= 1


REBUILD = Way(
    name="store: rebuild and verify in bulk",
    where="rmqha/tools/store_files/reading.py::SpanTaker",
    condition="the bulk kernel is compiled, and the units of a block go on where their queues ended",
    plain="record by record",
    compare=_compare,
    plants=(
        Plant("units go to the neighbouring queue", replaced(rebuild, "runs_of", _of_the_first_queue)),
        Plant("deletions are not asked for", replaced(rebuild, "has_dead", lambda _runs, _marks: False)),
        Plant("the last key of a block is lost", replaced(IndexBuilder, "put_rows", _without_the_last_key)),
        Plant("a run counts one unit too few", replaced(QueueBuilder, "put_run", _counts_one_less)),
    ),
    needs=("rmqha.native._bulk",),
    seeds=30,
)
WAYS = [REBUILD]
