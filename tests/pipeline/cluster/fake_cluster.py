"""A cluster of topics in memory, and streams of it whose reader is called as Spark calls it."""
import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from rmqha.client.results import PullResult, PullStatus
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.pipeline.cluster.cluster_queues import EARLIEST, Bounds, Look, Mark, QueueOffsets, Seen, set_offset
from rmqha.pipeline.cluster.cluster_source import FORMAT, READ_OPTIONS, ClusterStreamReader
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.table import table_schema

# A stream of a cluster without Spark: its reader is called as Spark calls it.


class DrivenQuery:
    """A query. Its offset, and a batch that is planned but not committed, stay as JSON, as in a checkpoint."""

    def __init__(self, **given: str) -> None:
        self.given = given
        self.offset: str | None = None
        self.pending: tuple[str, str] | None = None  # planned but not committed
        self.restart()

    def restart(self, **options: str) -> None:
        """Continue in a new process, with other options."""
        self.given |= options
        given = Options(self.given, READ_OPTIONS, FORMAT)
        self.reader = ClusterStreamReader(given, table_schema(given))

    def plan(self, limit: ReadLimit | None = None) -> tuple[str, str] | None:
        """Plan the next batch unless one is planned; return (begin, end), or None if nothing is new."""
        if self.pending is None:
            if self.offset is None:
                self.offset = json.dumps(self.reader.initialOffset())
            end = json.dumps(self.reader.latestOffset(json.loads(self.offset),
                                                      limit or self.reader.getDefaultReadLimit()))
            self.pending = None if end == self.offset else (self.offset, end)
        return self.pending

    def read(self) -> list:
        """Return the messages of the planned batch, and commit it."""
        if self.pending is None:
            return []
        begin, end = self.pending
        rows = self.rows(self.reader.partitions(json.loads(begin), json.loads(end)))
        self.reader.commit(json.loads(end))
        self.offset, self.pending = end, None
        return rows

    def rows(self, partitions: Sequence[InputPartition]) -> list:
        """Return (queue offset, keys) of each message; the tasks get reader and partitions as bytes."""
        return [row for part in partitions
                for batch in pickle.loads(pickle.dumps(self.reader)).read(pickle.loads(pickle.dumps(part)))
                for row in zip(batch.column("queueOffset").to_pylist(), batch.column("keys").to_pylist())]


# A cluster of topics with one queue each, in memory, and a stream of it that is called as Spark calls it.

BROKER = "b"


@dataclass(eq=False)
class Life:
    """A queue from its creation to its deletion: its messages, and the first one that still exists."""

    messages: list[MessageExt] = field(default_factory=list)
    first: int = 0

    @property
    def end(self) -> int:
        return len(self.messages)


