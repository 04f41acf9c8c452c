"""The answer to GET_COMMIT_LOG_CHECKSUMS, and what a request may ask for."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.protocol import log_checksums
from rmqha.common.protocol.command_custom_header import HeaderFieldError
from rmqha.common.protocol.controller_headers import (
    MAX_BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_RANGE,
    GetCommitLogChecksumsRequestHeader,
)

CRCS = st.lists(st.integers(0, 0xFFFF_FFFF), max_size=50)


@given(CRCS, st.integers(0, 5))
def test_what_was_encoded_is_decoded(crcs, more):
    body = log_checksums.encode(crcs)
    assert body == b"".join(crc.to_bytes(4, "big") for crc in crcs)
    assert log_checksums.decode(body, len(crcs) + more) == tuple(crcs)


@given(CRCS.filter(bool), st.integers(1, 3))
def test_a_body_of_another_size_is_refused(crcs, cut):
    body = log_checksums.encode(crcs)
    for wrong, count in ((body[:-cut], len(crcs)), (body + bytes(cut), len(crcs) + 1), (body, len(crcs) - 1)):
        with pytest.raises(ValueError, match=f"{len(wrong)} bytes are not the checksums of at most {count} blocks"):
            log_checksums.decode(wrong, count)


@given(st.integers(-3, 1 << 62), st.integers(-3, 2 * MAX_BLOCK_SIZE), st.integers(-3, 2 * MAX_BLOCKS))
def test_a_request_reads_at_most_16_mib(offset, block_size, count):
    header = GetCommitLogChecksumsRequestHeader(offset, block_size, count)
    if offset >= 0 and 0 < block_size <= 1 << 20 and 0 < count <= 4096 and block_size * count <= 16 << 20:
        header.check_fields()
    else:
        with pytest.raises(HeaderFieldError):
            header.check_fields()


@pytest.mark.parametrize(("fields", "reason"), [
    ((-1, 1, 1), "offset is -1, and must not be negative"),
    ((0, 0, 1), "blockSize is 0, and must be from 1 to 1048576"),
    ((0, MAX_BLOCK_SIZE + 1, 1), "blockSize is 1048577, and must be from 1 to 1048576"),
    ((0, 1, 0), "count is 0, and must be from 1 to 4096"),
    ((0, 1, MAX_BLOCKS + 1), "count is 4097, and must be from 1 to 4096"),
    ((0, MAX_RANGE // MAX_BLOCKS + 1, MAX_BLOCKS),
     "4096 blocks of 4097 bytes are 16781312 bytes; a request may ask for 16777216"),
])
def test_a_wrong_request_is_named(fields, reason):
    with pytest.raises(HeaderFieldError) as error:
        GetCommitLogChecksumsRequestHeader(*fields).check_fields()
    assert str(error.value) == reason


@given(CRCS, st.integers(1, 20), st.integers(0, 3))
def test_blocks_stand_behind_their_checksums(crcs, block_size, more):
    data = bytes(range(block_size)) * len(crcs)
    body = log_checksums.encode(crcs) + data
    assert log_checksums.decode_with_bytes(body, len(crcs) + more, block_size) == (tuple(crcs), data)
    with pytest.raises(ValueError, match="are not at most"):
        log_checksums.decode_with_bytes(body + b"x", len(crcs) + more, block_size)
    if crcs:
        with pytest.raises(ValueError, match="are not at most"):
            log_checksums.decode_with_bytes(body, len(crcs) - 1, block_size)


def test_at_most_a_mib_comes_with_its_bytes():
    GetCommitLogChecksumsRequestHeader(0, MAX_BLOCK_SIZE, 1, True).check_fields()
    with pytest.raises(HeaderFieldError, match="2097152 bytes are asked for; a request may get 1048576"):
        GetCommitLogChecksumsRequestHeader(0, MAX_BLOCK_SIZE, 2, True).check_fields()
