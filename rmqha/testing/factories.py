"""Factories of fixtures, for clusters with other settings than the pytest options.

    two_masters = factories.rocketmq("2m-2s", sync=True)

The default of an argument that is left out (None) is the option on the command line, else the one in the ini file. No
server code is imported before a fixture is used.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rmqha.testing.fixture_options import cluster_options, namesrv_addr

if TYPE_CHECKING:
    from rmqha.testing.embedded import EmbeddedRocketMQ
    from rmqha.testing.process import RemoteRocketMQ, RocketMQProcess


class Clusters:
    """The clusters of this process's tests, by fixture: started on first use, and stopped at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._by_fixture: dict[str, EmbeddedRocketMQ] = {}

    def clean(self, fixture: str, chosen: Mapping[str, Any]) -> EmbeddedRocketMQ:
        """Return the cluster of a fixture: start it on first use, else reset it to its state after the start."""
        from rmqha.testing.embedded import EmbeddedRocketMQ

        mq = self._by_fixture.get(fixture)
        if mq is not None:
            mq.reset()
            return mq
        options = cluster_options(self._config, chosen)
        mq = EmbeddedRocketMQ(options.topology, sync=options.sync, host=options.host, store_dir=options.store_dir,
                              config=options.config)
        mq.start()
        self._by_fixture[fixture] = mq
        return mq

    def stop(self) -> None:
        """Stop all clusters."""
        while self._by_fixture:
            self._by_fixture.popitem()[1].stop()


@contextmanager
def told_briefly() -> Iterator[None]:
    """Fail the test with the text of an EmbeddedError, without a traceback."""
    from rmqha.testing.node import EmbeddedError

    try:
        yield
    except EmbeddedError as error:
        pytest.fail(str(error), pytrace=False)


def rocketmq(topology: str | None = None, *, sync: bool | None = None, host: str | None = None,
             store_dir: str | None = None, config: Mapping[str, object] | None = None) -> Any:
    """Return a fixture: a cluster in the test's process (EmbeddedRocketMQ), clean for each test."""
    chosen = {"topology": topology, "sync": sync, "host": host, "store_dir": store_dir, "config": config}

    @pytest.fixture
    def rocketmq_fixture(request: pytest.FixtureRequest) -> Iterator[EmbeddedRocketMQ]:
        """A clean RocketMQ in the test process, with built-in fault injection: an EmbeddedRocketMQ."""
        clusters: Clusters = request.getfixturevalue("rocketmq_clusters")
        with told_briefly():
            mq = clusters.clean(str(request.fixturename), chosen)
        yield mq
        mq.heal()

    return rocketmq_fixture


def rocketmq_proc(topology: str | None = None, *, sync: bool | None = None, host: str | None = None,
                  port: int | None = None, store_dir: str | None = None,
                  config: Mapping[str, object] | None = None) -> Any:
    """Return a fixture: a cluster in a separate process (RocketMQProcess), one for the session."""
    chosen = {"topology": topology, "sync": sync, "host": host, "port": port, "store_dir": store_dir, "config": config}

    @pytest.fixture(scope="session")
    def rocketmq_proc_fixture(request: pytest.FixtureRequest) -> Iterator[RocketMQProcess]:
        """A RocketMQ in a separate process, shared by all tests: a RocketMQProcess."""
        from rmqha.testing.process import RocketMQProcess

        with told_briefly():
            options = cluster_options(request.config, chosen)
            mq = RocketMQProcess(options.topology, sync=options.sync, host=options.host, port=options.port,
                                 store_dir=options.store_dir, config=options.config)
            mq.start()
        yield mq
        mq.stop()

    return rocketmq_proc_fixture


def rocketmq_noproc(address: str | None = None) -> Any:
    """Return a fixture: an existing cluster at `address` (RemoteRocketMQ)."""

    @pytest.fixture(scope="session")
    def rocketmq_noproc_fixture(request: pytest.FixtureRequest) -> RemoteRocketMQ:
        """An existing RocketMQ cluster: a RemoteRocketMQ."""
        from rmqha.testing.process import RemoteRocketMQ

        with told_briefly():
            mq = RemoteRocketMQ(namesrv_addr(request.config, address))
            mq.brokers()
        return mq

    return rocketmq_noproc_fixture
