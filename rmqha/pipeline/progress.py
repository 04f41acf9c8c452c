"""How far a job of Spark has come, for those who wait: asked of Spark while the job runs."""
import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from rmqha.common.threads import NamedThreadPool
from rmqha.pipeline.session import is_connect

log = logging.getLogger("RocketmqPipeline")

_LOOK_S = 0.3
_GROUP = "spark.jobGroup.id"
Progress = Callable[[int, int], None]  # tasks that are done, and all


@contextmanager
def watched(spark: SparkSession, come_to: Progress | None) -> Iterator[None]:
    """Tell `come_to`, from another thread, how many tasks of the jobs within are done, at the end that all are."""
    if come_to is None:
        yield
        return
    told = _Told(come_to)
    with (_connect_watched if is_connect(spark) else _classic_watched)(spark, told):
        yield
    told.end()


class _Told:
    """What was told last: nothing is told twice, and never less than before."""

    def __init__(self, come_to: Progress) -> None:
        self._come_to = come_to
        self._last = 0, 0

    def now(self, done: int, total: int) -> None:
        """Tell it, if it is news."""
        if total and (done, total) > self._last and total >= self._last[1]:
            self._last = done, total
            self._come_to(done, total)

    def end(self) -> None:
        """All is done."""
        total = max(self._last[1], 1)
        if self._last != (total, total):
            self._come_to(total, total)


@contextmanager
def _connect_watched(spark: SparkSession, told: _Told) -> Iterator[None]:
    def heard(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        stages = list(stages or ())
        told.now(sum(stage.num_completed_tasks for stage in stages), sum(stage.num_tasks for stage in stages))
    spark.registerProgressHandler(heard)
    try:
        yield
    finally:
        spark.removeProgressHandler(heard)


@contextmanager
def _classic_watched(spark: SparkSession, told: _Told) -> Iterator[None]:
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


def _look(tracker: Any, group: str, told: _Told, ended: threading.Event) -> None:
    """Ask until `ended`. In a thread of its own."""
    while not ended.wait(_LOOK_S):
        try:
            jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
            stages = [tracker.getStageInfo(number) for job in jobs if job for number in job.stageIds]
        except (Py4JError, OSError) as error:  # Spark has been stopped
            log.info("no more progress to be seen: %s", error)
            return
        told.now(sum(stage.numCompletedTasks for stage in stages if stage),
                 sum(stage.numTasks for stage in stages if stage))
