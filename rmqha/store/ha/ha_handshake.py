"""The handshake of two rmqha peers before a slave's first report. Pure: no socket, no thread, no file, no clock.

4.9's protocol knows only offsets: a slave whose log differs from its master's is served as long as the offsets fit, and
the two logs stay different forever. In this handshake the slave compares its log with the master's by checksums before
it reports an offset, so that neither side relies on bytes that differ.

With haHandshakeEnable=auto, the slave asks for the handshake if the master's main port has said that this is an rmqha
master; with true, it asks any master. It asks in a way that a RocketMQ master ignores:

    slave                                        master
    ask: a report of -1                  -->     4.9 and 5.x understand "no report yet", and stay silent
                                         <--     hello: a frame at offset -1
    who: identity, range of its log      -->
    question: checksums of blocks        -->
                                         <--     answer: a frame at offset -3; as many times as the slave needs
    finding: its conclusion              -->
                                         <--     verdict: a frame at offset -2; the reports begin, or both close

A slave that asks a master of unknown kind and gets no hello within 2 s continues with its first report, on the same
connection. The hello always has version 1. Version 2 of `who`, after which the slave may ask questions, is only used
when the main port has reported haHandshake=2. Otherwise the slave sends a `who` of version 1, with the end of its log
and one checksum of its last bytes, and the master replies with the verdict.

Bodies of the master's frames (each after the 12-byte header of a frame, its offset -1, -3 or -2):

| hello | type | field |
|---|---|---|
| 0-3 | bytes | "RMQH" |
| 4-5 | int16 | version, 1 |
| 6-13 | int64 | the master's min commit log offset |
| 14-21 | int64 | its max commit log offset |

| answer | type | field |
|---|---|---|
| 0-3 | int32 | how many blocks, from the first one on, are the same bytes in the master's log |
| 4-5 | int16 | 1 if the master does not hold the block after them, else 0 |

| verdict | type | field |
|---|---|---|
| 0-1 | int16 | see Verdict |
| 2-9 | int64 | the master's min commit log offset |
| 10-17 | int64 | its max commit log offset |

Messages of the slave:

| who, version 2 | type | field |
|---|---|---|
| 0-3 | bytes | "RMQH": no report begins like this |
| 4-5 | int16 | version, 2 |
| 6-13 | int64 | beginning of the slave's log |
| 14-21 | int64 | its end |
| 22-23 | int16 | bytes of the identity |
| 24- | UTF-8 | the identity: a text that distinguishes this slave from others of the same master |

| question | type | field |
|---|---|---|
| 0-3 | bytes | "RMQC" |
| 4-11 | int64 | commit log offset of the first block |
| 12-15 | int32 | number of blocks; each begins where the previous one ends |
| 16- | int32, uint32 | the size and the CRC32 of each block |

| finding | type | field |
|---|---|---|
| 0-3 | bytes | "RMQF" |
| 4-5 | int16 | see Verdict |
| 6-13 | int64 | offset up to which both logs are identical; -1 if nothing is |

| who, version 1 | type | field |
|---|---|---|
| 0-3 | bytes | "RMQH": no report begins like this |
| 4-5 | int16 | version, 1 |
| 6-13 | int64 | end of the slave's log |
| 14-17 | int32 | bytes of its tail, 0 when it is empty |
| 18-21 | uint32 | CRC32 of the tail: the last bytes of the log, at most MAX_TAIL, in one file; usually with the whole
last record |
| 22-23 | int16 | bytes of the identity |
| 24- | UTF-8 | the identity, as in version 2 |

`SlaveGreeting` and `MasterGreeting` take bytes and return bytes and a judgement:

    slave                                             master
    SlaveGreeting.begin       --ASK-->                MasterGreeting.receive
    SlaveGreeting.receive     <--hello--              |
                              --who, questions-->     |
                              <--answers--            |
                              --finding-->            |
    judgement                 <--verdict--            judgement; then the reports begin, or both close

They read the log only through the functions passed to them. `HandshakeMode` has the values of haHandshakeEnable.
"""
from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Iterator
from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from rmqha.common.lazy_tuples import NamedTuple
from rmqha.store.ha import ha_transfer

