"""Whole columns out of blocks of records, for Spark, beside the decoder of single messages."""
from __future__ import annotations

import random
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqha.common.message import message_layout as layout
from rmqha.common.sys_flags import COMPRESSED_FLAG
from rmqha.store.bulk import bulk_python
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size

LARGEST_BODY = 4 << 20
LARGEST_LOG = 6 << 20
NAMED = (b"KEYS", b"TAGS", b"UNIQ_KEY")
SCRAPS = (b"\1", b"\2", b"a", b"KEYS", b"TAGS", b"\0", b"\xff", b"\xe5\x90", b"\xed\xa0\x80", b"KEYS\1k\2",
          b"TAGS\1t\2", b"WAIT\1true\2", "é\1主题".encode(), "\U0001f600\1x\2".encode())
HOSTS = tuple(layout.host_to_bytes(host) for host in (
    ("127.0.0.1", 10911), ("127.0.0.1", 10911), ("10.1.2.3", 4), ("255.255.255.255", 65535), ("::1", 5),
    ("fe80::2", 6)))


def _properties(rng: random.Random, orderly: float = 0.7) -> bytes:
    """The property text of a record, as clients write it or odd."""
    if rng.random() < orderly:
        pairs = {name: b"v" * some_size(rng, [127, 128, 255, 256, 4096], 30_000 if rng.random() < 0.05 else 40)
                 for name in rng.sample([*NAMED, b"WAIT", b"own", "名".encode()], rng.randint(0, 5))}
        text = b"\2".join(name + b"\1" + value for name, value in pairs.items())
        return text + rng.choice([b"", b"\2"])
    if rng.random() < 0.2:
        return b"\2".join(b"%d\1%d" % (rng.randrange(200), index)
                          for index in range(rng.choice([15, 16, 17, 63, 64, 90])))
    return b"".join(rng.choice(SCRAPS) for _ in range(rng.randint(0, 20)))


# -- properties --

def compare_properties(rng: random.Random) -> Counter[str]:
    """The compiled columns beside those in Python, of any records of a block, in any order."""
    data, begins, ends = bytearray(b"before"), array("q"), array("q")
    for _ in range(rng.choice([0, 1, 7, 8, 9, 64, 300])):
        begins.append(len(data))
        data += _properties(rng, 0.5)
        ends.append(len(data))
        data += rng.choice([b"", b"\1between\2", b"\2"])
    order = list(range(len(begins)))
    rng.shuffle(order)
    if rng.random() < 0.5:
        begins, ends = array("q", [begins[at] for at in order]), array("q", [ends[at] for at in order])
    names = tuple(rng.sample([*NAMED, b"own", "名".encode(), b"", b"\xff"], rng.randint(0, 7)))
    with_map = rng.random() < 0.7
    quick = bulk_python.property_columns(bytes(data), begins, ends, names, with_map)
    slow = bulk_python.columns_in_python(bytes(data), begins, ends, names, with_map)
    assert quick == slow, f"{bytes(data)[:2000]!r}, {names}"
    return Counter({FAST: len(begins), PLAIN: len(begins)})


def _bits_from_the_highest(data: Any, begins: Any, ends: Any, names: tuple[bytes, ...], with_map: bool) -> Any:
    """A record's bit is counted from the highest of its byte."""
    found, columns = _columns(data, begins, ends, names, with_map)
    return found, [(bytes(int(f"{byte:08b}"[::-1], 2) for byte in valid), *rest) for valid, *rest in columns]


