"""The example of docs/pipeline.md runs as it stands there, and its tables name the options that there are."""
import re
from pathlib import Path

from rmqha.pipeline import cluster_source, commit_log_source
from tests.store import support

TEXT = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")


def test_the_example_runs(spark, tmp_path, capsys):
    code, = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    store = tmp_path / "store"
    with support.open_store(store) as running:
        for number in range(40):
            support.put(running, support.message(f"T{number % 2}", KEYS=str(number)))
    exec(compile(code, "docs/pipeline.md", "exec"), {"store": str(store), "work": str(tmp_path)})
    printed = capsys.readouterr().out
    assert "40 messages: " in printed and "byte for byte as they were" in printed


def test_every_option_is_in_the_tables():
    options = {*commit_log_source.OPTIONS, *cluster_source.READ_OPTIONS, *cluster_source.WRITE_OPTIONS}
    missing = [name for name in options if not re.search(rf"\b{name}\b", TEXT)]
    assert sorted(missing) == ["namesrvAddr", "paths"]  # another name of nameServer; what Spark makes of .load([...])
