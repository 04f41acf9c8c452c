"""Senders in threads, with reproducible bodies, and the messages that were acknowledged to them."""
import itertools
import json
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common.message.message import Message
from tests.support.raw_remoting import RawClient, frame
from tests.support.wait import at_least, wait_until

# Message bodies that are reproducible from (seed, index, size); the Java twin is java/src/.../Bodies.java.

_PERIOD = 1009


class Bodies:
    """The bodies of one seed, given by `of(index, size)`; a body of 8 bytes or more begins with its index."""

    def __init__(self, seed: int):
        table = bytearray()
        for _ in range(_PERIOD):
            seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
            table.append(seed >> 16 & 0xFF)
        self._table = bytes(table)

    def of(self, index: int, size: int) -> bytes:
        """Return the body of message `index` with `size` bytes."""
        start = index * 31 % _PERIOD
        body = (self._table * ((start + size) // _PERIOD + 1))[start:start + size]
        return struct.pack(">q", index) + body[8:] if size >= 8 else body


def mixed_sizes(count: int, seed: int) -> list[int]:
    """Return sizes of 1 byte to 1 MiB: most small, 2 in 100 up to 64 KiB, 1 in 200 up to 1 MiB; both extremes occur."""
    rng = random.Random(seed)
    sizes = []
    for _ in range(count):
        kind = rng.random()
        top = 1 << 20 if kind < 0.005 else 1 << 16 if kind < 0.025 else 2048
        sizes.append(rng.randint(1, top))
    sizes[0], sizes[count // 2] = 1, 1 << 20
    return sizes


def small_sizes(count: int, seed: int, low: int = 1, high: int = 1500) -> list[int]:
    """Return sizes drawn evenly between `low` and `high` bytes."""
    rng = random.Random(seed)
    return [rng.randint(low, high) for _ in range(count)]


# Senders in threads, for tests that kill a broker under load; they record each acknowledged message and its queue
# offset.

Acknowledged = tuple[int, int]  # (queue id, queue offset)


class Load:
    """`threads` threads that call `send(index)` until `stop`; an exception (the broker is down) ends a thread.

    `send` returns (queue id, queue offset) for SEND_OK, and None for any other status.
    """

    def __init__(self, make_sender: Callable[[], Callable[[int], Acknowledged | None]], threads: int, first: int = 0):
        self.acknowledged: dict[int, Acknowledged] = {}  # each thread writes its own indices
        self.endings: list[str] = []
        self._make_sender = make_sender
        self._indices = itertools.count(first)
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._run, name=f"load-{n}", daemon=True) for n in range(threads)]

    def start(self) -> "Load":
        """Start sending."""
        for thread in self._threads:
            thread.start()
        return self

    def _run(self) -> None:
        try:
            send = self._make_sender()
            while not self._stopped.is_set():
                index = next(self._indices)
                placed = send(index)
                if placed is not None:
                    self.acknowledged[index] = placed
        # Any exception of a client whose broker is down; the test checks `endings`.
        except Exception as e:
            self.endings.append(repr(e))

    def wait_for(self, count: int, timeout_ms: int = 110_000) -> None:
        """Wait until `count` messages are acknowledged."""
        wait_until(lambda: len(self.acknowledged) >= count or not any(t.is_alive() for t in self._threads), timeout_ms,
                   f"{count} messages acknowledged")
        assert len(self.acknowledged) >= count, f"only {len(self.acknowledged)} acknowledged; {self.endings}"

    def stop(self) -> dict[int, Acknowledged]:
        """Stop the threads; return index -> place of each acknowledged message."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(240)
            assert not thread.is_alive(), f"{thread.name} hangs in its client"
        return self.acknowledged


def send_until_stored(producer: DefaultMQProducer, message: Message, timeout_ms: int = 90_000) -> None:
    """Send until it is acknowledged, as a producer's caller does while another broker becomes the master."""
    def is_stored() -> bool:
        try:
            return producer.send(message, 10_000).send_status is SendStatus.SEND_OK
        except CLIENT_ERRORS as error:
            refusals.append(str(error))
            return False
    refusals: list[str] = []
    try:
        wait_until(is_stored, timeout_ms, "a message is acknowledged")
    except AssertionError as error:
        raise AssertionError(f"{error}; last refusals: {refusals[-3:]}") from None


def raw_sender(address: str, topic: str, queues: int, body: bytes) -> Callable[[], Callable]:
    """Return a factory of senders over raw connections; message `index` goes to queue `index % queues`."""
    def make() -> Callable[[int], Acknowledged | None]:
        client = RawClient(address)

        def send(index: int) -> Acknowledged | None:
            answer = client.send_message(topic, body, index % queues, properties=f"index\x01{index}\x02TAGS\x01TagA")
            return (index % queues, int(answer.fields["queueOffset"])) if answer.code == 0 else None
        return send
    return make


def rmqha_sender(namesrv: str, topic: str, body: bytes) -> tuple[Callable[[], Callable], Callable[[], None]]:
    """Return a factory of senders over one producer of rmqha's client, and a function that shuts the producer down."""
    producer = DefaultMQProducer("crash-producer", namesrv)
    producer.retry_times_when_send_failed = 0
    producer.send_msg_timeout = 60_000
    producer.start()

    def send(index: int) -> Acknowledged | None:
        message = Message(topic, body, "TagA", f"key-{index}")
        message.put_user_property("index", str(index))
        result = producer.send(message)
        return (result.message_queue.queueId, result.queue_offset) if result.send_status == SendStatus.SEND_OK else None
    return lambda: send, producer.shutdown


# Senders to a topic that is deleted and created again meanwhile, and the answers that they got. Each sender is a
# thread with a connection that has many requests in flight, written as Java's producer writes them.

SEND_MESSAGE_V2 = 310
SEND_OK = 0
_TOGETHER = 64  # requests that a sender has in flight
_AWAY_S = 0.02  # before the next attempt to connect


class Sent(NamedTuple):
    """An acknowledged message; `generation` is the topic's when the request was made."""

    generation: int
    queue_id: int
    queue_offset: int
    body: bytes


class TopicLoad:
    """`threads` senders to `topic` at `address`. The code that creates the topic again sets `queues`, then
    `generation`.

    A request of a generation is made after that topic was created, so its message has to exist if it is acknowledged.
    """

    def __init__(self, address: str, topic: str, queues: int, threads: int = 8) -> None:
        self.address = address
        self.topic = topic
        self.queues = queues
        self.generation = 0
        self.acknowledged: list[Sent] = []  # appended by all senders
        self.others: Counter[int] = Counter()  # all other answers, by code; only for display
        self._stopped = threading.Event()
        self._going = threading.Event()
        self._busy = [False] * threads  # each sender writes its own entry
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
        """Stop sending, and wait until no request is in flight."""
        self._going.clear()
        wait_until(lambda: not any(self._busy), 60_000, "answers to all that was sent")

    def go(self) -> None:
        """Resume sending."""
        self._going.set()

    def wait_for_more(self, count: int) -> None:
        """Wait until `count` more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, 120_000, f"{count} messages more (others {self.others})")

    def place(self, queue: int) -> tuple[str, int]:
        """Return topic and queue id of one of `queues`."""
        return self.topic, queue

    def of_generation(self, generation: int) -> list[Sent]:
        """Return the messages of a generation that are acknowledged so far."""
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
