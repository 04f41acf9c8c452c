"""The job `report`: the contents of a store, counted by Spark, as one HTML page.

The log is read twice: once for times, sizes and places, which Spark caches in a compact form (on disk if memory is
short), and once for keys. The driver receives a bounded number of rows, points of time and the busiest topics, however
many topics, queues and keys there are.

The page is one self-contained file, drawn by the reader's browser: the style and the script from `page/` beside this
module, and the report as JSON. The page's content security policy forbids all network requests.
"""
import html
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from rmqha import __version__
from rmqha.common import filesystem
from rmqha.pipeline.format_options import PipelineError, is_long, queue_id_of
from rmqha.pipeline.log.commit_log_source import FORMAT
from rmqha.pipeline.log.log_ends import log_end
from rmqha.pipeline.log.log_scan import find_logs
from rmqha.pipeline.progress import run_tasks
from rmqha.pipeline.session import register

_ALLOWED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def render(found: "Report") -> str:
    """Return the page."""
    page = files("rmqha.pipeline.jobs").joinpath("page")
    style, script = (page.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    title = f"Report on {html.escape(_text(found.store))}"
    return ('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<title>{title}</title>\n<style>\n{style}</style></head>\n<body>'
            f'<noscript><h1>{title}</h1><p>{found.messages:,} messages of {found.topicCount:,} topics, {found.bytes:,} '
            'bytes. JavaScript draws the rest of this page, and is switched off.</p></noscript>'
            f'\n<script type="application/json" id="data">{_for_script(found)}</script>\n<script>\n{script}</script>'
            '</body></html>\n')


def _for_script(found: "Report") -> str:
    """Return JSON that can't end the element that contains it."""
    return json.dumps({"version": __version__, **asdict(found)}, ensure_ascii=True).replace("<", "\\u003c")


def _text(value: str) -> str:
    """Replace what UTF-8 can't encode: file names may be any bytes."""
    return value.encode("utf-8", "replace").decode()


_COLUMNS = "topic,queueId,queueOffset,bornTimestamp,storeTimestamp,storeSize,storeHost,crcOk"
_SECOND, _MINUTE, _HOUR, _DAY, _WEEK = 1000, 60_000, 3_600_000, 86_400_000, 604_800_000
_SLOTS_MS = (*(n * _SECOND for n in (1, 2, 5, 10, 15, 30)), *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
             *(n * _HOUR for n in (1, 2, 3, 6, 12)), *(n * _DAY for n in (1, 2)),
             *(n * _WEEK for n in (1, 2, 4, 8, 16, 52, 520, 5200)))
# Points of a plot over time.
MOST_SLOTS = 300
MOST_HEAT_SLOTS = 170
LISTED_TOPICS = 40
LISTED_GROUPS = 100
LISTED_WRITERS = 20
LISTED_KEYS = 20
PERCENTILES = (0.5, 0.9, 0.99)
# Of percentiles: off by at most a thousandth of the rank.
_ACCURACY = 1000
# A key is hot if it has this share of all keys' uses, and this many times the uses of the average key.
HOT_SHARE, HOT_TIMES = 0.001, 10
_TRACKED_KEYS = 10_000
_KEY_CHARACTERS = 256
_LINES = ("messages", "bytes", "p50", "p90", "p99", "max")
# Separates topic and key; no topic contains it.
_MARK = "\u0001"
# Their records are created long before they are stored, so they say nothing about the latency from the client.
_STORED_LATER = ("%RETRY%", "%DLQ%", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_")
Progress = Callable[[int, int], None]
Row = dict[str, Any]


@dataclass
class Report:
    """The data of the page. Times are ms since 1970, durations ms, sizes bytes of the log."""

    store: str
    made: int = 0
    options: dict[str, str] = field(default_factory=dict)
    messages: int = 0
    bytes: int = 0
    begin: int = 0
    end: int = 0
    topicCount: int = 0
    queueCount: int = 0
    wrongCrc: int = 0
    holes: int = 0
    holeBytes: int = 0
    # Messages that were stored before they were created: the clocks differ.
    bornLater: int = 0
    slotMs: int = _SECOND
    slotBegin: int = 0
    # A value, or None, for each slot.
    slots: Row = field(default_factory=lambda: {name: [] for name in _LINES})
    heatMs: int = _HOUR
    # p50, p90, p99, max.
    latency: Row = field(default_factory=dict)
    size: Row = field(default_factory=dict)
    # (exponent of the lower bound as a power of 2, -1 for values below 1; messages).
    latencies: list[tuple[int, int]] = field(default_factory=list)
    # The same in quarters: 41 is 2 to the power of 10.25.
    sizes: list[tuple[int, int]] = field(default_factory=list)
    # The busiest: topic, messages, bytes, queues, begin, end, slots.
    topics: list[Row] = field(default_factory=list)
    groupsKnown: bool = False
    # Pairs of topic and group.
    groupCount: int = 0
    backlogTotal: int = 0
    # The largest backlog first: topic, group, messages, lost, since.
    backlog: list[Row] = field(default_factory=list)
    # Host, messages, begin, end.
    writers: list[Row] = field(default_factory=list)
    # Store, end, bytes, messages, since.
    slaves: list[Row] = field(default_factory=list)
    keyUses: int = 0
    # An estimate.
    keyCount: int = 0
    # Topic, key, messages.
    hottest: list[Row] = field(default_factory=list)


def report(spark: SparkSession, store: str, page: str, options: dict[str, str],
           come_to: Progress = lambda done, total: None, slaves: Sequence[str] = ()) -> Report:
    """Count, and write the page. `slaves`: stores that should be copies of `store`."""
    found = Report(store, int(time.time() * 1000), dict(options))
    register(spark)
    reader = spark.read.format(FORMAT).options(**options)
    frame = _compact(reader.options(columns=_COLUMNS, mode="PERMISSIVE").load(store))
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    keys = reader.options(columns="topic,keys", mode="DROPMALFORMED", verifyCrc="false")
    steps: tuple[Callable[[], None], ...] = (
        lambda: _totals(frame, found), lambda: _over_time(frame, found), lambda: _histograms(frame, found),
        lambda: _topics(frame, found), lambda: _writers(frame, found), lambda: _groups(spark, frame, found),
        lambda: _hottest(keys.load(store), found), lambda: _replicas(spark, found, slaves))
    try:
        for number, step in enumerate(steps, 1):
            step()
            come_to(number, len(steps) + 1)
    finally:
        frame.unpersist()
    with filesystem.writing(page, replace=True) as file:
        file.write(render(found).encode("utf-8"))
    come_to(len(steps) + 1, len(steps) + 1)
    return found


def _compact(frame: DataFrame) -> DataFrame:
    """Select topic, queueId, queueOffset, storeSize, storeHost, crcOk, stored (ms), latency (ms; null if meaningless).

    A place without a record is a row without a topic.
    """
    stored, born = f.unix_millis("storeTimestamp"), f.unix_millis("bornTimestamp")
    later = f.lit(False)
    for prefix in _STORED_LATER:
        later = later | f.col("topic").startswith(prefix)
    return frame.select("topic", "queueId", "queueOffset", "storeSize", "storeHost", "crcOk", stored.alias("stored"),
                        f.when(~later, stored - born).alias("latency"))


def _percentiles(column: str) -> list[Column]:
    """Return p50, p90 and p99 as an array, and max."""
    return [f.percentile_approx(column, list(PERCENTILES), _ACCURACY).alias(f"{column}_p"),
            f.max(column).alias(f"{column}_max")]


def _quantiles(row: Any, column: str) -> Row:
    values = row[f"{column}_p"] or [None] * len(PERCENTILES)
    return {**{f"p{round(share * 100)}": value for share, value in zip(PERCENTILES, values)},
            "max": row[f"{column}_max"]}


def _totals(frame: DataFrame, found: Report) -> None:
    is_record = f.col("topic").isNotNull()
    records = frame.where(is_record).agg(
        f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"), f.min("stored").alias("begin"),
        f.max("stored").alias("end"), f.count_if(~f.col("crcOk")).alias("wrong"),
        f.count_if(f.col("latency") < 0).alias("later"), *_percentiles("latency"), *_percentiles("storeSize"),
    ).collect()[0]
    holes = frame.where(~is_record).agg(f.count("*").alias("holes"), f.sum("storeSize").alias("bytes")).collect()[0]
    found.messages, found.bytes = records.messages, records.bytes or 0
    found.begin, found.end = records.begin or 0, records.end or 0
    found.wrongCrc, found.bornLater = records.wrong, records.later
    found.latency, found.size = _quantiles(records, "latency"), _quantiles(records, "storeSize")
    found.holes, found.holeBytes = holes.holes, holes.bytes or 0
    found.slotMs = slot_for(found.begin, found.end, MOST_SLOTS)
    found.slotBegin = found.begin // found.slotMs * found.slotMs
    found.heatMs = heat_slot_for(found.begin, found.end, found.slotMs)


def slot_for(begin: int, end: int, most: int, least: int = 0, multiple_of: int = 1) -> int:
    """Return the shortest usual duration (ms) of which [begin, end] has at most `most`."""
    for slot in _SLOTS_MS:
        if slot >= least and slot % multiple_of == 0 and end // slot - begin // slot < most:
            return slot
    return _SLOTS_MS[-1]


def heat_slot_for(begin: int, end: int, slot_ms: int) -> int:
    """Return the ms of a column of the heat map: hours, if there are several and not too many."""
    return slot_for(begin, end, MOST_HEAT_SLOTS, _HOUR if end - begin >= 6 * _HOUR else 0, slot_ms)


def _slot(found: Report) -> Column:
    return f.floor((f.col("stored") - f.lit(found.slotBegin)) / f.lit(found.slotMs)).cast("int").alias("slot")


def _slot_count(found: Report) -> int:
    return (found.end - found.slotBegin) // found.slotMs + 1 if found.messages else 0


def _over_time(frame: DataFrame, found: Report) -> None:
    lines: Row = {name: [0] * _slot_count(found) for name in ("messages", "bytes")}
    lines |= {name: [None] * _slot_count(found) for name in ("p50", "p90", "p99", "max")}
    rows = frame.where("topic is not null and stored is not null").groupBy(_slot(found)).agg(
        f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"), *_percentiles("latency")).collect()
    for row in rows:
        for name, value in {"messages": row.messages, "bytes": row.bytes, **_quantiles(row, "latency")}.items():
            lines[name][row.slot] = value
    found.slots = lines


def _histograms(frame: DataFrame, found: Report) -> None:
    records = frame.where("topic is not null")
    found.latencies, found.sizes = _histogram(records, "latency", 1), _histogram(records, "storeSize", 4)


def _histogram(frame: DataFrame, column: str, steps: int) -> list[tuple[int, int]]:
    """Return (power of 2 from which on, in parts of 1/`steps`; count) without gaps. Values below 1 have power -1."""
    power = f.when(f.col(column) < 1, -1).otherwise(f.floor(f.log2(column) * steps)).cast("int").alias("power")
    rows = frame.where(f.col(column).isNotNull()).groupBy(power).count().collect()
    counts = {row.power: row["count"] for row in rows}
    return [(power, counts.get(power, 0)) for power in range(min(counts), max(counts) + 1)] if counts else []


def _topics(frame: DataFrame, found: Report) -> None:
    each = frame.where("topic is not null").groupBy("topic").agg(
        f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"),
        f.count_distinct("queueId").alias("queues"), f.min("stored").alias("begin"), f.max("stored").alias("end"))
    each.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        total = each.agg(f.count("*").alias("topics"), f.sum("queues").alias("queues")).collect()[0]
        rows = each.orderBy(f.desc("messages"), "topic").limit(LISTED_TOPICS).collect()
    finally:
        each.unpersist()
    found.topicCount, found.queueCount = total.topics, total.queues or 0
    listed = {row.topic: {**row.asDict(), "slots": [0] * _slot_count(found)} for row in rows}
    counts = frame.where(f.col("topic").isin(list(listed)) & f.col("stored").isNotNull())
    for row in counts.groupBy("topic", _slot(found)).count().collect() if listed else ():
        listed[row.topic]["slots"][row.slot] = row["count"]
    found.topics = list(listed.values())


def _writers(frame: DataFrame, found: Report) -> None:
    """Set the brokers that stored the messages as masters: after a change of masters there are several."""
    rows = frame.where("topic is not null").groupBy("storeHost").agg(
        f.count("*").alias("messages"), f.min("stored").alias("begin"), f.max("stored").alias("end"))
    found.writers = [{"host": row.storeHost, "messages": row.messages, "begin": row.begin, "end": row.end}
                     for row in rows.orderBy("begin", "storeHost").limit(LISTED_WRITERS).collect()]


def _groups(spark: SparkSession, frame: DataFrame, found: Report) -> None:
    """Count the messages that groups have not consumed yet, by the store's config/consumerOffset.json."""
    table = _consumer_offsets(found.store)
    if table is None:
        return
    found.groupsKnown = True
    if not len(table):
        return
    offsets = spark.createDataFrame(table)
    queues = frame.where("topic is not null").groupBy("topic", "queueId").agg(
        f.min("queueOffset").alias("first"), (f.max("queueOffset") + 1).alias("end"))
    pairs = offsets.select("topic", "group").distinct()
    each = pairs.join(queues, "topic").join(offsets, ["topic", "group", "queueId"], "left")
    each = each.withColumn("offset", f.coalesce("offset", f.lit(0)))
    lost = f.greatest(f.col("first") - f.col("offset"), f.lit(0))
    sums = each.groupBy("topic", "group").agg(
        f.sum(f.greatest(f.col("end") - f.col("offset"), f.lit(0))).alias("messages"),
        f.sum(lost if "startingTimestamp" not in found.options else f.lit(0)).alias("lost"))
    total = sums.agg(f.count("*").alias("pairs"), f.sum("messages").alias("messages")).collect()[0]
    found.groupCount, found.backlogTotal = total.pairs, total.messages or 0
    worst = sums.orderBy(f.desc("messages"), "topic", "group").limit(LISTED_GROUPS)
    found.backlog = [{**row.asDict(), "since": None} for row in worst.collect()]
    behind = {(row["topic"], row["group"]): row for row in found.backlog if row["messages"]}
    if behind:
        names = pa.table({"topic": [topic for topic, _ in behind], "group": [group for _, group in behind]})
        places = each.join(f.broadcast(spark.createDataFrame(names)), ["topic", "group"])
        waiting = frame.join(f.broadcast(places.select("topic", "group", "queueId", "offset")), ["topic", "queueId"])
        waiting = waiting.where("queueOffset >= offset").groupBy("topic", "group").agg(f.min("stored").alias("since"))
        for row in waiting.collect():
            behind[row["topic"], row["group"]]["since"] = row.since


def _consumer_offsets(store: str) -> pa.Table | None:
    """Return topic, group, queueId, offset; None if the store has no such file."""
    root = os.path.dirname(find_logs([store])[0].path)
    path = os.path.join(root, "config", "consumerOffset.json")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    try:
        rows = [(name, queue_id_of(queue), offset) for name, offsets in _offset_table(text).items()
                for queue, offset in offsets.items()]
        for name, queue_id, offset in rows:
            if queue_id is None or not is_long(offset, -1):
                raise ValueError(f"{name[:200]} has a queue or an offset that is out of range")
    except (ValueError, TypeError, AttributeError) as error:
        raise PipelineError(f"{path} is not in the format that brokers write: {error}") from error
    split = [name.partition("@")[::2] for name, _, _ in rows]
    return pa.table({"topic": pa.array([topic for topic, _ in split], pa.string()),
                     "group": pa.array([group for _, group in split], pa.string()),
                     "queueId": pa.array([queue for _, queue, _ in rows], pa.int32()),
                     "offset": pa.array([offset for _, _, offset in rows], pa.int64())})


def _offset_table(text: str) -> dict[str, dict[str, int]]:
    """Return topic@group -> queue id -> offset. The inner objects' keys are bare numbers, which JSON does not allow."""
    from rmqha.remoting.protocol.fastjson import loads
    whole: Any = loads(text)
    table = whole.get("offsetTable", {})
    return {str(name): {str(queue): offset for queue, offset in offsets.items()} for name, offsets in table.items()}


def _hottest(frame: DataFrame, found: Report) -> None:
    """Find hot keys. A sketch of bounded size finds the candidates; only those are counted, if there are any."""
    words = f.explode(f.split("keys", " ")).alias("key")
    uses = frame.where("keys is not null").select("topic", words).where("key <> ''")
    uses = uses.select("topic", f.substring("key", 1, _KEY_CHARACTERS).alias("key"))
    both = uses.select(f.concat_ws(_MARK, "topic", "key").alias("both"))
    row = both.agg(f.count("*").alias("uses"), f.approx_count_distinct("both").alias("keys"),
                   f.expr(f"approx_top_k(both, {LISTED_KEYS}, {_TRACKED_KEYS})").alias("top")).collect()[0]
    # The count of keys is an estimate.
    found.keyUses, found.keyCount = row.uses, min(row["keys"], row.uses)
    least = max(row.uses * HOT_SHARE, HOT_TIMES * row.uses / max(row["keys"], 1))
    candidates = [each.item for each in row.top or () if each["count"] >= least]
    if candidates:
        counted = both.where(f.col("both").isin(candidates)).groupBy("both").count().collect()
        hot = [(*each.both.partition(_MARK)[::2], each["count"]) for each in counted if each["count"] >= least]
        found.hottest = [{"topic": topic, "key": key, "messages": count}
                         for topic, key, count in sorted(hot, key=lambda one: (-one[2], one))]


def _replicas(spark: SparkSession, found: Report, slaves: Sequence[str]) -> None:
    """Set how much of the same log other stores have."""
    if not slaves:
        return
    master_end, *ends = run_tasks(spark, log_end, [find_logs([path])[0] for path in (found.store, *slaves)])
    for path, end in zip(slaves, ends):
        lacks = spark.read.format(FORMAT).options(columns="storeTimestamp", startingOffsets=str(end),
                                                  failOnDataLoss="false").load(found.store)
        row = lacks.where("storeTimestamp is not null").agg(
            f.count("*").alias("messages"), f.unix_millis(f.min("storeTimestamp")).alias("since")).collect()[0]
        found.slaves.append({"store": path, "end": end, "bytes": max(master_end - end, 0), "messages": row.messages,
                             "since": row.since})
