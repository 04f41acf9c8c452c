"""Sends: the express lane beside SendMessageProcessor, answer by answer and record by record."""
from __future__ import annotations

import contextlib
import random
import socket
import struct
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

from rmqha.broker.processor import express_send, send_codec, send_message_processor
from rmqha.broker.processor import send_codec as send_answers
from rmqha.broker.processor.send_admission import SendRoutes
from rmqha.common.message.message import Message
from rmqha.common.message.message_decoder import encode_messages
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting import io_thread
from rmqha.remoting.channel import Channel
from rmqha.remoting.large_requests import LARGE_HEADER_OF_SEND
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow, PutMessageContext
from tests.broker.support import BrokerHarness, running_broker
from tests.fast_ways.kept import Kept
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size
from tests.support.wait import wait_until

TOPICS = ("Plain", "Other")
NEW = "New"  # begins the name of a topic that a send makes
FILE_SIZE = 5 << 20
MAX_BODY = 4 << 20
LARGEST_CASE = 6 << 20  # bytes of its bodies
STORE_HOST = ("127.0.0.1", 10911)
BLANK_MAGIC = -875286124
STORE_TIMESTAMP = (56, 64, 68, 76)  # with a born host of IPv4, of IPv6
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "own", "other", "B", "INSTANCE_ID", "BA", "b" * 40, "Aa", "BB")
ODD_NAMES = ("DELAY", "TRAN_MSG", "CLUSTER", "é", "", "INNER_MULTI_DISPATCH")
ODD_VALUES = ("false", "", "a\x01b", 'q"u', "back\\slash", "\x00", "nul\x00in", "日本", "\x7f", "\t")


class Side:
    """One broker, and a connection to it whose reads are cut as a case wants."""

    def __init__(self, broker: BrokerHarness) -> None:
        self.store, self.controller = broker.store, broker.controller
        self.server = broker.controller.remoting_server
        self.commands = 0  # that were made of frames
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
        """As recv_into; the socket has one byte to read until the last piece is taken."""
        if not self._pieces:
            return self._receive(buffer)
        piece = self._pieces.popleft()
        buffer[:len(piece)] = piece
        if not self._pieces:
            self._receive(memoryview(bytearray(1)))
        return len(piece)

    def exchange(self, pieces: list[bytes], answers: int) -> dict[int, bytes]:
        """The frames of the answers, by opaque."""
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
        """The records from `start` on, without their store times."""
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
    """Two brokers that differ in the express lane only."""

    def __init__(self, first: BrokerHarness, second: BrokerHarness) -> None:
        second.controller.remoting_server.io.express_lane = None
        for broker in (first, second):
            broker.store.schedule_message_service.shutdown()  # each would deliver at another moment
            broker.controller.addresses.store_host = STORE_HOST  # answers and records name it
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
        """Give both brokers what a case begins with; the born host, and the longest body that is taken."""
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
        """Between two sends a topic, or the broker's settings, may change."""
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
    """Mostly as clients write them; sometimes long ones, many, or what is unusual."""
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
    """The frame of a send; of each kind there are many that the lane takes."""
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
    """A frame that is no send."""
    command = RemotingCommand.create_request_command(rng.choice([9999, request_code.SEND_MESSAGE_V2]))
    command.opaque, command.body = opaque, rng.randbytes(rng.randint(0, 40)) or None
    command.ext_fields = {"x": "y"}
    return command.encode()


def pieces_of(rng: random.Random, frames: list[bytes], most: int) -> list[bytes]:
    """Drawn reads of a socket that has got the frames: cut anywhere, each of at most `most` bytes."""
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
                    break  # served beside what would follow, whose place in the log would be any
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
    """Java's order of the properties is forgotten."""
    stack = contextlib.ExitStack()
    stack.enter_context(lowered(express_send, read_simple_sends=send_codec.sends_in_python))
    stack.enter_context(lowered(send_codec, property_order=lambda names: names, _kept_order=send_codec._order))
    return stack


def _part_of_a_frame(data: memoryview, position: int, *rest: object) -> send_codec.SimpleSends:
    """The reader takes the last frame, whose rest has not come, for a whole one."""
    head = data[position:position + 4]
    length = int.from_bytes(head, signed=True) if len(head) == 4 else 0
    have = len(data) - position - 4
    if 0 < have < length and have > length // 2:
        data = memoryview(bytes(data[:position]) + have.to_bytes(4) + bytes(data[position + 4:]))
    return send_codec.sends_in_python(data, position, *rest)  # type: ignore[arg-type]


def _route_for_ever(self: SendRoutes, channel: Channel, topics: list[str]) -> bool:
    """A route is not looked at again when its topic has changed."""
    return True


WAYS = [
    Way("express lane", "rmqha/broker/processor/express_send.py::ExpressSend",
        "a send to a topic that exists, its header as clients of 4.9 write it, nothing unusual in it",
        "SendMessageProcessor, frame by frame",
        compare_sends,
        (Plant("properties in the order in which they came", _with_order_as_it_came),
         Plant("the last frame of a read taken before its rest has come",
               lambda: lowered(express_send, read_simple_sends=_part_of_a_frame)),
         Plant("a route that outlives its topic", replaced(SendRoutes, "are_open", _route_for_ever))),
        seeds=30),
]
