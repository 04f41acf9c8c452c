"""The relay of a broker: requests that clients mean for the master, and that reach a broker which is not the master.

    client --frames--> IO thread: RelayLane --not the master--> ClientRelay --> MasterRelaySelector_1 ==TCP==> master
    client <--answers-- AnswerLane <-- MasterRelaySelector_1
    MasterRelayThread_<n>: connect to the master, and wait for the decision which broker it is
    the master: RelayProcessor (RELAY_CLIENT) --> the channel counts as the client's

Clients ask the name server for routes every 30 s only, and most do not ask again when a broker refuses a request. After
a change of masters they keep sending to the old address. If a broker is running there, it passes their requests on.

Rules:

- One hop. A request that came through a relay is never relayed again: a broker that is not the master answers it with
  RELAY_NOT_MASTER, and the first broker looks for the master again. So no request can go round in a circle.
- The master decides. The relay checks neither signatures nor permissions. The master judges each request by the
  client's signature and address, as if the client were connected to it. It believes the address because RELAY_CLIENT is
  a request for admins: with access control on, only a broker in the white list or with an admin's account may send it,
  and such a peer may do anything anyway.
- Bounded. What waits in a relay is limited in number and bytes (`RelayRoom`); beyond it, requests are answered
  SYSTEM_BUSY. A client that does not read its answers, and a master that does not read requests, stop the other side.
- Only requests of clients for the master are relayed (`RELAYED_CODES`): no admin requests, and no pulls that may be
  meant for a slave.
"""
from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import RELAYED
from rmqha.broker.relay.client_relay import HEARTBEAT, ClientRelay, Request, Upstream
from rmqha.broker.relay.master_route import Direction, MasterRoute, Route
from rmqha.common import mix_all, sys_flags
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import RelayClientRequestHeader
from rmqha.common.threads import NamedThreadPool
from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.frame_decoder import LENGTH_FIELD_SIZE
from rmqha.remoting.io_thread import IoThread
from rmqha.remoting.large_requests import SENDS
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import ExpressLane, ResponseFuture
    from rmqha.remoting.remoting_config import RemotingClientConfig
    from rmqha.remoting.remoting_server import RemotingServer
    from rmqha.store.role import Role

log = logging.getLogger("RocketmqBroker")

# Requests that only masters serve, or that all members of a group have to send to the same broker.
RELAYED_CODES = SENDS | {
    request_code.END_TRANSACTION, request_code.CONSUMER_SEND_MSG_BACK, request_code.PULL_MESSAGE,
    request_code.QUERY_CONSUMER_OFFSET, request_code.UPDATE_CONSUMER_OFFSET, request_code.LOCK_BATCH_MQ,
    request_code.UNLOCK_BATCH_MQ, request_code.GET_CONSUMER_LIST_BY_GROUP}
# Responses of a broker that is not the master, or accepts nothing, with the codes of their requests.
_REFUSALS = frozenset((
    *((response_code.SERVICE_NOT_AVAILABLE, code) for code in (*SENDS, request_code.END_TRANSACTION)),
    (response_code.SLAVE_NOT_AVAILABLE, request_code.END_TRANSACTION)))
# Served here, and a copy passed on.
_OF_CLIENTS = frozenset((request_code.HEART_BEAT, request_code.UNREGISTER_CLIENT))
_MAX_REQUESTS = 100_000
_MAX_BYTES = 64 << 20
_MAX_HEARTBEAT_BYTES = 256 << 10
_THREADS = 8
_CONNECT_MS = 1000
# A master that is not of rmqha, or that does not let this broker relay, is tried again after this time.
_REFUSED_MS = 30_000
_FAILED_MS = 1000
# How long a client may take to answer a question of the master.
_QUESTION_MS = 10_000
# How long the replicas of a new master may take to follow it. Until then, it may be short of replicas in sync.
_JOINING_MS = 2000
_NS_PER_MS = 1_000_000
_TICK_MS = 200
# Of a frame: the serialize type and, in three bytes, the length of the header.
_MARK_SIZE = 4
_RELAY, _UPSTREAM = "clientRelay", "upstream"


class RelayRoom:
    """The limits of what waits in a broker's relay. Any thread."""

    def __init__(self, max_requests: int = _MAX_REQUESTS, max_bytes: int = _MAX_BYTES) -> None:
        self._max_requests, self._max_bytes = max_requests, max_bytes
        self._lock = threading.Lock()
        self.requests = self.bytes = 0  # guarded by _lock

    def take(self, request: Request) -> bool:
        """Return whether there is room for a request, and count it."""
        size = len(request.frame)
        with self._lock:
            if self.requests >= self._max_requests or self.bytes + size > self._max_bytes:
                return False
            self.requests += 1
            self.bytes += size
            request.takes_room = True
            return True

    def done(self, request: Request) -> None:
        """Note that a request no longer waits."""
        with self._lock:
            if request.takes_room:
                request.takes_room = False
                self.requests -= 1
                self.bytes -= len(request.frame)


