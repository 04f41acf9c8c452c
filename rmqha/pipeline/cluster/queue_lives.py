"""Tell whether a queue is still the one that a stream has read, by what the stream keeps of it.

A queue has no name for its life. A topic that was deleted and made again, or a store that was exchanged, gives the same
queue other messages at the same offsets. So a stream keeps of each queue the place in the log and the store time of the
message before the offset that it has come to: every broker gives both, and all replicas have the same. Where that
message could not be read any more, it keeps where the queue began, which never goes back in one life.

Pure: nobody is asked here.
"""
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, NamedTuple

from rmqha.common import util_all
from rmqha.common.message.message import MessageQueue
from rmqha.pipeline.cluster.queue_offsets import (
    QueueOffsets,
    named,
    numbers_of_checkpoint,
    of_checkpoint,
    set_offset,
    walk,
)
from rmqha.pipeline.options import PipelineError

VERSION = 1
OTHER_LIFE = "the topic was deleted and made again, or its broker came back with another store"


class Mark(NamedTuple):
    """A message, as its queue's broker has it: its queue offset, its place in the log and its store time (ms)."""

    offset: int
    physical: int
    stored: int


class Position(NamedTuple):
    """How far a stream has come in a queue, and what it knows of the queue's life: the message before, or else where
    the queue began; neither in checkpoints of earlier releases, and at offset 0.
    """

    offset: int
    mark: Mark | None = None
    began: int | None = None

    @property
    def has_evidence(self) -> bool:
        """Return whether another life of the queue would be noticed."""
        return self.mark is not None or self.began is not None or not self.offset


class Seen(NamedTuple):
    """A queue at a broker: its first offset, the next one, when its last message was stored (ms; 0 or less: unknown),
    and whether its master has said so.
    """

    first: int
    end: int
    stored: int = 0
    by_master: bool = True


class Look(NamedTuple):
    """The answer for one offset of a queue: the message; or it `is_gone`, as the queue is not there or ends before; or
    neither, when the message alone can't be read. And whether the master has said so.
    """

    mark: Mark | None
    is_gone: bool = False
    by_master: bool = True

    def is_another(self, mark: Mark) -> bool:
        """Return whether this is surely not the message that `mark` is of."""
        return self.is_gone or (self.mark is not None and self.mark != mark)


class What(Enum):
    """Kinds of things that happen to a queue."""

    VANISHED = auto()
    SHORTER = auto()  # it ends before what was read
    OTHER = auto()  # another life, which ends at or after what was read
    MOVED = auto()  # messages that were not read are deleted
    UNSURE = auto()  # a slave that stands in has less, or other messages: no verdict until the master answers


class Finding(NamedTuple):
    """A queue to which something happened, where the stream was in it, and how it is now."""

    queue: MessageQueue
    what: What
    position: Position
    seen: Seen | None

    @property
    def reason(self) -> str:
        """Name the queue, the offsets, and what happened, without a full stop."""
        at, seen, queue = self.position.offset, self.seen, named(self.queue)
        if seen is None:
            return (f"{queue} is not there any more, the stream has come to offset {at}: the topic was deleted or has "
                    "fewer queues now, or the name server does not know the broker any more")
        if self.what is What.MOVED:
            return (f"{queue}: offsets {at} to {seen.first} are gone, the queue begins at {seen.first}. They may have "
                    "been deleted")
        if self.what is What.UNSURE:
            return (f"{queue}: the master does not answer, and a slave has not what the stream has taken up to offset "
                    f"{at}, it ends at {seen.end}")
        if self.what is What.SHORTER:
            return f"{queue} ends at offset {seen.end}, the stream has come to {at}: {OTHER_LIFE}"
        mark = self.position.mark
        if mark is None:
            return (f"{queue} begins at offset {seen.first}, it began at {self.position.began} when the stream came to "
                    f"{at}: {OTHER_LIFE}")
        return (f"{queue} has another message at offset {mark.offset} than the one stored at "
                f"{util_all.utc_text(mark.stored)} (place {mark.physical} of the log) that was there when the stream "
                f"came to {at}: {OTHER_LIFE}")

    @property
    def remedy(self) -> str:
        """Say how a query continues with failOnDataLoss=false."""
        if self.seen is None:
            return ("continues without the queue. Once it is back it is read from there on, or from its beginning if "
                    "it was made again")
        if self.what is What.MOVED:
            return f"continues without them, at offset {self.seen.first}"
        if self.what is What.UNSURE:
            return "takes nothing of the queue until the master is back"
        return f"reads the queue from its beginning, offset {self.seen.first}"

    @property
    def key(self) -> tuple[What, Position]:
        """Return what stays the same as long as it is the same occurrence."""
        return self.what, self.position


