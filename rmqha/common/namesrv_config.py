"""Settings of a name server, and their addresses.

Settings of the name server.

Namespaces of the name server's key-value store.

Java: org.apache.rocketmq.common.namesrv.NamesrvUtil (4.9.8)

Name server addresses that are endpoints of an instance: `http://MQ_INST_1_x.example.org:80` carries a namespace.

Java: org.apache.rocketmq.common.utils.NameServerAddressUtils (4.9.8)
"""
import os
import re

from rmqha.common.config_keys import Host, Path, PlainText, Port
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.logs import LogFormat, LogLevel, LogTime
from rmqha.common.mix_all import ROCKETMQ_HOME_ENV


def _in_home(*parts: str) -> str:
    # Differs: Java's user.home comes from the password file; here $HOME goes first, so that it can be moved
    return os.path.join(os.path.expanduser("~"), *parts)


@dataclass
class NamesrvConfig:
    """Paths and switches of a name server; attributes are the config keys.

    Java: org.apache.rocketmq.common.namesrv.NamesrvConfig (4.9.8)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    kvConfigPath: Path = field(default_factory=lambda: _in_home("namesrv", "kvConfig.json"))
    # replaced by the file given with -c
    configStorePath: Path = field(default_factory=lambda: _in_home("namesrv", "namesrv.properties"))
    productEnvName: PlainText = "center"
    clusterTest: bool = False
    orderMessageEnable: bool = False

    # `;` separated keys that UPDATE_NAMESRV_CONFIG may not touch
    configBlackList: PlainText = "configBlackList;configStorePath;kvConfigPath"

    # 5.1.4's: a controller in the same process; its keys stand in the same file, its port in controllerDLegerPeers
    enableControllerInNamesrv: bool = field(default=False, metadata={"extension": True})

    # rmqha's: from which level on lines are written (may change while it runs), and what they look like
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})
    # rmqha's: the port of /metrics, /healthz and /readyz, 0: none; the address that it listens at
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})


NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


INSTANCE_PREFIX = "MQ_INST_"
NAMESRV_ENDPOINT_PATTERN = re.compile(r"http://.*")
INST_ENDPOINT_PATTERN = re.compile(r"(\w+://|)" + INSTANCE_PREFIX + r"\w+_\w+\..*", re.ASCII)


def validate_instance_endpoint(endpoint: str) -> bool:
    """Whether the address names an instance."""
    return INST_ENDPOINT_PATTERN.fullmatch(endpoint) is not None


def parse_instance_id_from_endpoint(endpoint: str | None) -> str | None:
    """The instance's name, which is the namespace; None for no address."""
    if not endpoint:
        return None
    return endpoint[endpoint.rindex("/") + 1 if "/" in endpoint else 0:endpoint.index(".")]


def get_name_srv_addr_from_namesrv_endpoint(endpoint: str | None) -> str | None:
    """The address without what stands before its last slash; None for no address."""
    if not endpoint:
        return None
    return endpoint.rpartition("/")[2]
