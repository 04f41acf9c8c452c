"""Compression of message bodies and files, with limits on the decompressed size.

- `get_compressor`: the compressor of each type.
- `BodyBudget`: limits the decompressed bytes of all bodies of one answer together. A limit per body does not bound a
  list: 64 records of a few hundred KiB can hold 64 times 256 MiB.
- `inflate`: decompresses data from a file, up to a size, because a few bytes can expand to very many.
"""
import zlib
from types import ModuleType
from typing import Protocol, Self

from rmqha.common import sys_flags
from rmqha.common.filesystem import how_to_install
from rmqha.common.sys_flags import CompressionType

# Differs: the decompressed size of a body is limited, so that a small one cannot fill the memory; Java has no limit.
MAX_DECOMPRESSED_SIZE = 256 * 1024 * 1024
# Input bytes per step. A block of 128 KiB may take as few as 4 bytes, so this bounds the output of one step.
ZSTD_STEP = 1024


class CompressionError(ValueError):
    """Bytes that do not decompress, or decompress to more than the limit; or the type's library is missing."""


class TooLargeError(CompressionError):
    """A body that decompresses to more than the limit."""

    @classmethod
    def beyond(cls, max_size: int) -> "TooLargeError":
        """Return the error for a single body."""
        return cls(f"the body decompresses to more than {max_size} bytes")


class Compressor(Protocol):
    """Compresses and decompresses bodies. Stateless.

    Java: org.apache.rocketmq.common.compression.Compressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """Return the compressed form of `src`."""

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """Return the decompressed bytes. CompressionError for damage, and beyond `max_size` bytes."""


class ZlibCompressor:
    """Bodies as zlib streams, the default.

    Java: org.apache.rocketmq.common.compression.ZlibCompressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """Return the zlib stream of `src`; `level` is 0 to 9."""
        return zlib.compress(src, level)

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """Return the decompressed bytes. Bytes after the end of the stream are ignored, as in Java."""
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(src, max_size)
        except zlib.error as error:
            raise CompressionError(f"not a zlib stream: {error}") from error
        if not stream.eof and len(plain) >= max_size:
            raise TooLargeError.beyond(max_size)
        if not stream.eof:
            raise CompressionError("the zlib stream is truncated")
        return plain


def lz4_library() -> ModuleType:
    """Return the library of LZ4 frames; CompressionError if it is not installed."""
    try:
        import lz4.frame
    except ImportError as error:
        raise CompressionError(f"LZ4 bodies need the extra `lz4`: {how_to_install('lz4')}") from error
    library: ModuleType = lz4.frame
    return library


class Lz4Compressor:
    """Bodies as LZ4 frames.

    Java: org.apache.rocketmq.common.compression.Lz4Compressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """Return the LZ4 frame of `src`. `level` is ignored, as in Java."""
        lz4 = lz4_library()
        frame: bytes = lz4.compress(src, block_size=lz4.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False)
        return frame

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """Return the decompressed bytes."""
        stream = lz4_library().LZ4FrameDecompressor()
        try:
            plain: bytes = stream.decompress(src, max_length=max_size)
        except RuntimeError as error:
            raise CompressionError(f"not an LZ4 frame: {error}") from error
        if not stream.eof and not stream.needs_input:
            raise TooLargeError.beyond(max_size)
        if not stream.eof:
            raise CompressionError("the LZ4 frame is truncated")
        return plain


def zstd_library() -> ModuleType:
    """Return the library of ZSTD frames; CompressionError if it is not installed."""
    try:
        import zstandard
    except ImportError as error:
        raise CompressionError(f"ZSTD bodies need the extra `zstd`: {how_to_install('zstd')}") from error
    library: ModuleType = zstandard
    return library


class ZstdCompressor:
    """Bodies as ZSTD frames.

    Java: org.apache.rocketmq.common.compression.ZstdCompressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """Return the ZSTD frame of `src`, without the content size, as Java's streams write it."""
        frame: bytes = zstd_library().ZstdCompressor(level=level, write_content_size=False).compress(src)
        return frame

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """Return the decompressed bytes."""
        zstandard = zstd_library()
        stream = zstandard.ZstdDecompressor().decompressobj()
        pieces, size = [], 0
        try:
            for start in range(0, len(src), ZSTD_STEP):
                pieces.append(stream.decompress(src[start:start + ZSTD_STEP]))
                size += len(pieces[-1])
                if size > max_size:
                    raise TooLargeError.beyond(max_size)
                if stream.eof:
                    return b"".join(pieces)
        except zstandard.ZstdError as error:
            raise CompressionError(f"not a ZSTD frame: {error}") from error
        raise CompressionError("the ZSTD frame is truncated")


