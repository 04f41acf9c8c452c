"""What a piece of work costs: calls, which do not depend on the machine, and the thread's CPU time."""
import sys
import time
from collections.abc import Callable


def calls_of(work: Callable[[], object]) -> int:
    """Functions called, Python's and C's, by `work`; what it raises is dropped: a refusal has its cost, too."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        work()
    except ValueError:
        return count
    finally:
        sys.setprofile(before)
    return count


def _ns_per_byte(read: Callable[[bytes], object], text: bytes) -> float:
    """The CPU time of a run; what it raises is dropped."""
    begin = time.thread_time_ns()
    try:
        read(text)
    except ValueError:
        pass
    return (time.thread_time_ns() - begin) / len(text)


MOST_CALLS = 12  # for a byte; what saturates, as a budget of references does, may grow up to here


def assert_linear(make: Callable[[int], bytes], read: Callable[[bytes], object], size: int) -> None:
    """Each byte of `make(n)` takes no more calls, and no more time, to read when n grows from `size` to eight times it.

    What is quadratic takes eight times as much; half of that is allowed, as machines are busy, and calls are not.
    """
    small, large = make(size), make(8 * size)
    per_byte = calls_of(lambda: read(small)) / len(small), calls_of(lambda: read(large)) / len(large)
    assert per_byte[1] <= max(per_byte[0] * 1.5 + 0.1, MOST_CALLS), per_byte
    ns = [min(_ns_per_byte(read, small), _ns_per_byte(read, small)), _ns_per_byte(read, large)]
    most = ns[0] * 4 + 500
    if ns[1] > most:  # the less of two counts, as for the small one: a busy machine makes some take longer
        ns[1] = min(ns[1], _ns_per_byte(read, large))
    assert ns[1] <= most, ns
