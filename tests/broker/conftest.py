"""A broker in this process on free ports, and a client that speaks the wire protocol."""
import pytest

from tests.broker.support import BrokerHarness, running_broker


@pytest.fixture
def broker(tmp_path):
    """A master with an empty store and no name server."""
    with running_broker(tmp_path) as harness:
        yield harness


@pytest.fixture(scope="module")
def shared_broker(tmp_path_factory) -> BrokerHarness:
    """A broker shared by the tests of a module, each of which uses its own topics."""
    with running_broker(tmp_path_factory.mktemp("broker")) as harness:
        yield harness
