"""Fast ways of putting: rows that came together with one call, and the compiled kernels beside their twins."""
from __future__ import annotations

import contextlib
import importlib
import random
from collections import Counter
from functools import partial
from typing import Any
from unittest import mock

from rmqha.common.message.message_decoder import message_properties2string
from rmqha.common.message.message_layout import body_crc32
from rmqha.store import append, commit_log
from rmqha.store.append import MessageExtBrokerInner, MessageRow, PutMessageContext, Records
from rmqha.store.commit_log import CommitLog
from rmqha.store.default_message_store import DefaultMessageStore
from tests.fast_ways.support_store import counting, loaded_store, log_bytes, log_state, same, scratch, stopped_clock
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.fuzz.native_twins import TARGETS, Inputs
from tests.store.support import message

_HOSTS = (("10.1.2.3", 40000), ("2001:db8::7", 10911))
_WORDS = ("a", "TagA", "\u6807\u7b7e", "x" * 300, "with\0nul", "\0" * 1100, "")


def _some_message(rng: random.Random, room: int, file_size: int, store_host: tuple[str, int]) -> MessageExtBrokerInner:
    """Of any size; now and then one that just fits, or does not."""
    properties = {name: rng.choice(_WORDS) for name in rng.sample(("TAGS", "KEYS", "UNIQ_KEY", "k"), rng.randrange(4))}
    size = some_size(rng, (max(0, room - 150), file_size), rng.choice((100, file_size + 100)))
    msg = message(rng.choice(("T", "orders", "\u4e3b\u9898")), rng.choice((0, 0, 1, 2)), rng.randbytes(size))
    msg.properties = properties
    msg.properties_string = message_properties2string(properties)
    msg.born_host, msg.store_host = rng.choice(_HOSTS), store_host
    msg.flag = rng.choice((0, 7, -1, 2**31 - 1, 2**31))  # the last one has no room in its field
    msg.reconsume_times = rng.randrange(4)
    return msg


def _row_of(store: DefaultMessageStore, msg: MessageExtBrokerInner) -> MessageRow | None:
    """What the express lane makes of a send; None when the store takes no such message."""
    msg.body_crc = body_crc32(msg.body) if msg.body else 0
    commit_log._set_v6_flags(msg)
    row = store.commit_log.message_ext_encoder.encode(msg)
    return row if isinstance(row, MessageRow) else None


def _put_single(store: DefaultMessageStore, msg: MessageExtBrokerInner) -> tuple[Any, ...]:
    result = store.put_message(msg)
    appended = result.append_message_result
    if not result.is_ok or appended is None:
        return (result.put_message_status,)
    return appended.logics_offset, appended.wrote_offset, appended.wrote_bytes


def _put_together(store: DefaultMessageStore, messages: list[MessageExtBrokerInner]) -> list[tuple[Any, ...]]:
    """As the express lane: what is not taken together is put by itself."""
    found: list[tuple[Any, ...]] = []
    while len(found) < len(messages):
        rest = messages[len(found):]
        rows = [row for row in (_row_of(store, msg) for msg in rest) if row is not None]
        context = store.put_rows(rows, rest[0].store_host_bytes) if len(rows) == len(rest) else None
        if context is None:
            found.append(_put_single(store, rest[0]))
            continue
        store.count_rows(context)
        found += zip(context.queue_offsets, context.physical_offsets, [row.size for row in context.rows])
    return found


def _state(store: DefaultMessageStore) -> dict[str, Any]:
    log, stats = store.commit_log, store.store_stats_service
    return {"files": log_state(store), "next": dict(log.topic_queue_table), "unsure": list(log.unsure_ends),
            "uncommitted": list(log._uncommitted), "times": dict(stats.put_message_topic_times_total),
            "sizes": dict(stats.put_message_topic_size_total), "log": log_bytes(store)}


