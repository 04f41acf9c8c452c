"""A server's process: its log files, systemd, stalls, stacks of threads, and pausing the garbage collector."""
import ast
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from rmqha.common import logs
from rmqha.common import process as sd_notify
from rmqha.common.garbage_pause import no_garbage_collection
from rmqha.common.logs import MAX_LINE, JavaLevelFormatter, LogFormat, LogLevel, LogStyle, LogTime
from rmqha.common.process import _WAITING, StallWatch, busy_stacks, cpu_seconds, told
from rmqha.common.program import StopSignal
from rmqha.common.threads import current_frames, thread_stacks
from tests.broker.support import running_broker
from tests.support import ports
from tests.support.sources import ROOT
from tests.support.wait import at_least, wait_until

# Notifications to systemd, over a socket that stands in for systemd's.


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    """The socket; `systemd.told()` is the next datagram, as lines."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        path = str(tmp_path / "notify")
        receiver.bind(path)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
        yield receiver


def sd_notify_told(receiver: socket.socket) -> list[str]:
    return receiver.recv(4096).decode().split("\n")


def is_silent(receiver: socket.socket) -> bool:
    receiver.settimeout(0.2)
    try:
        receiver.recv(4096)
    except TimeoutError:
        return True
    return False


def test_ready_and_stopping_are_sent(systemd):
    sd_notify.ready("serves at port 1")
    assert sd_notify_told(systemd) == ["READY=1", "STATUS=serves at port 1"]
    sd_notify.stopping()
    assert sd_notify_told(systemd) == ["STOPPING=1", "STATUS=stopping"]


def test_socket_may_be_an_abstract_one(monkeypatch):
    name = f"rmqha-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
        assert sd_notify.notify("READY=1") and sd_notify_told(receiver) == ["READY=1"]


def test_nothing_is_sent_without_systemd_and_a_dead_socket_is_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sd_notify.notify("READY=1") and caplog.text == ""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    assert not sd_notify.notify("READY=1") and "cannot notify systemd of READY=1" in caplog.text


@pytest.mark.parametrize(("text", "pid", "seconds"), [
    ("3000000", None, 3.0), ("3000000", "own", 3.0), ("3000000", "1", None), ("", None, None),
    ("0", None, None), ("soon", None, None)])
def test_watchdog_applies_only_to_the_intended_process(monkeypatch, text, pid, seconds):
    monkeypatch.setenv("WATCHDOG_USEC", text)
    if pid is None:
        monkeypatch.delenv("WATCHDOG_PID", raising=False)
    else:
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)
    assert sd_notify.watchdog_s() == seconds


def test_watchdog_is_notified_only_while_the_service_is_alive(systemd, monkeypatch, caplog):
    monkeypatch.setenv("WATCHDOG_USEC", "40000")
    lives, stop, given = threading.Event(), StopSignal(), []
    lives.set()

    def looks(timeout_s: float) -> bool:
        given.append(timeout_s)
        return lives.is_set()

    waiter = threading.Thread(target=sd_notify.wait, args=(stop, looks))
    waiter.start()
    try:
        assert sd_notify_told(systemd) == sd_notify_told(systemd) == ["WATCHDOG=1"]
        lives.clear()
        count = len(given)
        wait_until(lambda: len(given) > count + 1)
        systemd.setblocking(False)
        try:
            while True:  # drain earlier notifications
                systemd.recv(4096)
        except BlockingIOError:
            assert is_silent(systemd)
        assert "the service's threads do not answer within 0.0 s" in caplog.text
        lives.set()
        systemd.settimeout(60)
        assert sd_notify_told(systemd) == ["WATCHDOG=1"] and set(given) == {0.01}
    finally:
        stop.set()
        waiter.join(240)


def test_health_is_not_checked_without_a_watchdog(systemd):
    stop = StopSignal()
    stop.set()
    sd_notify.wait(stop, lambda timeout_s: pytest.fail("checked without a watchdog"))
    assert is_silent(systemd)


def test_broker_is_alive_while_its_threads_answer(tmp_path, monkeypatch):
    with running_broker(tmp_path) as broker:
        controller = broker.controller
        assert controller.lives(60)
        held, go_on = threading.Event(), threading.Event()
        controller.remoting_server.io.post(lambda: (held.set(), go_on.wait(240)))
        assert held.wait(240)
        assert not controller.lives(0.2)
        go_on.set()
        assert controller.lives(60)
        controller.message_store.reput_message_service.shutdown()
        assert not controller.lives(60)


@pytest.mark.parametrize("server", ["namesrv", "broker"])
def test_servers_notify_ready_alive_and_stopping(systemd, tmp_path, server):
    port = ports.free_broker_port()
    config = tmp_path / "server.properties"
    config.write_text(f"listenPort={port}\nkvConfigPath={tmp_path}/kv.json\n" if server == "namesrv" else
                      f"listenPort={port}\nbrokerIP1=127.0.0.1\nbrokerName=b\nstorePathRootDir={tmp_path}/store\n"
                      "mappedFileSizeCommitLog=1000000\n")
    environment = {**os.environ, "HOME": str(tmp_path), "WATCHDOG_USEC": "400000", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-m", f"rmqha.{server}.{server}_startup", "-c", str(config)],
                               env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path)
    try:
        at = f"serves at port {port}" if server == "namesrv" else f"b 0 serves at 127.0.0.1:{port}"
        assert sd_notify_told(systemd) == ["READY=1", f"STATUS={at}"]
        with socket.create_connection(("127.0.0.1", port), 60):
            assert sd_notify_told(systemd) == ["WATCHDOG=1"]
        process.send_signal(signal.SIGTERM)
        while (message := sd_notify_told(systemd)) == ["WATCHDOG=1"]:
            continue
        assert message == ["STOPPING=1", "STATUS=stopping"] and process.wait(240) == 0
    finally:
        process.kill()
        process.wait()


# The thread that kept the others from running is logged with its stack.

LIMIT_MS = 60
ROOT = Path(__file__).parents[2]
BUSY = """
import logging, threading, time
from rmqha.common.process import StallWatch
logging.basicConfig()
def call(depth):
    return depth and call(depth - 1)
