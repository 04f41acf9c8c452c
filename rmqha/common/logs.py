"""Log files with the names, folders and line format of RocketMQ's logback files, and the config keys for their style.

The files are `<home>/logs/rocketmqlogs/[<broker>/]{namesrv,broker,store,remoting,...}.log`. They roll by size into
`<home>/logs/rocketmqlogs/otherdays/[<broker>/]<name>.<n>.log`. A line looks like
`2026-01-01 12:00:00 INFO threadName - text`.

`LogLevel`, `LogFormat` and `LogTime` are the values of the servers' config keys for the level and style of lines.
"""
import fcntl
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from logging.handlers import RotatingFileHandler
from typing import Any, BinaryIO

from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.program import discard_output, nobody_reads

# Characters; a longer line loses its middle.
MAX_LINE = 32 * 1024
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
FULL = "%(asctime)s %(levelname)s %(threadName)s - %(message)s"

_JAVA_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}


class LogLevel(Enum):
    """Java's names of the log levels; the value is Python's number."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARN = logging.WARNING
    ERROR = logging.ERROR


class LogFormat(Enum):
    """The format of log lines. TEXT: as the original's. JSON: an object per line."""

    TEXT = 0
    JSON = 1


class LogTime(Enum):
    """The time zone of the times in log lines: the host's, or UTC."""

    LOCAL = 0
    UTC = 1


@dataclass(frozen=True, eq=False)
class LogStyle:
    """The level and the format of log lines.

    `fields` (name, value) are added to each JSON line, to say which server wrote it.
    """

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    time: LogTime = LogTime.LOCAL
    fields: tuple[tuple[str, str | int], ...] = ()

    def formatter(self, line_format: str) -> "JavaLevelFormatter":
        """Return a formatter for a file whose text lines have the format `line_format`."""
        if self.format is LogFormat.JSON:
            return JsonFormatter(self.time, self.fields)
        return JavaLevelFormatter(line_format, self.time)


class JavaLevelFormatter(logging.Formatter):
    """A formatter with Java's level names: WARN for WARNING, ERROR for CRITICAL."""

    def __init__(self, line_format: str = FULL, log_time: LogTime = LogTime.LOCAL) -> None:
        super().__init__(line_format, DATE_FORMAT)
        if log_time is LogTime.UTC:
            self.converter = time.gmtime
        # The last second that was formatted, and its text.
        self._second = 0, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # logging's name
        """Return the record's time. The text is made once per second."""
        second, text = self._second
        if second != int(record.created):
            text = super().formatTime(record, datefmt)
            self._second = int(record.created), text
        return text

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line."""
        level = record.levelname
        record.levelname = _JAVA_LEVELS.get(level, level)
        try:
            return shortened(super().format(record))
        finally:
            record.levelname = level  # for the other handlers


class JsonFormatter(JavaLevelFormatter):
    """A formatter that writes one JSON object per line.

    Its fields are time (ISO 8601 with milliseconds and UTC offset), level, logger, thread, message, exception (the
    traceback, if there is one), and the server's own fields.
    """

    def __init__(self, log_time: LogTime = LogTime.LOCAL, fields: tuple[tuple[str, str | int], ...] = ()) -> None:
        super().__init__(FULL, log_time)
        self._zone = UTC if log_time is LogTime.UTC else None
        self._fields = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a line of JSON."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone(self._zone)
        line = {"time": moment.isoformat(timespec="milliseconds"),
                "level": _JAVA_LEVELS.get(record.levelname, record.levelname), "logger": record.name,
                "thread": record.threadName, **self._fields, "message": shortened(record.getMessage())}
        if record.exc_info:
            line["exception"] = shortened(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def shortened(line: str) -> str:
    """Return a line, without its middle if it is longer than MAX_LINE."""
    # Differs: a long log line is shortened, so that a name of megabytes in a request does not fill the log
    if len(line) > MAX_LINE:
        half = MAX_LINE // 2
        return f"{line[:half]} ... {len(line) - MAX_LINE} characters ... {line[-half:]}"
    return line


class ConsoleHandler(logging.StreamHandler):  # type: ignore[type-arg]  # generic for type checkers only
    """A handler that writes to the standard output until its reader closes it."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Handle a record that cannot be printed: discard all further output if the reader has closed it."""
        if isinstance(sys.exc_info()[1], BrokenPipeError) and nobody_reads():
            discard_output()
        else:
            super().handleError(record)


LOG_DIR_ENV = "ROCKETMQ_LOG_DIR"

_MEGABYTE = 1024 * 1024
_NO_THREAD = "%(asctime)s %(levelname)s - %(message)s"
_BARE = "%(asctime)s - %(message)s"


