"""Cost of a piece of work, and resources that a process holds: descriptors, threads and names."""
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType

import psutil

from rmqha.common.stats import CallSnapshot
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

# Cost of a piece of work: calls, which do not depend on the machine, and the thread's CPU time.


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of functions called, Python's and C's, by `work`. An exception is dropped: a refusal has its
    cost, too."""
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
    """Return the CPU time of a run per byte; an exception is dropped."""
    begin = time.thread_time_ns()
    try:
        read(text)
    except ValueError:
        pass
    return (time.thread_time_ns() - begin) / len(text)


MOST_RUNS = 20
# Per byte; a cost that saturates, such as a budget of references, may grow up to this.
MOST_CALLS = 12


def assert_linear(make: Callable[[int], bytes], read: Callable[[bytes], object], size: int) -> None:
    """Check that reading a byte of `make(n)` takes no more calls, and no more time, if n grows from `size` to eight
    times that.

    A quadratic cost is eight times as high, whenever it is measured; half of that is allowed. The cost of a byte is
    the minimum of many runs: a busy machine makes some slower, none faster.
    """
    small, large = make(size), make(8 * size)
    per_byte = calls_of(lambda: read(small)) / len(small), calls_of(lambda: read(large)) / len(large)
    assert per_byte[1] <= max(per_byte[0] * 1.5 + 0.1, MOST_CALLS), per_byte
    most = min(_ns_per_byte(read, small) for _ in range(3)) * 4 + 500
    took = []
    while not took or took[-1] > most:
        took.append(_ns_per_byte(read, large))
        assert len(took) < MOST_RUNS, (most, took)


# Names that rmqha's modules and some objects keep, whatever other threads of the process do and its tests hold.

_AT_ONCE = 10_000  # objects whose references are listed in one call


def _is_own(name: object) -> bool:
    return str(name).partition(".")[0] == "rmqha"


def _is_own_namespace(one: ModuleType | type) -> bool:
    return _is_own(one.__name__ if isinstance(one, ModuleType) else one.__module__)


def _is_passed_through(kind: type) -> bool | None:
    """Return whether the references of an object of that type count, except those of the test runner. None: each
    object decides.

    Other libraries' modules and classes do not count. Each module refers to pytest by its loader, and so to all tests
    and their parameters, which are most of a process.
    """
    if issubclass(kind, (ModuleType, type)):
        return None
    return str(kind.__module__).partition(".")[0] not in ("_pytest", "pluggy")


def _reachable(*roots: object) -> Iterator[object]:
    """Yield everything that rmqha's modules and `roots` refer to, each once."""
    own = [module for name, module in list(sys.modules.items()) if _is_own(name)]
    seen = {id(vars(module)) for name, module in list(sys.modules.items())
            if not _is_own(name) and isinstance(module, ModuleType)}
    found: list[object] = [*own, *roots]
    passed: dict[type, bool | None] = {}  # there are many objects, and few types
    while found:
        fresh = []
        for one in found:
            if id(one) not in seen:
                seen.add(id(one))
                kind = type(one)
                if kind not in passed:
                    passed[kind] = _is_passed_through(kind)
                counts = passed[kind]
                if counts or (counts is None and _is_own_namespace(one)):
                    fresh.append(one)
        yield from fresh
        found = []
        for first in range(0, len(fresh), _AT_ONCE):
            part = fresh[first:first + _AT_ONCE]
            found += gc.get_referents(*part)
            found += [key for one in part if isinstance(one, dict) for key in dict.copy(one)]  # left out by the above


def names_kept(mark: str, *roots: object) -> set[str | bytes]:
    """Return all reachable strings and bytes that contain `mark`."""
    in_bytes = mark.encode()
    return {one for one in _reachable(*roots)
            if (type(one) is str and mark in one) or (type(one) is bytes and in_bytes in one)}


def own_objects(*roots: object) -> Counter[type]:
    """Return the number of reachable objects of each of rmqha's types, without the samples that counters take on
    their own."""
    types = Counter(map(type, _reachable(*roots)))
    return Counter({one: count for one, count in types.items() if _is_own(one.__module__) and one is not CallSnapshot})


# Resources that a process holds: descriptors and threads must return to their earlier numbers after a fault.


class Holdings:
    """Descriptors and threads of a server, counted now; `assert_returned` waits until no more are left than then."""

    def __init__(self, server: ServerProcess):
        self._process = psutil.Process(server.pid)
        self._spare_threads = 60 if server.command[0] == "java" else 4
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        return {"descriptors": self._process.num_fds(), "threads": self._process.num_threads()}

    def assert_returned(self, timeout_ms: int = 60_000) -> None:
        """Wait for the earlier numbers, plus a few: pools create their threads on demand (the JVM's by dozens),
        stores open a file."""
        spare = {"descriptors": 4, "threads": self._spare_threads}

        def returned() -> bool:
            return all(count <= self._before[what] + spare[what] for what, count in self._now().items())
        try:
            wait_until(returned, timeout_ms)
        except AssertionError:
            raise AssertionError(f"before: {self._before}, now: {self._now()}") from None

    def cpu_seconds(self) -> float:
        """Return the user and system time so far."""
        times = self._process.cpu_times()
        return times.user + times.system


class GoodClient:
    """A well-behaved connection that must not notice what other clients do: it sends and reads its own message each
    time."""

    def __init__(self, broker_address: str, topic: str = "GoodTopic"):
        self._client = RawClient(broker_address)
        self._topic = topic
        self._client.create_topic(topic, 1)
        self.sent = 0

    def check(self) -> None:
        """Send one message; check that it gets the next queue offset and can be read."""
        body = f"good {self.sent}".encode()
        answer = self._client.send_message_once(self._topic, body)
        assert answer.code in (0, 10, 11, 12), answer  # stored: SEND_OK or one of the timeout states
        assert int(answer.fields["queueOffset"]) == self.sent, answer
        wait_until(lambda: self._client.max_offset(self._topic, 0) == self.sent + 1, what="the message is dispatched")
        pulled = self._client.pull(self._topic, 0, self.sent)
        assert pulled.code == 0 and body in pulled.body, pulled
        self.sent += 1

    def close(self) -> None:
        """End the connection."""
        self._client.socket.close()