def run():
    while time.monotonic() < end:
        call(50), [call(depth) for depth in range(40)]
end = time.monotonic() + 4
threads = [threading.Thread(target=run) for _ in range(6)]
watch = StallWatch(8)
watch.start()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
watch.shutdown()
print("alive")
"""


def hold_the_interpreter(seconds: float) -> None:
    """Make calls that never release the GIL, doubling their work until one takes that long."""
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
    at_least(LIMIT_MS / 1000)
    yield one
    one.shutdown()


def stalls(caplog) -> list[str]:
    return [record.getMessage() for record in list(caplog.records) if "had a turn" in record.getMessage()]


def test_thread_that_holds_the_gil_is_named_with_its_stack(watch, caplog):
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
    at_least(LIMIT_MS / 1000)
    wait_until(lambda: hold_the_interpreter(4 * LIMIT_MS / 1000)
               or any("hold_the_interpreter" in one for one in stalls(caplog)), 60_000)
    assert not any("Waiter" in one for one in stalls(caplog))
    done.set()
    waiter.join()


def test_known_waiting_functions_exist():
    for file, name in _WAITING:
        if not file.startswith("rmqha/"):
            standard = Path(os.__file__).parent / file
            # A function that one version lacks does no harm.
            assert standard.is_file(), file
            continue
        functions = [node.name for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
                     if isinstance(node, ast.FunctionDef)]
        assert name in functions, (file, name)
    assert {file for file, _ in _WAITING if file.startswith("rmqha/")}


def test_garbage_collection_is_reported(watch, caplog):
    def take_long(phase: str, info: dict[str, int]) -> None:
        if (phase, info["generation"]) == ("start", 2):
            hold_the_interpreter(4 * LIMIT_MS / 1000)

    def is_told() -> bool:
        gc.collect()
        at_least(LIMIT_MS / 1000)
        return any("garbage collection of generation 2" in one for one in stalls(caplog))
    gc.callbacks.append(take_long)
    try:
        wait_until(is_told, what="a collection that took long")
    finally:
        gc.callbacks.remove(take_long)


def test_watch_of_zero_milliseconds_is_off():
    watch = StallWatch(0)
    watch.start()
    assert not watch.is_alive()
    watch.shutdown()


def test_stacks_of_busy_threads_are_ordered_by_their_time():
    done: list[bool] = []
    begun: list[int] = []

    def busy() -> None:
        begun.append(threading.get_ident())
        while not done:
            pass

    threads = [threading.Thread(target=busy, name=name) for name in ("One", "Two")]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(begun) == len(threads))
    stacks = busy_stacks(sys._current_frames())
    lines = list(told(stacks, {threads[1].ident: 0.02, threads[0].ident: 0.001}))
    done.append(True)
    for thread in threads:
        thread.join()
    assert threading.get_ident() not in stacks
    assert [line for line in lines if line.startswith(("  One", "  Two"))] == \
        ["  Two, CPU 20 ms", "  One, CPU 1 ms"]
    assert stacks[threads[0].ident][-1].endswith("_bootstrap")
    assert list(told({1: ["a.py:3 f"]}, {})) == ["  a thread that has ended, CPU 0 ms", "    a.py:3 f"]


def test_cpu_time_of_each_thread_is_measured():
    mine = cpu_seconds()[threading.get_ident()]
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    assert cpu_seconds()[threading.get_ident()] - mine > 0.02


def test_watch_that_is_always_late_does_not_crash_the_process(tmp_path):
    """A watchdog that read frames without holding the GIL crashed the process with a segmentation fault within
    seconds."""
    program = tmp_path / "busy.py"
    program.write_text(BUSY, "utf-8")
    ended = subprocess.run([sys.executable, program], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=600,
                           capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr
    assert "had a turn" in ended.stderr


# The stacks of all threads.


def test_each_thread_is_shown_innermost_call_first():
    begun, over = threading.Event(), threading.Event()

    def waits_for_its_end():
        begun.set()
        over.wait(240)
    thread = threading.Thread(target=waits_for_its_end, name="the-waiting-one")
    thread.start()
    try:
        assert begun.wait(240)
        calls = [line for line in thread_stacks().splitlines() if line.startswith("the-waiting-one")]
    finally:
        over.set()
        thread.join()
    assert f"TID: {thread.native_id} " in calls[0]
    names = [line[40:].partition("(")[0] for line in calls[1:]]
    assert names.index("waits_for_its_end") < names.index("run") < names.index("_bootstrap")


@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_the_frames_are_taken(monkeypatch, collects):
    seen, take = [], sys._current_frames

    def watched():
        seen.append(gc.isenabled())
        return take()
    monkeypatch.setattr(sys, "_current_frames", watched)
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert threading.get_ident() in current_frames()
        assert seen == [False] and gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


# The garbage collector is paused while large data is decoded, and restored afterwards.


def test_collector_is_paused_until_the_last_user_ends():
    assert gc.isenabled()
    inside, may_end = threading.Event(), threading.Event()

    def other():
        with no_garbage_collection:
            inside.set()
            may_end.wait(240)

    thread = threading.Thread(target=other)
    with no_garbage_collection:
        thread.start()
        assert inside.wait(240)
    assert not gc.isenabled()
    may_end.set()
    thread.join(240)
    assert gc.isenabled()


def test_collector_resumes_after_an_error():
    with pytest.raises(ValueError), no_garbage_collection:
        raise ValueError
    assert gc.isenabled()


def test_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with no_garbage_collection:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


# The log files: the original's logback files (captured in golden/logback.json) hold for rmqha's tables.

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "logback.json").read_text("utf-8"))
TABLES = {"broker": logs.BROKER_FILES, "namesrv": logs.NAMESRV_FILES, "tools": logs.TOOLS_FILES}
PATTERNS = {"%p %t - %m%n": "%(asctime)s %(levelname)s %(threadName)s - %(message)s",
            "%p - %m%n": "%(asctime)s %(levelname)s - %(message)s", "- %m%n": "%(asctime)s - %(message)s",
            None: "%(asctime)s %(levelname)s %(threadName)s - %(message)s"}  # the original forgot one


@pytest.fixture
def no_handlers():
    """Loggers of RocketMQ without handlers; handlers that they get are removed again."""
    names = {name for files in TABLES.values() for file in files for name in file.loggers}
    names |= {*logs.CONSOLE_LOGGERS, *logs.TOOLS_SILENT_LOGGERS}
    before = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).level,
                     logging.getLogger(name).propagate) for name in names}
    for name in names:
        logging.getLogger(name).handlers.clear()
    yield
    for name, (handlers, level, propagate) in before.items():
        logger = logging.getLogger(name)
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers[:] = handlers
        logger.setLevel(level)
        logger.propagate = propagate


@pytest.mark.parametrize("what", list(TABLES))
def test_files_loggers_sizes_and_counts_equal_the_originals(what):
    ours = {f"{file.name}.log": (sorted(file.loggers), file.max_bytes, file.max_index, file.line_format)
            for file in TABLES[what]}
    original = {file["file"]: (sorted(file["loggers"]), int(file["maxFileSize"].removesuffix("MB")) << 20,
                               file["maxIndex"], PATTERNS[file["pattern"]]) for file in GOLDEN[what]["files"]}
    assert ours == original


def test_console_and_silent_loggers_equal_the_originals():
    assert sorted(logs.CONSOLE_LOGGERS) == sorted(GOLDEN["broker"]["console"] + GOLDEN["namesrv"]["console"])
    assert sorted(logs.TOOLS_SILENT_LOGGERS) == sorted(GOLDEN["tools"]["nowhere"])


def test_all_files_exist_from_the_start_and_roll_separately_for_brokers_of_one_host(tmp_path, no_handlers):
    logs.setup_broker_logging(str(tmp_path), "broker-a_0")
    logger = logging.getLogger("RocketmqWaterMark")
    logger.handlers[-1].maxBytes = 100
    for number in range(5):
        logger.info("line %d, long enough to fill most of a file that is so small as this one is", number)
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.log"))
    wanted = [f"broker-a_0/{file['file']}" for file in GOLDEN["broker"]["files"]]
    assert files == sorted([*wanted, *(f"otherdays/broker-a_0/watermark.{number}.log" for number in range(1, 5))])


def test_tools_write_to_their_files_and_never_to_the_console(tmp_path, no_handlers, capfd):
    logs.setup_tools_logging(str(tmp_path))
    for name in ("RocketmqTools", "RocketmqCommon", "RocketmqRemoting", "SomethingElse"):
        logging.getLogger(name).error("%s says so", name)
    assert "RocketmqTools says so" in (tmp_path / "tools.log").read_text("utf-8")
    assert (tmp_path / "tools_default.log").read_text("utf-8").splitlines()[0].endswith("SomethingElse says so")
    assert len((tmp_path / "tools_default.log").read_text("utf-8").splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_folder_that_cannot_be_created_leaves_the_console(tmp_path, no_handlers, capfd):
    (tmp_path / "file").write_text("")
    logs.setup_namesrv_logging(str(tmp_path / "file" / "below"))
    logging.getLogger("RocketmqNamesrv").warning("still seen")
    assert "still seen" in capfd.readouterr().err


def test_line_of_megabytes_is_cut_in_its_middle():
    text = "begin" + "x" * (1 << 20) + "end"
    line = JavaLevelFormatter().format(logging.LogRecord("n", logging.INFO, "f", 1, text, (), None))
    assert len(line) < MAX_LINE + 100 and "begin" in line and line.endswith("end")
    assert f"... {len(text) + line.index('begin') - MAX_LINE} characters ..." in line


@pytest.mark.parametrize("log_format", list(LogFormat))
@pytest.mark.parametrize(("level", "written"), [(logging.WARNING, "WARN"), (logging.CRITICAL, "ERROR")])
def test_later_handlers_see_pythons_level_names(log_format, level, written):
    record = logging.LogRecord("RocketmqBroker", level, "f", 1, "a text", (), None)
    assert written in LogStyle(format=log_format).formatter("%(levelname)s").format(record)
    assert record.levelname == logging.getLevelName(level) != written


@pytest.fixture
def in_kolkata(monkeypatch):
    """A time zone far from UTC."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def record_at(seconds, text="a", **attributes):
    made = logging.LogRecord("RocketmqStore", logging.WARNING, "f", 1, text, (), None)
    made.created, made.threadName = seconds, "FlushCommitLogService"
    vars(made).update(attributes)
    return made


