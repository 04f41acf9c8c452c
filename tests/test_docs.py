"""The pages say what is there: their links lead somewhere, and no table has a row twice."""
import re

from tests.support.sources import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
# What a row is known by, where its first cell is code (a command, a key): else the whole row.
CODE = re.compile(r"\| `[^`]+` ")


def test_links_lead_somewhere():
    wrong = [f"{page.relative_to(ROOT)}: {target}" for page in PAGES
             for target in LINK.findall(page.read_text("utf-8")) if not (page.parent / target).exists()]
    assert not wrong, "\n".join(wrong)


def test_no_table_has_a_row_twice():
    wrong = []
    for page in PAGES:
        for table in TABLE.findall(page.read_text("utf-8")):
            keys = [match.group() if (match := CODE.match(row)) else row for row in table.splitlines()[2:]]
            wrong += [f"{page.relative_to(ROOT)}: {key}" for key in sorted(set(keys)) if keys.count(key) > 1]
    assert not wrong, "\n".join(wrong)
