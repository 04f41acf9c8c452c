"""`rmqha bench produce|consume|e2e`: how fast a cluster is, as this client sees it."""
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.listeners import MessageSelector
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendCallback, SendResult, SendStatus
from rmqha.common.message.message import Message
from rmqha.tools.errors import one_line
from rmqha.tools.messages.consume import EARLIEST, Position, PositionType, QueueFeed
from rmqha.tools.messages.produce import new_consumer, new_producer, read_queues
from rmqha.tools.terminal import (
    FAILED,
    WorkFailedError,
    counted,
    duration_type,
    emit,
    namesrv_option,
    output_option,
    percentiles,
    put,
    put_facts,
    size_type,
    topic_option,
)

F = TypeVar("F", bound=Callable[..., Any])

_STAMP = struct.Struct(">16sQQ")  # run, number of the message, monotonic ns when it was sent
_ERRORS_SHOWN = 3


@dataclass
class Sends:
    """What became of asynchronous sends; the callbacks' threads write, the caller reads when all are done."""

    in_flight: int
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards what follows
    seconds: list[float] = field(default_factory=list)  # of each that was answered
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._permits = threading.Semaphore(self.in_flight)

    def send(self, producer: DefaultMQProducer, message: Message) -> None:
        """Send as soon as one of the `in_flight` has been answered."""
        self._permits.acquire()
        begin = time.perf_counter()

        def stored(result: SendResult) -> None:
            with self.lock:
                self.seconds.append(time.perf_counter() - begin)
                self.statuses[result.send_status.name] += 1
            self._permits.release()

        def failed(error: Exception) -> None:
            with self.lock:
                self.errors[one_line(error)] += 1
            self._permits.release()
        try:
            producer.send_async(message, SendCallback(stored, failed))
        except CLIENT_ERRORS as error:
            failed(error)

    def wait(self) -> None:
        """Until all are answered."""
        for _ in range(self.in_flight):
            self._permits.acquire()

    @property
    def failures(self) -> int:
        """Those that failed, or are not as safe as promised."""
        return self.errors.total() + self.statuses.total() - self.statuses[SendStatus.SEND_OK.name]


def latencies_ms(seconds: list[float]) -> dict[str, float]:
    """Percentiles in ms."""
    return {name: round(value * 1000, 3) for name, value in percentiles(seconds).items()}


def report(result: dict[str, Any], output: str) -> None:
    """Print figures; the greater groups of a table as a line each."""
    if output != "table":
        emit(result, output)
        return
    put_facts({name: "  ".join(f"{key} {inner:,}" for key, inner in value.items()) if isinstance(value, dict)
               else f"{value:,}" if isinstance(value, (int, float)) else str(value) for name, value in result.items()})


def _rates(count: int, size: int, seconds: float) -> dict[str, Any]:
    return {"messages": count, "bytes": size, "seconds": round(seconds, 3),
            "messagesPerSecond": round(count / seconds, 1) if seconds else 0.0,
            "mebibytesPerSecond": round(size / seconds / (1 << 20), 3) if seconds else 0.0}


def _end(sends: Sends, more_failures: int = 0) -> None:
    for text, count in sends.errors.most_common(_ERRORS_SHOWN):
        put(f"{count:,} failed: {text}", err=True)
    if sends.failures or more_failures:
        raise SystemExit(FAILED)


def sending_options(command: F) -> F:
    """--count, --size, --in-flight, --warmup, --rate."""
    for option in (
            click.option("--rate", type=click.FloatRange(0.001), help="At most so many messages a second."),
            click.option("--warmup", default=100, show_default=True, type=click.IntRange(1),
                         help="Messages sent before, which do not count."),
            click.option("--in-flight", default=64, show_default=True, type=click.IntRange(1, 10_000),
                         help="Messages on their way at once; 1: one after the other."),
            click.option("--size", default=1024, show_default=True, type=size_type(_STAMP.size, 4 << 20),
                         help="Bytes of a message."),
            click.option("--count", default=10_000, show_default=True, type=click.IntRange(1),
                         help="How many messages.")):
        command = option(command)
    return command


@click.group("bench")
def bench_group() -> None:
    """Measure a cluster as a client sees it: rates and latency percentiles."""


@bench_group.command("produce")
@namesrv_option
@topic_option
@sending_options
@output_option
def produce_command(namesrv: str | None, topic: str, count: int, size: int, in_flight: int, warmup: int,
                    rate: float | None, output: str) -> None:
    """Send messages and measure how long each takes to be acknowledged. Exit code 1 when one failed."""
    body = os.urandom(size)
    with new_producer(namesrv) as producer:
        warm_up(producer, topic, body, warmup)
        sends, begin = Sends(in_flight), time.perf_counter()
        for number in range(count):
            if rate is not None:
                time.sleep(max(begin + number / rate - time.perf_counter(), 0))
            sends.send(producer, Message(topic, body))
        sends.wait()
        seconds = time.perf_counter() - begin
    done = len(sends.seconds)
    report({**_rates(done, done * size, seconds), "inFlight": in_flight, "failed": sends.errors.total(),
            "statuses": dict(sends.statuses), "latencyMs": latencies_ms(sends.seconds)}, output)
    _end(sends)


