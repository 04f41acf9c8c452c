"""The servers of tests/client, once more for this folder."""
from tests.client.conftest import servers  # noqa: F401  # a fixture