def _compare_rows(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    file_size = rng.choice((700, 2000, 16384, 16384, 1 << 20))
    keys: dict[str, Any] = {"mappedFileSizeCommitLog": file_size, "maxMessageSize": 4 << 20}
    if rng.random() < 0.2:
        keys |= {"transientStorePoolEnable": True, "transientStorePoolSize": 2}
    with scratch() as root, stopped_clock(), \
            counting(taken, (CommitLog, "put_rows", FAST), (CommitLog, "_put", PLAIN)), \
            loaded_store(root / "fast", **keys) as fast, loaded_store(root / "plain", **keys) as plain:
        for _ in range(rng.randint(1, 6)):
            end = fast.commit_log.mapped_file_queue.get_max_wrote_position()
            host, records = rng.choice(_HOSTS), commit_log.records_of_rows
            make = rng.choice((records, append.records_in_python))
            count, seed = rng.choice((1, 2, 5, 30)), rng.random()
            sides = []
            for _side in (0, 1):
                drawn = random.Random(seed)
                sides.append([_some_message(drawn, file_size - end % file_size, file_size, host)
                              for _ in range(count)])
            with lowered(commit_log, records_of_rows=make):
                together = _put_together(fast, sides[0])
            same(together, [_put_single(plain, msg) for msg in sides[1]], "results")
        for store in (fast, plain):
            while store.commit_log.remain_how_many_data_to_commit():
                store.commit_log.mapped_file_queue.commit(0)
        same(_state(fast), _state(plain), "state")
    return taken


def _fits_without_the_blank(self: PutMessageContext, room: int, real: Any = PutMessageContext.keep_what_fits) -> bool:
    return bool(real(self, room + 8))


def _first_of_each_queue(rows: list[MessageRow], total: int, table: dict[str, int], *rest: Any,
                         real: Any = append.records_of_rows) -> Records:
    queue_offsets, places, data, next_offsets, totals, nuls = real(rows, total, table, *rest)
    return (queue_offsets, places, data, {key: table.get(key, 0) + 1 for key in next_offsets}, totals, nuls)


def _one_total(rows: list[MessageRow], *rest: Any, real: Any = append.records_of_rows) -> Records:
    *others, totals, nuls = real(rows, *rest)
    return (*others, {rows[0].topic: (len(rows), sum(row.size for row in rows))} if totals else totals, nuls)


def _first_nul(rows: list[MessageRow], *rest: Any, real: Any = append.records_of_rows) -> Records:
    *others, nuls = real(rows, *rest)
    return (*others, nuls[:1] if nuls else nuls)


@contextlib.contextmanager
def _records_made_by(make: Any) -> Any:
    with lowered(commit_log, records_of_rows=make), lowered(append, records_in_python=make):
        yield


ROWS = Way(
    name="store: rows that came together",
    where="rmqha/store/commit_log.py::CommitLog.put_rows",
    condition="sends that need nothing but to be appended are read at once",
    plain="put_message of each",
    compare=_compare_rows,
    plants=(
        Plant("a row is taken into the room of the blank",
              replaced(PutMessageContext, "keep_what_fits", _fits_without_the_blank)),
        Plant("a queue counts one row of several", partial(_records_made_by, _first_of_each_queue)),
        Plant("all rows count for the first one's topic", partial(_records_made_by, _one_total)),
        Plant("only the first row with a NUL is noted", partial(_records_made_by, _first_nul)),
    ),
    seeds=24,
)


# The kernels.

def _compare_twins(source: str, rng: random.Random) -> Counter[str]:
    module, make = TARGETS[source]
    target, inputs = make(importlib.import_module(module)), Inputs(rng.randrange(1 << 32))
    for _ in range(60):
        target(inputs)
    calls = sum(count for outcome, count in inputs.outcomes.items() if outcome.endswith(": same"))
    return Counter({FAST: calls, PLAIN: calls})


@contextlib.contextmanager
def _changed(module: str, name: str, change: Any) -> Any:
    """A compiled function whose result is another now and then."""
    target = importlib.import_module(module)
    real = getattr(target, name)
    with mock.patch.object(target, name, lambda *args: change(args, real(*args))):
        yield


def _one_record_less(_args: Any, result: Any) -> Any:
    count, *rest = result
    return (count - (count > 2), *rest)


def _last_key_missing(_args: Any, result: Any) -> Any:
    *rest, keys = result
    return (*rest, keys[:-24])


def _one_index_further(args: Any, result: Any) -> Any:
    queue_offsets, *rest = result
    rows = args[0]
    return ([offset + (rows[number].sys_flag == 8) for number, offset in enumerate(queue_offsets)], *rest)


def _twins(source: str, where: str, *plants: Plant) -> Way:
    module = TARGETS[source][0]
    return Way(name=f"store: {source.rpartition('/')[2]} beside Python", where=f"{source}::{where}",
               condition="a C compiler was there at the install", plain="the twin in Python",
               compare=partial(_compare_twins, source), plants=plants, needs=(module,), seeds=8)


BULK = _twins("rmqha/native/_bulk.c", "walk",
              Plant("a walk counts one record less", partial(_changed, "rmqha.native._bulk", "walk", _one_record_less)),
              Plant("a scan lacks its last key", partial(_changed, "rmqha.native._bulk", "scan", _last_key_missing)))
RECORDS = _twins("rmqha/native/_message_rows.c", "records_of_rows",
                 Plant("messages that are committed move on",
                       partial(_changed, "rmqha.native._message_rows", "records_of_rows", _one_index_further)))
WAYS = [ROWS, BULK, RECORDS]
