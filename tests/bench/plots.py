"""Tables and pictures of docs/performance.md, and README's table, from the files that benchmarks wrote with `--json`.

    python -m tests.bench.plots RESULTS.jsonl... [--out docs/performance] [--page docs/performance.md] [--no-pictures]

The pictures are SVG, made by matplotlib (`pip install '.[plots]'`), which only this module imports. The same results
give the same bytes. `--no-pictures` writes the tables alone.
"""
import argparse
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.results import Curve, Plain, ResultsError, Row, at_share, median_round, read
from tests.support.sources import ROOT

# The tables of docs/performance.md, from what the benchmarks noted: `tests.bench.plots` without its pictures.
#
# A block of the page begins with `<!-- table: NAME -->` or `<!-- pictures: NAME -->` and ends with `<!-- end -->`.

README, PAGE = ROOT / "README.md", ROOT / "docs" / "performance.md"
NOT_YET = "not measured yet"
NAMES = {"rmqha": "rmqha", "java": "RocketMQ 4.9.7", "machine": "this machine"}
_BLOCK = re.compile(r"(<!-- (table|pictures): ([a-z-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_UNITS = {"size": "{:,} B", "threads": "{:,} threads", "queues": "{:,} queues", "messages": "{:,} messages",
          "segments": "{:,} files of 1 GiB", "gib": "{:g} GiB", "groups": "{:,} groups",
          "connections": "{:,} connections", "slaves": "{:,} slaves", "pull_batch": "{:,} per pull",
          "rate": "{:,} msg/s", "role": "{}", "way": "{}", "store": "{}"}
_TAIL = (0.5, 0.9, 0.99, 0.999, 1.0)
# What results say in short -> what the page says.
_WORDS = {"build": "first start", "clean": "start after a clean stop", "kill -9": "start after `kill -9`",
          "queues": "disk space of the queues", "maps": "memory maps", "descriptors": "file descriptors",
          "RSS": "resident memory", "stopped well": "after a clean stop", "empty": "empty store",
          "idle CPU of a master with both": "idle CPU of a master, with name server and slave",
          "idle CPU of a slave with both": "idle CPU of a slave, with name server and master"}


@dataclass(frozen=True)
class Pair:
    """The figures of one run in one case, by kind."""

    rows: dict[str, Row]

    @property
    def any(self) -> Row:
        """A row, for its benchmark, case and unit."""
        return next(iter(self.rows.values()))

    def ratio(self, of: Callable[[Row], Sequence[float]]) -> str:
        """Return how many times as good rmqha is: the median of the ratios of the rounds."""
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
                     else _UNITS.get(name, name + " {}").format(_WORDS.get(str(value), value))
                     for name, value in case.items())


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
        (f"{_WORDS.get(pair.any.what, pair.any.what)}{', ' if pair.any.case else ''}{case_text(pair.any.case)}",
         cell(pair.rows.get("rmqha")),
         cell(pair.rows.get("java")), pair.ratio(lambda row: row.values))
        for pair in pairs(rows) if pair.any.run.benchmark in benchmarks and not pair.any.is_curve))


def tails(rows: Sequence[Row], benchmark: str, what: str) -> str:
    """A line for each case and kind: percentiles."""
    head = ("case", "kind", *("maximum" if share == 1 else f"p{share * 100:g}" for share in _TAIL))
    return table(head, (
        (case_text(pair.any.case), NAMES[kind], *(_at(pair.rows[kind], share) for share in _TAIL))
        for pair in pairs(rows) if (pair.any.run.benchmark, pair.any.what) == (benchmark, what)
        for kind in ("rmqha", "java") if kind in pair.rows))


def _at(row: Row, share: float) -> str:
    value = at_share(row, share)
    return "too few" if value is None else f"{number(value)} {row.unit}"


def machine_limits(rows: Sequence[Row]) -> str:
    """Return a table of what the machine does without a broker."""
    return table(("what", "this machine"), ((pair.any.what, cell(pair.any)) for pair in pairs(rows)
                                            if pair.any.run.benchmark == "machine"))


def machines(rows: Sequence[Row]) -> str:
    """Return a table of the machine; several values where the runs differ."""
    seen: dict[str, list[str]] = {}
    for pair in pairs(rows):
        for name, value in pair.any.run.machine.items():
            values = seen.setdefault(name, [])
            if str(value) not in ("", *values):
                values.append(str(value))
    return table(("what", "value"), ((name, " / ".join(values) or "-") for name, values in seen.items()))


