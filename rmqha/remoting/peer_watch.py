"""Sees at once when the process that listens at an address ends: by a connection to it over which nothing is said.

    on its thread: connect -> wait for the end -> connect again ... refused? nobody listens there any more -> on_gone
"""
from __future__ import annotations

import logging
import select
import socket
from collections.abc import Callable

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqRemoting")

_CONNECT_S = 1.0
_LOOK_MS = 200  # at whether it is still this address
_PAUSE_MS = 100
_AGAIN_MS = 20


class PeerWatch(ServiceThread):
    """Watches one address at a time. A host that falls silent, or that was never reached, is not told of."""

    def __init__(self, name: str, address: Callable[[], str | None], on_gone: Callable[[str], object]) -> None:
        """`address` says what is to be watched: `host:port` or None; `on_gone` is called on this thread."""
        super().__init__()
        self.daemon = True
        self.join_time_ms = 5_000
        self._name, self._address, self._on_gone = name, address, on_gone

    def get_service_name(self) -> str:
        return self._name

    def run(self) -> None:
        while not self.stopped:
            address = self._address()
            if address is not None and self._ends_for_good(address):
                self._on_gone(address)
            self.wait_for_running(_PAUSE_MS)

    def _ends_for_good(self, address: str) -> bool:
        """Whether nobody listens there any more, though somebody did."""
        was_there = False
        while not self.stopped and self._address() == address:
            try:
                connection = _connect(address)
            except ConnectionRefusedError:
                return was_there
            except (OSError, ValueError) as error:
                log.debug("%s is not reached: %r", address, error)
                return False
            was_there = True
            if self._has_ended(connection, address):
                log.info("the connection to %s has ended", address)
                # a process that ends closes its connections before the port, or behind it
                self.wait_for_running(_AGAIN_MS)
        return False

    def _has_ended(self, connection: socket.socket, address: str) -> bool:
        """Wait until the peer ends the connection; False when it is not this address any more."""
        with connection:
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            while not self.stopped and self._address() == address:
                if poll.poll(_LOOK_MS) and not _received(connection):
                    return True
        return False


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except OSError:
        return b""
