"""Messages of every size that a broker accepts, drawn from a seed. The senders of all campaigns send them.

Single messages, and the messages of batches, have:

    bodies      half of 20 to 3,000 bytes, a third 5 to 30 KB, one in twelve 30 to 300 KB, one in a hundred up to
                4 MiB; one in thirty is empty, and one in fifteen has a size at which the processing changes:
                4 KiB (above it a slave predicts frames), 32 KiB (a frame of replication), 64 KiB, 256 KiB, the largest
    contents    noise, so that bytes at another place are different; one in thirty is full of fake records and frames
    properties  the name and a tag; one in sixteen has a filler, up to the 32,767 bytes that a record can have

A message's name is in its KEYS, because an empty body cannot hold it.
"""
import base64
import functools
import random
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.support.raw_remoting import SEND_BATCH, SEND_MESSAGE
from tests.support.store_compare import BLANK_MAGIC, MESSAGE_MAGIC

SEND_MESSAGE_V2 = 310
KIB = 1024
EDGES = (4 * KIB, 32 * KIB, 64 * KIB, 256 * KIB)
LARGEST_BODY = 4 << 20
# A broker adds CLUSTER with its name, and separators.
LONGEST_PROPERTIES = 32_767 - 64
_LONGEST_BATCH = 24  # messages
_LARGEST_BATCH = 512 * KIB  # except a larger first message
_BATCHES = 1 / 8
_DECOYS = 1 / 30
_FILLED = 1 / 16
_NOISE_SIZE = 2 * LARGEST_BODY
# The head of a message in a batch: total size, magic, CRC, flag, size of the body.
_PART = struct.Struct(">iiiii")
_DECOY = struct.pack(">qiIIiI", 1 << 20, 200, 200, MESSAGE_MAGIC, 0, BLANK_MAGIC) + b"decoy"


@functools.cache
def _noise() -> bytes:
    return random.Random("noise").randbytes(_NOISE_SIZE)


@functools.cache
def _text() -> str:
    return base64.b64encode(_noise()[:4 * LONGEST_PROPERTIES]).decode()


@dataclass(frozen=True)
class Message:
    """One message, alone or in a batch."""

    name: str
    body: bytes
    tag: str
    filling: str

    @property
    def properties(self) -> str:
        """The properties as sent."""
        text = f"KEYS\x01{self.name}\x02TAGS\x01{self.tag}"
        return f"{text}\x02FILLING\x01{self.filling}" if self.filling else text

    @property
    def crc(self) -> int:
        """The CRC of the body and the sender's properties; see `crc_of`."""
        return crc_of(self.body, self.tag, self.filling)


def crc_of(body: bytes, tag: str, filling: str) -> int:
    """Return the CRC of the body followed by the message's own properties."""
    return zlib.crc32(f"{tag} {filling}".encode(), zlib.crc32(body))


@dataclass(frozen=True)
class Request:
    """The contents of one request: a message or a batch."""

    topic: str
    queue_id: int
    code: int
    messages: tuple[Message, ...]

    def body(self) -> bytes:
        """Return the body of the request."""
        return b"".join(map(_part, self.messages)) if self.code == SEND_BATCH else self.messages[0].body

    def fields(self, group: str, queues: int) -> dict[str, object]:
        """Return the header fields, with the names of the request code."""
        properties = "" if self.code == SEND_BATCH else self.messages[0].properties
        fields = {"producerGroup": group, "topic": self.topic, "defaultTopic": "TBW102",
                  "defaultTopicQueueNums": queues, "queueId": self.queue_id, "sysFlag": 0,
                  "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": properties, "reconsumeTimes": 0,
                  "unitMode": "false", "maxReconsumeTimes": 0, "batch": str(self.code == SEND_BATCH).lower()}
        return fields if self.code == SEND_MESSAGE else dict(zip("abcdefghijklm", fields.values(), strict=True))


def _part(message: Message) -> bytes:
    properties = message.properties.encode()
    size = _PART.size + len(message.body) + 2 + len(properties)
    return b"".join((_PART.pack(size, 0, 0, 0, len(message.body)), message.body, struct.pack(">h", len(properties)),
                     properties))


