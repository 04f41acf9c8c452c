"""Points in time as people write them."""
from rmqha.common import units
from rmqha.pipeline.options import PipelineError


def parse_moment(text: str, now_ms: int | None = None) -> int:
    """ms since 1970, of a time as all commands take it; PipelineError for another text."""
    try:
        return units.parse_time(text, now_ms)
    except units.UnitError as error:
        raise PipelineError(str(error)) from None
