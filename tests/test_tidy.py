"""Style that a test can keep: sizes, docstrings, no silent excepts. The allow-lists only shrink."""
import ast
import re
import subprocess

import pytest

from tests.support.sources import ROOT, lines, modules, nodes, paths

MAX_MODULE_LINES = 800
MAX_FUNCTION_LINES = 70
MAX_LINE = 120

# Functions that are longer than they should be, and wait to be split: (path, qualified name). Only remove from it.
LONG_FUNCTIONS: set[tuple[str, str]] = set()
# Modules that are longer than they should be. Only remove from it.
LONG_MODULES: set[str] = set()
# Somebody's folders, and notes to oneself.
TEXT_FILES = {".py", ".md", ".cfg", ".properties", ".conf", ".java", ".xml", ".txt", ".sh", ""}
FOREIGN = re.compile(r"(?<![\w.$}])/(?:root|work)/|\bTODO\b|\bFIXME\b|\bXXX:", re.ASCII)


TOP_LEVEL = {".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "bin", "conf", "docs",
             "pyproject.toml", "rmqha", "setup.cfg", "tests"}


def test_nothing_else_lies_at_the_top_level():
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
                continue  # the function itself has one
            if public and not ast.get_docstring(node):
                wrong.append(f"{path}:{node.lineno} {node.name}")
    assert not wrong, "\n".join(wrong)


def test_no_except_is_silent():
    """An except clause names what it handles and does something: `pass` alone hides a fault."""
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


def test_library_does_not_print():
    wrong = [f"{path}:{node.lineno}" for path, found in nodes().items() for node in found
             if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
             and not path.endswith("_startup.py") and not path.startswith("rmqha/tools/")]
    assert not wrong, "\n".join(wrong)


def test_the_project_speaks_of_itself_alone():
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
