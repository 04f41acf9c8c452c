"""A release: its version, its archives and their metadata, the files for a code host; and the script that builds it."""
import csv
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from rmqha import __version__
from rmqha.native import kernels
from rmqha.native.kernels import Kernel
from rmqha.tools import version
from tests.support.sources import ROOT
from tests.support.tiers import in_all

RELEASE = ROOT / ".ci" / "release"
LINES = re.compile(r"rmqha, version (?P<version>\S+)\ncommit: (?P<commit>\S+)\nPython: (?P<python>.+)\n"
                   r"compiled parts: (?P<parts>.+)\n?")


def git(folder, *words):
    who = ("-c", "user.name=author", "-c", "user.email=author@example.org")
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True, env=env,
                          timeout=600).stdout.strip()


# ---- rmqha --version


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A folder that `rmqha --version` takes for the one it runs from."""
    package = tmp_path / "rmqha"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "conf").mkdir()
    (tmp_path / "setup.cfg").write_text("")
    monkeypatch.setattr(version, "package_folder", lambda: package)
    monkeypatch.setattr(version, "checkout", lambda: tmp_path)
    return tmp_path


def test_version_has_four_lines():
    found = LINES.fullmatch(version.report())
    assert found["version"] == __version__ and str(sys.executable) in found["python"]
    assert found["parts"] == version.compiled_parts()


def test_commit_is_that_of_the_checkout(copy):
    assert version.commit() == "unknown"
    git(copy, "init", "-q")
    assert version.commit() == "unknown"
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "first")
    head = git(copy, "rev-parse", "HEAD")
    assert version.commit() == head and len(head) == 40
    git(copy, "tag", "v1.0")
    (copy / "setup.cfg").write_text("[metadata]\n")
    assert version.commit() == f"{head}-dirty"


def test_commit_of_a_repository_around_the_copy_is_not_used(copy, tmp_path_factory):
    inner = copy / "unpacked"
    inner.mkdir()
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    git(copy, "commit", "-q", "-m", "first")
    version.checkout = lambda: inner  # the fixture's monkeypatch restores it
    assert version.commit() == "unknown"


@pytest.mark.parametrize("text, commit", [
    ('{"commit": "0123abc", "home": "x"}', "0123abc"), ("{}", "unknown"), ("[]", "unknown"), ("x", "unknown")])
def test_commit_is_that_of_the_build(copy, text, commit):
    (copy / "rmqha" / "build.json").write_text(text)
    assert version.commit() == commit


def test_parts_that_are_not_compiled_are_named_with_the_reason(monkeypatch):
    made = kernels.KERNELS[0]
    missing = Kernel("second part", None, "no C compiler"), Kernel("third part", None, "no C compiler")
    present = Kernel("first part", made.module or kernels, "")
    monkeypatch.setattr(kernels, "KERNELS", (present, *missing))
    assert version.compiled_parts() == "first part; pure Python, slower: second part, third part (no C compiler)"
    monkeypatch.setattr(kernels, "KERNELS", missing)
    assert version.compiled_parts() == "none; pure Python, slower: second part, third part (no C compiler)"


def test_package_can_be_run_and_each_command_prints_the_version(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    for words in (("--version",), ("check", "ha", "--version")):
        done = subprocess.run([sys.executable, "-m", "rmqha", *words], cwd=tmp_path, env=env, text=True,
                              capture_output=True, check=True, timeout=600)
        assert LINES.fullmatch(done.stdout)["version"] == __version__


# ---- metadata


@pytest.fixture
def backend(monkeypatch, tmp_path):
    """The build backend, in a folder with a README."""
    setuptools = pytest.importorskip("setuptools", reason="building needs setuptools")
    monkeypatch.setattr(setuptools, "setup", setuptools.setup)
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "rmqha" / "native" / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rmqha").mkdir()
    (tmp_path / "README.md").write_text(
        "![a picture](docs/a.svg)\n\n"
        "[a `page`](docs/x.md#part), [the [inner] one](y.md), [out](https://example.org/z)\n"
        "and [here](#part).\n\n```python\nmade[0](docs)\n```\n")
    return module


@pytest.mark.parametrize("remote, page", [
    ("https://code.example.org/group/rmqha.git", "https://code.example.org/group/rmqha"),
    ("https://me:secret@code.example.org:8443/rmqha/", "https://code.example.org:8443/rmqha"),
    ("git@code.example.org:group/rmqha.git", "https://code.example.org/group/rmqha"),
    ("ssh://git@code.example.org:2222/group/rmqha", "https://code.example.org/group/rmqha"),
    ("/srv/git/rmqha.git", None), ("../rmqha", None), ("file:///srv/rmqha", None), ("", None)])
def test_web_page_of_a_remote(backend, remote, page):
    assert backend._web_page(remote) == page


def test_addresses_and_links_are_below_the_repository(backend, tmp_path):
    (tmp_path / "rmqha" / "build.json").write_text('{"commit": "01ab-dirty", "home": "https://code.example.org/r"}')
    assert backend._addresses() == {
        "Homepage": "https://code.example.org/r", "Source": "https://code.example.org/r",
        "Documentation": "https://code.example.org/r/blob/01ab/docs/index.md",
        "Issues": "https://code.example.org/r/issues",
        "Changelog": "https://code.example.org/r/blob/01ab/CHANGELOG.md"}
    assert backend._long_description() == (
        "![a picture](https://code.example.org/r/raw/01ab/docs/a.svg)\n\n"
        "[a `page`](https://code.example.org/r/blob/01ab/docs/x.md#part), "
        "[the [inner] one](https://code.example.org/r/blob/01ab/y.md), [out](https://example.org/z)\n"
        "and [here](#part).\n\n```python\nmade[0](docs)\n```\n")


def test_links_become_text_where_the_repository_is_not_known(backend):
    assert backend._addresses() == {}
    assert backend._long_description() == ("\n\na `page`, the [inner] one, [out](https://example.org/z)\n"
                                           "and [here](#part).\n\n```python\nmade[0](docs)\n```\n")


def test_build_file_comes_from_git(backend, tmp_path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    git(tmp_path, "remote", "add", "origin", "https://me:secret@code.example.org/rmqha.git")
    assert json.loads(backend.build_file()) == {"commit": git(tmp_path, "rev-parse", "HEAD"),
                                                "home": "https://code.example.org/rmqha"}


# ---- the script


def run_script(script, *words):
    return subprocess.run([sys.executable, script, *words], text=True, capture_output=True, check=False, timeout=600)


def test_text_of_the_tag_is_the_paragraph_below_the_heading_of_the_version():
    done = run_script(RELEASE, "--notes")
    assert done.returncode == 0, done.stderr
    subject, empty, *text = done.stdout.splitlines()
    assert re.fullmatch(rf"rmqha {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", subject) and empty == ""
    assert text and "\n".join(text) in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert not [line for line in text if line.startswith("#")], "git would take these lines for comments"


def test_script_says_what_is_missing(tmp_path):
    script = tmp_path / ".ci" / "release"
    script.parent.mkdir()
    shutil.copy(RELEASE, script)
    (tmp_path / "rmqha").mkdir()
    (tmp_path / "rmqha" / "__init__.py").write_text('__version__ = "9.9.9"\n')
    (tmp_path / "CHANGELOG.md").write_text("## Unreleased\n\n## 9.9.9 (soon)\n\nText.\n")
    done = run_script(script, "--notes")
    assert done.returncode == 1 and "has no heading '## 9.9.9 (YEAR-MONTH-DAY)'" in done.stderr
    done = run_script(script, "dist")
    assert done.returncode == 1 and "is not a git checkout" in done.stderr
    git(tmp_path, "init", "-q")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    done = run_script(script, str(tmp_path / "full"))
    assert done.returncode == 1 and "full is not empty" in done.stderr and (tmp_path / "full" / "file").exists()


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """A release of this checkout, with its uncommitted changes, for one Python."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("release") / "dist"
    done = run_script(RELEASE, str(folder), "--dirty", "--no-rooms", "--python", sys.executable,
                      "--home", "https://code.example.org/rmqha")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@in_all
