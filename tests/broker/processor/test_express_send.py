"""The express lane: simple sends that are served together get the same answers and log as single sends, and every
admission check covers every kind of send."""
import copy
import errno
import re
import socket
import struct
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.broker.processor.send_admission import SendAdmission
from rmqha.broker.processor.send_message_processor import SendMessageProcessor
from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting import large_requests
from rmqha.remoting.exception import RemotingCommandException, RequestDeniedException
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol import remoting_command
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import BrokerHarness, running_broker
from tests.support.in_process import running_name_server
from tests.support.java_driver import Workload
from tests.support.wait import wait_until

# Simple sends that are served together produce the same answers and the same log as one by one.

TOPICS = ("Plain", "Other")
# BORNHOST's port differs per connection, STORETIMESTAMP per moment, and STOREHOST's port per broker.
MASKED = ((52, 64), (68, 72))


class Wire:
    """One connection that writes many requests at once; it also counts the sends that the express lane takes."""

    def __init__(self, broker: BrokerHarness) -> None:
        self.broker = broker
        lane = broker.controller.remoting_server.io.express_lane
        self.taken = 0
        if lane is not None:
            put = lane.put_rows

            def counted(sends, store_host):
                result = put(sends, store_host)
                self.taken += len(sends if result is None else result.rows)
                return result
            lane.put_rows = counted
        host, port = broker.address.split(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self._rest = b""

    def exchange(self, frames: list[bytes], answers: int) -> dict[int, RemotingCommand]:
        """Write the frames and return the answers by opaque."""
        self.socket.sendall(b"".join(frames))
        found: dict[int, RemotingCommand] = {}
        while len(found) < answers:
            while len(self._rest) < 4 or len(self._rest) < 4 + struct.unpack_from(">i", self._rest)[0]:
                data = self.socket.recv(1 << 16)
                assert data, f"connection closed after {len(found)} of {answers} answers"
                self._rest += data
            (length,) = struct.unpack_from(">i", self._rest)
            answer = RemotingCommand.decode(self._rest[4:4 + length])
            self._rest = self._rest[4 + length:]
            assert answer.opaque not in found
            found[answer.opaque] = answer
        return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers with the same topics, the first with the express lane, the second without."""
    folder = tmp_path_factory.mktemp("express")
    with running_broker(folder / "with") as first, running_broker(folder / "without") as second:
        second.controller.remoting_server.io.express_lane = None
        for broker in (first, second):
            # Each broker would deliver at a different moment.
            broker.store.schedule_message_service.shutdown()
            for topic in TOPICS:
                assert broker.send(topic).code == response_code.SUCCESS
        yield Wire(first), Wire(second)


def request(opaque: int, header: SendMessageRequestHeaderV2, body: bytes = b"body",
            kind: SerializeType = SerializeType.JSON, flag: int = 0) -> bytes:
    """Return the frame of a send as rmqha's client and Java's write it."""
    command = RemotingCommand.create_request_command(request_code.SEND_MESSAGE_V2, header)
    command.opaque, command.body, command.serialize_type = opaque, body or None, kind
    command.flag |= flag
    return command.encode()


def header(topic: str = "Plain", queue_id: int = 0, properties: str = "", **fields) -> SendMessageRequestHeaderV2:
    """Return the header of a send; `fields` have the short names."""
    values = {"a": "producer", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1_700_000_000_000, "h": 0,
              "i": properties, "j": 0, "k": False, "m": False} | fields
    return SendMessageRequestHeaderV2(**values)


def text(**properties: str) -> str:
    """Return properties as a header carries them."""
    return message_decoder.message_properties2string(properties)


def log_of(broker: BrokerHarness, start: int) -> bytes:
    """Return the records from `start` on, without the bytes that must differ."""
    with broker.store.get_commit_log_data(start) as result:
        data, position = bytearray(result.buffer), 0
    while position < len(data):
        size, magic = struct.unpack_from(">ii", data, position)
        if magic != -626843481:  # a blank
            break
        for begin, end in MASKED:
            data[position + begin:position + end] = bytes(end - begin)
        position += size
    return bytes(data)


def by_queue(log: bytes) -> dict[tuple[bytes, int], list[bytes]]:
    """Return (topic, queue) -> its records, without log positions: sends to two queues may be served in parallel."""
    found: dict[tuple[bytes, int], list[bytes]] = {}
    position = 0
    while position < len(log):
        record = bytearray(log[position:position + struct.unpack_from(">i", log, position)[0]])
        position += len(record)
        record[28:36] = bytes(8)
        (body,) = struct.unpack_from(">i", record, 84)
        topic = bytes(record[89 + body:89 + body + record[88 + body]])
        found.setdefault((topic, struct.unpack_from(">i", record, 12)[0]), []).append(bytes(record))
    return found


def told(answer: RemotingCommand) -> tuple:
    """Return an answer without the broker's address."""
    fields = dict(answer.ext_fields or {})
    if "msgId" in fields:
        fields["msgId"] = message_decoder.decode_message_id(fields["msgId"]).offset
    remark = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", "HOST", answer.remark or "")
    return answer.code, remark, fields, answer.flag, answer.language, answer.version, answer.serialize_type


names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "CLUSTER", "own", "other", "é", "",
                         "INSTANCE_ID"])
