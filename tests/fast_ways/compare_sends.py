"""Sends by the express lane beside sends one by one, and pulls of many records beside record by record."""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rmqha.broker.processor import express_send, send_codec, send_message_processor
from rmqha.broker.processor import send_codec as send_answers
from rmqha.broker.processor.pull_message_processor import PullMessageProcessor
from rmqha.broker.processor.send_admission import SendRoutes
from rmqha.broker.pull_request_hold_service import ManyPullRequest, PullRequestHoldService
from rmqha.common.java import string_hash_code
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.message.message_decoder import encode_messages
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting import io_thread
from rmqha.remoting.channel import Channel
from rmqha.remoting.interfaces import ResponseFuture
from rmqha.remoting.large_requests import LARGE_HEADER_OF_SEND
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store import message_reader
from rmqha.store.append import MessageRow, PutMessageContext
from rmqha.store.message_reader import MessageReader
from rmqha.store.results import GetMessageResult
from tests.broker.support import BrokerHarness, running_broker
from tests.fast_ways.way import FAST, PLAIN, Kept, Plant, Way, lowered, replaced, some_size
from tests.support.wait import wait_until

# Sends: the express lane beside SendMessageProcessor, answer by answer and record by record.

TOPICS = ("Plain", "Other")
NEW = "New"  # prefix of the topics that sends create
FILE_SIZE = 5 << 20
MAX_BODY = 4 << 20
LARGEST_CASE = 6 << 20  # total bytes of its bodies
STORE_HOST = ("127.0.0.1", 10911)
BLANK_MAGIC = -875286124
STORE_TIMESTAMP = (56, 64, 68, 76)  # with a born host of IPv4, of IPv6
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "own", "other", "B", "INSTANCE_ID", "BA", "b" * 40, "Aa", "BB")
ODD_NAMES = ("DELAY", "TRAN_MSG", "CLUSTER", "é", "", "INNER_MULTI_DISPATCH")
ODD_VALUES = ("false", "", "a\x01b", 'q"u', "back\\slash", "\x00", "nul\x00in", "日本", "\x7f", "\t")


class Side:
    """One broker, and a connection to it whose reads are cut as a case requires."""

    def __init__(self, broker: BrokerHarness) -> None:
        self.store, self.controller = broker.store, broker.controller
        self.server = broker.controller.remoting_server
        self.commands = 0  # number of commands made from frames
        self.socket = socket.create_connection(("127.0.0.1", self.server.local_listen_port), 120)
        port = self.socket.getsockname()[1]
        self.channel: Channel = wait_until(lambda: next(
            (each for each in list(self.server.io.channels) if each.remote_address[1] == port), None))
        self._receive, self.channel.receive_into = self.channel.receive_into, self._next_piece
        self._pieces: deque[bytes] = deque()
        self._rest = bytearray()
        on_command = self.server.on_command

        def counted(channel: Channel, command: RemotingCommand) -> None:
            self.commands += 1
            on_command(channel, command)
        self.server.on_command = counted  # type: ignore[method-assign]

    def _next_piece(self, buffer: memoryview) -> int:
        """Return the next piece, as recv_into does. The real socket stays readable, by one byte, until the last
        piece is read."""
        if not self._pieces:
            return self._receive(buffer)
        piece = self._pieces.popleft()
        buffer[:len(piece)] = piece
        if not self._pieces:
            self._receive(memoryview(bytearray(1)))
        return len(piece)

    def exchange(self, pieces: list[bytes], answers: int) -> dict[int, bytes]:
        """Return the frames of the answers, by opaque."""
        self._pieces.extend(pieces)
        self.socket.sendall(b"!")
        found: dict[int, bytes] = {}
        while len(found) < answers:
            while len(self._rest) < 4 or len(self._rest) < 4 + struct.unpack_from(">i", self._rest)[0]:
                data = self.socket.recv(1 << 18)
                assert data, f"closed after {len(found)} of {answers} answers"
                self._rest += data
            end = 4 + struct.unpack_from(">i", self._rest)[0]
            answer = bytes(self._rest[:end])
            del self._rest[:end]
            opaque = RemotingCommand.decode(answer[4:]).opaque
            assert opaque not in found, f"two answers to {opaque}"
            found[opaque] = answer
        return found

    def log_from(self, start: int) -> list[bytes]:
        """Return the records from `start` on, without their store times."""
        records, end = [], self.store.get_max_phy_offset()
        while start < end:
            with self.store.get_commit_log_data(start) as result:
                data, position = bytes(result.buffer), 0
            while position < len(data) and start + position < end:
                size, magic = struct.unpack_from(">ii", data, position)
                assert 8 <= size <= len(data) - position, f"a record of {size} bytes at {start + position}"
                if magic == BLANK_MAGIC:
                    records.append(b"blank %d" % size)
                else:
                    begin, stop = STORE_TIMESTAMP[2:] if data[position + 39] & 16 else STORE_TIMESTAMP[:2]
                    records.append(data[position:position + begin] + data[position + stop:position + size])
                position += size
            start += position
        return records

    def close(self) -> None:
        """End the connection."""
        self.socket.close()


