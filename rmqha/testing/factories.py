"""Factories of fixtures, for clusters with other settings than the pytest options.

    two_masters = factories.rocketmq("2m-2s", sync=True)

The default of an argument that is left out (None) is the option on the command line, else the one in the ini file. No
server code is imported before a fixture is used.
"""
from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rmqha.testing.fixture_options import EMBEDDED, ClusterOptions, cluster_options, namesrv_addr, option

if TYPE_CHECKING:
    from rmqha.testing.async_clients import AsyncClients
    from rmqha.testing.cluster_admin import Cluster
    from rmqha.testing.embedded import EmbeddedRocketMQ
    from rmqha.testing.isolated_topic import IsolatedTopic
    from rmqha.testing.process import RemoteRocketMQ, RocketMQProcess
    from rmqha.testing.transactions import Transactions

_DEFAULT = "rocketmq"
# An attribute of the functions of fixtures that are clusters
_IS_CLUSTER = "is_rocketmq_cluster"


class Clusters:
    """The clusters of this process's tests, by fixture: started on first use, and stopped at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._by_fixture: dict[str, EmbeddedRocketMQ | RocketMQProcess] = {}

    def clean(self, fixture: str, chosen: Mapping[str, Any]) -> EmbeddedRocketMQ | RocketMQProcess:
        """Return the cluster of a fixture: start it on first use, else reset it to its state after the start."""
        mq = self._by_fixture.get(fixture)
        if mq is not None and mq.is_running:
            mq.reset()
            return mq
        if mq is not None:  # a process that the test has ended
            mq.stop()
        mq = _cluster(cluster_options(self._config, chosen))
        mq.start()
        self._by_fixture[fixture] = mq
        return mq

    def stop(self) -> None:
        """Stop all clusters."""
        while self._by_fixture:
            self._by_fixture.popitem()[1].stop()


def _cluster(options: ClusterOptions) -> EmbeddedRocketMQ | RocketMQProcess:
    if options.backend != EMBEDDED:
        return _process(options)
    with _no_garbage_collection():
        from rmqha.testing.embedded import EmbeddedRocketMQ

    return EmbeddedRocketMQ(options.topology, sync=options.sync, host=options.host, store_dir=options.store_dir,
                            config=options.config)


def _process(options: ClusterOptions, port: int = 0) -> RocketMQProcess:
    from rmqha.testing.process import RocketMQProcess

    return RocketMQProcess(options.topology, sync=options.sync, host=options.host, port=port,
                           store_dir=options.store_dir, config=options.config, rocketmq_home=options.home,
                           unsupported=pytest.skip)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Import without garbage collections: they would free nothing, and take milliseconds each."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def told_briefly() -> Iterator[None]:
    """Fail the test with the text of an EmbeddedError, without a traceback."""
    from rmqha.testing.cluster_parts import EmbeddedError

    try:
        yield
    except EmbeddedError as error:
        pytest.fail(str(error), pytrace=False)


def _scope(chosen: str | None) -> Any:
    """Return the scope of a fixture, or a function that pytest asks for it."""
    def of_option(*, fixture_name: str, config: pytest.Config) -> str:
        return str(option(config, "scope", None, "function"))

    return chosen or of_option


def rocketmq(topology: str | None = None, *, sync: bool | None = None, host: str | None = None,
             store_dir: str | None = None, config: Mapping[str, object] | None = None, backend: str | None = None,
             scope: str | None = None) -> Any:
    """Return a fixture: a cluster (EmbeddedRocketMQ; RocketMQProcess with another backend), clean for each test.

    With a wider `scope` than "function" it is clean once in its scope.
    """
    chosen = {"topology": topology, "sync": sync, "host": host, "store_dir": store_dir, "config": config,
              "backend": backend}

    def rocketmq_fixture(request: pytest.FixtureRequest) -> Iterator[EmbeddedRocketMQ | RocketMQProcess]:
        """A clean RocketMQ in the test process, with built-in fault injection: an EmbeddedRocketMQ."""
        clusters: Clusters = request.getfixturevalue("rocketmq_clusters")
        with told_briefly():
            mq = clusters.clean(str(request.fixturename), chosen)
        yield mq
        mq.heal()

    setattr(rocketmq_fixture, _IS_CLUSTER, True)
    return pytest.fixture(scope=_scope(scope))(rocketmq_fixture)


def rocketmq_proc(topology: str | None = None, *, sync: bool | None = None, host: str | None = None,
                  port: int | None = None, store_dir: str | None = None,
                  config: Mapping[str, object] | None = None, backend: str | None = None) -> Any:
    """Return a fixture: a cluster in a separate process (RocketMQProcess), one for the session."""
    chosen = {"topology": topology, "sync": sync, "host": host, "port": port, "store_dir": store_dir, "config": config,
              "backend": backend}

    def rocketmq_proc_fixture(request: pytest.FixtureRequest) -> Iterator[RocketMQProcess]:
        """A RocketMQ in a separate process, shared by all tests: a RocketMQProcess."""
        with told_briefly():
            options = cluster_options(request.config, chosen)
            mq = _process(options, options.port)
            mq.start()
        yield mq
        mq.stop()

    setattr(rocketmq_proc_fixture, _IS_CLUSTER, True)
    return pytest.fixture(scope="session")(rocketmq_proc_fixture)


def rocketmq_noproc(address: str | None = None) -> Any:
    """Return a fixture: an existing cluster at `address` (RemoteRocketMQ)."""

    def rocketmq_noproc_fixture(request: pytest.FixtureRequest) -> Iterator[RemoteRocketMQ]:
        """An existing RocketMQ cluster: a RemoteRocketMQ."""
        from rmqha.testing.process import RemoteRocketMQ

        with told_briefly():
            mq = RemoteRocketMQ(namesrv_addr(request.config, address))
            mq.brokers()
        yield mq
        mq.close()

    setattr(rocketmq_noproc_fixture, _IS_CLUSTER, True)
    return pytest.fixture(scope="session")(rocketmq_noproc_fixture)


def _server_of(request: pytest.FixtureRequest, on: str | None) -> Cluster:
    """Return the cluster that a test uses: of the fixture `on`, else of the one that the test requests, else of
    `rocketmq`."""
    requested = [on] if on is not None else _clusters_of(request.node)
    if len(requested) > 1:
        pytest.fail(f"the test uses several clusters, {' and '.join(requested)}; choose one with the argument `on` of "
                    f"a factory: {request.fixturename} = factories.{request.fixturename}(on={requested[0]!r})",
                    pytrace=False)
    found: Cluster = request.getfixturevalue(requested[0] if requested else _DEFAULT)
    return found


def _clusters_of(item: Any) -> list[str]:
    """Return the names of the fixtures that a test (a pytest.Item) requests, itself or by other fixtures, and that are
    clusters."""
    definitions = item._fixtureinfo.name2fixturedefs
    return [name for name, found in definitions.items() if found and hasattr(found[-1].func, _IS_CLUSTER)]


def _heal(mq: Cluster) -> None:
    """End the faults that the test has left, before clients and topics of the test are removed."""
    heal = getattr(mq, "heal", None)  # an existing cluster has no faults
    if heal is not None:
        heal()


def rocketmq_topic(queues: int = 4, *, on: str | None = None) -> Any:
    """Return a fixture: a topic that only one test uses (IsolatedTopic, a str). It is deleted after the test.

    `on`: the name of the cluster's fixture; None: the one that the test requests, else `rocketmq`.
    """

    @pytest.fixture
    def rocketmq_topic_fixture(request: pytest.FixtureRequest) -> Iterator[IsolatedTopic]:
        """The name of a new topic that only this test uses: an IsolatedTopic, which is a str."""
        mq = _server_of(request, on)
        from rmqha.testing.isolated_topic import IsolatedTopic

        with told_briefly():
            topic = IsolatedTopic.create(mq, request.node.name, queues)
        yield topic
        _heal(mq)
        with told_briefly():
            topic.delete()

    return rocketmq_topic_fixture


def rocketmq_aio(*, on: str | None = None) -> Any:
    """Return a fixture: asyncio clients that are closed in the test's event loop (AsyncClients).

    `on`: the name of the cluster's fixture; None: the one that the test requests, else `rocketmq`.
    """

    @pytest.fixture
    def rocketmq_aio_fixture(request: pytest.FixtureRequest) -> Iterator[AsyncClients]:
        """A maker of asyncio producers and consumers, which are closed when the test ends: an AsyncClients."""
        mq = _server_of(request, on)
        from rmqha.testing.async_clients import AsyncClients, closing_at_end

        clients = AsyncClients(mq, request.node.name)
        with closing_at_end(clients, request.node):
            yield clients
            _heal(mq)

    return rocketmq_aio_fixture


def rocketmq_transactions(*, on: str | None = None) -> Any:
    """Return a fixture: transactions under the test's control (Transactions).

    `on`: the name of the cluster's fixture; None: the one that the test requests, else `rocketmq`.
    """

    @pytest.fixture
    def rocketmq_transactions_fixture(request: pytest.FixtureRequest) -> Iterator[Transactions]:
        """Transactional messages, with outcomes and checks under the test's control: a Transactions."""
        mq = _server_of(request, on)
        from rmqha.testing.transactions import Transactions

        transactions = Transactions(mq, request.node.name, unsupported=pytest.skip)
        yield transactions
        _heal(mq)
        transactions.close()

    return rocketmq_transactions_fixture
