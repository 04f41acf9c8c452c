"""Logs for the comparisons: bytes as a master writes them, of messages of all kinds, unusual ones on demand."""
from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.common import sys_flags
from rmqha.common.message import message_layout as layout
from rmqha.common.topics import RMQ_SYS_SCHEDULE_TOPIC
from tests.fast_ways.support_store import NOW
from tests.fast_ways.way import some_size

HOSTS = tuple(layout.host_to_bytes((host, 10911)) for host in ("10.0.0.1", "10.0.0.1", "2001:db8::1"))
TOPICS = ("T", "orders", "\u4e3b\u9898", "\U0001f600", RMQ_SYS_SCHEDULE_TOPIC)
ODD_TOPICS = (b"a/b", b"..", b"\xff\xfe", b"T" * 127, b"\xed\xa0\x80", "\u4e3b".encode()[:2])
WORDS = (b"a", b"order-1", "\u6807\u7b7e".encode(), "\U0001f600x".encode(), b"polygenelubricants", b"k" * 40)
ODD_WORDS = (b"\xff", b"\xc3", b"\xf4\x90\x80\x80", b"")
LEVELS = (b"17", b"18", b"1", b"0", b"-3", b"99")
ODD_LEVELS = (b"x", b"2147483648", b"", b"1 ")
KINDS = (0, 0, 0, 0, sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_COMMIT_TYPE,
         sys_flags.TRANSACTION_ROLLBACK_TYPE)


@dataclass(frozen=True)
class Record:
    """Of a record in the log."""

    offset: int
    size: int
    topic: bytes
    queue_id: int
    queue_offset: int
    has_unit: bool
    store_timestamp: int  # ms, another one of each record
    body: range  # its places in the log


@dataclass
class LogMaker:
    """Makes the log of a master, one record after the other.

    `odd`: how often something is unusual, from 0 to 1: names and text that are no UTF-8, indexes and places that are
    wrong, further queues. `bodies`: how long they are at most. `repeats`: a message may have a key twice.
    """

    rng: random.Random
    file_size: int
    odd: float = 0.0
    bodies: int = 300
    repeats: bool = True
    topics: tuple[str, ...] = TOPICS
    data: bytearray = field(default_factory=bytearray)
    records: list[Record] = field(default_factory=list)
    next_offsets: dict[tuple[bytes, int], int] = field(default_factory=dict)
    clock: int = NOW

    def add(self, count: int) -> None:
        """So many records more."""
        for _ in range(count):
            self._add()

    def _add(self) -> None:
        rng, is_odd = self.rng, self.rng.random() < self.odd
        topic = rng.choice(ODD_TOPICS) if is_odd and rng.random() < 0.3 else rng.choice(self.topics).encode()
        queue_id, kind = rng.choice((0, 0, 1, 2)), rng.choice(KINDS)
        queue_offset = self.next_offsets.get((topic, queue_id), 0)
        has_unit = kind not in (sys_flags.TRANSACTION_PREPARED_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)
        if is_odd and rng.random() < 0.2:
            queue_offset = max(0, rng.choice((queue_offset + 1, queue_offset + 5, queue_offset - 1, 0, 1 << 40)))
        body = rng.randbytes(some_size(rng, (), min(self.bodies, self.file_size - 2000)))
        properties = self._properties(is_odd)
        born, store = rng.choice(HOSTS), rng.choice(HOSTS)
        self.clock += 1
        size = layout.cal_msg_length(layout.host_flags(born, store), len(body), len(topic), len(properties))
        self._begin_file(size)
        offset = len(self.data)
        said = offset + rng.choice((1, -1, self.file_size)) if is_odd and rng.random() < 0.05 else offset
        self.data += layout.encode_record(
            layout.body_crc32(body), queue_id, 7, queue_offset if has_unit else 0, said,
            kind | layout.host_flags(born, store), self.clock - 5, born, self.clock, store, 0, 0, body,
            bytes((len(topic),)) + topic, properties)
        if has_unit:
            self.next_offsets[topic, queue_id] = queue_offset + 1 if queue_offset < 1 << 40 else 0
        behind = offset + size - len(topic) - len(properties) - layout.LENGTHS_SIZE
        self.records.append(Record(offset, size, topic, queue_id, queue_offset, has_unit, self.clock,
                                   range(behind - len(body), behind)))

    def _properties(self, is_odd: bool) -> bytes:
        rng, entries = self.rng, []
        words = WORDS + ODD_WORDS if is_odd else WORDS
        if rng.random() < 0.6:
            entries.append(b"TAGS\x01" + rng.choice(words))
        if rng.random() < 0.6:
            entries.append(b"KEYS\x01" + rng.choice((b" ", b"  ")).join(
                (rng.choices if self.repeats else rng.sample)(words, k=rng.randrange(5))))
        if rng.random() < 0.7:
            entries.append(b"UNIQ_KEY\x01" + (b"%032X" % rng.getrandbits(128) if not self.repeats or rng.random() < 0.9
                                              else rng.choice(words)))
        if rng.random() < 0.3:
            entries.append(b"DELAY\x01" + rng.choice(LEVELS + ODD_LEVELS if is_odd else LEVELS))
        if is_odd and rng.random() < 0.3:
            entries.append(b"INNER_MULTI_DISPATCH\x01" + rng.choice((b"%LMQ%a", b"%LMQ%a,other", b"other")))
            entries.append(b"INNER_MULTI_QUEUE_OFFSET\x01" + rng.choice((b"0", b"0,0", b"3", b"1,1", b"x")))
        rng.shuffle(entries)
        return b"\x02".join(entries) + rng.choice((b"", b"\x02"))

    def _begin_file(self, size: int) -> None:
        """Close the file with a blank when a record of `size` bytes has no room in it."""
        room = self.file_size - len(self.data) % self.file_size
        if size + 8 > room:
            self.data += layout.encode_blank(room) + bytes(room - 8)

    def cut(self, offset: int, marks: Mapping[str, int]) -> None:
        """What lies from `offset` on, where a record begins, is gone. `marks`: below which a topic's are dead."""
        del self.data[offset:]
        self.records = [record for record in self.records if record.offset < offset]
        below = {topic.encode(): mark for topic, mark in marks.items()}
        self.next_offsets = {(record.topic, record.queue_id): record.queue_offset + 1 for record in self.records
                             if record.has_unit and record.offset >= below.get(record.topic, 0)}