def test_release_has_all_archives_sums_and_a_bill_of_materials(dist):
    names = {file.name for file in dist.iterdir()}
    tag = f"cp3{sys.version_info.minor}"
    compiled = {name for name in names if re.fullmatch(rf"rmqha-{__version__}-{tag}-{tag}-manylinux.*\.whl", name)}
    assert len(compiled) == 1 and names - compiled == {
        f"rmqha-{__version__}.tar.gz", f"rmqha-{__version__}-py3-none-any.whl", f"rmqha-{__version__}.cdx.json",
        "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True, capture_output=True,
                   timeout=600)
    assert len((dist / "SHA256SUMS").read_text("ascii").splitlines()) == len(names) - 1
    bill = json.loads((dist / f"rmqha-{__version__}.cdx.json").read_text("utf-8"))
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == ("rmqha", __version__)
    assert {part["name"] for part in bill["components"]} == {"click", "psutil"}
    with tarfile.open(dist / f"rmqha-{__version__}.tar.gz") as opened:
        files = {name.partition("/")[2] for name in opened.getnames()}
        owners = {(member.uname, member.uid) for member in opened.getmembers()}
    assert {"LICENSE", "NOTICE", "bin/mqbroker", "conf/broker.conf", "docs/install.md", "tests/test_release.py",
            ".github/workflows/ci.yml", "rmqha/build.json", "rmqha/native/_bulk.c"} <= files and owners == {("", 0)}


