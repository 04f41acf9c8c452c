"""What keys of a controller's config must be there, and which fit together: for its start, and for tools."""
import re
from collections.abc import Callable

from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind

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
