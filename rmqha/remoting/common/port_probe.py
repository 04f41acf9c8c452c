"""Whether a port can be listened on, and whether one of another host answers."""
import errno
import os
import socket
from enum import Enum

from rmqha.remoting.common.dual_stack import listening_socket


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
