"""Who shares a client instance."""
import threading
from typing import TYPE_CHECKING

from rmqha.client.client_config import ClientConfig
from rmqha.client.impl.mq_client_instance import MQClientInstance

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


class MQClientManager:
    """Client id -> instance. Producers and consumers made with one manager and one instance name share connections.

        manager = MQClientManager()
        producer = DefaultMQProducer("orders", "127.0.0.1:9876", client_manager=manager)
        producer.instance_name = "shop"

    Java: org.apache.rocketmq.client.impl.MQClientManager (4.9.8)
    """

    # Differs: not one per process: each producer and consumer has its own unless a manager is given to several
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._factory_table: dict[str, MQClientInstance] = {}  # guarded by _lock
        self._factory_index = 0  # guarded by _lock

    def get_or_create_mq_client_instance(
        self, client_config: ClientConfig, rpc_hook: "RPCHook | None" = None
    ) -> MQClientInstance:
        """The instance of this client id, made when there is none yet."""
        client_id = client_config.build_mq_client_id()
        with self._lock:
            instance = self._factory_table.get(client_id)
            if instance is None:
                instance = MQClientInstance(
                    client_config.clone_client_config(), self._factory_index, client_id, rpc_hook,
                    self.remove_client_factory)
                self._factory_index += 1
                self._factory_table[client_id] = instance
            return instance

    def remove_client_factory(self, client_id: str) -> None:
        """Forget an instance that was shut down."""
        with self._lock:
            self._factory_table.pop(client_id, None)