@in_all
def test_wheels_have_the_addresses_the_commit_and_the_compiled_parts_of_their_kind(dist):
    home = "https://code.example.org/rmqha"
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            names = opened.namelist()
            metadata = opened.read(f"rmqha-{__version__}.dist-info/METADATA").decode()
            record = opened.read(f"rmqha-{__version__}.dist-info/RECORD").decode()
            commit = json.loads(opened.read("rmqha/build.json"))["commit"]
        assert len([name for name in names if name.endswith(".so")]) == (0 if "none-any" in wheel.name else 4)
        assert f"Project-URL: Changelog, {home}/blob/{commit.removesuffix('-dirty')}/CHANGELOG.md\n" in metadata
        assert "Classifier: Typing :: Typed\n" in metadata and "](docs/" not in metadata
        assert "rmqha/conf/broker.conf" in {row[0] for row in csv.reader(record.splitlines())}


@in_all
def test_wheel_without_compiled_parts_works_with_an_empty_home_and_environment(dist, tmp_path):
    """Install it and run the newcomer's commands. tests/test_package.py does more, with the compiled wheel."""
    home, programs = tmp_path / "home", tmp_path / "venv" / "bin"
    home.mkdir()
    (wheel,) = dist.glob("*-none-any.whl")
    for words in ((sys.executable, "-m", "venv", str(tmp_path / "venv")),
                  (str(programs / "python"), "-m", "pip", "install", "--quiet", str(wheel))):
        subprocess.run(words, check=True, timeout=600, capture_output=True)

    def types(*words):
        done = subprocess.run([programs / words[0], *words[1:]], cwd=home, env={"HOME": str(home)}, text=True,
                              capture_output=True, check=False, timeout=600, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    found = LINES.fullmatch(types("rmqha", "--version"))
    head = git(ROOT, "rev-parse", "HEAD")
    assert found["version"] == __version__ and found["commit"] in (head, f"{head}-dirty")
    assert found["parts"].startswith("none; pure Python, slower: bulk kernel, ")
    assert types("python", "-m", "rmqha", "--version").startswith(f"rmqha, version {__version__}\n")
    assert types("mqadmin", "--version") == f"mqadmin {__version__}\n"
    types("python", "-c", "from rmqha import Message, Producer, PushConsumer")
    types("rmqha", "config", "init")
    types("rmqha", "config", "check", str(home / ".config" / "rmqha" / "conf" / "broker.conf"))
    assert "all 1,000, none twice" in types("rmqha", "quickstart")


@in_all
def test_build_gives_the_same_bytes_in_another_folder(dist, tmp_path):
    hooks = "build_sdist(sys.argv[1])", "build_wheel(sys.argv[1])"
    made = []
    for name in ("one", "another"):
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run(["tar", "-xzf", dist / f"rmqha-{__version__}.tar.gz", "--strip-components=1"], cwd=folder,
                       check=True, timeout=600)
        out = folder / "out"
        out.mkdir()
        for hook in hooks:
            done = subprocess.run([sys.executable, "-c", f"import build_backend, sys; build_backend.{hook}", str(out)],
                                  cwd=folder, capture_output=True, text=True, check=False, timeout=600,
                                  env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "CFLAGS": "-g0",
                                       "PYTHONPATH": str(folder / "rmqha" / "native")})
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        made.append({file.name: file.read_bytes() for file in out.iterdir()})
    one, another = made
    assert len(one) == 2 and one.keys() == another.keys()
    assert [name for name in one if one[name] != another[name]] == []


# ---- files for a code host


def test_workflows_run_what_exists():
    yaml = pytest.importorskip("yaml")
    for name, wanted in (("ci", "bash .ci/run"), ("release", ".ci/release dist")):
        workflow = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8"))
        (job,) = workflow["jobs"].values()
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert any(wanted in command for command in commands) and job["timeout-minutes"] <= 90
        for script in re.findall(r"\.ci/\w+", "\n".join(commands)):
            assert os.access(ROOT / script, os.X_OK), script
        versions = next(step["with"]["python-version"].split() for step in job["steps"]
                        if "setup-python" in step.get("uses", ""))
        assert versions == re.findall(r"Python :: (3\.\d+)$", (ROOT / "setup.cfg").read_text("utf-8"), re.MULTILINE)
        # The tests of upgrades, and the time of the build, need the history.
        assert [step["with"]["fetch-depth"] for step in job["steps"] if "checkout" in step.get("uses", "")] == [0]


def test_issue_forms_can_be_shown():
    yaml = pytest.importorskip("yaml")
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    assert [form.stem for form in forms] == ["bug", "config", "question"]
    for form in forms:
        read = yaml.safe_load(form.read_text("utf-8"))
        if form.stem == "config":
            continue
        assert read["name"] and read["description"] and any("id" in part for part in read["body"])
        for part in read["body"]:
            assert part["type"] in ("markdown", "textarea", "input")
            assert part["attributes"].get("value" if part["type"] == "markdown" else "label")
            for page in re.findall(r"docs/[\w./-]+\.md", str(part)):
                assert (ROOT / page).is_file(), page
