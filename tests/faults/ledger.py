"""What the suites have run so far: tests/faults/ledger.tsv, a line per run and kind, appended by their `--record`.

    commit  kind  brokers  seed  cycles  acknowledged  failed

`commit` ends with "+" when code was run that is not in it; `kind` names the fault, or the fuzzer; `cycles` counts
faults, or inputs; `acknowledged` is 0 where nobody counts; `failed` counts lives in which what was promised did not
hold.

A line counts as long as what it was about is what there is: a change of anything below rmqha/store/, rmqha/remoting/ or
rmqha/native/ voids the lines that are older. So is a line void whose tree had changes that are in no commit. They stay
in the file.
`python -m tests.faults.ledger` writes the sums of those that count into docs/reliability.md.
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
COVERED = ("rmqha/store", "rmqha/remoting", "rmqha/native")  # a change here voids what was run before
_RUN = ("rmqha", "tests")


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


class NoHistoryError(Exception):
    """There is no git history here that says what has changed since a commit."""


def _git(root: Path, *words: str) -> subprocess.CompletedProcess:
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise NoHistoryError("git is not installed") from None


def _asked(root: Path, *words: str) -> str:
    done = _git(root, *words)
    if done.returncode:
        raise NoHistoryError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


def present_commit(root: Path = ROOT) -> str:
    """Of the checkout; "+" behind it when something below `_RUN`, but for the ledger, is not committed."""
    changed = [line for line in _asked(root, "status", "--porcelain", "-uall", "--", *_RUN).splitlines()
               if not line.endswith(LEDGER.name)]
    return _asked(root, "rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


class History:
    """Which commits have what is covered as the files of a checkout have it now."""

    def __init__(self, root: Path = ROOT):
        self._root = root
        if _asked(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
            raise NoHistoryError(f"{root} is not the top of a checkout")
        if _asked(root, "rev-parse", "--is-shallow-repository") == "true":
            raise NoHistoryError("the checkout is shallow: it has no old commits")
        # git's diff does not look at files that it does not know
        self._has_new_files = bool(_asked(root, "ls-files", "--others", "--exclude-standard", "--", *COVERED))
        self._known: dict[str, bool] = {}  # commit -> whether it has

    def is_valid(self, entry: "Entry") -> bool:
        """Whether a line counts: nothing that is covered differs between its commit and the files. What a tree with
        changes had is not known, and neither is a commit that is not in this history: such lines are void."""
        commit = entry.commit
        if self._has_new_files or commit.endswith("+"):
            return False
        if commit not in self._known:
            self._known[commit] = _git(self._root, "diff", "--quiet", commit, "--", *COVERED).returncode == 0
        return self._known[commit]


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


def sums(entries: Iterable[Entry], voided: int = 0) -> str:
    """A table of lines that count: what was done with which brokers, over all commits; and how many are void."""
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
    if not groups:
        rows = ["No campaign has run on this version yet."]
    if voided:
        folders = ", ".join(f"`{folder}/`" for folder in COVERED[:-1]) + f" or `{COVERED[-1]}/`"
        rows += ["", f"Of the ledger's runs {voided} are void: code below {folders} has changed since, or they ran "
                     "code that is in no commit."]
    return "\n".join(rows)


def with_sums(page: str, entries: Iterable[Entry], history: History) -> str:
    """The page with its table made from the lines that count."""
    head, begin, rest = page.partition(BEGIN)
    _old, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no place for the sums: {BEGIN} ... {END}")
    valid, voided = [], 0
    for entry in entries:
        if history.is_valid(entry):
            valid.append(entry)
        else:
            voided += 1
    return f"{head}{begin}\n{sums(valid, voided)}\n{end}{tail}"


def main() -> int:
    """Write the page; 1, and the page stays as it is, where there is no history."""
    try:
        history = History()
    except NoHistoryError as failure:
        sys.stderr.write(f"{PAGE.name} is left as it is: {failure}\n")
        return 1
    entries = read()
    PAGE.write_text(with_sums(PAGE.read_text("utf-8"), entries, history), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}: {sum(map(history.is_valid, entries))} of {len(entries)} entries count\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
