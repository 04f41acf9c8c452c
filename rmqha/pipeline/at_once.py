"""Many small waits at once, on the driver: files of many stores, which may lie behind a network."""
import queue
from collections.abc import Callable, Iterable
from typing import TypeVar

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
