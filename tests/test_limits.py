"""docs/limits.md matches the code; `python -m tests.test_limits` writes its tables."""
import sys
from collections.abc import Iterable

from rmqha.common.protocol import cluster_bodies
from rmqha.common.protocol.table_bodies import BODY_LIMITS, JSON_MARKS, code_name
from rmqha.remoting import channel, io_thread, large_requests, request_lines
from rmqha.remoting.frame_decoder import FRAME_MAX_LENGTH
from rmqha.remoting.protocol import fastjson, header_codec, remoting_command, remoting_serializable
from rmqha.store.ha import ha_service
from tests.support.sources import ROOT

PAGE = ROOT / "docs" / "limits.md"
BEGIN, END = "<!-- made by python -m tests.test_limits -->\n", "<!-- end -->\n"


def size(number: int) -> str:
    """Format bytes for people."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if number >= 1 << shift and number % (1 << shift) == 0:
            return f"{number >> shift} {unit}"
    return f"{number:,}"


def tables() -> str:
    """Return all tables."""
    bodies = [(code_name(code), size(limit.max_bytes), f"{limit.max_elements:,}",
               "`{ [ , : \\`" if limit.marks == JSON_MARKS else "line ends and `\\`")
              for code, limit in BODY_LIMITS.items()]
    headings = ("request", "bytes of the body", "elements", "counted characters")
    parts = ["## Bodies of requests", "", *table(headings, bodies), "", BEYOND_BODIES, ""]
    for heading, rows in (("## Frames and headers", FRAMES), ("## JSON", TEXTS), ("## Registrations", REGISTRATIONS),
                          ("## Waiting requests and answers", WAITING), ("## The replication port", REPLICATION)):
        parts += [heading, "", *table(("item", "limit", "above the limit"), rows), ""]
    return "\n".join(parts)


def table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (headings, ("---",) * len(headings), *rows)]


BEYOND_BODIES = """Above one of these limits the answer is SYSTEM_ERROR. It has the number and the limit: `the body of
HEART_BEAT (34) has 500000 elements, counted by { [ , : \\, the limit is 400000`. Elements are counted before
anything is parsed. The bodies of all other requests are not parsed: they are stored or passed on unchanged, up to
`maxMessageSize`."""
_CLOSED = "the connection is closed, with one log line"
_REFUSED = "the request is refused"
FRAMES = (
    ("a frame", size(FRAME_MAX_LENGTH), _CLOSED),
    ("a header", size(remoting_command.MAX_HEADER_LENGTH), _CLOSED),
    ("elements of a JSON header", f"{remoting_command.MAX_HEADER_ELEMENTS:,}", _CLOSED),
    ("fields of a ROCKETMQ header", f"{header_codec.MAX_EXT_FIELDS:,}", _CLOSED),
    ("a header in fastjson's dialect, or with objects or lists as fields", size(remoting_command.MAX_DIALECT_LENGTH),
     _CLOSED),
    ("incomplete frames of all connections", size(io_thread.MAX_BEGUN_BYTES),
     "the connection whose frame began first is closed"),
)
TEXTS = (
    ("nesting of a text", f"{fastjson.MAX_DEPTH:,} levels", _REFUSED),
    ("nesting of a text with references, or of a field that is not a string", f"{fastjson.MAX_WRITTEN_DEPTH:,} levels",
     _REFUSED),
    ("keys of one object that are numbers of more than 16 bits", f"{fastjson.MAX_WIDE_KEYS:,}", _REFUSED),
    ("numbers in a set", f"{remoting_serializable.MAX_NUMBERS_OF_SET:,}", _REFUSED),
)
REGISTRATIONS = (
    ("a compressed registration, inflated", f"{size(cluster_bodies.FREE_INFLATED_SIZE)} plus "
     f"{cluster_bodies.MAX_RATIO} times its length, at most {size(cluster_bodies.MAX_INFLATED_SIZE)}", "SYSTEM_ERROR"),
    ("topics of a compressed registration", f"{cluster_bodies.MAX_TOPICS:,}", "SYSTEM_ERROR"),
)
WAITING = (
    ("large requests of one connection", f"{large_requests.MAX_WAITING_OF_ONE}, and "
     + size(large_requests.MAX_WAITING_BYTES_OF_ONE), "SYSTEM_BUSY"),
    ("large requests of all connections", size(large_requests.MAX_WAITING_BYTES), "SYSTEM_BUSY"),
    ("requests of one connection that a pool serves at a time", f"1/{request_lines.SHARE} of its threads",
     "the others wait for their turn"),
    ("requests of one connection that wait for a pool", f"{request_lines.LONG_LINE}, and "
     + size(request_lines.LONG_LINE_BYTES), "the connection is not read until half of them have begun"),
    ("requests of all connections to a port that wait for a pool", size(request_lines.MAX_WAITING_BYTES),
     "SYSTEM_BUSY"),
    ("answers that a connection has not read", f"{size(channel.HIGH_WATER_MARK)} (`writeBufferHighWaterMark`)",
     "none of its requests begins until they are read"),
)
REPLICATION = (
    ("connections that have reported nothing", str(ha_service.MAX_WAITING), "the one silent for longest is closed"),
    ("those of them that compare the log, with a thread each", str(ha_service.MAX_COMPARING),
     "the one silent for longest is closed"),
)


def rewritten() -> str:
    """Return the page with its tables generated from the code."""
    text = PAGE.read_text("utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + tables() + text[after:]


def test_limits_page_matches_the_code():
    assert PAGE.read_text("utf-8") == rewritten(), "run: python -m tests.test_limits"


if __name__ == "__main__":
    PAGE.write_text(rewritten(), "utf-8")
    sys.exit()
