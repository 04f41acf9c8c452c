"""The distribution: a source archive, the wheel built from it, its programs, and the first hour of a user who has
only the wheel."""
import configparser
import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from rmqha import __version__, launch
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import ServerProcess
from tests.support.sources import ROOT
from tests.support.tiers import in_all
from tests.support.wait import wait_until

pytestmark = in_all


# A source distribution of the checkout, the wheel built from it, and the programs installed from the wheel into a
# separate venv outside of the checkout.

FOLDERS = ("bin", "conf", "docs", "tests", "rmqha", ".ci", ".github")
MADE = (".so", ".pyd", ".pyc")
# The developer's environment may have these; an installation has to work without them.
OF_THE_CHECKOUT = ("PYTHONPATH", "ROCKETMQ_HOME", "NAMESRV_ADDR", "XDG_CONFIG_HOME", "ROCKETMQ_LOG_DIR")
ACCOUNTS = """accounts:
  - accessKey: operator1
    secretKey: another-secret
    admin: true
"""
TOOLS = "accessKey: operator1\nsecretKey: another-secret\n"


def files_below(folder):
    return {str(file.relative_to(folder)) for file in folder.rglob("*")
            if file.is_file() and file.suffix not in MADE and "egg-info" not in str(file.relative_to(folder))}


