"""Stopping by a signal, whatever it interrupts."""
import ast
import random
import signal
import threading

import pytest

from rmqha.common import program
from rmqha.common.program import StopSignal, interrupted_later
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool
from tests.support.own_threads import own_threads
from tests.support.sources import modules


@pytest.fixture
def alarm():
    """Puts back what SIGALRM did."""
    before = signal.getsignal(signal.SIGALRM)
    yield signal.SIGALRM
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_signal_is_never_lost_however_close_to_the_wait_it_comes(alarm, monkeypatch):
    monkeypatch.setattr(program, "_LOOK_S", 0.05)
    rng = random.Random(1)
    for _ in range(1000):  # a threading.Event does not end, mostly within a thousand
        stop = StopSignal()
        signal.signal(alarm, stop.handler)
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 60e-6))
        assert stop.wait(240) and stop.is_set()


def test_all_that_wait_go_on_and_all_that_come_later():
    stop, seen = StopSignal(), []
    waiting = [threading.Thread(target=lambda: seen.append(stop.wait(240))) for _ in range(4)]
    for thread in waiting:
        thread.start()
    stop.set()
    stop.set()
    for thread in waiting:
        thread.join(240)
    assert seen == [True] * 4 and stop.wait() and stop.wait(0) and stop.is_set()


def test_waiting_ends_without_it():
    stop = StopSignal()
    assert not stop.wait(0.01) and not stop.is_set() and not stop.wait(0)


ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def test_a_program_that_nohup_started_ignores_the_end_of_its_terminal():
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stop = StopSignal.of_process()
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set() and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_process_is_told_by_each_signal():
    before = {number: signal.getsignal(number) for number in ENDING}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        for number in before:
            stop = StopSignal.of_process()
            signal.raise_signal(number)
            assert stop.wait(240)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_other_signals_wait_too_where_they_are_handled(number):
    before, steps = signal.getsignal(number), []

    def end(_number, _frame):
        steps.append("ended")
    try:
        signal.signal(number, end)
        with interrupted_later():
            signal.raise_signal(number)
            steps.append("went on")
        assert steps == ["went on", "ended"] and signal.getsignal(number) is end
        signal.signal(number, signal.SIG_DFL)
        with interrupted_later():
            assert signal.getsignal(number) is signal.SIG_DFL, "it ends the process at once, as before"
    finally:
        signal.signal(number, before)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_in_the_midst_has_its_effect_at_the_end():
    steps = []
    with pytest.raises(KeyboardInterrupt):
        with interrupted_later():
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
    assert steps == ["went on"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with interrupted_later():
        steps.append("nothing came")
    other = threading.Thread(target=lambda: interrupted_later().__enter__())
    other.start()
    other.join(240)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class _Service(ServiceThread):
    def run(self):
        while not self.stopped:
            self.wait_for_running(60_000)


@pytest.mark.usefixtures("interruptible")
def test_interrupt_while_a_thread_starts_leaves_one_that_can_be_ended(monkeypatch):
    service, pool, before = _Service(), NamedThreadPool("pool_", 1, 10), len(own_threads())
    real = threading.Thread.start

    def start(thread):
        signal.raise_signal(signal.SIGINT)
        real(thread)
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for begin in (service.start, lambda: pool.submit(str)):
            with pytest.raises(KeyboardInterrupt):
                begin()
    assert service.is_alive() and len(own_threads()) == before + 2
    service.shutdown()
    pool.shutdown()
    assert len(own_threads()) == before


def test_no_wait_misses_a_signal_that_comes_before_it():
    """signal.pause() waits for another one, without end, when the first has come between a look and the call."""
    found = [f"{path}:{node.lineno}" for path, tree in modules().items() for node in ast.walk(tree)
             if isinstance(node, ast.Call) and ast.unparse(node.func) in ("signal.pause", "signal.sigwait", "pause")]
    assert not found
