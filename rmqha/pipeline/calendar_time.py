"""Times of messages as the tables have them: microseconds, and null beyond the calendar.

Spark and Python know the years 1 to 9999, in the time zone of whoever shows a time: so a day less at either end.
"""

FIRST_MS = -62_135_510_400_000  # 0001-01-02
LAST_MS = 253_402_214_399_999  # 9999-12-30


def micros(timestamp: int) -> int | None:
    """Of ms; None beyond the calendar, whatever a producer has put there (nanoseconds, for instance)."""
    return timestamp * 1000 if FIRST_MS <= timestamp <= LAST_MS else None
