"""The job `replay`: a filtered range of a commit log, or of an archive, back into a topic."""
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rmqha.pipeline.archive.archive_layout import MANIFESTS
from rmqha.pipeline.archive.archive_table import Chosen, archived_messages
from rmqha.pipeline.cluster.cluster_source import FORMAT as CLUSTER
from rmqha.pipeline.cluster.sink_rows import DROP
from rmqha.pipeline.log.commit_log_source import FORMAT
from rmqha.pipeline.options import Options, PipelineError
from rmqha.pipeline.outputs import local_path
from rmqha.pipeline.session import register
from rmqha.pipeline.spark_errors import first_line

Progress = Callable[[int, int], None]


@dataclass
class Replayed:
    """What was, or with `dry_run` would be, sent: topic it came from -> messages."""

    source: str
    target: str | None
    messages: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    sent: bool = False


def chosen_messages(spark: SparkSession, source: str, options: dict[str, str], where: str | None) -> DataFrame:
    """The messages of a store or of an archive that the options of the format and an SQL condition choose; bodies
    inflated.

    PipelineError when Spark does not understand the condition.
    """
    if is_archive(source):
        frame = archived_messages(spark, source, _chosen(options))
    else:
        frame = spark.read.format(FORMAT).options(**options).option("mode", "FAILFAST").load(source)
    if where is None:
        return frame
    try:
        chosen = frame.where(where)
        chosen.schema  # noqa: B018, with Spark Connect the condition is looked at only now
    except PySparkException as error:
        raise PipelineError(f"--where {where!r}: {first_line(str(error))}") from error
    return chosen


def is_archive(source: str) -> bool:
    """Whether messages come from an archive: stores are on file systems of this machine only."""
    local = local_path(source)
    return local is None or os.path.isdir(os.path.join(local, MANIFESTS))


def _chosen(options: dict[str, str]) -> Chosen:
    """What the options of the format choose, of an archive. PipelineError for those that it does not know."""
    known = ("subscribe", "startingTimestamp", "endingTimestamp", "startingOffsets", "endingOffsets")
    given = Options(options, known, "an archive")
    topics = given.words("subscribe")
    times_and_places = (given.integer(name) for name in known[1:])
    return Chosen(topics or None, *times_and_places)


def replay(spark: SparkSession, source: str, name_server: str, target: str | None, options: dict[str, str], *,
           where: str | None = None, idempotent: bool = False, dry_run: bool = False,
           client: dict[str, str] | None = None, come_to: Progress = lambda done, total: None) -> Replayed:
    """Send what is chosen to `target`, or each message to the topic it came from. Keys, tags and the user's properties
    go along. `client`: options `rocketmq.*` of the sink.
    """
    register(spark)
    # neither half messages nor rolled back ones
    frame = chosen_messages(spark, source, options, where).where("sysFlag & 12 in (0, 8)")
    result = Replayed(source, target)
    for row in frame.groupBy("topic").count().collect():
        result.topics[row.topic] = row["count"]
        result.messages += row["count"]
    come_to(1, 2)
    if result.messages and not dry_run:
        columns = ["body", "keys", "tags", "properties", "flag"] + ([] if target else ["topic"])
        sink = frame.select(*columns).write.format(CLUSTER).mode("append").option("nameServer", name_server)
        sink = sink.option("systemProperties", DROP)  # what the brokers before gave the messages
        sink = sink.option("idempotent", str(idempotent).lower()).options(**(client or {}))
        (sink.option("topic", target) if target else sink).save()
        result.sent = True
    come_to(2, 2)
    return result
