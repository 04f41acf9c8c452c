"""Producers that find the master on their own, and a prober for each broker: the witnesses of a failover.

A single thread with a selector and a timer does everything, so that its own cost is small and its times are precise:

    _Producer (16)  --a message at a time-->  _Link to the broker that acknowledged last, or to the next one
    _Producer that is stale  --the same-->    _Link always to the same broker, as of a client with an old route
    _Prober (one per broker)  --a message every `probe_s`, independent of earlier ones-->  _Link to its broker

Producers send messages and batches of all sizes, see drawn_messages.py; probers send small messages. Each attempt of a
message has a new name. Only SEND_OK counts as acknowledged. A link with a late answer is not closed: its later answers
count.
"""
import heapq
import itertools
import json
import random
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.faults.drawn_messages import KIB, Drawing, Request
from tests.support.raw_remoting import frame, header
from tests.support.wait import wait_until

TOPIC, QUEUES = "Failover", 4
TOPICS = (TOPIC, "Failover-of-another-topic")
OK = 0
STORED_MAYBE = (10, 11, 12)  # FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT
REFUSED_PAUSE_S = 0.02
# The rate of one producer: three logs grow by the messages of 16 producers.
_BYTES_PER_S = 200_000
_HEAVY = 0.15
# The time after which a producer tries another broker.
ANSWER_WITHIN_S = 1.5
# The time after which an answer is no longer waited for.
LATE_WITHIN_S = 60
_MOST_PENDING = 100  # of a prober


class Ack(NamedTuple):
    """One acknowledged message. Times are monotonic, in seconds; `sent`: when it was sent."""

    name: str
    # Index of the broker that stored it, as the message id says: not the one that the message was sent to, if relayed.
    broker: int
    topic: str
    queue_id: int
    queue_offset: int
    offset: int  # in the commit log
    # The CRC of the body and the properties, see drawn_messages.crc_of.
    crc: int
    sent: float
    received: float


@dataclass
class _Attempt:
    topic: str
    messages: tuple[tuple[str, int], ...]  # name and CRC of each
    sent: float
    told: Callable[[int], None]  # called with the response code


@dataclass
class Refusals:
    """The long waits of producers for an acknowledgement, from their first attempts on: (begin, end)."""

    at_least_s: float = 0.02
    waits: list[tuple[float, float]] = field(default_factory=list)

    def note(self, begin: float, end: float) -> None:
        """Record that a message is acknowledged."""
        if end - begin >= self.at_least_s:
            self.waits.append((begin, end))

    def longest_s(self, since: float) -> float:
        """Return the longest wait that ended after `since`."""
        return max((end - begin for begin, end in self.waits if end >= since), default=0.0)


