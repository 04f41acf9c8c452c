"""Listening on a port, and why that can't be: which of a server's ports it is, and who holds it."""
import errno
import os
import socket

from rmqha.remoting.common.dual_stack import listening_socket

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
