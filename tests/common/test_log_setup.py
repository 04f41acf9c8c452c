"""The log files: what the original's logback files say (captured in golden/logback.json) holds for rmqha's tables."""
import json
import logging
from pathlib import Path

import pytest

from rmqha.common import log_setup

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "logback.json").read_text("utf-8"))
TABLES = {"broker": log_setup.BROKER_FILES, "namesrv": log_setup.NAMESRV_FILES, "tools": log_setup.TOOLS_FILES}
PATTERNS = {"%p %t - %m%n": "%(asctime)s %(levelname)s %(threadName)s - %(message)s",
            "%p - %m%n": "%(asctime)s %(levelname)s - %(message)s", "- %m%n": "%(asctime)s - %(message)s",
            None: "%(asctime)s %(levelname)s %(threadName)s - %(message)s"}  # the original forgot one


@pytest.fixture
def no_handlers():
    """Takes the handlers of all loggers of RocketMQ away again."""
    names = {name for files in TABLES.values() for file in files for name in file.loggers}
    names |= {*log_setup.CONSOLE_LOGGERS, *log_setup.TOOLS_SILENT_LOGGERS}
    before = {name: (list(logging.getLogger(name).handlers), logging.getLogger(name).level,
                     logging.getLogger(name).propagate) for name in names}
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
    assert sorted(log_setup.CONSOLE_LOGGERS) == sorted(GOLDEN["broker"]["console"] + GOLDEN["namesrv"]["console"])
    assert sorted(log_setup.TOOLS_SILENT_LOGGERS) == sorted(GOLDEN["tools"]["nowhere"])


def test_all_files_are_there_from_the_start_and_roll_beside_the_brokers_of_the_host(tmp_path, no_handlers):
    log_setup.setup_broker_logging(str(tmp_path), "broker-a_0")
    logger = logging.getLogger("RocketmqWaterMark")
    logger.handlers[-1].maxBytes = 100
    for number in range(5):
        logger.info("line %d, long enough to fill most of a file that is so small as this one is", number)
    files = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.log"))
    wanted = [f"broker-a_0/{file['file']}" for file in GOLDEN["broker"]["files"]]
    assert files == sorted([*wanted, *(f"otherdays/broker-a_0/watermark.{number}.log" for number in range(1, 5))])


def test_tools_write_to_their_files_and_never_to_the_console(tmp_path, no_handlers, capfd):
    log_setup.setup_tools_logging(str(tmp_path))
    for name in ("RocketmqTools", "RocketmqCommon", "RocketmqRemoting", "SomethingElse"):
        logging.getLogger(name).error("%s says so", name)
    assert "RocketmqTools says so" in (tmp_path / "tools.log").read_text("utf-8")
    assert (tmp_path / "tools_default.log").read_text("utf-8").splitlines()[0].endswith("SomethingElse says so")
    assert len((tmp_path / "tools_default.log").read_text("utf-8").splitlines()) == 1
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_cannot_be_made_leaves_the_console(tmp_path, no_handlers, capfd):
    (tmp_path / "file").write_text("")
    log_setup.setup_namesrv_logging(str(tmp_path / "file" / "below"))
    logging.getLogger("RocketmqNamesrv").warning("still seen")
    assert "still seen" in capfd.readouterr().err


def test_line_of_megabytes_is_cut_in_its_middle():
    text = "begin" + "x" * (1 << 20) + "end"
    line = log_setup.JavaLevelFormatter().format(logging.LogRecord("n", logging.INFO, "f", 1, text, (), None))
    assert len(line) < log_setup.MAX_LINE + 100 and "begin" in line and line.endswith("end")
    assert f"... {len(text) + line.index('begin') - log_setup.MAX_LINE} characters ..." in line
