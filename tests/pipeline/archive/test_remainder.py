"""Whatever a record holds: from its remainder, its columns and its body it comes back byte for byte."""
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from rmqha.common.message import message_layout as layout
from rmqha.pipeline.archive.archive_scan import TOLD_BY, blank, records
from rmqha.pipeline.archive.archive_table import _AsTable
from rmqha.pipeline.table import ROCKETMQ
from rmqha.pipeline.worker import FIRST_MS, LAST_MS

_INT = st.integers(-(1 << 31), (1 << 31) - 1)
_LONG = st.integers(-(1 << 63), (1 << 63) - 1)
_TIME = st.one_of(st.integers(0, 4_000_000_000_000), st.sampled_from(
    [-1, 0, 1 << 62, FIRST_MS - 1, FIRST_MS, LAST_MS, LAST_MS + 1]), _LONG)
FIELDS = st.fixed_dictionaries({
    "crc": _INT, "queue": _INT, "flag": _INT, "queueOffset": _LONG, "place": _LONG, "sysFlag": _INT, "born": _TIME,
    "stored": _TIME, "reconsumed": _INT, "prepared": _LONG, "body": st.binary(max_size=40),
    "topic": st.binary(max_size=20), "properties": st.binary(max_size=40), "magic": st.sampled_from([0, 0, 0, 5])})


def made(fields: dict) -> tuple[bytes, int]:
    """(a record, the length of its head)."""
    head = layout.HEADS[fields["sysFlag"] >> 4 & 3]
    hosts = [b"\x0a" * (20 if fields["sysFlag"] & flag else 8)
             for flag in (layout.BORNHOST_V6_FLAG, layout.STOREHOSTADDRESS_V6_FLAG)]
    size = head.size + len(fields["body"]) + 3 + len(fields["topic"]) + len(fields["properties"])
    data = head.pack(size, layout.MESSAGE_MAGIC_CODE + fields["magic"], fields["crc"], fields["queue"], fields["flag"],
                     fields["queueOffset"], fields["place"], fields["sysFlag"], fields["born"], hosts[0],
                     fields["stored"], hosts[1], fields["reconsumed"], fields["prepared"], len(fields["body"]))
    tail = (bytes((len(fields["topic"]),)) + fields["topic"] + len(fields["properties"]).to_bytes(2, "big")
            + fields["properties"])
    return data + fields["body"] + tail, head.size


def columns_of(rows: list[dict], odd: int = 0) -> tuple[pa.Array, dict[str, pa.Array]]:
    """(envelopes, columns); with `odd` the columns tell another place than the record."""
    def times(name):
        values = [row[name] if FIRST_MS <= row[name] <= LAST_MS else None for row in rows]
        return pa.array([None if value is None else value * 1000 for value in values], pa.int64()).cast(
            pa.timestamp("us", "UTC"))
    whole = [made(row) for row in rows]
    columns = {"storeSize": pa.array([len(data) for data, _ in whole], pa.int32()),
               "bodyCrc": pa.array([row["crc"] for row in rows], pa.int32()),
               "queueId": pa.array([row["queue"] for row in rows], pa.int32()),
               "queueOffset": pa.array([row["queueOffset"] for row in rows], pa.int64()),
               "physicalOffset": pa.array([row["place"] ^ odd for row in rows], pa.int64()),
               "sysFlag": pa.array([row["sysFlag"] for row in rows], pa.int32()),
               "bornTimestamp": times("born"), "storeTimestamp": times("stored"),
               "storedBody": pa.array([row["body"] for row in rows], pa.binary())}
    envelopes = pa.array([data[:head] + data[head + len(row["body"]):]
                          for row, (data, head) in zip(rows, whole, strict=True)], pa.binary())
    return envelopes, columns


@settings(max_examples=60)
@given(st.lists(FIELDS, min_size=1, max_size=8), st.sampled_from([0, 1]), st.integers(0, 3))
def test_every_record_comes_back(rows, odd, cut):
    envelopes, columns = columns_of(rows, odd)
    assert set(TOLD_BY) < set(columns)
    columns["remainder"] = blank(envelopes, columns)
    assert len(columns["remainder"]) == len(rows)
    wanted = [made(row)[0] for row in rows]
    assert records(columns).to_pylist() == wanted
    # as Spark hands them over: slices of longer arrays
    sliced = {name: column.slice(min(cut, len(rows) - 1)) for name, column in columns.items()}
    assert records(sliced).to_pylist() == wanted[min(cut, len(rows) - 1):]
    columns["envelope"] = envelopes
    del columns["remainder"]
    assert records(columns).to_pylist() == wanted  # version 1


def test_what_columns_tell_is_blanked():
    row = {"crc": 5, "queue": 3, "flag": 0, "queueOffset": 77, "place": 1 << 40, "sysFlag": 0,
           "born": 1_700_000_000_000, "stored": 1_700_000_000_001, "reconsumed": 0, "prepared": 0, "body": b"body",
           "topic": b"T", "properties": b"", "magic": 0}
    remainders = blank(*columns_of([row, {**row, "place": 1 << 41, "crc": 6, "body": b"other"}])).to_pylist()
    assert remainders[0] == remainders[1] and not any(remainders[0][:48])


def test_rows_become_messages_again():
    row = {"crc": 5, "queue": 3, "flag": 9, "queueOffset": 77, "place": 1 << 40, "sysFlag": 0,
           "born": 1_700_000_000_000, "stored": 1_700_000_000_001, "reconsumed": 2, "prepared": 4, "body": b"body",
           "topic": b"00123", "properties": b"KEYS\x01k\x02a\x01b\x02", "magic": 0}
    envelopes, columns = columns_of([row, {**row, "topic": b"T", "sysFlag": layout.BORNHOST_V6_FLAG}])
    columns["remainder"] = blank(envelopes, columns)
    columns["crcOk"] = pa.array([True, False])
    schema = StructType([StructField(name, kind) for name, kind in ROCKETMQ.items()])
    found, = _AsTable(schema).run(iter([pa.RecordBatch.from_pydict(columns)]))
    one, other = found.to_pylist()
    assert (one["topic"], other["topic"], one["keys"], one["body"]) == ("00123", "T", "k", b"body")
    assert one["physicalOffset"] == 1 << 40 and (one["crcOk"], other["crcOk"]) == (True, False)
    assert dict(one["properties"]) == {"KEYS": "k", "a": "b"} and (one["flag"], one["reconsumeTimes"]) == (9, 2)
    assert [each["storeTimestamp"].timestamp() for each in (one, other)] == [1_700_000_000.001] * 2
