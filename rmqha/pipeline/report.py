"""The job `report`: one HTML page about a store, with plots that need nothing from elsewhere."""
import html
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from rmqha.pipeline.commit_log_source import FORMAT
from rmqha.pipeline.log_files import find_logs

_COLUMNS = "topic,queueId,queueOffset,bornTimestamp,storeTimestamp,keys,storeSize"
_SLOTS = 120  # points of a plot over time
_HOTTEST = 20
_LATENCY_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_SIZES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536, 262144, 1048576)
Progress = Callable[[int, int], None]


@dataclass
class Report:
    """What the page shows. Times are ms."""

    store: str
    messages: int = 0
    bytes: int = 0
    begin: int = 0
    end: int = 0
    slotMs: int = 1000
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)  # topic -> messages, bytes, queues
    rates: dict[str, list[int]] = field(default_factory=dict)  # topic -> messages in each slot
    sizes: list[tuple[str, int]] = field(default_factory=list)
    latencies: list[tuple[str, int]] = field(default_factory=list)
    backlog: list[dict[str, Any]] = field(default_factory=list)  # topic, group, messages
    hottest: list[dict[str, Any]] = field(default_factory=list)  # topic, key, messages


def report(spark: SparkSession, store: str, page: str, options: dict[str, str],
           come_to: Progress = lambda done, total: None) -> Report:
    """Count, and write the page."""
    frame = spark.read.format(FORMAT).options(**{**options, "columns": _COLUMNS, "mode": "DROPMALFORMED"}).load(store)
    frame = frame.withColumns({"stored": f.unix_millis("storeTimestamp"), "born": f.unix_millis("bornTimestamp")})
    frame.persist()
    found = Report(store)
    steps = (_totals, _rates, _histograms, _hottest)
    try:
        for number, step in enumerate(steps, 1):
            step(frame, found)
            come_to(number, len(steps) + 1)
    finally:
        frame.unpersist()
    found.backlog = _backlog(store, found)
    with open(page + ".new", "w", encoding="utf-8") as file:
        file.write(render(found))
    os.replace(page + ".new", page)
    come_to(len(steps) + 1, len(steps) + 1)
    return found


