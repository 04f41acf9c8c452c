"""The pytest plugin: RocketMQ as fixtures. See docs/testing.md.

It does nothing, and imports no server code, until a fixture is used.
"""
from collections.abc import Iterator

import pytest

from rmqha.testing import factories
from rmqha.testing.fixture_options import add_options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options --rocketmq-..., and the same options of the ini file."""
    add_options(parser)


@pytest.fixture(scope="session")
def rocketmq_clusters(pytestconfig: pytest.Config) -> Iterator[factories.Clusters]:
    """Provide the clusters of this process to the other fixtures."""
    clusters = factories.Clusters(pytestconfig)
    yield clusters
    clusters.stop()


rocketmq = factories.rocketmq()
rocketmq_ha = factories.rocketmq("1m-1s", sync=True)
rocketmq_proc = factories.rocketmq_proc()
rocketmq_noproc = factories.rocketmq_noproc()
rocketmq_topic = factories.rocketmq_topic()
rocketmq_aio = factories.rocketmq_aio()
rocketmq_transactions = factories.rocketmq_transactions()