values = st.one_of(st.sampled_from(["true", "false", "1", "TagA", "", "a\x01b", 'q"u', "back\\slash"]),
                   st.text(max_size=8))
properties = st.one_of(
    st.dictionaries(names, values, max_size=6).map(lambda pairs: "\x02".join(f"{k}\x01{v}" for k, v in pairs.items())),
    st.fixed_dictionaries({"UNIQ_KEY": st.just("0A0B"), "WAIT": st.just("true"), "TAGS": st.text("ab", max_size=3)})
    .map(lambda pairs: text(**pairs) + "\x02"),
    st.text("a\x01\x02", max_size=9))
numbers = st.one_of(st.integers(0, 9), st.integers(-2, 3_000_000_000))
unusual = st.fixed_dictionaries({}, optional={
    "f": st.sampled_from([0, 1, 2, 4, 8, 12, 256, 975]), "h": st.integers(0, 2**31 - 1), "j": st.integers(0, 20),
    "l": st.integers(0, 20), "k": st.booleans(), "n": st.sampled_from(["broker-a", 'b"a']), "g": numbers,
    "b": st.sampled_from(["Other", "bad topic", "TBW102", "SCHEDULE_TOPIC_XXXX"]),
    "a": st.sampled_from(["producer", "", "pro\\ducer"])})
sends = st.tuples(unusual, st.sampled_from([0, 0, 1, 2, 3, 4, 9]), properties, st.binary(max_size=40),
                  st.sampled_from(SerializeType), st.sampled_from([0] * 4 + [2]))


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(sends, min_size=1, max_size=12))
def test_answers_and_records_equal_those_of_single_sends(pair, many):
    frames, answers = [], 0
    for opaque, (fields, queue_id, props, body, kind, flag) in enumerate(many, 1):
        frames.append(request(opaque, header(fields.get("b", "Plain"), queue_id, props,
                                             **{k: v for k, v in fields.items() if k != "b"}), body, kind, flag))
        answers += not flag
    # The last answer shows that everything is served, including one-way sends.
    frames.append(request(0, header()))
    seen, logs = [], []
    for wire in pair:
        start = wire.broker.store.get_max_phy_offset()
        seen.append({opaque: told(answer) for opaque, answer in wire.exchange(frames, answers + 1).items()})
        logs.append((start, log_of(wire.broker, start)))
    assert seen[0] == seen[1]
    assert logs[0] == logs[1]


@pytest.fixture
def wire(tmp_path):
    """A broker of the test's own."""
    with running_broker(tmp_path) as broker:
        broker.send("Plain")
        yield Wire(broker)