def commands(rows: Sequence[Row]) -> str:
    """Return the commands of the runs, in the order of the files."""
    used = dict.fromkeys(f"{'taskset -c 0 ' if row.run.cores == 1 else ''}{row.run.command}" for row in rows)
    return "\n".join(["```bash", *used, "```\n"]) if used else f"{NOT_YET}\n"


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
    """Return the identity of a pair: benchmark, figure and case."""
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
    readme: str = ""  # its name in README's table, which has only the lines that have one

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
            return "no such tool" if self.benchmark == "put" else NOT_YET
        values = self._values(row)
        return f"{number(statistics.median(values))} {row.unit}".rstrip() if values else "too few"


HEADLINES = (
    Headline("Sends acknowledged by a master alone", "send", "rate", {"role": "ASYNC_MASTER"}, "threads",
             readme="Sends acknowledged by a master alone"),
    Headline("Sends acknowledged by master and slave", "send", "rate", {"role": "SYNC_MASTER"}, "threads",
             readme="Sends acknowledged by master and slave"),
    Headline("p99 of these sends", "send", "latency", {"role": "SYNC_MASTER"}, "threads", 0.99),
    Headline("One send at a time, master and slave, median", "send", "latency", {"role": "SYNC_MASTER", "threads": 1},
             "", 0.5, "One send at a time, master and slave, median"),
    Headline("RocketMQ's benchmark producer", "producer", "rate", {}, "threads"),
    Headline("Broker's CPU for a million of these sends", "producer", "CPU per million messages", {}, "threads",
             readme="Broker's CPU for a million sends"),
    Headline("One push consumer reads a backlog", "drain", "rate", {}, "size"),
    Headline("Sends acknowledged by a master with several slaves", "slaves", "rate", {}, "slaves"),
    Headline("A master sends its log to a reader", "ha", "reader", {}, "gib"),
    Headline("A slave receives a stream", "ha", "ingest", {}, "gib"),
    Headline("A slave catches up with its master", "ha", "catchup", {}, "gib",
             readme="A slave catches up with its master"),
    Headline("Start, empty store", "startup", "start", {"store": "empty"}, readme="Start of an empty broker"),
    Headline("Start after a clean stop", "startup", "start", {"store": "stopped well"}, "segments"),
    Headline("Start that rebuilds queues and index", "startup", "start", {"store": "queues and index deleted"},
             "messages"),
    Headline("Start with many queues", "scale", "clean", {}, "queues"),
    Headline("Disk space of the files of many queues", "scale", "queues", {}, "queues"),
    Headline("Idle CPU with many queues", "scale", "idle CPU", {}, "queues"),
    Headline("p99.9 of delivery latency", "pauses", "lateness", {}, "queues", 0.999),
    Headline("Puts into the bare store", "put", "rate", {"way": "with dispatch"}, "size"),
)


def headlines(rows: Sequence[Row]) -> str:
    """The first table."""
    found = pairs(rows)
    return table(("what", NAMES["rmqha"], NAMES["java"], "ratio", "command"), (one.line(found) for one in HEADLINES))


def readme(rows: Sequence[Row]) -> str:
    """README's table: some of the first table's lines, without their ratios and commands."""
    found = pairs(rows)
    lines = [(one, one.line(found)) for one in HEADLINES if one.readme]
    return table(("", NAMES["rmqha"], NAMES["java"]),
                 ((line[0].replace(one.text, one.readme), *line[1:3]) for one, line in lines))


TABLES: dict[str, Callable[[Sequence[Row]], str]] = {
    "headlines": headlines, "readme": readme, "machine": machines, "limits": machine_limits, "commands": commands,
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


MISSING = "matplotlib is missing: pip install '.[plots]', or --no-pictures for the tables alone"
COLOURS = {"rmqha": "#1f77b4", "java": "#d9772b"}
_STYLE = {"svg.hashsalt": "rmqha", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
          "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
          "axes.axisbelow": True, "legend.frameon": False, "figure.facecolor": "white", "savefig.facecolor": "white"}
_LIMIT = "loopback, no broker"


def import_matplotlib():
    """Return matplotlib, set up to draw into files. SystemExit, with how to install it, when it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit(MISSING) from error
    matplotlib.use("svg")
    matplotlib.rcParams.update(_STYLE)
    return matplotlib


class Painter:
    """Draws the pictures for which there are results into a folder, and keeps their names."""

    def __init__(self, rows: Sequence[Row], folder: Path, page: Path) -> None:
        import_matplotlib()
        from matplotlib import pyplot
        self._plot = pyplot
        self._pairs = pairs(rows)
        self._folder = folder
        self._page = page
        self.made: dict[str, list[tuple[str, str]]] = {}

    def of(self, benchmark: str, what: str) -> list[Pair]:
        """Return the pairs of a benchmark's figure."""
        return [pair for pair in self._pairs if (pair.any.run.benchmark, pair.any.what) == (benchmark, what)]

    def draw(self, block: str, name: str, title: str, panels: Sequence[tuple[str, Callable]]) -> None:
        """A picture of some panels, side by side; none when there is no panel."""
        if not panels:
            return
        figure, axes = self._plot.subplots(1, len(panels), figsize=(max(5.5, 3.7 * len(panels)), 3.3), squeeze=False)
        for axis, (head, paint) in zip(axes[0], panels):
            axis.set_title(head, fontsize=9)
            paint(axis)
        labels = {label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels())}
        figure.suptitle(title, fontsize=11)
        columns = 2 if any("," in label and label != _LIMIT for label in labels) else 3
        figure.legend(labels.values(), labels.keys(), loc="lower center", ncols=min(columns, len(labels)))
        rows_of_legend = -(-len(labels) // columns)
        figure.tight_layout(rect=(0, 0.07 * rows_of_legend, 1, 1))
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name}.svg"
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
        self._plot.close(figure)
        path = Path(os.path.relpath(file, self._page.parent)).as_posix()
        self.made.setdefault(block, []).append((title, path))