if TYPE_CHECKING:
    from rmqha.store.message_store_config import MessageStoreConfig


MAGIC = b"RMQH"
QUESTION_MAGIC = b"RMQC"
FINDING_MAGIC = b"RMQF"
VERSION = 1
# Version of a greeting with questions; a master's main port reports whether it supports this.
COMPARING_VERSION = 2
ASK = ha_transfer.encode_report(-1)
HELLO_OFFSET = -1
VERDICT_OFFSET = -2
ANSWER_OFFSET = -3
# Enough for the largest record that the default configuration allows; the tail has only the end of a larger record.
MAX_TAIL = 4 * 1024 * 1024 + 64 * 1024
MAX_IDENTITY = 1024
# Of one question.
MAX_BLOCKS = 4096
MAX_COMPARED = 256 * 1024 * 1024

_HELLO = struct.Struct(">4shqq")
assert _HELLO.size == 22
_VERDICT = struct.Struct(">hqq")
assert _VERDICT.size == 18
_WHO = struct.Struct(">4shqiIh")
assert _WHO.size == 24
_WHO_2 = struct.Struct(">4shqqh")
assert _WHO_2.size == 24
_QUESTION = struct.Struct(">4sqi")
assert _QUESTION.size == 16
HELLO_SIZE = ha_transfer.HEADER.size + _HELLO.size
VERDICT_SIZE = ha_transfer.HEADER.size + _VERDICT.size
_BLOCK = struct.Struct(">iI")
assert _BLOCK.size == 8
_FINDING = struct.Struct(">4shq")
assert _FINDING.size == 14
_ANSWER = struct.Struct(">ih")
assert _ANSWER.size == 6
ANSWER_SIZE = ha_transfer.HEADER.size + _ANSWER.size

_WHO_2_BEGIN = MAGIC + struct.pack(">h", COMPARING_VERSION)
_VERSION_END = len(_WHO_2_BEGIN)


class HandshakeError(ValueError):
    """The peer sent bytes that are not a valid greeting."""


class Verdict(IntEnum):
    """The master's verdict on the slave's log."""

    GOOD = 0
    # The slave's log ends before the beginning of the master's, or after its end.
    NOT_HELD = 1
    # The slave's log differs from the master's at the same offsets, or the master has no bytes there.
    DIVERGED = 2


class Range(NamedTuple):
    """The commit log offsets that a master holds."""

    min_offset: int
    max_offset: int


class Who(NamedTuple):
    """A slave, and the end of its log."""

    identity: str
    end: int
    tail_size: int
    tail_crc: int


class WhoCompares(NamedTuple):
    """A slave that asks questions, and the range of its log."""

    identity: str
    begin: int
    end: int


class Block(NamedTuple):
    """A block of log bytes: its size and CRC32."""

    size: int
    crc: int


class Question(NamedTuple):
    """A question about consecutive blocks from `offset` on."""

    offset: int
    blocks: list[Block]


class Answer(NamedTuple):
    """The number of identical blocks, from the first on, and whether the master lacks the block after them."""

    equal: int
    not_held: bool


class Finding(NamedTuple):
    """A slave's conclusion from its master's answers."""

    verdict: Verdict
    # commit log offset at which a record begins; -1: nothing is known to be identical
    same_up_to: int


def encode_hello(held: Range) -> bytes:
    """Encode the master's answer to ASK."""
    return ha_transfer.encode_header(HELLO_OFFSET, _HELLO.size) + _HELLO.pack(MAGIC, VERSION, *held)


def encode_verdict(verdict: Verdict, held: Range) -> bytes:
    """Encode the master's last message."""
    return ha_transfer.encode_header(VERDICT_OFFSET, _VERDICT.size) + _VERDICT.pack(verdict, *held)


def encode_who(who: Who) -> bytes:
    """Encode the slave's introduction. The identity is cut at MAX_IDENTITY bytes."""
    identity = who.identity.encode("utf-8", "replace")[:MAX_IDENTITY]
    return _WHO.pack(MAGIC, VERSION, who.end, who.tail_size, who.tail_crc, len(identity)) + identity


