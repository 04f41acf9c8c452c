"""The tables of docs/performance.md, from what the benchmarks noted: `tests.bench.plots` without its pictures.

A block of the page begins with `<!-- table: NAME -->` or `<!-- pictures: NAME -->` and ends with `<!-- end -->`.
"""
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.results import Plain, Row, at_share

NOT_YET = "not measured yet"
NAMES = {"rmqha": "rmqha", "java": "RocketMQ 4.9.7", "machine": "this machine"}
_BLOCK = re.compile(r"(<!-- (table|pictures): ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_UNITS = {"size": "{:,} B", "threads": "{:,} threads", "queues": "{:,} queues", "messages": "{:,} messages",
          "segments": "{:,} files of 1 GiB", "gib": "{:g} GiB", "groups": "{:,} groups",
          "connections": "{:,} connections", "slaves": "{:,} slaves", "pull_batch": "{:,} a pull",
          "rate": "{:,} msg/s", "role": "{}", "way": "{}", "store": "{}"}
_TAIL = (0.5, 0.9, 0.99, 0.999, 1.0)


@dataclass(frozen=True)
class Pair:
    """What one run measured in one case, of each kind."""

    rows: dict[str, Row]

    @property
    def any(self) -> Row:
        """A row that tells benchmark, case and unit."""
        return next(iter(self.rows.values()))

    def ratio(self, of: Callable[[Row], Sequence[float]]) -> str:
        """How many times as good rmqha is: the median of the rounds' own ratios."""
        if not {"rmqha", "java"} <= set(self.rows):
            return "-"
        ours, theirs = of(self.rows["rmqha"]), of(self.rows["java"])
        if not self.any.unit.endswith("/s"):  # less is better
            ours, theirs = theirs, ours
        if len(ours) != len(theirs):
            ours, theirs = [statistics.median(ours)], [statistics.median(theirs)]
        if not ours or min(theirs) <= 0:
            return "-"
        return f"{statistics.median(one / other for one, other in zip(ours, theirs)):.2f}"


def pairs(rows: Iterable[Row], cores: Callable[[Iterable[int]], int] = max) -> list[Pair]:
    """The last run of each case, in the order of the files; of runs on different numbers of cores those on the most."""
    groups: dict[tuple[object, ...], dict[str, dict[str, Row]]] = {}
    for row in rows:
        key = (row.run.benchmark, row.what, tuple(sorted(row.case.items(), key=str)))
        groups.setdefault(key, {}).setdefault(row.run.id, {})[row.kind] = row
    found = []
    for of_runs in groups.values():
        runs = list(of_runs.values())
        wanted = cores(next(iter(kinds.values())).run.cores for kinds in runs)
        found.append(Pair([kinds for kinds in runs if next(iter(kinds.values())).run.cores == wanted][-1]))
    return found


