"""The table of known faults in docs/replication.md names tests that are there."""
import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_HEADING, _COLUMNS = "## Known faults", 4


def table() -> dict[str, list[str]]:
    """Fault -> its tests, "file::name"."""
    text = (ROOT / "docs/replication.md").read_text("utf-8")
    section = text[text.index(f"{_HEADING}\n"):].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")][2:]
    assert all(len(row) == _COLUMNS for row in rows)
    return {row[0].strip(): re.findall(r"`([^`]+)`", row[-1]) for row in rows}


FAULTS = table()


def names_in(file: Path) -> set[str]:
    """Names of the test functions of a file."""
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_faults_that_people_met_are_all_listed():
    issues = set(re.findall(r"#(\d+)", " ".join(FAULTS)))
    assert issues >= {"1155", "3015", "3388", "3161", "1082", "1118", "1535", "1244", "8875", "2476", "3484", "2706",
                      "3129", "7016", "1094", "2259", "3358", "8539", "9403", "9455"}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_known_fault_has_tests_that_exist(fault):
    assert FAULTS[fault], "no test is named"
    for name in FAULTS[fault]:
        file, _, function = name.partition("::")
        assert function in names_in(ROOT / file), name
