"""How long until the clock on the wall shows a full minute, hour or day; local time."""
import datetime


def ms_to_next_minute() -> int:
    """Milliseconds to the next full minute."""
    return _ms_to_next(datetime.timedelta(minutes=1), second=0, microsecond=0)


def ms_to_next_hour() -> int:
    """Milliseconds to the next full hour."""
    return _ms_to_next(datetime.timedelta(hours=1), minute=0, second=0, microsecond=0)


def ms_to_next_morning() -> int:
    """Milliseconds to the next midnight."""
    return _ms_to_next(datetime.timedelta(days=1), hour=0, minute=0, second=0, microsecond=0)


def _ms_to_next(step: datetime.timedelta, **fields: int) -> int:
    now = datetime.datetime.now()
    return int(((now + step).replace(**fields) - now).total_seconds() * 1000)