def _totals(frame: DataFrame, found: Report) -> None:
    rows = frame.groupBy("topic", "queueId").agg(
        f.count("*").alias("messages"), f.sum("storeSize").alias("bytes"), f.max("queueOffset").alias("last"),
        f.min("stored").alias("begin"), f.max("stored").alias("end")).collect()
    for row in sorted(rows, key=lambda each: (each.topic, each.queueId)):
        topic = found.topics.setdefault(row.topic, {"messages": 0, "bytes": 0, "queues": {}})
        topic["messages"] += row.messages
        topic["bytes"] += row.bytes
        topic["queues"][str(row.queueId)] = row.last + 1
        found.messages += row.messages
        found.bytes += row.bytes
    found.begin = min((row.begin for row in rows), default=0)
    found.end = max((row.end for row in rows), default=0)
    found.slotMs = max((found.end - found.begin) // _SLOTS + 1, 1000)


def _rates(frame: DataFrame, found: Report) -> None:
    slot = ((f.col("stored") - f.lit(found.begin)) / found.slotMs).cast("int").alias("slot")
    for row in frame.groupBy("topic", slot).count().collect():
        line = found.rates.setdefault(row.topic, [0] * ((found.end - found.begin) // found.slotMs + 1))
        line[row.slot] = row["count"]


def _histograms(frame: DataFrame, found: Report) -> None:
    latency = f.col("stored") - f.col("born")
    row = frame.agg(*_counts(latency, _LATENCY_MS, "l"), *_counts(f.col("storeSize"), _SIZES, "s")).collect()[0]
    found.latencies = [(_label(_LATENCY_MS, at, "ms"), row[f"l{at}"]) for at in range(len(_LATENCY_MS) + 1)]
    found.sizes = [(_label(_SIZES, at, "B"), row[f"s{at}"]) for at in range(len(_SIZES) + 1)]


def _counts(column: Column, bounds: tuple[int, ...], prefix: str) -> list[Column]:
    return [f.count_if(_between(column, bounds, at)).alias(f"{prefix}{at}") for at in range(len(bounds) + 1)]


def _between(column: Column, bounds: tuple[int, ...], number: int) -> Column:
    if number == 0:
        return column < bounds[0]
    above = column >= bounds[number - 1]
    return above if number == len(bounds) else above & (column < bounds[number])


def _label(bounds: tuple[int, ...], number: int, unit: str) -> str:
    return f"< {bounds[number]} {unit}" if number < len(bounds) else f">= {bounds[-1]} {unit}"


def _hottest(frame: DataFrame, found: Report) -> None:
    keys = frame.where("keys is not null").select("topic", f.explode(f.split("keys", " ")).alias("key"))
    rows = keys.where("key <> ''").groupBy("topic", "key").count().orderBy(f.desc("count"), "topic", "key")
    found.hottest = [{"topic": row.topic, "key": row.key, "messages": row["count"]}
                     for row in rows.limit(_HOTTEST).collect()]


def _backlog(store: str, found: Report) -> list[dict[str, Any]]:
    """Messages that groups have not consumed yet, by the store's config/consumerOffset.json."""
    root = os.path.dirname(find_logs([store])[0].path)
    try:
        with open(os.path.join(root, "config", "consumerOffset.json"), encoding="utf-8") as file:
            table = _offset_table(file.read())
    except FileNotFoundError:
        return []
    rows = []
    for name, offsets in sorted(table.items()):
        topic, _, group = name.partition("@")
        queues = found.topics.get(topic, {}).get("queues")
        if queues:
            behind = sum(max(last - int(offsets.get(queue, 0)), 0) for queue, last in queues.items())
            rows.append({"topic": topic, "group": group, "messages": behind})
    return rows


def _offset_table(text: str) -> dict[str, dict[str, int]]:
    """topic@group -> queue id -> offset. The keys of the inner objects are bare numbers, which JSON does not allow."""
    from rmqha.remoting.protocol.fastjson import loads
    whole: Any = loads(text)
    table = whole.get("offsetTable", {})
    return {name: {str(queue): offset for queue, offset in offsets.items()} for name, offsets in table.items()}


# -- the page --

_STYLE = """body{font:14px system-ui,sans-serif;margin:2em auto;max-width:1000px;padding:0 1em;color:#222}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em}table{border-collapse:collapse}td,th{padding:.25em .8em;
text-align:right;border-bottom:1px solid #ddd}td:first-child,th:first-child{text-align:left}svg{width:100%;height:auto}
.n{color:#777}"""
_COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")


def render(found: Report) -> str:
    """The page."""
    rows = [[topic, one["messages"], one["bytes"], len(one["queues"])] for topic, one in found.topics.items()]
    busiest = sorted(found.rates, key=lambda topic: -sum(found.rates[topic]))[:len(_COLOURS)]
    parts = [
        f"<h1>{html.escape(found.store)}</h1>",
        f"<p>{found.messages:,} messages, {found.bytes:,} bytes, stored within "
        f"{max(found.end - found.begin, 0) / 1000:,.0f} seconds</p>",
        "<h2>Topics</h2>", _table(["topic", "messages", "bytes", "queues"], rows),
        f"<h2>Messages a second</h2><p class=n>each point: {found.slotMs / 1000:g} s</p>",
        _lines({topic: [count * 1000 / found.slotMs for count in found.rates[topic]] for topic in busiest}),
        "<h2>Sizes of stored messages</h2>", _bars(found.sizes),
        "<h2>From the client to the store</h2><p class=n>store time less birth time; the clocks are the client's and "
        "the broker's</p>", _bars(found.latencies),
        "<h2>Backlog by group</h2>",
        _table(["topic", "group", "messages"], [[row["topic"], row["group"], row["messages"]] for row in found.backlog])
        if found.backlog else "<p class=n>the store has no config/consumerOffset.json with groups of these topics</p>",
        "<h2>Hottest keys</h2>",
        _table(["key", "topic", "messages"], [[row["key"], row["topic"], row["messages"]] for row in found.hottest]),
        f"<script type=application/json id=data>{_for_script(found)}</script>",
    ]
    return ("<!DOCTYPE html><html lang=en><meta charset=utf-8><title>rmqha report</title>"
            f"<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n")


def _for_script(found: Report) -> str:
    return json.dumps(found.__dict__, ensure_ascii=True).replace("<", "\\u003c")


def _table(head: list[str], rows: Sequence[Sequence[object]]) -> str:
    cells = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{html.escape(name)}</th>' for name in head)}</tr>{cells}</table>"


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


def _lines(series: dict[str, list[float]]) -> str:
    top = max((max(values) for values in series.values() if values), default=0) or 1
    drawn = [f"<text x=4 y=12 font-size=11>{top:,.4g}</text><line x1=0 y1=200 x2=900 y2=200 stroke=#999 />"]
    for number, (name, values) in enumerate(series.items()):
        step = 900 / max(len(values) - 1, 1)
        points = " ".join(f"{at * step:.1f},{200 - 180 * value / top:.1f}" for at, value in enumerate(values))
        colour = _COLOURS[number]
        drawn.append(f"<polyline points='{points}' fill=none stroke='{colour}' stroke-width=1.5 />"
                     f"<text x={10 + number % 4 * 220} y={220 + number // 4 * 16} font-size=12 fill='{colour}'>"
                     f"{html.escape(name)}</text>")
    return f"<svg viewBox='0 0 900 250'>{''.join(drawn)}</svg>"


def _bars(values: list[tuple[str, int]]) -> str:
    top = max((count for _, count in values), default=0) or 1
    width = 900 / max(len(values), 1)
    drawn = []
    for number, (label, count) in enumerate(values):
        height = 160 * count / top
        drawn.append(f"<rect x={number * width + 3:.1f} y={180 - height:.1f} width={width - 6:.1f} height={height:.1f} "
                     f"fill='{_COLOURS[0]}'><title>{html.escape(label)}: {count:,}</title></rect>"
                     f"<text x={number * width + 3:.1f} y=196 font-size=10>{html.escape(label)}</text>"
                     f"<text x={number * width + 3:.1f} y={174 - height:.1f} font-size=10>{count:,}</text>")
    return f"<svg viewBox='0 0 900 205'>{''.join(drawn)}</svg>"
