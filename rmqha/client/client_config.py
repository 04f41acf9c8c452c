"""What producers and consumers are told at their making."""
import os
import time
from dataclasses import dataclass, field, fields

from rmqha.common import mix_all, util_all
from rmqha.remoting.tls_system_config import use_tls

DEFAULT_INSTANCE_NAME = "DEFAULT"


@dataclass
class ClientConfig:
    """Addresses and intervals (ms) of a client. Set them before `start`.

    `namesrv_addr`: "host:port", several separated by semicolons; the environment's NAMESRV_ADDR when not given.
    `use_tls`: with the keys and the trust of the TLS settings; by default what tls.enable says.
    `vip_channel_enabled`: send and ask at the brokers' fast port (listenPort - 2).

    Java: org.apache.rocketmq.client.ClientConfig (4.9.8)
    """

    # Differs: no namespace, no address server: a client for tests, tools and plain use
    namesrv_addr: str | None = field(default_factory=lambda: os.environ.get(mix_all.NAMESRV_ADDR_ENV))
    client_ip: str = field(default_factory=mix_all.get_local_address)
    instance_name: str = DEFAULT_INSTANCE_NAME
    client_callback_executor_threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    poll_name_server_interval: int = 30_000
    heartbeat_broker_interval: int = 30_000
    persist_consumer_offset_interval: int = 5_000
    pull_time_delay_mills_when_exception: int = 1_000
    unit_mode: bool = False
    unit_name: str | None = None
    vip_channel_enabled: bool = False
    use_tls: bool = field(default_factory=use_tls)
    mq_client_api_timeout: int = 3_000

    def build_mq_client_id(self) -> str:
        """`ip@instance[@unit]`: the name under which brokers know the client."""
        unit = f"@{self.unit_name}" if self.unit_name and self.unit_name.strip() else ""
        return f"{self.client_ip}@{self.instance_name}{unit}"

    def change_instance_name_to_pid(self) -> None:
        """Give the instance a name of its own unless the user did."""
        if self.instance_name == DEFAULT_INSTANCE_NAME:
            self.instance_name = f"{util_all.get_pid()}#{time.monotonic_ns()}"

    def reset_client_config(self, other: "ClientConfig") -> None:
        """Take over the client settings of `other`."""
        for item in fields(ClientConfig):
            setattr(self, item.name, getattr(other, item.name))

    def clone_client_config(self) -> "ClientConfig":
        """A plain ClientConfig with the same settings."""
        config = ClientConfig()
        config.reset_client_config(self)
        return config
