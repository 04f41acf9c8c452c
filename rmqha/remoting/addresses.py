"""Network addresses and ports: formatting, resolving, listening and probing.

- `listening_socket`, `plain_address`: IPv4 and IPv6 on one socket, as in Java.
- `listen`, `listen_at`: open listening sockets. A PortError names the server's port that failed and the process that
  holds it.
- `is_free`, `why_not_listen`, `probe`: check whether a server can listen on a local port, and whether a port of a host
  answers.
- `parse_channel_remote_addr`, `exception_simple_desc` and others: format addresses and errors.
- `retransmits`: reads a TCP connection's state from the kernel, on systems that report it (Linux).
"""
import errno
import ipaddress
import os
import socket
import traceback
from enum import Enum
from typing import Any, Protocol

_MAPPED = "::ffff:"


def listening_socket() -> socket.socket:
    """Return an unbound TCP socket for IPv6 and IPv4 peers; for IPv4 peers only on a host without IPv6."""
    if not socket.has_dualstack_ipv6():
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    return listener


def plain_address(address: tuple[Any, ...] | str) -> tuple[str, int]:
    """Return the (host, port) of a socket address, ("", 0) for a socket pair, which has no address.

    A socket for both protocols shows IPv4 peers as `::ffff:1.2.3.4`; the prefix is removed.
    """
    if len(address) < 2:
        return "", 0
    host: Any = address[0]
    port: Any = address[1]
    return (host.removeprefix(_MAPPED) if "." in host else host), port


def resolved_host(host: str) -> str:
    """Return the address of a host name, preferably IPv4; an address is returned as it is. OSError if unknown."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return plain_address(min(found, key=lambda one: one[0] != socket.AF_INET)[4])[0]


def all_addresses(host: str) -> list[str]:
    """Return all addresses of a host name, sorted. An address is returned as it is. OSError for an unknown name."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return sorted({plain_address(one[4])[0] for one in found})


def same_address(one: str, other: str) -> bool:
    """Return whether two "host:port" texts mean the same address.

    A name that this host can't resolve equals only itself.
    """
    if one == other:
        return True
    (host, _colon, port), (other_host, _colon, other_port) = one.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return False
    try:
        return resolved_host(host.strip("[]")) == resolved_host(other_host.strip("[]"))
    except (OSError, UnicodeError):  # an unknown name
        return False


LISTEN_PORT, FAST_PORT, HA_PORT = "listenPort", "the fast port, listenPort - 2", "the HA port, listenPort + 1"
# Listening on a lower port needs a privilege, unless the kernel is configured otherwise.
_PRIVILEGED = 1024
_MAX_COMMAND = 150  # characters


class PortError(OSError):
    """A port can't be opened. The text says which one, why, and what to do."""

    def __init__(self, error_number: int, text: str) -> None:
        super().__init__(error_number, text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def listen(port: int, use: str, backlog: int, receive_buffer_size: int = 0) -> socket.socket:
    """Return a non-blocking socket that listens on `port` of all addresses. Raises PortError if it can't be opened.

    Port 0 takes any free one. `use` names the server's port in error texts. `receive_buffer_size` is in bytes; 0 leaves
    the choice to the system.
    """
    listener = listening_socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_size > 0:
            # Accepted sockets inherit it. Set on them later, it would no longer change the TCP window.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        listener.bind(("", port))
        listener.listen(backlog)
        listener.setblocking(False)
    except OverflowError:
        listener.close()
        raise PortError(errno.EINVAL, f"{port} ({use}) is not a valid port: 0 to 65535") from None
    except OSError as error:
        listener.close()
        raise PortError(error.errno or 0, f"port {port} ({use}) {_why(port, error)}") from error
    return listener


def is_free(port: int) -> bool:
    """Return whether a server can listen on the port now. Cheaper than `listen`, which looks for the port's holder."""
    with listening_socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
        return True


def listen_at(host: str, port: int, key: str, backlog: int) -> socket.socket:
    """Like `listen`, but only at the address `host`, which may be a name. `key` is the config key of the port."""
    try:
        family, _type, _proto, _name, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=backlog)
    except OverflowError:
        raise PortError(errno.EINVAL, f"{port} ({key}) is not a valid port: 0 to 65535") from None
    except socket.gaierror as error:
        raise PortError(error.errno or 0, f"unknown host {host}, the address for port {port} ({key}): "
                        f"{error.strerror}") from error
    except OSError as error:
        raise PortError(error.errno or 0, f"port {port} of {host} ({key}) {_why(port, error, key)}") from error
    listener.setblocking(False)
    return listener


