"""Settings of a name server.

A field's annotation gives the key's range and unit (see config_keys). UPDATE_NAMESRV_CONFIG may change a key at run
time unless it is in `configuration.FIXED_KEYS` or in `configBlackList`.
"""
import os

from rmqha.common.config_keys import Host, Path, PlainText, Port
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.logs import LogFormat, LogLevel, LogTime
from rmqha.common.mix_all import ROCKETMQ_HOME_ENV


def _in_home(*parts: str) -> str:
    # Differs: Java's user.home comes from the password file; here $HOME takes precedence, so that it can be redirected
    return os.path.join(os.path.expanduser("~"), *parts)


@dataclass
class NamesrvConfig:
    """Paths and switches of a name server; attributes are the config keys.

    Java: org.apache.rocketmq.common.namesrv.NamesrvConfig (4.9.8)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    kvConfigPath: Path = field(default_factory=lambda: _in_home("namesrv", "kvConfig.json"))
    # The file that UPDATE_NAMESRV_CONFIG saves to. -c replaces it with the file that the server was started with.
    configStorePath: Path = field(default_factory=lambda: _in_home("namesrv", "namesrv.properties"))
    productEnvName: PlainText = "center"
    clusterTest: bool = False
    orderMessageEnable: bool = False

    # Keys, separated by `;`, that UPDATE_NAMESRV_CONFIG may not change. Fixed.
    configBlackList: PlainText = "configBlackList;configStorePath;kvConfigPath"

    # A key of 5.1.4: run a controller in the same process. The file then also holds the controller's keys; its port is
    # the one in controllerDLegerPeers. Fixed.
    enableControllerInNamesrv: bool = field(default=False, metadata={"extension": True})

    # Extensions of rmqha. logLevel: the lowest level that is logged; it may change at run time. logFormat (TEXT or
    # JSON) and logTimeZone (LOCAL or UTC): the format of log lines; both are fixed.
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})
    # Extensions of rmqha. metricsPort: the port of /metrics, /healthz and /readyz, 0 for none. metricsHost: the address
    # that it listens on. Both are fixed.
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})