def encode_who_compares(who: WhoCompares) -> bytes:
    """Encode the introduction of a slave that asks questions. The identity is cut at MAX_IDENTITY bytes."""
    identity = who.identity.encode("utf-8", "replace")[:MAX_IDENTITY]
    return _WHO_2.pack(MAGIC, COMPARING_VERSION, who.begin, who.end, len(identity)) + identity


def encode_question(question: Question) -> bytes:
    """Encode a question: which of these blocks does the master hold, too?"""
    head = _QUESTION.pack(QUESTION_MAGIC, question.offset, len(question.blocks))
    return head + b"".join(_BLOCK.pack(*block) for block in question.blocks)


def encode_answer(answer: Answer) -> bytes:
    """Encode the master's answer to a question."""
    return ha_transfer.encode_header(ANSWER_OFFSET, _ANSWER.size) + _ANSWER.pack(*answer)


def encode_finding(finding: Finding) -> bytes:
    """Encode the slave's last message before the verdict."""
    return _FINDING.pack(FINDING_MAGIC, *finding)


def decode_answer(data: bytes | bytearray) -> tuple[Answer, int] | None:
    """Return (answer, bytes used); None when there are too few bytes. Raise HandshakeError when they are not an
    answer."""
    body = _frame_body(data, ANSWER_OFFSET, _ANSWER.size)
    if body is None:
        return None
    equal, not_held = _ANSWER.unpack(body)
    return Answer(equal, bool(not_held)), ANSWER_SIZE


def decode_from_slave(data: bytes | bytearray) -> tuple[Who | WhoCompares | Question | Finding, int] | None:
    """Return (a slave's message within the greeting, bytes used); None when there are too few bytes.

    Raise HandshakeError when they are not such a message.
    """
    magic = bytes(data[:len(MAGIC)])
    if QUESTION_MAGIC == magic:
        return _decode_question(data)
    if FINDING_MAGIC == magic:
        return _decode_finding(data)
    if len(data) >= _VERSION_END and data[:_VERSION_END] == _WHO_2_BEGIN:
        return _decode_who_compares(data)
    if len(data) < _VERSION_END and any(each.startswith(magic) for each in (MAGIC, QUESTION_MAGIC, FINDING_MAGIC)):
        return None
    return decode_who(data)


def is_greeting(data: bytes | bytearray) -> bool:
    """Return whether these bytes can begin one of the slave's greeting messages. A report never begins like this."""
    magic = bytes(data[:len(MAGIC)])
    return any(each.startswith(magic) for each in (MAGIC, QUESTION_MAGIC, FINDING_MAGIC))


def _decode_who_compares(data: bytes | bytearray) -> tuple[WhoCompares, int] | None:
    if len(data) < _WHO_2.size:
        return None
    _magic, _version, begin, end, length = _WHO_2.unpack_from(data)
    if not 0 <= length <= MAX_IDENTITY or not 0 <= begin <= end:
        raise HandshakeError(f"an invalid introduction: a log from {begin} to {end}, identity of {length} bytes")
    if len(data) < _WHO_2.size + length:
        return None
    identity = bytes(data[_WHO_2.size:_WHO_2.size + length]).decode("utf-8", "replace")
    return WhoCompares(identity, begin, end), _WHO_2.size + length


def _decode_question(data: bytes | bytearray) -> tuple[Question, int] | None:
    if len(data) < _QUESTION.size:
        return None
    _magic, offset, count = _QUESTION.unpack_from(data)
    if offset < 0 or not 0 < count <= MAX_BLOCKS:
        raise HandshakeError(f"an invalid question: {count} blocks at {offset}")
    end = _QUESTION.size + count * _BLOCK.size
    if len(data) < end:
        return None
    blocks = [Block(*fields) for fields in _BLOCK.iter_unpack(bytes(data[_QUESTION.size:end]))]
    if any(block.size <= 0 for block in blocks) or sum(block.size for block in blocks) > MAX_COMPARED:
        raise HandshakeError(f"an invalid question: blocks at {offset} that are empty, or too large in total")
    return Question(offset, blocks), end


