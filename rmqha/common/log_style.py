"""What lines of log files look like, and from which level on they are written: config keys of both kinds of server."""
import json
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

MAX_LINE = 32 * 1024  # characters; the middle of a longer one is left out
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
FULL = "%(asctime)s %(levelname)s %(threadName)s - %(message)s"

_JAVA_LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}


class LogLevel(Enum):
    """Java's names of the levels; the value is Python's number."""

    DEBUG = logging.DEBUG
    INFO = logging.INFO
    WARN = logging.WARNING
    ERROR = logging.ERROR


class LogFormat(Enum):
    """TEXT: lines as the original's. JSON: an object a line."""

    TEXT = 0
    JSON = 1


class LogTime(Enum):
    """Whose clock lines tell: that of the host's time zone, or UTC."""

    LOCAL = 0
    UTC = 1


@dataclass(frozen=True, eq=False)
class LogStyle:
    """The level, and how lines are written. `fields` (name, value) stand in each line of JSON: which server
    wrote it."""

    level: LogLevel = LogLevel.INFO
    format: LogFormat = LogFormat.TEXT
    time: LogTime = LogTime.LOCAL
    fields: tuple[tuple[str, str | int], ...] = ()

    def formatter(self, line_format: str) -> "JavaLevelFormatter":
        """One for a file whose lines of text look like `line_format`."""
        if self.format is LogFormat.JSON:
            return JsonFormatter(self.time, self.fields)
        return JavaLevelFormatter(line_format, self.time)


class JavaLevelFormatter(logging.Formatter):
    """Lines with Java's level names: WARN for WARNING, ERROR for CRITICAL."""

    def __init__(self, line_format: str = FULL, log_time: LogTime = LogTime.LOCAL) -> None:
        super().__init__(line_format, DATE_FORMAT)
        if log_time is LogTime.UTC:
            self.converter = time.gmtime
        self._second = 0, ""  # the last one that was formatted, and its text

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # logging's name
        """The record's time; made once a second."""
        second, text = self._second
        if second != int(record.created):
            text = super().formatTime(record, datefmt)
            self._second = int(record.created), text
        return text

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        level = record.levelname
        record.levelname = _JAVA_LEVELS.get(level, level)
        try:
            return shortened(super().format(record))
        finally:
            record.levelname = level  # other handlers write it too


class JsonFormatter(JavaLevelFormatter):
    """An object a line: time (ISO 8601, milliseconds, with its distance to UTC), level, logger, thread, message,
    exception (its traceback, where there is one), and the server's own fields."""

    def __init__(self, log_time: LogTime = LogTime.LOCAL, fields: tuple[tuple[str, str | int], ...] = ()) -> None:
        super().__init__(FULL, log_time)
        self._zone = UTC if log_time is LogTime.UTC else None
        self._fields = dict(fields)

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON."""
        moment = datetime.fromtimestamp(record.created, UTC).astimezone(self._zone)
        line = {"time": moment.isoformat(timespec="milliseconds"),
                "level": _JAVA_LEVELS.get(record.levelname, record.levelname), "logger": record.name,
                "thread": record.threadName, **self._fields, "message": shortened(record.getMessage())}
        if record.exc_info:
            line["exception"] = shortened(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)


def shortened(line: str) -> str:
    """A line without the middle of what is longer than MAX_LINE."""
    # Differs: a name of megabytes that a request has is not written into the log in full
    if len(line) > MAX_LINE:
        half = MAX_LINE // 2
        return f"{line[:half]} ... {len(line) - MAX_LINE} characters ... {line[-half:]}"
    return line
