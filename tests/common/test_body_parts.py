"""The beginning of a compressed body, and a search in it, compared with decompressing it whole; and hostile bodies."""
import io
import random
import zlib

import lz4.frame
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

from rmqha.common import body_parts
from rmqha.common.body_parts import MAX_ZSTD_BLOCK, PIECE, beginning, contains, pieces, stored_size_for
from rmqha.common.compression import CompressionError, get_compressor
from rmqha.common.sys_flags import COMPRESSED_FLAG, CompressionType

PLAIN = 0
FLAGS = {None: PLAIN, **{kind: COMPRESSED_FLAG | kind.compression_flag for kind in CompressionType}}
MIB = 1 << 20
NOISE = random.Random(1).randbytes(140_000)  # more than a block of ZSTD

# Incompressible, repetitive, and mixed bodies of up to a few hundred KiB.
BODIES = st.one_of(
    st.binary(max_size=600),
    st.builds(lambda part, count: part * count, st.binary(max_size=40), st.integers(0, 9_000)),
    st.builds(lambda part, count, end, noise: part * count + end + noise + part * count, st.binary(max_size=20),
              st.integers(0, 5_000), st.binary(max_size=200), st.sampled_from([NOISE[:300], NOISE])))


def stored(plain: bytes, kind: CompressionType | None, level: int = 5) -> bytes:
    return plain if kind is None else get_compressor(kind).compress(plain, level)


@given(BODIES, st.sampled_from(list(FLAGS)), st.integers(0, 3_000))
def test_beginning_equals_that_of_the_whole_body(plain, kind, most):
    body = stored(plain, kind)
    size = stored_size_for(body, FLAGS[kind], most)
    assert size <= min(len(body), MAX_ZSTD_BLOCK + 2 * most + 1024)
    shown = beginning(body[:size], FLAGS[kind], most)
    if kind is CompressionType.ZSTD and size == most:
        # Its first block is too large to be sent.
        assert shown in (b"", plain[:most])
    else:
        assert shown == plain[:most]


@given(BODIES, st.sampled_from(list(FLAGS)), st.data())
def test_beginning_of_a_cut_body_is_a_beginning(plain, kind, data):
    body = stored(plain, kind)
    cut = body[:data.draw(st.integers(0, len(body)))]
    most = data.draw(st.integers(0, 3_000))
    shown = beginning(cut, FLAGS[kind], most)
    assert plain.startswith(shown) and len(shown) <= most


@given(BODIES, st.sampled_from(list(FLAGS)))
def test_pieces_are_the_whole_body(plain, kind):
    body = stored(plain, kind)
    for buffer in (body, memoryview(body)):
        found = list(pieces(buffer, FLAGS[kind]))
        assert b"".join(found) == plain
        assert kind is CompressionType.ZSTD or max(map(len, found), default=0) <= PIECE


@given(BODIES, st.sampled_from(list(FLAGS)), st.data())
def test_search_finds_what_the_whole_body_contains(plain, kind, data):
    at = data.draw(st.integers(0, len(plain)))
    wanted = data.draw(st.one_of(st.binary(min_size=1, max_size=8), st.just(plain[at:at + 30] or b"?")))
    found = contains(stored(plain, kind), FLAGS[kind], wanted, 1 << 40)
    assert found.is_found is (wanted in plain) and not found.error
    assert found.spent <= len(plain) + len(stored(plain, kind))


def test_text_across_two_pieces_is_found(monkeypatch):
    monkeypatch.setattr(body_parts, "PIECE", 8)
    plain = b"0123456789abcdefghijklmnop"
    for kind, flag in FLAGS.items():
        for at in range(len(plain) - 5):
            assert contains(stored(plain, kind), flag, plain[at:at + 6], MIB).is_found, (kind, at)


def blocks(plain: bytes, kind: CompressionType) -> bytes:
    """Compress with a flush after every 100 bytes, so that the body has many small blocks."""
    parts = [plain[at:at + 100] for at in range(0, len(plain), 100)]
    if kind is CompressionType.ZLIB:
        stream = zlib.compressobj()
        return b"".join(stream.compress(part) + stream.flush(zlib.Z_FULL_FLUSH) for part in parts) + stream.flush()
    if kind is CompressionType.LZ4:
        stream = lz4.frame.LZ4FrameCompressor(auto_flush=True, block_linked=True, content_checksum=True,
                                              block_checksum=True)
        return stream.begin() + b"".join(map(stream.compress, parts)) + stream.flush()
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(part) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for part in parts) + (
        stream.flush())


@pytest.mark.parametrize("kind", CompressionType)
def test_body_of_many_blocks_is_shown(kind):
    plain = NOISE[:2_000] + b"some text" * 100
    body = blocks(plain, kind)
    shown = beginning(body[:stored_size_for(body, FLAGS[kind], 50)], FLAGS[kind], 50)
    assert shown == plain[:50]
    assert beginning(body, FLAGS[kind], 10_000) == plain
    assert contains(body, FLAGS[kind], plain[-20:], MIB).is_found


