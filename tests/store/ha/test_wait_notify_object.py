import threading
import time

from rmqha.store.ha.wait_notify_object import WaitNotifyObject
from tests.support.wait import at_least, lasting, wait_until


def waiters(notify: WaitNotifyObject, count: int, interval_ms: int, rounds: int = 2):
    waited = []

    def wait():
        for _round in range(rounds):  # the first wait of a thread returns at once
            notify.all_wait_for_running(interval_ms)
        waited.append(time.monotonic())
        notify.remove_from_waiting_thread_table()

    threads = [threading.Thread(target=wait) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads, waited


def test_all_waiters_wake():
    notify = WaitNotifyObject()
    threads, waited = waiters(notify, 5, 60_000)
    wait_until(lambda: notify._asleep == 5)
    notify.wakeup_all()
    for thread in threads:
        thread.join(900)
    assert len(waited) == 5 and notify.waiting_threads == 0


def test_waiting_ends_at_the_interval():
    notify = WaitNotifyObject()
    with lasting(0.05):
        threads, waited = waiters(notify, 1, 50)
        threads[0].join(900)
    assert len(waited) == 1


def test_a_wakeup_while_the_waiter_works_is_not_lost():
    notify = WaitNotifyObject()
    notify.all_wait_for_running(1)
    notify.wakeup_all()
    notify.wakeup_all()
    began = time.monotonic()
    notify.all_wait_for_running(600_000)
    assert time.monotonic() - began < 300
    with lasting(0.03):
        notify.all_wait_for_running(30)


def test_no_wakeup_is_lost_between_two_threads():
    notify, produced, consumed = WaitNotifyObject(), [0], []
    rounds = 3000

    def consume():
        seen = 0
        while seen < rounds:
            if produced[0] == seen:
                before = time.monotonic()
                notify.all_wait_for_running(600_000)
                assert time.monotonic() - before < 300, "a wake-up was lost"
            seen = produced[0]
            consumed.append(seen)

    thread = threading.Thread(target=consume)
    thread.start()
    for number in range(1, rounds + 1):
        produced[0] = number
        notify.wakeup_all()
        if number % 7 == 0:
            at_least(0)
    thread.join(900)
    assert consumed[-1] == rounds
