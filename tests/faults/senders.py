"""Clients that send without a pause and remember what was acknowledged: the witnesses of a fault.

Each sender is a thread with one bare connection (tests/support/raw_remoting.py) and one request on its way. Only
SEND_OK counts as acknowledged; all else means "stored, maybe". A body begins with the message's name, and is filled up
from it.
"""
import json
import random
import threading
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

TOPIC = "Faults"
QUEUES = 4
_PAUSE_S = 0.05  # after an answer that is no acknowledgement
_AWAY_S = 0.05  # before the next attempt to connect
_SEND_OK = 0
_STORED_MAYBE = (10, 11, 12)  # FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT


@dataclass(frozen=True)
class Acknowledged:
    """Where a message was acknowledged to be, and what it is."""

    queue_id: int
    queue_offset: int
    offset: int  # commit log offset, as the message id tells it
    crc: int  # of the body

    def place(self) -> tuple[int, int, int, int]:
        """All fields, to compare with a record's."""
        return self.queue_id, self.queue_offset, self.offset, self.crc


def body_of(name: str, size: int) -> bytes:
    """`size` bytes that begin with the name."""
    unit = name.encode() + b"|"
    return (unit * (size // len(unit) + 1))[:max(size, len(unit))]


def some_size(rng: random.Random) -> int:
    """Mostly small, a few beyond one frame of replication (32 KiB)."""
    return rng.randint(33_000, 60_000) if rng.random() < 0.01 else rng.randint(20, 2500)


class Senders:
    """`threads` senders to `address`; they connect again whenever their connection ends.

    `answer_within_s`: an answer that takes longer is noted in `unanswered` (the request must get a typed answer within
    its deadline). `fixed_size`: all bodies have it; else they are mixed.
    """

    def __init__(self, address: str, name: str, seed: int, journal: Path, threads: int = 3,
                 fixed_size: int | None = None, answer_within_s: float = 60.0):
        self.address = address
        self.acknowledged: dict[str, Acknowledged] = {}  # each thread adds its own names, in the order of the answers
        self.maybe = 0  # answered as stored, but not acknowledged; written by all, only shown
        self.refused: Counter[int] = Counter()  # response code -> count of all other answers
        self.unanswered: list[str] = []
        self.answer_within_s = answer_within_s
        self._name = name
        self._fixed_size = fixed_size
        self._journal = open(journal, "a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()  # guards _journal, refused, unanswered
        self._go = threading.Event()
        self._stopped = threading.Event()
        self._busy = [False] * threads  # each thread writes its own entry
        self._threads = [threading.Thread(target=self._run, args=(number, random.Random(f"{seed} {number}")),
                                          name=f"sender-{number}", daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def go(self) -> None:
        """Send."""
        self._go.set()

    def pause(self) -> None:
        """Send no more, and wait until nothing is on its way."""
        self._go.clear()
        limit_ms = int(self.answer_within_s * 1000) + 10_000
        wait_until(lambda: not any(self._busy), limit_ms, "an answer, or the end of the connection, for each sender")

    def wait_for_more(self, count: int, timeout_ms: int = 60_000) -> None:
        """Until `count` more messages are acknowledged than now."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, timeout_ms, f"{count} more acknowledgements "
                   f"(maybe {self.maybe}, refused {self.refused}, unanswered {self.unanswered})")

    def wait_for_answers(self, count: int, timeout_ms: int = 60_000) -> None:
        """Until `count` more answers of any kind have come."""
        wanted = self._answers() + count
        wait_until(lambda: self._answers() >= wanted, timeout_ms, f"{count} more answers")

    def _answers(self) -> int:
        return len(self.acknowledged) + self.maybe + sum(self.refused.values())

    def snapshot(self) -> dict[str, Acknowledged]:
        """What is acknowledged by now."""
        return dict(self.acknowledged)

    def close(self) -> None:
        """End all threads."""
        self._stopped.set()
        self._go.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self._journal.close()

    def _run(self, number: int, rng: random.Random) -> None:
        client: RawClient | None = None
        count = 0
        while not self._stopped.is_set():
            if not self._go.is_set():
                self._busy[number] = False
                self._go.wait(1)
                continue
            self._busy[number] = True
            if client is None:
                client = self._connect()
                continue
            count += 1
            if not self._send(client, f"{self._name}.{number}.{count:07d}", rng):
                client.socket.close()
                client = None
        self._busy[number] = False
        if client is not None:
            client.socket.close()

    def _connect(self) -> RawClient | None:
        try:
            return RawClient(self.address, self.answer_within_s)
        except OSError:
            time.sleep(_AWAY_S)
            return None

    def _send(self, client: RawClient, name: str, rng: random.Random) -> bool:
        """Send one message; False when the connection is no more."""
        body = body_of(name, self._fixed_size or some_size(rng))
        try:
            answer = client.send_message(TOPIC, body, rng.randrange(QUEUES),
                                         properties=f"KEYS\x01k{name}\x02TAGS\x01Tag{len(body) % 3}")
        except TimeoutError:
            self._note_unanswered(name)
            return False
        except (OSError, EOFError):
            return False
        if answer.code == _SEND_OK:
            fields = answer.fields
            self._acknowledge(name, Acknowledged(int(fields["queueId"]), int(fields["queueOffset"]),
                                                 int(fields["msgId"][-16:], 16), zlib.crc32(body)))
            return True
        if answer.code in _STORED_MAYBE:
            self.maybe += 1
        else:
            with self._lock:
                self.refused[answer.code] += 1
        time.sleep(_PAUSE_S)
        return True

    def _acknowledge(self, name: str, placed: Acknowledged) -> None:
        self.acknowledged[name] = placed
        with self._lock:
            if not self._journal.closed:
                self._journal.write(json.dumps([time.monotonic(), name, *placed.place()]) + "\n")

    def _note_unanswered(self, name: str) -> None:
        with self._lock:
            self.unanswered.append(f"{name}: no answer within {self.answer_within_s} s")