class FakeCluster:
    """A cluster with the methods of `ClusterQueues` and `QueuePuller` that a stream uses. `lives`: the queues of its
    one broker; `hidden`: topics that the name server does not know at present."""

    def __init__(self, *topics: str) -> None:
        self.queues = {topic: MessageQueue(topic, BROKER, 0) for topic in topics}
        self.lives: dict[str, Life] = {topic: Life() for topic in topics}
        self.hidden: set[str] = set()
        self.options: Options | None = None  # of the stream
        self.is_master = True
        self.asked = 0  # number of messages that were read
        self._log_end = 0
        self._now = 1_700_000_000_000
        self._sent = 0

    # -- what happens to it --

    def send(self, topic: str, count: int = 1) -> None:
        """Add messages, if the topic exists."""
        if topic not in self.lives:
            return
        life = self.lives[topic]
        for _ in range(count):
            message = MessageExt(topic, b"")
            message.keys = f"m{self._sent}"
            message.queue_offset, message.commit_log_offset = life.end, self._log_end
            message.store_timestamp = self._now
            self._sent += 1
            self._log_end += 100  # all have the same size
            life.messages.append(message)

    def delete(self, topic: str) -> None:
        """Delete a topic; time passes."""
        self.lives.pop(topic, None)
        self._now += 1

    def make(self, topic: str, count: int = 0) -> None:
        """Delete a topic and create it again, with messages."""
        self.delete(topic)
        self.lives[topic] = Life()
        self.send(topic, count)

    def move(self, topic: str, count: int) -> None:
        """Delete messages from the beginning."""
        if topic in self.lives:
            life = self.lives[topic]
            life.first = min(life.first + count, life.end)

    def exchange_store(self, count: int) -> None:
        """Give the broker another store: the same topics with `count` messages each, and a log that begins at 0."""
        self._log_end = 0
        for topic in list(self.lives):
            self.make(topic, count)

    # -- what streams call --

    def _here(self) -> Iterable[tuple[MessageQueue, Life]]:
        return [(self.queues[topic], life) for topic, life in sorted(self.lives.items()) if topic not in self.hidden]

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing: there is nothing to disconnect."""

    def start(self) -> None:
        """Do nothing: there is nothing to connect."""

    def refresh(self) -> None:
        """Do nothing: nothing is cached."""

    def absent(self) -> dict[str, PipelineError]:
        here = {queue.topic for queue, _ in self._here()}
        return {topic: PipelineError(f"no route of topic {topic}") for topic in self.queues if topic not in here}

    def bounds(self) -> dict[MessageQueue, Bounds]:
        for error in self.absent().values():
            raise error
        return {queue: Bounds(life.first, life.end) for queue, life in self._here()}

    def offsets(self, which: str) -> QueueOffsets:
        found: QueueOffsets = {}
        for queue, bounds in self.bounds().items():
            set_offset(found, queue, bounds.first if which == EARLIEST else bounds.end)
        return found

    def seen(self) -> dict[MessageQueue, Seen]:
        return {queue: Seen(life.first, life.end, life.messages[-1].store_timestamp if life.first < life.end else -1,
                            self.is_master) for queue, life in self._here()}

    def looks(self, wanted: Iterable[tuple[MessageQueue, int]]) -> dict[MessageQueue, Look]:
        found, here = {}, dict(self._here())
        for queue, offset in wanted:
            self.asked += 1
            life = here.get(queue)
            if life is None or offset >= life.end:
                found[queue] = Look(None, True, self.is_master)
            elif offset < life.first:
                found[queue] = Look(None, False, self.is_master)
            else:
                message = life.messages[offset]
                found[queue] = Look(Mark(offset, message.commit_log_offset, message.store_timestamp), False,
                                    self.is_master)
        return found

    def pull(self, queue: MessageQueue, offset: int) -> PullResult:
        """Return at most two messages, as a broker may."""
        life = dict(self._here()).get(queue)
        if life is None:
            raise PipelineError(f"topic {queue.topic} not exist")
        if offset < life.first:
            return PullResult(PullStatus.OFFSET_ILLEGAL, life.first, life.first, life.end)
        if offset >= life.end:
            following = offset if offset == life.end else life.end if life.first else 0
            return PullResult(PullStatus.OFFSET_ILLEGAL, following, life.first, life.end)
        found = life.messages[offset:offset + 2]
        return PullResult(PullStatus.FOUND, offset + len(found), life.first, life.end, found)


def limit_of(most: int | None) -> ReadLimit:
    """Return the limit of a batch of at most `most` messages; None means all."""
    return ReadAllAvailable() if most is None else ReadMaxRows(most)


class FakeQuery(DrivenQuery):
    """A query of a FakeCluster."""

    def __init__(self, cluster: FakeCluster, **options: str) -> None:
        self.cluster = cluster
        super().__init__(nameServer="127.0.0.1:1", subscribe=",".join(cluster.queues), **options)

    def restart(self, **options: str) -> None:
        """Continue in a new process, with other options."""
        super().restart(**options)
        self.reader._queues, self.cluster.options = self.cluster, self.reader.options

    def rows(self, partitions: Sequence[InputPartition]) -> list[MessageExt]:
        """Return the messages."""
        return [message for part in partitions for span in part.spans
                for message in self.reader._messages(self.cluster, span)]

    def batch(self, most: int | None = None) -> list[MessageExt]:
        """Return the messages of the next batch."""
        self.plan(limit_of(most))
        return self.read()

    def keys(self) -> list[str | None]:
        """Return the keys of the messages of the next batch."""
        return [message.keys for message in self.batch()]
