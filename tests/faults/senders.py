"""Clients that send without a pause and remember the acknowledged messages: the witnesses of a fault.

Each sender is a thread with one bare connection (tests/support/raw_remoting.py) and one request under way: a message
or a batch, see drawn_messages.py. Only SEND_OK counts as acknowledged; anything else means "maybe stored".
"""
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.drawn_messages import Drawing, Request
from tests.support.raw_remoting import Answer, RawClient
from tests.support.wait import wait_until

TOPIC = "Faults"
TOPICS = (TOPIC, "Faults-of-another-topic", "F")
QUEUES = 4  # of each topic
SENDERS = 16
# The pause after an answer that is not an acknowledgement.
_PAUSE_S = 0.3
# The rate of all senders, so that a log grows no faster than its broker can be restarted.
_BYTES_PER_S = 12_000_000
# The polling interval of a paused sender.
_IDLE_S = 0.02
# The pause before the next attempt to connect.
_AWAY_S = 0.05
_SEND_OK = 0
_STORED_MAYBE = (10, 11, 12)  # FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT


@dataclass(frozen=True)
class Acknowledged:
    """The acknowledged place of a message, and its checksum."""

    topic: str
    queue_id: int
    queue_offset: int
    # The commit log offset in the message id.
    offset: int
    # The CRC of the body and the properties, see drawn_messages.crc_of.
    crc: int

    def place(self) -> tuple[str, int, int, int, int]:
        """The place of the record, to compare with one."""
        return self.topic, self.queue_id, self.queue_offset, self.offset, self.crc


class Senders:
    """`threads` senders to `address`, which reconnect whenever their connection ends.

    `answer_within_s`: a later answer is noted in `unanswered` (each request must get a typed answer within its
    deadline). `drawing` draws their messages; by default, messages of all sizes.
    """

    def __init__(self, address: str, name: str, seed: int, journal: Path, threads: int = SENDERS,
                 drawing: Drawing | None = None, answer_within_s: float = 60.0):
        self.address = address
        # Each thread adds its own names, in the order of the answers.
        self.acknowledged: dict[str, Acknowledged] = {}
        # The number of answers "stored, but not acknowledged"; written by all threads, only shown.
        self.maybe = 0
        # Response code -> count of all other answers.
        self.refused: Counter[int] = Counter()
        self.unanswered: list[str] = []
        self.answer_within_s = answer_within_s
        self._name = name
        self._drawing = drawing or Drawing()
        self._journal = open(journal, "a", encoding="utf-8", buffering=1)
        # Guards _journal, refused and unanswered.
        self._lock = threading.Lock()
        self._go = threading.Event()
        self._stopped = threading.Event()
        # The number of senders that send while `_go` is set.
        self._active = threads
        # each thread sets its own entry
        self._busy = [False] * threads
        self._threads = [threading.Thread(target=self._run, args=(number, random.Random(f"{seed} {number}")),
                                          name=f"sender-{number}", daemon=True) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def go(self, count: int | None = None) -> None:
        """Let all senders send, or `threads` of them."""
        self._active = count or len(self._threads)
        self._go.set()

    def pause(self) -> None:
        """Stop sending, and wait until no request is under way."""
        self._go.clear()
        limit_ms = int(self.answer_within_s * 1000) + 10_000
        wait_until(lambda: not any(self._busy), limit_ms, "an answer, or the end of the connection, for each sender")

    def wait_for_more(self, count: int, timeout_ms: int = 60_000) -> None:
        """Wait until `count` more messages are acknowledged than now."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, timeout_ms, f"{count} more acknowledgements "
                   f"(maybe {self.maybe}, refused {self.refused}, unanswered {self.unanswered})")

    def wait_for_answers(self, count: int, timeout_ms: int = 60_000) -> None:
        """Wait until `count` more answers of any kind have arrived."""
        wanted = self._answers() + count
        wait_until(lambda: self._answers() >= wanted, timeout_ms, f"{count} more answers")

    def _answers(self) -> int:
        return len(self.acknowledged) + self.maybe + sum(self.refused.values())

    def snapshot(self) -> dict[str, Acknowledged]:
        """Return the messages acknowledged so far."""
        return dict(self.acknowledged)

    def close(self) -> None:
        """End all threads."""
        self._stopped.set()
        self._go.set()
        for thread in self._threads:
            thread.join(240)
            assert not thread.is_alive(), f"{thread.name} hangs"
        self._journal.close()

    def _run(self, number: int, rng: random.Random) -> None:
        client: RawClient | None = None
        names = (f"{self._name}.{number:02d}.{count:07d}" for count in itertools.count(1))
        while not self._stopped.is_set():
            # Set before the check: `pause` checks in the reverse order.
            self._busy[number] = True
            if number >= self._active or not self._go.is_set():
                self._busy[number] = False
                _ = self._stopped.wait(_IDLE_S) if self._go.is_set() else self._go.wait(1)
                continue
            if client is None:
                client = self._connect()
                continue
            rest_s = self._send(client, names, rng)
            if rest_s is None:
                client.socket.close()
                client = None
                continue
            self._busy[number] = False
            self._stopped.wait(rest_s)
        self._busy[number] = False
        if client is not None:
            client.socket.close()

    def _connect(self) -> RawClient | None:
        try:
            return RawClient(self.address, self.answer_within_s)
        except OSError:
            time.sleep(_AWAY_S)
            return None

    def _send(self, client: RawClient, names: Iterator[str], rng: random.Random) -> float | None:
        """Send a message or a batch. Return the seconds to pause, or None if the connection has ended."""
        request = self._drawing.request(rng, TOPICS, QUEUES, names)
        body = request.body()
        rest_s = len(body) * self._active / _BYTES_PER_S
        try:
            answer = client.request(request.code, body, **request.fields("raw-producer", QUEUES))
        except TimeoutError:
            self._note_unanswered(request.messages[0].name)
            return None
        except (OSError, EOFError):
            return None
        if answer.code == _SEND_OK:
            self._acknowledge(request, answer)
            return rest_s
        if answer.code in _STORED_MAYBE:
            self.maybe += 1
        else:
            with self._lock:
                self.refused[answer.code] += 1
        return rest_s + _PAUSE_S

    def _acknowledge(self, request: Request, answer: Answer) -> None:
        """Record an acknowledgement. For a batch it has all message ids, and the queue offset of the first message."""
        ids, queue_offset = answer.fields["msgId"].split(","), int(answer.fields["queueOffset"])
        queue_id, now = int(answer.fields["queueId"]), time.monotonic()
        lines = []
        for number, (message, message_id) in enumerate(zip(request.messages, ids, strict=True)):
            placed = Acknowledged(request.topic, queue_id, queue_offset + number, int(message_id[-16:], 16),
                                  message.crc)
            self.acknowledged[message.name] = placed
            lines.append(json.dumps([now, message.name, *placed.place()]) + "\n")
        with self._lock:
            if not self._journal.closed:
                self._journal.write("".join(lines))

    def _note_unanswered(self, name: str) -> None:
        with self._lock:
            self.unanswered.append(f"{name}: no answer within {self.answer_within_s} s")
