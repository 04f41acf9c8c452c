"""Hints at libraries that are not installed: they name extras that exist, and no package index."""
import ast
import configparser
import re

import pytest

from rmqha.common import extras
from tests.support.sources import ROOT, nodes

# What pip is told to install: from "pip install", over its options, to the requirement.
REQUIREMENT = re.compile(r"pip install(?: +-+[\w-]+)* +['\"]?([^\s'\"`)]+)")
TEXTS = ("*.md", "rmqha/**/*.py", "tests/**/*.py", "docs/**/*.md", "conf/**/*", "bin/*")


def declared_extras():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    return set(config["options.extras_require"])


def test_hint_names_where_rmqha_is_and_the_extra():
    assert extras.how_to_install("acl") == "pip install 'PATH-OR-URL[acl]'"


def test_nothing_says_that_an_index_has_rmqha():
    files = [file for pattern in TEXTS for file in ROOT.glob(pattern) if file.is_file() and file.suffix != ".pyc"
             and file.name != "test_extras.py"]
    wanted = [(str(file.relative_to(ROOT)), name) for file in files
              for name in REQUIREMENT.findall(file.read_text("utf-8", "replace"))]
    assert ("docs/acl.md", "PATH-OR-URL[acl]") in wanted
    assert [found for found in wanted if found[1].startswith("rmqha")] == []


@pytest.mark.parametrize("text, name", [
    ("pip install rmqha[fast]", "rmqha[fast]"), ("`pip install --quiet 'rmqha[x]'`", "rmqha[x]"),
    ("pip install -e \"/a[b]\"", "/a[b]")])
def test_the_requirement_is_found(text, name):
    assert REQUIREMENT.findall(text) == [name]


def test_extras_of_hints_exist():
    asked = {ast.literal_eval(node.args[0]) for found in nodes().values() for node in found
             if isinstance(node, ast.Call) and ast.unparse(node.func) == "how_to_install"
             and isinstance(node.args[0], ast.Constant)}
    assert {"acl", "lz4", "zstd"} <= asked <= declared_extras()


def test_the_version_stands_in_one_place():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    assert config["metadata"]["version"] == "attr: rmqha.__version__"
