"""Where reading of a live cluster begins and ends: what the options about offsets and times mean.

    startingTimestamp | startingOffsetsByTimestamp | startingOffsets        one of them
    endingTimestamp   | endingOffsetsByTimestamp   | endingOffsets          one of them; tables only
"""
import logging

from rmqha.common import util_all
from rmqha.common.message.message import MessageQueue
from rmqha.pipeline.cluster.cluster_queues import EARLIEST, LATEST, Bounds, ClusterQueues
from rmqha.pipeline.cluster.queue_offsets import QueueOffsets, get_offset, named, set_offset, walk
from rmqha.pipeline.options import Options, PipelineError, is_long, queue_id_of

log = logging.getLogger("RocketmqPipeline")

STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
STRATEGY = "startingOffsetsByTimestampStrategy"
OPTIONS = (*STARTING, *ENDING, STRATEGY)
_ERROR = "error"
_OFFSETS = ('earliest, latest, or JSON such as {"TopicA": {"broker-a": {"0": 23, "1": -2}}} (-2: earliest, -1: latest)')
_TIMES = 'JSON such as {"TopicA": {"broker-a": {"0": 1700000000000}}} (milliseconds)'


def check_batch(options: Options) -> None:
    """PipelineError for options that are wrong, that contradict, or that leave nothing of a table."""
    _check(options)
    options.one_of(*ENDING)
    if options.text("startingOffsets", EARLIEST).lower() == LATEST:
        raise PipelineError(f"{options.where}: startingOffsets=latest leaves nothing of a table; it is for streams")
    if options.text("endingOffsets", LATEST).lower() == EARLIEST:
        raise PipelineError(f"{options.where}: endingOffsets=earliest leaves nothing")
    begin, end = options.integer("startingTimestamp"), options.integer("endingTimestamp")
    if begin is not None and end is not None and begin > end:
        raise PipelineError(f"{options.where}: startingTimestamp={begin} is later than endingTimestamp={end}")
    starts = _asked(options, "startingOffsets", -2)
    ends = _asked(options, "endingOffsets", -2)
    for asked, name, special in ((starts, "startingOffsets", -1), (ends, "endingOffsets", -2)):
        for queue, offset in walk(asked):
            if offset == special:
                raise PipelineError(f"{options.where}: {name}={special} leaves nothing of {named(queue)}")
    for queue, offset in walk(starts):
        stop = get_offset(ends, queue, -1)
        if 0 <= stop < offset:
            raise PipelineError(f"{options.where}: startingOffsets={offset} is behind endingOffsets={stop}: "
                                f"{named(queue)}")
    _asked(options, "endingOffsetsByTimestamp", 0)


def check_stream(options: Options) -> None:
    """PipelineError for options that are wrong, that contradict, or that are not for streams."""
    _check(options)
    for name in ENDING:
        if name in options:
            raise PipelineError(f"{options.where}: {name} is for tables: a stream has no end")


def _check(options: Options) -> None:
    options.one_of(*STARTING)
    options.choice(STRATEGY, (_ERROR, LATEST), _ERROR)
    for name in ("startingTimestamp", "endingTimestamp"):
        options.integer(name)
    _asked(options, "startingOffsets", -2)
    _asked(options, "startingOffsetsByTimestamp", 0)


def begin_of(queues: ClusterQueues, default: str) -> QueueOffsets:
    """The offsets of all queues from which on messages are wanted.

    PipelineError when a queue has no message as late as a time that is asked for, unless the strategy is `latest`.
    """
    options = queues.options
    from_end = options.choice(STRATEGY, (_ERROR, LATEST), _ERROR) == LATEST
    found = _at_times(queues, "startingTimestamp", "startingOffsetsByTimestamp", EARLIEST, from_end)
    return _at_offsets(queues, "startingOffsets", default) if found is None else found


def end_of(queues: ClusterQueues) -> QueueOffsets:
    """The offsets of all queues before which messages are wanted. Where a time is later than all, that is the end."""
    found = _at_times(queues, "endingTimestamp", "endingOffsetsByTimestamp", LATEST, True)
    return _at_offsets(queues, "endingOffsets", LATEST) if found is None else found


def _at_times(queues: ClusterQueues, name: str, by_queue: str, default: str, from_end: bool) -> QueueOffsets | None:
    """The offsets that belong to times; None when neither option is given."""
    options = queues.options
    same, times = options.integer(name), _asked(options, by_queue, 0)
    if same is None and by_queue not in options:
        return None
    found: QueueOffsets = {}
    bounds = queues.bounds()
    for queue, _ in walk(times):
        _known(options, by_queue, queue, bounds)
    for queue, own in bounds.items():
        time = get_offset(times, queue) if same is None else same
        offset: int | None = own.end if default == LATEST else own.first
        if time is not None:
            offset = queues.first_at(queue, time, own)
        if offset is None and time is not None and not from_end:
            when = util_all.utc_text(time)
            raise PipelineError(f"{named(queue)} has no message stored at {when} ({time} ms) or later. With "
                                f"{STRATEGY}=latest such queues are read from their ends on")
        set_offset(found, queue, own.end if offset is None else offset)
    return found


def _at_offsets(queues: ClusterQueues, name: str, default: str) -> QueueOffsets:
    text = queues.options.text(name, default).lower()
    if text in (EARLIEST, LATEST):
        return queues.offsets(text)
    bounds = queues.bounds()
    found: QueueOffsets = {}
    for queue, own in bounds.items():
        set_offset(found, queue, own.end if name == "endingOffsets" else own.first)
    for queue, offset in walk(_asked(queues.options, name, -2)):
        own = _known(queues.options, name, queue, bounds)
        begin = {-2: own.first, -1: own.end}.get(offset, offset)
        if name == "startingOffsets" and begin > own.end:
            begin = _beyond(queues.options, queue, begin, own)
        set_offset(found, queue, begin)
    return found


def _beyond(options: Options, queue: MessageQueue, wanted: int, own: Bounds) -> int:
    """Return the offset at which reading begins when the queue ends before the one that is asked for: that was another
    queue's, or the queue was made again. PipelineError unless data loss is allowed.
    """
    reason = (f"startingOffsets={wanted} is beyond the end of {named(queue)}, which is {own.end}: the topic may have "
              "been deleted and made again")
    if options.boolean("failOnDataLoss", True):
        raise PipelineError(f"{options.where}: {reason}. With failOnDataLoss=false the query reads the queue from its "
                            f"beginning, offset {own.first}.")
    log.warning("%s; it is read from its beginning, offset %d", reason, own.first)
    return own.first


def _known(options: Options, name: str, queue: MessageQueue, bounds: dict[MessageQueue, Bounds]) -> Bounds:
    own = bounds.get(queue)
    if own is None:
        raise options.wrong(name, f"possible: there is no queue {queue.queueId} of {queue.topic} on {queue.brokerName}")
    return own


def _asked(options: Options, name: str, least: int) -> QueueOffsets:
    """What an option says by queue in JSON; empty when it is not given, or is a word."""
    text = options.text(name)
    if text is None or (least < 0 and text.lower() in (EARLIEST, LATEST)):
        return {}
    wanted = _TIMES if least == 0 else _OFFSETS
    asked = options.json(name, wanted)
    try:
        numbers = [(queue_id, number) for brokers in asked.values() for queues in brokers.values()
                   for queue_id, number in queues.items()]
    except AttributeError:
        raise options.wrong(name, wanted) from None
    for queue_id, number in numbers:
        if queue_id_of(queue_id) is None or not is_long(number, least):
            raise options.wrong(name, wanted)
    return asked