class Pair:
    """Two brokers that differ only in the express lane."""

    def __init__(self, first: BrokerHarness, second: BrokerHarness) -> None:
        second.controller.remoting_server.io.express_lane = None
        for broker in (first, second):
            broker.store.schedule_message_service.shutdown()  # each would deliver at a different time
            broker.controller.addresses.store_host = STORE_HOST  # answers and records contain it
        self.sides = Side(first), Side(second)
        self.express = 0  # messages that the lane has put
        lane = first.controller.remoting_server.io.express_lane
        put_rows = lane.put_rows

        def counted(sends: list[MessageRow], store_host: bytes) -> PutMessageContext | None:
            result = put_rows(sends, store_host)
            self.express += 0 if result is None else len(result.rows)
            return result
        lane.put_rows = counted
        self.forget_encoders = lane.answers._encoders.clear

    def prepare(self, rng: random.Random) -> tuple[str, int]:
        """Give both brokers the initial state of a case; return the born host, and the length limit of bodies."""
        host = rng.choice(["10.0.0.1"] * 7 + ["255.255.255.255", "fe80::1"]), rng.choice([1, 4711, 65535])
        most = rng.choice([MAX_BODY] * 4 + [100, 1000, 70_000])
        for side in self.sides:
            side.channel.remote_address = host
            side.controller.message_store_config.maxMessageSize = most
            side.controller.broker_config.startAcceptSendRequestTimeStamp = 0
            topics = side.controller.topic_config_manager.topic_config_table
            for topic in list(topics):
                if topic.startswith(NEW):
                    del topics[topic]
            for topic in TOPICS:
                topics[topic] = TopicConfig(topic, 4, 4)
        self.forget_encoders()
        return host[0], most

    def change(self, rng: random.Random) -> None:
        """Perhaps change a topic, or the broker's settings, between two sends."""
        topic, queues, kind = rng.choice(TOPICS), rng.randint(0, 6), rng.choice(list(TopicFilterType))
        what, region = rng.choice(["topic", "filter", "time", "region"]), f"r{rng.random():.2}"
        traced = rng.random() < 0.5
        for side in self.sides:
            config = side.controller.broker_config
            topics = side.controller.topic_config_manager.topic_config_table
            if what == "topic":
                topics[topic] = TopicConfig(topic, queues, queues)
            elif what == "filter":
                topics[topic] = TopicConfig(topic, 4, 4, topicFilterType=kind)
            elif what == "time":
                config.startAcceptSendRequestTimeStamp = 0 if config.startAcceptSendRequestTimeStamp else 1 << 44
            else:
                config.regionId, config.traceOn = region, traced

    def close(self) -> None:
        """End both connections."""
        for side in self.sides:
            side.close()


