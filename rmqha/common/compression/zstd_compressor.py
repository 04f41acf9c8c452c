"""ZSTD frames."""
from types import ModuleType

from rmqha.common.compression.compressor import MAX_DECOMPRESSED_SIZE, CompressionError

# Bytes taken at a time: a block of 128 KiB can be as short as 4, so this bounds what one step can grow to.
STEP = 1024


def _library() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise CompressionError("ZSTD bodies need the extra `zstd`: pip install rmqha[zstd]") from error
    library: ModuleType = zstandard
    return library


class ZstdCompressor:
    """Bodies as ZSTD frames.

    Java: org.apache.rocketmq.common.compression.ZstdCompressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """The ZSTD frame of `src`, without its size as Java's streams."""
        frame: bytes = _library().ZstdCompressor(level=level, write_content_size=False).compress(src)
        return frame

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """The plain form."""
        zstandard = _library()
        stream = zstandard.ZstdDecompressor().decompressobj()
        pieces, size = [], 0
        try:
            for start in range(0, len(src), STEP):
                pieces.append(stream.decompress(src[start:start + STEP]))
                size += len(pieces[-1])
                if size > max_size:
                    raise CompressionError(f"the body decompresses to more than {max_size} bytes")
                if stream.eof:
                    return b"".join(pieces)
        except zstandard.ZstdError as error:
            raise CompressionError(f"no ZSTD frame: {error}") from error
        raise CompressionError("the ZSTD frame ends too early")
