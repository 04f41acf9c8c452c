"""The queues of a live cluster, asked of the name server and the brokers: which there are, and their offsets.

Offsets of many queues are nested dicts, as JSON: topic -> broker -> queue id -> offset.
"""
import json
import os
import re
import time
from collections.abc import Iterator
from typing import overload

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common import mix_all
from rmqha.common.message.message_queue import MessageQueue
from rmqha.pipeline.options import Options, PipelineError
from rmqha.remoting.exception import RemotingException

EARLIEST, LATEST = "earliest", "latest"
DEFAULT_GROUP = "rmqha-pipeline"
TIMEOUT_MS = 10_000
# Topics of the brokers themselves: only read when they are named.
_INNER_PREFIXES = (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX, "RMQ_SYS_", "SCHEDULE_TOPIC_XXXX",
                   "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC")
_WANTED = ('earliest, latest, or JSON such as {"TopicA": {"broker-a": {"0": 23, "1": -2}}} (-2: earliest, -1: latest)')

QueueOffsets = dict[str, dict[str, dict[str, int]]]
UNREACHABLE = (MQClientException, MQBrokerException, RemotingException)


def new_consumer(name_server: str, group: str) -> DefaultMQPullConsumer:
    """A consumer with a name of its own, not started."""
    consumer = DefaultMQPullConsumer(group, name_server)
    consumer.instance_name = f"pipeline-{os.getpid()}-{time.monotonic_ns()}"
    return consumer


def name_server_of(options: Options) -> str:
    """The address. PipelineError when there is none."""
    address = options.first("nameServer", "namesrvAddr") or os.environ.get(mix_all.NAMESRV_ADDR_ENV)
    if not address:
        raise PipelineError(f"{options.where} needs the option nameServer, such as 127.0.0.1:9876")
    return address


class ClusterQueues:
    """The queues that the options subscribe to. Use as a context manager, or close it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.name_server = name_server_of(options)
        self.topics = options.words("subscribe", options.first("subscribe", "topic") or "")
        self.pattern = options.text("subscribePattern")
        if bool(self.topics) == (self.pattern is not None):
            raise PipelineError(f"{options.where} needs one of the options subscribe and subscribePattern")
        self.consumer = new_consumer(self.name_server, options.text("consumerGroup", DEFAULT_GROUP))
        self._running = False

    def __enter__(self) -> "ClusterQueues":
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(self) -> None:
        """Connect. Idempotent."""
        if not self._running:
            self.consumer.start()
            self._running = True

    def close(self) -> None:
        """Disconnect. Idempotent."""
        if self._running:
            self.consumer.shutdown()
            self._running = False

    def queues(self) -> list[MessageQueue]:
        """All queues, in order. PipelineError when the name server or a topic can't be found."""
        self.start()
        try:
            names = self.topics or self._matching(self.pattern or "")
            return sorted(queue for name in names for queue in self.consumer.fetch_subscribe_message_queues(name))
        except UNREACHABLE as error:
            raise PipelineError(f"name server {self.name_server}: {error.__cause__ or error}") from error

    def _matching(self, pattern: str) -> list[str]:
        listed = self.consumer.api.get_topic_list_from_name_server(TIMEOUT_MS).topicList
        found = [name for name in listed if re.fullmatch(pattern, name) and not name.startswith(_INNER_PREFIXES)]
        if not found:
            raise PipelineError(f"{self.options.where}, option subscribePattern: no topic matches {pattern!r}")
        return sorted(found)

    def offsets(self, which: str, timestamp: int | None = None) -> QueueOffsets:
        """The first (`earliest`) or the next (`latest`) offset of each queue, or the first stored at a time (ms)."""
        found: QueueOffsets = {}
        for queue in self.queues():
            set_offset(found, queue, self._offset(queue, which, timestamp))
        return found

    def _offset(self, queue: MessageQueue, which: str, timestamp: int | None) -> int:
        try:
            admin = self.consumer.admin
            if timestamp is not None:
                return admin.search_offset(queue, timestamp)
            return admin.min_offset(queue) if which == EARLIEST else admin.max_offset(queue)
        except UNREACHABLE as error:
            raise PipelineError(f"{queue}: {error}") from error

    def wanted(self, name: str, default: str) -> QueueOffsets:
        """The offsets that the option `name` (startingOffsets, endingOffsets) asks for, of all queues."""
        text = self.options.text(name, default)
        if text.lower() in (EARLIEST, LATEST):
            return self.offsets(text.lower())
        asked = _parse(self.options, name)
        found = self.offsets(LATEST if name == "endingOffsets" else EARLIEST)
        other = None
        for queue, offset in walk(asked):
            known = get_offset(found, queue)
            if known is None:
                raise self.options.wrong(name, f"possible: there is no queue {queue.queueId} of {queue.topic} on "
                                               f"{queue.brokerName}")
            if offset < 0:
                other = other or {-2: self.offsets(EARLIEST), -1: self.offsets(LATEST)}
                offset = get_offset(other[offset], queue, known)
            set_offset(found, queue, offset)
        return found


def _parse(options: Options, name: str) -> QueueOffsets:
    asked = options.json(name, _WANTED)
    try:
        for brokers in asked.values():
            for queues in brokers.values():
                for queue_id, offset in queues.items():
                    if not queue_id.isdecimal() or not isinstance(offset, int) or offset < -2:
                        raise ValueError(queue_id)
    except (AttributeError, ValueError):
        raise options.wrong(name, _WANTED) from None
    return asked


def walk(offsets: QueueOffsets) -> Iterator[tuple[MessageQueue, int]]:
    """(queue, offset) of all, in order."""
    for topic in sorted(offsets):
        for broker in sorted(offsets[topic]):
            for queue_id, offset in sorted(offsets[topic][broker].items(), key=lambda item: int(item[0])):
                yield MessageQueue(topic, broker, int(queue_id)), offset


def set_offset(offsets: QueueOffsets, queue: MessageQueue, offset: int) -> None:
    """Put in the offset of a queue."""
    offsets.setdefault(queue.topic, {}).setdefault(queue.brokerName, {})[str(queue.queueId)] = offset


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int) -> int: ...


@overload
def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: None = None) -> int | None: ...


def get_offset(offsets: QueueOffsets, queue: MessageQueue, default: int | None = None) -> int | None:
    """The offset of a queue."""
    return offsets.get(queue.topic, {}).get(queue.brokerName, {}).get(str(queue.queueId), default)


def as_text(offsets: QueueOffsets) -> str:
    """Offsets as the options take them."""
    return json.dumps(offsets, sort_keys=True)
