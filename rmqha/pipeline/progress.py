"""Running one function over many items in Spark tasks, and reporting the progress of Spark's jobs.

`run_tasks` and `merge_tasks` run all tasks at once, with or without a Spark Connect server. Jobs reach the executors
only through them and the data sources: neither through `sparkContext` nor through RDDs, which Spark Connect does not
have. Items travel within the function, so no table must be planned and nothing shuffled: task n of a range of
numbers takes item n. Results should be small, since all of them come to the driver; the results of many tasks can be
merged on the way (`merge_tasks`). `watched` gets the progress from Spark while the jobs run.
"""
import logging
import pickle
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from rmqha.common.threads import NamedThreadPool
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.session import blame_python, is_connect, use_this_python
from rmqha.pipeline.worker import settle
from rmqha.store.bulk import bulk

log = logging.getLogger("RocketmqPipeline")

_LOOK_S = 0.3
_GROUP = "spark.jobGroup.id"
# Arguments: completed tasks, all tasks.
Progress = Callable[[int, int], None]


@contextmanager
def watched(spark: SparkSession, come_to: Progress | None) -> Iterator[None]:
    """Call `come_to`, from another thread, with the completed tasks of the jobs in the block; at the end, with all."""
    if come_to is None:
        yield
        return
    told = _Reported(come_to)
    with (_connect_watched if is_connect(spark) else _classic_watched)(spark, told):
        yield
    told.end()


class _Reported:
    """The last reported progress: nothing is reported twice, and never less than before."""

    def __init__(self, come_to: Progress) -> None:
        self._come_to = come_to
        self._last = 0, 0

    def now(self, done: int, total: int) -> None:
        """Report the progress if it is new."""
        if total and (done, total) > self._last and total >= self._last[1]:
            self._last = done, total
            self._come_to(done, total)

    def end(self) -> None:
        """Report that everything is completed."""
        total = max(self._last[1], 1)
        if self._last != (total, total):
            self._come_to(total, total)


@contextmanager
def _connect_watched(spark: SparkSession, told: _Reported) -> Iterator[None]:
    def heard(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        stages = list(stages or ())
        told.now(sum(stage.num_completed_tasks for stage in stages), sum(stage.num_tasks for stage in stages))
    spark.registerProgressHandler(heard)
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)


@contextmanager
def _classic_watched(spark: SparkSession, told: _Reported) -> Iterator[None]:
    context = spark.sparkContext
    before = context.getLocalProperty(_GROUP)
    group = f"rmqha-{uuid.uuid4().hex}"
    context.setLocalProperty(_GROUP, group)
    ended = threading.Event()
    pool = NamedThreadPool("PipelineProgress", 1)
    pool.submit(_look, context.statusTracker(), group, told, ended)
    try:
        yield
    finally:
        ended.set()
        pool.shutdown()
        context.setLocalProperty(_GROUP, before)


def _look(tracker: Any, group: str, told: _Reported, ended: threading.Event) -> None:
    """Poll until `ended` is set. Runs in its own thread."""
    while not ended.wait(_LOOK_S):
        try:
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        # Spark was stopped.
        except (Py4JError, OSError) as error:
            log.info("no more progress available: %s", error)
            return
        told.now(sum(stage.numCompletedTasks for stage in stages if stage),
                 sum(stage.numTasks for stage in stages if stage))


MOST_TASKS = 4096
# Results of more tasks than the first number are merged by the second number of tasks before they come to the driver.
MERGED_BY_DRIVER, MERGERS = 256, 16
_RESULT = "number long, result binary"
_SLOW = ("rmqha's compiled parts are missing where tasks run, so they work in Python, several times slower. With "
         "--py-files this can't be avoided: install rmqha on the machines, or send a packed environment "
         "(docs/spark/many-machines.md)")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Batches = Iterator[pa.RecordBatch]
Merge = Callable[[ResultT, ResultT], ResultT]


def map_in_tasks(frame: DataFrame, run: Callable[[Batches], Batches], schema: StructType | str) -> DataFrame:
    """Apply `run` to the batches of each task."""
    def run_settled(batches: Batches) -> Batches:
        settle()
        yield from run(batches)
    return frame.mapInArrow(run_settled, schema)


class _Told(NamedTuple):
    """The answer of a task: a result, or a PipelineError. `compiled`: whether the compiled kernel was available there.
    """

    result: Any
    error: PipelineError | None
    compiled: bool


