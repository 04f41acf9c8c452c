"""Completable, atomics and the Java rules."""
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.futures import AtomicBoolean, AtomicInteger, AtomicLong, Completable
from rmqha.common.java import hash_map_order, int32, int64, string_hash_code


def test_first_completion_wins_and_late_callbacks_run_at_once():
    seen = []
    future = Completable()
    future.then(seen.append)
    assert future.complete(1) and not future.complete(2)
    future.then(seen.append)
    assert seen == [1, 1] and future.get() == 1 and future.is_done


def test_get_times_out_and_get_waits():
    future = Completable()
    with pytest.raises(TimeoutError):
        future.get(1)
    threading.Timer(0.02, future.complete, ["late"]).start()
    assert future.get(60_000) == "late"


@pytest.mark.parametrize("order", ["first", "second", "both"])
def test_combine_waits_for_both(order):
    a, b = Completable(), Completable()
    if order == "both":
        a.complete(1), b.complete(2)
    both = Completable.combine(a, b, lambda x, y: (x, y))
    for future, value in ((a, 1), (b, 2)) if order == "first" else ((b, 2), (a, 1)):
        future.complete(value)
    assert both.get(60_000) == (1, 2)


def test_failing_callback_is_logged_and_others_run(caplog):
    seen = []
    future = Completable()
    future.then(lambda _value: 1 / 0)
    future.then(seen.append)
    future.complete(5)
    assert seen == [5] and "ZeroDivisionError" in caplog.text


def test_then_apply_never_stays_open(caplog):
    future = Completable()
    applied = future.then_apply(lambda value: value // 0, lambda error: type(error).__name__)
    future.complete(1)
    assert applied.get(0) == "ZeroDivisionError"


def test_parallel_increments_lose_nothing():
    counter = AtomicInteger()
    threads = [threading.Thread(target=lambda: [counter.increment_and_get() for _ in range(2000)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.get() == 8000


def test_atomics_wrap_like_java():
    assert AtomicInteger(2**31 - 1).increment_and_get() == -(2**31)
    assert AtomicLong(2**63 - 1).increment_and_get() == -(2**63)
    number = AtomicLong(5)
    assert not number.set_max(5) and number.set_max(6) and number.compare_and_set(6, 1) and number.get() == 1
    flag = AtomicBoolean()
    assert flag.compare_and_set(False, True) and not flag.compare_and_set(False, True)


@given(st.integers())
def test_wraps_stay_in_range_and_agree_modulo(value):
    assert -(2**31) <= int32(value) < 2**31 and (int32(value) - value) % 2**32 == 0
    assert -(2**63) <= int64(value) < 2**63 and (int64(value) - value) % 2**64 == 0


@pytest.mark.parametrize("text, code", [
    ("", 0), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("TagA", 2598919),
    ("消息", 893927), ("😀", 1772899)])
def test_string_hash_code_is_javas(text, code):
    assert string_hash_code(text) == code


def test_hash_map_order_is_javas():
    # Seen on OpenJDK 17: HashMap with these puts, keySet().
    keys = ["KEYS", "UNIQ_KEY", "CLUSTER", "WAIT", "TAGS"]
    assert hash_map_order(keys) == keys  # UNIQ_KEY and CLUSTER share a bucket: insertion decides
    assert hash_map_order(["BBBB", "AaAa", "AaBB", "BBAa"]) == ["BBBB", "AaAa", "AaBB", "BBAa"]
    numbers = [0, 119, 84, 7, 154, 21, 175, 42, 112, 63, 133, 14, 35, 196, 56, 91, 147, 168, 105, 70, 126, 203, 77, 98,
               189, 161, 182, 140, 28, 49]
    assert hash_map_order(f"key{i * 7}" for i in range(30)) == [f"key{n}" for n in numbers]
