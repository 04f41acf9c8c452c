"""The name server of a test's cluster."""
from __future__ import annotations

from pathlib import Path

from rmqha.common import mix_all
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.namesrv.kv_config_manager import KVConfigSerializeWrapper
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.addresses import PortError
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.testing.errors import EmbeddedError


class EmbeddedNameServer:
    """A name server on `port` (0: any), its files in `folder`. It runs from its making to `shutdown`."""

    def __init__(self, folder: Path, port: int) -> None:
        self._kv_file = folder / "kvConfig.json"
        config = NamesrvConfig(rocketmqHome=str(folder), kvConfigPath=str(self._kv_file),
                               configStorePath=str(folder / "namesrv.properties"))
        self.controller = NamesrvController(config, ServerConfig(listenPort=port))
        try:
            self.controller.initialize()
            self.controller.start()
        except PortError as error:
            self.controller.shutdown()
            raise EmbeddedError(f"the name server can't start: {error}") from error

    @property
    def port(self) -> int:
        """The bound port."""
        return self.controller.local_listen_port

    def addresses(self) -> set[str]:
        """Of all brokers that it names."""
        cluster = self.controller.route_info_manager.get_all_cluster_info()
        return {address for broker in (cluster.brokerAddrTable or {}).values() for address in
                broker.brokerAddrs.values()}

    def forget_settings(self) -> None:
        """Delete what was put into its key-value table (orders of topics are there)."""
        text = mix_all.file2string(str(self._kv_file))
        if text is None:
            return
        table = remoting_serializable.from_json(KVConfigSerializeWrapper, text).configTable or {}
        for namespace, values in table.items():
            for key in values:
                self.controller.kv_config_manager.delete_kv_config(namespace, key)

    def shutdown(self) -> None:
        """Stop. Idempotent."""
        self.controller.shutdown()
