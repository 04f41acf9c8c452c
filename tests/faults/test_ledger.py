"""The ledger of what the suites have run, and its sums in docs/reliability.md."""
import re

import pytest

from tests.faults import ledger
from tests.faults.ledger import Entry

KILLS = Entry("1234567", "kill", "rmqha-rmqha", 7, 500, 30_000, 0)


def test_what_is_appended_is_read_back(tmp_path):
    file = tmp_path / "ledger.tsv"
    ledger.append([KILLS], file)
    ledger.append([KILLS, Entry("89abcde+", "fuzz remoting", "rmqha", 1, 40_000, 0, 2)], file)
    assert ledger.read(file) == [KILLS, KILLS, Entry("89abcde+", "fuzz remoting", "rmqha", 1, 40_000, 0, 2)]
    assert file.read_text().startswith("commit\tkind\tbrokers\tseed\tcycles\tacknowledged\tfailed\n")


@pytest.mark.parametrize("line", ["", "a\tb", "a\tkill\tx\t1\t2\t3\tnone", "a\tkill\tx\t1\t2\t3\t0\t9"])
def test_line_that_is_no_entry_is_named(tmp_path, line):
    file = tmp_path / "ledger.tsv"
    ledger.append([KILLS], file)
    with open(file, "a") as stream:
        stream.write(line + "\n")
    with pytest.raises(ValueError, match=re.escape(f"{file}:3: {line!r} is no entry")):
        ledger.read(file)


def test_sums_are_by_kind_and_brokers():
    others = [KILLS, Entry("7654321", "kill", "rmqha-rmqha", 8, 100, 1, 1),
              Entry("7654321", "link", "java-rmqha", 8, 5, 6, 0)]
    assert ledger.sums(others).splitlines()[2:] == [
        "| kill | rmqha-rmqha | 600 | 30,001 | 1 | 1234567, 7654321 |", "| link | java-rmqha | 5 | 6 | 0 | 7654321 |"]


def test_the_page_has_the_sums_of_the_ledger():
    page = ledger.PAGE.read_text("utf-8")
    assert page == ledger.with_sums(page, ledger.read()), "run: python -m tests.faults.ledger"
