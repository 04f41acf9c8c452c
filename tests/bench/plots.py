"""Tables and pictures of docs/performance.md, from the files that the benchmarks wrote with `--json`.

    python -m tests.bench.plots RESULTS.jsonl... [--out docs/performance] [--page docs/performance.md] [--no-pictures]

The pictures are SVG, made by matplotlib (`pip install '.[plots]'`), which only this module imports. The same results
give the same bytes. `--no-pictures` writes the tables alone.
"""
import argparse
import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.performance_page import NAMES, Pair, case_text, number, pairs, rewrite
from tests.bench.results import Curve, ResultsError, Row, median_round, read
from tests.support.sources import ROOT

MISSING = "matplotlib is missing: pip install '.[plots]', or --no-pictures for the tables alone"
COLOURS = {"rmqha": "#1f77b4", "java": "#d9772b"}
_STYLE = {"svg.hashsalt": "rmqha", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
          "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd",
          "axes.axisbelow": True, "legend.frameon": False, "figure.facecolor": "white", "savefig.facecolor": "white"}
_LIMIT = "loopback, no broker"


def import_matplotlib():
    """The library, ready to draw into files; SystemExit tells how to get it."""
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
        """What was measured."""
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
    """How many nines the rarest share has that is known."""
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
    painter.draw("send", "send-latency", "What a send takes", panels)
    painter.draw("producer", "producer-rate", "The original's benchmark producer: messages per second, by threads",
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
    painter.draw("ha", "catch-up", "A slave catches up", [
        (case_text(pair.any.case), course(pair)) for pair in painter.of("ha", "held by the slave")])


def _starts(painter: Painter) -> None:
    painter.draw("startup", "startup", "From the start of the process to \"boot success\"", [
        (case_text(pair.any.case), bars([("", pair)], "s")) for pair in painter.of("startup", "start")])
    shown = (("clean", "start behind a clean stop, s"), ("queues", "disk of the queues, MiB"), ("maps", "maps"),
             ("idle CPU", "idle CPU, % of a core"))
    painter.draw("scale", "queues", "What queues cost that nobody uses", [
        (unit.partition(",")[0], growth(found, unit)) for what, unit in shown if (found := painter.of("scale", what))])


def _rest(painter: Painter) -> None:
    painter.draw("pauses", "pauses", "How late a message comes", [
        (case_text({name: pair.any.case[name] for name in ("role", "queues", "connections")}), tail([("", pair)], "ms"))
        for pair in painter.of("pauses", "lateness")])
    painter.draw("put", "put", "Puts per second into the bare store",
                 by_case(painter.of("put", "rate"), ("way",), "size", "messages per second", "bytes of the body"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Write page and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "performance", help="the folder of the pictures")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md")
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
    sys.stdout.write(f"{options.page}: {len(rows)} rows, {sum(map(len, (pictures or {}).values()))} pictures\n")


if __name__ == "__main__":
    main()
