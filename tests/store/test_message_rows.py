"""The records of rows: compiled and in Python the same, and what the general decoder makes of them."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message.message_layout import BORNHOST_V6_FLAG, HEADS, STOREHOSTADDRESS_V6_FLAG
from rmqha.store.append import MessageRow, records_in_python
from tests.support.tiers import drawn

STORE_HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))
HOST_V6 = bytes((0x20, 1, *bytes(13), 7, 0, 0, 0, 81))
HOSTS = st.sampled_from([STORE_HOST, HOST_V6])
INT, LONG = st.integers(0, 2**31 - 1), st.integers(0, 2**50)


@pytest.fixture(scope="module")
def compiled():
    """The compiled twin."""
    module = pytest.importorskip("rmqha.native._message_rows", reason="no C compiler was there at the install")
    return module.records_of_rows


def send(queue_id: int = 0, body: bytes = b"body", size: int | None = None, **fields) -> MessageRow:
    """A send to the topic T."""
    tail = b"\1T\0\3k\1v"
    values = {"topic": "T", "queue_id": queue_id, "queue_key": f"T-{queue_id}",
              "size": size or HEADS[fields.get("sys_flag", 0) >> 4 & 3].size + len(body) + len(tail), "crc": 1,
              "flag": 2, "sys_flag": 0, "born_timestamp": 1_700_000_000_123,
              "born_host": bytes((10, 0, 0, 1, 0, 0, 0, 80)),
              "reconsume_times": 3, "body": body, "tail": tail} | fields
    return MessageRow(**values)


def total(sends: list[MessageRow]) -> int:
    """Bytes of all records."""
    return sum(one.size for one in sends)


rows = st.lists(st.builds(send, st.integers(0, 2), st.binary(max_size=40).map(memoryview), crc=INT, flag=INT,
                          sys_flag=INT, born_timestamp=LONG, reconsume_times=INT, topic=st.sampled_from("TU"),
                          born_host=HOSTS),
                max_size=6)


@settings(max_examples=drawn(300))
@given(rows, st.dictionaries(st.sampled_from(["T-0", "T-1", "other"]), LONG), LONG, LONG, HOSTS, LONG)
def test_compiled_and_python_make_the_same(compiled, sends, table, offset, now, store_host, prepared_offset):
    before = dict(table)
    arguments = sends, total(sends), table, offset, now, store_host, prepared_offset
    assert compiled(*arguments) == records_in_python(*arguments)
    assert table == before


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_records_are_decoded_as_what_was_sent(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    sends = [send(1, b"first"), send(0, b""), send(1, b"x" * 300)]
    queue_offsets, physical_offsets, data, next_offsets, totals, with_nuls = records(
        sends, total(sends), {"T-1": 7}, 1000, 1_700_000_000_456, STORE_HOST)
    assert queue_offsets == [7, 0, 8] and next_offsets == {"T-1": 9, "T-0": 1}
    assert totals == {"T": (3, total(sends))} and with_nuls is None
    assert physical_offsets == [1000, 1000 + sends[0].size, 1000 + sends[0].size + sends[1].size]
    for one, queue_offset, offset in zip(sends, queue_offsets, physical_offsets, strict=True):
        message = message_decoder.decode(data[offset - 1000:offset - 1000 + one.size])
        assert (message.topic, message.queue_id, message.queue_offset, message.commit_log_offset) == (
            "T", one.queue_id, queue_offset, offset)
        assert (message.body or b"", message.flag, message.reconsume_times, message.properties["k"]) == (
            one.body, 2, 3, "v")
        assert (message.born_timestamp, message.store_timestamp) == (1_700_000_000_123, 1_700_000_000_456)
        assert (message.born_host, message.store_host) == (("10.0.0.1", 80), ("127.0.0.1", 10911))


@pytest.mark.parametrize("make", ["compiled", "python"])
@pytest.mark.parametrize("born_flag, born_host", [(0, ("127.0.0.1", 10911)), (BORNHOST_V6_FLAG, ("2001::7", 81))])
@pytest.mark.parametrize("store_flag, store_host", [(0, ("127.0.0.1", 10911)),
                                                    (STOREHOSTADDRESS_V6_FLAG, ("2001::7", 81))])
def test_records_of_other_hosts(request, make, born_flag, born_host, store_flag, store_host):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    one = send(sys_flag=born_flag | store_flag, born_host=HOST_V6 if born_flag else STORE_HOST)
    data = records([one], one.size, {}, 0, 1, HOST_V6 if store_flag else STORE_HOST)[2]
    message = message_decoder.decode(data)
    assert (message.born_host, message.store_host, message.body) == (born_host, store_host, b"body")


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_prepared_and_rolled_back_messages_have_no_place_in_their_queue(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    kinds = (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_COMMIT_TYPE,
             sys_flags.TRANSACTION_ROLLBACK_TYPE, sys_flags.TRANSACTION_NOT_TYPE)
    sends = [send(sys_flag=kind) for kind in kinds]
    queue_offsets, _, data, next_offsets, *_ = records(sends, total(sends), {"T-0": 7}, 0, 1, STORE_HOST, 4711)
    assert queue_offsets == [0, 7, 0, 8] and next_offsets == {"T-0": 9}
    first = message_decoder.decode(data[:sends[0].size])
    assert (first.queue_offset, first.prepared_transaction_offset) == (0, 4711)
    assert records(sends[:1], sends[0].size, {}, 0, 1, STORE_HOST)[3] == {}


@pytest.mark.parametrize("make", ["compiled", "python"])
def test_rows_with_a_nul_in_their_properties_are_named(request, make):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    tails = [b"", b"\1T\0\3k\1v", b"\1T\0\4k\1v\0", b"\1\0\0\3k\1v", b"\1T\0\0", b"\1T", b"\1T\0\1\0", b"\xff\0"]
    sends = [send(tail=tail, size=HEADS[0].size + 4 + len(tail)) for tail in tails]
    assert records(sends, total(sends), {}, 0, 1, STORE_HOST)[5] == [2, 6]


@pytest.mark.parametrize("make", ["compiled", "python"])
@pytest.mark.parametrize("more", [-1, 1])
def test_wrong_total_is_refused(request, make, more):
    records = records_in_python if make == "python" else request.getfixturevalue("compiled")
    sends = [send(), send()]
    with pytest.raises(ValueError, match="told as"):
        records(sends, total(sends) + more, {}, 0, 0, STORE_HOST)


@pytest.mark.parametrize("arguments, error", [
    ((([1],), 0, {}, 0, 0, STORE_HOST), TypeError), (([()], 0, {}, 0, 0, STORE_HOST), TypeError),
    (([send()], -1, {}, 0, 0, STORE_HOST), ValueError), (([send()], 100, {}, 0, 0, b"short"), ValueError),
    (([send(size=90)], 99, {}, 0, 0, STORE_HOST), ValueError),
    (([send(size=10**6)], 99, {}, 0, 0, STORE_HOST), ValueError),
    (([send(crc="no number")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(crc=2**70)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(crc=2**31)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(queue_id=-2**31 - 1)], 99, {}, 0, 0, STORE_HOST), OverflowError),
    (([send(body="text")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(tail=None)], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send(born_host=b"")], 99, {}, 0, 0, STORE_HOST), TypeError),
    (([send()], 99, {"T-0": -5}, 0, 0, STORE_HOST), ValueError),
    (([send()], 99, {"T-0": "x"}, 0, 0, STORE_HOST), TypeError),
], ids=str)
def test_compiled_one_takes_nothing_else(compiled, arguments, error):
    with pytest.raises(error):
        compiled(*arguments)