def test_json_lines_have_everything_a_text_line_has_and_the_source(in_kolkata):
    fields = (("brokerName", "broker-a"), ("brokerId", 1))
    for log_time, text in ((LogTime.LOCAL, "1970-01-01T05:30:01.250+05:30"),
                           (LogTime.UTC, "1970-01-01T00:00:01.250+00:00")):
        style = LogStyle(format=LogFormat.JSON, time=log_time, fields=fields)
        line = style.formatter("ignored").format(record_at(1.25, 'two\n"lines" ü'))
        assert "\n" not in line and json.loads(line) == {
            "time": text, "level": "WARN", "logger": "RocketmqStore", "thread": "FlushCommitLogService",
            "brokerName": "broker-a", "brokerId": 1, "message": 'two\n"lines" ü'}
        assert datetime.fromisoformat(text).timestamp() == 1.25


def test_exception_is_a_field_of_json():
    try:
        raise ValueError("why")
    except ValueError:
        line = LogStyle(format=LogFormat.JSON).formatter("").format(record_at(1, exc_info=sys.exc_info()))
    found = json.loads(line)
    assert found["message"] == "a" and found["exception"].startswith("Traceback") and "ValueError: why" in line


def test_text_shows_local_time_or_utc(in_kolkata):
    formats = [LogStyle(time=log_time).formatter("%(asctime)s %(message)s") for log_time in LogTime]
    assert [each.format(record_at(1.25)) for each in formats] == ["1970-01-01 05:30:01 a", "1970-01-01 00:00:01 a"]


