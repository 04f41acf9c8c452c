"""Clients of a live cluster: their options `rocketmq.*`, consumers and producers, and the stores of its brokers.

- `ClientOptions`: credentials and connection settings of the source, the stream and the sink. The driver reads them,
  so a file with keys only has to exist there; certificates are read by each task.
- `ClusterClient`: consumers and producers with these options, and readable messages for their errors.
- `find_stores`: asks the name server and the brokers where the brokers keep their logs, for audits of a whole
  cluster.
"""
import os
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.client.client_config import ClientConfig
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import mix_all
from rmqha.common.configuration import ConfigError
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol.topic_route_data import BrokerData
from rmqha.common.texts import Secret
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.log.log_scan import COMMIT_LOG, find_logs
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingException,
    RemotingSendRequestException,
    RemotingTimeoutException,
)
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.remoting.tls_system_config import TlsSystemConfig, use_tls

_TLS = "rocketmq.tls."
_TLS_ENABLE, _TLS_TEST_MODE, _TLS_FILE = _TLS + "enable", _TLS + "test.mode.enable", _TLS + "config.file"
_AUTH_SERVER, _TRUST = _TLS + "client.authServer", _TLS + "client.trustCertPath"
# Option -> field of TlsSystemConfig: the system properties of clients.
_TLS_TEXTS = {f"rocketmq.{each.metadata['property']}": each.name for each in fields(TlsSystemConfig)
              if each.metadata["property"].startswith("tls.client.") and each.name != "tls_client_auth_server"}
ACCESS_KEY, SECRET_KEY, TOKEN, KEY_FILE = ("rocketmq.accessKey", "rocketmq.secretKey", "rocketmq.securityToken",
                                           "rocketmq.keyFile")
NAMESPACE, VIP, UNIT = "rocketmq.namespace", "rocketmq.vipChannelEnabled", "rocketmq.unitName"
CLIENT_OPTIONS = (ACCESS_KEY, SECRET_KEY, TOKEN, KEY_FILE, NAMESPACE, VIP, UNIT, "rocketmq.namesrvAddr",
                  _TLS_ENABLE, _TLS_TEST_MODE, _TLS_FILE, _AUTH_SERVER, *_TLS_TEXTS)

SECRETS = (SECRET_KEY, TOKEN, *(name for name in _TLS_TEXTS if name.lower().endswith("password")))


@dataclass(frozen=True)
class _GivenTls(TlsSystemConfig):
    """Complete TLS settings: no file on the machine overrides them."""

    def with_config_file(self) -> TlsSystemConfig:
        """Return these settings."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the passwords too, since tasks need them; they are hidden again there."""
        values = [getattr(self, each.name) for each in fields(self)]
        return _GivenTls, tuple(value.reveal() if isinstance(value, Secret) else value for value in values)


@dataclass(frozen=True)
class ClientOptions:
    """The client settings that the options give. Sent to the tasks; the text form contains no secret."""

    credentials: SessionCredentials | None = None
    namespace: str | None = None
    vip_channel: bool = False
    unit_name: str | None = None
    # None: as the system property tls.enable says.
    use_tls: bool | None = None
    tls: TlsSystemConfig | None = field(default=None, repr=False)

    @property
    def hook(self) -> AclClientRPCHook | None:
        """The hook that signs requests, if there are keys."""
        return None if self.credentials is None else AclClientRPCHook(self.credentials)

    def apply(self, client: ClientConfig) -> None:
        """Configure a producer or a consumer that was created with `hook`, before it starts."""
        client.namespace = self.namespace
        client.vip_channel_enabled = self.vip_channel
        client.unit_name = self.unit_name
        client.tls = self.tls
        if self.use_tls is not None:
            client.use_tls = self.use_tls


def client_options(options: Options) -> ClientOptions:
    """Return the client settings of the options `rocketmq.*`. PipelineError for wrong or contradicting ones."""
    use_tls, tls = _tls(options)
    return ClientOptions(_credentials(options), options.text(NAMESPACE) or None, options.boolean(VIP, False),
                         options.text(UNIT) or None, use_tls, tls)


