"""Driver-side helpers of the streaming sources: concurrent file access, and the lag of a stream.

`at_once` runs many short waits concurrently, such as accesses to files of many stores that may be on a network.

Lag is reported with the metrics of Spark's Kafka connector. Spark takes metrics only from sources written for the JVM:
for a source in Python, `sources[].metrics` of a progress stays empty. Such a source can only report its `latestOffset`,
which is any JSON that `reportLatestOffset` returns. So the metrics are stored there, under "metrics", and `lag_of`
extracts them from a progress, in a listener or from `query.lastProgress`:

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
# Too few to be worth a thread.
_FEW = 4
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def at_once(work: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """Return the results of `work` for all items, in their order. If some fail, raises the error of the first of them.
    """
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
            # Raised again in the waiting thread.
            except BaseException as error:
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
    """The lag of one source when its batch was planned: messages between the end of the batch and the end of each
    part of the source (a queue or a commit log), and bytes if known. `is_estimated`: some messages were not counted
    but estimated from their bytes.
    """

    average: float
    largest: int
    smallest: int
    size: int | None = None  # bytes
    is_estimated: bool = False


def lag_metrics(behind: Sequence[int], size: int | None = None, is_estimated: bool = False) -> dict[str, Any]:
    """Return the metrics as stored in `latestOffset`, from the number of messages left in each part."""
    found: dict[str, Any] = {"avgOffsetsBehindLatest": round(sum(behind) / len(behind), 1) if behind else 0.0,
                             "maxOffsetsBehindLatest": max(behind, default=0),
                             "minOffsetsBehindLatest": min(behind, default=0)}
    if size is not None:
        found |= {"bytesBehindLatest": size, "isEstimated": is_estimated}
    return found


def lag_of(progress: Any) -> list[Lag]:
    """Return the lags in a query's progress (`event.progress` or `query.lastProgress`), of each source that has one."""
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
        # A source of another format, or nothing was planned.
        return None