def offsets(answers: dict[int, RemotingCommand]) -> list[int]:
    """Return the queue offsets in the order of the opaques."""
    return [int(answers[opaque].ext_fields["queueOffset"]) for opaque in sorted(answers)]


@pytest.mark.parametrize("kinds", [[SerializeType.JSON], [SerializeType.ROCKETMQ], list(SerializeType)])
def test_simple_sends_take_the_lane_and_keep_their_order(wire, kinds):
    frames = [request(number, header(properties=text(WAIT="true", KEYS=str(number))), b"%d" % number,
                      kinds[number % len(kinds)]) for number in range(300)]
    answers = wire.exchange(frames, 300)
    assert wire.taken == 300 and offsets(answers) == list(range(1, 301))
    found = [wire.broker.store.look_message_by_offset(
        message_decoder.decode_message_id(answers[number].ext_fields["msgId"]).offset) for number in range(300)]
    assert [message.body for message in found] == [b"%d" % number for number in range(300)]
    assert all("WAIT" not in message.properties for message in found)


@pytest.mark.parametrize("other", [
    header(properties=text(WAIT="false")), header(properties=text(DELAY="3")), header("New"), header(j=None),
    header(f=sys_flags.TRANSACTION_PREPARED_TYPE), header(properties="é\x01x"), header(queue_id=99),
    header(properties=text(KEYS="k" * 32_760)),
    header("%RETRY%group"), header(queue_id=-1)])
def test_unusual_send_takes_the_general_path_in_its_place(wire, other):
    answers = wire.exchange([request(1, header()), request(2, other), request(3, header())], 3)
    assert wire.taken == 2 and offsets({1: answers[1]}) == [1]
    assert int(answers[3].ext_fields["queueOffset"]) in (2, 3)


@pytest.mark.parametrize("kind", list(SerializeType), ids=lambda kind: kind.name)
@pytest.mark.parametrize("limit", [large_requests.LARGE_HEADER, large_requests.LARGE_HEADER_OF_SEND,
                                   remoting_command.MAX_HEADER_LENGTH])
@pytest.mark.parametrize("group", ["g", ","], ids=["letters", "commas"])
def test_lane_takes_only_headers_that_the_general_path_serves_unchanged(pair, kind, limit, group, monkeypatch):
    """Producer groups around each length limit of a header, between sends that are short."""
    wire, _without = pair
    controller = wire.broker.controller
    lane = controller.remoting_server.io.express_lane
    base = len(request(1, header(a=""), b"", kind)) - 8
    for length in (limit - 1, limit, limit + 1):
        long = request(2, header(a=group * (length - base)), b"body", kind)
        assert int.from_bytes(long[5:8]) == length
        short = request(1, header(), b"body", kind)
        data, taken = memoryview(short * 3 + long + short), []
        channel = next(iter(controller.remoting_server.io.channels))
        with monkeypatch.context() as patched:
            patched.setattr(lane, "_put", lambda _channel, _kind, sends, *rest: taken.extend(sends) or rest[-1])
            end = lane.serve(channel, data, 0)
        assert end in (3 * len(short), len(data)) and len(taken) == (5 if end == len(data) else 3)
        try:
            command = RemotingCommand.decode(long[4:])
            is_served = not large_requests.has_large_header(command)
        except RemotingCommandException:
            is_served = False
        assert (end == len(data)) == is_served


def test_send_with_a_long_group_is_answered_like_others(pair):
    for wire in pair:
        before = wire.taken
        frames = [request(1, header()), request(2, header(a="g" * 70_000)), request(3, header())]
        answers = wire.exchange(frames, 3)
        assert {answer.code for answer in answers.values()} == {response_code.SUCCESS}
        assert wire.taken - before in (0, 2)


