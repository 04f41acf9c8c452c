"""The ledger of the suites' runs, and its sums in docs/reliability.md."""
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from tests.faults import ledger
from tests.faults.ledger import Entry
from tests.support.tiers import of_sources

KILLS = Entry("1234567", "kill", "rmqha-rmqha", 7, 500, 30_000, 0)


def test_appended_lines_are_read_back(tmp_path):
    file = tmp_path / "ledger.tsv"
    ledger.append([KILLS], file)
    ledger.append([KILLS, Entry("89abcde+", "fuzz remoting", "rmqha", 1, 40_000, 0, 2)], file)
    assert ledger.read(file) == [KILLS, KILLS, Entry("89abcde+", "fuzz remoting", "rmqha", 1, 40_000, 0, 2)]
    assert file.read_text().startswith("commit\tkind\tbrokers\tseed\tcycles\tacknowledged\tfailed\n")


@pytest.mark.parametrize("line", ["", "a\tb", "a\tkill\tx\t1\t2\t3\tnone", "a\tkill\tx\t1\t2\t3\t0\t9"])
def test_invalid_line_is_named(tmp_path, line):
    file = tmp_path / "ledger.tsv"
    ledger.append([KILLS], file)
    with open(file, "a") as stream:
        stream.write(line + "\n")
    with pytest.raises(ValueError, match=re.escape(f"{file}:3: {line!r} is not a valid entry")):
        ledger.read(file)


def test_sums_are_by_kind_and_brokers():
    others = [KILLS, Entry("7654321", "kill", "rmqha-rmqha", 8, 100, 1, 1),
              Entry("7654321", "link", "java-rmqha", 8, 5, 6, 0)]
    assert ledger.sums(others).splitlines()[2:] == [
        "| kill | rmqha-rmqha | 600 | 30,001 | 1 | 1234567, 7654321 |", "| link | java-rmqha | 5 | 6 | 0 | 7654321 |"]


def test_page_says_that_no_run_counts():
    text = ledger.sums([], 3)
    assert text.startswith("No campaign has run on this version yet.")
    assert "3 are void" in text and "|" not in text


class Checkout:
    """A git repository with something that is covered, and something that is not."""

    def __init__(self, root):
        self.root = root
        self.git("init", "-q")
        self.write("rmqha/store/one.py", "1")
        self.write("rmqha/remoting/two.py", "2")
        self.first = self.commit()

    def git(self, *words):
        """Return the output of a git command."""
        names = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(["git", *names, *words], cwd=self.root, capture_output=True, text=True,
                              check=True).stdout.strip()

    def write(self, path, text):
        """Write a file, without committing it."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self):
        """Commit all files; return the name of the commit."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "next")
        return ledger.present_commit(self.root)

    def rewritten(self, name, old, new):
        """Commit the old text, write the new one, and return the commit."""
        self.write(name, old)
        before = self.commit()
        self.write(name, new)
        return before

    def counts(self, commit):
        """Return whether a run at a commit counts now."""
        return ledger.History(self.root).is_valid(replace(KILLS, commit=commit))


