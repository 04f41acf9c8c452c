"""Where others find a broker, and under which name."""
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message.message_layout import Host
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import MessageStoreConfig


class BrokerAddresses:
    """The addresses of one broker. Its ports are known once it is started: `listens_at`, `replicates_by`."""

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig, port: int) -> None:
        self._config, self._store_config = broker_config, message_store_config
        self.store_host: Host = (broker_config.brokerIP1, port)  # that messages carry; replaced as a whole
        self._ha_service: HAService | None = None

    def listens_at(self, host: str, port: int) -> None:
        """The main port is bound."""
        self.store_host = (host, port)

    def replicates_by(self, ha_service: HAService) -> None:
        """Slaves are served by this one, whose port may be any."""
        self._ha_service = ha_service

    @property
    def broker_name(self) -> str:
        """The name that a master shares with its slaves."""
        return self._config.brokerName

    @property
    def broker_addr(self) -> str:
        """`brokerIP1:port`, at which clients find this broker."""
        return f"{self._config.brokerIP1}:{self.store_host[1]}"

    @property
    def ha_server_addr(self) -> str:
        """The `ip:port` at which slaves find this broker."""
        port = self._store_config.haListenPort
        if port == 0 and self._ha_service is not None:
            port = self._ha_service.ha_listen_port
        return f"{self._config.brokerIP2}:{port}"