def test_light_queues_keep_the_order(tmp_path):
    several = text(INNER_MULTI_DISPATCH="%LMQ%one,%LMQ%two")
    frames = [request(1, header()), request(2, header(properties=several)), request(3, header(queue_id=1)),
              request(4, header("%LMQ%one")), request(5, header())]
    logs, taken = [], []
    for name in ("with", "without"):
        with running_broker(tmp_path / name, enableLmq=True, enableMultiDispatch=True) as broker:
            broker.send("Plain")
            if name == "without":
                broker.controller.remoting_server.io.express_lane = None
            wire = Wire(broker)
            start = broker.store.get_max_phy_offset()
            assert offsets(wire.exchange(frames, 5)) == [1, 2, 0, 0, 3]
            logs.append(by_queue(log_of(broker, start)))
            taken.append(wire.taken)
            assert broker.next_offset("%LMQ%two") == 1
    assert logs[0] == logs[1] and {key: len(records) for key, records in logs[0].items()} == {
        (b"Plain", 0): 3, (b"Plain", 1): 1, (b"%LMQ%one", 0): 1}
    assert taken == [3, 0]


def test_full_file_is_followed_by_the_next(wire):
    frames = [request(number, header(), b"x" * 100_000) for number in range(40)]
    answers = wire.exchange(frames, 40)
    assert wire.taken == 40 and offsets(answers) == list(range(1, 41))
    assert len(wire.broker.store.commit_log.mapped_file_queue.mapped_files) >= 4