class UpstreamClient(RemotingClient):
    """The client for connections to masters: one for each relayed client.

    `ask_client(upstream, request)` passes a question of the master on.
    """

    def __init__(self, config: RemotingClientConfig,
                 ask_client: Callable[[Upstream, RemotingCommand], None]) -> None:
        super().__init__(config)
        self.io = IoThread("MasterRelaySelector_1", self, config.clientChannelMaxIdleTimeSeconds)
        self.io.express_lane = AnswerLane(ask_client)
        # How often it checks for requests that a former master has not answered.
        self.io.tick_ms = _TICK_MS
        self.on_ticked: Callable[[], None] = lambda: None

    def on_closed(self, channel: Channel) -> None:
        """End the requests of a connection that was closed."""
        super().on_closed(channel)
        upstream = channel.attributes.get(_UPSTREAM)
        if isinstance(upstream, Upstream):
            upstream.relay.upstream_closed(upstream)

    def on_tick(self) -> None:
        super().on_tick()
        self.on_ticked()


class AnswerLane:
    """Passes the frames of a master on to the client: an ExpressLane of the thread that reads them."""

    def __init__(self, ask_client: Callable[[Upstream, RemotingCommand], None]) -> None:
        self._ask_client = ask_client

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Pass complete frames on; see ExpressLane."""
        upstream = channel.attributes.get(_UPSTREAM)
        while isinstance(upstream, Upstream) and upstream.is_ready and not channel.is_held:
            whole = channel.decoder.frame_at(data, position)
            if whole is None:
                break
            end = position + LENGTH_FIELD_SIZE + len(whole)
            frame, command = bytes(data[position:end]), decode_header(whole)
            if command.is_response_type:
                upstream.relay.answered(upstream, command, frame)
            elif command.is_oneway_rpc:
                upstream.relay.client.write_encoded(frame)
            else:
                self._ask_client(upstream, RemotingCommand.decode(whole))
            position = end
        return position


def decode_header(frame: memoryview) -> RemotingCommand:
    """Return the command of a frame without its length field, but not its body. Raises RemotingCommandException."""
    end = _MARK_SIZE + int.from_bytes(frame[1:_MARK_SIZE])
    return RemotingCommand.decode(frame[:end] if end <= len(frame) else frame)


class MasterRelay:
    """The relays of all clients of one broker. Any thread.

    `broker_id` returns the permanent id of this replica.
    """

    def __init__(self, role: Role, target: Callable[[], tuple[str, int] | None], addresses: BrokerAddresses,
                 broker_id: Callable[[], int], client_config: RemotingClientConfig) -> None:
        self._addresses = addresses
        self._broker_id = broker_id
        self.master_route = MasterRoute(role, target)
        self.room = RelayRoom()
        self._pool = NamedThreadPool("MasterRelayThread_", _THREADS)
        self._client = UpstreamClient(client_config, self._ask_client)
        self._client.on_ticked = self._tick
        # Single set operations only.
        self._relays: set[ClientRelay] = set()
        self._changed = threading.Condition()
        # The monotonic time of the last change; written under _changed.
        self._changed_ns = LONG_AGO
        # The last refusal that was logged.
        self._logged = ""

    def start(self) -> None:
        """Start the thread that reads the answers of masters."""
        self._client.start()

    def shutdown(self) -> None:
        """Close the connections to masters, and end the threads. Idempotent."""
        self._client.shutdown()
        self._pool.shutdown()

    def serve_through(self, server: RemotingServer) -> None:
        """Relay requests of the clients of a server, before its start."""
        server.relay = relay = ServerRelay(self, server)
        lane = server.io.express_lane
        assert lane is not None  # each port of a broker has one
        server.io.express_lane = RelayLane(relay, lane)

    def role_changed(self) -> None:
        """Note that the role of this broker, or the master that it follows, has changed."""
        with self._changed:
            self._changed_ns = time.monotonic_ns()
            self._changed.notify_all()
        for relay in list(self._relays):
            relay.follow_route()

    def is_role_new(self) -> bool:
        """Return whether the role changed so recently that replicas may still be joining."""
        return time.monotonic_ns() - self._changed_ns < _JOINING_MS * _NS_PER_MS

    # ---- RelayService

    def route(self) -> Route:
        """Return the present route."""
        return self.master_route.now()

    def submit(self, relay: ClientRelay) -> None:
        """Call `relay.connect` on a thread that may wait."""
        self._relays.add(relay)
        self._pool.submit(relay.connect)

    def wait_for_change(self, timeout_ms: float) -> None:
        """Wait until the role may have changed, at most `timeout_ms`."""
        with self._changed:
            self._changed.wait(timeout_ms / 1000)

    def done(self, request: Request) -> None:
        """Note that a request no longer waits."""
        self.room.done(request)

    def forget(self, relay: ClientRelay) -> None:
        """Note that a client has disconnected."""
        self._relays.discard(relay)

    def failed(self, route: Route) -> None:
        """Serve requests here for a while, because the master of `route` takes none."""
        self.master_route.failed(route, _FAILED_MS)

    def serve_here(self, relay: ClientRelay, request: Request) -> None:
        """Have this broker serve the request, or refuse it."""
        server, command = relay.server, RemotingCommand.decode(request.frame[LENGTH_FIELD_SIZE:])
        server.io.post(functools.partial(server.process_here, relay.client, command))

    def open(self, route: Route, relay: ClientRelay) -> Upstream | None:
        """Connect to the master, and announce the client whose requests follow; None when it takes none now."""
        upstream = Upstream(route, relay)
        upstream.channel = channel = self._client.open_channel(route.address, _CONNECT_MS)
        if channel is None:
            return None
        channel.attributes[_UPSTREAM] = upstream
        self._client.io.add(channel)
        hello = RemotingCommand.create_request_command(request_code.RELAY_CLIENT, RelayClientRequestHeader(
            self._addresses.broker_name, self._broker_id(), parse_channel_remote_addr(relay.client)))
        try:
            answer = self._client.invoke_sync_impl(channel, hello, _CONNECT_MS)
        except RemotingException as error:
            log.info("the master %s does not answer a relay: %s", route.address, error)
            channel.close()
            return None
        if answer.code == response_code.SUCCESS:
            # Nothing arrives before the first request is sent, so this thread alone decides.
            upstream.is_ready = True
            return upstream
        channel.close()
        if answer.code != response_code.RELAY_NOT_MASTER:
            self._refused(route, f"{answer.code} {answer.remark}")
        return None

    def _refused(self, route: Route, reason: str) -> None:
        """Relay nothing to a master that will not change its mind soon."""
        self.master_route.failed(route, _REFUSED_MS)
        if self._logged != reason:
            self._logged = reason
            log.warning("relay: the master %s accepts no relayed requests, so clients that still know this broker as "
                        "the master are refused until they learn its address: %s", route.address, reason)

    # ---- the rest

    def _tick(self) -> None:
        now_ns = time.monotonic_ns()
        for relay in list(self._relays):
            relay.tick(now_ns)

    def _ask_client(self, upstream: Upstream, question: RemotingCommand) -> None:
        """Ask the client what the master asks, and pass its answer on."""
        opaque, relay = question.opaque, upstream.relay
        # Several masters and this broker may ask at once, each with its own opaques.
        asked = RemotingCommand.create_request_command(question.code)
        asked.ext_fields, asked.body, asked.remark = question.ext_fields, question.body, question.remark
        asked.version, asked.language = question.version, question.language
        asked.serialize_type = question.serialize_type

        def answered(future: ResponseFuture) -> None:
            answer, channel = future.response_command, upstream.channel
            if answer is not None and channel is not None:
                answer.opaque = opaque
                channel.write(answer)

        try:
            relay.server.invoke_async(relay.client, asked, _QUESTION_MS, answered)
        except RemotingException as error:
            log.info("cannot ask %s: %s", parse_channel_remote_addr(relay.client), error)


class ServerRelay:
    """The relay as one server sees it: a RequestRelay."""

    def __init__(self, relay: MasterRelay, server: RemotingServer) -> None:
        self._relay, self._server = relay, server
        self._route = relay.master_route

    def is_served_here(self, channel: Channel) -> bool:
        """Return whether requests of this channel are served here; earlier ones must not wait for a master."""
        if not self._route.is_here():
            return False
        relay = self._known_relay(channel)
        return relay is None or not relay.is_parking

    @staticmethod
    def _known_relay(channel: Channel) -> ClientRelay | None:
        return channel.attributes.get(_RELAY)  # type: ignore[return-value]  # nothing else is there

    def take(self, channel: Channel, command: RemotingCommand) -> bool:
        """Relay a request, or refuse one that was relayed, if this broker is not the master."""
        if command.code in _OF_CLIENTS:
            self._note_heartbeat(channel, command)
            return False
        if command.code not in RELAYED_CODES or self.is_served_here(channel) or not self.takes(channel, command):
            return False
        self.pass_on(channel, command, command.encode())
        return True

    def takes(self, channel: Channel, command: RemotingCommand) -> bool:
        """Return whether a request for the master is not to be served here, now that this broker is not the master."""
        if command.code not in RELAYED_CODES:
            return False
        if RELAYED in channel.attributes:
            return True
        relay = self._known_relay(channel)
        if command.code == request_code.PULL_MESSAGE and not (relay is not None and relay.is_used) \
                and not _commits_offset(command):
            return False
        return self._relay.route().direction is not Direction.HERE or relay is not None and relay.is_parking

    def pass_on(self, channel: Channel, command: RemotingCommand, frame: bytes) -> None:
        """Relay a request that `takes` is true for. `frame`: with its length field."""
        if RELAYED in channel.attributes:
            self._answer(channel, command, response_code.RELAY_NOT_MASTER, "this broker is not the master, or accepts "
                         "no messages at present")
            return
        request = Request(command, frame)
        if not self._relay.room.take(request):
            log.warning("relay: a request of %s is not relayed: too many are waiting for the master",
                        parse_channel_remote_addr(channel))
            if not command.is_oneway_rpc:
                self._answer(channel, command, response_code.SYSTEM_BUSY,
                             "[REJECTREQUEST]too many requests wait for the master, start flow control for a while")
            return
        relay = self._known_relay(channel) or self._relay_of(channel)
        relay.pass_on(request, command.code != request_code.PULL_MESSAGE or _commits_offset(command))

    def holds(self, channel: Channel) -> bool:
        """Return whether a channel is not to be read from until its relay has sent what waits."""
        relay = self._known_relay(channel)
        return relay is not None and relay.holds_client()

    def _relay_of(self, channel: Channel) -> ClientRelay:
        made = ClientRelay(channel, self._server, self._relay)
        return channel.attributes.setdefault(_RELAY, made)  # type: ignore[return-value]  # see above

    def _note_heartbeat(self, channel: Channel, command: RemotingCommand) -> None:
        """Keep the last heartbeat for the next master. One from before the client left a group is out of date."""
        frame = command.encode()
        if command.code == request_code.HEART_BEAT and len(frame) <= _MAX_HEARTBEAT_BYTES:
            channel.attributes[HEARTBEAT] = frame
        else:
            channel.attributes.pop(HEARTBEAT, None)
        relay = self._known_relay(channel)
        if relay is not None:
            relay.tell_of_client(frame)

    def take_refused(self, channel: Channel, command: RemotingCommand, response: RemotingCommand) -> bool:
        """Relay a request that was refused because the role changed after `take`."""
        code = response.code
        if code == response_code.SYSTEM_ERROR:
            # Nothing was stored, because too few replicas have joined the new master; the other broker tries again.
            is_refused = response.remark == mix_all.TOO_FEW_IN_SYNC and RELAYED in channel.attributes \
                and self._relay.is_role_new()
        else:
            is_refused = (code, command.code) in _REFUSALS and not self._route.is_here()
        if not is_refused or not self.takes(channel, command):
            return False
        self.pass_on(channel, command, command.encode())
        return True

    @staticmethod
    def _answer(channel: Channel, command: RemotingCommand, code: int, remark: str) -> None:
        # A one-way request is answered, too, if it was relayed: the other broker passes it on again.
        answer = RemotingCommand.create_response_command(code, remark)
        answer.opaque, answer.serialize_type = command.opaque, command.serialize_type
        channel.write(answer)

    def closed(self, channel: Channel) -> None:
        """End the relay of a client that has disconnected."""
        relay = self._known_relay(channel)
        if relay is not None:
            relay.client_closed()


class RelayLane:
    """The express lane of a broker that may be a slave: it relays whole frames, as they arrived.

    `lane` serves them while this broker is the master.
    """

    def __init__(self, relay: ServerRelay, lane: ExpressLane) -> None:
        self._relay, self._lane = relay, lane

    def serve(self, channel: Channel, data: memoryview, position: int) -> int:
        """Relay the complete frames that are meant for the master; see ExpressLane."""
        relay = self._relay
        if relay.is_served_here(channel):
            return self._lane.serve(channel, data, position)
        while not channel.is_held:
            whole = channel.decoder.frame_at(data, position)
            if whole is None:
                break
            end, command = position + LENGTH_FIELD_SIZE + len(whole), decode_header(whole)
            if command.is_response_type or not relay.takes(channel, command):
                break
            relay.pass_on(channel, command, bytes(data[position:end]))
            position = end
            if relay.holds(channel):
                channel.hold()
        return position


def _commits_offset(pull: RemotingCommand) -> bool:
    """Return whether a pull carries the group's offset, which clients send to masters only."""
    try:
        return sys_flags.has_commit_offset_flag(int((pull.ext_fields or {}).get("sysFlag", "0")))
    except ValueError:
        return False