def bars(groups: Sequence[tuple[str, Pair]], unit: str, from_label: str = "") -> Callable:
    """For each group a bar of each kind: the median, with the least and the most of the rounds."""
    def paint(axis) -> None:
        kinds = [kind for kind in COLOURS if any(kind in pair.rows for _name, pair in groups)]
        for place, kind in enumerate(kinds):
            shown = [(number_, pair.rows[kind]) for number_, (_name, pair) in enumerate(groups) if kind in pair.rows]
            places = [number_ + (place - (len(kinds) - 1) / 2) * 0.38 for number_, _row in shown]
            middles = [statistics.median(row.values) for _number, row in shown]
            spread = [[middle - min(row.values) for middle, (_n, row) in zip(middles, shown)],
                      [max(row.values) - middle for middle, (_n, row) in zip(middles, shown)]]
            drawn = axis.bar(places, middles, 0.36, color=COLOURS[kind], label=NAMES[kind], yerr=spread,
                             error_kw={"ecolor": "#555555", "elinewidth": 0.8, "capsize": 2})
            axis.bar_label(drawn, [number(middle) for middle in middles], fontsize=7, padding=2)
        axis.set_xticks(range(len(groups)), [name for name, _pair in groups])
        axis.set_xlabel(from_label)
        axis.set_ylabel(unit)
        axis.grid(False, axis="x")
        axis.margins(y=0.15)
    return paint


def by_case(found: Sequence[Pair], split: Sequence[str], along: str, unit: str,
            label: str) -> list[tuple[str, Callable]]:
    """A panel of bars for each value of `split`, a group for each of `along`."""
    panels: dict[str, list[tuple[str, Pair]]] = {}
    for pair in sorted(found, key=lambda one: float(one.any.case[along])):
        head = case_text({name: pair.any.case[name] for name in split})
        panels.setdefault(head, []).append((f"{pair.any.case[along]:,}", pair))
    return [(head, bars(groups, unit, label)) for head, groups in sorted(panels.items())]


def tail(found: Sequence[tuple[str, Pair]], unit: str) -> Callable:
    """Latency by the share of the messages that it covers: each step to the right is a tenth of those left."""
    styles = ("-", "--", ":", "-.")

    def paint(axis) -> None:
        last = max(_decades(curve) for _name, pair in found for row in pair.rows.values() for curve in row.values) + 1
        for style, (name, pair) in zip(styles, found):
            for kind in COLOURS:
                if kind in pair.rows:
                    curve = pair.rows[kind].values[median_round(pair.rows[kind])]
                    points = [(last if share == 1 else -math.log10(1 - share), y) for share, y in curve]
                    axis.plot(*zip(*points), style, color=COLOURS[kind], linewidth=1.4,
                              label=f"{NAMES[kind]}{', ' if name else ''}{name}")
                    axis.plot(*points[-1], "o", color=COLOURS[kind], markersize=3)
        ticks = [0.301, *range(1, last)]
        shares = [f"{100 - 100 * 10 ** -tick:.{max(0, round(tick) - 2)}f} %" for tick in ticks]
        axis.set_xticks([*ticks, last], [*shares, "slowest"])
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _place: f"{value:g}")
        axis.set_xlabel("share of the messages")
        axis.set_ylabel(unit)
    return paint


def _decades(curve: Curve) -> int:
    """Return the number of nines of the rarest known share."""
    return max([1, *(math.floor(-math.log10(1 - share) + 1e-9) for share, _y in curve if share < 1)])