@pytest.mark.parametrize("frame", [
    lz4.frame.compress(b"x" * 300, store_size=True, content_checksum=True),
    zstandard.ZstdCompressor().compress(b"x" * 300),
    zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(b"x" * 300),
    zstandard.ZstdCompressor(level=1).compress(b"x" * 100_000)])
def test_frames_with_other_heads_are_shown(frame):
    kind = CompressionType.LZ4 if frame.startswith(b"\x04") else CompressionType.ZSTD
    size = stored_size_for(frame, FLAGS[kind], 40)
    assert beginning(frame[:size], FLAGS[kind], 40) == b"x" * 40


# Damaged and hostile bodies.


@given(st.one_of(st.binary(max_size=300), BODIES), st.sampled_from(list(CompressionType)),
       st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.integers(0, 500))
@example(b"", CompressionType.LZ4, [], 1)
def test_damage_is_an_error_or_bounded_output(content, kind, changes, most):
    for whole in (bytearray(content[:400]), bytearray(stored(content, kind))):
        for at, value in changes:
            if at < len(whole):
                whole[at] = value
        body = bytes(whole)
        size = stored_size_for(body, FLAGS[kind], most)
        assert 0 <= size <= len(body)
        try:
            assert len(beginning(body[:size], FLAGS[kind], most)) <= most
        except CompressionError:
            pass
        found = contains(body, FLAGS[kind], b"never there at all", MIB)
        assert found.is_found is False or found.is_found is None


def bombs() -> dict[CompressionType, bytes]:
    """Return small bodies that decompress to 512 MiB of zeros."""
    zeros = bytes(MIB)
    zlib_stream, lz4_out, zstd_out = zlib.compressobj(9), io.BytesIO(), io.BytesIO()
    made = [zlib_stream.compress(zeros) for _ in range(512)] + [zlib_stream.flush()]
    with lz4.frame.LZ4FrameFile(lz4_out, "wb") as file:
        for _ in range(512):
            file.write(zeros)
    with zstandard.ZstdCompressor().stream_writer(zstd_out, closefd=False) as file:
        for _ in range(512):
            file.write(zeros)
    return {CompressionType.ZLIB: b"".join(made), CompressionType.LZ4: lz4_out.getvalue(),
            CompressionType.ZSTD: zstd_out.getvalue()}


def test_search_in_a_bomb_ends_soon_after_its_limit():
    for kind, body in bombs().items():
        found = contains(body, FLAGS[kind], b"x", 8 * MIB)
        assert (found.is_found, found.error) == (None, "") and 8 * MIB < found.spent <= 8 * MIB + 5 * MIB, kind
        size = stored_size_for(body, FLAGS[kind], 100)
        assert size < 1024 and beginning(body[:size], FLAGS[kind], 100) == bytes(100), kind


def test_body_that_decompresses_to_nothing_is_counted():
    stream = zlib.compressobj()
    body = b"".join(stream.flush(zlib.Z_FULL_FLUSH) for _ in range(1000)) + stream.compress(b"x")
    body += b"\0\0\0\xff\xff" * 20_000 + stream.flush()
    found = contains(body, FLAGS[CompressionType.ZLIB], b"y", MIB)
    assert found.spent >= len(body) > 100_000
    assert contains(body, FLAGS[CompressionType.ZLIB], b"y", len(body) - 1) == (None, 0, "")


def test_stored_body_larger_than_the_limit_is_not_read():
    assert contains(b"x" * 100, PLAIN, b"x", 99) == (None, 0, "")
    assert contains(b"x" * 100, PLAIN, b"x", 100).is_found is True


@pytest.mark.parametrize("kind", CompressionType)
def test_truncated_body_can_not_be_searched(kind):
    body = stored(NOISE[:5_000], kind)
    found = contains(body[:-1] if kind is not CompressionType.ZLIB else body[:-5], FLAGS[kind], b"never there", MIB)
    assert found.is_found is None and "truncated" in found.error


def test_unknown_type_is_an_error():
    flag = COMPRESSED_FLAG | 5 << 8
    assert stored_size_for(b"x" * 50, flag, 20) == 20
    with pytest.raises(CompressionError, match="5"):
        beginning(b"xx", flag, 20)
    assert "5" in contains(b"xx", flag, b"x", 20).error


def test_match_before_the_beginning_is_an_error():
    frame = lz4.frame.compress(b"x" * 300, store_size=False)
    # The first sequence: one literal, then a match at a distance that does not exist.
    bad = frame[:11] + b"\x10x\x05\x00" + frame[15:]
    with pytest.raises(CompressionError, match="distance 5 after 1 bytes"):
        beginning(bad, FLAGS[CompressionType.LZ4], 40)