def test_level_is_the_default_of_the_style_until_changed(tmp_path, no_handlers):
    logs.setup_broker_logging(str(tmp_path), style=LogStyle(LogLevel.WARN))
    for step, level in enumerate((None, LogLevel.DEBUG, LogLevel.ERROR)):
        if level is not None:
            logs.set_level(level)
        for name in ("debug", "info", "warning", "error"):
            getattr(logging.getLogger("RocketmqStore"), name)("%d %s", step, name)
    lines = [line.split(" - ")[1] for line in (tmp_path / "store.log").read_text("utf-8").splitlines()]
    assert lines == ["0 warning", "0 error", "1 debug", "1 info", "1 warning", "1 error", "2 error"]
    logging.getLogger("SomethingElse").debug("of a library")
    assert (tmp_path / "broker_default.log").read_text() == ""


def test_level_of_a_process_without_log_files_is_unchanged(no_handlers):
    logging.getLogger("RocketmqStore").setLevel(logging.CRITICAL)
    logs.set_level(LogLevel.DEBUG)
    assert logging.getLogger("RocketmqStore").level == logging.CRITICAL


def test_file_that_another_process_writes_to_is_reported(tmp_path, no_handlers):
    logs.setup_broker_logging(str(tmp_path / "alone"))
    assert logs.shared_log_file("RocketmqBroker") is None
    code = ("import sys\nfrom rmqha.common import logs\nlogs.setup_broker_logging(sys.argv[1])\n"
            "print('ready', flush=True)\nsys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "both")], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as other:
        assert other.stdout.readline() == "ready\n"
        logs.setup_broker_logging(str(tmp_path / "both"))
        assert logs.shared_log_file("RocketmqBroker") == str(tmp_path / "both" / "broker.log")
        other.stdin.close()
