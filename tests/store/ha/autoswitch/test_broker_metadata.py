"""Who a replica is."""
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.store.ha.autoswitch.epoch_file_cache import (
    FIRST_MASTER_ID,
    BrokerMetadata,
    BrokerMetadataError,
    load_or_make,
)


def test_an_identity_stays_whatever_the_configuration_says_later(tmp_path):
    path = str(tmp_path / "brokerIdentity")
    assert load_or_make(path, "C", "broker-a", 2).broker_id == 2
    assert (tmp_path / "brokerIdentity").read_text() == "C#broker-a#2"
    assert load_or_make(path, "C", "broker-a", 0).broker_id == 2


def test_the_first_master_has_an_id_of_its_own(tmp_path):
    assert load_or_make(str(tmp_path / "brokerIdentity"), "C", "broker-a", 0).broker_id == FIRST_MASTER_ID


def test_the_identity_of_another_broker_is_refused(tmp_path):
    path = str(tmp_path / "brokerIdentity")
    load_or_make(path, "C", "broker-a", 2)
    with pytest.raises(BrokerMetadataError, match="brokerIdentity is of broker broker-a, and this one is broker-b"):
        load_or_make(path, "C", "broker-b", 2)


@pytest.mark.parametrize("text", ["", "C#a", "C#a#x", "C#a#-1", "C#a#1#2", "C#a#" + "9" * 30])
def test_a_damaged_identity_is_refused_by_name(tmp_path, text):
    path = tmp_path / "brokerIdentity"
    path.write_text(text)
    with pytest.raises(BrokerMetadataError, match="brokerIdentity: .* is no cluster#name#id"):
        load_or_make(str(path), "C", "a", 1)


@settings(deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_identity_or_an_error(text):
    try:
        metadata = BrokerMetadata.decode_from_str(text)
    except BrokerMetadataError:
        return
    assert BrokerMetadata.decode_from_str(metadata.encode_to_str()) == metadata
