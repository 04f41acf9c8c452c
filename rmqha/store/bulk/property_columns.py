"""The properties of many records as columns, ready for Arrow: one call for a whole block. Pure.

`property_columns` is compiled where a C compiler was (rmqha/native/_properties.c), and `columns_in_python` where none
was: both give the same, whatever the bytes are. Numbers are in the machine's own byte order; texts are UTF-8.
"""
import struct
from array import array
from typing import NamedTuple

from rmqha.common.message.message_decoder import string2message_properties
from rmqha.common.message.message_layout import Buffer, decode_text
from rmqha.native import kernels

MAX_WANTED = 16
_MAX_BYTES = 2**31 - 1  # what the offsets of a column reach


class MapColumn(NamedTuple):
    """The buffers of a map from text to text, without nulls.

    The entries of record `r` are those from bounds[r] to bounds[r + 1], exclusive; the name of entry `e` is
    names[name_offsets[e]:name_offsets[e + 1]], and its value likewise. Offsets and bounds are int32.
    """

    bounds: bytes
    name_offsets: bytes
    names: bytes
    value_offsets: bytes
    values: bytes


class TextColumn(NamedTuple):
    """The buffers of a text column: a bit for each record, the lowest first, 0 where it has none; offsets (int32)."""

    valid: bytes
    offsets: bytes
    values: bytes


def columns_in_python(data: Buffer, begins: Buffer, ends: Buffer, names: tuple[bytes, ...],
                      with_map: bool) -> tuple[tuple[bytes, ...] | None, list[tuple[bytes, ...]]]:
    """The properties of the records whose property texts lie in data[begins[r]:ends[r]] (buffers of int64).

    A MapColumn of all, or None, and a TextColumn of each of `names`, as plain tuples. Entries without name, separator
    or value count for nothing; of equal names the first place and the last value count; what is no UTF-8 is U+FFFD, as
    in `string2message_properties`.

    ValueError when a text does not lie in the data, or more than MAX_WANTED names are wanted; OverflowError when a
    column is longer than its offsets can tell.
    """
    if len(names) > MAX_WANTED:
        raise ValueError(f"{len(names)} names, at most {MAX_WANTED}")
    with memoryview(data) as view:
        found = [_properties(view, begin, end) for begin, end in _places(begins, ends, view.nbytes)]
    columns = [_text_column([each.get(name) for each in found]) for name in names]
    if not with_map:
        return None, columns
    bounds = array("i", [0])
    for each in found:
        bounds.append(bounds[-1] + len(each))
    return (bounds.tobytes(), *_texts([name for each in found for name in each]),
            *_texts([value for each in found for value in each.values()])), columns


def _places(begins: Buffer, ends: Buffer, size: int) -> list[tuple[int, int]]:
    with memoryview(begins) as first, memoryview(ends) as behind:
        if first.nbytes != behind.nbytes or first.nbytes % 8:
            raise ValueError(f"begins of {first.nbytes} bytes, ends of {behind.nbytes}")
        count = f"={first.nbytes // 8}q"
        places = list(zip(struct.unpack(count, first), struct.unpack(count, behind), strict=True))
    if any(not 0 <= begin <= end <= size for begin, end in places):
        raise ValueError("properties that do not lie in the data")
    return places


def _properties(view: memoryview, begin: int, end: int) -> dict[bytes, bytes]:
    found = string2message_properties(decode_text(view[begin:end]))
    return {name.encode(): value.encode() for name, value in found.items()}


def _texts(texts: list[bytes]) -> tuple[bytes, bytes]:
    """Offsets and bytes of texts."""
    if sum(map(len, texts)) > _MAX_BYTES:
        raise OverflowError("more bytes than a column has offsets for")
    offsets = array("i", [0])
    for text in texts:
        offsets.append(offsets[-1] + len(text))
    return offsets.tobytes(), b"".join(texts)


def _text_column(texts: list[bytes | None]) -> tuple[bytes, ...]:
    valid = bytearray(-(-len(texts) // 8))
    for number, text in enumerate(texts):
        if text is not None:
            valid[number // 8] |= 1 << number % 8
    return (bytes(valid), *_texts([text or b"" for text in texts]))


property_columns = kernels.PROPERTIES.function("property_columns", columns_in_python)