class _Link:
    """One connection to a broker, which may have many requests under way."""

    def __init__(self, traffic: "Traffic", broker: int):
        self.broker = broker
        self.is_open = True
        self.pending: dict[int, _Attempt] = {}
        self._traffic = traffic
        self._out = bytearray()
        self._in = bytearray()
        self._connected = False
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect_ex(traffic.addresses[broker])
        traffic.selector.register(self.socket, selectors.EVENT_WRITE, self)

    def send(self, opaque: int, attempt: _Attempt, data: bytes) -> None:
        """Send a request."""
        self.pending[opaque] = attempt
        self._out += data
        if self._connected:
            self._flush()

    def on_event(self, events: int) -> None:
        """Handle a ready socket."""
        if not self.is_open:
            # closed in this round of the selector
            return
        if events & selectors.EVENT_WRITE:
            if not self._connected and self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.close()
                return
            self._connected = True
            self._flush()
        if self.is_open and events & selectors.EVENT_READ:
            self._read()

    def _flush(self) -> None:
        try:
            while self._out:
                del self._out[:self.socket.send(self._out)]
        except BlockingIOError:
            # the selector reports when it is writable
            pass
        except OSError:
            self.close()
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        self._traffic.selector.modify(self.socket, wanted, self)

    def _read(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._in += data
        while len(self._in) >= 4:
            (length,) = struct.unpack_from(">i", self._in)
            if len(self._in) < 4 + length:
                return
            whole = bytes(self._in[4:4 + length])
            del self._in[:4 + length]
            head = json.loads(whole[4:4 + (struct.unpack_from(">I", whole)[0] & 0xFFFFFF)])
            attempt = self.pending.pop(head["opaque"], None)
            if attempt is not None:
                self._traffic.answered(self, attempt, head)

    def close(self) -> None:
        """Close the connection, and fail all requests that are under way."""
        if not self.is_open:
            return
        self.is_open = False
        self._traffic.selector.unregister(self.socket)
        self.socket.close()
        ended, self.pending = list(self.pending.values()), {}
        if self._connected:
            self._traffic.unknown += len(ended)
        for attempt in ended:
            attempt.told(-1)


class _Producer:
    """A producer that sends one message after another, with pauses, to the broker that acknowledges."""

    def __init__(self, traffic: "Traffic", number: int, pause_s: float, is_stale: bool):
        self._traffic = traffic
        self._is_stale = is_stale
        self._pause_s = pause_s
        self._rng = random.Random(f"producer {traffic.name} {number}")
        self._names = (f"{traffic.name}.p{number}.{count}" for count in itertools.count())
        self._broker = number % len(traffic.addresses) if is_stale else 0
        self._size = 0  # of the last body
        self._link: _Link | None = None
        # The time of the first attempt since the last acknowledgement.
        self._since: float | None = None
        self.is_busy = False
        self.step()

    def step(self) -> None:
        """Send the next message."""
        traffic = self._traffic
        if not traffic.is_going:
            self.is_busy, self._since = False, None
            traffic.later(0.01, self.step)
            return
        self.is_busy = True
        if self._link is None or not self._link.is_open:
            self._link = _Link(traffic, self._broker)
        self._since = self._since or time.monotonic()
        link, is_over = self._link, False

        def told(code: int) -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                self._told(code)

        def is_late() -> None:
            if not is_over:
                traffic.late.append((time.monotonic() + LATE_WITHIN_S, link))
                self._link = None
                told(-2)
        request = traffic.drawing.request(self._rng, TOPICS, QUEUES, self._names)
        self._size = traffic.send(link, request, told)
        traffic.later(ANSWER_WITHIN_S, is_late)

    def _told(self, code: int) -> None:
        if code == OK:
            self._traffic.refusals.note(self._since, time.monotonic())
            self._since = None
            rest_s = self._size / _BYTES_PER_S
            self._traffic.later(self._pause_s * self._rng.uniform(0.5, 1.5) + rest_s, self.step)
            return
        if code not in STORED_MAYBE:
            last = self._traffic.last_master
            if not self._is_stale:
                self._broker = last if last != self._broker else (self._broker + 1) % len(self._traffic.addresses)
            if self._link is not None:
                self._link.close()
                self._link = None
        self._traffic.later(REFUSED_PAUSE_S, self.step)


class _Prober:
    """A prober that sends to one broker every `probe_s`, even if the broker does not answer."""

    def __init__(self, traffic: "Traffic", broker: int):
        self._traffic = traffic
        self._broker = broker
        self._rng = random.Random(f"prober {traffic.name} {broker}")
        self._names = (f"{traffic.name}.b{broker}.{count}" for count in itertools.count())
        self._link: _Link | None = None
        self.step()

    def step(self) -> None:
        """Send, and schedule the next probe."""
        traffic = self._traffic
        traffic.later(traffic.probe_s, self.step)
        if not traffic.is_going:
            return
        if self._link is None or not self._link.is_open:
            self._link = _Link(traffic, self._broker)
        if len(self._link.pending) < _MOST_PENDING:
            request = traffic.probe_drawing.request(self._rng, TOPICS, QUEUES, self._names)
            traffic.send(self._link, request, lambda code: None)


class Traffic:
    """The producers of one life of a cluster with the brokers `addresses`: index -> `host:port`. The brokers accept
    bodies of `least` to `largest` bytes. `stale` of the producers never learn which broker is the master."""

    def __init__(self, addresses: list[str], name: str, journal: Path, producers: int = 16, pause_s: float = 0.04,
                 least: int = 0, largest: int = 512 * KIB, stale: int = 0):
        self.addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in addresses)]
        self.name = name
        self.drawing = Drawing(largest, _HEAVY, least=least)
        self.probe_drawing = Drawing(4 * KIB, 0, least=least)
        # Only the thread appends; others may read.
        self.acks: list[Ack] = []
        self.maybe = self.unknown = 0
        # code and beginning of the remark
        self.refused: Counter[str] = Counter()
        self.refusals = Refusals()
        self.probe_s = 0.2
        self.last_master = 0
        self.is_going = False
        self.selector = selectors.DefaultSelector()
        self.late: list[tuple[float, _Link]] = []
        self._links: list[_Link] = []
        self._opaques = itertools.count(1)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._journal = open(journal, "a", encoding="utf-8")
        self._stopped = threading.Event()
        self.failure: BaseException | None = None
        self.relayed = 0  # acknowledgements that came from another broker than the master
        self._producers = [_Producer(self, number, pause_s, number < stale) for number in range(producers)]
        for broker in range(len(addresses)):
            _Prober(self, broker)
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    # Methods for other threads.

    def go(self) -> None:
        """Start sending."""
        self.is_going = True

    def pause(self) -> None:
        """Stop sending, and wait until no producer waits for an answer."""
        self.is_going = False
        wait_until(lambda: not any(producer.is_busy for producer in self._producers), 60_000, "the producers rest")

    def close(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "the traffic's thread hangs"
        self._journal.close()

    def acked_by_other(self, victim: int, since: float, timeout_s: float) -> Ack:
        """Wait for the first acknowledgement of a message sent after `since`, by another broker than `victim`."""
        seen = len(self.acks)
        while seen and self.acks[seen - 1].received > since:
            seen -= 1
        deadline = time.monotonic() + timeout_s
        while True:
            self._check()
            for ack in self.acks[seen:]:
                seen += 1
                if ack.broker != victim and ack.sent > since:
                    return ack
            assert time.monotonic() < deadline, (
                f"no other broker acknowledges within {timeout_s} s; maybe {self.maybe}, refused {dict(self.refused)}")
            time.sleep(0.002)

    def wait_for_more(self, count: int, timeout_ms: int = 60_000) -> None:
        """Wait until `count` more messages are acknowledged than now."""
        wanted = len(self.acks) + count

        def are_there() -> bool:
            self._check()
            return len(self.acks) >= wanted
        wait_until(are_there, timeout_ms, f"{count} more acknowledgements; refused {dict(self.refused)}")

    def _check(self) -> None:
        if self.failure is not None:
            raise AssertionError("the traffic's thread has failed") from self.failure

    # Methods of the thread.

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._round()
        except BaseException as failure:  # the waiting threads raise it
            self.failure = failure
        finally:
            for link in [key.data for key in self.selector.get_map().values()]:
                self.selector.unregister(link.socket)
                link.socket.close()
            self.selector.close()

    def _round(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        self._close_late(now)
        left = self._timers[0][0] - time.monotonic() if self._timers else 0.05
        for key, events in self.selector.select(min(max(left, 0), 0.05)):
            key.data.on_event(events)

    def _close_late(self, now: float) -> None:
        for entry in [entry for entry in self.late if now >= entry[0] or not entry[1].pending]:
            self.late.remove(entry)
            entry[1].close()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call a function after this number of seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), action))

    def send(self, link: _Link, request: Request, told: Callable[[int], None]) -> int:
        """Send a message or a batch over a link; return the size of the request's body."""
        opaque, body = next(self._opaques), request.body()
        head = header(request.code, opaque, **request.fields("failover-producer", QUEUES))
        messages = tuple((message.name, message.crc) for message in request.messages)
        link.send(opaque, _Attempt(request.topic, messages, time.monotonic(), told), frame(head, body))
        return len(body)

    def _stored_by(self, message_id: str) -> int:
        """Return the index of the broker whose address is in a message id: 4 bytes IPv4, 4 port, 8 offset."""
        host, port = socket.inet_ntoa(bytes.fromhex(message_id[:8])), int(message_id[8:16], 16)
        return self.addresses.index((host, port))

    def answered(self, link: _Link, attempt: _Attempt, head: dict) -> None:
        """Handle an answer. For a batch it has all message ids, and the queue offset of the first message."""
        received, code = time.monotonic(), head["code"]
        if code == OK:
            fields = head["extFields"]
            ids, queue_id, queue_offset = fields["msgId"].split(","), int(fields["queueId"]), int(fields["queueOffset"])
            broker = self._stored_by(ids[0])
            self.relayed += (broker != link.broker) * len(ids)
            for number, ((name, crc), message_id) in enumerate(zip(attempt.messages, ids, strict=True)):
                ack = Ack(name, broker, attempt.topic, queue_id, queue_offset + number, int(message_id[-16:], 16),
                          crc, attempt.sent, received)
                self.acks.append(ack)
                self._journal.write(json.dumps(ack) + "\n")
            self.last_master = broker
        elif code in STORED_MAYBE:
            self.maybe += 1
        else:
            self.refused[f"{code} {(head.get('remark') or '')[:60]}"] += 1
        attempt.told(code)
