"""Settings that producers and consumers share.

Settings can be passed as arguments: `Producer("orders", send_msg_timeout=5_000)` sets the attribute. Their types are
declared for type checkers in ClientSettings, and in similar classes beside the settings of producers and consumers; a
test compares these classes with the attributes.
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
    """The kind of cluster: the user's own, or a cloud service, where traces go to a topic per region.

    Java: org.apache.rocketmq.client.AccessChannel (4.9.8)
    """

    LOCAL = 0
    CLOUD = 1


@dataclass
class ClientConfig:
    """Addresses and intervals (ms) of a client. Set them before `start`.

    `namesrv_addr`: "host:port", several separated by semicolons; by default the environment variable NAMESRV_ADDR.
    `namespace`: separates the client's topics and groups from others with the same names.
    `use_tls`: use TLS, with the keys and certificates of the TLS settings; by default the value of tls.enable.
    `tls`: the TLS settings; by default the system properties at the time when the client is created.
    `vip_channel_enabled`: use the brokers' fast port (listenPort - 2) for sends and queries.

    Java: org.apache.rocketmq.client.ClientConfig (4.9.8)
    """

    # Differs: a client has neither an address server nor enableStreamRequestType, and the language is not a setting:
    # requests carry the default of RemotingCommand (JAVA)
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
    # Not in the repr, because it contains passwords
    tls: TlsSystemConfig | None = field(default=None, repr=False)
    mq_client_api_timeout: int = 3_000

    def build_mq_client_id(self) -> str:
        """Return the name under which brokers know the client: `ip@instance[@unit]`."""
        unit = f"@{self.unit_name}" if self.unit_name and self.unit_name.strip() else ""
        return f"{self.client_ip}@{self.instance_name}{unit}"

    def change_instance_name_to_pid(self) -> None:
        """Give the instance a unique name, unless the user has named it."""
        if self.instance_name == DEFAULT_INSTANCE_NAME:
            self.instance_name = f"{util_all.get_pid()}#{time.monotonic_ns()}"

    def with_namespace(self, resource: str) -> str:
        """Return a topic or group as brokers know it."""
        namespace = self.get_namespace()
        return namespace_util.wrap_namespace(namespace, resource) if namespace else resource

    def without_namespace(self, resource: str) -> str:
        """Return a topic or group as the user knows it."""
        namespace = self.get_namespace()
        return namespace_util.without_namespace(resource, namespace) if namespace else resource

    def queue_with_namespace(self, queue: MessageQueue) -> MessageQueue:
        """Return a queue as brokers know it."""
        if not self.get_namespace():
            return queue
        return MessageQueue(self.with_namespace(queue.topic), queue.brokerName, queue.queueId)

    def queues_without_namespace(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        """Return queues as the user knows them, in the same order."""
        if not self.get_namespace():
            return list(queues)
        return [MessageQueue(self.without_namespace(queue.topic), queue.brokerName, queue.queueId) for queue in queues]

    def reset_client_config(self, other: "ClientConfig") -> None:
        """Copy the client settings of `other`."""
        for item in fields(ClientConfig):
            setattr(self, item.name, getattr(other, item.name))

    def clone_client_config(self) -> "ClientConfig":
        """Return a plain ClientConfig, without a producer's or consumer's settings, with the same values."""
        config = ClientConfig()
        config.reset_client_config(self)
        return config

    def get_namesrv_addr(self) -> str | None:
        """Return `namesrv_addr` without "http://"."""
        addr = self.namesrv_addr
        if addr and re.fullmatch(namespace_util.NAMESRV_ENDPOINT_PATTERN, addr.strip()):
            return namespace_util.get_name_srv_addr_from_namesrv_endpoint(addr)
        return addr

    def get_namespace(self) -> str | None:
        """Return `namespace`, else the one in the instance endpoint of `namesrv_addr`, else None."""
        if self.namespace:
            return self.namespace
        addr = self.namesrv_addr
        if addr and namespace_util.INSTANCE_PREFIX in addr \
                and namespace_util.validate_instance_endpoint(addr):
            return namespace_util.parse_instance_id_from_endpoint(addr)
        return None


class ClientSettings(TypedDict, total=False):
    """The settings of every client; intervals are in ms."""

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
    """Set the attributes; TypeError, with the nearest name, for a setting that `kind`, a settings class, lacks."""
    # Includes the annotations of its base classes
    known = kind.__annotations__
    for name, value in settings.items():
        if name not in known:
            near = nearest_key(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise TypeError(f"{type(client).__name__} has no setting {name!r}{hint}")
        setattr(client, name, value)
