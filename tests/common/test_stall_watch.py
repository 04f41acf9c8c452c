"""Who kept the others from running is in the log, with its stack."""
import gc
import logging
import threading
import time

import pytest

from rmqha.common.stall_watch import StallWatch, busy_stacks
from tests.support.wait import wait_until

LIMIT_MS = 60


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
    time.sleep(LIMIT_MS / 1000)
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
    time.sleep(LIMIT_MS / 1000)
    wait_until(lambda: hold_the_interpreter(4 * LIMIT_MS / 1000)
               or any("hold_the_interpreter" in one for one in stalls(caplog)), 60_000)
    assert not any("Waiter" in one for one in stalls(caplog))
    done.set()
    waiter.join()


def test_garbage_collection_is_told(watch, caplog):
    kept: list[list] = []
    for _ in range(8):
        kept += [[] for _ in range(1_000_000)]
        gc.collect()
        time.sleep(LIMIT_MS / 1000)
        if any("garbage collection of generation 2" in one for one in stalls(caplog)):
            return
    raise AssertionError(caplog.text)


def test_watch_of_zero_milliseconds_is_off():
    watch = StallWatch(0)
    watch.start()
    assert not watch.is_alive()
    watch.shutdown()


def test_dump_of_anything_makes_no_error():
    nobodys = 'File "a.py", line 3 in f'
    for dump in ("", "Thread 0x1 (most recent call first):\n  <no Python frame>", "Thread 0x", nobodys):
        assert list(busy_stacks(dump, {})) == []
    dump = 'Thread 0x7 (most recent call first):\n  File "a.py", line 3 in f\n'
    assert list(busy_stacks(dump, {7: "Seven"})) == ["  Seven", "    a.py:3 f"]
    assert list(busy_stacks(dump, {})) == ["  a thread that has just begun", "    a.py:3 f"]
    assert list(busy_stacks(dump, {}, 7)) == []