class LogFile:
    """One log file: its name without `.log`, the loggers that write to it, the size at which it rolls, the line format.

    `loggers` may contain "" for all loggers without their own file.
    """

    __slots__ = ("line_format", "loggers", "max_bytes", "max_index", "name")

    def __init__(self, name: str, loggers: tuple[str, ...], max_bytes: int = 100 * _MEGABYTE, max_index: int = 10,
                 line_format: str = FULL) -> None:
        self.name = name
        self.loggers = loggers
        self.max_bytes = max_bytes
        self.max_index = max_index
        self.line_format = line_format


NAMESRV_FILES = (
    LogFile("namesrv_default", ("",), max_index=5),
    LogFile("namesrv", ("RocketmqNamesrv", "RocketmqCommon", "RocketmqRemoting"), max_index=5),
)

BROKER_FILES = (
    LogFile("broker_default", ("",)),
    LogFile("broker", ("RocketmqBroker", "RocketmqCommon"), 128 * _MEGABYTE, 20),
    LogFile("protection", ("RocketmqProtection",), line_format=_BARE),
    LogFile("watermark", ("RocketmqWaterMark",), line_format=_BARE),
    LogFile("store", ("RocketmqStore",), 128 * _MEGABYTE),
    LogFile("storeerror", ("RocketmqStoreError",)),
    LogFile("remoting", ("RocketmqRemoting",)),
    LogFile("transaction", ("RocketmqTransaction",)),
    LogFile("lock", ("RocketmqRebalanceLock",), max_index=5),
    LogFile("filter", ("RocketmqFilter",)),
    LogFile("stats", ("RocketmqStats",), max_index=5, line_format=_NO_THREAD),
    LogFile("commercial", ("RocketmqCommercial",), 500 * _MEGABYTE),
)

_CONTROLLER = "RocketmqController"
CONTROLLER_FILES = (
    LogFile("controller_default", ("",), max_index=5),
    LogFile("controller", (_CONTROLLER, "RocketmqCommon", "RocketmqRemoting")),
)

TOOLS_FILES = (
    LogFile("tools_default", ("",), max_index=5),
    LogFile("tools", ("RocketmqTools",), max_index=5),
)
# The original's settings name an appender for these loggers that does not exist.
TOOLS_SILENT_LOGGERS = ("RocketmqCommon", "RocketmqStore", "RocketmqRemoting")

CONSOLE_LOGGERS = ("RocketmqConsole", "RocketmqNamesrvConsole")