@contextlib.contextmanager
def _running_pair() -> Iterator[Pair]:
    config = {"mappedFileSizeCommitLog": FILE_SIZE}
    with (tempfile.TemporaryDirectory() as folder, running_broker(Path(folder, "with"), **config) as first,
          running_broker(Path(folder, "without"), **config) as second):
        pair = Pair(first, second)
        try:
            yield pair
        finally:
            pair.close()


PAIR = Kept(_running_pair, most=60)


def _properties(rng: random.Random) -> str:
    """Return properties, mostly as clients write them; sometimes long, many, or unusual ones."""
    kind = rng.random()
    pairs = {name: rng.choice(["true", "TagA", "a b c", "0A0B" * 8, "1"])
             for name in rng.sample(NAMES, rng.randint(0, 4))}
    if "WAIT" in pairs:
        pairs["WAIT"] = "true"
    if kind < 0.1:
        pairs["own"] = "v" * some_size(rng, [1 << 10, 4096, 32_700, 32_767], 33_000)
    elif kind < 0.18:
        pairs |= {f"k{index * 7}": "v" for index in range(rng.choice([6, 9, 10, 11, 12, 13, 60]))}
    elif kind < 0.24:
        pairs[rng.choice(ODD_NAMES)] = rng.choice(["1", "3", "true"])
    elif kind < 0.3:
        pairs[rng.choice(NAMES)] = rng.choice(ODD_VALUES)
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    return text + rng.choice(["", "\x02", "\x02", "\x02", "\x02\x02", "\x01"] if kind > 0.95 else ["", "\x02"])


def _send(rng: random.Random, opaque: int, max_body: int, room: int) -> bytes:
    """Return the frame of a send; the lane accepts many of each kind."""
    values: dict[str, object] = {"a": "producer", "b": rng.choice(TOPICS + TOPICS[:1]), "c": "TBW102", "d": 4,
              "e": rng.choice([0, 0, 1, 2, 3]), "f": 0,
              "g": 1_700_000_000_000 + rng.randrange(1000),
              "h": rng.choice([0, 7]), "i": _properties(rng), "j": 0, "k": False, "m": False}
    if rng.random() < 0.15:
        values |= dict(rng.sample([
            ("e", rng.choice([4, 5, 9, -2])), ("f", rng.choice([1, 2, 4, 8, 12, 16, 32, 256, 975])),
            ("h", rng.choice([-1, 999_999_999, 2**31 - 1])), ("j", rng.choice([1, 20, 2**31 - 1, None])), ("l", 3),
            ("k", True), ("n", rng.choice(["broker-a", 'b"a', ""])), ("g", rng.choice([0, 999, 2**62, -5])),
            ("b", rng.choice(["bad topic", "TBW102", "SCHEDULE_TOPIC_XXXX", f"{NEW}{opaque}".ljust(100, "t")])),
            ("a", rng.choice(["pro\\ducer", "é", "p" * 3000]))], rng.randint(1, 3)))
    body = rng.randbytes(min(room, some_size(rng, [max_body, io_thread.READ_BUFFER_SIZE], MAX_BODY + 16)))
    code = request_code.SEND_MESSAGE_V2
    if rng.random() < 0.08:
        many = [Message(str(values["b"]), b"x" * some_size(rng, largest=300), flag=index)
                for index in range(rng.randint(1, 5))]
        code, values["m"], body = request_code.SEND_BATCH_MESSAGE, True, encode_messages(many)
    command = RemotingCommand.create_request_command(code, SendMessageRequestHeaderV2(**values))
    command.opaque, command.body = opaque, body or None
    command.serialize_type = rng.choice(list(SerializeType))
    return command.encode()


