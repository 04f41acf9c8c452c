"""The first hour of somebody who has the wheel and nothing else: a cluster, messages, a look at it, and its end.

    RMQHA_TELL=1 .venv/bin/python -m pytest -s tests/test_newcomer.py      # what each step took
"""
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request

import pytest

from tests.support.ports import free_port
from tests.support.tiers import in_all
from tests.support.wait import wait_until
from tests.test_package import Installed, sdist, wheel  # noqa: F401, fixtures

pytestmark = in_all

EXTRAS = "metrics,tui,console"


class Newcomer(Installed):
    """Runs commands, and knows what each took."""

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
    """`rmqha console` beside; its address."""
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


def test_a_cluster_messages_a_look_at_it_and_its_end(newcomer):
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