_COMPRESSORS: dict[CompressionType, Compressor] = {
    CompressionType.LZ4: Lz4Compressor(),
    CompressionType.ZSTD: ZstdCompressor(),
    CompressionType.ZLIB: ZlibCompressor(),
}


def get_compressor(compression_type: CompressionType) -> Compressor:
    """Return the compressor of a type. Its library is loaded only when it is used.

    Java: org.apache.rocketmq.common.compression.CompressorFactory (4.9.8)
    """
    return _COMPRESSORS[compression_type]


MOST_IN_ALL = MAX_DECOMPRESSED_SIZE
# The limit of each body in a list, so that one body that is too large leaves budget for the others.
MOST_EACH = MOST_IN_ALL // 4


class MissingBody(bytes):
    """An empty body in place of one that cannot be decompressed; `reason` says why, for people."""

    reason: str

    def __new__(cls, reason: str) -> Self:
        """Return an empty body with a reason."""
        body = super().__new__(cls)
        body.reason = reason
        return body

    def __repr__(self) -> str:
        return f"<no body: {self.reason}>"

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.reason,)


class BodyBudget:
    """The decompressed bytes that the bodies of one answer may take: `most_each` for one, `most` for all together.

    Used by one thread. A body beyond the limit still uses up the bytes that were decompressed to find that out.
    Otherwise many such bodies in one answer would take little memory but unbounded time.
    """

    def __init__(self, most: int = MOST_IN_ALL, most_each: int = MOST_EACH) -> None:
        self.most, self.most_each = most, most_each
        self._left = most

    @property
    def left(self) -> int:
        """Return the number of bytes that are left."""
        return self._left

    def plain(self, body: bytes, sys_flag: int) -> bytes:
        """Return the body of a record decompressed, or unchanged if its `sys_flag` says that it is not compressed.

        TooLargeError beyond a limit, CompressionError for damage and for a missing library.
        """
        if not sys_flag & sys_flags.COMPRESSED_FLAG:
            return body
        limit = min(self.most_each, self._left)
        if limit <= 0:
            raise self._too_large(0)
        try:
            compressor = get_compressor(sys_flags.get_compression_type(sys_flag))
            plain = compressor.decompress(body, limit)
        except TooLargeError as error:
            self._left -= limit
            raise self._too_large(limit) from error
        except CompressionError:
            raise
        except ValueError as error:  # an unknown type
            raise CompressionError(str(error)) from error
        self._left -= len(plain)
        return plain

    def _too_large(self, limit: int) -> TooLargeError:
        if limit == self.most_each:
            return TooLargeError(f"the body decompresses to more than {limit} bytes")
        return TooLargeError(f"the bodies of one answer decompress to more than {self.most} bytes, and this one does "
                             "not fit: request it alone")


ZLIB, GZIP = zlib.MAX_WBITS, zlib.MAX_WBITS | 16


def inflate(data: bytes, most: int, kind: int = ZLIB) -> bytes:
    """Return the decompressed bytes of one stream.

    ValueError when it is damaged or truncated, or decompresses to more than `most` bytes.
    """
    stream = zlib.decompressobj(kind)
    try:
        unpacked = stream.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"the compressed bytes are damaged: {error}") from None
    if len(unpacked) > most:
        raise ValueError(f"it decompresses to more than {most} bytes")
    if not stream.eof:
        raise ValueError("the compressed bytes are truncated")
    return unpacked
