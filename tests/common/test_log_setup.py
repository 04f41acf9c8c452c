"""The log files: what the original's logback files say (captured in golden/logback.json) holds for rmqha's tables."""
import json
import logging
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from rmqha.common import logs
from rmqha.common.logs import MAX_LINE, JavaLevelFormatter, LogFormat, LogLevel, LogStyle, LogTime

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "logback.json").read_text("utf-8"))
TABLES = {"broker": logs.BROKER_FILES, "namesrv": logs.NAMESRV_FILES, "tools": logs.TOOLS_FILES}
PATTERNS = {"%p %t - %m%n": "%(asctime)s %(levelname)s %(threadName)s - %(message)s",
            "%p - %m%n": "%(asctime)s %(levelname)s - %(message)s", "- %m%n": "%(asctime)s - %(message)s",
            None: "%(asctime)s %(levelname)s %(threadName)s - %(message)s"}  # the original forgot one


@pytest.fixture
def no_handlers():
    """Loggers of RocketMQ without handlers; those that they get are taken away again."""
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
def test_files_loggers_sizes_and_counts_are_the_originals(what):
    ours = {f"{file.name}.log": (sorted(file.loggers), file.max_bytes, file.max_index, file.line_format)
            for file in TABLES[what]}
    original = {file["file"]: (sorted(file["loggers"]), int(file["maxFileSize"].removesuffix("MB")) << 20,
                               file["maxIndex"], PATTERNS[file["pattern"]]) for file in GOLDEN[what]["files"]}
    assert ours == original


def test_console_and_silent_loggers_are_the_originals():
    assert sorted(logs.CONSOLE_LOGGERS) == sorted(GOLDEN["broker"]["console"] + GOLDEN["namesrv"]["console"])
    assert sorted(logs.TOOLS_SILENT_LOGGERS) == sorted(GOLDEN["tools"]["nowhere"])


def test_all_files_are_there_from_the_start_and_roll_beside_the_brokers_of_the_host(tmp_path, no_handlers):
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


def test_a_folder_that_cannot_be_made_leaves_the_console(tmp_path, no_handlers, capfd):
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
def test_handlers_to_come_see_the_names_of_levels_that_python_gives(log_format, level, written):
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


def test_lines_of_json_have_all_that_a_line_of_text_has_and_whose_it_is(in_kolkata):
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


def test_text_tells_local_time_or_utc(in_kolkata):
    formats = [LogStyle(time=log_time).formatter("%(asctime)s %(message)s") for log_time in LogTime]
    assert [each.format(record_at(1.25)) for each in formats] == ["1970-01-01 05:30:01 a", "1970-01-01 00:00:01 a"]


def test_level_is_that_of_the_style_until_it_is_changed(tmp_path, no_handlers):
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


def test_level_of_a_process_without_log_files_is_left_alone(no_handlers):
    logging.getLogger("RocketmqStore").setLevel(logging.CRITICAL)
    logs.set_level(LogLevel.DEBUG)
    assert logging.getLogger("RocketmqStore").level == logging.CRITICAL


def test_file_that_another_process_writes_to_is_told(tmp_path, no_handlers):
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
