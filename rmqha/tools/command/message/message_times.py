"""Moments on a command line."""
import re
from datetime import datetime

_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})#([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,3})\Z")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}\Z")


class TimestampError(ValueError):
    """A text that is not a moment."""


def timestamp_format(value: str) -> int:
    """Milliseconds since the epoch, or `yyyy-MM-dd#HH:mm:ss:SSS` in local time, as ms. TimestampError for all else.

    Java: org.apache.rocketmq.tools.command.message.PrintMessageSubCommand#timestampFormat (4.9.8)
    """
    if _NUMBER.match(value) and -1 << 63 <= int(value) < 1 << 63:
        return int(value)
    found = _DATE.match(value)
    # Differs: a text that is no moment, or one that no calendar has, is told so; the original ends in a
    # NullPointerException, or goes on with the 45th of December as a day in January
    try:
        if found is not None:
            year, month, day, hour, minute, second, millis = map(int, found.groups())
            return int(datetime(year, month, day, hour, minute, second).timestamp()) * 1000 + millis
    except (ValueError, OverflowError) as error:
        raise TimestampError(f"{value!r} is no moment: {error}") from error
    raise TimestampError(f"{value!r} is no moment: neither milliseconds since 1970 nor yyyy-MM-dd#HH:mm:ss:SSS")
