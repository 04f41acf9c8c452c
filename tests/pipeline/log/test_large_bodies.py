"""Small logs whose bodies inflate to large sizes: batches are cut, and only a body that is too large alone is bad."""
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.common.message import message_layout as layout
from rmqha.common.sys_flags import COMPRESSED_FLAG
from rmqha.pipeline.archive.archive_scan import Task, scan_piece
from rmqha.pipeline.archive.archive_table import _READ, _AsTable
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.log import columns
from rmqha.pipeline.log.columns import BlockColumns, BodyError
from rmqha.pipeline.log.commit_log_source import CommitLogReader, common_options
from rmqha.pipeline.log.log_scan import ByteRange, scan_range
from rmqha.pipeline.table import arrow_schema, table_schema

HOST = layout.host_to_bytes(("127.0.0.1", 10911))
ROOT = Path(__file__).parents[3]
MIB = 1 << 20


def log_of(bodies: list[tuple[bytes, bool]], begin: int = 0) -> bytes:
    """Return records of (body as stored, whether it is marked as compressed)."""
    data = b""
    for number, (body, packed) in enumerate(bodies):
        data += layout.encode_record(
            layout.body_crc32(body), 0, 0, number, begin + len(data), COMPRESSED_FLAG if packed else 0, 1, HOST,
            1_700_000_000_000 + number, HOST, 0, 0, body, layout.encode_topic("T"), b"")
    return data


def store_of(folder, data: bytes) -> str:
    path = os.path.join(folder, "commitlog", "0" * 20)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
        file.truncate(max(len(data) + 4096, 1 << 16))
    return str(folder)


