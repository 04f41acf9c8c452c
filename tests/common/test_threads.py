"""Threads, pools and calls run ahead: wakeups, order, and clean shutdown."""
import os
import selectors
import threading

import pytest

from rmqha.common import threads as thread_pool
from rmqha.common.futures import ANSWER, COUNT, REPLICATE, WAKE, Round, WorkAhead, at_round_end, usable_cores
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService, Waker
from tests.support.wait import at_least, own_threads, wait_until

# ServiceThread, ScheduledService, NamedThreadPool, Waker: wakeups, order, and clean shutdown.


class CountingService(ServiceThread):
    def __init__(self, interval_ms: float) -> None:
        super().__init__()
        self.interval_ms = interval_ms
        self.rounds = 0
        self.waits = 0

    def run(self) -> None:
        while not self.stopped:
            self.wait_for_running(self.interval_ms)
            self.rounds += 1

    def on_wait_end(self) -> None:
        self.waits += 1


def test_wakeup_ends_a_long_wait():
    service = CountingService(60_000)
    service.start()
    service.wakeup()
    wait_until(lambda: service.rounds == 1)
    assert service.waits == 1
    service.shutdown()
    assert not service.is_alive()


def test_several_wakeups_before_a_check_are_one_round():
    service = CountingService(60_000)
    for _ in range(100):
        service.wakeup()
    service.start()
    wait_until(lambda: service.rounds == 1)
    service.shutdown()
    # The second round is the shutdown's.
    assert service.rounds == 2


def test_shutdown_is_idempotent_and_the_service_starts_again():
    service = CountingService(1)
    service.start()
    service.start()
    service.shutdown()
    service.shutdown()
    rounds = service.rounds
    service.start()
    wait_until(lambda: service.rounds > rounds)
    service.shutdown()


def test_thread_carries_the_service_name():
    seen = []

    class Named(ServiceThread):
        def get_service_name(self) -> str:
            return "ReputMessageService"

        def run(self) -> None:
            seen.append(threading.current_thread().name)

    service = Named()
    service.start()
    wait_until(lambda: seen)
    service.shutdown()
    assert seen == ["ReputMessageService"]


class Failing(ServiceThread):
    """Raises the given errors, one per round, and then works."""

    def __init__(self, *errors: BaseException) -> None:
        super().__init__()
        self.errors = list(errors)
        self.rounds = self.failed = 0

    def run(self) -> None:
        while not self.stopped:
            self.rounds += 1
            if self.errors:
                self.failed += 1
                raise self.errors.pop(0)
            self.wait_for_running(1)


def test_exception_in_run_is_logged_and_the_service_continues(caplog):
    service = Failing(ValueError("torn frame"), SystemExit(3), MemoryError(), GeneratorExit())
    service.start()
    wait_until(lambda: service.rounds > 10)
    assert service.is_alive() and service.failure is None and service.failed == 4
    service.shutdown()
    assert not service.is_alive()
    assert caplog.text.count("Failing service has exception. ") == 3 and "torn frame" in caplog.text  # 1st, 2nd, 4th


def test_service_that_fails_repeatedly_pauses(caplog):
    class AlwaysFails(ServiceThread):
        rounds = 0

        def run(self) -> None:
            self.rounds += 1
            raise OSError("disk")

    service = AlwaysFails()
    service.start()
    wait_until(lambda: service.rounds >= 4)
    service.shutdown()
    assert service.rounds < 100
    # Three attempts to end cleanly.
    assert not service.is_alive() and isinstance(service.failure, OSError)
    assert "AlwaysFails service cannot shut down in order: OSError('disk')" in caplog.text


def test_service_gives_up_after_its_limit_and_logs_it(caplog):
    class Limited(Failing):
        max_failures = 3

    told = []
    service = Limited(*[OSError("selector")] * 10)
    service.on_failed = told.append
    service.start()
    wait_until(lambda: not service.is_alive())
    assert told == [service] and service.failed == 3
    assert "Limited service gives up after 3 failures in a row: OSError('selector')" in caplog.text
    service.errors.clear()
    service.shutdown()
    service.start()
    wait_until(lambda: service.rounds > 10)
    service.shutdown()
    assert service.failure is None


