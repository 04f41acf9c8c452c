"""Style rules that a test can enforce: sizes, docstrings, no silent excepts. The allow-lists only shrink."""
import ast
import re
import subprocess

import pytest

from tests.support.sources import ROOT, lines, modules, nodes, paths
from tests.support.tiers import in_all

pytestmark = in_all  # of_sources, by the name that is read without loading this file

MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 70
MAX_LINE = 120
# The limit that a test gives to things that should happen at once.
MIN_WAIT_S = 60

# Functions that are too long and wait to be split: (path, qualified name). Only remove entries.
LONG_FUNCTIONS: set[tuple[str, str]] = set()
# Modules that are too long. Only remove entries.
LONG_MODULES: set[str] = set()
# Folders of a single developer, and notes to oneself.
TEXT_FILES = {".py", ".md", ".cfg", ".properties", ".conf", ".java", ".xml", ".txt", ".sh", ""}
FOREIGN = re.compile(r"(?<![\w.$}])/(?:root|work)/|\bTODO\b|\bFIXME\b|\bXXX:", re.ASCII)


TOP_LEVEL = {".ci", ".github", ".gitignore", "CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "bin", "conf", "docs",
             "pyproject.toml", "rmqha", "setup.cfg", "tests"}


def test_top_level_contains_nothing_unexpected():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    assert {name.partition("/")[0] for name in listed.stdout.split("\0") if name} == TOP_LEVEL


def functions():
    for path, tree in modules().items():
        stack = [(tree, "")]
        while stack:
            node, prefix = stack.pop()
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    name = prefix + child.name
                    if not isinstance(child, ast.ClassDef):
                        yield path, name, child
                    stack.append((child, name + "."))


def test_modules_are_short():
    long = {path for path in paths() if len(lines(path)) > MAX_MODULE_LINES}
    assert long == LONG_MODULES


def test_functions_are_short():
    long = {(path, name) for path, name, node in functions() if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES}
    assert long == LONG_FUNCTIONS


def test_lines_are_short():
    wrong = [f"{path}:{number}" for folder in ("rmqha", "tests") for path in paths(folder)
             for number, line in enumerate(lines(path), 1) if len(line) > MAX_LINE]
    assert not wrong, "\n".join(wrong)


def test_modules_and_public_classes_and_functions_have_docstrings():
    wrong = [path for path, tree in modules().items() if not ast.get_docstring(tree)]
    for path, tree in modules().items():
        for node in tree.body:
            public = isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
            if public and "overload" in map(ast.unparse, node.decorator_list):
                # The function itself has a docstring.
                continue
            if public and not ast.get_docstring(node):
                wrong.append(f"{path}:{node.lineno} {node.name}")
    assert not wrong, "\n".join(wrong)


def test_no_except_is_silent():
    """Check that an except clause names what it handles and does something: `pass` alone hides a fault."""
    wrong = []
    for path, found in nodes().items():
        for node in found:
            if isinstance(node, ast.ExceptHandler):
                if node.type is None:
                    wrong.append(f"{path}:{node.lineno} bare except")
                broad = node.type is not None and ast.unparse(node.type) in ("Exception", "BaseException")
                if broad and all(isinstance(child, ast.Pass) for child in node.body):
                    wrong.append(f"{path}:{node.lineno} silent except")
    assert not wrong, "\n".join(wrong)


