"""Senders to a topic that is deleted and made again under them, and what they were told.

Each sender is a thread with a connection on which many requests, as Java's producer writes them, are on their way.
"""
import itertools
import json
import threading
import time
from collections import Counter
from typing import NamedTuple

from tests.support.raw_remoting import RawClient, frame
from tests.support.wait import at_least, wait_until

SEND_MESSAGE_V2 = 310
SEND_OK = 0
_TOGETHER = 64  # requests that a sender has on their way
_AWAY_S = 0.02  # before the next attempt to connect


class Sent(NamedTuple):
    """A message that was acknowledged; `generation` is the topic's when the request was made."""

    generation: int
    queue_id: int
    queue_offset: int
    body: bytes


class TopicLoad:
    """`threads` senders to `topic` at `address`. Whoever makes the topic again sets `queues`, then `generation`.

    A request of a generation is made after that topic was there, so its message has to be there if it is acknowledged.
    """

    def __init__(self, address: str, topic: str, queues: int, threads: int = 8) -> None:
        self.address = address
        self.topic = topic
        self.queues = queues
        self.generation = 0
        self.acknowledged: list[Sent] = []  # appended by all senders
        self.others: Counter[int] = Counter()  # all other answers, by code; only shown
        self._stopped = threading.Event()
        self._going = threading.Event()
        self._busy = [False] * threads  # each sender writes its own
        self._threads = [threading.Thread(target=self._run, args=(number,), name=f"topic-sender-{number}", daemon=True)
                         for number in range(threads)]

    def __enter__(self) -> "TopicLoad":
        self._going.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopped.set()
        self._going.set()
        for thread in self._threads:
            thread.join()

    def pause(self) -> None:
        """Send no more, and wait until nothing is on its way."""
        self._going.clear()
        wait_until(lambda: not any(self._busy), 60_000, "answers to all that was sent")

    def go(self) -> None:
        """Send again."""
        self._going.set()

    def wait_for_more(self, count: int) -> None:
        """Until `count` more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, 120_000, f"{count} messages more (others {self.others})")

    def place(self, queue: int) -> tuple[str, int]:
        """Topic and queue id of one of `queues`."""
        return self.topic, queue

    def of_generation(self, generation: int) -> list[Sent]:
        """What was acknowledged of a generation by now."""
        return [sent for sent in list(self.acknowledged) if sent.generation == generation]

    def _run(self, sender: int) -> None:
        client, numbers = None, itertools.count(sender)
        while not self._stopped.is_set():
            self._busy[sender] = self._going.is_set()
            if not self._busy[sender]:
                self._going.wait()
                continue
            try:
                client = client or RawClient(self.address)
                self._send(client, sender, numbers)
            except (OSError, EOFError):
                if client is not None:
                    client.socket.close()
                client = None
                at_least(_AWAY_S)
        self._busy[sender] = False
        if client is not None:
            client.socket.close()

    def _send(self, client: RawClient, sender: int, numbers) -> None:
        waiting = {}
        for number in itertools.islice(numbers, _TOGETHER):
            generation, queue_id, body = self.generation, number % self.queues, b"%d.%d" % (sender, number)
            waiting[number] = generation, queue_id, body
            client.send(frame(_header(*self.place(queue_id), number), body))
        for _ in range(len(waiting)):
            opaque, answer = client.read_frame()
            generation, queue_id, body = waiting.pop(opaque)
            if answer.code == SEND_OK:
                self.acknowledged.append(Sent(generation, queue_id, int(answer.fields["queueOffset"]), body))
            else:
                self.others[answer.code] += 1


def _header(topic: str, queue_id: int, opaque: int) -> bytes:
    fields = {"a": "producer", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
              "g": str(int(time.time() * 1000)), "h": "0", "i": "", "j": "0", "k": "false", "m": "false"}
    return json.dumps({"code": SEND_MESSAGE_V2, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque,
                       "serializeTypeCurrentRPC": "JSON", "version": 409}, separators=(",", ":")).encode()