def course(pair: Pair) -> Callable:
    """Bytes held over time: the median round strong, the others faint."""
    def paint(axis) -> None:
        for kind in COLOURS:
            if kind in pair.rows:
                row = pair.rows[kind]
                middle = sorted(range(len(row.values)), key=lambda n: row.values[n][-1][0])[len(row.values) // 2]
                for round_number, curve in enumerate(row.values):
                    strong = round_number == middle
                    axis.plot(*zip(*curve), color=COLOURS[kind], linewidth=1.6 if strong else 0.8,
                              alpha=1 if strong else 0.4, label=NAMES[kind] if strong else None)
        axis.set_xlabel("s since the first byte")
        axis.set_ylabel("MB held by the slave")
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
    return paint


def growth(found: Sequence[Pair], unit: str) -> Callable:
    """A line of each kind over the number of queues."""
    def paint(axis) -> None:
        for kind in COLOURS:
            rows = sorted((float(pair.any.case["queues"]), pair.rows[kind]) for pair in found if kind in pair.rows)
            if rows:
                axis.plot([queues for queues, _row in rows], [statistics.median(row.values) for _q, row in rows],
                          "o-", color=COLOURS[kind], markersize=4, linewidth=1.4, label=NAMES[kind])
        axis.set_xscale("log")
        ticks = sorted({float(pair.any.case["queues"]) for pair in found})
        axis.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.set_xlabel("queues")
        axis.set_ylabel(unit)
    return paint


def _sends(painter: Painter) -> None:
    painter.draw("send", "send-rate", "Acknowledged messages per second, by threads",
                 by_case(painter.of("send", "rate"), ("role", "size"), "threads", "messages per second",
                         "threads of the producer"))
    roles: dict[str, list[Pair]] = {}
    for pair in sorted(painter.of("send", "latency"), key=lambda one: float(one.any.case["threads"])):
        roles.setdefault(case_text({"role": pair.any.case["role"], "size": pair.any.case["size"]}), []).append(pair)
    panels = []
    for head, found in sorted(roles.items()):
        ends = found if len(found) < 3 else [found[0], found[-1]]
        panels.append((head, tail([(case_text({"threads": pair.any.case["threads"]}), pair) for pair in ends], "ms")))
    painter.draw("send", "send-latency", "Send latency", panels)
    painter.draw("producer", "producer-rate", "RocketMQ's benchmark producer: messages per second, by threads",
                 by_case(painter.of("producer", "rate"), ("role", "size"), "threads", "messages per second", "threads"))


def _replication(painter: Painter) -> None:
    found = [(what, pair) for what in ("reader", "ingest", "catchup") for pair in painter.of("ha", what)[-1:]]
    limit = painter.of("machine", "loopback")

    def paint(axis) -> None:
        bars(found, "MB/s")(axis)
        for pair in limit:
            row = pair.any
            axis.axhline(statistics.median(row.values), color="#777777", linestyle="--", linewidth=1, label=_LIMIT)
    painter.draw("ha", "replication", "Replication", [("bytes per second", paint)] if found else [])
    painter.draw("ha", "catch-up", "A slave catches up with its master", [
        (case_text(pair.any.case), course(pair)) for pair in painter.of("ha", "held by the slave")])


def _starts(painter: Painter) -> None:
    painter.draw("startup", "startup", "From the start of the process to \"boot success\"", [
        (case_text(pair.any.case), bars([("", pair)], "s")) for pair in painter.of("startup", "start")])
    shown = (("clean", "start after a clean stop, s"), ("queues", "disk space of the queues, MiB"),
             ("maps", "memory maps"), ("idle CPU", "idle CPU, % of a core"))
    painter.draw("scale", "queues", "The cost of idle queues", [
        (unit.partition(",")[0], growth(found, unit)) for what, unit in shown if (found := painter.of("scale", what))])


def _rest(painter: Painter) -> None:
    painter.draw("pauses", "pauses", "Delivery latency", [
        (case_text({name: pair.any.case[name] for name in ("role", "queues", "connections")}), tail([("", pair)], "ms"))
        for pair in painter.of("pauses", "lateness")])
    painter.draw("put", "put", "Puts per second into the bare store",
                 by_case(painter.of("put", "rate"), ("way",), "size", "messages per second", "bytes of the body"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write page and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance", help="the folder of the pictures")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page; README is written only with the default")
    parser.add_argument("--no-pictures", action="store_true")
    options = parser.parse_args(arguments)
    try:
        rows = read(options.results)
    except (ResultsError, OSError) as error:
        raise SystemExit(str(error)) from error
    pictures = None
    if not options.no_pictures:
        painter = Painter(rows, options.out.resolve(), options.page.resolve())
        for draw in (_sends, _replication, _starts, _rest):
            draw(painter)
        pictures = painter.made
    rewrite(options.page, rows, pictures)
    if options.page == PAGE:
        rewrite(README, rows)
    sys.stdout.write(f"{options.page}: {len(rows)} rows, {sum(map(len, (pictures or {}).values()))} pictures\n")


if __name__ == "__main__":
    main()
