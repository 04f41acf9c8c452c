"""ZSTD frames."""
from rmqha.common.compression.compressor import MAX_DECOMPRESSED_SIZE, CompressionError


def _library():
    try:
        import zstandard
    except ImportError as error:
        raise CompressionError("ZSTD bodies need the extra `zstd`: pip install rmqha[zstd]") from error
    return zstandard


class ZstdCompressor:
    """Bodies as ZSTD frames.

    Java: org.apache.rocketmq.common.compression.ZstdCompressor (4.9.8)
    """

    def compress(self, src: bytes, level: int) -> bytes:
        """The ZSTD frame of `src`, without its size as Java's streams."""
        return _library().ZstdCompressor(level=level, write_content_size=False).compress(src)

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """The plain form."""
        zstandard = _library()
        try:
            with zstandard.ZstdDecompressor().stream_reader(src) as stream:
                plain = stream.read(max_size + 1)
        except zstandard.ZstdError as error:
            raise CompressionError(f"no ZSTD frame: {error}") from error
        if len(plain) > max_size:
            raise CompressionError(f"the body decompresses to more than {max_size} bytes")
        return plain
