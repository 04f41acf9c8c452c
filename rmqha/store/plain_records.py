"""The bytes of plain messages as they stand in the log. Pure.

`plain_records` is compiled where a C compiler was (rmqha/native/_plain_records.c), and `records_in_python` where none
was: both give the same.
"""
from typing import NamedTuple

from rmqha.common.message.message_layout import HEAD_LENGTH, HEADS, MESSAGE_MAGIC_CODE, Buffer
from rmqha.native import kernels

_MAX_LONG = 2**63 - 1

_pack_head = HEADS[0].pack

Totals = dict[str, tuple[int, int]]
"""By topic: how many messages, and the bytes of their records."""
Records = tuple[list[int], list[int], bytes, dict[str, int], Totals]
"""Queue offsets and commit log offsets in the order of the sends, the records, each queue's next offset, totals."""


class PlainSend(NamedTuple):
    """A message between IPv4 hosts, neither delayed nor part of a transaction, whose sender waits for it."""

    topic: str
    queue_id: int
    queue_key: str  # "topic-queueId"
    size: int  # bytes of the record
    crc: int
    flag: int
    sys_flag: int
    born_timestamp: int  # ms
    born_host: bytes
    reconsume_times: int
    body: Buffer
    tail: bytes  # topic and properties with their lengths

    wait_store_msg_ok = True

    @staticmethod
    def record_size(body_length: int, tail_length: int) -> int:
        """Bytes of a record."""
        return HEAD_LENGTH + body_length + tail_length


def records_in_python(sends: list[PlainSend], total: int, table: dict[str, int], offset: int, now: int,
                      store_host: bytes) -> Records:
    """The records of `sends`, `total` bytes that begin at commit log `offset`, stored at `now` (ms) by `store_host`.

    `table`: each queue's next offset before them; 0 for those it does not have. ValueError when `total` is wrong, or an
    offset can't be.
    """
    if not 0 <= offset <= _MAX_LONG - total:
        raise ValueError("a commit log offset that can't be")
    next_offsets: dict[str, int] = {}
    totals: Totals = {}
    parts: list[Buffer] = []
    queue_offsets, physical_offsets = [], []
    for topic, queue_id, key, size, crc, flag, sys_flag, born, born_host, reconsumed, body, tail in sends:
        queue_offset = next_offsets.get(key)
        if queue_offset is None:
            queue_offset = table.get(key, 0)
        if not 0 <= queue_offset < _MAX_LONG:
            raise ValueError("a queue offset that can't be")
        if size != HEAD_LENGTH + len(body) + len(tail):
            raise ValueError(f"a record of {HEAD_LENGTH + len(body) + len(tail)} bytes, told as {size}")
        parts += (_pack_head(size, MESSAGE_MAGIC_CODE, crc, queue_id, flag, queue_offset, offset, sys_flag, born,
                             born_host, now, store_host, reconsumed, 0, len(body)), body, tail)
        next_offsets[key] = queue_offset + 1
        queue_offsets.append(queue_offset)
        physical_offsets.append(offset)
        offset += size
        times, bytes_before = totals.get(topic, (0, 0))
        totals[topic] = times + 1, bytes_before + size
    data = b"".join(parts)
    if len(data) != total:
        raise ValueError(f"records of {len(data)} bytes, told as {total}")
    return queue_offsets, physical_offsets, data, next_offsets, totals


plain_records = kernels.PLAIN_RECORDS.function("plain_records", records_in_python)
"""`records_in_python`, or its compiled twin."""
