"""Address patterns; tests/interop compares thousands of them with the original's classes."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.acl.common import AclException, PlainAccessResource
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from tests.acl.address_patterns import ADDRESSES, generated
from tests.support.tiers import drawn


def matches(pattern, address):
    strategy = RemoteAddressStrategyFactory().get_remote_address_strategy(pattern)
    return strategy.match(PlainAccessResource(white_remote_address=address))


@pytest.mark.parametrize("pattern, inside, outside", [
    ("", [], ["1.2.3.4", "::1", "", None]),
    (None, [], ["1.2.3.4"]),
    ("*", ["1.2.3.4", "::1", "", None], []),
    ("*.*.*.*", ["1.2.3.4", "::1"], []),
    ("127.0.0.1", ["127.0.0.1"], ["127.0.0.2", "::1", "", None]),
    ("127.0.0.1,::1", ["127.0.0.1", "::1", "0:0:0:0:0:0:0:1"], ["127.0.0.2", None]),
    ("127.0.0.{1,3}", ["127.0.0.1", "127.0.0.3"], ["127.0.0.2"]),
    ("127.0.0.1-9", ["127.0.0.1", "127.0.0.9"], ["127.0.0.0", "127.0.0.10", "127.0.1.1"]),
    ("127.0.1-3.*", ["127.0.1.255", "127.0.3.0"], ["127.0.0.1", "127.0.4.1"]),
    ("127.1-3.*.*", ["127.1.0.0", "127.3.9.9"], ["127.0.0.1", "12.7.1.3"]),
    ("::1", ["::1", "0:0:0:0:0:0:0:1", "0000::0001"], ["::2", "127.0.0.1"]),
    ("FE80::1", ["fe80::1", "fe80::1%eth0"], ["fe80::2"]),
    ("5::7:6:1-200:*", ["5::7:6:1:9", "5::7:6:200:ffff"], ["5::7:6:201:1", "5::7:7:1:1"]),
    ("1050::5:600:300c:*", ["1050:0:0:0:5:600:300c:1"], ["1050::5:600:300d:1"]),
    ("1050::5:600:300c:{1,b}", ["1050::5:600:300c:B"], ["1050::5:600:300c:2"]),
])
def test_pattern_means_these_addresses(pattern, inside, outside):
    assert all(matches(pattern, address) for address in inside)
    assert not any(matches(pattern, address) for address in outside)


@pytest.mark.parametrize("pattern, message", [
    ("1.2.3", "Netaddress examine Exception netaddress is 1.2.3"),
    ("1.2.3.4, 1.2.3.5", "Netaddress examine Exception netaddress is  1.2.3.5"),
    ("1.2.3.9-1", "RangeRemoteAddressStrategy netaddress examine scope Exception start is 9 , end is 1"),
    ("1.2.3.-1", "RangeRemoteAddressStrategy netaddress examine scope Exception value -1 "),
    ("1.2.3.0-0", "Netaddress examine scope Exception netaddress is 1.2.3.0-0"),
    ("1.2.3.a-b", "Netaddress examine scope Exception: 'a' is no number"),
    ("1.2.*", "Netaddress examine scope Exception netaddress is 1.2.*"),
    ("1.2.{3,4}", "MultipleRemoteAddressStrategy has got a/some wrong format IP(s) "),
    ("{1,2}.2.3.4}", "MultipleRemoteAddressStrategy netaddress examine scope Exception netaddress"),
    ("*:1", "Netaddress examine scope Exception netaddress is *:1"),
    (":1-2:*", "Netaddress examine scope Exception netaddress is :1-2:*"),
])
def test_pattern_that_is_wrong_is_named(pattern, message):
    with pytest.raises(AclException) as failure:
        matches(pattern, "1.2.3.4")
    assert str(failure.value) == message


@settings(max_examples=drawn(500), deadline=None)
@given(st.text("0123456789abcf.:*-{},/% ", max_size=40), st.one_of(st.sampled_from(ADDRESSES), st.text(max_size=20)))
def test_any_text_is_a_pattern_or_an_acl_exception(pattern, address):
    try:
        assert matches(pattern, address) in (True, False)
    except AclException as error:
        assert str(error)


def test_generated_patterns_never_match_what_is_no_address():
    for pattern in generated(5, 500):
        for address in ("", "x", "1.2.3", "::g", "::ffff:1.2.3.4"):
            try:
                assert not matches(pattern, address), (pattern, address)
            except AclException as error:
                assert str(error)