def _credentials(options: Options) -> SessionCredentials | None:
    options.one_of(KEY_FILE, ACCESS_KEY)
    options.one_of(KEY_FILE, SECRET_KEY)
    path = options.text(KEY_FILE)
    if path is not None:
        try:
            return SessionCredentials.from_key_file(path)
        except (ValueError, OSError) as error:
            raise PipelineError(f"{options.where}, option {KEY_FILE}: {error}") from None
    access, secret = options.text(ACCESS_KEY), options.text(SECRET_KEY)
    if not access and not secret:
        if TOKEN in options:
            raise PipelineError(f"{options.where}: {TOKEN} needs {ACCESS_KEY} and {SECRET_KEY}")
        return None
    if not access or not secret:
        raise PipelineError(f"{options.where} needs both {ACCESS_KEY} and {SECRET_KEY}, or {KEY_FILE}")
    return SessionCredentials(access, secret, options.text(TOKEN))


def _tls(options: Options) -> tuple[bool | None, TlsSystemConfig | None]:
    """Return (whether TLS is used, with which settings). Keys and trust settings switch TLS on when they are given."""
    given = [name for name in (_TLS_TEST_MODE, _TLS_FILE, _AUTH_SERVER, *_TLS_TEXTS) if name in options]
    if not given:
        return (options.boolean(_TLS_ENABLE, False) if _TLS_ENABLE in options else None), None
    if not options.boolean(_TLS_ENABLE, True):
        raise PipelineError(f"{options.where}: {_TLS_ENABLE}=false contradicts {given[0]}")
    return True, _GivenTls(**dict(_tls_fields(options, given)))


def _tls_fields(options: Options, given: list[str]) -> Iterator[tuple[str, Any]]:
    base = TlsSystemConfig()
    if _TLS_FILE in options:
        base = replace(base, tls_config_file=options.text(_TLS_FILE, ""))
    try:
        base = base.with_config_file()
    except ConfigError as error:
        raise PipelineError(f"{options.where}: {error}") from None
    keys = [name for name in given if name not in (_TLS_TEST_MODE, _TLS_FILE)]
    test_mode = options.boolean(_TLS_TEST_MODE, base.tls_test_mode_enable and not keys)
    if test_mode and keys:
        raise PipelineError(f"{options.where}: {_TLS_TEST_MODE}=true trusts every server, which contradicts {keys[0]}")
    auth_server = options.boolean(_AUTH_SERVER, base.tls_client_auth_server or _TRUST in options)
    if _TRUST in options and not auth_server:
        raise PipelineError(f"{options.where}: {_AUTH_SERVER}=false contradicts {_TRUST}")
    for each in fields(TlsSystemConfig):
        yield each.name, getattr(base, each.name)
    yield "tls_test_mode_enable", test_mode
    yield "tls_client_auth_server", auth_server
    for option, name in _TLS_TEXTS.items():
        if option in options:
            yield name, options.text(option)


DEFAULT_GROUP = "rmqha-pipeline"
UNREACHABLE = (MQClientException, MQBrokerException, RemotingException, ConfigError)
# The errors that a client sees if the endpoint requires TLS, or a certificate, and the client has none.
_CLOSED = (RemotingSendRequestException, RemotingTimeoutException)
_DENIED = re.compile(r"(?:\w+\.)*AclException: (.*?)(?:, [\w.$]+\([\w.]+:\d+\))?$")


