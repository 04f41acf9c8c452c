"""zlib streams."""
import zlib

from rmqha.common.compression.compressor import MAX_DECOMPRESSED_SIZE, CompressionError


class ZlibCompressor:
    """Bodies as zlib streams, the default.

    Java: org.apache.rocketmq.common.compression.ZlibCompressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """The zlib stream of `src`; `level` 0 to 9."""
        return zlib.compress(src, level)

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """The plain form; bytes behind the stream's end are ignored as in Java."""
        stream = zlib.decompressobj()
        try:
            plain = stream.decompress(src, max_size)
        except zlib.error as error:
            raise CompressionError(f"no zlib stream: {error}") from error
        if stream.unconsumed_tail and not stream.eof:
            raise CompressionError(f"the body decompresses to more than {max_size} bytes")
        if not stream.eof:
            raise CompressionError("the zlib stream ends too early")
        return plain
