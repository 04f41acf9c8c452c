"""Bit arrays and bloom filters. Equality with Java's bits: test_beside_java."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.filter.bloom_filter import BitsArray, BloomFilter, BloomFilterData, murmur3_128_low


@given(st.lists(st.integers(0, 111)), st.lists(st.integers(0, 111)))
def test_bits_that_were_set_are_set(to_set, to_clear):
    bits = BitsArray.create(112)
    for position in to_set:
        bits.set_bit(position, True)
    for position in to_clear:
        bits.set_bit(position, False)
    expected = set(to_set) - set(to_clear)
    assert {position for position in range(112) if bits.get_bit(position)} == expected
    copy = BitsArray.of(bytes(bits.bytes))
    assert (copy.bytes, copy.bit_length) == (bits.bytes, 112)
    assert str(copy).replace("\n", "")[::-1] == "".join("1" if position in expected else "0" for position in range(112))


@pytest.mark.parametrize("position", [-1, 16, 1000])
def test_bit_outside_is_refused(position):
    with pytest.raises(ValueError, match="BitPos is"):
        BitsArray.create(16).get_bit(position)
    with pytest.raises(ValueError, match="BitPos is"):
        BitsArray.create(16).set_bit(position, True)
    with pytest.raises(ValueError, match="Bytes is empty"):
        BitsArray.of(b"")


@given(st.lists(st.text(), max_size=20))
def test_name_that_was_put_in_is_hit(names):
    bloom = BloomFilter.create_by_fn(20, 32)
    bits = BitsArray.create(bloom.m)
    for name in names:
        bloom.hash_to(bloom.generate(name), bits)
    assert all(bloom.is_hit(bloom.generate(name), bits) for name in names)


def test_sizes_follow_error_rate_and_count():
    assert str(BloomFilter.create_by_fn(20, 32)) == "f: 20, n: 32, k: 3, m: 112"
    for f, n in ((0, 1), (100, 1), (20, 0)):
        with pytest.raises(ValueError):
            BloomFilter.create_by_fn(f, n)


def test_data_of_another_filter_is_refused():
    bloom = BloomFilter.create_by_fn(20, 32)
    for data in (None, BloomFilterData(104, [1, 2, 3]), BloomFilterData(112, [1]), BloomFilterData(112, None)):
        assert not bloom.is_valid(data)
        with pytest.raises(ValueError, match="may not belong to this filter"):
            bloom.is_hit(data, BitsArray.create(112))
    with pytest.raises(ValueError, match="is not equal to 112"):
        bloom.is_hit(bloom.generate("x"), BitsArray.create(104))


def test_hash_of_nothing_is_zero():
    assert murmur3_128_low(b"") == 0