def blocks_of(folder, data: bytes):
    path = os.path.join(store_of(folder, data), "commitlog", "0" * 20)
    return list(scan_range(ByteRange(path, 0, 0, len(data), len(data), True), True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bodies")


@pytest.fixture(scope="module", autouse=True)
def small_limits():
    """Set limits of 1,000 bytes per batch and 3,000 per body."""
    before = columns.BATCH_BODIES, columns.MAX_DECOMPRESSED_SIZE
    columns.BATCH_BODIES, columns.MAX_DECOMPRESSED_SIZE = 1000, 3000
    yield
    columns.BATCH_BODIES, columns.MAX_DECOMPRESSED_SIZE = before


sizes = st.integers(0, 400) | st.sampled_from([0, 1, 500, 999, 1000, 1001, 1500, 2999, 3001, 9000])
bodies = st.lists(st.tuples(sizes, st.sampled_from(["packed", "packed", "stored", "damaged"])), min_size=1, max_size=30)


def stored(described) -> list[tuple[bytes, bool]]:
    made = {"packed": lambda size: zlib.compress(bytes(size)), "damaged": lambda size: b"?" * (size + 1),
            "stored": bytes}
    return [(made[kind](size), kind != "stored") for size, kind in described]


def plain(size: int, kind: str) -> bytes | None:
    return None if kind == "damaged" or kind == "packed" and size > 3000 else bytes(size)


@settings(max_examples=150, deadline=None)
@given(bodies, st.booleans(), st.data())
@example([(3001, "packed"), (1, "packed")], False, None)
@example([(600, "packed")] * 4, True, None)
def test_batches_have_all_rows_and_few_bytes(folder, described, kafka, data):
    options = {"path": str(folder), "schema": "kafka"} if kafka else {"path": str(folder)}
    schema = arrow_schema(table_schema(common_options(options)))
    name = "value" if kafka else "body"
    rows, at = [], 0
    for block in blocks_of(folder, log_of(stored(described))):
        count = len(block.rows)
        chosen = None if data is None else data.draw(st.none() | st.sets(st.integers(0, count - 1)).map(
            lambda numbers: np.array(sorted(numbers), np.int64)))
        wanted = range(count) if chosen is None else chosen.tolist()
        made = list(BlockColumns(block, chosen, "b", True).batches(schema, kafka)) if len(wanted) else []
        for batch in made:
            kinds = [described[at + number][1] for number in wanted[:len(batch)]]
            wanted = wanted[len(batch):]
            inflated = [len(body) for body, kind in zip(batch.column(name).to_pylist(), kinds, strict=True)
                        if kind == "packed" and body]
            assert sum(inflated) <= 1000 or len(inflated) == 1 and inflated[0] < 3000
            assert batch.schema == schema and len(batch)
        assert not len(wanted)
        numbers = range(count) if chosen is None else chosen.tolist()
        offset = "offset" if kafka else "queueOffset"
        rows += [(described[at + number], row[name], row[offset] == at + number)
                 for number, row in zip(numbers, [row for batch in made for row in batch.to_pylist()], strict=True)]
        at += count
    for given_body, body, is_at_its_place in rows:
        assert body == plain(*given_body) and is_at_its_place


def test_batches_together_equal_one_batch(folder):
    described = [(300, "packed"), (20, "stored"), (2000, "packed"), (900, "packed"), (5, "damaged"), (100, "packed")]
    schema = arrow_schema(table_schema(common_options({"path": str(folder)})))
    block, = blocks_of(folder, log_of(stored(described)))
    cut = list(BlockColumns(block, None, "b", True).batches(schema))
    assert [len(batch) for batch in cut] == [2, 1, 3]
    whole = BlockColumns(block, None, "b", True).batch(schema)
    assert pa.Table.from_batches(cut).to_pylist() == whole.to_pylist()
    with pytest.raises(BodyError,
                       match="the body of the record at offset [0-9]+ does not decompress: not a zlib stream"):
        list(BlockColumns(block, None, "b", True, keep_bad=False).batches(schema))
    assert len(list(BlockColumns(block, None, "b", True, decompress=False).batches(schema))) == 1


@pytest.mark.parametrize("schema", ["rocketmq", "kafka"])
def test_body_that_is_too_large_alone_is_bad_according_to_the_mode(tmp_path, schema):
    described = [(800, "packed"), (5000, "packed"), (800, "packed"), (20, "stored")]
    data = log_of(stored(described))
    store, name = store_of(tmp_path, data), "value" if schema == "kafka" else "body"

    def read(mode):
        options = common_options({"path": store, "mode": mode, "schema": schema})
        reader = CommitLogReader(options, table_schema(options))
        return [row[name] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]

    assert read("PERMISSIVE") == [bytes(800), None, bytes(800), bytes(20)]
    assert read("DROPMALFORMED") == [bytes(800), bytes(800), bytes(20)]
    place = len(log_of(stored(described)[:1]))
    with pytest.raises(PipelineError, match=f"0{{20}} at byte {place}: the body of the record at offset {place} does "
                                            "not decompress: the body decompresses to more than 3000 bytes"):
        read("FAILFAST")


def test_rows_of_an_archive_are_cut_as_well(tmp_path):
    described = [(600, "packed")] * 5 + [(9000, "packed"), (7, "stored")]
    data = log_of(stored(described))
    path = os.path.join(store_of(tmp_path, data), "commitlog", "0" * 20)
    task = Task(ByteRange(path, 0, 0, len(data), len(data), True), 0, 1)
    kept = [batch.select([*_READ, "remainder"]) for batch in scan_piece(task) if batch.column("piece").null_count == 0]
    schema = table_schema(common_options({"path": str(tmp_path)}))
    made = list(_AsTable(schema).run(iter(kept)))
    assert [len(batch) for batch in made] == [1, 1, 1, 1, 1, 2]
    rows = [row for batch in made for row in batch.to_pylist()]
    assert [row["body"] for row in rows] == [bytes(600)] * 5 + [None, bytes(7)]
    offsets = [row["physicalOffset"] for row in rows]
    assert offsets == sorted(set(offsets)) and offsets[0] == 0 and [row["queueOffset"] for row in rows] == [*range(7)]


_MEASURE = """
import json, resource, sys
from rmqha.pipeline.log import columns
from rmqha.pipeline.log.commit_log_source import CommitLogReader, common_options
from rmqha.pipeline.table import table_schema
limit = 4 << 30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
options = common_options({"path": sys.argv[1], "columns": "queueOffset,body"})
reader = CommitLogReader(options, table_schema(options))
began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
rows = size = 0
for part in reader.partitions():
    for batch in reader.read(part):
        rows += len(batch)
        size += sum(map(len, (body.as_buffer() for body in batch.column("body"))))
        del batch
print(json.dumps([rows, size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - began]))
"""


def test_gigabytes_of_bodies_are_read_in_bounded_memory(tmp_path):
    """Read 2.4 MB of log with 150 bodies of 16 MiB, 2.3 GiB of them in one block."""
    packed = zlib.compress(bytes(16 * MIB), 9)
    store = store_of(tmp_path, log_of([(packed, True)] * 150))
    assert os.path.getsize(os.path.join(store, "commitlog", "0" * 20)) < 3 * MIB
    done = subprocess.run([sys.executable, "-c", _MEASURE, store], capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows, size, more_kib = json.loads(done.stdout)
    assert (rows, size) == (150, 150 * 16 * MIB)
    assert more_kib < 400 << 10
