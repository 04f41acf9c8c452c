"""Messages as rows, and the records that the log makes of rows. Pure.

`records_of_rows` is compiled where a C compiler was (rmqha/native/_message_rows.c), and `records_in_python` where
none was: both give the same.
"""
from typing import NamedTuple

from rmqha.common.message.message_layout import HEAD_LENGTH, HEADS, LENGTHS_SIZE, MESSAGE_MAGIC_CODE, Buffer
from rmqha.common.sys_flags import TRANSACTION_PREPARED_TYPE
from rmqha.native import kernels

_MAX_LONG = 2**63 - 1
# Prepared and rolled back: they have no place in their queue.
_WITHOUT_QUEUE_OFFSET = TRANSACTION_PREPARED_TYPE

Totals = dict[str, tuple[int, int]]
"""By topic: how many messages, and the bytes of their records."""
Records = tuple[list[int], list[int], bytes, dict[str, int], Totals, list[int] | None]
"""Queue offsets and commit log offsets in the order of the rows, the records, each queue's next offset, totals; the
indexes of rows that have a NUL in their properties, None when none has."""


class MessageRow(NamedTuple):
    """A message as the log takes it: all of its record that need not wait for the put lock."""

    topic: str
    queue_id: int
    queue_key: str  # "topic-queueId"
    size: int  # bytes of the record
    crc: int
    flag: int
    sys_flag: int
    born_timestamp: int  # ms
    born_host: bytes  # 8 or 20
    reconsume_times: int
    body: Buffer
    tail: bytes  # topic and properties with their lengths

    @staticmethod
    def record_size(body_length: int, tail_length: int) -> int:
        """Bytes of a record between IPv4 hosts."""
        return HEAD_LENGTH + body_length + tail_length


def records_in_python(rows: list[MessageRow], total: int, table: dict[str, int], offset: int, now: int,
                      store_host: bytes, prepared_offset: int = 0) -> Records:
    """The records of `rows`, `total` bytes in all, which begin at commit log `offset` and are stored at `now` (ms) by
    `store_host`.

    `table`: each queue's next offset before them; 0 for those it does not have. `prepared_offset`: commit log offset
    of the prepared message that they end. ValueError when a size is wrong or an offset can't be; struct.error (the
    compiled one: TypeError or OverflowError) when a field does not fit.

    Java: org.apache.rocketmq.store.CommitLog$DefaultAppendMessageCallback (4.9.8)
    """
    if not 0 <= offset <= _MAX_LONG - total:
        raise ValueError("a commit log offset that can't be")
    next_offsets: dict[str, int] = {}
    totals: Totals = {}
    parts: list[Buffer] = []
    queue_offsets, physical_offsets = [], []
    for topic, queue_id, key, size, crc, flag, sys_flag, born, born_host, reconsumed, body, tail in rows:
        queue_offset, head = 0, HEADS[sys_flag >> 4 & 3]
        if not sys_flag & _WITHOUT_QUEUE_OFFSET:
            queue_offset = next_offsets[key] if key in next_offsets else table.get(key, 0)
            if not 0 <= queue_offset < _MAX_LONG:
                raise ValueError("a queue offset that can't be")
            next_offsets[key] = queue_offset + 1
        if size != head.size + len(body) + len(tail):
            raise ValueError(f"a record of {head.size + len(body) + len(tail)} bytes, told as {size}")
        parts += (head.pack(size, MESSAGE_MAGIC_CODE, crc, queue_id, flag, queue_offset, offset, sys_flag, born,
                            born_host, now, store_host, reconsumed, prepared_offset, len(body)), body, tail)
        queue_offsets.append(queue_offset)
        physical_offsets.append(offset)
        offset += size
        times, bytes_before = totals.get(topic, (0, 0))
        totals[topic] = times + 1, bytes_before + size
    with_nuls = [index for index, row in enumerate(rows)
                 if row.tail and row.tail.find(0, row.tail[0] + LENGTHS_SIZE) >= 0]
    data = b"".join(parts)
    if len(data) != total:
        raise ValueError(f"records of {len(data)} bytes, told as {total}")
    return queue_offsets, physical_offsets, data, next_offsets, totals, with_nuls or None


records_of_rows = kernels.MESSAGE_ROWS.function("records_of_rows", records_in_python)
"""`records_in_python`, or its compiled twin."""