def test_failed_end_is_retried():
    ends = []

    class EndsBadlyOnce(ServiceThread):
        def run(self) -> None:
            while not self.stopped:
                self.wait_for_running(1000)
            ends.append(self)
            if len(ends) == 1:
                raise OSError("flush")

    service = EndsBadlyOnce()
    service.start()
    service.shutdown()
    assert len(ends) == 2 and service.failure is None


@pytest.mark.parametrize("error", [SystemExit(1), MemoryError()])
def test_fatal_error_of_a_task_does_not_end_its_thread(error):
    scheduler, pool, seen = ScheduledService("tasks"), NamedThreadPool("pool_", 1), []

    def task() -> None:
        seen.append(threading.current_thread())
        raise error

    scheduler.schedule_at_fixed_rate(task, 0, 1)
    wait_until(lambda: len(seen) >= 3)
    scheduler.shutdown()
    assert len(set(seen)) == 1
    for _ in range(3):
        pool.submit(task)
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(240) and len(set(seen)) == 2
    pool.shutdown()


def test_pool_that_can_not_start_a_thread_rejects(monkeypatch):
    pool = NamedThreadPool("pool_", 2)

    def no_thread(_thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(RejectedExecutionError, match="can't start new thread"):
        pool.submit(print)
    monkeypatch.undo()
    assert pool.queue_size() == 0
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(240)
    pool.shutdown()


def test_failing_scheduled_task_stays_scheduled():
    scheduler = ScheduledService("StoreScheduledThread1")
    runs = []

    def task() -> None:
        runs.append(threading.current_thread().name)
        raise OSError("disk")

    scheduler.schedule_at_fixed_rate(task, 0, 1)
    wait_until(lambda: len(runs) >= 3)
    scheduler.shutdown()
    count = len(runs)
    assert set(runs) == {"StoreScheduledThread1"}
    scheduler.schedule(task, 0)
    assert len(runs) == count  # nothing runs after shutdown


def test_scheduled_tasks_run_in_the_order_of_their_times():
    scheduler = ScheduledService("order")
    seen, both_are_due = [], threading.Event()
    scheduler.schedule(both_are_due.wait, 0)
    scheduler.schedule(lambda: seen.append("late"), 30)
    scheduler.schedule(lambda: seen.append("early"), 1)
    at_least(0.03)
    both_are_due.set()
    wait_until(lambda: len(seen) == 2)
    scheduler.shutdown()
    assert seen == ["early", "late"]


def test_pool_runs_everything_and_names_its_threads():
    names, lock = [], threading.Lock()

    def work() -> None:
        with lock:
            names.append(threading.current_thread().name)

    pool = NamedThreadPool("SendMessageThread_", 2)
    for _ in range(50):
        pool.submit(work)
    pool.shutdown()
    assert len(names) == 50 and set(names) <= {"SendMessageThread_1", "SendMessageThread_2"}


def test_task_does_not_wait_for_an_earlier_one_while_threads_are_available():
    came, results = threading.Event(), []
    pool = NamedThreadPool("P_", 2)
    pool.submit(came.set)
    assert came.wait(240)
    wait_until(lambda: pool._idle == 1)
    second_ran = threading.Event()
    # The idle thread was notified of the first task, but has not fetched it yet.
    with pool._not_empty:
        pool.submit(lambda: results.append(second_ran.wait(240)))
        pool.submit(second_ran.set)
    pool.shutdown(120_000)
    assert results == [True] and len(pool._threads) == 2


def test_pool_starts_no_thread_while_one_is_idle():
    pool = NamedThreadPool("P_", 8)
    for _ in range(20):
        pool.submit(lambda: None)
        wait_until(lambda: pool._idle == 1 and pool.queue_size() == 0)
    pool.shutdown()
    assert len(pool._threads) == 1


def test_full_pool_rejects_and_survives_a_failing_task(caplog):
    gate, done = threading.Event(), []
    pool = NamedThreadPool("P_", 1, queue_capacity=1)
    started = threading.Event()

    def hold() -> None:
        started.set()
        gate.wait()
        raise ValueError("broken task")

    pool.submit(hold)
    assert started.wait(240)
    pool.submit(done.append, 1)
    with pytest.raises(RejectedExecutionError):
        pool.submit(done.append, 2)
    gate.set()
    pool.shutdown()
    assert done == [1] and "broken task" in caplog.text
    with pytest.raises(RejectedExecutionError):
        pool.submit(done.append, 3)


def test_waker_wakes_a_select_once_for_many_calls():
    waker, selector = Waker(), selectors.DefaultSelector()
    selector.register(waker, selectors.EVENT_READ)
    threads = [threading.Thread(target=waker.wakeup) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert selector.select(120)
    waker.drain()
    assert not selector.select(0)
    waker.wakeup()
    assert selector.select(120)
    selector.close()
    waker.close()


def test_closed_waker_never_writes_to_a_reused_descriptor():
    waker = Waker()
    number = waker.fileno()
    waker.close()
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    waker.wakeup()
    waker.close()
    assert number in (reader, writer) or waker.fileno() == -1
    with pytest.raises(BlockingIOError):
        os.read(reader, 8)
    os.close(reader)
    os.close(writer)


# Calls run ahead: each exactly once, in the order in which results are taken, and none after the end.


def test_number_of_usable_cores():
    assert 1 <= usable_cores() <= 8


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_each_call_runs_once_and_returns_its_own_result(threads):
    done = []
    with WorkAhead("Ahead_", threads) as work:
        begun = [work.begin(lambda number=number: (done.append(number), number)[1]) for number in range(200)]
        assert [each.take() for each in begun] == list(range(200))
        assert begun[7].take() == 7
    assert sorted(done) == list(range(200))
    assert not any(thread.name.startswith("Ahead_") for thread in own_threads())


@pytest.mark.parametrize("threads", [0, 1])
def test_error_is_raised_where_the_result_is_taken(threads):
    with WorkAhead("Ahead_", threads) as work:
        failing = work.begin(lambda: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            failing.take()
        assert work.begin(lambda: 5).take() == 5


def test_end_waits_for_running_calls_and_leaves_the_rest():
    begun, go_on, done = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        assert go_on.wait(240)
        done.append(1)

    with WorkAhead("Ahead_", 1) as work:
        work.begin(first)
        rest = work.begin(lambda: done.append(2))
        assert begun.wait(240)
        threading.Timer(0.05, go_on.set).start()
    assert done == [1]
    rest.take()
    assert done == [1, 2]


def test_call_runs_in_the_taker_when_no_thread_starts(monkeypatch):
    def no_thread(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(thread_pool.threading.Thread, "start", no_thread)
    with WorkAhead("Ahead_", 2) as work:
        assert work.begin(threading.current_thread).take() is threading.current_thread()


# Round: the actions of one channel or service at its end do not disturb the others.


class Counted:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.times = 0

    def act(self) -> None:
        self.times += 1
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("torn"), MemoryError(), SystemExit(1)])
def test_failure_of_one_does_not_stop_the_others(error, caplog):
    first, broken, third = Counted(), Counted(error), Counted()
    last_broken, last = Counted(error), Counted()
    with Round():
        for one in (first, broken, third):
            assert at_round_end(ANSWER, one.act)
        for one in (last_broken, last):
            assert at_round_end(WAKE, one.act)
    assert [one.times for one in (first, broken, third, last_broken, last)] == [1] * 5
    assert caplog.text.count("at the end of a round failed") == 2
    assert not at_round_end(ANSWER, first.act)  # the round is over


def test_failure_within_a_round_still_runs_queued_actions():
    queued = Counted()
    with pytest.raises(ValueError), Round():
        at_round_end(ANSWER, queued.act)
        raise ValueError
    assert queued.times == 1


def test_counts_and_wakes_follow_sends_each_in_the_order_requested():
    done = []
    with Round():
        for phase in (WAKE, ANSWER, COUNT, REPLICATE):
            assert at_round_end(phase, lambda phase=phase: done.append(phase))
        with Round():  # joins
            at_round_end(ANSWER, lambda: done.append("inner"))
        assert not done
    assert done == [ANSWER, REPLICATE, "inner", WAKE, COUNT]


def test_action_requested_twice_runs_once():
    one = Counted()
    with Round():
        at_round_end(ANSWER, one.act)
        at_round_end(ANSWER, one.act)
    assert one.times == 1