def _is_elapsed(node, kept=()):
    """Return whether an expression is an elapsed time: monotonic() - begin, or a name that holds one or a list of
    them."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Name):
        return node.id in kept
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and any(
        isinstance(child, ast.Call) and ast.unparse(child.func).endswith(("monotonic", "monotonic_ns", "perf_counter"))
        for child in ast.walk(node))


def _seconds(node, names):
    """Evaluate a bound to a number, with the constants of its module; None when it depends on more."""
    try:
        return float(eval(ast.unparse(node), {"__builtins__": {}}, names))
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError):
        return None


def _ordered(compare):
    """Yield the pairs (less, more) that a comparison requires."""
    for left, sign, right in zip([compare.left, *compare.comparators], compare.ops, compare.comparators, strict=False):
        if isinstance(sign, (ast.Lt, ast.LtE)):
            yield left, right
        elif isinstance(sign, (ast.Gt, ast.GtE)):
            yield right, left


_ANSWERS = {"get": 1000, "result": 1, "is_closed": 1, "is_closed_by_peer": 1, "create_connection": 1}
"""Calls that take a limit as their last argument -> how many of its units are a second."""


def _short_waits(tree):
    """Yield the lines of asserts, `wait_until` and calls with a limit that allow less than MIN_WAIT_S for an
    expected event, or that require a minimum of time since a clock was read."""
    names = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = _seconds(node.value, names)
    expected = {id(child) for node in ast.walk(tree) if isinstance(node, ast.With)
                and "raises(" in ast.unparse(node.items[0].context_expr) for child in ast.walk(node)}
    kept = {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_elapsed(node.value)
            for target in node.targets if isinstance(target, ast.Name)}
    kept |= {node.func.value.id for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args
             and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
             and isinstance(node.func.value, ast.Name) and _is_elapsed(node.args[0])}
    asserted = {id(child) for node in ast.walk(tree) if isinstance(node, ast.Assert) for child in ast.walk(node)}
    denied = {id(node.operand) for node in ast.walk(tree) if isinstance(node, ast.UnaryOp)}
    for node in ast.walk(tree):
        bound, unit = None, 1
        if isinstance(node, ast.Compare) and id(node) in asserted:
            for less, more in _ordered(node):
                if _is_elapsed(more, kept) and not _is_elapsed(less, kept):
                    # A pause before its clock was read shortens it: `lasting` handles both.
                    bound = 0
                elif _is_elapsed(less, kept) and bound is None:
                    bound, unit = _seconds(more, names), 1_000_000_000 if "_ns" in ast.unparse(less) else 1
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "wait_until" and len(node.args) > 1:
            bound, unit = _seconds(node.args[1], names), 1000
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            unit = _ANSWERS.get(node.func.attr, 0)
            bound = _seconds(node.args[-1], names) if unit and id(node) not in denied else None
            if bound == 0 or node.func.attr == "get" and (len(node.args) > 1 or bound is not None and bound < unit):
                # A poll that does not wait; a dict's key, or its default value.
                bound = None
        if bound is not None and bound < MIN_WAIT_S * unit and id(node) not in expected:
            yield node.lineno


def test_tests_do_not_depend_on_a_fast_machine():
    """Forbid short limits. To prove that something happens at once, lengthen what it must not wait for."""
    own = {"tests/support/wait.py"}
    wrong = [f"{path}:{line}" for path in paths("tests")
             if path not in own and not path.startswith(("tests/bench/", "tests/faults/"))
             for line in _short_waits(ast.parse((ROOT / path).read_text("utf-8")))]
    assert not wrong, "\n".join(wrong)


def test_short_waits_are_found():
    found = _short_waits(ast.parse(
        "S = 2\nassert 0 < time.monotonic() - begin < S + 1\nassert time.monotonic_ns() - b < 9_000_000_000\n"
        "wait_until(f, S * 1000)\nwith pytest.raises(AssertionError):\n    wait_until(f, 5)\nwait_until(f, 60_000)\n"
        "assert time.monotonic() - begin > 1\nassert time.monotonic() - begin < 60\n"
        "took = time.monotonic() - begin\nassert took < 10\n"
        "future.get(20_000)\nassert not peer.is_closed(1)\npool.submit(f).result(30)\nfuture.result(0)\n"
        "future.result(0.5)\ntable.get(7)\n"
        "waits.append(time.monotonic() - begin)\nassert waits[0] > 0.25 > waits[1]\nassert 70 < waits[0]\n"))
    assert sorted(found) == [2, 3, 4, 8, 11, 12, 14, 16, 19, 20]


def test_tests_wait_for_facts():
    """Forbid plain sleeps: tests use `tests.support.wait`, whose names say what for. Only campaigns draw times of
    faults."""
    own = {"tests/test_tidy.py", "tests/support/wait.py", "tests/aio/conftest.py"}
    tasks_of_spark = {"tests/pipeline/all_jobs.py", "tests/pipeline/test_tasks.py"}
    wrong = [f"{path}:{node.lineno}" for path in paths("tests")
             if path not in own | tasks_of_spark and not path.startswith(("tests/bench/", "tests/faults/"))
             for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
             if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "asyncio.sleep", "sleep")]
    assert not wrong, "\n".join(wrong)


def test_tests_count_their_own_threads():
    """Forbid counting the threads of the process: they include those of earlier tests and of shared servers, which
    start threads at any time."""
    whole_process = {"tests/support/wait.py", "tests/client/test_processes.py", "tests/test_tidy.py"}
    counts = re.compile(r"\b(active_count|threading\.enumerate)\(")
    wrong = [f"{path}:{number}" for path in paths("tests") if path not in whole_process
             for number, line in enumerate(lines(path), 1) if counts.search(line)]
    assert not wrong, "\n".join(wrong)


def test_library_does_not_print():
    wrong = [f"{path}:{node.lineno}" for path, found in nodes().items() for node in found
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
             and not path.endswith("_startup.py") and not path.startswith("rmqha/tools/")]
    assert not wrong, "\n".join(wrong)


def test_the_project_refers_only_to_itself():
    own = {"tests/test_tidy.py"}
    wrong = []
    for pattern in ("rmqha/**/*", "tests/**/*", "docs/**/*", "conf/**/*", "bin/*", ".ci/*", "*.md", "setup.cfg"):
        for file in ROOT.glob(pattern):
            if file.suffix in TEXT_FILES and file.is_file():
                path = str(file.relative_to(ROOT))
                for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1):
                    if path not in own and "__pycache__" not in path and FOREIGN.search(line):
                        wrong.append(f"{path}:{number} {line.strip()[:80]}")
    assert not wrong, "\n".join(wrong)
