"""A server and a client in this process, and raw sockets beside them."""
import contextlib
import errno
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from rmqha.remoting.channel import Channel
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.remoting.tls_system_config import TlsSystemConfig

ECHO = 100
# The period at which a server or client checks for idle channels and expired calls.
TICK_MS = 50


class Processor:
    """Serves with a function, and records the thread that it ran on."""

    def __init__(self, serve: Callable[[Channel, RemotingCommand], object], reject: bool = False) -> None:
        self.serve = serve
        self.reject = reject
        self.threads: set[str] = set()

    def process_request(self, channel: Channel, request: RemotingCommand) -> object:
        self.threads.add(threading.current_thread().name)
        return self.serve(channel, request)

    def reject_request(self) -> bool:
        return self.reject


def echo(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
    """Return the request's body and fields."""
    response = RemotingCommand.create_response_command(0, None)
    response.body, response.ext_fields = request.body, request.ext_fields
    return response


def request(code: int = ECHO, body: bytes | None = None) -> RemotingCommand:
    command = RemotingCommand.create_request_command(code)
    command.body = body
    return command


@contextlib.contextmanager
def running_server(listener: object = None, tls: TlsSystemConfig | None = None,
                   **config: int) -> Iterator[RemotingServer]:
    """Run a server on any free port that echoes code 100."""
    server = RemotingServer(ServerConfig(**{"listenPort": 0, **config}), listener, tls)
    server.register_processor(ECHO, Processor(echo))
    server.io.tick_ms = TICK_MS
    server.start()
    try:
        yield server
    finally:
        server.shutdown()


@contextlib.contextmanager
def running_client(listener: object = None, tls: TlsSystemConfig | None = None,
                   **config: int) -> Iterator[RemotingClient]:
    """Run a client."""
    client = RemotingClient(RemotingClientConfig(**config), listener, tls)
    client.io.tick_ms = TICK_MS
    client.start()
    try:
        yield client
    finally:
        client.shutdown()


def address(server: RemotingServer) -> str:
    return f"127.0.0.1:{server.local_listen_port}"


def frame(header: bytes, body: bytes = b"", kind: int = 0, header_length: int | None = None) -> bytes:
    length = len(header) if header_length is None else header_length
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | length & 0xFFFFFF) + header + body


def json_frame(body: bytes = b"", **fields: object) -> bytes:
    return frame(json.dumps({"code": ECHO, "flag": 0, "opaque": 1, **fields}).encode(), body)


def has_ipv6_loopback() -> bool:
    """Return whether ::1 is an address of this host: servers of both families need it, and the kernel may know IPv6
    without it."""
    if not socket.has_dualstack_ipv6():
        return False
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


class Raw:
    """A bare socket connected to a server."""

    def __init__(self, server: RemotingServer) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.local_listen_port), 120)
        self.socket.settimeout(60)

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_until_closed(self, data: bytes) -> None:
        """Send to a server that may close before it has read everything."""
        try:
            self.socket.sendall(data)
        except ConnectionError:
            assert self.is_closed()

    def end(self) -> None:
        """Shut down the sending side, and wait for the server to close, ignoring any data before that."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(1 << 16):
                pass
        # Closed with bytes unread, maybe before the shutdown.
        except OSError as error:
            assert isinstance(error, ConnectionError) or error.errno == errno.ENOTCONN, error

    def read(self) -> RemotingCommand:
        """Return the next command; raise EOFError when the server closes."""
        length = int.from_bytes(self._read(4), "big")
        return RemotingCommand.decode(self._read(length))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = self.socket.recv(min(size - len(data), 1 << 20))
            if not chunk:
                raise EOFError("closed by the server")
            data += chunk
        return bytes(data)

    def is_closed(self) -> bool:
        """Wait for the close and return True; return False when data arrives instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