class Drawing:
    """The parameters of drawing: bodies of `least` to `largest` bytes; `heavy`: the share of those above 30 KB, 1 as
    above; `fixed_size`: all are single messages with bodies of that size and without filler."""

    def __init__(self, largest: int = LARGEST_BODY, heavy: float = 1.0, fixed_size: int | None = None, least: int = 0):
        self.least, self.largest = least, largest
        self._fixed_size = fixed_size
        self._weights = {self._empty: 1 / 30, self._edge: 1 / 15, self._small: 1 / 2, self._middle: 1 / 3,
                         self._large: heavy / 12, self._huge: heavy / 100}

    def request(self, rng: random.Random, topics: Sequence[str], queues: int, names: Iterator[str]) -> Request:
        """Draw a message or a batch for one of the topics and one of its queues. With a fixed size it is always the
        first topic, whose name is a part of the record."""
        topic, queue_id = rng.choice(topics), rng.randrange(queues)
        if self._fixed_size is not None:
            message = Message(next(names), self._body(rng, self._fixed_size), "TagA", "")
            return Request(topics[0], queue_id, SEND_MESSAGE, (message,))
        if rng.random() < _BATCHES:
            return Request(topic, queue_id, SEND_BATCH, self._batch(rng, names))
        return Request(topic, queue_id, rng.choice([SEND_MESSAGE, SEND_MESSAGE_V2]), (self._message(rng, names),))

    def _message(self, rng: random.Random, names: Iterator[str]) -> Message:
        size = self.size(rng)
        filling = ""
        if rng.random() < _FILLED:
            longest = LONGEST_PROPERTIES - 60
            begin, length = rng.randrange(len(_text()) // 2), longest
            if rng.random() < 0.8:
                length = _log_uniform(rng, 100, longest)
            filling = _text()[begin:begin + length]
        return Message(next(names), self._body(rng, size), f"Tag{size % 3}", filling)

    def _batch(self, rng: random.Random, names: Iterator[str]) -> tuple[Message, ...]:
        """Draw a batch with as many messages as fit; most batches are small."""
        left = _log_uniform(rng, min(2000, self.largest), min(_LARGEST_BATCH, self.largest))
        messages: list[Message] = []
        for _ in range(rng.randint(1, _LONGEST_BATCH)):
            message = self._message(rng, names)
            left -= len(_part(message))
            if left < 0 and messages:
                break
            messages.append(message)
        # a message of the maximum size leaves no room for its own head
        return tuple(messages) if len(_part(messages[0])) <= self.largest else self._batch(rng, names)

    @staticmethod
    def _body(rng: random.Random, size: int) -> bytes:
        if size and rng.random() < _DECOYS:
            return (_DECOY * (size // len(_DECOY) + 1))[:size]
        begin = rng.randrange(_NOISE_SIZE - size)
        return _noise()[begin:begin + size]

    # Sizes.

    def size(self, rng: random.Random) -> int:
        """Draw the size of a body."""
        (draw,) = rng.choices(list(self._weights), list(self._weights.values()))
        return max(self.least, min(draw(rng), self.largest))

    def _empty(self, _rng: random.Random) -> int:
        return 0

    def _edge(self, rng: random.Random) -> int:
        """Draw an edge, or a size a little below it, so that the record with head and properties is at the edge."""
        edge = rng.choice([edge for edge in EDGES if edge <= self.largest])
        if rng.random() < 1 / 30:
            edge = self.largest
        return edge + rng.choice([rng.randint(-2, 2), rng.randint(-300, 0)])

    def _small(self, rng: random.Random) -> int:
        return rng.randint(20, 3000)

    def _middle(self, rng: random.Random) -> int:
        return rng.randint(5000, 30_000)

    def _large(self, rng: random.Random) -> int:
        return _log_uniform(rng, 30_000, min(300_000, self.largest))

    def _huge(self, rng: random.Random) -> int:
        return _log_uniform(rng, min(300_000, self.largest // 2), self.largest)


def _log_uniform(rng: random.Random, least: int, most: int) -> int:
    return min(int(least * (most / least) ** rng.random()), most)
