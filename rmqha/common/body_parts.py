"""Parts of message bodies, without decompressing them whole: the beginning of a body, and a search for a text in it.

- `stored_size_for`: how many stored bytes of a body are needed to show its first bytes.
- `beginning`: the first plain bytes, made from the first stored bytes.
- `pieces`: the plain body piece by piece; `contains` searches these pieces. Both keep only one piece in memory.

A body may have been made to cost its readers as much as possible: a few KiB can decompress to gigabytes, or to nothing
at all. So each function has a limit, and its work is proportional to the stored bytes that it gets and to its limit.

How much of a compressed body shows its first n bytes depends on the format:

    zlib   about n bytes: a decoder writes each byte as soon as it has read the bits for it
    LZ4    about n bytes, but the library decodes whole blocks of up to 4 MiB. `_lz4_beginning` decodes a part of one.
    ZSTD   the whole first block, because its last bits are needed first. A compressed block of more than
           MAX_ZSTD_BLOCK bytes is not shown.
"""
import zlib
from collections.abc import Iterator

from rmqha.common import compression, sys_flags
from rmqha.common.compression import CompressionError
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import Buffer
from rmqha.common.sys_flags import CompressionType

# The largest compressed first block of a ZSTD body that is sent to show its beginning.
MAX_ZSTD_BLOCK = 32 * 1024
# The most bytes that `pieces` yields at once, except for ZSTD.
PIECE = 256 * 1024
_STORED_PIECE = 1 << 16
# A block of 128 KiB may take as few as 4 bytes of a ZSTD stream, so one step yields at most 4 MiB.
_ZSTD_STEP = 128
# The most bytes that a deflate stream needs before its first literal: the stream's head, and the codes of a block.
_DEFLATE_START = 640
_LZ4_START = 150
_LZ4_MAGIC, _ZSTD_MAGIC = b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"
# Bytes of a ZSTD frame's head, at most.
_ZSTD_HEAD = 18
_BLOCK_HEAD = 3
_ZSTD_RAW, _ZSTD_RLE = 0, 1


def type_of(sys_flag: int) -> CompressionType | None:
    """Return the type of a compressed body; None if it is not compressed.

    CompressionError for a type that does not exist.
    """
    if not sys_flag & sys_flags.COMPRESSED_FLAG:
        return None
    try:
        return sys_flags.get_compression_type(sys_flag)
    except ValueError as error:
        raise CompressionError(str(error)) from None


