"""The relay of one client, with a service and channels that only record, in random orders of events."""
import random
from collections import Counter
from types import SimpleNamespace

import pytest

from rmqha.broker.relay.client_relay import HEARTBEAT, REPEATABLE, RETIRED_MS, UNUSED_MS, ClientRelay, Request, Upstream
from rmqha.broker.relay.master_relay import RELAYED_CODES, RelayRoom, ServerRelay
from rmqha.broker.relay.master_route import HERE, WAIT, Direction, MasterRoute, Route
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.protocol import request_code, response_code
from rmqha.common.threads import RejectedExecutionError
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import SLAVE, SYNC_MASTER, MessageStoreConfig
from rmqha.store.role import Role

MASTERS = [Route(Direction.RELAY, f"127.0.0.1:{port}", epoch) for epoch, port in enumerate((1, 2, 1, 3), 1)]


class FakeChannel:
    """A channel that keeps what is written."""

    def __init__(self):
        self.frames, self.answers = [], []
        self.remote_address = "192.0.2.1", 5
        self.is_active = True
        self.is_held = False
        self.pending_bytes = 0
        self.high_water_mark = 1000
        self.on_close = lambda: None
        self.when_sent = []
        self.attributes = {}

    def write_encoded(self, frame):
        if self.is_active:
            self.frames.append(frame)

    def write(self, command):
        self.answers.append((command.opaque, command.code))

    def hold(self):
        self.is_held = True

    def release(self):
        self.is_held = False

    def call_when_sent(self, callback):
        self.when_sent.append(callback)

    def close(self):
        if self.is_active:
            self.is_active = False
            self.on_close()


class FakeService:
    """A RelayService whose threads are the test's."""

    def __init__(self):
        self.now = WAIT
        self.room = RelayRoom()
        self.submitted = []
        self.opened = []
        self.here = []
        self.failures = []
        self.forgotten = []
        self.accepts = True
        self.is_full = False
        # Called instead of waiting for a change.
        self.meanwhile = lambda: None

    def route(self):
        return self.now

    def submit(self, relay):
        if self.is_full:
            raise RejectedExecutionError("full")
        self.submitted.append(relay)

    def open(self, route, relay):
        if not self.accepts:
            return None
        upstream = Upstream(route, relay)
        upstream.channel = FakeChannel()
        upstream.channel.on_close = lambda: relay.upstream_closed(upstream)
        upstream.is_ready = True
        self.opened.append(upstream)
        return upstream

    def failed(self, route):
        self.failures.append(route)
        self.now = HERE

    def wait_for_change(self, _timeout_ms):
        self.meanwhile()

    def done(self, request):
        self.room.done(request)

    def serve_here(self, relay, request):
        self.here.append(request.opaque)

    def forget(self, relay):
        self.forgotten.append(relay)


def request_of(opaque, code=request_code.SEND_MESSAGE, is_oneway=False):
    command = RemotingCommand(code, opaque=opaque)
    if is_oneway:
        command.mark_oneway_rpc()
    return Request(command, b"%d|" % opaque)


def answer_of(opaque, code=0):
    answer = RemotingCommand.create_response_command(code, None)
    answer.opaque = opaque
    return answer


@pytest.fixture
def service():
    return FakeService()


@pytest.fixture
def relay(service):
    return ClientRelay(FakeChannel(), None, service)


def pass_on(service, relay, *requests):
    for request in requests:
        assert service.room.take(request)
        relay.pass_on(request, True)


def opaques(frames):
    return [int(frame.partition(b"|")[0]) for frame in frames]


def test_requests_wait_for_the_master_and_keep_their_order(service, relay):
    pass_on(service, relay, *map(request_of, range(5)))
    assert service.submitted == [relay] and not service.opened and relay.is_parking
    service.now = MASTERS[0]
    relay.connect()
    pass_on(service, relay, request_of(5))
    assert opaques(service.opened[0].channel.frames) == [0, 1, 2, 3, 4, 5]
    relay.answered(service.opened[0], answer_of(2), b"answer")
    assert relay.client.frames == [b"answer"] and service.room.requests == 5


def test_heartbeat_goes_first(service, relay):
    relay.client.attributes[HEARTBEAT] = b"0|heartbeat"
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    relay.tell_of_client(b"2|heartbeat")
    assert opaques(service.opened[0].channel.frames) == [0, 1, 2]


