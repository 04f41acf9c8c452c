"""Where the brokers of a cluster keep their logs: asked of the name server and the brokers, for audits of all of it."""
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqha.client.client_config import ClientConfig
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol.topic_route_data import BrokerData
from rmqha.pipeline.cluster.client_options import CLIENT_OPTIONS
from rmqha.pipeline.cluster.cluster_client import UNREACHABLE, ClusterClient, cluster_client
from rmqha.pipeline.log.log_files import COMMIT_LOG, find_logs
from rmqha.pipeline.options import Options, PipelineError
from rmqha.remoting.remoting_config import ClientConfig as RemotingClientConfig

TIMEOUT_MS = 10_000
_PLACES = "{cluster}, {brokerName}, {brokerId}, {host}, {port} and {path}"


class BrokerStore(NamedTuple):
    """A broker, and the folder of its commit log as seen from here."""

    cluster: str
    name: str
    broker_id: int
    address: str
    path: str


@dataclass
class ClusterStores:
    """Each master with each of its slaves, as paths; `notes`: what has no other side."""

    pairs: list[tuple[str, str, str]] = field(default_factory=list)  # master, slave, name of the broker
    notes: list[str] = field(default_factory=list)


def find_stores(name_server: str, *, cluster: str | None = None, broker: str | None = None,
                mounted: str | None = None, client: Mapping[str, str] | None = None) -> ClusterStores:
    """The stores of all masters and slaves that a name server knows, or of one cluster or broker name.

    `mounted`: where a store is seen from here, such as /mnt/{brokerName}-{brokerId}; by default where its broker has
    it. `client`: options `rocketmq.*`; where there is access control, those of an admin. PipelineError when somebody
    does not answer, or a store is not there.
    """
    whom = cluster_client(Options({**(client or {}), "nameServer": name_server}, ("nameServer", *CLIENT_OPTIONS),
                                  f"name server {name_server}"))
    stores = _ask(whom, cluster, broker, mounted)
    found = ClusterStores()
    compared: list[BrokerStore] = []
    for name in sorted({store.name for store in stores}):
        own = sorted((store for store in stores if store.name == name), key=lambda store: store.broker_id)
        masters = [store for store in own if store.broker_id == MASTER_ID]
        slaves = [store for store in own if store.broker_id != MASTER_ID]
        if not masters:
            found.notes.append(f"{name} has no master now: its slaves are {_names(slaves)}")
        elif not slaves:
            found.notes.append(f"{name} has no slave now: its master is {_names(masters)}")
        found.pairs += [(master.path, slave.path, name) for master in masters for slave in slaves]
        compared += masters + slaves if masters and slaves else []
    _check_here(compared, mounted)
    return found


def _names(stores: Iterable[BrokerStore]) -> str:
    return ", ".join(f"{store.address} (id {store.broker_id})" for store in stores)


def _ask(client: ClusterClient, cluster: str | None, broker: str | None, mounted: str | None) -> list[BrokerStore]:
    name_server = client.name_server
    config = ClientConfig(namesrv_addr=name_server)
    client.client.apply(config)
    api = MQClientAPIImpl(RemotingClientConfig(clientCallbackExecutorThreads=1, connectTimeoutMillis=TIMEOUT_MS,
                                               useTLS=config.use_tls), config, client.client.hook)
    api.update_name_server_address_list(name_server)
    api.start()
    whom = f"name server {name_server}"
    stores = []
    try:
        table = api.get_broker_cluster_info(TIMEOUT_MS).brokerAddrTable
        _check_names(whom, table, cluster, broker)
        for data in table.values():
            if cluster not in (None, data.cluster) or broker not in (None, data.brokerName):
                continue
            for broker_id, address in data.brokerAddrs.items():
                whom = f"broker {address}"
                settings = api.get_broker_config(address, TIMEOUT_MS)
                stores.append(_store(data.cluster, data.brokerName, broker_id, address, settings, mounted))
    except UNREACHABLE as error:
        said = client.said(error)
        raise PipelineError(said if said.startswith(whom) else f"{whom}: {said}") from None
    finally:
        api.shutdown()
    return stores


def _check_names(whom: str, table: dict[str, BrokerData], cluster: str | None, broker: str | None) -> None:
    clusters = {data.cluster for data in table.values()}
    if cluster is not None and cluster not in clusters:
        raise PipelineError(f"{whom} knows no cluster {cluster!r}; there are: {', '.join(sorted(clusters)) or 'none'}")
    if broker is not None and broker not in table:
        raise PipelineError(f"{whom} knows no broker {broker!r}; there are: {', '.join(sorted(table)) or 'none'}")
    if not table:
        raise PipelineError(f"{whom} knows no broker")


def _store(cluster: str, name: str, broker_id: int, address: str, settings: dict[str, str],
           mounted: str | None) -> BrokerStore:
    path = settings.get("storePathCommitLog") or f"{settings.get('storePathRootDir', '')}/{COMMIT_LOG}"
    if mounted is not None:
        host, _, port = address.rpartition(":")
        try:
            path = mounted.format(cluster=cluster, brokerName=name, brokerId=broker_id, host=host, port=port, path=path)
        except (LookupError, ValueError, AttributeError) as error:
            raise PipelineError(f"--mounted {mounted!r}: {error!r}. It may have {_PLACES}") from None
    return BrokerStore(cluster, name, broker_id, address, path)


def _check_here(stores: list[BrokerStore], mounted: str | None) -> None:
    """PipelineError that names all stores which are not there."""
    missing = []
    for store in stores:
        try:
            find_logs([store.path])
        except PipelineError as error:
            missing.append(f"{store.name} (id {store.broker_id}, {store.address}): {error}")
    if missing:
        raise PipelineError("an audit reads the stores themselves, and these are not here: " + "; ".join(missing)
                            + ". Mount them, and say where" + ("" if mounted else " with --mounted, such as "
                                                               "'/mnt/{brokerName}-{brokerId}'"))
