"""Hints at libraries that are not installed: they name extras that exist, and no package index."""
import ast
import configparser
import json
import re
import shlex
import sys

import pytest

from rmqha.common import filesystem
from tests.support.sources import ROOT, nodes

# What pip is told to install: from "pip install", over its options, to the requirement.
REQUIREMENT = re.compile(r"pip install(?: +-+[\w-]+)* +['\"]?([^\s'\"`)]+)")
TEXTS = ("*.md", "rmqha/**/*.py", "tests/**/*.py", "docs/**/*.md", "conf/**/*", "bin/*")


def declared_extras():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", "utf-8")
    return set(config["options.extras_require"])


PIP = f"{shlex.quote(sys.executable)} -m pip install "


def test_hint_of_a_checkout_names_it_and_the_extra():
    assert filesystem.how_to_install("acl") == f"{PIP}'{ROOT}[acl]'"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder that pip installed into; write(direct_url) notes from where."""
    info = tmp_path / "site-packages" / "rmqha-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: rmqha\nRequires-Dist: click>=8.1\n"
                                   "Requires-Dist: pyyaml>=6; extra == \"acl\"\n"
                                   "Requires-Dist: a>=1; extra == 'two'\nRequires-Dist: b; extra == 'two'\n")
    monkeypatch.setattr(filesystem, "_PACKAGE", info.parent / "rmqha")
    filesystem._dist_info.cache_clear()
    yield lambda origin: (info / "direct_url.json").write_text(json.dumps(origin))
    filesystem._dist_info.cache_clear()


def test_hint_of_an_installed_package_can_be_pasted(installed, tmp_path):
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl]'"  # from an index, of which pip notes nothing
    wheel = tmp_path / "my wheels" / "rmqha.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"")
    installed({"url": wheel.as_uri(), "archive_info": {}})
    assert filesystem.how_to_install("acl") == f"{PIP}'{wheel}[acl]'"
    wheel.unlink()  # such as the image's, which was built elsewhere
    assert filesystem.how_to_install("acl") == f"{PIP}'pyyaml>=6'"
    assert filesystem.how_to_install("two") == f"{PIP}'a>=1' b"
    installed({"url": "https://example.org/rmqha.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}})
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl] @ git+https://example.org/rmqha.git'"
    installed({"url": "https://example.org/rmqha.whl", "archive_info": {}})
    assert filesystem.how_to_install("acl") == f"{PIP}'rmqha[acl] @ https://example.org/rmqha.whl'"


def test_no_code_prints_the_placeholder_of_the_pages():
    assert [str(file) for file in (ROOT / "rmqha").rglob("*.py") if "PATH-OR-URL" in file.read_text("utf-8")] == []


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
