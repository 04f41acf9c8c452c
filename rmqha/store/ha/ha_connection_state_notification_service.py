"""Notifying a waiting caller that a replication connection has reached a state.

    any thread --set_request--> [request] --> HAConnectionStateNotificationService: checks every second while a
                                              request waits; the first one starts it, usually a planned switch
    the threads of connections --check_connection_state_and_notify, when one ends
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from rmqha.common.futures import Completable
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.service_thread import ServiceThread
from rmqha.common.util_all import LONG_AGO
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.peers import HAConnectionState
from rmqha.store.role import Role

log = logging.getLogger("RocketmqStore")

_CHECK_MS = 1000
_IDLE_MS = 60_000
_CONNECTION_ESTABLISH_TIMEOUT_MS = 10_000


@dataclass(slots=True)
class HAConnectionStateNotificationRequest:
    """A request to be notified when the connection with `remote_addr` is in `expect_state`.

    `request_future` then becomes True. It becomes False when no such connection appears in time, or when it ends and
    `notify_when_shutdown` is set. An address without port matches any connection from that host.

    Java: org.apache.rocketmq.store.ha.HAConnectionStateNotificationRequest (5.1.4)
    """

    expect_state: HAConnectionState
    remote_addr: str
    notify_when_shutdown: bool
    request_future: Completable[bool] = field(default_factory=Completable)


class HAConnectionStateNotificationService(ServiceThread):
    """The thread that watches for the state of one request; a new request replaces it and completes it with False.

    `connections` returns the connections of a master's slaves, `client_state` the state of a slave's connection to its
    master.

    Java: org.apache.rocketmq.store.ha.HAConnectionStateNotificationService (5.1.4)
    """

    def __init__(self, role: Role, connections: Callable[[], Iterable[HAConnection]],
                 client_state: Callable[[], HAConnectionState]) -> None:
        super().__init__()
        self._role = role
        self._connections = connections
        self._client_state = client_state
        self.establish_timeout_ms = _CONNECTION_ESTABLISH_TIMEOUT_MS
        self._lock = threading.Lock()  # guards the two below
        self._request: HAConnectionStateNotificationRequest | None = None
        # when a connection was last on its way to the state
        self._last_check_ns = LONG_AGO

    def set_request(self, request: HAConnectionStateNotificationRequest) -> None:
        """Watch for `request` from now on."""
        with self._lock:
            replaced, self._request = self._request, request
            self._last_check_ns = time.monotonic_ns()
        if replaced is not None:
            # Differs: a request for a connection's state that another one replaces completes with False; Java cancels
            # the future, and its waiter gets an exception.
            replaced.request_future.complete(False)
        self.wakeup()

    def check_connection_state_and_notify(self, connection: HAConnection) -> bool:
        """Return whether the request is about `connection`; complete the request if the connection's state decides it.
        """
        request = self._request
        if request is None or not _is_of(connection, request.remote_addr):
            return False
        if connection.state is request.expect_state:
            self._complete(request, True)
        elif request.notify_when_shutdown and connection.state is HAConnectionState.SHUTDOWN:
            self._complete(request, False)
        return True

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            try:
                self.wait_for_running(_CHECK_MS if self._request is not None else _IDLE_MS)
                self._do_wait_connection_state()
            except Exception:
                log.warning("%s service has exception. ", self.get_service_name(), exc_info=True)
        log.info("%s service end", self.get_service_name())

    def shutdown(self, interrupt: bool = False) -> None:
        """Stop; complete a waiting request with False."""
        super().shutdown(interrupt)
        request = self._request
        if request is not None:
            self._complete(request, False)

    def _do_wait_connection_state(self) -> None:
        request = self._request
        if request is None:
            return
        if self._role.is_slave:
            state = self._client_state()
            if state is request.expect_state:
                self._complete(request, True)
                return
            on_its_way = state is not HAConnectionState.READY
        else:
            # A list, so that every connection is checked.
            on_its_way = any([self.check_connection_state_and_notify(connection)
                              for connection in self._connections()])
        self._expire(request, on_its_way)

    def _expire(self, request: HAConnectionStateNotificationRequest, on_its_way: bool) -> None:
        now = time.monotonic_ns()
        if on_its_way:
            with self._lock:
                self._last_check_ns = now
        elif now - self._last_check_ns > self.establish_timeout_ms * 1_000_000:
            log.error("Wait HA connection establish with %s timeout", request.remote_addr)
            self._complete(request, False)

    def _complete(self, request: HAConnectionStateNotificationRequest, value: bool) -> None:
        with self._lock:
            if self._request is not request:
                return
            self._request = None
        request.request_future.complete(value)


def _is_of(connection: HAConnection, remote_addr: str) -> bool:
    # Differs: in a request for a connection's state, an address with a port means one of several connections from a
    # host; 5.1.4 only distinguishes hosts.
    host = connection.client_addr.rpartition(":")[0]
    return connection.client_addr == remote_addr or host.strip("[]") == remote_addr.strip("[]")
