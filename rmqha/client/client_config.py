"""Settings that producers and consumers share.

Settings as arguments: `Producer("orders", send_msg_timeout=5_000)` is the attribute, set before `start`. What type
checkers know of them is ClientSettings, and the classes beside the settings of producers and consumers; a test compares
them with the attributes.
"""
import enum
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import TypedDict

from rmqha.common import mix_all, util_all
from rmqha.common.configuration import nearest_key
from rmqha.common.lazy_dataclasses import dataclass, field, fields
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import namespace_util
from rmqha.remoting.tls_system_config import TlsSystemConfig, use_tls

DEFAULT_INSTANCE_NAME = "DEFAULT"


class AccessChannel(enum.Enum):
    """A cluster of one's own, or a cloud's: traces of a cloud go to a topic per region.

    Java: org.apache.rocketmq.client.AccessChannel (4.9.8)
    """

    LOCAL = 0
    CLOUD = 1


@dataclass
class ClientConfig:
    """Addresses and intervals (ms) of a client. Set them before `start`.

    `namesrv_addr`: "host:port", several separated by semicolons; the environment's NAMESRV_ADDR when not given.
    `namespace`: keeps its topics and groups apart from those of others with the same names.
    `use_tls`: with the keys and the trust of the TLS settings; by default what tls.enable says.
    `tls`: these settings, by default what the system properties say when the client is made.
    `vip_channel_enabled`: send and ask at the brokers' fast port (listenPort - 2).

    Java: org.apache.rocketmq.client.ClientConfig (4.9.8)
    """

    # Differs: no address server, no enableStreamRequestType; brokers hear that the language is the one of the wire
    namesrv_addr: str | None = field(default_factory=lambda: os.environ.get(mix_all.NAMESRV_ADDR_ENV))
    client_ip: str = field(default_factory=mix_all.get_local_address)
    instance_name: str = DEFAULT_INSTANCE_NAME
    client_callback_executor_threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    namespace: str | None = None
    access_channel: AccessChannel = AccessChannel.LOCAL
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000
    persist_consumer_offset_interval: int = 5_000
    pull_time_delay_mills_when_exception: int = 1_000
    unit_mode: bool = False
    unit_name: str | None = None
    vip_channel_enabled: bool = False
    use_tls: bool = field(default_factory=use_tls)
    tls: TlsSystemConfig | None = field(default=None, repr=False)  # it has passwords
    mq_client_api_timeout: int = 3_000

    def build_mq_client_id(self) -> str:
        """`ip@instance[@unit]`: the name under which brokers know the client."""
        unit = f"@{self.unit_name}" if self.unit_name and self.unit_name.strip() else ""
        return f"{self.client_ip}@{self.instance_name}{unit}"

    def change_instance_name_to_pid(self) -> None:
        """Give the instance a name of its own unless the user did."""
        if self.instance_name == DEFAULT_INSTANCE_NAME:
            self.instance_name = f"{util_all.get_pid()}#{time.monotonic_ns()}"

    def with_namespace(self, resource: str) -> str:
        """A topic or group as brokers know it."""
        namespace = self.get_namespace()
        return namespace_util.wrap_namespace(namespace, resource) if namespace else resource

    def without_namespace(self, resource: str) -> str:
        """A topic or group as the user knows it."""
        namespace = self.get_namespace()
        return namespace_util.without_namespace(resource, namespace) if namespace else resource

    def queue_with_namespace(self, queue: MessageQueue) -> MessageQueue:
        """A queue as brokers know it."""
        if not self.get_namespace():
            return queue
        return MessageQueue(self.with_namespace(queue.topic), queue.brokerName, queue.queueId)

    def queues_without_namespace(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Queues as the user knows them, in the same order."""
        if not self.get_namespace():
            return list(queues)
        return [MessageQueue(self.without_namespace(queue.topic), queue.brokerName, queue.queueId) for queue in queues]

    def reset_client_config(self, other: "ClientConfig") -> None:
        """Take over the client settings of `other`."""
        for item in fields(ClientConfig):
            setattr(self, item.name, getattr(other, item.name))

    def clone_client_config(self) -> "ClientConfig":
        """A ClientConfig (nothing of a producer or consumer) with the same settings."""
        config = ClientConfig()
        config.reset_client_config(self)
        return config

    def get_namesrv_addr(self) -> str | None:
        """`namesrv_addr` without "http://"."""
        addr = self.namesrv_addr
        if addr and re.fullmatch(namespace_util.NAMESRV_ENDPOINT_PATTERN, addr.strip()):
            return namespace_util.get_name_srv_addr_from_namesrv_endpoint(addr)
        return addr

    def get_namespace(self) -> str | None:
        """`namespace`, else that of an instance's endpoint in `namesrv_addr`, else None."""
        if self.namespace:
            return self.namespace
        addr = self.namesrv_addr
        if addr and namespace_util.INSTANCE_PREFIX in addr \
                and namespace_util.validate_instance_endpoint(addr):
            return namespace_util.parse_instance_id_from_endpoint(addr)
        return None


class ClientSettings(TypedDict, total=False):
    """Of every client; intervals in ms."""

    client_ip: str
    instance_name: str
    client_callback_executor_threads: int
    access_channel: AccessChannel
    poll_name_server_interval: int
    heartbeat_broker_interval: int
    persist_consumer_offset_interval: int
    pull_time_delay_mills_when_exception: int
    unit_mode: bool
    unit_name: str | None
    vip_channel_enabled: bool
    use_tls: bool
    tls: TlsSystemConfig | None
    mq_client_api_timeout: int


def apply_settings(client: object, settings: Mapping[str, object], kind: type) -> None:
    """Set the attributes; TypeError, with the nearest name, for what is none of `kind`, a class of settings."""
    known = kind.__annotations__  # those of its bases are among them
    for name, value in settings.items():
        if name not in known:
            near = nearest_key(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{type(client).__name__} has no setting {name!r}{hint}")
        setattr(client, name, value)