def test_heartbeat_from_before_a_group_was_unregistered_is_not_kept(relay):
    served = ServerRelay(SimpleNamespace(master_route=None), None)
    beat, leave = (RemotingCommand(code) for code in (request_code.HEART_BEAT, request_code.UNREGISTER_CLIENT))
    beat.body = b"groups"
    assert not served.take(relay.client, beat) and relay.client.attributes[HEARTBEAT] == beat.encode()
    assert not served.take(relay.client, leave) and HEARTBEAT not in relay.client.attributes
    beat.body = bytes(256 << 10)
    served.take(relay.client, beat)
    assert HEARTBEAT not in relay.client.attributes, "too large to be kept"


def test_refused_requests_go_to_the_next_master_before_later_ones(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1), request_of(2, is_oneway=True), request_of(3))
    relay.connect()
    first = service.opened[0]
    for opaque in (1, 2):
        relay.answered(first, answer_of(opaque, response_code.RELAY_NOT_MASTER), b"")
    pass_on(service, relay, request_of(4))
    relay.answered(first, answer_of(3, response_code.RELAY_NOT_MASTER), b"")
    service.now = MASTERS[1]
    relay.connect()
    assert opaques(service.opened[1].channel.frames) == [1, 2, 3, 4]
    assert not first.channel.is_active and relay.client.frames == relay.client.answers == []


def test_lost_answers_are_time_outs_and_repeatable_requests_are_repeated(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1), request_of(2, request_code.PULL_MESSAGE), request_of(3, is_oneway=True),
            request_of(4, request_code.CONSUMER_SEND_MSG_BACK))
    relay.connect()
    service.opened[0].channel.close()
    assert relay.client.answers == [(1, response_code.SYSTEM_ERROR), (4, response_code.SYSTEM_ERROR)]
    relay.connect()
    assert opaques(service.opened[1].channel.frames) == [2]
    assert service.room.requests == 1


def test_connection_to_a_former_master_stays_until_its_answers_have_come(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    service.now = MASTERS[1]
    pass_on(service, relay, request_of(2))
    relay.connect()
    first, second = service.opened
    assert opaques(second.channel.frames) == [2] and first.channel.is_active
    relay.answered(first, answer_of(1), b"late")
    assert relay.client.frames == [b"late"] and not first.channel.is_active and second.channel.is_active


@pytest.mark.parametrize("after", [HERE, WAIT, MASTERS[1]])
def test_requests_at_a_master_that_is_gone_are_ended_soon_after_its_replacement(service, relay, after):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1), request_of(2, request_code.PULL_MESSAGE))
    relay.connect()
    relay.follow_route()
    assert not service.opened[0].retired_ns
    service.now = after
    relay.follow_route()
    retired_ns = service.opened[0].retired_ns
    relay.tick(retired_ns + RETIRED_MS * 1_000_000 - 1)
    assert service.opened[0].channel.is_active and not relay.client.answers
    relay.tick(retired_ns + RETIRED_MS * 1_000_000)
    assert not service.opened[0].channel.is_active
    assert relay.client.answers == [(1, response_code.SYSTEM_ERROR)]
    # The pull may be repeated.
    if after is WAIT:
        assert relay.is_parking
        service.now = MASTERS[2]
    relay.connect()
    assert service.here == [2] if after is HERE else opaques(service.opened[1].channel.frames) == [2]


