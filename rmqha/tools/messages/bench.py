"""`rmqha bench produce|consume|e2e`: measure the throughput and latency of a cluster, as seen by this client."""
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
from rmqha.common.program import examples
from rmqha.tools.connection import namesrv_option
from rmqha.tools.errors import one_line
from rmqha.tools.messages.consume import QueueFeed
from rmqha.tools.messages.positions import EARLIEST, Position, PositionType
from rmqha.tools.messages.produce import new_consumer, new_producer, read_queues
from rmqha.tools.terminal import (
    FAILED,
    WorkFailedError,
    counted,
    duration_type,
    emit,
    output_option,
    percentiles,
    put,
    put_facts,
    size_type,
    topic_option,
)

F = TypeVar("F", bound=Callable[..., Any])

# Run id, sequence number, monotonic ns at the send.
_STAMP = struct.Struct(">16sQQ")
_ERRORS_SHOWN = 3


@dataclass
class Sends:
    """Results of asynchronous sends; callback threads write them, and the caller reads them when all are done."""

    in_flight: int
    lock: threading.Lock = field(default_factory=threading.Lock)  # guards the fields below
    seconds: list[float] = field(default_factory=list)  # latency of each acknowledged send
    statuses: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._permits = threading.Semaphore(self.in_flight)

    def send(self, producer: DefaultMQProducer, message: Message) -> None:
        """Send as soon as fewer than `in_flight` sends are outstanding."""
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
        """Wait until all sends are answered."""
        for _ in range(self.in_flight):
            self._permits.acquire()

    @property
    def failures(self) -> int:
        """The number of sends that failed, or were stored with another status than SEND_OK."""
        return self.errors.total() + self.statuses.total() - self.statuses[SendStatus.SEND_OK.name]


def latencies_ms(seconds: list[float]) -> dict[str, float]:
    """Return the percentiles in ms."""
    return {name: round(value * 1000, 3) for name, value in percentiles(seconds).items()}


def report(result: dict[str, Any], output: str) -> None:
    """Print the results; in a table, each group of figures takes one line."""
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
    """Add --count, --size, --in-flight, --warmup and --rate."""
    for option in (
            click.option("--rate", type=click.FloatRange(0.001), help="The maximum rate, in messages/s."),
            click.option("--warmup", default=100, show_default=True, type=click.IntRange(1),
                         help="The number of warm-up messages, which are not measured."),
            click.option("--in-flight", default=64, show_default=True, type=click.IntRange(1, 10_000),
                         help="The maximum number of outstanding sends; 1 sends one message after the other."),
            click.option("--size", default=1024, show_default=True, type=size_type(_STAMP.size, 4 << 20),
                         help="The size of a message in bytes."),
            click.option("--count", default=10_000, show_default=True, type=click.IntRange(1),
                         help="The number of messages.")):
        command = option(command)
    return command


@click.group("bench")
def bench_group() -> None:
    """Measure rates and latency percentiles as a client sees them."""


@bench_group.command("produce", short_help="Measure the rate and latency of acknowledged sends.", epilog=examples(
    "rmqha bench produce -n 127.0.0.1:9876 -t bench --count 100000 --in-flight 64"))
@namesrv_option
@topic_option
@sending_options
@output_option
def produce_command(namesrv: str | None, topic: str, count: int, size: int, in_flight: int, warmup: int,
                    rate: float | None, output: str) -> None:
    """Measure the rate and latency of acknowledged sends. Exit code 1 when a send failed."""
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
    """Send messages that are not measured; the first one creates the topic if it is missing."""
    for _ in range(count):
        producer.send(Message(topic, body))


@bench_group.command("consume", short_help="Measure the rate of reading what a topic holds.", epilog=examples(
    "rmqha bench consume -n 127.0.0.1:9876 -t bench"))
@namesrv_option
@topic_option
@click.option("--from", "begin", type=PositionType(), default=EARLIEST, show_default=True, help="The start position.")
@click.option("--count", type=click.IntRange(1), help="Stop after N messages; by default after the last one.")
@output_option
def consume_command(namesrv: str | None, topic: str, begin: Position, count: int | None, output: str) -> None:
    """Measure reading the messages of a topic without a group: the rate, and the time to each non-empty answer.

    Exit code 1 when there were fewer messages than --count.
    """
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
        raise WorkFailedError(f"received only {counted(messages, 'message')} of {count or 1}")


class EndToEnd:
    """Sends stamped messages and reads them on one thread, to measure the latency from producer to consumer."""

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
        """Send at a rate while reading; stop `timeout_s` after the last message. Return the total seconds."""
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


@bench_group.command("e2e", short_help="Measure the latency from producer to consumer.", epilog=examples(
    "rmqha bench e2e -n 127.0.0.1:9876 -t bench --rate 1000 --count 30000"))
@namesrv_option
@topic_option
@click.option("--count", default=2_000, show_default=True, type=click.IntRange(1), help="The number of messages.")
@click.option("--size", default=1024, show_default=True, type=size_type(_STAMP.size, 4 << 20),
              help="The size of a message in bytes.")
@click.option("--rate", default=500.0, show_default=True, type=click.FloatRange(0.001), help="The rate, in messages/s.")
@click.option("--warmup", default=100, show_default=True, type=click.IntRange(1),
              help="The number of warm-up messages, which are not measured.")
@click.option("--timeout", "timeout_s", default=10.0, show_default=True, type=duration_type(0.1),
              help="Seconds without a message after which missing messages count as lost.")
@output_option
def e2e_command(namesrv: str | None, topic: str, count: int, size: int, rate: float, warmup: int, timeout_s: float,
                output: str) -> None:
    """Measure end-to-end latency: send messages at a fixed rate and read them at the same time.

    Exit code 1 when a message is lost or a send failed.
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
