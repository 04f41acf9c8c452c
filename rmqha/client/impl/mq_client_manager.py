"""The creation and sharing of client instances."""
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.client.client_config import ClientConfig
from rmqha.client.impl.default_mq_producer_impl import DefaultMQProducerImpl
from rmqha.client.impl.mq_client_instance import FindInstance, MQClientInstance
from rmqha.client.producer.producer_config import ProducerConfig
from rmqha.common import mix_all

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


def make_client_instance(
    client_config: ClientConfig,
    instance_index: int,
    client_id: str,
    rpc_hook: "RPCHook | None" = None,
    on_shutdown: Callable[[str], None] | None = None,
) -> MQClientInstance:
    """Create an instance with the inner producer that sends for its consumers."""
    config = ProducerConfig()
    config.reset_client_config(client_config)
    config.producer_group = mix_all.CLIENT_INNER_PRODUCER_GROUP
    inner_producer = DefaultMQProducerImpl(config, lambda: instance)
    instance = MQClientInstance(client_config, instance_index, client_id, inner_producer, rpc_hook, on_shutdown)
    return instance


class MQClientManager:
    """A table of client ids and instances.

    Producers and consumers created with the same manager and the same instance name share connections.

        manager = MQClientManager()
        producer = DefaultMQProducer("orders", "127.0.0.1:9876", client_manager=manager)
        producer.instance_name = "shop"

    Java: org.apache.rocketmq.client.impl.MQClientManager (4.9.8)
    """

    # Differs: the manager of client instances is not a singleton. Each producer and consumer has its own manager,
    # unless several are given the same one
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._factory_table: dict[str, MQClientInstance] = {}  # guarded by _lock
        self._factory_index = 0  # guarded by _lock

    def get_or_create_mq_client_instance(
        self, client_config: ClientConfig, rpc_hook: "RPCHook | None" = None
    ) -> MQClientInstance:
        """Return the instance of this client id; create it if necessary."""
        client_id = client_config.build_mq_client_id()
        with self._lock:
            instance = self._factory_table.get(client_id)
            if instance is None:
                instance = make_client_instance(
                    client_config.clone_client_config(), self._factory_index, client_id, rpc_hook,
                    self.remove_client_factory)
                self._factory_index += 1
                self._factory_table[client_id] = instance
            return instance

    def remove_client_factory(self, client_id: str) -> None:
        """Forget an instance that was shut down."""
        with self._lock:
            self._factory_table.pop(client_id, None)


def find_instance(
    client_manager: MQClientManager | None, client_config: ClientConfig, rpc_hook: "RPCHook | None"
) -> FindInstance:
    """Return the function that finds a client's instance: in `client_manager`, or in a manager of its own."""
    manager = client_manager or MQClientManager()
    return functools.partial(manager.get_or_create_mq_client_instance, client_config, rpc_hook)
