"""The ledger of the suites' runs: tests/faults/ledger.tsv, a line per run and kind, appended by their `--record`.

    commit  kind  brokers  seed  cycles  acknowledged  failed

`commit` ends with "+" when the run's code is not all in that commit; `kind` names the fault, or the fuzzer; `cycles`
counts faults, or inputs; `acknowledged` is 0 where it is not counted; `failed` counts the lives in which a promise was
broken.

A line counts as long as the code that it tested is still the present code: a change of code below rmqha/store/,
rmqha/remoting/ or rmqha/native/ voids the older lines. Comments, docstrings and messages (strings of two words or more)
are not code, except a docstring's line "Java: ...", which one error message quotes. A line whose tree had uncommitted
changes is void, too. Void lines stay in the file.
`python -m tests.faults.ledger` writes the sums of those that count into docs/reliability.md.
"""
import ast
import re
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
# No part of a running server: it builds the archives of a release, and the compiled parts from their sources.
NOT_COVERED = ":(exclude)rmqha/native/build_backend.py"
_RUN = ("rmqha", "tests")


@dataclass(frozen=True)
class Entry:
    """A line of the ledger."""

    commit: str
    kind: str
    brokers: str
    seed: int
    cycles: int
    acknowledged: int
    failed: int


class NoHistoryError(Exception):
    """No git history is available that says what has changed since a commit."""


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


_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_C_TEXT = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
_C_PART = re.compile(rf"({_C_TEXT})|(?:{_C_COMMENT.pattern}|\s)+", re.DOTALL)  # a text, or a gap
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_QUOTED_LINE = re.compile(r"^ *Java: .*$", re.MULTILINE)


def _c_part(part: re.Match[str]) -> str:
    return part[1] or ("\n" if "\n" in _C_COMMENT.sub("", part[0]) else " ")  # lines matter to the preprocessor


_TWO_WORDS = re.compile(r"[A-Za-z]{2,}.* .*[A-Za-z]{2,}", re.DOTALL)  # of a text for people


class _WithoutMessages(ast.NodeTransformer):
    """Replaces each message for people, a string of two words or more, by the values that it shows."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        is_message = isinstance(node.value, str) and _TWO_WORDS.search(node.value)
        return ast.Constant("<message>") if is_message else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        parts = [part.value if isinstance(part, ast.Constant) else "value" for part in node.values]
        if not _TWO_WORDS.search("".join(map(str, parts))):
            return node
        values = (ast.dump(part) for part in node.values if isinstance(part, ast.FormattedValue))
        return ast.List([ast.Constant(value) for value in sorted(values)], ast.Load())


def code_of(name: str, text: str) -> str:
    """Return the code of a source file: C without its comments, Python without its comments, docstrings and messages.
    For any other file, and for Python that can't be parsed, return its text."""
    if name.endswith((".c", ".h")):
        return _C_PART.sub(_c_part, text).strip()
    if not name.endswith(".py"):
        return text
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and (docstring := ast.get_docstring(node, clean=False)) is not None:
            node.body[:1] = [ast.Expr(ast.Name(line.strip())) for line in _QUOTED_LINE.findall(docstring)]
    return ast.dump(_WithoutMessages().visit(tree))


def present_commit(root: Path = ROOT) -> str:
    """Return the checkout's commit, with a "+" when something below `_RUN`, except the ledger, is not committed."""
    changed = [line for line in _asked(root, "status", "--porcelain", "-uall", "--", *_RUN).splitlines()
               if not line.endswith(LEDGER.name)]
    return _asked(root, "rev-parse", "--short=7", "HEAD") + ("+" if changed else "")


class History:
    """The commits whose covered code is the same as in the files of a checkout."""

    def __init__(self, root: Path = ROOT):
        self._root = root
        if _asked(root, "rev-parse", "--show-toplevel") != str(root.resolve()):
            raise NoHistoryError(f"{root} is not the top of a checkout")
        if _asked(root, "rev-parse", "--is-shallow-repository") == "true":
            raise NoHistoryError("the checkout is shallow: it has no old commits")
        # git diff ignores files that are not tracked.
        self._has_new_files = bool(_asked(root, "ls-files", "--others", "--exclude-standard", "--", *COVERED))
        self._known: dict[str, bool] = {}  # commit -> whether it has

    def is_valid(self, entry: "Entry") -> bool:
        """Return whether a line counts: no covered code differs between its commit and the files.

        The code of a tree with changes is unknown, and so is a commit that is not in this history: such lines are void.
        """
        commit = entry.commit
        if self._has_new_files or commit.endswith("+"):
            return False
        if commit not in self._known:
            self._known[commit] = self._has_present_code(commit)
        return self._known[commit]

    def _has_present_code(self, commit: str) -> bool:
        changed = _git(self._root, "diff", "--name-only", "--no-renames", "-z", commit, "--", *COVERED, NOT_COVERED)
        return changed.returncode == 0 and all(self._is_same_code(commit, name)
                                               for name in changed.stdout.split("\0") if name)

    def _is_same_code(self, commit: str, name: str) -> bool:
        """False as well for a file that only one of the two has."""
        old, path = _git(self._root, "show", f"{commit}:{name}"), self._root / name
        return (old.returncode == 0 and path.is_file()
                and code_of(name, old.stdout) == code_of(name, path.read_text("utf-8")))


def append(entries: Iterable[Entry], ledger: Path = LEDGER) -> None:
    """Append lines; write the headings first if the file is new."""
    new = not ledger.exists()
    with open(ledger, "a", encoding="utf-8") as file:
        if new:
            file.write("\t".join(field.name for field in fields(Entry)) + "\n")
        file.writelines("\t".join(map(str, astuple(entry))) + "\n" for entry in entries)


def read(ledger: Path = LEDGER) -> list[Entry]:
    """Return all lines; raise ValueError with the number of a malformed one."""
    entries = []
    for number, line in enumerate(ledger.read_text("utf-8").splitlines()[1:], 2):
        parts = line.split("\t")
        try:
            entries.append(Entry(*parts[:3], *map(int, parts[3:])))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{ledger}:{number}: {line!r} is not a valid entry: {error}") from None
    return entries


def sums(entries: Iterable[Entry], voided: int = 0) -> str:
    """Return a table of the lines that count, by kind and brokers, over all commits, and the number of void lines."""
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
        rows += ["", f"Of the ledger's runs, {voided} are void: code below {folders} has changed since, or they ran "
                     "code that was never committed."]
    return "\n".join(rows)


def with_sums(page: str, entries: Iterable[Entry], history: History) -> str:
    """Return the page with its table made from the lines that count."""
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
    """Write the page; return 1, and leave the page as it is, if there is no history."""
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
