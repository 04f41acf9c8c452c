"""The relay of one client's connection: requests that wait for a master, and those that wait for its answer.

    client's channel --requests--> ClientRelay --> [parked] --> Upstream: a connection to the master for this client
                     <--answers---             <-- [in flight] <--answers--

Each client has its own connection to the master. So the master sees the client as one that is connected directly: its
requests in their order, its heartbeats, its address, its end; and frames pass unchanged, with the client's opaques.

What happens to a request depends on what is known about it:

- It has not reached a master: it is parked until one is known, and in the end served here, which refuses it.
- A broker answered RELAY_NOT_MASTER: it was not carried out, so it is parked again.
- The connection to the master ended before the answer. A request that may be carried out twice is parked again. Whether
  any other was carried out is unknown, and the client gets SYSTEM_ERROR, at which it sends again, as after a
  time-out. (If its connection ended instead, most clients would wait for their time-out first.) Nothing but the
  master's answer acknowledges anything.
"""
from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from rmqha.broker.relay.master_route import Direction
from rmqha.common.protocol import request_code, response_code
from rmqha.common.threads import RejectedExecutionError
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.broker.relay.master_route import Route
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.remoting_server import RemotingServer

log = logging.getLogger("RocketmqBroker")

# Requests that change nothing, or that may be carried out twice.
REPEATABLE = frozenset((
    request_code.PULL_MESSAGE, request_code.QUERY_CONSUMER_OFFSET, request_code.UPDATE_CONSUMER_OFFSET,
    request_code.LOCK_BATCH_MQ, request_code.UNLOCK_BATCH_MQ, request_code.GET_CONSUMER_LIST_BY_GROUP))
# The attribute of a client's channel with the frame of its last heartbeat, if its groups are still the same. A new
# master learns of them before the first request arrives.
HEARTBEAT = "heartbeat"
# One-way requests per connection that are kept, in case the broker answers that it is not the master.
_MAX_ONEWAYS = 64
_NS_PER_MS = 1_000_000
_TIMEOUT = RemotingTimeoutException.__name__
_UNKNOWN = "its connection ended before it answered, so the request may have been carried out"
# How long a parked request waits for a connection to the master: less than the 3 s that a producer has for all tries.
PATIENCE_MS = 2500
_TRY_AGAIN_MS = 10
# How long a connection to a former master may stay open for its last answers. One that is alive gives them at once; one
# whose host is gone gives none, and clients should not wait for their own time-out of 3 s.
RETIRED_MS = 400
# Clients ask for routes every 30 s, so after this time an unused connection is no longer needed.
UNUSED_MS = 35_000


class Request:
    """A relayed request: the frame as it arrived, with its length field, and its place in the order of arrival."""

    __slots__ = ("opaque", "code", "is_oneway", "frame", "number", "takes_room")

    def __init__(self, command: RemotingCommand, frame: bytes) -> None:
        self.opaque, self.code, self.is_oneway = command.opaque, command.code, command.is_oneway_rpc
        self.frame = frame
        self.number = 0
        self.takes_room = False  # guarded by the lock of RelayRoom


class Upstream:
    """A connection to a master for one client. Guarded by the lock of its ClientRelay."""

    def __init__(self, route: Route, relay: ClientRelay) -> None:
        self.route, self.relay = route, relay
        self.channel: Channel | None = None  # once connected
        # The master has agreed to take requests.
        self.is_ready = False
        self.is_closed = False
        self.in_flight: dict[int, Request] = {}  # by opaque
        self.oneways: OrderedDict[int, Request] = OrderedDict()  # by opaque, the oldest first
        # The monotonic time since which another connection is used; 0: never.
        self.retired_ns = 0

    def close(self) -> None:
        """Close the connection."""
        if self.channel is not None:
            self.channel.close()


class RelayService(Protocol):
    """The parts of a broker's relay that the relay of one client uses."""

    def route(self) -> Route:
        """Return the present route of requests for the master."""

    def submit(self, relay: ClientRelay) -> None:
        """Call `relay.connect` on a thread that may wait. Raises RejectedExecutionError."""

    def open(self, route: Route, relay: ClientRelay) -> Upstream | None:
        """Connect to the master for a client; None if that is not possible now. May wait."""

    def failed(self, route: Route) -> None:
        """Note that no connection to the master could be made for too long."""

    def wait_for_change(self, timeout_ms: float) -> None:
        """Wait until the role may have changed, at most `timeout_ms`."""

    def done(self, request: Request) -> None:
        """Note that a request no longer takes room."""

    def serve_here(self, relay: ClientRelay, request: Request) -> None:
        """Have this broker serve the request, or refuse it."""

    def forget(self, relay: ClientRelay) -> None:
        """Note that a client has disconnected."""