def _why(port: int, error: OSError, key: str = LISTEN_PORT) -> str:
    if error.errno == errno.EADDRINUSE:
        by = holders(port)
        return (f"is in use by {', '.join(by)}" if by else "is in use by another user's process") + (
            f"; stop it, or choose another {key}")
    if error.errno in (errno.EACCES, errno.EPERM):
        right = ("; ports below 1024 need root or CAP_NET_BIND_SERVICE" if port < _PRIVILEGED else "")
        return f"may not be opened by this user{right}; choose another {key}"
    return f"can't be opened: {os.strerror(error.errno or 0)}"


def holders(port: int) -> list[str]:
    """Return the processes that listen on a port of this host, else those with a connection from it: pid and command.

    Processes that this user may not inspect are missing.
    """
    # Imported late: it is slow to import, and needed only when a port is in use.
    import psutil

    try:
        ends = [each for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port and each.pid]
    except (psutil.Error, OSError):
        return []
    listening = [each for each in ends if each.status == psutil.CONN_LISTEN]
    return [_process_text(pid) for pid in sorted({each.pid for each in listening or ends if each.pid})]


def _process_text(pid: int) -> str:
    import psutil

    try:
        command = " ".join(psutil.Process(pid).cmdline()) or psutil.Process(pid).name()
    except (psutil.Error, OSError):  # it has ended, or belongs to another user
        return f"pid {pid}"
    command = "".join(char if char.isprintable() else "?" for char in command)
    return f"pid {pid} ({command if len(command) <= _MAX_COMMAND else command[:_MAX_COMMAND] + '...'})"


class Probe(Enum):
    """The outcome of an attempt to connect to a port."""

    OPEN = "open"
    # The host is up, but nothing is listening.
    REFUSED = "refused"
    # No answer at all: a firewall drops the packets, or the host is down.
    SILENT = "silent"
    # No route to the host, or a firewall rejects the connection.
    UNREACHABLE = "unreachable"
    UNKNOWN_HOST = "unknown host"


_PROBES = {errno.ECONNREFUSED: Probe.REFUSED, errno.ETIMEDOUT: Probe.SILENT}


def probe(host: str, port: int, timeout_s: float) -> Probe:
    """Connect, close the connection at once, and return the outcome."""
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except TimeoutError:
        return Probe.SILENT
    except (socket.gaierror, UnicodeError):
        return Probe.UNKNOWN_HOST
    except OSError as error:
        return _PROBES.get(error.errno or 0, Probe.UNREACHABLE)
    with connection:
        # If the port is free, the kernel may choose it for the client's end: the socket is then connected to itself.
        return Probe.REFUSED if connection.getsockname() == connection.getpeername() else Probe.OPEN


def why_not_listen(port: int) -> str | None:
    """Return why a server can't listen on a port of all addresses; None if it can."""
    try:
        with listening_socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            listener.listen(1)
    except OverflowError:
        return "not a valid port: 0 to 65535"
    except OSError as error:
        return "in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return None


DEFAULT_CHARSET = "utf-8"


class Connected(Protocol):
    """A connection with a known peer, such as a channel."""

    remote_address: tuple[str, int]


def parse_channel_remote_addr(channel: Connected | None) -> str:
    """Return the peer's `ip:port`; "" without a channel.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseChannelRemoteAddr (4.9.8)
    """
    return "" if channel is None else parse_socket_address_addr(channel.remote_address)


def parse_socket_address_addr(address: tuple[str, int] | None) -> str:
    """Return an address as `ip:port`; "" for None.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseSocketAddressAddr (4.9.8)
    """
    return f"{address[0]}:{address[1]}" if address else ""


def string2_socket_address(addr: str) -> tuple[str, int]:
    """Return the (host, port) of a `host:port`. Raises ValueError for any other form.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#string2SocketAddress (4.9.8)
    """
    host, colon, port = addr.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{addr!r} is not a valid host:port")
    return host.removeprefix("/"), int(port)


def exception_simple_desc(error: BaseException | None) -> str:
    """Return an error and the place where it was raised as `module.Class: message, module.function(file.py:line)`.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#exceptionSimpleDesc (4.9.8)
    """
    if error is None:
        return ""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    name = getattr(kind, "JAVA_NAME", None) or name
    text = f"{name}: {error}" if str(error) else name
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return text
    frame, line = frames[-1]
    code = frame.f_code
    file = code.co_filename.replace("\\", "/").rpartition("/")[2]
    return f"{text}, {frame.f_globals.get('__name__')}.{code.co_qualname}({file}:{line})"


# The offset of tcpi_retransmits, one byte, in Linux's struct tcp_info.
_RETRANSMITS = 2


def retransmits(sock: socket.socket) -> int:
    """Return how often in a row the oldest unacknowledged bytes were retransmitted; 0 where the system can't report it.

    A lost packet raises it for a short time. Several retransmissions in a row mean that nothing gets through in this
    direction.
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return 0
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, option, _RETRANSMITS + 1)[_RETRANSMITS]
    except OSError:  # closed, or not a TCP socket
        return 0
