"""The pages say what is there: links, files, modules, commands, figures, and the tests of known faults exist."""
import ast
import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from rmqha.store import allocate_mapped_file_service
from rmqha.store.reput_message_service import _GATHER_MS, _SLAVE_GATHER_MS
from rmqha.tools.rmqha_command import GROUPS, PIPELINE
from tests import test_tidy
from tests.bench import plots
from tests.support.guide import loaded
from tests.support.sources import ROOT, lines, modules

# The pages say what is there: links, files, modules and commands exist, and no table has a row twice.

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")
ANCHOR = re.compile(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
# What a row is known by, where its first cell is code (a command, a key): else the whole row.
CODE = re.compile(r"\| `[^`]+` ")
FILE = re.compile(r"`([\w./*-]+/[\w.*-]+\.(?:py|c|h|md|tsv))`")
MODULE = re.compile(r"python -m (tests\.[\w.]+|rmqha\.[\w.]+)")
PROGRAM = re.compile(r"(?<!venv/)(?<!/opt/rmqha/)\bbin/([a-z-]+)")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"`(?:bin/)?rmqha ([a-z][^`]*)`|^    bin/rmqha ([a-z].*)$", re.MULTILINE)


def text_of(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def sub_commands() -> dict[str, set[str]]:
    known = {command.name: set(getattr(loaded(command), "commands", ())) for command in GROUPS if command != PIPELINE}
    known[PIPELINE.name] = set(re.findall(r'@pipeline_group\.command\("(\w+)"',
                                          text_of("rmqha/pipeline/pipeline_command.py")))
    return known


def unknown_commands(text: str, known: dict[str, set[str]]) -> list[str]:
    """Return the commands that `rmqha` lacks: of "ha status, ha receive, check ha, doctor", or "store dump, verify"."""
    unknown, group = [], ""
    for part in text.split(","):
        words = part.split()
        if words and words[0] in known:
            group, words = words[0], words[1:]
        if not group or (known[group] and words and re.fullmatch("[a-z]+", words[0]) and words[0] not in known[group]):
            unknown.append(part.strip())
    return unknown


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name):
    wrong = [target for target in LINK.findall(text_of(name)) if not (ROOT / name).parent.joinpath(target).exists()]
    assert not wrong


def anchors(text: str) -> set[str]:
    """The names that a browser finds the headings of a page by, as Markdown makes them."""
    headings = HEADING.findall(FENCED.sub("", text))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("name", NAMES)
def test_anchors_lead_to_headings(name):
    page = ROOT / name
    wrong = [f"{target}#{anchor}" for target, anchor in ANCHOR.findall(text_of(name))
             if anchor not in anchors((page.parent / target if target else page).read_text("utf-8"))]
    assert not wrong


def test_an_anchor_without_a_heading_is_found():
    assert anchors("# `check ha`\n```\n# a comment\n```\n## What it's for\n") == {"check-ha", "what-its-for"}


@pytest.mark.parametrize("name", NAMES)
def test_no_table_has_a_row_twice(name):
    for table in TABLE.findall(text_of(name)):
        keys = [match.group() if (match := CODE.match(row)) else row for row in table.splitlines()[2:]]
        assert not [key for key in sorted(set(keys)) if keys.count(key) > 1]


@pytest.mark.parametrize("name", NAMES)
def test_files_exist(name):
    wrong = [path for path in FILE.findall(text_of(name))
             if not any(any(ROOT.glob(f"{folder}{path}")) for folder in ("", "rmqha/"))]
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_commands_exist(name):
    text, known = text_of(name), sub_commands()
    wrong = [module for module in MODULE.findall(text) if importlib.util.find_spec(module.rstrip(".")) is None]
    wrong += [program for program in PROGRAM.findall(text) if not (ROOT / "bin" / program).exists()]
    for span, line in COMMANDS.findall(text):
        wrong += unknown_commands(span or " ".join(shlex.split(line, comments=True)), known)
    assert not wrong


