"""A remoting server and a remoting client, for one test."""
import pytest

from tests.remoting.support import running_client, running_server


@pytest.fixture
def server():
    with running_server() as started:
        yield started


@pytest.fixture
def client():
    with running_client() as started:
        yield started