def warm_up(producer: DefaultMQProducer, topic: str, body: bytes, count: int) -> None:
    """Some sends that do not count; the first makes the topic, if it is missing."""
    for _ in range(count):
        producer.send(Message(topic, body))


@bench_group.command("consume")
@namesrv_option
@topic_option
@click.option("--from", "begin", type=PositionType(), default=EARLIEST, show_default=True, help="Where to begin.")
@click.option("--count", type=click.IntRange(1), help="End after so many messages; by default with the last one.")
@output_option
def consume_command(namesrv: str | None, topic: str, begin: Position, count: int | None, output: str) -> None:
    """Read what a topic holds, without a group, and measure how long each answer with messages took to come."""
    with new_consumer(namesrv) as consumer:
        feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
        for queue in read_queues(consumer, topic):
            feed.open(queue, begin.offset_of(consumer, queue), consumer.admin.max_offset(queue))
        messages = size = 0
        waits, start = [], time.perf_counter()
        last = start
        for batch in feed.batches(None):
            now = time.perf_counter()
            waits.append(now - last)
            messages, size, last = messages + len(batch.messages), size + sum(len(m.body) for m in batch.messages), now
            if count is not None and messages >= count:
                break
        seconds = time.perf_counter() - start
    report({**_rates(messages, size, seconds), "answers": len(waits), "waitForAnswerMs": latencies_ms(waits)}, output)
    if messages < (count or 1):
        raise WorkFailedError(f"only {counted(messages, 'message')} of {count or 1} came")


class EndToEnd:
    """Sends stamped messages and reads them again, on one thread: from the send to the consumer's hand."""

    def __init__(self, producer: DefaultMQProducer, consumer: DefaultMQPullConsumer, topic: str, size: int) -> None:
        self._producer = producer
        self._topic = topic
        self._size = size
        self._run = os.urandom(16)
        self._feed = QueueFeed(consumer, MessageSelector.by_tag("*"))
        for queue in read_queues(consumer, topic):
            self._feed.open(queue, consumer.admin.max_offset(queue))
        self.sends = Sends(10_000)
        self.seconds: list[float] = []
        self.came: Counter[int] = Counter()

    def run(self, count: int, rate: float, timeout_s: float) -> float:
        """Send at a rate, read meanwhile, and until for `timeout_s` nothing came; seconds in all."""
        begin, sent = time.perf_counter(), 0
        while sent < count or len(self.came) + self.sends.errors.total() < count:
            due = begin + sent / rate - time.perf_counter()
            if sent < count and due <= 0:
                stamp = _STAMP.pack(self._run, sent, time.monotonic_ns())
                self.sends.send(self._producer, Message(self._topic, stamp.ljust(self._size, b"\0")))
                sent += 1
            elif not self._read(due if sent < count else timeout_s) and sent == count:
                break
        return time.perf_counter() - begin

    def _read(self, timeout_s: float) -> bool:
        for batch in self._feed.batches(timeout_s):
            now = time.monotonic_ns()
            for message in batch.messages:
                if len(message.body) < _STAMP.size:
                    continue
                run, number, sent_ns = _STAMP.unpack_from(message.body)
                if run == self._run:
                    self.came[number] += 1
                    self.seconds.append((now - sent_ns) / 1e9)
            return True
        return False


@bench_group.command("e2e")
@namesrv_option
@topic_option
@click.option("--count", default=2_000, show_default=True, type=click.IntRange(1), help="How many messages.")
@click.option("--size", default=1024, show_default=True, type=size_type(_STAMP.size, 4 << 20),
              help="Bytes of a message.")
@click.option("--rate", default=500.0, show_default=True, type=click.FloatRange(0.001), help="Messages a second.")
@click.option("--warmup", default=100, show_default=True, type=click.IntRange(1),
              help="Messages sent before, which do not count.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, type=duration_type(0.1),
              help="Seconds without a message after which the missing ones are lost.")
@output_option
def e2e_command(namesrv: str | None, topic: str, count: int, size: int, rate: float, warmup: int, timeout_s: float,
                output: str) -> None:
    """Send messages at a rate and read them at the same time: how long each takes from producer to consumer.

    Exit code 1 when one is lost.
    """
    with new_producer(namesrv) as producer, new_consumer(namesrv) as consumer:
        warm_up(producer, topic, bytes(size), warmup)
        bench = EndToEnd(producer, consumer, topic, size)
        seconds = bench.run(count, rate, timeout_s)
    lost = count - len(bench.came) - bench.sends.errors.total()
    report({**_rates(len(bench.came), len(bench.came) * size, seconds), "lost": lost,
            "doubled": sum(times > 1 for times in bench.came.values()), "failed": bench.sends.errors.total(),
            "acknowledgedMs": latencies_ms(bench.sends.seconds), "endToEndMs": latencies_ms(bench.seconds)}, output)
    _end(bench.sends, lost)
