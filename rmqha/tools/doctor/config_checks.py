"""What is wrong with a broker's config file by itself."""
import ipaddress
from dataclasses import dataclass, field

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import ConfigError, load_config_file
from rmqha.common.java import JavaProperties
from rmqha.remoting.addresses import string2_socket_address
from rmqha.remoting.remoting_config import ClientConfig, ServerConfig
from rmqha.store.message_store_config import AUTO_SWITCH, BrokerRole, MessageStoreConfig, waits_for_promotion
from rmqha.tools.doctor.findings import Report

_DEFAULT_LISTEN_PORT = 10911
_OTHER_KEYS = ("rmqAddressServerDomain", "rmqAddressServerSubGroup")


@dataclass
class LoadedConfig:
    """A broker's config file, read as the broker reads it."""

    file: str
    properties: JavaProperties
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    server: ServerConfig = field(default_factory=lambda: ServerConfig(listenPort=_DEFAULT_LISTEN_PORT))
    store: MessageStoreConfig = field(default_factory=MessageStoreConfig)

    @property
    def ha_port(self) -> int:
        """Whatever haListenPort says."""
        return self.server.listenPort + 1

    @property
    def is_slave(self) -> bool:
        """Whether its role is a slave's."""
        return self.store.brokerRole is BrokerRole.SLAVE

    @property
    def namesrv_addresses(self) -> list[str]:
        """The name servers."""
        return [address.strip() for address in (self.broker.namesrvAddr or "").split(";") if address.strip()]

    @property
    def on_one_host(self) -> bool:
        """Whether all its name servers are of this host by their addresses."""
        return bool(self.namesrv_addresses) and all(is_loopback(each.rpartition(":")[0])
                                                    for each in self.namesrv_addresses)

    def place(self, key: str) -> str:
        """Where a key stands: file:line."""
        line = self.properties.lines.get(key)
        return f"{self.file}:{line}" if line else self.file


def is_loopback(host: str) -> bool:
    """Whether an address means the host itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_config_file(file: str, report: Report) -> LoadedConfig | None:
    """Read a file and judge its keys; None when it can't be read."""
    loaded = LoadedConfig(file, JavaProperties())
    warnings: list[str] = []
    try:
        loaded.properties = load_config_file(file, (loaded.broker, loaded.server, ClientConfig(), loaded.store),
                                             _OTHER_KEYS, warn=warnings.append)
    except ConfigError as error:
        report.error("config", file, str(error).removeprefix(f"{file}: "), "a broker does not start with this: "
                     "correct the file")
        return None
    for text in warnings:
        place, _colon, what = text.partition(": ")
        report.warning("config", place, what, "correct the key or remove it: a broker goes on without it")
    _check_role(loaded, report)
    _check_master_address(loaded, report)
    _check_replicas(loaded, report)
    _check_name_servers(loaded, report)
    ha_port = loaded.properties.get("haListenPort")
    if ha_port is not None and ha_port.strip() != str(loaded.ha_port):
        report.warning("ports", loaded.place("haListenPort"), f"haListenPort={ha_port} has no effect: slaves are "
                       f"served on {loaded.ha_port}, listenPort + 1", "remove the key, and open that port")
    return loaded


def _check_role(loaded: LoadedConfig, report: Report) -> None:
    role, broker_id = loaded.store.brokerRole.name, loaded.broker.brokerId
    waits = waits_for_promotion(loaded.broker, loaded.store)
    if waits is not None:
        report.warning("roles", loaded.place(AUTO_SWITCH), f"{AUTO_SWITCH}: {waits}", "remove the key, or promote the "
                       "broker after each start; with controllers set enableControllerMode and controllerAddr")
    if loaded.broker.enableControllerMode:
        _check_controllers(loaded, report)
    elif loaded.is_slave and broker_id <= 0:
        report.error("roles", loaded.place("brokerId"), f"brokerRole=SLAVE with brokerId={broker_id}: 0 is the "
                     "master's", "give each slave of a master its own brokerId above 0")
    elif not loaded.is_slave and broker_id != 0:
        report.error("roles", loaded.place("brokerId"), f"brokerRole={role} with brokerId={broker_id}: the broker will "
                     "be master 0 all the same", "a slave needs brokerRole=SLAVE, a master brokerId=0")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} {broker_id} is a {role}")


def _check_controllers(loaded: LoadedConfig, report: Report) -> None:
    """Role and id are the controller's to give; what the file says of them does not matter."""
    addresses = [part.strip() for part in loaded.broker.controllerAddr.split(";") if part.strip()]
    if not addresses:
        report.error("roles", loaded.place("enableControllerMode"), "enableControllerMode=true without controllerAddr: "
                     "nobody gives it an id and a role", "set controllerAddr, host:port of all controllers joined by ;")
    else:
        report.good("roles", loaded.file, f"{loaded.broker.brokerName} asks {', '.join(addresses)} for its role")


def _check_master_address(loaded: LoadedConfig, report: Report) -> None:
    address = loaded.store.haMasterAddress
    if not loaded.is_slave or loaded.broker.enableControllerMode:
        return
    if not address:
        if not loaded.namesrv_addresses:
            report.error("roles", loaded.file, "a slave without haMasterAddress and without namesrvAddr finds no "
                         "master", "set namesrvAddr, or haMasterAddress=<master's brokerIP2>:<its listenPort + 1>")
        return
    host, port = string2_socket_address(address)
    if port == loaded.ha_port and host in (loaded.broker.brokerIP2, loaded.broker.brokerIP1, "127.0.0.1", "localhost"):
        report.error("roles", loaded.place("haMasterAddress"), f"haMasterAddress={address} is this broker's own HA "
                     "port: it would follow itself", "give the master's")


def _check_replicas(loaded: LoadedConfig, report: Report) -> None:
    store = loaded.store
    for key in ("inSyncReplicas", "minInSyncReplicas"):
        if "totalReplicas" in loaded.properties and getattr(store, key) > store.totalReplicas:
            report.warning("roles", loaded.place(key), f"{key}={getattr(store, key)} is more than "
                           f"totalReplicas={store.totalReplicas}: sends would wait for brokers that there are not",
                           "raise totalReplicas or lower the key; the master itself counts")


def _check_name_servers(loaded: LoadedConfig, report: Report) -> None:
    if not loaded.namesrv_addresses:
        report.warning("nameserver", loaded.file, "no namesrvAddr: no client finds this broker",
                       "set namesrvAddr=host:port, several separated by semicolons")