def stored_size_for(body: Buffer, sys_flag: int, most: int) -> int:
    """Return how many bytes of a stored body are needed to show its first `most` plain bytes.

    Only the first bytes of `body` are read. The result is less than MAX_ZSTD_BLOCK + 2 * `most` + 1 KiB. It may be too
    small for a body that was made in an unusual way; then fewer plain bytes can be shown.
    """
    try:
        kind = type_of(sys_flag)
    except CompressionError:
        kind = None
    if kind is None or most <= 0:
        return max(0, min(most, len(body)))
    if kind is CompressionType.ZLIB:
        # A code has at most 15 bits.
        return min(len(body), _DEFLATE_START + 2 * most)
    if kind is CompressionType.LZ4:
        return min(len(body), _LZ4_START + most + most // 60)
    return min(len(body), _zstd_size(bytes(body[:_ZSTD_HEAD + _BLOCK_HEAD]), most) or most)


def _zstd_size(head: bytes, most: int) -> int:
    """Return where the needed part of a ZSTD frame's first block ends; 0 if it is too large or not a frame."""
    if not head.startswith(_ZSTD_MAGIC) or len(head) < 5:
        return 0
    descriptor = head[4]
    has_window = not descriptor & 0x20
    size_field = (0 if has_window else 1, 2, 4, 8)[descriptor >> 6]
    at = 5 + has_window + (0, 1, 2, 4)[descriptor & 3] + size_field
    block = int.from_bytes(head[at:at + _BLOCK_HEAD], "little")
    if len(head) < at + _BLOCK_HEAD:
        return 0
    kind, size = block >> 1 & 3, block >> 3
    if kind == _ZSTD_RAW:
        size = min(size, most)
    elif kind == _ZSTD_RLE:
        size = 1
    return at + _BLOCK_HEAD + size if size <= max(MAX_ZSTD_BLOCK, most) else 0


def beginning(stored: bytes, sys_flag: int, most: int) -> bytes:
    """Return at most `most` of a body's first plain bytes, from `stored`, the first bytes of its stored form.

    The result is empty if `stored` does not suffice. CompressionError for damage, and for a missing library.
    """
    kind = type_of(sys_flag)
    if kind is None:
        return stored[:max(0, most)]
    if most <= 0 or not stored:
        return b""
    if kind is CompressionType.ZLIB:
        try:
            return zlib.decompressobj().decompress(stored, most)
        except zlib.error as error:
            raise CompressionError(f"not a zlib stream: {error}") from None
    if kind is CompressionType.LZ4:
        return _lz4_beginning(stored, most)
    return _zstd_beginning(stored, most)


def _zstd_beginning(stored: bytes, most: int) -> bytes:
    zstandard = compression.zstd_library()
    stream = zstandard.ZstdDecompressor().decompressobj()
    plain = b""
    try:
        for at in range(0, len(stored), _ZSTD_STEP):
            plain += stream.decompress(stored[at:at + _ZSTD_STEP])
            if len(plain) >= most or stream.eof:
                break
    except zstandard.ZstdError as error:
        raise CompressionError(f"not a ZSTD frame: {error}") from None
    return plain[:most]


def _lz4_beginning(stored: bytes, most: int) -> bytes:
    """Decode the beginning of an LZ4 frame: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md."""
    if not stored.startswith(_LZ4_MAGIC[:len(stored)]):
        raise CompressionError("not an LZ4 frame")
    if len(stored) < 7:
        return b""
    flags = stored[4]
    at = 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    plain = bytearray()
    while len(plain) < most and at + 4 <= len(stored):
        size = int.from_bytes(stored[at:at + 4], "little")
        at += 4
        if size == 0:
            break
        block = stored[at:at + (size & 0x7FFF_FFFF)]
        if size >> 31:
            plain += block[:most - len(plain)]
        else:
            _lz4_block(block, plain, most)
        at += (size & 0x7FFF_FFFF) + (4 if flags & 0x10 else 0)
    return bytes(plain[:most])


def _lz4_block(block: bytes, plain: bytearray, most: int) -> None:
    """Append the plain bytes of a block that may be cut, until there are `most`.

    A block is a series of sequences: a byte with two lengths of 4 bits, literals, and the distance (2 bytes) of a match
    in the plain bytes. A length of 15 is continued in further bytes, up to one that is not 255; a match has 4 bytes
    more.
    """
    at, end = 0, len(block)
    while at < end and len(plain) < most:
        token = block[at]
        length, at = _lz4_length(block, at + 1, token >> 4)
        plain += block[at:at + min(length, most - len(plain))]
        at += length
        if at + 2 > end or len(plain) >= most:
            return
        distance = block[at] | block[at + 1] << 8
        length, at = _lz4_length(block, at + 2, token & 15)
        if not 0 < distance <= len(plain):
            raise CompressionError(f"a match at distance {distance} after {len(plain)} bytes of an LZ4 frame")
        length = min(length + 4, most - len(plain))
        begin = len(plain) - distance
        source = bytes(plain[begin:begin + length])
        # A match may overlap the bytes that it makes.
        plain += (source * (length // len(source) + 1))[:length]


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    """Return a length whose first 4 bits are `length`, and where the next field begins."""
    if length == 15:
        while at < len(block):
            more, at = block[at], at + 1
            length += more
            if more != 255:
                break
    return length, at


def pieces(stored: Buffer, sys_flag: int) -> Iterator[bytes]:
    """Yield the plain body in pieces, some of which may be empty. It is read only as far as the caller iterates.

    CompressionError for damage, for a truncated body, and for a missing library.
    """
    kind = type_of(sys_flag)
    if kind is None:
        for at in range(0, len(stored), PIECE):
            yield bytes(stored[at:at + PIECE])
    elif kind is CompressionType.ZLIB:
        yield from _zlib_pieces(stored)
    elif kind is CompressionType.LZ4:
        yield from _lz4_pieces(stored)
    else:
        yield from _zstd_pieces(stored)


def _zlib_pieces(stored: Buffer) -> Iterator[bytes]:
    stream, at = zlib.decompressobj(), 0
    rest = b""
    try:
        while not stream.eof:
            if not rest:
                rest = bytes(stored[at:at + _STORED_PIECE])
                at += len(rest)
                if not rest:
                    raise CompressionError("the zlib stream is truncated")
            yield stream.decompress(rest, PIECE)
            rest = stream.unconsumed_tail
    except zlib.error as error:
        raise CompressionError(f"not a zlib stream: {error}") from None


def _lz4_pieces(stored: Buffer) -> Iterator[bytes]:
    stream, at = compression.lz4_library().LZ4FrameDecompressor(), 0
    try:
        while not stream.eof:
            more = b""
            if stream.needs_input:
                more = bytes(stored[at:at + _STORED_PIECE])
                at += len(more)
                if not more:
                    raise CompressionError("the LZ4 frame is truncated")
            yield stream.decompress(more, max_length=PIECE)
    except RuntimeError as error:
        raise CompressionError(f"not an LZ4 frame: {error}") from None


def _zstd_pieces(stored: Buffer) -> Iterator[bytes]:
    zstandard = compression.zstd_library()
    stream = zstandard.ZstdDecompressor().decompressobj()
    try:
        for at in range(0, len(stored), _ZSTD_STEP):
            yield stream.decompress(bytes(stored[at:at + _ZSTD_STEP]))
            if stream.eof:
                return
    except zstandard.ZstdError as error:
        raise CompressionError(f"not a ZSTD frame: {error}") from None
    raise CompressionError("the ZSTD frame is truncated")


class Searched(NamedTuple):
    """The result of a search: found or not, None if unknown; the bytes read and decompressed; the reason if unknown."""

    is_found: bool | None
    spent: int
    error: str = ""


def contains(stored: Buffer, sys_flag: int, wanted: bytes, most: int) -> Searched:
    """Search the plain body for `wanted`, until more than `most` bytes have been read and decompressed.

    If `most` does not suffice, the result is unknown, without an error. If the body is damaged, or if a library is
    missing, the result has the reason.
    """
    if len(stored) > most:
        return Searched(None, 0)
    # A decompressor may read all stored bytes and yield nothing.
    spent = len(stored) if sys_flag & sys_flags.COMPRESSED_FLAG else 0
    keep = len(wanted) - 1
    end = b""
    try:
        for piece in pieces(stored, sys_flag):
            spent += len(piece)
            window = end + piece
            if wanted in window:
                return Searched(True, spent)
            if spent > most:
                return Searched(None, spent)
            end = window[-keep:] if keep else b""
    except CompressionError as error:
        return Searched(None, spent, str(error))
    return Searched(False, spent)
