"""Settings of a name server."""
import os

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