def test_idle_connection_to_a_former_master_is_closed_at_once(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    relay.answered(service.opened[0], answer_of(1), b"")
    relay.follow_route()
    assert service.opened[0].channel.is_active
    service.now = MASTERS[1]
    relay.follow_route()
    assert not service.opened[0].channel.is_active


def test_connection_that_is_not_used_is_closed(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    used_ns = relay._used_ns
    relay.tick(used_ns + (UNUSED_MS + 1) * 1_000_000)
    assert relay.is_used, "a request waits for its answer"
    relay.answered(service.opened[0], answer_of(1), b"")
    relay.tick(used_ns + (UNUSED_MS - 1) * 1_000_000)
    assert relay.is_used
    relay.tick(used_ns + (UNUSED_MS + 1) * 1_000_000)
    assert not relay.is_used and not service.opened[0].channel.is_active


def test_requests_are_served_here_if_this_broker_becomes_the_master(service, relay):
    pass_on(service, relay, *map(request_of, range(3)))
    service.now = HERE
    relay.connect()
    assert service.here == [0, 1, 2] and service.room.requests == 0 and not relay.is_parking


def test_requests_are_served_here_if_no_thread_is_free(service, relay):
    service.is_full = True
    pass_on(service, relay, request_of(1))
    assert service.here == [1] and service.room.requests == 0


def test_master_that_accepts_nothing_is_given_up(service, relay, monkeypatch):
    monkeypatch.setattr("rmqha.broker.relay.client_relay.PATIENCE_MS", 0)
    service.now, service.accepts = MASTERS[0], False
    pass_on(service, relay, request_of(1))
    relay.connect()
    assert service.here == [1] and service.failures == [MASTERS[0]]


def test_client_is_read_from_no_further_while_too_much_waits(service, relay):
    pass_on(service, relay, Request(RemotingCommand(request_code.SEND_MESSAGE, opaque=1), b"1|" + bytes(500)))
    assert not relay.holds_client()
    pass_on(service, relay, Request(RemotingCommand(request_code.SEND_MESSAGE, opaque=2), b"2|" + bytes(500)))
    assert relay.holds_client()
    relay.client.hold()
    service.now = MASTERS[0]
    relay.connect()
    assert not relay.client.is_held and not relay.holds_client()
    service.opened[0].channel.pending_bytes = 1001
    assert relay.holds_client()
    relay.client.hold()
    service.opened[0].channel.when_sent[0](True)
    assert not relay.client.is_held


def test_master_is_read_from_no_further_while_the_client_does_not_read(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    relay.client.pending_bytes = 1001
    relay.answered(service.opened[0], answer_of(1), b"answer")
    assert service.opened[0].channel.is_held
    relay.client.when_sent[0](True)
    assert not service.opened[0].channel.is_held


def test_end_of_the_client_ends_everything(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    service.now = WAIT
    service.opened[0].is_closed = True
    pass_on(service, relay, request_of(2))
    relay.client.is_active = False
    relay.client_closed()
    relay.connect()
    assert service.room.requests == 1  # that of the connection that was marked above without its event
    pass_on(service, relay, request_of(3))
    assert service.forgotten == [relay] and service.here == [] and service.room.requests == 1


def test_refusal_after_the_end_of_the_client_connects_nobody(service, relay):
    service.now = MASTERS[0]
    pass_on(service, relay, request_of(1))
    relay.connect()
    upstream, tried = service.opened[0], len(service.submitted)
    upstream.channel.on_close = lambda: None  # its end is reported later
    relay.client_closed()
    relay.answered(upstream, answer_of(1, response_code.RELAY_NOT_MASTER), b"")
    assert len(service.submitted) == tried and service.room.requests == 0


def test_room_is_limited():
    room = RelayRoom(max_requests=2, max_bytes=10)
    one, two, three = (Request(RemotingCommand(10, opaque=opaque), b"12345") for opaque in range(3))
    assert room.take(one) and room.take(two) and not room.take(three)
    room.done(one)
    room.done(one)
    assert (room.requests, room.bytes) == (1, 5) and room.take(three)
    room.done(two)
    assert not room.take(Request(RemotingCommand(10), b"123456"))


class World:
    """Random events around one relay, and what has to be true after each of them."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.service = FakeService()
        self.relay = ClientRelay(FakeChannel(), None, self.service)
        self.sent = {}
        self.answered = Counter()
        self.carried_out = Counter()
        self.done = set()  # upstream and opaque
        self.steps = [self.send, self.connect, self.change, self.carry_out, self.refuse, self.end, self.tick,
                      self.tell]

    def send(self):
        opaque = len(self.sent)
        request = request_of(opaque, self.random.choice(sorted(RELAYED_CODES)), self.random.random() < 0.2)
        self.sent[opaque] = request
        pass_on(self.service, self.relay, request)

    def connect(self):
        if self.service.submitted:
            self.service.submitted.pop()
            self.service.accepts = self.random.random() < 0.7
            self.service.meanwhile = self._change_at_last
            self.relay.connect()

    def _change_at_last(self):
        self.change()
        self.service.accepts = True

    def change(self):
        self.service.now = self.random.choice([HERE, WAIT, *MASTERS])

    def _some(self):
        return [(upstream, opaque) for upstream in self.service.opened if upstream.channel.is_active
                for opaque in opaques(upstream.channel.frames)
                if (opaque in upstream.in_flight or opaque in upstream.oneways)
                and (upstream, opaque) not in self.done]

    def carry_out(self):
        if some := self._some():
            upstream, opaque = self.random.choice(some)
            if self.sent[opaque].is_oneway:
                upstream.oneways.pop(opaque)
            self.carried_out[opaque] += 1
            self.done.add((upstream, opaque))
            if not self.sent[opaque].is_oneway and self.random.random() < 0.9:
                self.relay.answered(upstream, answer_of(opaque), b"%d|answer" % opaque)

    def refuse(self):
        if some := self._some():
            upstream, opaque = self.random.choice(some)
            self.relay.answered(upstream, answer_of(opaque, response_code.RELAY_NOT_MASTER), b"")

    def end(self):
        if open_ones := [upstream for upstream in self.service.opened if upstream.channel.is_active]:
            self.random.choice(open_ones).channel.close()

    def tell(self):
        self.relay.follow_route()

    def tick(self):
        self.relay.tick(self.relay._used_ns + self.random.choice((1, 10_000, 60_000)) * 1_000_000)

    def check(self):
        here = Counter(self.service.here)
        answers = Counter(opaques(self.relay.client.frames)) + Counter(opaque for opaque, _ in
                                                                      self.relay.client.answers)
        assert all(count == 1 for count in (answers + here).values()), "one answer for each request"
        for opaque, code in self.relay.client.answers:
            assert code == response_code.SYSTEM_ERROR and self.sent[opaque].code not in REPEATABLE
        for opaque, count in self.carried_out.items():
            assert count == 1 or self.sent[opaque].code in REPEATABLE, "no request that may not be is carried out twice"
            assert not here[opaque] or self.sent[opaque].code in REPEATABLE
        waiting = {opaque for opaque, request in self.sent.items() if not request.is_oneway} - set(answers + here)
        known = {request.opaque for request in self.relay._parked} | {
            opaque for upstream in self.service.opened for opaque in upstream.in_flight}
        assert waiting <= known, "no request is forgotten"
        assert self.service.room.requests == sum(self.sent[opaque].takes_room for opaque in self.sent)
        if self.relay._parked:
            assert self.service.submitted, "somebody connects for those that wait"


@pytest.mark.parametrize("seed", range(200))
def test_each_request_gets_one_answer_in_any_order_of_events(seed):
    world = World(seed)
    for _ in range(150):
        world.random.choice(world.steps)()
        world.check()
    world.service.now, world.service.meanwhile = HERE, lambda: None
    for upstream in world.service.opened:
        upstream.channel.close()
    while world.service.submitted:
        world.service.submitted.pop()
        world.relay.connect()
    world.check()
    assert world.service.room.requests == 0 and world.service.room.bytes == 0


# The route.


@pytest.fixture
def role():
    return Role(MessageStoreConfig(), BrokerConfig())


def test_route(role):
    now_ns, target = [10**12], [None]
    route = MasterRoute(role, lambda: target[0], lambda: now_ns[0])
    role.take(SYNC_MASTER)
    assert route.is_here() and route.now() == HERE
    guard = role.need_guard()
    guard.pause(2, 10_000)
    assert not route.is_here() and route.now() == WAIT
    role.take(SLAVE)
    guard.resume()
    assert route.now() == WAIT
    target[0] = "127.0.0.1:10911", 7
    assert route.now() == Route(Direction.RELAY, "127.0.0.1:10911", 7)
    route.failed(route.now(), 1000)
    assert route.now() == HERE and not route.is_here()
    now_ns[0] += 1_000_000_001
    assert route.now().direction is Direction.RELAY
    target[0] = None
    assert route.now() == WAIT
    now_ns[0] += 2_500_000_001
    assert route.now() == HERE
    role.take(SYNC_MASTER)
    holds = [False]
    guard.holds_lease = lambda: holds[0]
    assert route.now() == WAIT
    now_ns[0] += 1_000_000_001
    assert route.now() == HERE and not route.is_here()
    holds[0] = True
    assert route.is_here()