@dataclass(frozen=True)
class ClusterClient:
    """The cluster to connect to, and the identity to use. Sent to the tasks."""

    name_server: str
    group: str
    client: ClientOptions

    def consumer(self) -> DefaultMQPullConsumer:
        """Return a consumer with its own instance name, not started."""
        consumer = DefaultMQPullConsumer(self.group, self.name_server, self.client.hook)
        self.client.apply(consumer)
        consumer.instance_name = _instance_name()
        return consumer

    def producer(self, group: str) -> DefaultMQProducer:
        """Return a producer with its own instance name, not started."""
        producer = DefaultMQProducer(group, self.name_server, self.client.hook)
        self.client.apply(producer)
        producer.instance_name = _instance_name()
        return producer

    def said(self, error: BaseException) -> str:
        """Return one line that says why something failed: a broker's answer, or else the network error."""
        inner = error
        while isinstance(inner.__cause__, UNREACHABLE):
            inner = inner.__cause__
        text = getattr(inner, "error_message", None) or str(inner)
        text = re.split(r"\nSee |\nFor more", text)[0].replace("\n", " ").strip()
        address = getattr(inner, "broker_addr", None)
        whom = f"broker {address}: " if address else ""
        denied = _DENIED.search(text)
        if denied:
            who = self.client.credentials
            keys = f"{ACCESS_KEY} is {who.access_key!r}" if who else f"set {ACCESS_KEY} and {SECRET_KEY}"
            return f"{whom}access control says: {denied[1]} ({keys})"
        return whom + text + self._hint(inner)

    def _hint(self, error: BaseException) -> str:
        """Return a hint at the likely cause of a connection error."""
        client = self.client
        if not (use_tls() if client.use_tls is None else client.use_tls):
            return " (if it requires TLS, set rocketmq.tls.enable=true)" if isinstance(error, _CLOSED) else ""
        if not isinstance(error, (*_CLOSED, RemotingConnectException)):
            return ""
        shown = client.tls is not None and client.tls.tls_client_cert_path
        return " (over TLS, with a certificate)" if shown else " (over TLS; if it requires a certificate, set " \
                                                               "rocketmq.tls.client.certPath and .keyPath)"


def cluster_client(options: Options) -> ClusterClient:
    """Return the client of the options. PipelineError for wrong or contradicting ones."""
    return ClusterClient(name_server_of(options), _group(options), client_options(options))


def name_server_of(options: Options) -> str:
    """Return the name server's address. PipelineError if none is given."""
    address = (options.same("nameServer", "namesrvAddr", "rocketmq.namesrvAddr")
               or os.environ.get(mix_all.NAMESRV_ADDR_ENV))
    if not address:
        raise PipelineError(f"{options.where} needs the option nameServer, such as 127.0.0.1:9876")
    return address


def _group(options: Options) -> str:
    given = options.same("group", "consumerGroup")
    prefix = options.text("groupIdPrefix")
    if given is not None and prefix is not None:
        raise PipelineError(f"{options.where}: group names the group, but groupIdPrefix makes a new one for each "
                            "query; give only one of them")
    return f"{prefix}-{uuid.uuid4().hex}" if prefix else given or DEFAULT_GROUP


def _instance_name() -> str:
    return f"pipeline-{os.getpid()}-{time.monotonic_ns()}"


TIMEOUT_MS = 10_000
_PLACES = "{cluster}, {brokerName}, {brokerId}, {host}, {port} and {path}"


class BrokerStore(NamedTuple):
    """A broker, and the folder of its commit log as seen from this host."""

    cluster: str
    name: str
    broker_id: int
    address: str
    path: str


@dataclass
class ClusterStores:
    """Each master with each of its slaves, as paths; `notes`: the brokers without a counterpart."""

    # Master, slave, name of the broker.
    pairs: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_stores(name_server: str, *, cluster: str | None = None, broker: str | None = None,
                mounted: str | None = None, client: Mapping[str, str] | None = None) -> ClusterStores:
    """Return the stores of all masters and slaves that a name server knows, or of one cluster or broker name.

    `mounted`: where a store is mounted on this host, such as /mnt/{brokerName}-{brokerId}; by default the broker's own
    path. `client`: options `rocketmq.*`; with access control, those of an admin. PipelineError if a server does not
    answer, or a store is not found.
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
    """Raise a PipelineError that names all stores that are not found."""
    missing = []
    for store in stores:
        try:
            find_logs([store.path])
        except PipelineError as error:
            missing.append(f"{store.name} (id {store.broker_id}, {store.address}): {error}")
    if missing:
        raise PipelineError("an audit reads the stores themselves, and these were not found: " + "; ".join(missing)
                            + ". Mount them, and give their place" + ("" if mounted else " with --mounted, such as "
                                                                      "'/mnt/{brokerName}-{brokerId}'"))