def _first_value_counts(data: Any, begins: Any, ends: Any, names: tuple[bytes, ...], with_map: bool) -> Any:
    """Of equal names the first value counts."""
    def read(text: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for entry in text.split("\2"):
            name, separator, value = entry.partition("\1")
            if name and separator and value and "\1" not in value:
                found.setdefault(name, value)
        return found
    with lowered(bulk_python, string2message_properties=read):
        return bulk_python.columns_in_python(data, begins, ends, names, with_map)


_columns = bulk_python.property_columns


# -- rows --

def _log(rng: random.Random) -> tuple[bytes, list[int]]:
    """A log of any records, and where each begins; of some the kernel takes none, as of a body with a wrong CRC."""
    data, begins, room = bytearray(), [], LARGEST_LOG
    for number in range(rng.choice([1, 3, 20, 120])):
        born, stored = rng.choice(HOSTS), rng.choice(HOSTS[:1] * 3 + HOSTS)
        sys_flag = layout.host_flags(born, stored)
        body = rng.randbytes(min(room, some_size(rng, [64 << 10, 2 << 20], LARGEST_BODY)))
        if rng.random() < 0.2:
            sys_flag |= COMPRESSED_FLAG
            body = zlib.compress(body, 1)
        crc = layout.body_crc32(body) ^ (body != b"" and rng.random() < 0.03)
        begins.append(len(data))
        data += layout.encode_record(
            crc, rng.randrange(8), rng.randrange(1 << 31), number, len(data), sys_flag,
            rng.choice([0, 1, 1_700_000_000_123, 1 << 62]), born, 1_700_000_000_000 + number, stored, rng.randrange(5),
            rng.randrange(1 << 40), body, layout.encode_topic(rng.choice(["T", "other", "主题", "t" * 127])),
            _properties(rng))
        room = max(0, room - len(body))
    return bytes(data), begins


def compare_rows(rng: random.Random) -> Counter[str]:
    """All columns of the blocks of a log that is read in ranges cut anywhere, beside the decoder, row by row."""
    import numpy as np  # what this needs is not installed everywhere

    from rmqha.pipeline.log import log_scan
    from rmqha.pipeline.log.columns import BlockColumns
    from tests.pipeline.log.test_columns import SCHEMA, check_row

    taken: Counter[str] = Counter()
    data, begins = _log(rng)
    marks = sorted({0, len(data)} | {rng.randrange(len(data)) for _ in range(rng.choice([0, 0, 1, 5]))})
    wanted = rng.choice([1.0, 1.0, 0.5])
    rows: list[dict[str, Any]] = []
    left_out: set[int] = set()
    with (tempfile.TemporaryDirectory() as folder,
          lowered(log_scan, BLOCK=rng.choice([300, 5000, 2 << 20]), _SLACK=rng.choice([0, 100, 64 << 10]))):
        path = Path(folder, f"{0:020d}")
        path.write_bytes(data)
        for begin, end in pairwise(marks):
            for block in log_scan.scan_range(log_scan.ByteRange(str(path), 0, begin, end, len(data), begin == 0), True):
                assert isinstance(block, log_scan.Block), block
                taken[FAST if len(block.rows) > 1 else PLAIN] += len(block.rows)
                chosen = np.array([rng.random() < wanted for _ in block.rows], bool)
                left_out |= set(block.rows["offset"][~chosen].tolist())
                found = BlockColumns(block, None if chosen.all() else chosen, "store", True).batch(SCHEMA).to_pylist()
                for row in found:
                    assert row["crcOk"] == block.crc_ok
                    rows.append(row | {"crcOk": True})
    assert sorted([row["physicalOffset"] for row in rows] + sorted(left_out)) == begins
    for row in rows:
        check_row(row, data, 0)
    return taken


def _first_host_for_all() -> AbstractContextManager[object]:
    """The first record's host is taken for that of all."""
    from rmqha.pipeline.log import columns

    def host(self: Any, position: Any, v6: Any) -> Any:
        keys = self.number(">u8", position)
        if v6.any() or len(keys) < 2:
            return real(self, position, v6)
        return self.same(columns._host_text(int(keys[0]).to_bytes(8, "big")), columns.pa.string())
    real = columns.BlockColumns.host
    return replaced(columns.BlockColumns, "host", host)()


@contextmanager
def _chosen_by_place() -> Iterator[None]:
    """A column of the kernel's rows begins with the block, whichever of them are chosen."""
    from rmqha.pipeline.log import columns

    def row(self: Any, name: str) -> Any:
        return columns.pa.array(columns.np.ascontiguousarray(self._block.rows[name][:len(self)]))
    with replaced(columns.BlockColumns, "row", row)():
        yield


WAYS = [
    Way("properties as columns", "rmqha/store/bulk/bulk_python.py::property_columns",
        "a C compiler was there at the install", "`columns_in_python`", compare_properties,
        (Plant("bits counted from the highest", replaced(bulk_python, "property_columns", _bits_from_the_highest)),
         Plant("of equal names the first value counts",
               replaced(bulk_python, "property_columns", _first_value_counts))),
        needs=("rmqha.native._properties",)),
    Way("columns of blocks", "rmqha/pipeline/log/columns.py::BlockColumns",
        "Spark reads a log, and the kernel takes the records", "message_decoder.decode, record by record", compare_rows,
        (Plant("the first host for all", _first_host_for_all),
         Plant("rows taken by their place in the block", _chosen_by_place)), seeds=25,
        needs=("numpy", "pyarrow", "pyspark")),
]