def _other(rng: random.Random, opaque: int) -> bytes:
    """Return a frame that is not a send."""
    command = RemotingCommand.create_request_command(rng.choice([9999, request_code.SEND_MESSAGE_V2]))
    command.opaque, command.body = opaque, rng.randbytes(rng.randint(0, 40)) or None
    command.ext_fields = {"x": "y"}
    return command.encode()


def pieces_of(rng: random.Random, frames: list[bytes], most: int) -> list[bytes]:
    """Return drawn reads of a socket that has received the frames: cut anywhere, each of at most `most` bytes."""
    stream = b"".join(frames)
    cuts = {0, len(stream)}
    kind = rng.choice(["whole", "some", "edges", "crumbs"])
    if kind == "some":
        cuts |= {rng.randrange(len(stream) + 1) for _ in range(rng.randint(1, 12))}
    elif kind == "edges":
        end = 0
        for frame in frames:
            end += len(frame)
            cuts.add(max(0, min(len(stream), end + rng.randint(-9, 9))))
    elif kind == "crumbs":
        begin = rng.randrange(len(stream) + 1)
        cuts |= set(range(begin, min(len(stream), begin + rng.randint(1, 300)), rng.randint(1, 3)))
    marks = sorted(cuts)
    return [stream[at:min(at + most, end)] for begin, end in zip(marks, marks[1:])
            for at in range(begin, end, most)]


def compare_sends(rng: random.Random) -> Counter[str]:
    """Send the same frames to both brokers, in the same reads."""
    with PAIR.using() as pair, contextlib.ExitStack() as stack:
        _host, max_body = pair.prepare(rng)
        stack.enter_context(lowered(express_send, _MAX_TOGETHER=rng.choice([1, 2, 3, 256, 256])))
        stack.enter_context(lowered(send_message_processor, random_queue_id=lambda queues: 7 % queues))
        stack.enter_context(lowered(io_thread, TURN_NS=rng.choice([0, 10_000_000])))
        if rng.random() < 0.4:
            stack.enter_context(lowered(express_send, read_simple_sends=send_codec.sends_in_python))
        if rng.random() < 0.4:
            stack.enter_context(lowered(send_answers, _json_answers=send_answers.json_in_python))
        before = pair.express, pair.sides[0].commands
        starts = [side.store.get_max_phy_offset() for side in pair.sides]
        assert starts[0] == starts[1]
        opaque, room = 1, LARGEST_CASE
        for _ in range(rng.choice([1, 1, 2, 3])):
            frames: list[bytes] = []
            for _ in range(rng.choice([1, 2, 5, 12, 40])):
                frame = _other(rng, opaque) if rng.random() < 0.06 else _send(rng, opaque, max_body, room)
                frames.append(frame)
                opaque, room = opaque + 1, max(0, room - len(frame))
                if int.from_bytes(frame[5:8]) > LARGE_HEADER_OF_SEND or NEW.encode() in frame[:400]:
                    break  # served beside the next frames, whose place in the log would be arbitrary
            pieces = pieces_of(rng, frames, io_thread.READ_BUFFER_SIZE)
            answers = [side.exchange(pieces, len(frames)) for side in pair.sides]
            for each, answer in answers[0].items():
                assert answer == answers[1][each], f"answer {each}: {answer!r}, {answers[1][each]!r}"
            if rng.random() < 0.5:
                pair.change(rng)
        logs = [side.log_from(start) for side, start in zip(pair.sides, starts)]
        assert len(logs[0]) == len(logs[1]), f"{len(logs[0])} records, {len(logs[1])}"
        for index, (one, other) in enumerate(zip(*logs)):
            assert one == other, f"record {index}: {one[:300]!r}, {other[:300]!r}"
        offsets = [dict(side.store.commit_log.topic_queue_table) for side in pair.sides]
        assert offsets[0] == offsets[1]
        return Counter({FAST: pair.express - before[0], PLAIN: pair.sides[0].commands - before[1]})