@pytest.fixture
def checkout(tmp_path):
    """A new one."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    return Checkout(tmp_path)


@pytest.mark.parametrize("path", ["rmqha/store/one.py", "rmqha/remoting/two.py", "rmqha/store/ha/new.py"])
def test_a_change_of_store_or_remoting_voids_older_runs(checkout, path):
    checkout.write(path, "another")
    assert not checkout.counts(checkout.first), "in the files already"
    second = checkout.commit()
    assert not checkout.counts(checkout.first)
    assert checkout.counts(second)


@pytest.mark.parametrize("name, old, new", [
    ("store/one.py", "def f():\n    return 1\n", '"""Room."""\ndef f():\n    """One."""\n    return 1  # is one\n'),
    ("store/one.py", 'class A:\n    """Old.\n\n    Java: a.B\n    """\n', 'class A:\n    """Java: a.B"""\n'),
    ("native/one.c", "int one = 1; /* one */\n", "/* a\n number */ int one  = 1; // of them\n"),
    ("store/one.py", 'log("no room for %s", x)\n', 'log("disk full: cannot store %s", x)\n'),
    ("store/one.py", 'f(f"{x} of {y} came")\n', 'f(f"received {x} of {y}")\n'),
    ("store/one.py", 'log("%s: can not go", x)\n', 'log("folder %s stays", x)\n'),
])
def test_reworded_texts_void_nothing(checkout, name, old, new):
    before = checkout.rewritten(f"rmqha/{name}", old, new)
    assert checkout.counts(before)
    checkout.commit()
    assert checkout.counts(before) and not checkout.counts(checkout.first)


@pytest.mark.parametrize("name, old, new", [
    ("store/one.py", "def f():\n    return 1\n", "def f():\n    return 1.0\n"),
    ("store/one.py", 'x = "# a"\n', 'x = "# b"\n'),
    ("store/one.py", 'x = f"{a}.tmp"\n', 'x = f"{a}.bak"\n'),
    ("store/one.py", 'f(f"{x} of {y} came")\n', 'f(f"received {x} of {z}")\n'),
    ("store/one.py", "def f(): pass\n", "def f(): pass pass\n"),
    ("store/one.py", 'class A:\n    """Java: a.B"""\n', 'class A:\n    """Java: a.C"""\n'),
    ("native/one.c", 'char *one = "/* 1 */";\n', 'char *one = "/* 2 */";\n'),
    ("native/one.c", "char one = '\"'; /* 1 */ int two;\n", "char one = '\"'; /* 1 int two; */\n"),
    ("native/one.c", "#define ONE 1\nint two;\n", "#define ONE 1 int two;\n"),
    ("native/one.txt", "# 1\n", "# 2\n"),
])
def test_changed_code_voids_runs(checkout, name, old, new):
    assert not checkout.counts(checkout.rewritten(f"rmqha/{name}", old, new))


def test_a_missing_file_voids_runs(checkout):
    (checkout.root / "rmqha" / "store" / "one.py").unlink()
    assert not checkout.counts(checkout.first)


def test_other_changes_void_nothing(checkout):
    checkout.write("tests/faults/ledger.tsv", "a line")
    checkout.write("rmqha/tools/three.py", "3")
    assert checkout.counts(checkout.first)
    second = checkout.commit()
    assert checkout.counts(checkout.first) and checkout.counts(second)


def test_runs_of_unknown_code_are_void(checkout):
    assert not checkout.counts(checkout.first + "+")
    assert not checkout.counts("1234567")


def test_a_commit_is_marked_when_its_tree_has_changes(checkout):
    checkout.write("tests/faults/ledger.tsv", "a line")
    checkout.write("docs/page.md", "words")
    assert ledger.present_commit(checkout.root) == checkout.first
    checkout.write("rmqha/tools/three.py", "3")
    assert ledger.present_commit(checkout.root) == checkout.first + "+"


def test_an_incomplete_history_is_an_error(checkout, tmp_path_factory):
    with pytest.raises(ledger.NoHistoryError, match="not the top of a checkout"):
        ledger.History(checkout.root / "rmqha")
    folder = tmp_path_factory.mktemp("other")
    with pytest.raises(ledger.NoHistoryError, match="git"):
        ledger.History(folder)
    checkout.write("docs/page.md", "words")
    checkout.commit()
    checkout.git("clone", "-q", "--depth", "1", f"file://{checkout.root}", str(folder / "shallow"))
    with pytest.raises(ledger.NoHistoryError, match="shallow"):
        ledger.History(folder / "shallow")


@of_sources
def test_the_page_has_the_sums_of_the_ledger():
    try:
        history = ledger.History()
    except ledger.NoHistoryError as reason:
        pytest.skip(f"it can't be told which runs count: {reason}")
    page = ledger.PAGE.read_text("utf-8")
    assert page == ledger.with_sums(page, ledger.read(), history), "run: python -m tests.faults.ledger"
