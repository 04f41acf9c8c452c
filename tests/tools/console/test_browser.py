"""The console as a command, viewed with a real headless browser."""
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from rmqha.common.filesystem import how_to_install
from tests.support import patience, start_as
from tests.support.programs import Browser, needs_browser
from tests.tools.console.conftest import EVIL, GROUP, TOPIC

pytest.importorskip("uvicorn", reason="the extra `console` is not installed")

ROOT = Path(__file__).resolve().parents[3]
TOKEN = "token-for-tests-only"
LOGS = tempfile.TemporaryDirectory(prefix="rmqha-console-logs-")  # removed when the tests have ended


def start(namesrv: str, *arguments: str, home: str = "/nowhere",
          logs: Path | None = None) -> tuple[subprocess.Popen, str]:
    """Start the command; return it, and its output up to the line that names its address."""
    process = subprocess.Popen(
        start_as.command(patience.command(["-m", "rmqha.tools.rmqha_command", "console", "-n", namesrv, "--port", 0,
                                           "-i", 1, *arguments]), ctrl_c=True),
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "RMQHA_CONSOLE_TOKEN": TOKEN, "ROCKETMQ_HOME": home,
             "ROCKETMQ_LOG_DIR": str(logs or LOGS.name)})
    told = ""
    for line in process.stdout:
        told += line
        if "Ctrl-C" in line:
            break
    return process, told


@pytest.fixture(scope="module")
def console(orders):
    """Yield the address of a console that may change things."""
    process, told = start(orders.namesrv, "--allow-writes")
    try:
        yield re.search(r"http://127\.0\.0\.1:\d+", told).group()
    finally:
        process.terminate()
        assert process.wait(240) == 0


class ConsoleBrowser(Browser):
    """A browser whose `dom(path)` loads a path of the console."""

    def __init__(self, folder: Path, address: str) -> None:
        super().__init__(folder)
        self._address = address

    def dom(self, path: str) -> str:
        return super().dom(self._address + path)


@pytest.fixture
def browser(console, tmp_path):
    made = ConsoleBrowser(tmp_path / "profile", console)
    yield made
    assert not made.complaints, "\n".join(made.complaints)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html.partition("<main")[2].partition("</main>")[0]).split())


@needs_browser
def test_cluster_is_drawn_with_its_lag(browser, orders):
    html = browser.dom("/")
    drawing = html.partition('class="map"')[2].partition("</svg>")[0]
    assert f"slave {orders.cluster.slave.address} TRANSFER, lag 0 B" in drawing
    text = text_of(html)
    assert "Brokers up 2 of 2" in text and orders.cluster.master.address in text and "lag 0 B" in text
    assert 'aria-current="page"' in html and "<title>Cluster" in html


@needs_browser
def test_topics_groups_and_stores_are_shown(browser, orders):
    assert f'href="/topics/{TOPIC}"' in browser.dom("/topics")
    group = text_of(browser.dom(f"/groups/{GROUP}"))
    assert f"Group {GROUP}" in group and "Unread messages, over time" in group and "clustering" in group
    # The button is there since the console may change things.
    assert "Move the offsets" in group
    store = text_of(browser.dom("/store"))
    assert f"broker-a · 0 · {orders.cluster.master.address}" in store and "1 of 1.0 MiB" in store


@needs_browser
def test_body_with_markup_remains_text(browser, orders):
    html = browser.dom(f"/messages?topic={TOPIC}&id={orders.sent[0].msg_id}")
    assert "&lt;img src=x onerror=" in html and "<img src=\"x\"" not in html and "<title>Messages" in html
    assert EVIL.partition("<script>")[0] not in html
    text = text_of(html)
    assert "sent makers" in text and f"{GROUP} consumed" in text
    binary = browser.dom(f"/messages?topic={TOPIC}&key=key-1")
    assert "binary" in binary and "00000000  00 ff 00 ff" in binary


def test_beyond_loopback_the_token_is_printed_and_needed(orders):
    process, told = start(orders.namesrv, "--host", "0.0.0.0")
    try:
        assert f"#token={TOKEN}" in told and f"token with the role see: {TOKEN}" in told
        assert "read-only; start it with --role" in told
    finally:
        process.terminate()
        process.wait(240)


@pytest.mark.parametrize(("arguments", "wanted"), [
    (("-n", "127.0.0.1:1", "--token", "short"), "--token must have at least 16 characters"),
    ((), "no name server: give it with -n host:port, in NAMESRV_ADDR, or as a context"),
    (("-n", "127.0.0.1:1", "--host", "192.0.2.77"), "can't listen on 192.0.2.77:8088"),
    (("-n", "nonsense"), "'nonsense' is not a valid host:port"),
])
def test_invalid_input_gets_one_clear_error(run, arguments, wanted):
    result = run("console", *arguments)
    assert result.exit_code == 2 and wanted in " ".join(result.output.split()), result.output


def test_missing_extra_is_named_with_the_command_to_install_it(run, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rmqha.tools.console.server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run("console", "-n", "127.0.0.1:1")
    assert result.exit_code == 2 and how_to_install("console") in result.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_ends_it_silently_even_at_once(orders, number):
    process, _told = start(orders.namesrv)
    process.send_signal(number)
    assert process.wait(240) == 0 and process.stdout.read() == ""
