"""docs/limits.md says what the code does: `python -m tests.test_limits` writes its tables."""
import sys

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
    """Bytes as people say them."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if number >= 1 << shift and number % (1 << shift) == 0:
            return f"{number >> shift} {unit}"
    return f"{number:,}"


def tables() -> str:
    """Both tables."""
    lines = ["| request | bytes of the body | elements | counted are |", "|---|---|---|---|"]
    for code, limit in BODY_LIMITS.items():
        marks = "`{ [ , : \\`" if limit.marks == JSON_MARKS else "ends of lines and `\\`"
        lines.append(f"| {code_name(code)} | {size(limit.max_bytes)} | {limit.max_elements:,} | {marks} |")
    lines += ["", "| what | limit | beyond it |", "|---|---|---|"]
    closed = "the connection is closed, with one line in the log"
    lines += [f"| {what} | {limit} | {answer} |" for what, limit, answer in (
        ("a frame", size(FRAME_MAX_LENGTH), closed),
        ("a header", size(remoting_command.MAX_HEADER_LENGTH), closed),
        ("elements in a JSON header", f"{remoting_command.MAX_HEADER_ELEMENTS:,}", closed),
        ("fields in a ROCKETMQ header", f"{header_codec.MAX_EXT_FIELDS:,}", closed),
        ("a header in fastjson's dialect, or with objects or lists as fields",
         size(remoting_command.MAX_DIALECT_LENGTH), closed),
        ("levels of a JSON text", f"{fastjson.MAX_DEPTH:,}", "refused"),
        ("levels of a JSON text with references, or of a field that is not a text",
         f"{fastjson.MAX_WRITTEN_DEPTH:,}", "refused"),
        ("numbers beyond 16 bits that are keys of one object", f"{fastjson.MAX_WIDE_KEYS:,}", "refused"),
        ("numbers in a set", f"{remoting_serializable.MAX_NUMBERS_OF_SET:,}", "refused"),
        ("a compressed registration, inflated", size(cluster_bodies.MAX_INFLATED_SIZE)
         + f", and {cluster_bodies.MAX_RATIO} times its length beside "
         + size(cluster_bodies.FREE_INFLATED_SIZE), "SYSTEM_ERROR"),
        ("topics in a compressed registration", f"{cluster_bodies.MAX_TOPICS:,}", "SYSTEM_ERROR"),
        ("large requests of one connection that wait", f"{large_requests.MAX_WAITING_OF_ONE}, and "
         + size(large_requests.MAX_WAITING_BYTES_OF_ONE), "SYSTEM_BUSY"),
        ("large requests of all connections that wait", size(large_requests.MAX_WAITING_BYTES), "SYSTEM_BUSY"),
        ("requests of one connection that a pool serves at a time", f"1/{request_lines.SHARE} of its threads",
         "the others wait for their turn"),
        ("requests of one connection that wait for a pool", f"{request_lines.LONG_LINE}, and "
         + size(request_lines.LONG_LINE_BYTES), "the connection is not read from until half of them are begun"),
        ("requests of all connections to a port that wait for a pool", size(request_lines.MAX_WAITING_BYTES),
         "SYSTEM_BUSY"),
        ("answers that a connection has not read", size(channel.HIGH_WATER_MARK) + " (`writeBufferHighWaterMark`)",
         "none of its requests is begun until they are read"),
        ("frames that have begun, of all connections", size(io_thread.MAX_BEGUN_BYTES),
         "the connection whose frame began first is closed"),
        ("connections to the replication port that have reported nothing", str(ha_service.MAX_WAITING),
         "the most silent one is closed"),
        ("those of them whose questions about the log are answered, each by a thread", str(ha_service.MAX_COMPARING),
         "the most silent one is closed"),
    )]
    return "\n".join(lines) + "\n"


def rewritten() -> str:
    """The page with the tables as they are now."""
    text = PAGE.read_text("utf-8")
    before, after = text.index(BEGIN) + len(BEGIN), text.index(END)
    return text[:before] + tables() + text[after:]


def test_page_of_limits_is_true():
    assert PAGE.read_text("utf-8") == rewritten(), "python -m tests.test_limits"


if __name__ == "__main__":
    PAGE.write_text(rewritten(), "utf-8")
    sys.exit()
