"""Settings of a controller.

A field's annotation gives the key's range and unit (see config_keys). UPDATE_CONTROLLER_CONFIG may change a key at run
time unless it is in `configuration.FIXED_KEYS`.

`check_controller` checks which keys a controller needs and whether they fit together. Its start and tools use it.
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
    """The place where a controller stores its decisions."""

    # A file, for a single controller.
    local = "local"
    # An etcd cluster, for any number of controllers, one of which leads.
    etcd = "etcd"


def _in_home(*parts: str) -> str:
    # Differs: Java's user.home comes from the password file; here $HOME takes precedence, so that it can be redirected
    return os.path.join(os.path.expanduser("~"), *parts)


@dataclass
class ControllerConfig:
    """The config keys of a controller, as attributes. Times are in ms unless the key's name says seconds.

    Java: org.apache.rocketmq.common.ControllerConfig (5.1.4)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    # The file that UPDATE_CONTROLLER_CONFIG saves to. -c replaces it with the file that the controller started with.
    configStorePath: Path = field(default_factory=lambda: _in_home("controller", "controller.properties"))
    scanNotActiveBrokerInterval: LongPeriod = 5 * 1000
    controllerThreadPoolNums: Positive = 16
    controllerRequestThreadPoolQueueCapacity: Positive = 50000
    # The name of this controller's group; its members, `id-host:port` separated by `;`; the id of this one. Fixed.
    controllerDLegerGroup: PlainText | None = None
    controllerDLegerPeers: PlainText | None = None
    controllerDLegerSelfId: PlainText | None = None
    mappedFileSize: Bytes = 1024 * 1024 * 1024
    # The folder of the file that holds the decisions when controllerStore=local. Fixed.
    controllerStorePath: Path = field(default_factory=lambda: _in_home("DledgerController"))
    # true: when no replica of the sync-state set is alive, elect one outside it, which may lack acknowledged messages.
    enableElectUncleanMaster: bool = False
    isProcessReadEvent: bool = False
    notifyBrokerRoleChanged: bool = True
    scanInactiveMasterInterval: LongPeriod = 5 * 1000

    # The following keys are extensions of rmqha.
    # local: a single controller with a file; etcd: any number of controllers. Fixed.
    controllerStore: ControllerStoreKind = field(default=ControllerStoreKind.local, metadata={"extension": True})
    # The longest lease in ms that a master gets, whatever it asks for. A new leader waits as long before it replaces a
    # master that it has not heard from, because that master may still hold a lease from the previous leader. Fixed.
    maxLeaseMillis: LongPeriod = field(default=3 * 1000, metadata={"extension": True})
    # The members of the etcd cluster, `host:port` or `https://host:port` separated by `;`. Fixed.
    etcdEndpoints: PlainText = field(default="", metadata={"extension": True})
    etcdUser: PlainText | None = field(default=None, metadata={"extension": True})
    etcdPassword: SecretText | None = field(default=None, metadata={"extension": True})
    # PEM files: the CA that signed the members' certificates, and the certificate and key that this controller presents
    # to them. Fixed.
    etcdCaFile: Path | None = field(default=None, metadata={"extension": True})
    etcdCertFile: Path | None = field(default=None, metadata={"extension": True})
    etcdKeyFile: Path | None = field(default=None, metadata={"extension": True})
    # The prefix of all keys in etcd, so that several groups of controllers can share an etcd cluster. Fixed.
    etcdPrefix: PlainText = field(default="/rmqha/controller", metadata={"extension": True})
    # Seconds without a sign of life after which etcd ends this controller's leadership. Fixed.
    etcdLeaseSeconds: Positive = field(default=3, metadata={"extension": True})
    # logLevel: the lowest level that is logged; it may change at run time. logFormat (TEXT or JSON) and logTimeZone
    # (LOCAL or UTC): the format of log lines. Both are fixed.
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})
    # metricsPort: the port of /metrics, /healthz and /readyz, 0 for none. metricsHost: the address that it listens on.
    # Both are fixed.
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})

    def __post_init__(self) -> None:
        self.etcdPassword = Secret.of(self.etcdPassword)


BadKey = Callable[[str, str], object]
"""A callback that gets a key and a description of what is wrong with its value. It may raise."""

_PEER = re.compile(r"(?P<id>[^-;\s]+)-(?P<address>[^;,/\s]+:(?P<port>\d{1,5}))")
_MAX_PORT = 0xFFFF


def peers_of(config: ControllerConfig) -> dict[str, str]:
    """Return the members of the group, id -> `host:port`, in the file's order. ValueError names an invalid member."""
    peers: dict[str, str] = {}
    for part in (config.controllerDLegerPeers or "").split(";"):
        if not (text := part.strip()):
            continue
        match = _PEER.fullmatch(text)
        if match is None or not 0 < int(match["port"]) <= _MAX_PORT:
            raise ValueError(f"{text!r} is not a valid id-host:port")
        if match["id"] in peers:
            raise ValueError(f"the id {match['id']} occurs twice")
        peers[match["id"]] = match["address"]
    return peers


def check_controller(config: ControllerConfig, bad_key: BadKey) -> None:
    """Check the keys that a controller needs about itself and its store; call `bad_key` for each that is wrong."""
    try:
        peers = peers_of(config)
    except ValueError as failure:
        bad_key("controllerDLegerPeers", f"{failure}; expected id-host:port, several separated by ;")
        return
    own = config.controllerDLegerSelfId
    if not peers:
        bad_key("controllerDLegerPeers", "is missing: id-host:port of this controller, such as n0-127.0.0.1:9878; its "
                "port is the one that this controller listens on")
    elif own not in peers:
        bad_key("controllerDLegerSelfId", f"{own!r} is not one of controllerDLegerPeers: {', '.join(peers)}")
    if config.controllerStore is ControllerStoreKind.etcd:
        if not config.etcdEndpoints.strip():
            bad_key("etcdEndpoints", "is missing: controllerStore=etcd needs the members of the etcd cluster, "
                    "host:port separated by ;")
        if (config.etcdCertFile is None) != (config.etcdKeyFile is None):
            bad_key("etcdKeyFile", "etcdCertFile and etcdKeyFile must be set together")
    elif len(peers) > 1:
        # Differs: several controllers need etcd; RocketMQ's controllers replicate by DLedger, which is not implemented
        bad_key("controllerDLegerPeers", f"{len(peers)} controllers cannot share a file: set controllerStore=etcd, "
                "which keeps their decisions in etcd, or name only one controller")
