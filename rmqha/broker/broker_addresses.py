"""The addresses of a broker, and its name."""
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message.message_layout import Host
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import MessageStoreConfig


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
    def ha_server_addr(self) -> str:
        """The address for slaves, `brokerIP2:port`."""
        port = self._store_config.haListenPort
        if port == 0 and self._ha_service is not None:
            port = self._ha_service.ha_listen_port
        return f"{self._config.brokerIP2}:{port}"