def _with_order_as_it_came() -> contextlib.AbstractContextManager[object]:
    """Forget Java's order of the properties."""
    stack = contextlib.ExitStack()
    stack.enter_context(lowered(express_send, read_simple_sends=send_codec.sends_in_python))
    stack.enter_context(lowered(send_codec, property_order=lambda names: names, _kept_order=send_codec._order))
    return stack


def _part_of_a_frame(data: memoryview, position: int, *rest: object) -> send_codec.SimpleSends:
    """Treat the last frame, whose rest has not arrived, as complete."""
    head = data[position:position + 4]
    length = int.from_bytes(head, signed=True) if len(head) == 4 else 0
    have = len(data) - position - 4
    if 0 < have < length and have > length // 2:
        data = memoryview(bytes(data[:position]) + have.to_bytes(4) + bytes(data[position + 4:]))
    return send_codec.sends_in_python(data, position, *rest)  # type: ignore[arg-type]


def _route_for_ever(self: SendRoutes, channel: Channel, topics: list[str]) -> bool:
    """Do not look up a route again after its topic has changed."""
    return True


WAYS = [
    Way("express lane", "rmqha/broker/processor/express_send.py::ExpressSend",
        "a send to an existing topic, with a header as 4.9's clients write it, and nothing unusual",
        "SendMessageProcessor, frame by frame",
        compare_sends,
        (Plant("properties in the order in which they arrived", _with_order_as_it_came),
         Plant("the last frame of a read is taken before its rest has arrived",
               lambda: lowered(express_send, read_simple_sends=_part_of_a_frame)),
         Plant("a route outlives its topic", replaced(SendRoutes, "are_open", _route_for_ever))),
        seeds=30),
]


# Pulls: many records out of one region of the log, and held pulls that arrivals wake, beside record by record.

PULLS_FILE_SIZE = 256 << 10
LARGEST_BODY = 200_000
QUEUES = 2
TAGS = ("Aa", "BB", "TagC", "TagD", None)  # the first two have the same hash
WAIT_MS = 120_000


class Stored(NamedTuple):
    """The content of one place of a queue."""

    tag: str | None
    number: int  # a property
    record: bytes


@contextlib.contextmanager
def _running_broker() -> Iterator[BrokerHarness]:
    with (tempfile.TemporaryDirectory() as folder,
          running_broker(Path(folder), mappedFileSizeCommitLog=PULLS_FILE_SIZE, enablePropertyFilter=True) as broker):
        broker.cases = 0  # type: ignore[attr-defined]
        yield broker


BROKER = Kept(_running_broker, most=60)


class Topic:
    """The topic of one case, and the messages in its queues."""

    def __init__(self, broker: BrokerHarness, rng: random.Random) -> None:
        broker.cases += 1  # type: ignore[attr-defined]
        self.broker, self.rng, self.name = broker, rng, f"Topic{broker.cases}"  # type: ignore[attr-defined]
        self.queues: list[list[Stored]] = [[] for _ in range(QUEUES)]

    def put(self, queue_id: int, tag: str | None, number: int, size: int) -> None:
        """Send one message, and keep its record, read at the offset that the answer names."""
        properties = {"n": str(number)} | ({} if tag is None else {"TAGS": tag})
        answer = self.broker.send(self.name, self.rng.randbytes(size), queue_id, properties)
        assert answer.code == response_code.SUCCESS, answer
        offset = message_decoder.decode_message_id(answer.ext_fields["msgId"]).offset
        with self.broker.store.select_one_message_by_offset(offset) as record:
            self.queues[queue_id].append(Stored(tag, number, bytes(record.buffer)))

    def fill(self, count: int, largest: int) -> None:
        """Send `count` messages, most of them small."""
        for _ in range(count):
            self.put(self.rng.randrange(QUEUES), self.rng.choice(TAGS), self.rng.randrange(10),
                     some_size(self.rng, [4096], largest))