def _decode_finding(data: bytes | bytearray) -> tuple[Finding, int] | None:
    if len(data) < _FINDING.size:
        return None
    _magic, code, same_up_to = _FINDING.unpack_from(data)
    try:
        return Finding(Verdict(code), same_up_to), _FINDING.size
    except ValueError:
        raise HandshakeError(f"an unknown finding: {code}") from None


def decode_hello(data: bytes | bytearray) -> tuple[Range, int] | None:
    """Return (range of the master's log, bytes used); None when there are too few bytes.

    Raise HandshakeError when they are not a hello.
    """
    body = _frame_body(data, HELLO_OFFSET, _HELLO.size)
    if body is None:
        return None
    magic, version, *held = _HELLO.unpack(body)
    if magic != MAGIC or version != VERSION:
        raise HandshakeError(f"a hello of version {version}, {magic!r}; expected version {VERSION}, {MAGIC!r}")
    return Range(*held), HELLO_SIZE


def decode_verdict(data: bytes | bytearray) -> tuple[Verdict, Range, int] | None:
    """Return (verdict, range of the master's log, bytes used); None when there are too few bytes.

    Raise HandshakeError when they are not a verdict.
    """
    body = _frame_body(data, VERDICT_OFFSET, _VERDICT.size)
    if body is None:
        return None
    code, *held = _VERDICT.unpack(body)
    try:
        return Verdict(code), Range(*held), VERDICT_SIZE
    except ValueError:
        raise HandshakeError(f"an unknown verdict: {code}") from None


def decode_who(data: bytes | bytearray) -> tuple[Who, int] | None:
    """Return (the slave, bytes used); None when there are too few bytes.

    Raise HandshakeError when they are not an introduction.
    """
    if not MAGIC.startswith(bytes(data[:len(MAGIC)])):
        raise HandshakeError(f"an introduction begins with {MAGIC!r}, not with {bytes(data[:len(MAGIC)])!r}")
    if len(data) < _WHO.size:
        return None
    _magic, version, end, tail_size, tail_crc, length = _WHO.unpack_from(data)
    if version != VERSION or not 0 <= length <= MAX_IDENTITY or not 0 <= tail_size <= MAX_TAIL or end < tail_size:
        raise HandshakeError(f"an invalid introduction: version {version}, log end {end}, tail of {tail_size} "
                             f"bytes, identity of {length} bytes")
    if len(data) < _WHO.size + length:
        return None
    identity = bytes(data[_WHO.size:_WHO.size + length]).decode("utf-8", "replace")
    return Who(identity, end, tail_size, tail_crc), _WHO.size + length


def tail_place(end: int, log_begin: int, segment_size: int) -> tuple[int, int]:
    """Return (offset, size) of the tail of a log from `log_begin` to `end`; it lies within one file."""
    if end <= log_begin:
        return end, 0
    file_begin = (end - 1) // segment_size * segment_size
    begin = max(file_begin, log_begin, end - MAX_TAIL)
    return begin, end - begin


def tail_crc(tail: bytes | memoryview) -> int:
    """Return the checksum of a tail."""
    return zlib.crc32(tail)


def _frame_body(data: bytes | bytearray, offset: int, size: int) -> bytes | None:
    header_size = ha_transfer.HEADER.size
    if len(data) < header_size:
        return None
    header = ha_transfer.decode_header(data)
    if header != (offset, size):
        raise HandshakeError(f"a frame at {header[0]} of {header[1]} bytes instead of a greeting")
    if len(data) < header_size + size:
        return None
    return bytes(data[header_size:header_size + size])


_MAX_QUESTIONS = 10_000  # of one greeting

# Yields questions for the master, is sent its answers, and returns its finding.
Comparison = Generator[Question, Answer, Finding]
CrcOf = Callable[[int, int], int | None]  # of (offset, size): the CRC32 of these bytes; None when the log lacks some


class Judgement(NamedTuple):
    """A master's judgement of a slave's log."""

    verdict: Verdict
    slave_end: int
    # as found by the slave; None: it asked no questions
    same_up_to: int | None


class Step(NamedTuple):
    """A slave's message, and the master's reply."""

    # None: it has asked for the greeting
    said: Who | WhoCompares | Question | Finding | None
    reply: bytes
    judgement: Judgement | None = None  # with the last step


