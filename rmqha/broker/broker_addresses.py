"""The addresses of a broker, its name, and its place in the tables of name servers."""
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.message.message_layout import Host
from rmqha.common.mix_all import MASTER_ID
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import MessageStoreConfig


class Place(NamedTuple):
    """The place of a broker in a name server's tables, in the order of a request to unregister it."""

    cluster: str
    address: str
    name: str
    broker_id: int


class BrokerAddresses:
    """The addresses of one broker. Its ports are known once it has started: see `listens_at` and `replicates_by`."""

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig, port: int) -> None:
        self._config, self._store_config = broker_config, message_store_config
        # The store host of messages. Always replaced as a whole.
        self.store_host: Host = (broker_config.brokerIP1, port)
        self._ha_service: HAService | None = None

    def listens_at(self, host: str, port: int) -> None:
        """Set the address of the main port, which is bound now."""
        self.store_host = (host, port)

    def replicates_by(self, ha_service: HAService) -> None:
        """Set the service for slaves; with haListenPort=0 its port is known only once it is bound."""
        self._ha_service = ha_service

    @property
    def broker_name(self) -> str:
        """The broker name, which a master shares with its slaves."""
        return self._config.brokerName

    @property
    def broker_addr(self) -> str:
        """The address for clients, `brokerIP1:port`."""
        return f"{self._config.brokerIP1}:{self.store_host[1]}"

    @property
    def master_address(self) -> str:
        """The address that any master of this name registers; "" if a master registers its own (masterAddress)."""
        return self._config.masterAddress

    def registered_addr(self, broker_id: int) -> str:
        """Return the address that is registered at name servers for a broker with this id."""
        shared = self._config.masterAddress if broker_id == MASTER_ID else ""
        return shared or self.broker_addr

    @property
    def ha_server_addr(self) -> str:
        """The address for slaves, `brokerIP2:port`."""
        port = self._store_config.haListenPort
        if port == 0 and self._ha_service is not None:
            port = self._ha_service.ha_listen_port
        return f"{self._config.brokerIP2}:{port}"