class Wish(NamedTuple):
    """A subscription: tags, or an expression over the property n."""

    expression: str
    kind: str
    codes: frozenset[int] | None
    above: int | None

    def takes(self, stored: Stored) -> bool:
        """Return whether it selects a message."""
        if self.codes is not None:
            return string_hash_code(stored.tag or "") in self.codes if stored.tag else 0 in self.codes
        return self.above is None or stored.number > self.above


def _wish(rng: random.Random) -> Wish:
    kind = rng.random()
    if kind < 0.4:
        return Wish("*", "TAG", None, None)
    if kind < 0.75:
        tags = rng.sample([tag for tag in TAGS if tag], rng.randint(1, 2))
        return Wish("||".join(tags), "TAG", frozenset(map(string_hash_code, tags)), None)
    above = rng.choice([-1, 3, 8, 9])
    return Wish(f"n > {above}", "SQL92", None, above)


def _looked_at(queue: list[Stored], wish: Wish, begin: int, end: int) -> list[bytes]:
    """Return the selected records of the places from `begin` to `end`, checked one by one."""
    return [each.record for each in queue[begin:end] if wish.takes(each)]


def _end_of_one_pull(queue: list[Stored], wish: Wish, begin: int, most: int, most_bytes: int, units: int) -> int:
    """Return the place before which a pull ends."""
    found = size = 0
    for place in range(begin, min(len(queue), begin + units)):
        record = queue[place].record
        if found and (found >= most or size + len(record) > most_bytes):
            return place
        if wish.takes(queue[place]):
            found, size = found + 1, size + len(record)
    return min(len(queue), begin + units)


def compare_pulls(rng: random.Random) -> Counter[str]:
    """Compare pulls from any place, with any subscription and limit."""
    taken: Counter[str] = Counter()
    add_part, add_record = GetMessageResult.add_part, GetMessageResult.add_record

    def counted_part(self: GetMessageResult, part: object) -> None:
        taken[PLAIN] += 1
        add_part(self, part)  # type: ignore[arg-type]

    def counted_record(self: GetMessageResult, record: memoryview) -> None:
        taken[FAST] += 1
        add_record(self, record)
    with BROKER.using() as broker, contextlib.ExitStack() as stack:
        topic = Topic(broker, rng)
        topic.fill(rng.choice([1, 5, 30, 60]), rng.choice([50, 3000, LARGEST_BODY]))
        store_config = broker.controller.message_store_config
        most_bytes, most = rng.choice([1000, 70_000, 1 << 20, 1 << 20]), rng.choice([1, 3, 32, 1000])
        units = rng.choice([1, 7, 800, 800])
        in_disk = rng.random() < 0.3
        for name, value in (("InMemory", (1 << 30, 1000) if in_disk else (most_bytes, most)),
                            ("InDisk", (most_bytes, most) if in_disk else (1, 1))):
            stack.enter_context(lowered(store_config, **{f"maxTransferBytesOnMessage{name}": value[0],
                                                         f"maxTransferCountOnMessage{name}": value[1]}))
        stack.enter_context(lowered(message_reader, MIN_FILTER_BYTES=20 * units, MAX_FILTER_UNITS=units,
                                    _FILTER_NS=1 << 60))
        stack.enter_context(lowered(store_config, accessMessageInMemoryMaxRatio=-100 if in_disk else 40))
        stack.enter_context(replaced(GetMessageResult, "add_part", counted_part)())
        stack.enter_context(replaced(GetMessageResult, "add_record", counted_record)())
        wait_until(lambda: broker.store.dispatch_behind_bytes() <= 0, WAIT_MS, "dispatch")
        for _ in range(8):
            queue_id, wish = rng.randrange(QUEUES), _wish(rng)
            queue = topic.queues[queue_id]
            if not queue:
                continue
            begin, wanted = rng.randrange(len(queue)), rng.choice([1, 2, 32, 1000, 1000])
            answer = broker.pull(topic.name, begin, queue_id=queue_id, expression=wish.expression,
                                 expressionType=wish.kind, maxMsgNums=wanted)
            end = _end_of_one_pull(queue, wish, begin, min(wanted, most), most_bytes, units)
            expected = _looked_at(queue, wish, begin, end)
            why = f"{wish} from {begin} of {len(queue)}, {wanted}, {most}, {most_bytes}, {units}"
            assert (answer.body or b"") == b"".join(expected), f"{why}: other records"
            assert answer.code == (response_code.SUCCESS if expected else response_code.PULL_RETRY_IMMEDIATELY), why
            fields = answer.ext_fields
            assert int(fields["nextBeginOffset"]) == end, f"{why}: next {fields['nextBeginOffset']}, {end}"
            assert (fields["minOffset"], fields["maxOffset"]) == ("0", str(len(queue))), why
    taken[FAST] -= taken[PLAIN]  # the first record of a part has it mapped
    return taken


