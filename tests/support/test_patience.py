"""Requests of tests wait; those of a test about times do not."""
import pytest

from rmqha.remoting.remoting_client import RemotingClient
from tests.support.patience import _waiting, be_patient


@pytest.mark.parametrize("is_patient, asked_ms, waited_ms", [
    (True, 3000, 120_000), (True, 1000, 120_000), (True, 999, 999), (True, 600_000, 600_000), (False, 3000, 3000)])
def test_a_time_that_no_test_has_set_is_a_long_one(is_patient, asked_ms, waited_ms):
    be_patient(is_patient)
    assert _waiting(lambda *given: given)("client", "address", "request", asked_ms, "more") == (
        "client", "address", "request", waited_ms, "more")


def test_clients_wait():
    be_patient()
    be_patient()
    assert RemotingClient.invoke_sync.waits and RemotingClient.invoke_async.waits
    assert not hasattr(RemotingClient.invoke_sync.__wrapped__, "waits")