def data_loss(findings: list[Finding]) -> PipelineError:
    """Make the error for what was found first."""
    first = findings[0]
    more = f" (So it is with {len(findings) - 1} more.)" if len(findings) > 1 else ""
    return PipelineError(f"{first.reason}.{more} With failOnDataLoss=false the query {first.remedy}. A query with a "
                         "new checkpointLocation begins as startingOffsets says.")


def judge(queue: MessageQueue, position: Position, seen: Seen | None, is_other: bool) -> tuple[int, Finding | None]:
    """Return (the offset at which a stream continues in a queue, what happened to the queue). `is_other`: it was found
    to have other messages.
    """
    at = position.offset
    if seen is None:
        return at, Finding(queue, What.VANISHED, position, seen)
    began_later = position.began is not None and seen.first < position.began
    if seen.end < at or ((is_other or began_later) and at):
        if not seen.by_master:
            return at, Finding(queue, What.UNSURE, position, seen)
        return seen.first, Finding(queue, What.SHORTER if seen.end < at else What.OTHER, position, seen)
    if seen.first > at:
        return seen.first, Finding(queue, What.MOVED, position, seen)
    return at, None


def needs_look(position: Position, seen: Seen, takes: bool) -> bool:
    """Return whether the message before a position has to be looked at: when messages after it are taken, or when the
    broker says that the queue's last message was stored at another time.
    """
    mark = position.mark
    if mark is None or not seen.first < position.offset <= seen.end:
        return False  # not there to be looked at, or judged already
    return takes or (seen.end == position.offset and seen.stored != mark.stored)


# -- in the checkpoint --

def encode(positions: Mapping[MessageQueue, Position], begin: QueueOffsets | None = None) -> dict[str, Any]:
    """Return a stream's offset, as Spark keeps it: {"version": 1, "queues": topic -> broker -> queue id -> offset,
    "last": the same, with [place in the log, store time] of the message before or [first offset], "begin": offsets}.

    `begin` is where the batch begins that ends there.
    """
    queues: QueueOffsets = {}
    last: dict[str, dict[str, dict[str, list[int]]]] = {}
    for queue, each in sorted(positions.items()):
        set_offset(queues, queue, each.offset)
        if each.mark is not None:
            known = [each.mark.physical, each.mark.stored]
        elif each.began is not None:
            known = [each.began]
        else:
            continue
        last.setdefault(queue.topic, {}).setdefault(queue.brokerName, {})[str(queue.queueId)] = known
    return {"version": VERSION, "queues": queues, **({"last": last} if last else {}),
            **({} if begin is None else {"begin": begin})}


def decode(offset: Mapping[str, Any]) -> dict[MessageQueue, Position]:
    """Return the positions of a stream's offset, those of earlier releases too. PipelineError when it is damaged."""
    last = numbers_of_checkpoint(offset, "last", 2)
    found = {}
    for queue, at in walk(of_checkpoint(offset)):
        known = last.get(queue)
        if known is None:
            found[queue] = Position(at)
        elif len(known) == 1:
            found[queue] = Position(at, None, known[0])
        else:
            found[queue] = Position(at, Mark(at - 1, *known))
    return found