def _part_without_its_end(self: MessageReader, offset: int, size: int, result: GetMessageResult) -> memoryview | None:
    """Treat a part as complete if a record begins in it."""
    part = result.last_part
    if 0 <= offset - part.start_offset < part.size + 64:
        return part.buffer[offset - part.start_offset:offset - part.start_offset + size]
    return _record(self, offset, size, result)


def _place_in_its_file(self: MessageReader, offset: int, size: int, result: GetMessageResult) -> memoryview | None:
    """Treat a part as if it began where its file does."""
    part, begin = result.last_part, offset % PULLS_FILE_SIZE
    if part.size and part.start_offset <= offset and begin <= part.size - size:
        return part.buffer[begin:begin + size]
    return _record(self, offset, size, result)


def _all_tags_are_wanted_below(self: MessageReader, *arguments: object) -> None:
    """Ignore the tags in the units."""
    with replaced(MessageReader, "_matches_unit", staticmethod(lambda *_: True))():
        _collect(self, *arguments)  # type: ignore[arg-type]


_record, _collect = MessageReader._record, MessageReader._collect


# -- held --

def _ask(broker: BrokerHarness, topic: Topic, queue_id: int, offset: int, wish: Wish,
         answers: dict[int, RemotingCommand], at: int) -> None:
    """Pull, and wait for messages until the case ends."""
    request = RemotingCommand.create_request_command(request_code.PULL_MESSAGE, broker.pull_header(
        topic.name, offset, queue_id=queue_id, expression=wish.expression, expressionType=wish.kind,
        suspend_ms=2 * WAIT_MS))

    def answered(future: ResponseFuture) -> None:
        if future.response_command is not None:
            answers[at] = future.response_command
    broker.client.invoke_async(broker.address, request, 2 * WAIT_MS, answered)