def build(folder, hook, out):
    """Run a hook of the build backend in `folder`; return the file that it has written into `out`."""
    out.mkdir(exist_ok=True)
    code = f"import sys, build_backend; print(build_backend.{hook}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=folder, capture_output=True, text=True,
                          timeout=600, env={**os.environ, "PYTHONPATH": str(folder / "rmqha" / "native")})
    assert done.returncode == 0, done.stderr[-2000:]
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The source distribution built from a copy of the checkout."""
    pytest.importorskip("setuptools", reason="building needs setuptools and wheel")
    folder = tmp_path_factory.mktemp("sdist")
    copy = folder / "checkout"
    copy.mkdir()
    made = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", "*.egg-info")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=made)
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, copy)
    return build(copy, "build_sdist", folder / "out"), copy


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    """The wheel built from the source distribution alone."""
    folder = tmp_path_factory.mktemp("wheel")
    shutil.unpack_archive(sdist[0], folder)
    return build(folder / f"rmqha-{__version__}", "build_wheel", folder / "out")


class Installed:
    """The wheel in a venv, its user's home, and commands run there."""

    def __init__(self, folder):
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        self.home = folder / "home"
        self.home.mkdir()
        kept = {name: value for name, value in os.environ.items()
                if name not in OF_THE_CHECKOUT}
        self.env = {**kept, "HOME": str(self.home), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, program, *arguments):
        return subprocess.run([self.bin / program, *map(str, arguments)], env=self.env, cwd=self.home, text=True,
                              capture_output=True, timeout=600, stdin=subprocess.DEVNULL)

    @property
    def site_packages(self):
        return next((self.folder / "venv" / "lib").glob("python*/site-packages"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel with the extra `acl`; dependencies come from the package index."""
    installed = Installed(tmp_path_factory.mktemp("installed"))
    subprocess.run([sys.executable, "-m", "venv", installed.folder / "venv"], check=True, timeout=600)
    done = installed.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[acl]")
    assert done.returncode == 0, done.stderr
    return installed


def test_source_distribution_matches_the_checkout(sdist):
    archive, copy = sdist
    with tarfile.open(archive) as opened:
        members = {member.name.partition("/")[2]: member for member in opened.getmembers() if member.isfile()}
    wanted = files_below(copy)
    assert {"docs/install.md", "conf/broker.conf", "bin/mqbroker", "tests/test_package.py", "LICENSE"} <= wanted
    assert wanted - members.keys() == set()
    assert members["bin/mqbroker"].mode & 0o111


def test_wheel_has_templates_licences_types_and_programs(wheel):
    with zipfile.ZipFile(wheel) as opened:
        files = set(opened.namelist())
        info = f"rmqha-{__version__}.dist-info/"
        entries = configparser.ConfigParser()
        entries.read_string(opened.read(info + "entry_points.txt").decode())
        record = {row[0] for row in csv.reader(opened.read(info + "RECORD").decode().splitlines())}
    templates = {f"rmqha/conf/{name}" for name in files_below(ROOT / "conf")}
    data = {"rmqha/py.typed", "rmqha/pipeline/jobs/page/report.css", "rmqha/pipeline/jobs/page/report.js"}
    assert templates | data <= files == record
    assert {Path(name).name for name in files if name.startswith(info)} >= {"LICENSE", "NOTICE"}
    assert set(entries["console_scripts"]) == set(launch.PROGRAMS)
    assert not [name for name in files if name.startswith(("tests/", "docs/", "bin/", "conf/"))]


@pytest.mark.parametrize("program", launch.PROGRAMS)
def test_installed_program_prints_its_version_and_help(installed, program):
    version, explained = installed.run(program, "--version"), installed.run(program, "--help")
    assert (version.returncode, version.stderr) == (explained.returncode, explained.stderr) == (0, "")
    first = version.stdout.splitlines()[0]
    assert first.split()[-1] == __version__ and program in explained.stdout


def test_compiled_parts_work_where_a_compiler_is_available(installed):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    done = installed.run("python", "-c", "from rmqha.native import kernels; print(kernels.are_all_compiled())")
    assert done.stdout == "True\n", done.stderr


def test_servers_use_the_users_conf_and_leave_site_packages_unchanged(installed, monkeypatch):
    for name in OF_THE_CHECKOUT:
        monkeypatch.delenv(name, raising=False)
    conf = installed.home / ".config" / "rmqha" / "conf"
    before = files_below(installed.site_packages)
    assert installed.run("rmqha", "config", "path").stdout == f"{conf}\n"
    assert installed.run("rmqha", "config", "init").returncode == 0
    assert files_below(conf) == files_below(ROOT / "conf")
    (conf / "plain_acl.yml").write_text(ACCOUNTS)
    port, broker_port = free_port(), free_broker_port()
    (installed.home / "namesrv.conf").write_text(f"listenPort={port}\n")
    (installed.home / "broker.conf").write_text(
        f"namesrvAddr=127.0.0.1:{port}\nbrokerIP1=127.0.0.1\nlistenPort={broker_port}\nbrokerName=b\naclEnable=true\n"
        "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n")
    namesrv, broker = (
        ServerProcess(program, [str(installed.bin / program), "-c", str(installed.home / f"{program[2:]}.conf")],
                      installed.home, "boot success", installed.env) for program in ("mqnamesrv", "mqbroker"))
    asked = "sendMessage", "-n", f"127.0.0.1:{port}", "-t", "TopicTest", "-p", "hello"
    try:
        namesrv.start()
        broker.start()
        create = "updateTopic", "-n", f"127.0.0.1:{port}", "-b", f"127.0.0.1:{broker_port}", "-t", "TopicTest"
        assert "AclException" in installed.run("mqadmin", *create).stderr
        (conf / "tools.yml").write_text(TOOLS)
        assert "success" in installed.run("mqadmin", *create).stdout
        wait_until(lambda: "SEND_OK" in installed.run("mqadmin", *asked).stdout, 60_000, "a message to be taken")
        assert broker.stop() == 0 and namesrv.stop() == 0
    finally:
        broker.kill()
        namesrv.kill()
    assert files_below(installed.site_packages) == before
    assert (installed.home / "store" / "commitlog").is_dir()
    assert (installed.home / "logs" / "rocketmqlogs" / "broker.log").is_file()


# The first hour of a user who has only the wheel: a cluster, messages, checks, and deleting the cluster.
#
# RMQHA_TELL=1 .venv/bin/python -m pytest -s tests/test_package.py      # prints the time of each step

EXTRAS = "metrics,tui,console"


class Newcomer(Installed):
    """Runs commands, and records the time of each."""

    def __init__(self, folder):
        super().__init__(folder)
        self.took: list[tuple[str, float]] = []

    @contextlib.contextmanager
    def step(self, name):
        begin = time.monotonic()
        yield
        self.took.append((name, time.monotonic() - begin))

    def rmqha(self, *arguments, stdin="", expected=0):
        with self.step(f"rmqha {arguments[0]}"):
            done = subprocess.run([self.bin / "rmqha", *map(str, arguments)], env=self.env, cwd=self.home, text=True,
                                  capture_output=True, timeout=600, input=stdin)
        assert done.returncode == expected, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def newcomer(wheel, tmp_path):
    installed = Newcomer(tmp_path)
    with installed.step("python -m venv"):
        subprocess.run([sys.executable, "-m", "venv", installed.folder / "venv"], check=True, timeout=600)
    with installed.step(f"pip install wheel[{EXTRAS}]"):
        done = installed.run("python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                             f"{wheel}[{EXTRAS}]")
    assert done.returncode == 0, done.stderr
    yield installed
    installed.run("rmqha", "down", "--purge", "--timeout", "0")


def get(url):
    with urllib.request.urlopen(url, timeout=600) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def console(newcomer, namesrv):
    """`rmqha console` next to the cluster; its address."""
    port = free_port()
    with subprocess.Popen([newcomer.bin / "rmqha", "console", "-n", namesrv, "--port", str(port)], env=newcomer.env,
                          cwd=newcomer.home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            assert process.wait(240) == 0, process.stdout.read()


def overview(url):
    try:
        return json.loads(get(f"{url}/api/cluster"))
    except OSError:
        return {}


def test_cluster_can_be_made_used_checked_and_deleted(newcomer):
    env = dict(line.removeprefix("export ").split("=", 1) for line in newcomer.rmqha(
        "up", "--masters", "1", "--metrics", "--wait", "--print-env").splitlines())
    namesrv = env["NAMESRV_ADDR"]
    newcomer.rmqha("produce", "-n", namesrv, "-t", "Greetings", stdin="hello\nworld\n")
    consumed = newcomer.rmqha("consume", "-n", namesrv, "-t", "Greetings", "--count", "2", "-f", "%s\\n")
    assert sorted(consumed.split()) == ["hello", "world"]
    servers = json.loads(newcomer.rmqha("ps", "-o", "json"))["nodes"]
    for server in servers:
        with newcomer.step("/metrics"):
            metrics = get(f"http://127.0.0.1:{server['metricsPort']}/metrics")
        assert "process_cpu_seconds_total" in metrics
        assert get(f"http://127.0.0.1:{server['metricsPort']}/readyz")
        if server["role"].endswith("MASTER"):
            assert 'topic="Greetings"' in metrics
    seen = json.loads(newcomer.rmqha("top", "-n", namesrv, "--once", "-o", "json"))
    assert len(seen["brokers"]) == 2
    with newcomer.step("rmqha console"), console(newcomer, namesrv) as url:
        wait_until(lambda: len(overview(url).get("brokers", ())) == 2, 60_000, "the console shows both brokers")
        assert "<html" in get(url)
    newcomer.rmqha("down", "--purge")
    newcomer.rmqha("ps", expected=1)
    if os.environ.get("RMQHA_TELL"):
        for name, seconds in [*newcomer.took, ("in all", sum(seconds for _, seconds in newcomer.took))]:
            print(f"{seconds:6.2f} s  {name}")
