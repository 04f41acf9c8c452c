"""The job `replay`: a filtered range of a commit log, or of an archive, back into a topic."""
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from rmqha.pipeline.archive_layout import read_manifests
from rmqha.pipeline.cluster_source import FORMAT as CLUSTER
from rmqha.pipeline.commit_log_source import FORMAT
from rmqha.pipeline.options import PipelineError

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
    """The messages of a store that the options of the format and an SQL condition choose; bodies inflated."""
    try:
        frame = spark.read.format(FORMAT).options(**options).option("mode", "FAILFAST").load(source)
        return frame if where is None else frame.where(where)
    except Exception as error:
        if "PARSE_SYNTAX_ERROR" in str(error) or "UNRESOLVED_COLUMN" in str(error):
            raise PipelineError(f"--where {where!r}: {str(error).splitlines()[0]}") from error
        raise


def replay(spark: SparkSession, source: str, name_server: str, target: str | None, options: dict[str, str], *,
           where: str | None = None, idempotent: bool = False, dry_run: bool = False,
           come_to: Progress = lambda done, total: None) -> Replayed:
    """Send what is chosen to `target`, or each message to the topic it came from. Keys, tags and the user's properties
    go along. PipelineError when `source` is an archive: restore it first.
    """
    if read_manifests(source):
        raise PipelineError(f"{source} is an archive: restore it first, then replay what was restored")
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
        sink = sink.option("idempotent", str(idempotent).lower())
        (sink.option("topic", target) if target else sink).save()
        result.sent = True
    come_to(2, 2)
    return result
