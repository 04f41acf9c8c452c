"""What is kept of texts that senders choose: short ones only, so that no cache takes a stranger's megabytes."""
import pytest

from rmqha.broker.processor import send_codec
from rmqha.common import java
from rmqha.common.message import message_decoder
from rmqha.filter import selector_parser
from rmqha.store.index import index_layout

LONG = "x" * 30_000


@pytest.mark.parametrize("cache, use", [
    (java._cached_hash_code, java.string_hash_code),
    (java._cached_hash_map_order, lambda text: java.hash_map_order([text, "TAGS"])),
    (message_decoder._kept_order, lambda text: message_decoder.property_order((text, "TAGS"))),
    (index_layout._cached_hash, index_layout.index_key_hash_method),
    (selector_parser._kept, lambda text: selector_parser.parse(f"{text} > 3")),
    (send_codec._kept_order,
     lambda text: send_codec._stored_properties(f"{text}\x01v\x02".encode(), b"CLUSTER\x01c")),
], ids=lambda one: getattr(one, "__name__", ""))
def test_long_texts_are_worked_on_and_not_kept(cache, use):
    cache.cache_clear()
    expected = use("y" * 40)
    kept = cache.cache_info().currsize
    assert kept > 0
    assert type(use(LONG)) is type(expected)
    held = cache.cache_info().currsize
    assert held - kept <= 3  # the pieces of a key that are short
    assert use("y" * 40) == expected or cache is selector_parser._kept
