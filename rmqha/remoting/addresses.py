"""Network addresses and ports: formatting, resolving, listening and probing.

- `listening_socket`, `plain_address`: IPv4 and IPv6 on one socket, as in Java.
- `listen`, `listen_at`: listening sockets. A PortError says which of a server's ports it is, and which process holds
  it.
- `is_free`, `why_not_listen`, `probe`: whether a local port can be listened on, and whether a port of a host answers.
- `parse_channel_remote_addr`, `exception_simple_desc` and others: addresses and errors as texts.
- `retransmits`: the state of a TCP connection in the kernel, on systems that report it (Linux).
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


LISTEN_PORT, FAST_PORT, HA_PORT = "listenPort", "the fast port, listenPort - 2", "the HA port, listenPort + 1"
_PRIVILEGED = 1024  # ports below need a right of their own, unless the kernel is told otherwise
_MAX_COMMAND = 150  # characters


class PortError(OSError):
    """A port that can't be listened on; the text says which one, why, and what to do."""

    def __init__(self, error_number: int, text: str) -> None:
        super().__init__(error_number, text)
        self.text = text

    def __str__(self) -> str:
        return self.text


def listen(port: int, use: str, backlog: int, receive_buffer_size: int = 0) -> socket.socket:
    """A socket that listens on `port` of all addresses, 0 for any, and does not block. PortError when it can't be.

    `use` says for people which of the server's ports it is. `receive_buffer_size` in bytes, 0 for the system's.
    """
    listener = listening_socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_size > 0:  # accepted sockets inherit it; later it would not change the window
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_size)
        listener.bind(("", port))
        listener.listen(backlog)
        listener.setblocking(False)
    except OverflowError:
        listener.close()
        raise PortError(errno.EINVAL, f"{port} ({use}) is no port: 0 to 65535") from None
    except OSError as error:
        listener.close()
        raise PortError(error.errno or 0, f"port {port} ({use}) {_why(port, error)}") from error
    return listener


def is_free(port: int) -> bool:
    """Whether a server may listen there now. Cheaper than `listen`, which finds out who holds the port."""
    with listening_socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
        return True


def listen_at(host: str, port: int, key: str, backlog: int) -> socket.socket:
    """As `listen`, at the address `host`, which may be a name; `key` is the config key of the port."""
    try:
        family, _type, _proto, _name, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address[:2], family=family, backlog=backlog)
    except OverflowError:
        raise PortError(errno.EINVAL, f"{port} ({key}) is no port: 0 to 65535") from None
    except socket.gaierror as error:
        raise PortError(error.errno or 0, f"nobody knows the host {host} that port {port} ({key}) is to be opened at: "
                        f"{error.strerror}") from error
    except OSError as error:
        raise PortError(error.errno or 0, f"port {port} of {host} ({key}) {_why(port, error, key)}") from error
    listener.setblocking(False)
    return listener


def _why(port: int, error: OSError, key: str = LISTEN_PORT) -> str:
    if error.errno == errno.EADDRINUSE:
        by = holders(port)
        return (f"is in use by {', '.join(by)}" if by else "is in use by a process of somebody else") + (
            f"; stop it, or choose another {key}")
    if error.errno in (errno.EACCES, errno.EPERM):
        right = ("; ports below 1024 need root or CAP_NET_BIND_SERVICE" if port < _PRIVILEGED else "")
        return f"may not be listened on by this user{right}; choose another {key}"
    return f"can't be listened on: {os.strerror(error.errno or 0)}"


def holders(port: int) -> list[str]:
    """Who listens on a port of this host, else who has a connection from it: pid and command, as far as visible."""
    import psutil  # heavy, and for bad days only

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
    except (psutil.Error, OSError):  # it has ended, or is somebody else's
        return f"pid {pid}"
    command = "".join(char if char.isprintable() else "?" for char in command)
    return f"pid {pid} ({command if len(command) <= _MAX_COMMAND else command[:_MAX_COMMAND] + '...'})"


class Probe(Enum):
    """How a port answers to a connection."""

    OPEN = "open"
    REFUSED = "refused"  # the host is there, nobody listens
    SILENT = "silent"  # no answer at all: a firewall drops it, or the host is down
    UNREACHABLE = "unreachable"  # no way to the host, or a firewall says so
    UNKNOWN_HOST = "unknown host"


_PROBES = {errno.ECONNREFUSED: Probe.REFUSED, errno.ETIMEDOUT: Probe.SILENT}


def probe(host: str, port: int, timeout_s: float) -> Probe:
    """Connect, and hang up at once."""
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except TimeoutError:
        return Probe.SILENT
    except (socket.gaierror, UnicodeError):
        return Probe.UNKNOWN_HOST
    except OSError as error:
        return _PROBES.get(error.errno or 0, Probe.UNREACHABLE)
    with connection:
        # a free port of this host may happen to be the client's own end
        return Probe.REFUSED if connection.getsockname() == connection.getpeername() else Probe.OPEN


def why_not_listen(port: int) -> str | None:
    """Why a server can't listen on a port of all addresses, None when it can."""
    try:
        with listening_socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", port))
            listener.listen(1)
    except OverflowError:
        return "it is no port: 0 to 65535"
    except OSError as error:
        return "in use" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
    return None


DEFAULT_CHARSET = "utf-8"


class Connected(Protocol):
    """A connection whose other end is known: a channel."""

    remote_address: tuple[str, int]


def parse_channel_remote_addr(channel: Connected | None) -> str:
    """`ip:port` of the peer, an empty text without one.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseChannelRemoteAddr (4.9.8)
    """
    return "" if channel is None else parse_socket_address_addr(channel.remote_address)


def parse_socket_address_addr(address: tuple[str, int] | None) -> str:
    """`ip:port`.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#parseSocketAddressAddr (4.9.8)
    """
    return f"{address[0]}:{address[1]}" if address else ""


def string2_socket_address(addr: str) -> tuple[str, int]:
    """(host, port) of `host:port`; ValueError when it has another form.

    Java: org.apache.rocketmq.remoting.common.RemotingHelper#string2SocketAddress (4.9.8)
    """
    host, colon, port = addr.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 0xFFFF:
        raise ValueError(f"{addr!r} is no host:port")
    return host.removeprefix("/"), int(port)


def exception_simple_desc(error: BaseException | None) -> str:
    """`module.Class: message, module.function(file.py:line)`: what it is and where it was raised.

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


_RETRANSMITS = 2  # offset of tcpi_retransmits, a byte, in Linux' struct tcp_info


def retransmits(sock: socket.socket) -> int:
    """How often in a row the oldest bytes under way were sent again without an answer; 0 where the system can't tell.

    It is above 0 for a while when a packet is lost; several say that nothing passes in this direction.
    """
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return 0
    try:
        return sock.getsockopt(socket.IPPROTO_TCP, option, _RETRANSMITS + 1)[_RETRANSMITS]
    except OSError:  # closed, or no TCP
        return 0
