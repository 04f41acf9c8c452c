"""Takes the pictures of docs/console.md: a cluster of two masters and two slaves under load, in a real Chromium.

    python -m tests.tools.console.pictures [FOLDER]        # by default docs/pictures
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rmqha import ConsumeFromWhere, ConsumeStatus, Message, Producer, PushConsumer
from tests.support.devtools import DevTools
from tests.support.sources import ROOT
from tests.support.wait import at_least
from tests.tools.console.test_browser import TOKEN, start

WIDTH = 1400
WARM_UP_S, TROUBLE_S = 60, 20
RATE = 120  # messages a second
RMQHA = [sys.executable, "-m", "rmqha.tools.rmqha_command"]


def rmqha(*words: str) -> str:
    """Run a command and return what it prints."""
    return subprocess.run([*RMQHA, *words], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300).stdout


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A cluster of two masters and two slaves; yields its name server."""
    printed = rmqha("up", "--dir", str(folder), "--async", "--wait", "--print-env")
    try:
        yield re.search(r"NAMESRV_ADDR='?([\d.:]+)", printed)[1]
    finally:
        rmqha("down", "--dir", str(folder))


@contextmanager
def load(namesrv: str) -> Iterator[None]:
    """Orders that one group reads at once, and another one too slowly."""
    stopped = threading.Event()

    def consumer(group: str, pause_s: float) -> PushConsumer:
        def listener(messages: list) -> ConsumeStatus:
            stopped.wait(pause_s * len(messages))
            return ConsumeStatus.CONSUME_SUCCESS
        made = PushConsumer(group, namesrv, listener, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        made.subscribe("orders", "*")
        return made

    def send(producer: Producer) -> None:
        number = 0
        while not stopped.wait(1 / RATE):
            body = {"id": number, "customer": f"c-{number % 97}", "city": "Wien", "paid": number % 3 > 0,
                    "lines": [{"sku": f"a{number % 7}", "count": 1 + number % 3, "price": 12.5}]}
            producer.send(Message("orders", json.dumps(body).encode(), tags="paid" if body["paid"] else "open",
                                  keys=f"order-{number}"))
            number += 1
    with ExitStack() as stack:
        producer = stack.enter_context(Producer("shop", namesrv, enable_msg_trace=True))
        for group, pause_s in (("shipping", 0.0), ("reports", 0.25)):
            stack.enter_context(consumer(group, pause_s))
        sender = threading.Thread(target=send, args=(producer,))
        sender.start()
        try:
            yield
        finally:
            stopped.set()
            sender.join()


def take(page: DevTools, address: str, path: str, wanted: str, file: Path, height: int) -> None:
    """Open a page, wait for a text, and photograph its top."""
    page.look(WIDTH, height, False)
    page.open(f"{address}{path}#token={TOKEN}")
    page.wait(wanted)
    at_least(3)
    page.picture(file, False)


def main() -> None:
    """Take the four pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs/pictures")
    os.environ["ROCKETMQ_LOG_DIR"] = "/tmp"
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        place = Path(temporary) / "cluster"
        namesrv = stack.enter_context(cluster(place))
        stack.enter_context(load(namesrv))
        process, printed = start(namesrv)
        stack.callback(process.wait, 60)
        stack.callback(process.terminate)
        address = re.search(r"http://127\.0\.0\.1:\d+", printed)[0]
        page = stack.enter_context(DevTools(Path(temporary) / "profile", WIDTH, 960))
        at_least(WARM_UP_S)
        take(page, address, "/", "Put p99", folder / "console-cluster.png", 1060)
        take(page, address, "/groups/reports", "Unread messages", folder / "console-group.png", 960)
        take(page, address, "/messages?topic=orders&key=order-300", "JSON", folder / "console-message.png", 1060)
        servers = json.loads(rmqha("ps", "--dir", str(place), "-o", "json"))
        slave = next(each for each in servers["nodes"] if each["name"] == "broker-b-s")
        os.kill(slave["pid"], signal.SIGSTOP)
        try:
            at_least(TROUBLE_S)
            take(page, address, "/", "Put p99", folder / "console-trouble.png", 690)
        finally:
            os.kill(slave["pid"], signal.SIGCONT)


if __name__ == "__main__":
    main()
