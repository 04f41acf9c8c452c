"""Results of benchmarks: written and read again, and made into tables and pictures."""
import argparse
import importlib.util
import json
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import plots
from tests.bench import plots as page
from tests.bench.results import Results, ResultsError, Row, command_line, distribution, parse, read
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "performance.md"
# The page's source; the file does not exist before the first run.
RESULTS = ROOT / "docs" / "performance" / "results.jsonl"
NUMBER = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 53), 1 << 53)
CURVE = st.lists(st.tuples(NUMBER, NUMBER), min_size=1, max_size=4)
VALUES = st.lists(NUMBER, min_size=1, max_size=4) | st.lists(CURVE, min_size=1, max_size=3)
BLOCK = "<!-- table: {0} -->\nold\n<!-- end -->\n"


@pytest.fixture
def sample(tmp_path):
    """A file with a few rows of every kind."""
    file = tmp_path / "sample.jsonl"

    def results(benchmark: str) -> Results:
        return Results(benchmark, argparse.Namespace(json=str(file), folder="somewhere", rounds=3))
    noted = results("send")
    for threads in (1, 16):
        case = {"role": "SYNC_MASTER", "size": 1024, "threads": threads}
        for kind, factor in (("java", 1), ("rmqha", 2)):
            noted.row(kind, "rate", "msg/s", [1000 * factor, 1100 * factor, 900 * factor], **case)
            noted.row(kind, "latency", "ms", [distribution([n / factor for n in range(1, 201)])] * 3, **case)
    noted = results("ha")
    for kind, rate in (("java", 200.0), ("rmqha", 300.0)):
        noted.row(kind, "catchup", "MB/s", [rate], gib=1)
        noted.row(kind, "held by the slave", "MB", [[(0.0, 1.0), (0.1, 50.0)]], gib=1)
    noted = results("scale")
    for queues in (800, 8000):
        noted.row("rmqha", "clean", "s", [1.5], queues=queues)
        noted.row("java", "clean", "s", [3.0], queues=queues)
    results("put").row("rmqha", "rate", "msg/s", [50_000], size=128, way="with dispatch")
    results("startup").row("rmqha", "start", "s", [0.8], store="empty")
    results("machine").row("machine", "loopback", "MB/s", [4000.0])
    return file


@given(VALUES, st.dictionaries(st.text(), st.text() | NUMBER, max_size=3), st.text(), st.text())
def test_recorded_rows_are_read_again(tmp_path_factory, values, case, what, unit):
    file = tmp_path_factory.mktemp("results") / "x.jsonl"
    noted = Results("send", argparse.Namespace(json=str(file), count=7, folder="/somewhere"))
    noted.row("rmqha", what, unit, values, **{f"_{name}": value for name, value in case.items()})
    (row,) = read([file])
    assert (row.kind, row.what, row.unit) == ("rmqha", what, unit)
    assert row.case == {f"_{name}": value for name, value in case.items()}
    assert list(row.values) == [tuple(map(tuple, one)) if isinstance(one, list) else one for one in values]
    assert row.run.benchmark == "send" and row.run.arguments == {"count": 7}
    assert {"date", "commit", "Python", "kernel", "CPU", "cores", "RocketMQ"} <= row.run.machine.keys()


def test_nothing_is_recorded_without_a_file(tmp_path):
    Results("send", argparse.Namespace(json=None)).row("rmqha", "rate", "msg/s", [1.0])
    assert list(tmp_path.iterdir()) == []


def test_command_line_leaves_out_folders_of_one_machine():
    assert command_line("producer", ["--git", "/x/y.git", "--json=/a", "--folder", "/b", "--rounds", "2"]) \
        == "python -m tests.bench.producer --git REPOSITORY --rounds 2"


RUN = {"run": "a", "benchmark": "send", "command": "c", "arguments": {}, "machine": {}}
ROW = {"of": "a", "kind": "rmqha", "what": "rate", "unit": "", "case": {}, "values": [1]}


@pytest.mark.parametrize("line, reason", [
    (b"{", "Expecting"), (b"[]", "not an object"), (b"\xff", "decode"), (b"[" * 100_000, ""),
    (json.dumps({**ROW, "of": "b"}).encode(), "no run 'b'"), (json.dumps({**ROW, "values": []}).encode(), "no round"),
    (json.dumps({**ROW, "values": [1, [[1, 2]]]}).encode(), "neither a number"),
    (json.dumps({**ROW, "values": [[[1]]]}).encode(), "neither a number"),
    (json.dumps({**ROW, "values": [True]}).encode(), "neither a number"),
    (b'{"of": "a", "kind": "k", "what": "w", "unit": "", "case": {}, "values": [NaN]}', "neither a number"),
    (json.dumps({**ROW, "case": {"x": None}}).encode(), "'case'"),
    (json.dumps({"of": "a"}).encode(), "'case' is missing"),
    (json.dumps({**RUN, "machine": 1}).encode(), "'machine' is not an object"),
    (json.dumps({**RUN, "machine": {"usable cores": "x"}}).encode(), "not an integer")])
def test_invalid_line_is_named_in_the_error(line, reason):
    with pytest.raises(ResultsError, match=r"^here\.jsonl:3: .*" + re.escape(reason)):
        parse("here.jsonl", [json.dumps(RUN).encode(), b"", line])