@pytest.mark.parametrize("name", NAMES)
def test_imports_in_examples_work(name):
    for block in EXAMPLE.findall(text_of(name)):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and (node.module + ".").startswith("rmqha."):
                if node.module.startswith("rmqha.pipeline"):
                    pytest.importorskip("pyspark", reason="needs the extra `spark`")
                module = importlib.import_module(node.module)
                assert not [alias.name for alias in node.names if not hasattr(module, alias.name)]


def test_a_command_that_does_not_exist_is_found():
    known = sub_commands()
    assert unknown_commands("brew", known) == ["brew"]
    assert unknown_commands("store dump, brew", known) == ["brew"]
    assert unknown_commands("pipeline audit, brew", known) == ["brew"]
    assert unknown_commands("ha status, ha receive, check ha, doctor", known) == []


def test_design_names_the_limits_that_are_kept():
    text = " ".join(text_of("docs/design.md").split())
    assert (f"a module has at most {test_tidy.MAX_MODULE_LINES} lines, a function {test_tidy.MAX_FUNCTION_LINES}, "
            f"a line {test_tidy.MAX_LINE} characters") in text
    assert f"Space is reserved {allocate_mapped_file_service.ALLOCATION_UNIT >> 20} MiB at a time" in text
    words = {10: "ten", 20: "twenty"}
    assert f"{words[_GATHER_MS]} milliseconds ({words[_SLAVE_GATHER_MS]} on a slave" in text


def test_design_tells_how_short_most_are():
    half, most, half_functions, most_functions = map(int, re.search(
        r"half of the modules have at most (\d+) lines, nine of ten at most (\d+) \(.*?\); "
        r"half of the functions have at most (\d+), nine of ten at most (\d+)\.",
        " ".join(text_of("docs/design.md").split())).groups())
    files = sorted(len(lines(path)) for path in modules() if not path.endswith("__init__.py"))
    spans = sorted(node.end_lineno - node.lineno + 1 for _, _, node in test_tidy.functions())
    for lengths, middle, ninth in ((files, half, most), (spans, half_functions, most_functions)):
        assert lengths[len(lengths) // 2] <= middle and lengths[len(lengths) * 9 // 10] <= ninth


def test_design_names_each_room():
    text = text_of("docs/design.md")
    rooms = {path.split("/")[1] for path in modules() if path.count("/") > 1}
    assert {room for room in rooms if f"\n  {room}/ " not in text} == set()


# The figures of README.md and of docs/performance.md come from the benchmarks' results.

RESULTS = [ROOT / "docs" / "performance" / "results.jsonl"]


@pytest.mark.parametrize("name, table", [("README.md", "readme"), ("docs/performance.md", "headlines")])
def test_figures_are_those_of_the_results(name, table):
    page, rows = text_of(name), plots.read(RESULTS)
    assert table in plots.blocks(page, "table")
    assert page == plots.written(page, rows), "run: python -m tests.bench.plots docs/performance/results.jsonl"


def test_a_figure_that_differs_from_the_results_is_found():
    page, rows = text_of("README.md"), plots.read(RESULTS)
    shown = re.search(r"\d[\d,]* msg/s", page).group()
    assert plots.written(page.replace(shown, "99,999 msg/s"), rows) == page


# The known faults of docs/explanation/replication-inside.md: a table, and for each row tests that exist.

ROOT = Path(__file__).parents[1]
_PAGE, _HEADING, _TESTS, _COLUMNS = "docs/explanation/replication-inside.md", "## Known faults", "### Tests", 3


def table() -> dict[str, list[str]]:
    """Fault -> its tests, "file::name"."""
    text = text_of(_PAGE)
    section = text[text.index(f"{_HEADING}\n"):].split("\n## ", 1)[0]
    described, _heading, tests = section.partition(f"\n{_TESTS}")
    rows = [line.strip("|").split("|") for line in described.splitlines() if line.startswith("|")][2:]
    assert all(len(row) == _COLUMNS for row in rows)
    found = {item.split(":\n", 1)[0]: re.findall(r"`([^`]+)`", item.split(":\n", 1)[1])
             for item in tests.split("\n- ")[1:]}
    assert list(found) == [row[0].strip() for row in rows]
    return found


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
