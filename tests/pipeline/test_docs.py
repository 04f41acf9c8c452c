"""The tour of docs/pipeline.md runs, and the tables there name the options that there are."""
import re
from pathlib import Path
from runpy import run_path

from rmqha.pipeline.cluster import cluster_source
from rmqha.pipeline.log import commit_log_source
from tests.store import support

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text("utf-8") for name in ("pipeline.md", "pipeline-live.md"))


def test_the_tour_runs(spark, tmp_path, capsys, monkeypatch):
    tour = run_path(str(DOCS / "pipeline_tour.py"))
    store = tmp_path / "store"
    with support.open_store(store) as running:
        for number in range(40):
            support.put(running, support.message(f"T{number % 2}", KEYS=str(number)))
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # it is the session of all tests
    tour["main"](str(store), str(tmp_path))
    printed = capsys.readouterr().out
    assert "40 messages: " in printed and "byte for byte as they were" in printed and "wrong CRC: 0" in printed


def test_every_option_is_in_the_tables():
    options = {*commit_log_source.OPTIONS, *cluster_source.READ_OPTIONS, *cluster_source.WRITE_OPTIONS}
    missing = [name for name in options if not re.search(rf"\b{name}\b", TEXT)]
    assert missing == ["paths"]  # what Spark makes of .load([...])
