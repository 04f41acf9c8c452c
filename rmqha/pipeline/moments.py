"""Points in time as people write them."""
import re
import time
from datetime import UTC, datetime

from rmqha.pipeline.options import PipelineError

_AGO = {"d": 86_400_000, "h": 3_600_000, "m": 60_000}


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """ms since the epoch of: ms; an ISO date with or without a time, UTC unless it says otherwise; 30d, 12h or 90m ago.

    PipelineError for another text.
    """
    text = text.strip()
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    if ago := re.fullmatch(r"(\d{1,9})([dhm])", text, re.ASCII):
        now = int(time.time() * 1000) if now_ms is None else now_ms
        return now - int(ago[1]) * _AGO[ago[2]]
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise PipelineError(f"{text!r} is no time: give ms, 2026-03-01, 2026-03-01T12:00:00+01:00, or how long ago, "
                            "such as 30d or 12h") from None
