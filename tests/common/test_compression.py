"""Compressors: round trips, damage, and bodies that grow too much."""
import importlib.util

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import compression, sys_flags
from rmqha.common.compression import CompressionError
from rmqha.common.sys_flags import CompressionType

LIBRARIES = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstandard"}
INSTALLED = [kind for kind in CompressionType
             if kind not in LIBRARIES or importlib.util.find_spec(LIBRARIES[kind]) is not None]


@pytest.fixture(params=INSTALLED, ids=lambda kind: kind.name)
def compressor(request):
    return compression.get_compressor(request.param)


@pytest.mark.parametrize("plain", [b"", b"x", b"word " * 1000, bytes(range(256)) * 5])
def test_bodies_come_back(compressor, plain):
    assert compressor.decompress(compressor.compress(plain, 5)) == plain


def test_cut_bodies_are_errors(compressor):
    packed = compressor.compress(bytes(range(256)) * 20, 5)
    for length in (0, 1, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError):
            compressor.decompress(packed[:length])


def test_bodies_that_grow_beyond_the_limit_are_errors(compressor):
    packed = compressor.compress(bytes(100_000), 9)
    assert len(compressor.decompress(packed, 100_000)) == 100_000
    with pytest.raises(CompressionError):
        compressor.decompress(packed, 99_999)


def test_other_bytes_are_errors(compressor):
    with pytest.raises(CompressionError):
        compressor.decompress(b"no compressed body")


@given(st.binary(max_size=100))
def test_any_bytes_are_a_zlib_stream_or_an_error(data):
    try:
        compression.get_compressor(CompressionType.ZLIB).decompress(data, 1000)
    except CompressionError:
        assert True


@pytest.mark.parametrize(("flag", "kind"), [(0, "ZLIB"), (1, "ZLIB"), (0x300, "ZLIB"), (0x100, "LZ4"), (0x200, "ZSTD")])
def test_type_is_in_the_system_flag(flag, kind):
    assert sys_flags.get_compression_type(flag) is CompressionType[kind]


def test_types_have_names_and_flags():
    assert CompressionType.of(" zlib ") is CompressionType.ZLIB
    assert CompressionType.ZSTD.compression_flag == 0x200
    with pytest.raises(ValueError, match="gzip"):
        CompressionType.of("gzip")
    with pytest.raises(ValueError, match="4"):
        CompressionType.find_by_value(4)
