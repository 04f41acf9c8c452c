"""Writes the commit log of a benchmark's store: segments as the broker leaves them, without a broker's time."""
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from rmqha.common.message import message_layout as layout

TOPICS = 4
QUEUES = 8
_HOST = layout.host_to_bytes(("10.0.0.1", 10911))
_FLUSH_BYTES = 8 << 20


@dataclass(frozen=True)
class MadeLog:
    """The written log: its records, and its bytes without the unwritten end of the last segment."""

    count: int
    size: int


def make_commit_log(folder: Path, count: int, body_length: int, segment_size: int, key: bool = True) -> MadeLog:
    """Write `count` records in files of `segment_size` bytes, each with a tag, a unique key and (if `key`) a key.

    They are in 8 queues of 4 topics and have bodies of `body_length` bytes. The last segment has its full size, with
    zeros after the records.
    """
    folder.mkdir(parents=True)
    topics = [layout.encode_topic(f"bench_topic_{number}") for number in range(TOPICS)]
    now = int(time.time() * 1000)
    segment, begin = bytearray(), 0
    for number in range(count):
        body = (b"%020d" % number * (body_length // 20 + 1))[:body_length]
        properties = (b"UNIQ_KEY\x010A000001%024X\x02CLUSTER\x01DefaultCluster\x02TAGS\x01Tag%d" % (number, number % 5))
        if key:
            properties = b"KEYS\x01order%012d\x02" % number + properties
        topic = topics[number // QUEUES % TOPICS]
        size = layout.cal_msg_length(0, body_length, len(topic) - 1, len(properties))
        if len(segment) + size + layout.END_FILE_MIN_BLANK_LENGTH > segment_size:
            begin += _end_segment(folder, begin, segment, segment_size)
            segment = bytearray()
        segment += layout.encode_record(
            zlib.crc32(body) & 0x7FFF_FFFF, number % QUEUES, 0, number // (QUEUES * TOPICS), begin + len(segment), 0,
            now, _HOST, now, _HOST, 0, 0, body, topic, properties)
    _write_segment(folder, begin, segment, segment_size)
    return MadeLog(count, begin + len(segment))


def _end_segment(folder: Path, begin: int, segment: bytearray, segment_size: int) -> int:
    segment += layout.encode_blank(segment_size - len(segment))
    _write_segment(folder, begin, segment, segment_size)
    return segment_size


def _write_segment(folder: Path, begin: int, segment: bytearray, segment_size: int) -> None:
    with open(folder / f"{begin:020d}", "wb") as file:
        for position in range(0, len(segment), _FLUSH_BYTES):
            file.write(memoryview(segment)[position:position + _FLUSH_BYTES])
        file.truncate(segment_size)
