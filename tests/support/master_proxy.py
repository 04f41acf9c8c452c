"""A proxy to the master, like HAProxy with `option httpchk OPTIONS /master`, for brokers that register its address.

    client --> MasterProxy, its port and the fast port 2 below --> the broker whose page /master answers 200
"""
import http.client
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from tests.support import ports

_CHUNK = 1 << 16


def page_status(port: int, path: str, method: str = "OPTIONS") -> int:
    """Return the status of a page of a broker's HTTP port; 0 if it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


class MasterProxy:
    """Forwards each connection to the present master; refuses it while there is none.

    `brokers` returns the main port and the HTTP port of each broker. The fast port is 2 below the main port.
    """

    def __init__(self, brokers: Callable[[], list[tuple[int, int]]]) -> None:
        self._brokers = brokers
        self.port = ports.free_broker_port()
        self.address = f"127.0.0.1:{self.port}"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listeners = [socket.create_server(("127.0.0.1", self.port - distance)) for distance in (0, 2)]
        for listener, distance in zip(self._listeners, (0, 2), strict=True):
            threading.Thread(target=self._accept, args=(listener, distance), name="master-proxy", daemon=True).start()

    def __enter__(self) -> "MasterProxy":
        return self

    def __exit__(self, *_exc: object) -> None:
        for listener in self._listeners:
            # Ends accept().
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections, as HAProxy does with `on-marked-down shutdown-sessions`."""
        with self._lock:
            ended, self._open = self._open, set()
        for sock in ended:
            with suppress(OSError):  # ended already
                sock.shutdown(socket.SHUT_RDWR)

    def master(self) -> int | None:
        """Return the main port of the broker that is the master now."""
        return next((port for port, http_port in self._brokers() if page_status(http_port, "/master") == 200), None)

    def _accept(self, listener: socket.socket, distance: int) -> None:
        while True:
            try:
                client, _address = listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client, distance), name="master-proxy", daemon=True).start()

    def _serve(self, client: socket.socket, distance: int) -> None:
        with client:
            port = self.master()
            if port is None:
                return
            try:
                server = socket.create_connection(("127.0.0.1", port - distance), 600)
            except OSError:
                return
            with server:
                server.settimeout(None)
                with self._lock:
                    self._open |= {client, server}
                back = threading.Thread(target=self._pump, args=(server, client), name="master-proxy", daemon=True)
                back.start()
                self._pump(client, server)
                back.join()
                with self._lock:
                    self._open -= {client, server}

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):  # ended by either side
            while data := source.recv(_CHUNK):
                sink.sendall(data)
        for sock in (source, sink):
            with suppress(OSError):  # ended by the other direction
                sock.shutdown(socket.SHUT_RDWR)
