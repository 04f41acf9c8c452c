"""Driver-side helpers of the streaming sources: concurrent file access, and the lag of a stream.

`at_once` runs many small waits concurrently, such as accesses to files of many stores that may be on a network.

Lag is reported with the metrics of Spark's Kafka connector. Spark takes metrics only from sources that are written for
the JVM: for a source in Python, `sources[].metrics` of a progress stays empty. Such a source can only report its
`latestOffset`, any JSON that `reportLatestOffset` returns. So the metrics are in there, under "metrics", and `lag_of`
takes them out of a progress, in a listener or from `query.lastProgress`:

    class Lag(StreamingQueryListener):
        def onQueryProgress(self, event):
            for lag in lag_of(event.progress): ...
"""
import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from rmqha.common.texts import parse_json
from rmqha.common.threads import NamedThreadPool

_MOST_THREADS = 16
_FEW = 4  # not worth a thread
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def at_once(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """The results of `work` for all items, in their order. Raises what the first of them that failed raised."""
    wanted = list(items)
    if len(wanted) <= _FEW:
        return [work(item) for item in wanted]
    pool = NamedThreadPool("PipelineThread_", min(_MOST_THREADS, len(wanted)))
    done: queue.SimpleQueue[tuple[int, ResultT | None, BaseException | None]] = queue.SimpleQueue()
    results: dict[int, ResultT] = {}
    errors: dict[int, BaseException] = {}

    def run(numbers: range) -> None:
        for number in numbers:
            try:
                done.put((number, work(wanted[number]), None))
            except BaseException as error:  # raised again in the thread that waits
                done.put((number, None, error))
    try:
        step = max(len(wanted) // (8 * _MOST_THREADS), 1)
        for first in range(0, len(wanted), step):
            pool.submit(run, range(first, min(first + step, len(wanted))))
        for _ in wanted:
            number, result, error = done.get()
            if error is None:
                results[number] = result  # type: ignore[assignment]  # None may be a result
            else:
                errors[number] = error
    finally:
        pool.shutdown()
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(wanted))]


class Lag(NamedTuple):
    """Of one source when its batch was planned: messages between the end of the batch and that of each part of the
    source (a queue, or a commit log), and bytes where they are known. `is_estimated`: some messages are not counted,
    but told by their bytes.
    """

    average: float
    largest: int
    smallest: int
    size: int | None = None  # bytes
    is_estimated: bool = False


def lag_metrics(behind: Sequence[int], size: int | None = None, is_estimated: bool = False) -> dict[str, Any]:
    """The metrics as they stand in `latestOffset`, from the messages that are left of each part."""
    found: dict[str, Any] = {"avgOffsetsBehindLatest": round(sum(behind) / len(behind), 1) if behind else 0.0,
                             "maxOffsetsBehindLatest": max(behind, default=0),
                             "minOffsetsBehindLatest": min(behind, default=0)}
    if size is not None:
        found |= {"bytesBehindLatest": size, "isEstimated": is_estimated}
    return found


def lag_of(progress: Any) -> list[Lag]:
    """The lags in a progress of a query, of each source that tells one: `event.progress`, or `query.lastProgress`."""
    sources = progress["sources"] if isinstance(progress, Mapping) else progress.sources
    return [lag for lag in map(_lag, sources) if lag is not None]


def _lag(source: Any) -> Lag | None:
    latest = source["latestOffset"] if isinstance(source, Mapping) else source.latestOffset
    try:
        metrics = (parse_json(latest, "latestOffset") if isinstance(latest, str) else latest)["metrics"]
        return Lag(metrics["avgOffsetsBehindLatest"], metrics["maxOffsetsBehindLatest"],
                   metrics["minOffsetsBehindLatest"], metrics.get("bytesBehindLatest"),
                   metrics.get("isEstimated", False))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None  # another format's source, or nothing was planned
