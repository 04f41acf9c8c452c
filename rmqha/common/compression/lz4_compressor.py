"""LZ4 frames."""
from types import ModuleType

from rmqha.common.compression.compressor import MAX_DECOMPRESSED_SIZE, CompressionError


def _library() -> ModuleType:
    try:
        import lz4.frame
    except ImportError as error:
        raise CompressionError("LZ4 bodies need the extra `lz4`: pip install rmqha[lz4]") from error
    library: ModuleType = lz4.frame
    return library


class Lz4Compressor:
    """Bodies as LZ4 frames.

    Java: org.apache.rocketmq.common.compression.Lz4Compressor (4.9.8)
    """

    def compress(self, src: bytes | memoryview, level: int) -> bytes:
        """The LZ4 frame of `src`. `level` is ignored as in Java."""
        lz4 = _library()
        frame: bytes = lz4.compress(src, block_size=lz4.BLOCKSIZE_MAX4MB, block_linked=False, store_size=False)
        return frame

    def decompress(self, src: bytes, max_size: int = MAX_DECOMPRESSED_SIZE) -> bytes:
        """The plain form."""
        stream = _library().LZ4FrameDecompressor()
        try:
            plain: bytes = stream.decompress(src, max_length=max_size)
        except RuntimeError as error:
            raise CompressionError(f"no LZ4 frame: {error}") from error
        if not stream.eof:
            raise CompressionError(f"the LZ4 frame ends too early, or has more than {max_size} bytes")
        return plain