def compare_held(rng: random.Random) -> Counter[str]:
    """Check that each pull that waits at the end of a queue gets what reading finds there when messages arrive."""
    taken: Counter[str] = Counter()
    execute, process = PullMessageProcessor.execute_request_when_wakeup, PullMessageProcessor.process_request
    notify = PullRequestHoldService.notify_message_arriving
    woken_ones: set[int] = set()  # by the request's opaque
    # Queues that were checked again after a message arrived while a pull was about to be held.
    all_woken: set[int] = set()

    def woken(self: PullMessageProcessor, channel: object, request: RemotingCommand, *rest: bool) -> None:
        taken[FAST] += 1
        # A pull that only waits for the dispatch was not held.
        if not any(rest):
            woken_ones.add(request.opaque)
        execute(self, channel, request, *rest)  # type: ignore[arg-type]

    def came(self: PullRequestHoldService, topic: str, queue_id: int, max_offset: int, tags_code: int | None = None,
             *rest: object) -> None:
        if tags_code is None:
            all_woken.add(queue_id)
        notify(self, topic, queue_id, max_offset, tags_code, *rest)  # type: ignore[arg-type]

    def asked(self: PullMessageProcessor, channel: object, request: RemotingCommand) -> object:
        answer = process(self, channel, request)  # type: ignore[arg-type]
        taken[PLAIN] += answer is not None
        return answer
    with (BROKER.using() as broker, replaced(PullMessageProcessor, "execute_request_when_wakeup", woken)(),
          replaced(PullMessageProcessor, "process_request", asked)(),
          replaced(PullRequestHoldService, "notify_message_arriving", came)(),
          replaced(PullRequestHoldService, "check_hold_request", lambda _self: None)()):  # only arrivals wake
        topic = Topic(broker, rng)
        topic.fill(rng.choice([1, 3]), 100)
        for queue_id in range(QUEUES):
            topic.put(queue_id, None, 0, 5)
        count = rng.choice([1, 3, 8])
        pulls = [(rng.randrange(QUEUES), _wish(rng)) for _ in range(count)]
        at = [len(topic.queues[queue_id]) - rng.choice([0, 0, 0, 1]) for queue_id, _ in pulls]
        answers: dict[int, RemotingCommand] = {}
        for index, (queue_id, wish) in enumerate(pulls):
            _ask(broker, topic, queue_id, at[index], wish, answers, index)
            if rng.random() < 0.3:
                topic.fill(1, 2000)
        topic.fill(rng.choice([0, 1, 6]), 2000)
        for queue_id in range(QUEUES):  # the queues that all pulls want
            for tag in ("Aa", "TagC", "TagD"):
                topic.put(queue_id, tag, 99, 3)
        done: set[int] = set()
        while len(done) < count:
            wait_until(lambda: set(answers) - done, WAIT_MS, f"answers to {set(range(count)) - done} of {pulls}")
            for index in set(answers) - done:
                (queue_id, wish), answer = pulls[index], answers[index]
                end = int(answer.ext_fields["nextBeginOffset"])
                expected = _looked_at(topic.queues[queue_id], wish, at[index], end)
                assert (answer.body or b"") == b"".join(expected), f"{wish} from {at[index]} to {end}"
                if answer.code == response_code.SUCCESS:
                    done.add(index)
                    continue
                assert answer.code == response_code.PULL_RETRY_IMMEDIATELY, f"{wish} from {at[index]}: {answer}"
                assert end > at[index] and (answer.opaque not in woken_ones or queue_id in all_woken), (
                    f"woken for nothing: {wish} from {at[index]} to {end}")
                at[index] = end
                del answers[index]
                _ask(broker, topic, queue_id, end, wish, answers, index)
    return taken


def _all_wake_up(self: ManyPullRequest, wants_to_go: object) -> list[object]:
    """Wake every waiting pull, whatever has arrived."""
    return _take(self, lambda _request: True)  # type: ignore[return-value]


_take = ManyPullRequest.take

WAYS += [
    Way("pulls that share a slice of a map", "rmqha/store/message_reader.py::MessageReader._record",
        "a record lies in the slice of a map that the answer already holds", "the slice that contains it is looked up",
        compare_pulls,
        (Plant("a record that ends after the slice counts as within it",
               replaced(MessageReader, "_record", _part_without_its_end)),
         Plant("offsets within a slice are counted from the beginning of the file",
               replaced(MessageReader, "_record", _place_in_its_file)),
         Plant("tags are not checked", replaced(MessageReader, "_collect", _all_tags_are_wanted_below))), seeds=40),
    Way("held pulls", "rmqha/broker/pull_request_hold_service.py::PullRequestHoldService",
        "a pull finds nothing, and messages arrive while it waits", "an answer at once", compare_held,
        (Plant("all waiting pulls are woken", replaced(ManyPullRequest, "take", _all_wake_up)),), seeds=250),
]
