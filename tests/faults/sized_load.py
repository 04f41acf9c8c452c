"""A load of random bodies with drawn sizes, perhaps in its own process. It returns the acknowledged messages.

Each sender is a thread with one bare connection (tests/support/raw_remoting.py) and one request under way. Bodies are
pieces of a random buffer without repetitions, so that bytes of a wrong place never look right.
"""
import base64
import itertools
import math
import multiprocessing
import random
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from tests.support.raw_remoting import RawClient

KIB, MIB = 1 << 10, 1 << 20
# The largest body; with topic and properties it is below the default maxMessageSize of 4 MiB.
LARGEST = 4 * MIB - 64 * KIB
TOPICS = {"Bytes0": 1, "Bytes1": 4, "Bytes2": 16}  # topic -> number of queues
# The property that makes the tails of some records long.
FILL = "fill"
_LARGEST_FILL = 31_900
_BUFFER = 16 * MIB
_ANSWER_S = 120
_SEND_OK = 0
_STORED_MAYBE = {10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}

Sizes = Callable[[random.Random], int]


def _uniform(least: int, most: int, rng: random.Random) -> int:
    return rng.randint(least, most)


def _log_uniform(least: int, most: int, rng: random.Random) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _heavy_tail(most: int, rng: random.Random) -> int:
    """Draw a size: half are below 2 KB, about 2 % above 250 KB, and a few have the maximum."""
    return min(int(1000 * (rng.paretovariate(0.7) - 1)), most)


def _mixed(most: int, rng: random.Random) -> int:
    return rng.randint(5000, 30_000) if rng.random() < 0.8 else _heavy_tail(most, rng)


PROFILES: dict[str, Sizes] = {
    "5000-30000": partial(_uniform, 5000, 30_000),
    "1k-100k": partial(_log_uniform, 1000, 100_000),
    "0-4M": partial(_heavy_tail, LARGEST),
    "0-1M": partial(_mixed, MIB),
}


class Acknowledged(NamedTuple):
    """The place of a message in its answer, and its checksums."""

    offset: int  # in the commit log
    topic: str
    queue_id: int
    queue_offset: int
    body_crc: int
    fill_crc: int  # of the property FILL


@dataclass(frozen=True)
class Plan:
    """The load. It ends at the first bound that is reached."""

    address: str
    sizes: str  # a profile
    seed: int
    senders: int = 24
    seconds: float = math.inf
    messages: int = 1 << 62
    max_bytes: int = 1 << 62  # bodies and long properties


@dataclass
class Sent:
    """The results of a load."""

    acknowledged: list[Acknowledged] = field(default_factory=list)
    # The counts of all other answers.
    others: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    seconds: float = 0.0


class _Load:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._size = PROFILES[plan.sizes]
        self._bytes = random.Random(plan.seed).randbytes(_BUFFER + LARGEST)
        self._text = base64.b64encode(self._bytes[:MIB]).decode()
        self._numbers = itertools.count()
        self._sent = Sent()
        self._lock = threading.Lock()  # guards what _sent holds
        self._ended = threading.Event()

    def run(self) -> Sent:
        begin = time.monotonic()
        clock = threading.Timer(min(self._plan.seconds, threading.TIMEOUT_MAX), self._ended.set)
        clock.start()
        try:
            with ThreadPoolExecutor(self._plan.senders) as pool:
                for sender in [pool.submit(self._send, number) for number in range(self._plan.senders)]:
                    sender.result()
        finally:
            clock.cancel()
        self._sent.seconds = time.monotonic() - begin
        return self._sent

    def _send(self, number: int) -> None:
        rng = random.Random(f"{self._plan.seed} {number}")
        try:
            with RawClient(self._plan.address, _ANSWER_S) as client:
                while not self._ended.is_set() and next(self._numbers) < self._plan.messages:
                    self._send_one(client, rng)
        finally:
            self._ended.set()

    def _send_one(self, client: RawClient, rng: random.Random) -> None:
        at, size = rng.randrange(_BUFFER), self._size(rng)
        body = self._bytes[at:at + size]
        long = rng.random() < 0.02
        begin, length = rng.randrange(MIB), rng.randrange(_LARGEST_FILL if long else 40)
        fill = self._text[begin:begin + length]
        topic = rng.choice(list(TOPICS))
        answer = client.send_message(topic, body, rng.randrange(TOPICS[topic]),
                                     properties=f"KEYS\x01k{at}\x02TAGS\x01Tag{at % 3}\x02{FILL}\x01{fill}")
        with self._lock:
            self._sent.bytes += size + length
            if self._sent.bytes > self._plan.max_bytes:
                self._ended.set()
            if answer.code != _SEND_OK:
                self._sent.others[_STORED_MAYBE.get(answer.code, f"{answer.code} {answer.remark}")] += 1
                return
            fields = answer.fields
            self._sent.acknowledged.append(Acknowledged(
                int(fields["msgId"][-16:], 16), topic, int(fields["queueId"]), int(fields["queueOffset"]),
                zlib.crc32(body), zlib.crc32(fill.encode())))


def run(plan: Plan) -> Sent:
    """Send the load from this process."""
    return _Load(plan).run()


def run_apart(plan: Plan) -> Sent:
    """Send the load from a separate process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        sent: Future[Sent] = process.submit(run, plan)
        return sent.result()
