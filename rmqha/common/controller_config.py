"""Settings of a controller.

What keys of a controller's config must be there, and which fit together: for its start, and for tools.
"""
import os
import re
from collections.abc import Callable
from enum import Enum

from rmqha.common.config_keys import Bytes, Host, LongPeriod, Path, PlainText, Port, Positive, SecretText
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.logs import LogFormat, LogLevel, LogTime
from rmqha.common.mix_all import ROCKETMQ_HOME_ENV
from rmqha.common.texts import Secret


class ControllerStoreKind(Enum):
    """Where a controller keeps what it decides."""

    local = "local"  # one file: there is one controller
    etcd = "etcd"  # an etcd cluster: any number of controllers, one of which leads


def _in_home(*parts: str) -> str:
    # Differs: Java's user.home comes from the password file; here $HOME goes first, so that it can be moved
    return os.path.join(os.path.expanduser("~"), *parts)


@dataclass
class ControllerConfig:
    """Paths, times and switches of a controller; attributes are the config keys.

    Java: org.apache.rocketmq.common.ControllerConfig (5.1.4)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    # replaced by the file given with -c
    configStorePath: Path = field(default_factory=lambda: _in_home("controller", "controller.properties"))
    scanNotActiveBrokerInterval: LongPeriod = 5 * 1000
    controllerThreadPoolNums: Positive = 16
    controllerRequestThreadPoolQueueCapacity: Positive = 50000
    # this controller's group; its members, `id-host:port` joined by `;`; which of them this one is
    controllerDLegerGroup: PlainText | None = None
    controllerDLegerPeers: PlainText | None = None
    controllerDLegerSelfId: PlainText | None = None
    mappedFileSize: Bytes = 1024 * 1024 * 1024
    # a folder: what is decided is in a file of it when controllerStore=local
    controllerStorePath: Path = field(default_factory=lambda: _in_home("DledgerController"))
    # True: when nobody in sync lives, one that may lack acknowledged messages becomes the master
    enableElectUncleanMaster: bool = False
    isProcessReadEvent: bool = False
    notifyBrokerRoleChanged: bool = True
    scanInactiveMasterInterval: LongPeriod = 5 * 1000

    # rmqha's own. local: one controller; etcd: any number of them
    controllerStore: ControllerStoreKind = field(default=ControllerStoreKind.local, metadata={"extension": True})
    # no master's lease is longer, whatever it asks for; a new leader waits so long for masters that it never heard
    maxLeaseMillis: LongPeriod = field(default=3 * 1000, metadata={"extension": True})
    # `host:port` or `https://host:port` of the members of the etcd cluster, joined by `;`
    etcdEndpoints: PlainText = field(default="", metadata={"extension": True})
    etcdUser: PlainText | None = field(default=None, metadata={"extension": True})
    etcdPassword: SecretText | None = field(default=None, metadata={"extension": True})
    # files, PEM: who signed the members' certificates, and what this controller shows
    etcdCaFile: Path | None = field(default=None, metadata={"extension": True})
    etcdCertFile: Path | None = field(default=None, metadata={"extension": True})
    etcdKeyFile: Path | None = field(default=None, metadata={"extension": True})
    # keys begin so: several groups of controllers may share an etcd cluster
    etcdPrefix: PlainText = field(default="/rmqha/controller", metadata={"extension": True})
    # silence after which etcd takes the leadership away
    etcdLeaseSeconds: Positive = field(default=3, metadata={"extension": True})
    # from which level on lines are written (may change while it runs), and what they look like
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})
    # the port of /metrics, /healthz and /readyz, 0: none; the address that it listens at
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})

    def __post_init__(self) -> None:
        self.etcdPassword = Secret.of(self.etcdPassword)


BadKey = Callable[[str, str], object]
"""Called with a key and what is wrong with its value; may raise."""

_PEER = re.compile(r"(?P<id>[^-;\s]+)-(?P<address>[^;,/\s]+:(?P<port>\d{1,5}))")
_MAX_PORT = 0xFFFF


def peers_of(config: ControllerConfig) -> dict[str, str]:
    """The members of the group, `host:port` by id, in the file's order. ValueError names what is none."""
    peers: dict[str, str] = {}
    for part in (config.controllerDLegerPeers or "").split(";"):
        if not (text := part.strip()):
            continue
        match = _PEER.fullmatch(text)
        if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
            raise ValueError(f"{text!r} is no id-host:port")
        if match["id"] in peers:
            raise ValueError(f"the id {match['id']} is there twice")
        peers[match["id"]] = match["address"]
    return peers


def check_controller(config: ControllerConfig, bad_key: BadKey) -> None:
    """Check what a controller needs to know of itself and of its store."""
    try:
        peers = peers_of(config)
    except ValueError as failure:
        bad_key("controllerDLegerPeers", f"{failure}; expected id-host:port, several joined by ;")
        return
    own = config.controllerDLegerSelfId
    if not peers:
        bad_key("controllerDLegerPeers", "is missing: id-host:port of this controller, such as n0-127.0.0.1:9878; its "
                "port is the one that this controller listens at")
    elif own not in peers:
        bad_key("controllerDLegerSelfId", f"{own!r} is none of controllerDLegerPeers: {', '.join(peers)}")
    if config.controllerStore is ControllerStoreKind.etcd:
        if not config.etcdEndpoints.strip():
            bad_key("etcdEndpoints", "is missing: with controllerStore=etcd the members of the etcd cluster, "
                    "host:port joined by ;")
        if (config.etcdCertFile is None) != (config.etcdKeyFile is None):
            bad_key("etcdKeyFile", "etcdCertFile and etcdKeyFile go together")
    elif len(peers) > 1:
        # Differs: RocketMQ's controllers replicate by DLedger, which is not here
        bad_key("controllerDLegerPeers", f"{len(peers)} controllers can't share a file: controllerStore=etcd keeps "
                "what they decide in etcd, or leave one")
