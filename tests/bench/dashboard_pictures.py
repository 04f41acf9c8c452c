"""Pictures of the dashboards in conf/grafana, for docs/pictures, drawn from the data of a running Prometheus.

    python -m tests.bench.dashboard_pictures http://127.0.0.1:9090 [--minutes 15] [--out docs/pictures]

They show the data of the panels, drawn by matplotlib (the extra `plots`); Grafana itself draws more finely. A panel
whose queries return nothing is named, and the exit code is 1.
"""
import argparse
import json
import math
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

from tests.bench.plots import import_matplotlib
from tests.support.sources import ROOT

DASHBOARDS = sorted((ROOT / "conf" / "grafana").glob("*.json"))
_STEP_S = 15
_ROW = 8  # Grafana's height units per panel
_UNITS = {"s": "s", "ms": "ms", "bytes": "B", "Bps": "B/s", "cps": "/s", "ops": "/s", "percentunit": "part of 1"}
_VARIABLES = {"$__rate_interval": "1m", "$cluster": ".*", "$broker": ".*", "$group": ".*", "$topic": ".*"}


class Prometheus:
    """The HTTP API for one time range."""

    def __init__(self, url: str, minutes: float) -> None:
        self._url, self.end = url.rstrip("/"), time.time()
        self.begin = self.end - minutes * 60

    def series(self, expression: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Return the labels and the (minutes before the end, value) pairs of each series."""
        for name, value in _VARIABLES.items():
            expression = expression.replace(name, value)
        query = urllib.parse.urlencode({"query": expression, "start": self.begin, "end": self.end, "step": _STEP_S})
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{query}", timeout=30) as answer:
            result = json.load(answer)["data"]["result"]
        return [(one["metric"], [((at - self.end) / 60, float(value)) for at, value in one["values"]
                                 if math.isfinite(float(value))]) for one in result]


def legend(form: str, labels: dict[str, str]) -> str:
    """Return the legend text that Grafana writes for a line."""
    for name, value in labels.items():
        form = form.replace("{{%s}}" % name, value)
    return form


def draw_table(axes, rows: list[dict[str, str]]) -> None:
    """Draw a table with one row per series."""
    axes.axis("off")
    keys = [key for key in (rows[0] if rows else {}) if not key.startswith("__") and key != "job"]
    if keys:
        table = axes.table([[row.get(key, "") for key in keys] for row in rows], colLabels=keys, loc="upper left")
        table.auto_set_font_size(False)
        table.set_fontsize(7)


def draw(axes, panel: dict, prometheus: Prometheus) -> bool:
    """Draw one panel. Return False if its queries returned nothing."""
    axes.set_title(panel["title"], fontsize=8, loc="left")
    series = [(target["legendFormat"], labels, points) for target in panel["targets"]
              for labels, points in prometheus.series(target["expr"]) if points]
    if panel["type"] == "table":
        draw_table(axes, [{**labels, "value": f"{points[-1][1]:g}"} for _form, labels, points in series])
        return bool(series)
    found = [(legend(form, labels), points) for form, labels, points in series]
    if panel["type"] == "stat":
        axes.axis("off")
        text = "\n".join(f"{points[-1][1]:g}  {name}" for name, points in found)
        axes.text(0.02, 0.85, text, fontsize=11, va="top", transform=axes.transAxes)
        return bool(found)
    if panel["type"] == "state-timeline":
        for row, (name, points) in enumerate(found):
            axes.plot([at for at, _ in points], [row] * len(points), "s", markersize=4, label=name)
        axes.set_yticks([])
    else:
        for name, points in found:
            axes.plot(*zip(*points), linewidth=1, label=name)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(_UNITS.get(panel["fieldConfig"]["defaults"]["unit"], ""), fontsize=7)
    axes.set_xlim((prometheus.begin - prometheus.end) / 60, 0)
    axes.tick_params(labelsize=6)
    if found:
        axes.legend(fontsize=5.5, loc="upper left", ncols=2)
    return bool(found)


def picture(matplotlib, dashboard: dict, prometheus: Prometheus, out: Path) -> list[str]:
    """Write one picture and return the titles of the panels without data."""
    from matplotlib import pyplot

    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels) // _ROW
    low = {panel["gridPos"]["y"] // _ROW for panel in panels if panel["type"] in ("stat", "table")} - {
        panel["gridPos"]["y"] // _ROW for panel in panels if panel["type"] not in ("stat", "table")}
    heights = [1 if row in low else 2 for row in range(rows)]
    inches = sum(heights) + 0.5
    figure = pyplot.figure(figsize=(13, inches))
    grid = figure.add_gridspec(rows, 24, height_ratios=heights, left=0.05, right=0.99, bottom=0.3 / inches,
                               top=1 - 0.5 / inches, hspace=0.4, wspace=3)
    figure.suptitle(f"{dashboard['title']}: {dashboard['description']}", fontsize=10, x=0.01, y=1 - 0.1 / inches,
                    ha="left", va="top")
    empty = []
    for panel in panels:
        place = panel["gridPos"]
        axes = figure.add_subplot(grid[place["y"] // _ROW, place["x"]:place["x"] + place["w"]])
        if not draw(axes, panel, prometheus):
            empty.append(panel["title"])
    figure.savefig(out, dpi=75, metadata={"Software": ""})
    pyplot.close(figure)
    return empty


def main(argv: list[str]) -> int:
    """Draw all dashboards."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    arguments = parser.parse_args(argv)
    matplotlib = import_matplotlib()
    matplotlib.use("agg", force=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    prometheus, empty = Prometheus(arguments.url, arguments.minutes), 0
    for file in DASHBOARDS:
        out = arguments.out / f"{file.stem}.png"
        without = picture(matplotlib, json.loads(file.read_text("utf-8")), prometheus, out)
        empty += len(without)
        sys.stdout.write(f"{out}: {out.stat().st_size} bytes; nothing in: {', '.join(without) or '-'}\n")
    return 1 if empty else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
