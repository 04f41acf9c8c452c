"""Lines from outside, and the JSON in them: whatever they hold, in bounded memory; a ValueError says what is wrong."""
import reprlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from rmqha.common.compression import MAX_DECOMPRESSED_SIZE
from rmqha.common.texts import JsonTextError, parse_json

LONGEST_BODY = MAX_DECOMPRESSED_SIZE  # no client of ours could read a longer one
# Above this a body is written as base64, which adds a third: in JSON's own way a byte may take six.
LONGEST_TEXT = 32 << 20
LONGEST_LINE = LONGEST_BODY // 3 * 4 + (1 << 20)
_SKIPPED_AT_ONCE = 1 << 16
LONGEST_SKIPPED = 1 << 30  # bytes of a line; an input without the end of a line within these is not one of lines


class LineTooLongError(ValueError):
    """A line of more bytes than are taken; the rest of it is not read yet."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the line is longer than {limit:,} bytes")


class NoEndOfLineError(ValueError):
    """A line that has no end within LONGEST_SKIPPED bytes; nothing more of its input is read."""

    def __init__(self) -> None:
        super().__init__(f"the line has no end within {LONGEST_SKIPPED:,} bytes, and nothing more is read: is it the "
                         "right file?")


def read_line(stream: BinaryIO, limit: int = LONGEST_LINE) -> bytes:
    """The next line with its end, b"" after the last. LineTooLongError above `limit` bytes without the end."""
    line = stream.readline(limit + 1)
    if len(line) > limit and not line.endswith(b"\n"):
        raise LineTooLongError(limit)
    return line


def skip_line(stream: BinaryIO) -> bytes:
    """Read over the rest of a line; its last bytes, b"" when nothing was left. NoEndOfLineError."""
    last, skipped = b"", 0
    while piece := stream.readline(_SKIPPED_AT_ONCE):
        last, skipped = piece, skipped + len(piece)
        if piece.endswith(b"\n"):
            break
        if skipped > LONGEST_SKIPPED:
            raise NoEndOfLineError
    return last


def lines_of(stream: BinaryIO, limit: int) -> Iterator[bytes | LineTooLongError | NoEndOfLineError]:
    """Each line without its end; for one that is too long the error, and what follows is read on, unless it has none.
    """
    while True:
        try:
            line = read_line(stream, limit)
        except LineTooLongError as error:
            try:
                skip_line(stream)
            except NoEndOfLineError as endless:
                yield endless
                return
            yield error
            continue
        if not line:
            return
        yield line.removesuffix(b"\n")


def parsed(line: bytes) -> Any:
    """The value of a JSON text. ValueError for anything else, also for what is nested too deeply."""
    try:
        return parse_json(line, "the line")
    except JsonTextError as error:
        raise ValueError(error.reason) from None


def shown(value: Any) -> str:
    """A value for an error, cut where it is long."""
    return reprlib.repr(value)


_WORDS = {str: "a text", int: "a whole number", dict: "an object"}


def typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """A field, None when it is absent or null. ValueError for a value of another kind."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise ValueError(f"{shown(name)[1:-1]}: {_WORDS[kind]} is wanted, not {shown(value)}")
    return value


def needed(fields: dict[str, Any], name: str, kind: type) -> Any:
    """The same for a field that must be there."""
    if name not in fields:
        raise ValueError(f"{name} is missing")
    value = typed(fields, name, kind)
    if value is None:
        raise ValueError(f"{name}: {_WORDS[kind]} is wanted, not null")
    return value


def number(fields: dict[str, Any], name: str, least: int, most: int) -> int | None:
    """A whole number within bounds, None when it is absent or null."""
    value: int | None = typed(fields, name, int)
    if value is not None and not least <= value <= most:
        raise ValueError(f"{shown(name)[1:-1]}: {value} is {'below' if value < least else 'above'} "
                         f"{least if value < least else most}")
    return value