class _Work(Generic[ItemT, ResultT]):
    """The work of the tasks: each takes the items that its numbers select."""

    def __init__(self, work: Callable[[ItemT], ResultT], items: Sequence[ItemT]) -> None:
        self._work = work
        self._packed = [cloudpickle.dumps(item) for item in items]

    def run(self, batches: Batches) -> Batches:
        """Turn numbers into results."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                try:
                    told = _Told(self._work(pickle.loads(self._packed[number])), None, bulk.is_compiled())
                # It would fail again in the same way, so Spark need not repeat the task.
                except PipelineError as error:
                    told = _Told(None, error, bulk.is_compiled())
                yield _row(number, told)


class _Merging(Generic[ResultT]):
    """The work of the second stage: each task merges all the results that it gets into one."""

    def __init__(self, merge: Merge[ResultT]) -> None:
        self._merge = merge

    def run(self, batches: Batches) -> Batches:
        """Merge results into one."""
        found = _merged((row for batch in batches for row in _rows(batch)), self._merge)
        if found is not None:
            yield _row(*found)


def run_tasks(spark: SparkSession, work: Callable[[ItemT], ResultT], items: Sequence[ItemT],
              come_to: Progress | None = None, most_tasks: int = MOST_TASKS) -> list[ResultT]:
    """Return the results of `work` for all items, in the order of the items. Each task takes one item, or several if
    there are more than `most_tasks`; items and results are pickled. `come_to` is called with the number of completed
    tasks.

    Raises the PipelineError of a task; a PipelineError that names PYSPARK_PYTHON if tasks run in a Python without
    rmqha; and Spark's own error if a task has failed the maximum number of times.
    """
    if not items:
        return []
    results = dict(_collected(spark, _frame(spark, work, items, most_tasks), come_to))
    return [_result(results[number]) for number in range(len(items))]


def merge_tasks(spark: SparkSession, work: Callable[[ItemT], ResultT], items: Sequence[ItemT], merge: Merge[ResultT],
                come_to: Progress | None = None, most_tasks: int = MOST_TASKS) -> ResultT | None:
    """Return all results merged into one; None without items. `merge` makes one result of two, in any order, and may
    change the first. If there are many tasks it also runs in tasks, so that the driver gets few results. Raises as
    `run_tasks` does.
    """
    if not items:
        return None
    frame = _frame(spark, work, items, most_tasks)
    if len(items) > MERGED_BY_DRIVER:
        # These go to the same task.
        neighbours = -(-len(items) // (4 * MERGERS))
        group = f.floor(f.col("number") / neighbours)
        frame = map_in_tasks(frame.repartition(MERGERS, group), _Merging(merge).run, _RESULT)
    found = _merged(iter(sorted(_collected(spark, frame, come_to), key=lambda row: row[0])), merge)
    assert found is not None
    result: ResultT = _result(found[1])
    return result


def _frame(spark: SparkSession, work: Callable[[ItemT], ResultT], items: Sequence[ItemT], most_tasks: int) -> DataFrame:
    use_this_python(spark)
    numbers = spark.range(0, len(items), 1, min(len(items), most_tasks))
    return map_in_tasks(numbers, _Work(work, items).run, _RESULT)


def _collected(spark: SparkSession, frame: DataFrame, come_to: Progress | None) -> Iterator[tuple[int, _Told]]:
    with blame_python(), watched(spark, come_to):
        table = frame.toArrow()
    is_slower = False
    for number, told in _rows(table):
        is_slower = is_slower or not told.compiled
        yield number, told
    if is_slower and bulk.is_compiled():
        log.warning(_SLOW)


def _row(number: int, told: _Told) -> pa.RecordBatch:
    return pa.record_batch({"number": pa.array([number], pa.int64()),
                            "result": pa.array([cloudpickle.dumps(tuple(told))], pa.binary())})


def _rows(table: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, _Told]]:
    for number, result in zip(table.column(0), table.column(1), strict=True):
        yield number.as_py(), _Told(*pickle.loads(result.as_py()))


def _merged(rows: Iterator[tuple[int, _Told]], merge: Merge[Any]) -> tuple[int, _Told] | None:
    """Merge all rows into one; of several errors the first is kept."""
    found: tuple[int, _Told] | None = None
    for number, told in rows:
        if found is None:
            found = number, told
            continue
        at, had = found
        error = had.error if had.error and (not told.error or at < number) else told.error
        result = None if error else merge(had.result, told.result)
        found = min(at, number), _Told(result, error, had.compiled and told.compiled)
    return found


def _result(told: _Told) -> Any:
    if told.error is not None:
        raise told.error
    return told.result