class OtherDaysFileHandler(RotatingFileHandler):
    """A log file that rolls into `<old_folder>/<name>.<n>.log`; n is 1 for the newest.

    Rolling renames files and does not compress them, because it happens on the thread that logs.
    """

    # Differs: rolled log files are not compressed, and times are local where logback's pattern says GMT+8
    def __init__(self, path: str, max_bytes: int, max_index: int, old_folder: str | None = None) -> None:
        # Another process writes to the file too: it held the file's lock when this one opened it.
        self.is_shared = False
        self._old_folder = old_folder or os.path.join(os.path.dirname(os.path.abspath(path)), "otherdays")
        super().__init__(path, maxBytes=max_bytes, backupCount=max_index)

    def _open(self) -> BinaryIO:  # type: ignore[override]  # bytes: `emit` encodes
        stream = open(self.baseFilename, "ab")  # noqa: SIM115, the handler closes it
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_shared = False
        except BlockingIOError:
            self.is_shared = True
        except OSError:
            # A file system without locks: unknown.
            self.is_shared = False
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record's line; roll first if the line would make the file too large.

        A line is formatted only once, and the file is asked only for its length, because a name server that loses a
        broker with thousands of topics writes as many lines.
        """
        try:
            # Half a surrogate pair in a logged name must not lose the line.
            line = (self.format(record) + self.terminator).encode("utf-8", "backslashreplace")
            if self.stream is None:
                self.stream = self._open()  # type: ignore[assignment]  # see there
            stream: Any = self.stream
            size = stream.tell()
            if size and size + len(line) >= self.maxBytes:
                self.doRollover()
                stream = self.stream
            stream.write(line)
            stream.flush()
        except Exception:
            self.handleError(record)

    def rotation_filename(self, default_name: str) -> str:
        """Return the name of a rolled file: `<folder>/store.log.1` -> `<old_folder>/store.1.log`."""
        base, _, index = os.path.basename(default_name).rpartition(".")
        return os.path.join(self._old_folder, f"{base.removesuffix('.log')}.{index}.log")

    def doRollover(self) -> None:  # logging's name
        """Rename each old file to the next number, and start a new file."""
        os.makedirs(self._old_folder, exist_ok=True)
        super().doRollover()


def default_log_dir() -> str:
    """Return $ROCKETMQ_LOG_DIR, else `logs/rocketmqlogs` in the home folder."""
    return os.environ.get(LOG_DIR_ENV) or os.path.join(os.path.expanduser("~"), "logs", "rocketmqlogs")


def setup_namesrv_logging(log_dir: str | None = None, style: LogStyle | None = None,
                          with_controller: bool = False) -> None:
    """Let the loggers of a name server write to their files under `log_dir` (default: `default_log_dir()`)."""
    files = NAMESRV_FILES if not with_controller else (*NAMESRV_FILES, LogFile("controller", (_CONTROLLER,)))
    setup_logging(files, log_dir, style=style)


def setup_broker_logging(log_dir: str | None = None, sub_dir: str = "", style: LogStyle | None = None) -> None:
    """Let the loggers of a broker write to their files; `sub_dir` separates brokers of one host (isolateLogEnable)."""
    setup_logging(BROKER_FILES, log_dir, sub_dir, style)


def setup_controller_logging(log_dir: str | None = None, style: LogStyle | None = None) -> None:
    """Let the loggers of a controller write to their files."""
    setup_logging(CONTROLLER_FILES, log_dir, style=style)


def setup_tools_logging(log_dir: str | None = None) -> None:
    """Let the loggers of the admin tools write to their files, so that the console shows only what the tools print."""
    setup_logging(TOOLS_FILES, log_dir)
    for name in TOOLS_SILENT_LOGGERS:
        _attach(name, _formatted(logging.NullHandler(), JavaLevelFormatter()))


def setup_logging(files: tuple[LogFile, ...], log_dir: str | None = None, sub_dir: str = "",
                  style: LogStyle | None = None) -> None:
    """Give each logger its file, and the console loggers the standard output. Handlers of an earlier call are removed.

    When the folder cannot be created, all loggers write to the standard error. The default style is text, local time,
    INFO.
    """
    root, style = log_dir or default_log_dir(), style or LogStyle()
    folder, old_folder = os.path.join(root, sub_dir), os.path.join(root, "otherdays", sub_dir)
    usable = _usable(folder)
    for file in files:
        handler: logging.Handler = logging.StreamHandler(sys.stderr)
        if usable:
            path = os.path.join(folder, file.name + ".log")
            handler = OtherDaysFileHandler(path, file.max_bytes, file.max_index, old_folder)
        for name in file.loggers:
            _attach(name, _formatted(handler, style.formatter(file.line_format)))
    set_level(style.level)
    setup_console_logging()


def set_level(level: LogLevel) -> None:
    """Change the level of the loggers that write to this process's files, if it has any.

    Loggers without their own file (of libraries) stay at INFO.
    """
    for file in (*NAMESRV_FILES, *BROKER_FILES, *CONTROLLER_FILES):
        for logger in map(logging.getLogger, filter(None, file.loggers)):
            if any(isinstance(handler.formatter, JavaLevelFormatter) for handler in logger.handlers):
                logger.setLevel(level.value)


def setup_console_logging() -> None:
    """Let the console loggers, which print the config items, write to the standard output."""
    handler = _formatted(ConsoleHandler(sys.stdout), JavaLevelFormatter())
    for name in CONSOLE_LOGGERS:
        _attach(name, handler)


def log_files(*loggers: str) -> list[str]:
    """Return the files that these loggers currently write to."""
    return [handler.baseFilename for name in loggers for handler in _file_handlers(name)]


def shared_log_file(logger: str) -> str | None:
    """Return the file of a logger if another process writes to it too; None if not, or if that is unknown."""
    return next((handler.baseFilename for handler in _file_handlers(logger) if handler.is_shared), None)


def _file_handlers(logger: str) -> Iterator[OtherDaysFileHandler]:
    for handler in logging.getLogger(logger).handlers:
        if isinstance(handler, OtherDaysFileHandler):
            yield handler


def _attach(name: str, handler: logging.Handler) -> None:
    logger = logging.getLogger(name)
    for old in logger.handlers[:]:
        # Of an earlier call; keep foreign handlers.
        if isinstance(old.formatter, JavaLevelFormatter):
            logger.removeHandler(old)
            old.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _formatted(handler: logging.Handler, formatter: JavaLevelFormatter) -> logging.Handler:
    handler.setFormatter(formatter)
    return handler


def _usable(folder: str) -> bool:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as failure:
        logging.getLogger("RocketmqCommon").warning("no log files: cannot create the folder %s: %s", folder, failure)
        return False
    return os.access(folder, os.W_OK | os.X_OK)