class MasterGreeting:
    """The master's part of the handshake; the peer may be a slave that does not ask for one.

    `receive` yields a step for each message. After the last one, or if the bytes are not a greeting, `is_over` is set,
    and `rest` contains the bytes that follow: reports.
    """

    def __init__(self, held_range: Callable[[], Range], crc_of: CrcOf) -> None:
        self.is_over = False
        self.rest = b""  # not taken yet
        self.reads_log = True
        self.waits = False
        self._held_range = held_range
        self._crc_of = crc_of
        self._is_asked_for = False
        # a slave that asks questions
        self._introduced: WhoCompares | None = None
        self._questions = 0
        # end of the blocks in the last question, if all were identical
        self._same_up_to = -1

    def receive(self, data: bytes | memoryview) -> Iterator[Step]:
        """Yield the steps that result from `data`. Raise HandshakeError at an invalid message, after the steps of the
        messages before it."""
        self.rest += data
        while not self.is_over:
            step = self._next() if self._is_asked_for else self._first()
            if step is None:
                return
            yield step

    def _first(self) -> Step | None:
        if not self.rest.startswith(ASK[:len(self.rest)]):
            self.is_over = True
            return None
        if len(self.rest) < len(ASK):
            return None
        self._is_asked_for, self.rest = True, self.rest[len(ASK):]
        return Step(None, encode_hello(self._held_range()))

    def _next(self) -> Step | None:
        if not is_greeting(self.rest):
            # The slave did not wait for the hello: these bytes are already a report.
            self.is_over = True
            return None
        found = decode_from_slave(self.rest)
        if found is None:
            return None
        said, used = found
        self.waits = not self.reads_log and (isinstance(said, Question) or isinstance(said, Who) and said.tail_size > 0)
        if self.waits:
            return None
        self.rest = self.rest[used:]
        return self._converse(said)

    def _converse(self, said: Who | WhoCompares | Question | Finding) -> Step:
        if isinstance(said, Who) and self._introduced is None:
            return self._compare_tails(said)
        if isinstance(said, WhoCompares) and self._introduced is None:
            self._introduced = said
            return Step(said, b"")
        if isinstance(said, Question) and self._introduced is not None:
            return Step(said, encode_answer(self._answer(said)))
        if isinstance(said, Finding) and self._introduced is not None:
            return self._judge_finding(self._introduced, said)
        raise HandshakeError(f"a greeting out of order: {type(said).__name__}")

    def _answer(self, question: Question) -> Answer:
        """Compare the slave's blocks with this log."""
        self._questions += 1
        if self._questions > _MAX_QUESTIONS:
            raise HandshakeError(f"more than {_MAX_QUESTIONS} questions")
        offset, equal, not_held = question.offset, 0, False
        for block in question.blocks:
            crc = self._crc_of(offset, block.size)
            if crc != block.crc:
                not_held = crc is None
                break
            equal, offset = equal + 1, offset + block.size
        self._same_up_to = offset if equal == len(question.blocks) else -1
        return Answer(equal, not_held)

    def _judge_finding(self, who: WhoCompares, finding: Finding) -> Step:
        """Adopt the slave's finding. But GOOD becomes NOT_HELD if this log does not hold the slave's end, and DIVERGED
        unless the last question reached that end and all its blocks were identical."""
        held, verdict = self._held_range(), finding.verdict
        if verdict is Verdict.GOOD and who.end:
            if not held.min_offset <= who.end <= held.max_offset:
                verdict = Verdict.NOT_HELD
            elif self._same_up_to != who.end and max(who.begin, held.min_offset) < who.end:
                verdict = Verdict.DIVERGED
        return self._last(finding, held, Judgement(verdict, who.end, finding.same_up_to))

    def _compare_tails(self, who: Who) -> Step:
        """Judge by a single checksum whether the slave's log is a part of this one."""
        held, verdict = self._held_range(), Verdict.GOOD
        if who.end and not held.min_offset <= who.end <= held.max_offset:
            verdict = Verdict.NOT_HELD
        elif who.tail_size:
            crc = self._crc_of(who.end - who.tail_size, who.tail_size)
            if crc is not None and crc != who.tail_crc:
                verdict = Verdict.DIVERGED
        return self._last(who, held, Judgement(verdict, who.end, None))

    def _last(self, said: Who | Finding, held: Range, judgement: Judgement) -> Step:
        self.is_over = True
        return Step(said, encode_verdict(judgement.verdict, held), judgement)


