"""Listening on IPv4 and IPv6 at once, as Java's server sockets do."""
import socket

_MAPPED = "::ffff:"


def listening_socket() -> socket.socket:
    """An unbound TCP socket whose wildcard address takes IPv6 and IPv4 peers; on a host without IPv6 IPv4 ones only."""
    if not socket.has_dualstack_ipv6():
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return listener


def plain_address(address: tuple | str) -> tuple[str, int]:
    """(host, port) of an address; a socket for both shows IPv4 peers as `::ffff:1.2.3.4`. A socket pair has none."""
    if len(address) < 2:
        return "", 0
    host = address[0]
    return (host.removeprefix(_MAPPED) if "." in host else host), address[1]
