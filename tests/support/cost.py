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


MOST_RUNS = 20
MOST_CALLS = 12  # for a byte; what saturates, as a budget of references does, may grow up to here


def assert_linear(make: Callable[[int], bytes], read: Callable[[bytes], object], size: int) -> None:
    """Each byte of `make(n)` takes no more calls, and no more time, to read when n grows from `size` to eight times it.

    What is quadratic takes eight times as much, whenever it is measured; half of that is allowed. What a byte costs is
    the least of many runs: a busy machine makes some take longer, none shorter.
    """
    small, large = make(size), make(8 * size)
    per_byte = calls_of(lambda: read(small)) / len(small), calls_of(lambda: read(large)) / len(large)
    assert per_byte[1] <= max(per_byte[0] * 1.5 + 0.1, MOST_CALLS), per_byte
    most = min(_ns_per_byte(read, small) for _ in range(3)) * 4 + 500
    took = []
    while not took or took[-1] > most:
        took.append(_ns_per_byte(read, large))
        assert len(took) < MOST_RUNS, (most, took)
