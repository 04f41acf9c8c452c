"""The compressor of each type."""
from rmqha.common.compression.compression_type import CompressionType
from rmqha.common.compression.compressor import Compressor
from rmqha.common.compression.lz4_compressor import Lz4Compressor
from rmqha.common.compression.zlib_compressor import ZlibCompressor
from rmqha.common.compression.zstd_compressor import ZstdCompressor

_COMPRESSORS: dict[CompressionType, Compressor] = {
    CompressionType.LZ4: Lz4Compressor(),
    CompressionType.ZSTD: ZstdCompressor(),
    CompressionType.ZLIB: ZlibCompressor(),
}


def get_compressor(compression_type: CompressionType) -> Compressor:
    """The compressor of a type; its library is only needed when it is used.

    Java: org.apache.rocketmq.common.compression.CompressorFactory (4.9.8)
    """
    return _COMPRESSORS[compression_type]