class SlaveGreeting:
    """The slave's part of the handshake; the master may not support it. With `compare` the slave asks questions.

    `introduction` is called after the hello. It returns WhoCompares if there is a `compare`, else Who.
    """

    def __init__(self, introduction: Callable[[], Who | WhoCompares],
                 compare: Callable[[Range], Comparison] | None = None) -> None:
        # the master has sent its hello, so it supports the greeting
        self.is_heard = False
        # None: the handshake continues
        self.verdict: Verdict | None = None
        # range of the master's log, as last reported
        self.held = Range(0, 0)
        # end of the slave's log, as introduced
        self.end = -1
        # as found by the slave; -1: nothing is known to be identical
        self.same_up_to = -1
        self._introduction = introduction
        self._compare = compare
        # set while questions are being asked
        self._comparison: Comparison | None = None
        self._rest = b""

    @property
    def wanted(self) -> int:
        """The maximum number of bytes to read, so that nothing after the handshake is read; 0 when it is over."""
        if self.verdict is not None:
            return 0
        size = HELLO_SIZE if not self.is_heard else VERDICT_SIZE if self._comparison is None else ANSWER_SIZE
        return size - len(self._rest)

    def begin(self) -> bytes:
        """Return the first bytes to send."""
        return ASK

    def receive(self, data: bytes) -> bytes:
        """Return the bytes to send; b"" while there are too few bytes, and at the end.

        Raise HandshakeError when they are not a greeting. A ComparisonError of `compare` is passed on.
        """
        self._rest += data
        reply = b""
        while self.verdict is None:
            piece = self._next()
            if piece is None:
                break
            reply += piece
        return reply

    def _next(self) -> bytes | None:
        if not self.is_heard:
            return self._hear_hello()
        return self._hear_verdict() if self._comparison is None else self._hear_answer(self._comparison)

    def _hear_hello(self) -> bytes | None:
        hello = decode_hello(self._rest)
        if hello is None:
            return None
        self.held, self._rest, self.is_heard = hello[0], self._rest[hello[1]:], True
        who = self._introduction()
        self.end = who.end
        if isinstance(who, Who):
            return encode_who(who)
        # This introduction promises questions.
        assert self._compare is not None
        self._comparison = self._compare(self.held)
        return encode_who_compares(who) + self._ask(self._comparison, None)

    def _hear_answer(self, comparison: Comparison) -> bytes | None:
        answer = decode_answer(self._rest)
        if answer is None:
            return None
        self._rest = self._rest[answer[1]:]
        return self._ask(comparison, answer[0])

    def _ask(self, comparison: Comparison, answer: Answer | None) -> bytes:
        """Return the next question, or the finding."""
        try:
            return encode_question(next(comparison) if answer is None else comparison.send(answer))
        except StopIteration as stop:
            finding: Finding = stop.value
        self._comparison, self.same_up_to = None, finding.same_up_to
        return encode_finding(finding)

    def _hear_verdict(self) -> bytes | None:
        found = decode_verdict(self._rest)
        if found is None:
            return None
        self.verdict, self.held, used = found
        self._rest = self._rest[used:]
        return b""


class HandshakeMode(Enum):
    """The values of haHandshakeEnable: whether slave and master perform the handshake."""

    AUTO = "auto"  # a slave asks a master that is known to be an rmqha master
    ALWAYS = "true"  # a slave asks every master
    NEVER = "false"  # a slave does not ask, a master does not answer


def handshake_mode(config: MessageStoreConfig) -> HandshakeMode:
    """Return the mode that `config` sets; all values other than auto and true mean NEVER."""
    text = str(config.haHandshakeEnable).strip().lower()
    return next((mode for mode in HandshakeMode if mode.value == text), HandshakeMode.NEVER)
