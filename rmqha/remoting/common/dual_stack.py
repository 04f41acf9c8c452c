"""IPv4 and IPv6 side by side, as Java's sockets have them."""
import ipaddress
import socket
from typing import Any

_MAPPED = "::ffff:"


def listening_socket() -> socket.socket:
    """An unbound TCP socket whose wildcard address takes IPv6 and IPv4 peers; on a host without IPv6 IPv4 ones only."""
    if not socket.has_dualstack_ipv6():
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return listener


def plain_address(address: tuple[Any, ...] | str) -> tuple[str, int]:
    """(host, port) of an address; a socket for both shows IPv4 peers as `::ffff:1.2.3.4`. A socket pair has none."""
    if len(address) < 2:
        return "", 0
    host: Any = address[0]
    port: Any = address[1]
    return (host.removeprefix(_MAPPED) if "." in host else host), port


def resolved_host(host: str) -> str:
    """The address of a host name, an IPv4 one if it has one; an address is its own. OSError for an unknown name."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return plain_address(min(found, key=lambda one: one[0] != socket.AF_INET)[4])[0]


def all_addresses(host: str) -> list[str]:
    """All addresses of a host name, sorted; an address is its own. OSError for an unknown name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({plain_address(one[4])[0] for one in found})


def same_address(one: str, other: str) -> bool:
    """Whether two "host:port" mean one address, as far as names are known here."""
    if one == other:
        return True
    (host, _colon, port), (other_host, _colon, other_port) = one.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return False
    try:
        return resolved_host(host.strip("[]")) == resolved_host(other_host.strip("[]"))
    except (OSError, UnicodeError):  # a name that this host does not know
        return False
