"""Fixtures for tests that start whole servers (rmqha's and RocketMQ's), and the order in which tests run."""
import gc
import logging
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import patience, schedule, tiers, wait
from tests.support.wait import Laps, wait_until

# Wall seconds per test file.
_SECONDS: Counter[str] = Counter()
# CPU seconds per test file, summed in the process that reports.
_CPU: Counter[str] = Counter()
_LAPS: list[Laps] = []  # laps of this process
_FAILED = pytest.StashKey[bool]()
# Test runs that tests start themselves record no durations.
_NOTES_DURATIONS = os.environ.pop("RMQHA_NOTE_DURATIONS", "") == "1"

# The contexts of the person who runs the tests are no part of them.
os.environ.pop("RMQHA_CONTEXT", None)
os.environ["RMQHA_CONTEXTS_FILE"] = os.path.join(os.sep, "nonexistent", "contexts.json")

# No deadline: a machine that stalls for half a second must not fail a test.
settings.register_profile("new draws", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same draws", parent=settings.get_profile("new draws"), derandomize=True, database=None)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the tier. When several processes run tests in parallel, each takes its ports from its own range and
    records the threads that it starts."""
    named = config.args_source is pytest.Config.ArgsSource.ARGS or bool(config.option.keyword or config.option.markexpr)
    tiers.choose(names_tests=named)
    settings.register_profile("few draws", settings.get_profile("same draws"), max_examples=tiers.drawn(100))
    settings.load_profile(tiers.pick("few draws", all="same draws", long="new draws"))
    wait.note_starts()
    _LAPS.append(Laps())
    from tests.support import ports
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ports.claim()
    ports.use_part(int(worker.removeprefix("gw")) if worker else 0, count)
    if getattr(config.option, "numprocesses", None) and not worker and not named:
        files = schedule.test_files(config.rootpath)
        schedule.rewrite(config.rootpath, [file for file in files if not _is_left_out(file, config)],
                          os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each process whole files (or folders, see `schedule`), in the order of the collection."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return schedule.unit(schedule.path_of(nodeid))
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load a file none of whose tests will run."""
    if not collection_path.name.startswith("test_") or not collection_path.is_file():
        return None
    return _is_left_out(collection_path, config) or None


def _is_left_out(file: Path, config: pytest.Config) -> bool:
    return (tiers.runs_none_of(file, file.relative_to(config.rootpath).as_posix())
            or schedule.is_left_out(config.option.keyword, file, config.rootpath))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers, and put the longest files first when several processes run them."""
    left_out = [item for item in items if not tiers.runs(_tier_of(item))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if tiers.runs(_tier_of(item))]
    if seed := os.environ.get("RMQHA_TEST_SHUFFLE"):
        items[:] = schedule.shuffled(items, seed)
    elif hasattr(config, "workerinput"):
        items[:] = schedule.longest_first(items)
    _skip_without_java(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exempt imported modules and collected tests from later garbage collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _tier_of(item: pytest.Item) -> str:
    return tiers.tier_of(schedule.path_of(item.nodeid), item.iter_markers(), getattr(item, "fixturenames", ()))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Attribute the threads started from here on to this test, and let its requests wait for a busy machine."""
    patience.be_patient(item.get_closest_marker("own_timeouts") is None)
    wait.begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Delete the folder of a test that has passed: all of them together take 2 GB. pytest's own cleanup may delete the
    folder of another run that starts at the same time.

    After the last test of a file, record the CPU that the file took, and remove the log handlers that it has set up.
    """
    try:
        yield
        folder = getattr(item, "funcargs", {}).get("tmp_path")
        if folder is not None and not item.stash.get(_FAILED, False):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        if nextitem is None or nextitem.path != item.path:
            item.user_properties.append(("cpu", _LAPS[-1].lap()))
            _forget_logs()


def _forget_logs() -> None:
    """Reset RocketMQ's loggers to the state of a new process: commands that run in this one configure them."""
    logging.root.setLevel(logging.WARNING)
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("Rocketmq")]:
        logger = logging.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the durations of each file."""
    path = schedule.path_of(report.nodeid)
    _SECONDS[path] += report.duration
    if report.when == "teardown":
        _CPU[path] += dict(report.user_properties).get("cpu", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the CPU seconds of all files."""
    terminalreporter.write_line(f"CPU of the tests and of what they started: {_CPU.total():.0f} s")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Save the durations with RMQHA_NOTE_DURATIONS=1, for the order of the next run."""
    if _NOTES_DURATIONS and not hasattr(session.config, "workerinput"):
        schedule.write(_SECONDS, _CPU)


def _skip_without_java(items: list[pytest.Item]) -> None:
    """Skip tests marked `java`, with the reason, where Java is missing; with RMQHA_REQUIRE_JAVA=1 they fail."""
    marked = [item for item in items if item.get_closest_marker("java")]
    if not marked or os.environ.get("RMQHA_REQUIRE_JAVA") == "1":
        return
    from tests.support import real_rocketmq
    reason = real_rocketmq.why_unavailable()
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the end of each server's output to a failed test, and keep its folder."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
        fixtures = getattr(item, "funcargs", {})
        for node in fixtures.get("nodes", []) + fixtures.get("module_nodes", []):
            report.sections.append((f"output of {node.name}", node.tail()))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[None]:
    """Replace unpaired surrogates in logs and failure texts: they can't be sent to the reporting process, and would
    end this one."""
    return _sendable((yield))


def _sendable(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    return type(value)(map(_sendable, value)) if isinstance(value, (list, tuple)) else value


@contextmanager
def _killed_at_the_end() -> Iterator[list]:
    started: list = []
    try:
        yield started
    finally:
        for node in reversed(started):
            node.kill()


@pytest.fixture(autouse=True, scope="module")
def _clients_are_shut_down() -> Iterator[None]:
    """Fail a file that leaves a client running: it would query its name server and start threads during all later
    tests."""
    before = wait.running_clients()
    yield
    wait_until(lambda: wait.running_clients() <= before, what="the clients of this file to be shut down")


@pytest.fixture
def nodes() -> Iterator[list]:
    """The servers of this test; all are killed at its end, the most recent first."""
    with _killed_at_the_end() as started:
        yield started


@pytest.fixture(scope="module")
def module_nodes() -> Iterator[list]:
    """The servers that the tests of a module share; killed after its last test."""
    with _killed_at_the_end() as started:
        yield started


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Make SIGINT raise KeyboardInterrupt, whatever handler an earlier test of this process has installed (Spark's
    does)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def make_namesrv(nodes: list, tmp_path: Path) -> Callable:
    """make_namesrv(kind) -> a running NamesrvNode."""
    from tests.support.nodes import NamesrvNode

    def make(kind: str, name: str = "namesrv", shared_jvm: bool = True):
        node = NamesrvNode(kind, tmp_path / name, name, shared_jvm)
        nodes.append(node)
        return node.start()
    return make


@pytest.fixture
def make_broker(nodes: list, tmp_path: Path) -> Callable:
    """make_broker(kind, namesrv_address, name, **properties) -> a running BrokerNode (start=False: not started yet)."""
    from tests.support.nodes import BrokerNode

    def make(kind: str, namesrv: str | None, name: str = "broker", start: bool = True, **properties: object):
        node = BrokerNode(kind, tmp_path / name, namesrv, name, **properties)
        nodes.append(node)
        return node.start() if start else node
    return make


@pytest.fixture
def real_namesrv(make_namesrv: Callable):
    """A running name server of the real RocketMQ."""
    return make_namesrv("java")


@pytest.fixture
def rmqha_namesrv(make_namesrv: Callable):
    """A running rmqha name server process."""
    return make_namesrv("rmqha")


@pytest.fixture
def real_broker(make_broker: Callable) -> Callable:
    """real_broker(namesrv_address, name, **properties) -> a running broker of the real RocketMQ."""
    return lambda namesrv, name="broker", **properties: make_broker("java", namesrv, name, **properties)


@pytest.fixture
def rmqha_broker(make_broker: Callable) -> Callable:
    """rmqha_broker(namesrv_address, name, **properties) -> a running rmqha broker process."""
    return lambda namesrv, name="broker", **properties: make_broker("rmqha", namesrv, name, **properties)


@pytest.fixture(scope="session")
def java_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """The JVM with the official client and mqadmin; one for the whole test run."""
    from tests.support.java_driver import JavaDriver
    driver = JavaDriver(tmp_path_factory.mktemp("java-driver")).start()
    yield driver
    driver.shutdown()