@given(st.binary() | st.recursive(st.none() | st.booleans() | NUMBER | st.text(), lambda inner: st.lists(inner)
       | st.dictionaries(st.sampled_from([*RUN, *ROW]), inner)).map(lambda value: json.dumps(value).encode()))
def test_any_line_is_read_or_named_in_an_error(line):
    try:
        rows = parse("here", [json.dumps(RUN).encode(), line])
    except ResultsError as error:
        assert str(error).startswith("here:2: ")
    else:
        assert all(isinstance(row, Row) for row in rows)


def test_plots_name_an_invalid_line(tmp_path):
    file = tmp_path / "wrong.jsonl"
    file.write_text("nonsense\n")
    with pytest.raises(SystemExit, match=r"wrong\.jsonl:1: "):
        plots.main([str(file), "--no-pictures", "--page", str(tmp_path / "page.md")])


def test_distribution_leaves_out_shares_with_too_few_values():
    assert distribution(range(100))[-2:] == [(0.99, 99), (1.0, 99)]
    assert [share for share, _y in distribution([3, 1, 2])] == [0.01, 0.05, 0.1, 0.25, 0.5, 1.0]
    assert distribution([3, 1, 2])[-1] == (1.0, 3)


def test_tables_show_figures_and_ratios(sample):
    rows = read([sample])
    text = page.written("".join(BLOCK.format(name) for name in page.TABLES), rows)
    assert "old" not in text
    for line in ("| rate, SYNC_MASTER, 1,024 B, 16 threads | 2,000 msg/s (1,800 to 2,200) | 1,000 msg/s (900 to 1,100) "
                 "| 2.00 |",
                 # less is better: rmqha takes half as long
                 "| start after a clean stop, 8,000 queues | 1.5 s | 3 s | 2.00 |",
                 "| Puts into the bare store, 128 B | 50,000 msg/s | no such tool | - "
                 "| `python -m tests.bench.put` |",
                 "| SYNC_MASTER, 1,024 B, 1 thread | rmqha | 50.5 ms | 90.5 ms | 99.5 ms | too few | 100 ms |",
                 "| loopback | 4,000 MB/s |"):
        assert line in text, line
    assert text == page.written(text, rows)


def test_last_run_of_a_case_counts_and_kinds_of_two_runs_are_not_mixed(sample):
    again = Results("send", argparse.Namespace(json=str(sample)))
    again.row("rmqha", "rate", "msg/s", [5000], role="SYNC_MASTER", size=1024, threads=16)
    table = page.figures(read([sample]), "send")
    assert "| rate, SYNC_MASTER, 1,024 B, 16 threads | 5,000 msg/s | not measured yet | - |" in table


def test_one_core_is_shown_beside_all_cores(tmp_path):
    lines = []
    for name, cores, value in (("a", 1, 100), ("b", 2, 150)):
        lines.append({**RUN, "run": name, "machine": {"usable cores": cores}})
        lines.append({**ROW, "of": name, "unit": "msg/s", "case": {"threads": 4}, "values": [value]})
    rows = parse("x", [json.dumps(line).encode() for line in lines])
    assert "| send: rate, 4 threads | rmqha | 100 msg/s | 150 msg/s | 1.50 |" in page.cores_table(rows)
    assert "150 msg/s" in page.figures(rows, "send") and "100 msg/s" not in page.figures(rows, "send")
    assert page.commands(rows) == "```bash\ntaskset -c 0 c\nc\n```\n"
    assert page.cores_table(rows[:1]) == "not measured yet\n"


def test_page_has_each_table_with_the_values_of_its_results():
    text = PAGE.read_text("utf-8")
    assert page.blocks(text, "table") == set(page.TABLES) - {"readme"}
    assert page.written(text, read([RESULTS] if RESULTS.exists() else [])) == text


def test_plots_without_matplotlib_say_how_to_install_it(sample, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="pip install '\\.\\[plots\\]'"):
        plots.main([str(sample), "--page", str(tmp_path / "page.md"), "--out", str(tmp_path)])
    assert list(tmp_path.glob("*.svg")) == []


def test_pictures_are_reproducible_and_small(sample, tmp_path):
    if importlib.util.find_spec("matplotlib") is None:
        pytest.skip("matplotlib is missing (extra `plots`)")
    made = []
    for name in ("one", "two"):
        file = tmp_path / f"{name}.md"
        file.write_text(PAGE.read_text("utf-8"))
        plots.main([str(sample), "--page", str(file), "--out", str(tmp_path / name)])
        made.append({svg.name: svg.read_bytes() for svg in (tmp_path / name).iterdir()})
        assert all(f"({name}/{svg})" in file.read_text("utf-8") for svg in made[-1])
    assert made[0] == made[1] and len(made[0]) == 7
    assert all(len(data) < 60_000 and b"<text" in data for data in made[0].values())


def test_measured_servers_are_not_forked_from_a_warm_process():
    """A forked server starts in a quarter of the time, and shares memory with its parent."""
    script = ("import sys; {}; from tests.support import warm; "
              "print(warm.can_be_warm([sys.executable, '-m', 'rmqha.broker.broker_startup'], {{}}))")
    said = [subprocess.run([sys.executable, "-c", script.format(first)], cwd=ROOT, env={}, capture_output=True,
                           text=True, timeout=600, check=True).stdout.strip()
            for first in ("pass", "import tests.bench.startup")]
    assert said == ["True", "False"]