class ClientRelay:
    """The relay of one client, which is connected to `server`. Any thread."""

    def __init__(self, client: Channel, server: RemotingServer, service: RelayService) -> None:
        self.client, self.server = client, server
        self._service = service
        # Reentrant, since closing a connection may report its end on the same thread.
        self._lock = threading.RLock()
        # Guarded by _lock:
        self._current: Upstream | None = None
        self._retired: set[Upstream] = set()
        self._parked: list[Request] = []
        self._parked_bytes = 0
        # A thread is connecting for the parked requests.
        self._is_connecting = False
        self._is_closed = False
        self._is_holding = False
        # The last connection was refused, so the next one is not tried at once.
        self._is_refused = False
        self._count = 0
        self._used_ns = 0

    @property
    def is_used(self) -> bool:
        """True while there is a connection to a master, or a request waits for one."""
        return self._current is not None or bool(self._parked)

    def holds_client(self) -> bool:
        """Return whether the client is to be read from no further; `Channel.release` follows when it may be again."""
        with self._lock:
            limit, current = self.client.high_water_mark, self._current
            if self._parked:
                self._is_holding = self._parked_bytes > limit
                return self._is_holding
            if current is None or current.channel is None or current.channel.pending_bytes <= limit:
                return False
            current.channel.call_when_sent(lambda _ok: self.client.release())
            return True

    def _release_client(self) -> None:
        """Read from the client again if parked requests were the reason not to. Under the lock."""
        if self._is_holding:
            self._is_holding = False
            self.client.release()

    @property
    def is_parking(self) -> bool:
        """True while a request waits for a master."""
        return bool(self._parked)

    def tell_of_client(self, frame: bytes) -> None:
        """Pass a request about the client itself on if there is a connection; its answer is dropped."""
        with self._lock:
            current = self._current
            if current is not None and current.channel is not None and not current.is_closed:
                current.channel.write_encoded(frame)

    def pass_on(self, request: Request, proves_use: bool) -> None:
        """Send the request to the master, or park it. `proves_use`: only clients that have an old route send it."""
        with self._lock:
            self._count += 1
            request.number = self._count
            if proves_use:
                self._used_ns = time.monotonic_ns()
            current = self._current
            if current is not None and (current.is_closed or not self._leads_to(current)):
                self._retire(current)
                current = None
            if current is None or self._parked:
                self._park([request])
            else:
                self._send(current, request)

    def _leads_to(self, upstream: Upstream) -> bool:
        return self._service.route() == upstream.route

    def _park(self, requests: list[Request]) -> None:
        if self._is_closed:
            for request in requests:
                self._service.done(request)
            return
        self._parked += requests
        self._parked_bytes += sum(len(request.frame) for request in requests)
        if self._parked and not self._is_connecting:
            self._is_connecting = True
            try:
                self._service.submit(self)
            except RejectedExecutionError as error:
                log.warning("relay: cannot relay requests of %s: %s", parse_channel_remote_addr(self.client), error)
                self._give_up()

    def _take_parked(self) -> list[Request]:
        """Remove and return the parked requests, in the order of their arrival. Under the lock."""
        parked, self._parked, self._parked_bytes = self._parked, [], 0
        return sorted(parked, key=lambda request: request.number)

    def _send(self, upstream: Upstream, request: Request) -> None:
        assert upstream.channel is not None  # it is connected
        if request.is_oneway:
            self._service.done(request)
            upstream.oneways[request.opaque] = request
            if len(upstream.oneways) > _MAX_ONEWAYS:
                upstream.oneways.popitem(last=False)
        else:
            same = upstream.in_flight.pop(request.opaque, None)
            if same is not None:  # The client has used an opaque twice; only one answer can reach it.
                self._service.done(same)
            upstream.in_flight[request.opaque] = request
        upstream.channel.write_encoded(request.frame)

    # ---- the connection

    def connect(self) -> None:
        """Connect, and send what is parked. On a thread that may wait."""
        deadline_ns = time.monotonic_ns() + PATIENCE_MS * _NS_PER_MS
        if self._is_refused:
            self._is_refused = False
            self._service.wait_for_change(_TRY_AGAIN_MS)
        while True:
            route = self._service.route()
            with self._lock:
                if self._is_closed or not self._parked or route.direction is Direction.HERE:
                    self._give_up()
                    return
            if time.monotonic_ns() > deadline_ns:
                if route.direction is Direction.RELAY:
                    self._service.failed(route)
                with self._lock:
                    self._give_up()
                return
            upstream = self._service.open(route, self) if route.direction is Direction.RELAY else None
            if upstream is not None and self._use(upstream):
                return
            if upstream is None:
                self._service.wait_for_change(_TRY_AGAIN_MS)

    def _use(self, upstream: Upstream) -> bool:
        """Send the parked requests over a new connection; return False if it has ended already."""
        with self._lock:
            if self._is_closed:
                upstream.close()
                self._give_up()
                return True
            if upstream.is_closed:
                return False
            assert upstream.channel is not None  # it is connected
            self._current, self._is_connecting = upstream, False
            heartbeat = self.client.attributes.get(HEARTBEAT)
            if isinstance(heartbeat, bytes):
                upstream.channel.write_encoded(heartbeat)
            for request in self._take_parked():
                self._send(upstream, request)
            self._release_client()
        return True

    def _give_up(self) -> None:
        """Have this broker serve the parked requests. Under the lock."""
        self._is_connecting = False
        for request in self._take_parked():
            self._service.done(request)
            if not self._is_closed:
                self._service.serve_here(self, request)
        self._release_client()

    def _retire(self, upstream: Upstream) -> None:
        """Use another connection from now on; close this one when its answers have come. Under the lock."""
        if self._current is upstream:
            self._current = None
        if not upstream.in_flight:
            upstream.close()
        elif not upstream.is_closed and upstream not in self._retired:
            upstream.retired_ns = time.monotonic_ns()
            self._retired.add(upstream)

    # ---- answers, on the thread that reads the connections to masters

    def answered(self, upstream: Upstream, answer: RemotingCommand, frame: bytes) -> None:
        """Pass an answer on to the client, or park its request again if the broker is not the master."""
        with self._lock:
            request = upstream.in_flight.pop(answer.opaque, None)
            if answer.code == response_code.RELAY_NOT_MASTER:
                self._is_refused = True
                if request is None:
                    request = upstream.oneways.pop(answer.opaque, None)
                self._retire(upstream)
                if request is not None:
                    self._park([request])
                return
            if upstream.retired_ns and not upstream.in_flight:
                upstream.close()
        if request is not None:
            self._service.done(request)
            self.client.write_encoded(frame)
            if self.client.pending_bytes > self.client.high_water_mark:
                self._wait_for_client(upstream)

    def _wait_for_client(self, upstream: Upstream) -> None:
        """Read no further answers until the client has read those that are queued for it."""
        channel = upstream.channel
        assert channel is not None  # an answer came from it
        channel.hold()
        self.client.call_when_sent(lambda _ok: channel.release())

    def upstream_closed(self, upstream: Upstream) -> None:
        """Handle the end of a connection to a master."""
        with self._lock:
            upstream.is_closed = True
            self._retired.discard(upstream)
            if self._current is upstream:
                self._current = None
            waiting = list(upstream.in_flight.values())
            upstream.in_flight.clear()
            lost = [request for request in waiting if self._is_closed or request.code not in REPEATABLE]
            self._park([request for request in waiting if request not in lost])
        for request in lost:
            self._service.done(request)
        if lost and self.client.is_active:
            remark = f"{_TIMEOUT} wait response from the master <{upstream.route.address}> timeout: {_UNKNOWN}"
            log.warning("relay: no answer to %d requests of %s: %s", len(lost), parse_channel_remote_addr(self.client),
                        remark)
            for request in lost:
                answer = RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, remark)
                answer.opaque = request.opaque
                self.client.write(answer)

    def client_closed(self) -> None:
        """Handle the end of the client's connection."""
        with self._lock:
            self._is_closed = True
            upstreams = {*self._retired, self._current}
            self._current = None
            self._retired.clear()
            for request in self._take_parked():
                self._service.done(request)
        for upstream in upstreams:
            if upstream is not None:
                upstream.close()
        self._service.forget(self)

    def follow_route(self) -> None:
        """Retire a connection that does not lead to the present master."""
        with self._lock:
            if self._current is not None and not self._leads_to(self._current):
                self._retire(self._current)

    def tick(self, now_ns: int) -> None:
        """Close connections that are no longer needed."""
        self.follow_route()
        with self._lock:
            late = [upstream for upstream in self._retired
                    if now_ns - upstream.retired_ns >= RETIRED_MS * _NS_PER_MS]
            current = self._current
            if current is not None and not current.in_flight and now_ns - self._used_ns > UNUSED_MS * _NS_PER_MS:
                self._retire(current)
        for upstream in late:
            upstream.close()
