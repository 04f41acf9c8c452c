"""Who kept the others from running is in the log, with its stack."""
import ast
import gc
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rmqha.common.process import _WAITING, StallWatch, busy_stacks, cpu_seconds, told
from tests.support.wait import at_least, wait_until

LIMIT_MS = 60
ROOT = Path(__file__).parents[2]
BUSY = """
import logging, threading, time
from rmqha.common.process import StallWatch
logging.basicConfig()
def call(depth):
    return depth and call(depth - 1)
def run():
    while time.monotonic() < end:
        call(50), [call(depth) for depth in range(40)]
end = time.monotonic() + 4
threads = [threading.Thread(target=run) for _ in range(6)]
watch = StallWatch(8)
watch.start()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
watch.shutdown()
print("alive")
"""


def hold_the_interpreter(seconds: float) -> None:
    """In calls that give nobody a turn; as often as it takes to have one of that length."""
    count = 100_000
    while True:
        begin = time.monotonic()
        sum(range(count))
        if time.monotonic() - begin > seconds:
            return
        count *= 2


@pytest.fixture
def watch(caplog):
    caplog.set_level(logging.INFO, "RocketmqCommon")
    one = StallWatch(LIMIT_MS)
    one.start()
    wait_until(lambda: "service started" in caplog.text)
    at_least(LIMIT_MS / 1000)
    yield one
    one.shutdown()


def stalls(caplog) -> list[str]:
    return [record.getMessage() for record in list(caplog.records) if "had a turn" in record.getMessage()]


def test_thread_that_holds_the_interpreter_is_named_with_its_stack(watch, caplog):
    done = threading.Event()

    def greedy() -> None:
        while not done.wait(LIMIT_MS / 1000):
            hold_the_interpreter(4 * LIMIT_MS / 1000)

    thread = threading.Thread(target=greedy, name="Greedy")
    thread.start()
    wait_until(lambda: any("Greedy" in one and "hold_the_interpreter" in one for one in stalls(caplog)), 60_000)
    done.set()
    thread.join()


def test_waiting_threads_are_not_blamed(watch, caplog):
    done = threading.Event()
    waiter = threading.Thread(target=done.wait, name="Waiter")
    waiter.start()
    at_least(LIMIT_MS / 1000)
    wait_until(lambda: hold_the_interpreter(4 * LIMIT_MS / 1000)
               or any("hold_the_interpreter" in one for one in stalls(caplog)), 60_000)
    assert not any("Waiter" in one for one in stalls(caplog))
    done.set()
    waiter.join()


def test_places_where_threads_wait_are_there():
    for file, name in _WAITING:
        if not file.startswith("rmqha/"):
            standard = Path(os.__file__).parent / file
            assert standard.is_file(), file  # a function that one version lacks does no harm
            continue
        functions = [node.name for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
                     if isinstance(node, ast.FunctionDef)]
        assert name in functions, (file, name)
    assert {file for file, _ in _WAITING if file.startswith("rmqha/")}


def test_garbage_collection_is_told(watch, caplog):
    def take_long(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"]) == ("start", 2):
            hold_the_interpreter(4 * LIMIT_MS / 1000)

    def is_told() -> bool:
        gc.collect()
        at_least(LIMIT_MS / 1000)
        return any("garbage collection of generation 2" in one for one in stalls(caplog))
    gc.callbacks.append(take_long)
    try:
        wait_until(is_told, what="a collection that took long")
    finally:
        gc.callbacks.remove(take_long)


def test_watch_of_zero_milliseconds_is_off():
    watch = StallWatch(0)
    watch.start()
    assert not watch.is_alive()
    watch.shutdown()


def test_stacks_of_busy_threads_come_in_the_order_of_their_time():
    done: list[bool] = []
    begun: list[int] = []

    def busy() -> None:
        begun.append(threading.get_ident())
        while not done:
            pass

    threads = [threading.Thread(target=busy, name=name) for name in ("One", "Two")]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == len(threads))
    stacks = busy_stacks(sys._current_frames())
    lines = list(told(stacks, {threads[1].ident: 0.02, threads[0].ident: 0.001}))
    done.append(True)
    for thread in threads:
        thread.join()
    assert threading.get_ident() not in stacks
    assert [line for line in lines if line.startswith(("  One", "  Two"))] == \
        ["  Two, CPU 20 ms", "  One, CPU 1 ms"]
    assert stacks[threads[0].ident][-1].endswith("_bootstrap")
    assert list(told({1: ["a.py:3 f"]}, {})) == ["  a thread that has ended, CPU 0 ms", "    a.py:3 f"]


def test_cpu_time_of_each_thread_is_told():
    mine = cpu_seconds()[threading.get_ident()]
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    assert cpu_seconds()[threading.get_ident()] - mine > 0.02


def test_watch_that_is_late_all_the_time_ends_no_process(tmp_path):
    """With a watchdog that reads frames without its turn, the process died of a segmentation fault within seconds."""
    program = tmp_path / "busy.py"
    program.write_text(BUSY, "utf-8")
    ended = subprocess.run([sys.executable, program], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600,
                           capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
    assert "had a turn" in ended.stderr
