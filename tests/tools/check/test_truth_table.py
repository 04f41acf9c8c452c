"""The truth table in the document: complete, never OK for what is broken, and what running brokers make of it."""
import pytest

from tests.support.tiers import in_long
from tests.tools.check.truth_table import CASES, DOCUMENT, PAIRS, make, read_table

_GOOD = ("healthy", "one of two name servers", "a receiver beside a healthy slave", "two slaves of one id")
# Quick ones, of each kind: seen by the slave, by the master, by the name server, by nobody.
QUICK = ("healthy, messages come", "never connected, both logs empty", "killed with its host", "refused: its log",
         "a receiver, and the slave follows nobody", "name server dead")
QUICK_JAVA = ("healthy, at rest", "never connected: nobody listens", "killed with its host")


@pytest.fixture(scope="module")
def table():
    return read_table(DOCUMENT.read_text("utf-8"))


def test_table_has_each_case_for_each_pair(table):
    assert list(table) == list(CASES)
    for title, cells in table.items():
        made = [pair for pair, cell in zip(PAIRS, cells, strict=True) if cell != "-"]
        assert made == [pair for pair in PAIRS if pair in CASES[title].only], title


def test_nothing_that_is_broken_is_ok(table):
    for title, cells in table.items():
        if not title.startswith(_GOOD):
            assert not [cell for cell in cells if "; OK 0;" in cell], title
    assert "OK" in table["healthy, messages come"][PAIRS.index("java-java")]


def differing(table, pair, tmp_path, words):
    """Title -> what is said now and what the table says, where that is not the same."""
    rows = make(pair, tmp_path, words)
    assert len(rows) >= len(words)
    return {title: (row.cell(), table[title][PAIRS.index(pair)]) for title, row in rows.items()
            if row.cell() != table[title][PAIRS.index(pair)]}


def test_running_brokers_make_the_rows(table, tmp_path):
    assert differing(table, "rmqha-rmqha", tmp_path, QUICK) == {}


@pytest.mark.java
@in_long
def test_running_brokers_of_49_make_the_rows(table, tmp_path):
    assert differing(table, "java-java", tmp_path, QUICK_JAVA) == {}
