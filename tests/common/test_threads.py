"""ServiceThread, ScheduledService, NamedThreadPool, Waker: who wakes whom, and that nothing is left behind."""
import os
import selectors
import threading

import pytest

from rmqha.common.scheduled_service import ScheduledService
from rmqha.common.service_thread import ServiceThread
from rmqha.common.thread_pool import NamedThreadPool, RejectedExecutionError
from rmqha.common.waker import Waker
from tests.support.wait import wait_until


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


def test_wakeups_before_the_look_are_one_round():
    service = CountingService(60_000)
    for _ in range(100):
        service.wakeup()
    service.start()
    wait_until(lambda: service.rounds == 1)
    service.shutdown()
    assert service.rounds == 2  # the second is the shutdown's


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


def test_exception_in_run_is_logged(caplog):
    class Broken(ServiceThread):
        def run(self) -> None:
            raise ValueError("torn frame")

    service = Broken()
    service.start()
    wait_until(lambda: not service.is_alive())
    service.shutdown()
    assert "Broken service ended by an exception" in caplog.text


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


def test_scheduled_tasks_run_in_order_of_their_time():
    scheduler = ScheduledService("order")
    seen = []
    scheduler.schedule(lambda: seen.append("late"), 30)
    scheduler.schedule(lambda: seen.append("early"), 1)
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


def test_full_pool_rejects_and_survives_a_failing_task(caplog):
    gate, done = threading.Event(), []
    pool = NamedThreadPool("P_", 1, queue_capacity=1)
    started = threading.Event()

    def hold() -> None:
        started.set()
        gate.wait()
        raise ValueError("broken task")

    pool.submit(hold)
    assert started.wait(60)
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
    assert selector.select(5)
    waker.drain()
    assert not selector.select(0)
    waker.wakeup()
    assert selector.select(5)
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
