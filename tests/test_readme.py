"""The figures of README.md are those of the pages, which benchmarks write."""
import re

from tests.support.sources import ROOT

README = (ROOT / "README.md").read_text("utf-8")
ROW = re.compile(r"^\| ([^|]+) \| ([^|]*\d[^|]*) \| ([^|]*\d[^|]*) \|", re.MULTILINE)
# each row of README's table -> what the row of performance.md is called
ROWS = {
    "sends acknowledged by a master alone": "Sends acknowledged by a master alone",
    "sends acknowledged by master and slave": "Sends acknowledged by master and slave",
    "a lone send": "A lone send, master and slave",
    "CPU of the broker": "CPU of the broker for a million",
    "a slave catches up": "A slave catches up with a master",
    "start of an empty broker": "Start, empty store",
}


def figures(text):
    """What a row is about -> (rmqha's figure, RocketMQ's)."""
    return {what: (ours.strip(), theirs.strip()) for what, ours, theirs in ROW.findall(text)}


def test_figures_of_the_readme_are_those_of_the_performance_page():
    page = figures((ROOT / "docs" / "performance.md").read_text("utf-8").partition("\n## ")[0])
    shown = figures(README.partition("\n## How fast\n")[2].partition("\n## ")[0])
    assert len(shown) == len(ROWS)
    for begin, name in ROWS.items():
        [ours] = [pair for what, pair in shown.items() if what.startswith(begin)]
        [theirs] = [pair for what, pair in page.items() if what.startswith(name)]
        assert ours == theirs, f"README.md: {begin}: docs/performance.md has {theirs}"