def test_full_disk_gives_the_answer_of_single_sends(wire, monkeypatch):
    def no_room(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(wire.broker.store.commit_log.mapped_file_queue.mapped_files[-1], "write_at", no_room)
    answers = wire.exchange([request(number, header()) for number in range(3)], 3)
    assert {answer.code for answer in answers.values()} == {response_code.SERVICE_NOT_AVAILABLE}
    monkeypatch.undo()
    end = wire.broker.store.commit_log.topic_queue_table["Plain-0"]
    assert end == 1  # no offset is lost


@pytest.mark.parametrize("prepare, code", [
    (lambda broker: broker.controller.role.take(BrokerRole.SLAVE),
     response_code.SERVICE_NOT_AVAILABLE),
    (lambda broker: setattr(broker.controller.broker_config, "startAcceptSendRequestTimeStamp", 1 << 50),
     response_code.SYSTEM_ERROR),
    (lambda broker: broker.controller.role.take(BrokerRole.SYNC_MASTER),
     response_code.SLAVE_NOT_AVAILABLE),
    (lambda broker: setattr(broker.controller.message_store_config, "maxMessageSize", 10),
     response_code.MESSAGE_ILLEGAL),
])
def test_state_of_the_broker_decides_the_answer(wire, prepare, code):
    prepare(wire.broker)
    answers = wire.exchange([request(number, header(), b"eleven byte") for number in range(3)], 3)
    assert {answer.code for answer in answers.values()} == {code}
    wire.broker.controller.message_store.role.take(BrokerRole.ASYNC_MASTER)


def test_hooks_see_every_request(wire):
    class Hook(RPCHook):
        """Counts."""

        seen = 0

        def do_before_request(self, remote_addr, request):
            self.seen += 1

        def do_after_response(self, remote_addr, request, response):
            self.seen += 1

    hook = Hook()
    wire.broker.controller.remoting_server.register_rpc_hook(hook)
    assert len(wire.exchange([request(number, header()) for number in range(3)], 3)) == 3
    assert wire.taken == 0 and hook.seen == 6


def settled(wire: Wire) -> None:
    """Wait until sends are counted, which happens after their answers and before the next request is read."""
    wire.broker.call(request_code.GET_BROKER_RUNTIME_INFO)


def test_counters_equal_those_of_single_sends(pair):
    counted = []
    for wire in pair:
        stats, store_stats = wire.broker.controller.broker_stats_manager, wire.broker.store.store_stats_service
        items = [stats.stats_table["TOPIC_PUT_NUMS"].get_and_create_stats_item("Plain"),
                 stats.stats_table["TOPIC_PUT_SIZE"].get_and_create_stats_item("Plain")]
        settled(wire)
        before = [(item.value, item.times) for item in items], store_stats.get_put_message_times_total()
        wire.exchange([request(number, header(), b"x" * number) for number in range(20)], 20)
        settled(wire)
        after = [(item.value, item.times) for item in items], store_stats.get_put_message_times_total()
        counted.append(([(b[0] - a[0], b[1] - a[1]) for a, b in zip(before[0], after[0])], after[1] - before[1]))
    assert counted[0] == counted[1] and counted[0][1] == 20


@pytest.mark.java
def test_java_sends_take_the_lane(tmp_path, java_driver):
    with running_name_server(tmp_path / "n") as namesrv, running_broker(tmp_path / "b", namesrv) as broker:
        wire = Wire(broker)
        java_driver.create_topic(namesrv, broker.address, "Plain")
        sent = java_driver.produce(namesrv, Workload("Plain", 200, [100, 1000]))
        assert all(one.ok for one in sent)
        # The first send checks the topic's name, so it takes the general path.
        assert wire.taken >= 190
        wait_until(lambda: sum(broker.store.get_max_offset_in_queue("Plain", queue) for queue in range(16)) == 200,
                   60_000, "all are dispatched")


# All sends share one list of admission checks: a check added to it reaches every send, on whichever path it arrives.

PLANTED = "a planted check"


@pytest.fixture
def admission_wire(tmp_path):
    """A broker with two topics that have received no send yet."""
    with running_broker(tmp_path) as broker:
        topics = broker.controller.topic_config_manager
        for topic in TOPICS:
            config = copy.copy(topics.select_topic_config("TBW102"))
            config.topicName, config.writeQueueNums, config.readQueueNums = topic, 4, 4
            topics.update_topic_config(config)
        yield Wire(broker)


def plant(monkeypatch, refuses: Callable[[SendMessageRequestHeader], bool]) -> None:
    """Add a check that refuses each send for which `refuses(header)` is true."""
    check = SendAdmission.msg_check

    def planted(self, channel, header, response):
        if refuses(header):
            response.code, response.remark = response_code.NO_PERMISSION, PLANTED
            return None
        return check(self, channel, header, response)
    monkeypatch.setattr(SendAdmission, "msg_check", planted)


def long_send(opaque: int, topic: str, queue_id: int) -> bytes:
    """Return a send with the long header."""
    command = RemotingCommand.create_request_command(request_code.SEND_MESSAGE, SendMessageRequestHeader(
        "producer", topic, "TBW102", 4, queue_id, 0, 5, 0, ""))
    command.opaque, command.body = opaque, b"long"
    return command.encode()


def batch(opaque: int, topic: str, queue_id: int) -> bytes:
    """Return a batch."""
    command = RemotingCommand.create_request_command(request_code.SEND_BATCH_MESSAGE,
                                                     header(topic, queue_id, m=True))
    command.opaque, command.body = opaque, message_decoder.encode_messages([Message(None, b"one")])
    return command.encode()


def send_all_ways(wire: Wire, topic: str = "Plain", queue_id: int = 0) -> tuple[set, int, int]:
    """Send two simple sends and one of every other kind to a queue; return the answers, how many sends took the
    express lane, and how many bytes were stored."""
    taken, end = wire.taken, wire.broker.store.get_max_phy_offset()
    answers = wire.exchange([
        request(1, header(topic, queue_id)), request(2, header(topic, queue_id)), long_send(3, topic, queue_id),
        request(4, header(topic, queue_id, text(WAIT="false"))), batch(5, topic, queue_id)], 5)
    stored = wire.broker.store.get_max_phy_offset() - end
    return {(answer.code, answer.remark) for answer in answers.values()}, wire.taken - taken, stored


def assert_refused(outcome: tuple[set, int, int], code: int = response_code.NO_PERMISSION,
                   remark: str = PLANTED) -> None:
    (answer,), taken, stored = outcome
    assert (answer[0], taken, stored) == (code, 0, 0) and remark in answer[1]


def assert_taken(outcome: tuple[set, int, int]) -> None:
    answers, taken, stored = outcome
    assert answers == {(response_code.SUCCESS, None)} and taken == 2 and stored > 0


CHECKS = {
    "topic": lambda header: header.topic == "Plain",
    "more than a route tells": lambda header: header.topic == "Plain" and header.producerGroup == "producer",
    "queue": lambda header: header.topic == "Plain" and header.queueId <= 0,
}


@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
@pytest.mark.parametrize("is_known", [False, True], ids=["before the first send", "to a known topic"])
def test_added_check_reaches_every_send(admission_wire, monkeypatch, check, is_known):
    if is_known:
        assert_taken(send_all_ways(admission_wire))
    plant(monkeypatch, check)
    for _ in range(2):
        assert_refused(send_all_ways(admission_wire))
    assert_taken(send_all_ways(admission_wire, "Other"))
    monkeypatch.undo()
    assert_taken(send_all_ways(admission_wire))


def test_added_check_may_raise(admission_wire, monkeypatch):
    def refuses(header: SendMessageRequestHeader) -> bool:
        if header.topic == "Plain":
            raise RequestDeniedException(PLANTED)
        return False
    assert_taken(send_all_ways(admission_wire))
    plant(monkeypatch, refuses)
    assert_refused(send_all_ways(admission_wire), response_code.SYSTEM_ERROR)
    assert_taken(send_all_ways(admission_wire, "Other"))


def test_added_queue_check_is_called_for_each_queue_of_a_new_or_changed_topic(admission_wire, monkeypatch):
    plant(monkeypatch, lambda header: header.topic == "Plain" and header.queueId == 2)
    assert_taken(send_all_ways(admission_wire, queue_id=1))
    assert_refused(send_all_ways(admission_wire, queue_id=2))
    # After a refused send, not through the express lane.
    answers, taken, _stored = send_all_ways(admission_wire, queue_id=3)
    assert answers == {(response_code.SUCCESS, None)} and taken == 0
    monkeypatch.undo()
    topics = admission_wire.broker.controller.topic_config_manager
    topics.update_topic_config(copy.copy(topics.select_topic_config("Plain")))
    # Drops the cached route of the old one.
    assert_taken(send_all_ways(admission_wire, queue_id=1))
    assert_taken(send_all_ways(admission_wire, queue_id=2))


def test_added_reason_to_reject_requests_reaches_every_send(admission_wire, monkeypatch):
    assert_taken(send_all_ways(admission_wire))
    monkeypatch.setattr(SendMessageProcessor, "reject_request", lambda self: True)
    assert_refused(send_all_ways(admission_wire), response_code.SYSTEM_BUSY, "[REJECTREQUEST]")
    monkeypatch.undo()
    assert_taken(send_all_ways(admission_wire))


def test_sends_are_accepted_again_when_the_broker_allows_them(admission_wire):
    config = admission_wire.broker.controller.broker_config
    config.startAcceptSendRequestTimeStamp = 1 << 50
    assert_refused(send_all_ways(admission_wire), response_code.SYSTEM_ERROR, "broker unable to service, until")
    config.startAcceptSendRequestTimeStamp = 1  # long ago
    assert_taken(send_all_ways(admission_wire))


def test_broker_without_write_permission_refuses_only_ordered_topics(admission_wire):
    broker, topic = admission_wire.broker.controller, "Plain"
    assert_taken(send_all_ways(admission_wire))
    broker.broker_config.brokerPermission = 4
    assert_taken(send_all_ways(admission_wire))
    broker.topic_config_manager.select_topic_config(topic).order = True
    assert_refused(send_all_ways(admission_wire), remark="sending message is forbidden")
    assert_taken(send_all_ways(admission_wire, "Other"))
