"""Times of messages as the tables have them: microseconds, and null beyond the calendar."""

LAST_MS = 253_402_300_799_999  # 9999-12-31


def micros(timestamp: int) -> int | None:
    """Of ms; None beyond the calendar, whatever a producer has put there (nanoseconds, for instance)."""
    return timestamp * 1000 if -LAST_MS <= timestamp <= LAST_MS else None