def number(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def case_text(case: dict[str, Plain]) -> str:
    """"1,024 B, 16 threads"."""
    return ", ".join(f"1 {name[:-1]}" if name in ("threads", "slaves") and value == 1
                     else _UNITS.get(name, name + " {}").format(value) for name, value in case.items())


def cell(row: Row | None) -> str:
    """The median, and the least and the most of several rounds."""
    if row is None:
        return NOT_YET
    text = f"{number(statistics.median(row.values))} {row.unit}".rstrip()
    return f"{text} ({number(min(row.values))} to {number(max(row.values))})" if len(row.values) > 1 else text


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table, or that there is none yet."""
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows]) + "\n" if rows else f"{NOT_YET}\n"


def figures(rows: Sequence[Row], *benchmarks: str) -> str:
    """A line for each figure of some benchmarks."""
    return table(("what", NAMES["rmqha"], NAMES["java"], "ratio"), (
        (f"{pair.any.what}{', ' if pair.any.case else ''}{case_text(pair.any.case)}", cell(pair.rows.get("rmqha")),
         cell(pair.rows.get("java")), pair.ratio(lambda row: row.values))
        for pair in pairs(rows) if pair.any.run.benchmark in benchmarks and not pair.any.is_curve))


def tails(rows: Sequence[Row], benchmark: str, what: str) -> str:
    """A line for each case and kind: what the slowest sends took."""
    head = ("case", "kind", *("latest" if share == 1 else f"{share * 100:g} %" for share in _TAIL))
    return table(head, (
        (case_text(pair.any.case), NAMES[kind], *(_at(pair.rows[kind], share) for share in _TAIL))
        for pair in pairs(rows) if (pair.any.run.benchmark, pair.any.what) == (benchmark, what)
        for kind in ("rmqha", "java") if kind in pair.rows))


def _at(row: Row, share: float) -> str:
    value = at_share(row, share)
    return "too few" if value is None else f"{number(value)} {row.unit}"


def machine_limits(rows: Sequence[Row]) -> str:
    """What the machine does without a broker."""
    return table(("what", "this machine"), ((pair.any.what, cell(pair.any)) for pair in pairs(rows)
                                            if pair.any.run.benchmark == "machine"))


def machines(rows: Sequence[Row]) -> str:
    """Everything that is known of the machine; more than one value where the runs differ."""
    seen: dict[str, list[str]] = {}
    for pair in pairs(rows):
        for name, value in pair.any.run.machine.items():
            values = seen.setdefault(name, [])
            if str(value) not in ("", *values):
                values.append(str(value))
    return table(("what", "value"), ((name, " / ".join(values) or "-") for name, values in seen.items()))


def commands(rows: Sequence[Row]) -> str:
    """What was started, in the order of the files."""
    used = dict.fromkeys(f"{'taskset -c 0 ' if row.run.cores == 1 else ''}{row.run.command}" for row in rows)
    return "".join(f"    {command}\n" for command in used) or f"{NOT_YET}\n"


def cores_table(rows: Sequence[Row]) -> str:
    """The figures that were measured on one core and on more."""
    few = {key(pair): pair for pair in pairs(rows, min)}
    lines = []
    for pair in pairs(rows):
        one = few[key(pair)]
        if one.any.run.cores == 1 < pair.any.run.cores and not pair.any.is_curve:
            lines += [(f"{pair.any.run.benchmark}: {pair.any.what}, {case_text(pair.any.case)}", NAMES[kind],
                       cell(one.rows[kind]), cell(pair.rows[kind]), _gain(one.rows[kind], pair.rows[kind]))
                      for kind in ("rmqha", "java") if kind in pair.rows and kind in one.rows]
    return table(("what", "kind", "one core", "all cores", "ratio"), lines)


def _gain(one: Row, more: Row) -> str:
    rows = {"java": one, "rmqha": more}
    return Pair(rows).ratio(lambda row: [statistics.median(row.values)])


def key(pair: Pair) -> tuple[object, ...]:
    """What tells a pair from others."""
    return pair.any.run.benchmark, pair.any.what, tuple(sorted(pair.any.case.items(), key=str))


@dataclass(frozen=True)
class Headline:
    """A line of the first table: of the rows that fit, of both kinds if possible, that with the largest `largest`."""

    text: str
    benchmark: str
    what: str
    case: dict[str, Plain] = field(default_factory=dict)
    largest: str = ""
    share: float | None = None

    def line(self, found: Sequence[Pair]) -> tuple[str, ...]:
        """Its cells."""
        fitting = [pair for pair in found if (pair.any.run.benchmark, pair.any.what) == (self.benchmark, self.what)
                   and self.case.items() <= dict(pair.any.case).items()]
        if not fitting:
            return self.text, NOT_YET, NOT_YET, "-", f"`{self._command}`"
        pair = max(fitting, key=lambda one: (len(one.rows), float(one.any.case.get(self.largest, 0))))
        rest = case_text({name: value for name, value in pair.any.case.items() if name not in self.case})
        return (f"{self.text}{', ' if rest else ''}{rest}", *(self._cell(pair.rows.get(kind)) for kind in
                                                             ("rmqha", "java")),
                pair.ratio(self._values), f"`{self._command}`")

    @property
    def _command(self) -> str:
        return f"python -m tests.bench.{self.benchmark}"

    def _values(self, row: Row) -> Sequence[float]:
        if self.share is None:
            return row.values
        value = at_share(row, self.share)
        return [] if value is None else [value]

    def _cell(self, row: Row | None) -> str:
        if row is None:
            return "there is no such tool" if self.benchmark == "put" else NOT_YET
        values = self._values(row)
        return f"{number(statistics.median(values))} {row.unit}".rstrip() if values else "too few"


HEADLINES = (
    Headline("Sends acknowledged by a master alone", "send", "rate", {"role": "ASYNC_MASTER"}, "threads"),
    Headline("Sends acknowledged by master and slave", "send", "rate", {"role": "SYNC_MASTER"}, "threads"),
    Headline("99 of 100 of these sends took at most", "send", "latency", {"role": "SYNC_MASTER"}, "threads", 0.99),
    Headline("A lone send, master and slave, median", "send", "latency", {"role": "SYNC_MASTER", "threads": 1}, "",
             0.5),
    Headline("The original's own benchmark producer", "producer", "rate", {}, "threads"),
    Headline("CPU of the broker for a million of these", "producer", "CPU per million messages", {}, "threads"),
    Headline("One push consumer takes a backlog", "drain", "rate", {}, "size"),
    Headline("Sends acknowledged by a master with several slaves", "slaves", "rate", {}, "slaves"),
    Headline("A master feeds a reader", "ha", "reader", {}, "gib"),
    Headline("A slave takes a stream", "ha", "ingest", {}, "gib"),
    Headline("A slave catches up with a master", "ha", "catchup", {}, "gib"),
    Headline("Start, empty store", "startup", "start", {"store": "empty"}),
    Headline("Start behind a clean stop", "startup", "start", {"store": "stopped well"}, "segments"),
    Headline("Start that builds queues and index", "startup", "start", {"store": "queues and index deleted"},
             "messages"),
    Headline("Start with many queues", "scale", "clean", {}, "queues"),
    Headline("Disk taken by the files of many queues", "scale", "queues", {}, "queues"),
    Headline("Idle CPU beside many queues", "scale", "idle CPU", {}, "queues"),
    Headline("999 of 1,000 messages came after at most", "pauses", "lateness", {}, "queues", 0.999),
    Headline("Puts into the bare store", "put", "rate", {"way": "with dispatch"}, "size"),
)


def headlines(rows: Sequence[Row]) -> str:
    """The first table."""
    found = pairs(rows)
    return table(("what", NAMES["rmqha"], NAMES["java"], "ratio", "command"), (one.line(found) for one in HEADLINES))


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "headlines": headlines, "machine": machines, "limits": machine_limits, "commands": commands,
    "send": lambda rows: figures(rows, "send"), "latency": lambda rows: tails(rows, "send", "latency"),
    "producer": lambda rows: figures(rows, "producer"), "ha": lambda rows: figures(rows, "ha"),
    "slaves": lambda rows: figures(rows, "slaves"), "drain": lambda rows: figures(rows, "drain"),
    "startup": lambda rows: figures(rows, "startup"), "scale": lambda rows: figures(rows, "scale"),
    "pauses": lambda rows: figures(rows, "pauses"), "lateness": lambda rows: tails(rows, "pauses", "lateness"),
    "put": lambda rows: figures(rows, "put"), "cores": cores_table,
}


def written(page: str, rows: Sequence[Row], pictures: dict[str, list[tuple[str, str]]] | None = None) -> str:
    """The page with its tables made anew, and its pictures, (title, path) by block, unless they are None."""
    def block(match: re.Match[str]) -> str:
        begin, sort, name, old, end = match.groups()
        if sort == "table":
            return begin + TABLES[name](rows) + end
        if pictures is None:
            return begin + old + end
        lines = [f"![{title}]({path})\n" for title, path in pictures.get(name, ())]
        return begin + ("\n".join(lines) or f"{NOT_YET}\n") + end
    return _BLOCK.sub(block, page)


def blocks(page: str, sort: str) -> set[str]:
    """Names of the page's blocks of a sort (table, pictures)."""
    return {match[3] for match in _BLOCK.finditer(page) if match[2] == sort}


def rewrite(file: Path, rows: Sequence[Row], pictures: dict[str, list[tuple[str, str]]] | None = None) -> None:
    """Write the page again."""
    file.write_text(written(file.read_text("utf-8"), rows, pictures), "utf-8")
