"""What the suites have run so far: tests/faults/ledger.tsv, a line per run and kind, appended by their `--record`.

    commit  kind  brokers  seed  cycles  acknowledged  failed

`commit` ends with "+" when the tree had changes; `kind` names the fault, or the fuzzer; `cycles` counts faults, or
inputs; `acknowledged` is 0 where nobody counts; `failed` counts lives in which what was promised did not hold.
`python -m tests.faults.ledger` writes the sums into docs/reliability.md.
"""
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from tests.support.sources import ROOT

LEDGER = ROOT / "tests" / "faults" / "ledger.tsv"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- sums: python -m tests.faults.ledger -->", "<!-- end of the sums -->"


@dataclass(frozen=True)
class Entry:
    """A line."""

    commit: str
    kind: str
    brokers: str
    seed: int
    cycles: int
    acknowledged: int
    failed: int


def present_commit() -> str:
    """Of the checkout; "+" behind it when something is not committed."""
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = [line for line in git("status", "--porcelain").splitlines() if not line.endswith(LEDGER.name)]
    return git("rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


def append(entries: Iterable[Entry], ledger: Path = LEDGER) -> None:
    """Add lines at the end; the first ever brings the headings."""
    new = not ledger.exists()
    with open(ledger, "a", encoding="utf-8") as file:
        if new:
            file.write("\t".join(field.name for field in fields(Entry)) + "\n")
        file.writelines("\t".join(map(str, astuple(entry))) + "\n" for entry in entries)


def read(ledger: Path = LEDGER) -> list[Entry]:
    """All lines. ValueError with the line's number for a malformed one."""
    entries = []
    for number, line in enumerate(ledger.read_text("utf-8").splitlines()[1:], 2):
        parts = line.split("\t")
        try:
            entries.append(Entry(*parts[:3], *map(int, parts[3:])))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{ledger}:{number}: {line!r} is no entry: {error}") from None
    return entries


def sums(entries: Iterable[Entry]) -> str:
    """A table: what was done with which brokers, over all commits."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.kind, entry.brokers), []).append(entry)
    rows = ["| kind | brokers | cycles | acknowledged | failed | commits |", "|---|---|---|---|---|---|"]
    for (kind, brokers), group in sorted(groups.items()):
        commits = list(dict.fromkeys(entry.commit for entry in group))
        said = ", ".join(commits) if len(commits) < 4 else f"{commits[0]} to {commits[-1]}"
        cycles, acknowledged, failed = (sum(getattr(entry, name) for entry in group)
                                        for name in ("cycles", "acknowledged", "failed"))
        rows.append(f"| {kind} | {brokers} | {cycles:,} | {acknowledged:,} | {failed} | {said} |")
    return "\n".join(rows)


def with_sums(page: str, entries: Iterable[Entry]) -> str:
    """The page with its table made anew."""
    head, begin, rest = page.partition(BEGIN)
    _old, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the sums: {BEGIN} ... {END}")
    return f"{head}{begin}\n{sums(entries)}\n{end}{tail}"


if __name__ == "__main__":
    PAGE.write_text(with_sums(PAGE.read_text("utf-8"), read()), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {len(read())} entries\n")
