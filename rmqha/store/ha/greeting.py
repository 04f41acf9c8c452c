"""The two parts of the greeting of ha_handshake. Pure: bytes in, bytes and a judgement out; no socket, no clock.

    slave                                             master
    SlaveGreeting.begin       --ASK-->                MasterGreeting.receive
    SlaveGreeting.receive     <--hello--              |
                              --who, questions-->     |
                              <--answers--            |
                              --finding-->            |
    judgement                 <--verdict--            judgement; then the reports begin, or both close

What a log holds is asked of the functions that they are given.
"""
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from rmqha.store.ha.ha_handshake import (
    ANSWER_SIZE,
    ASK,
    HELLO_SIZE,
    VERDICT_SIZE,
    Answer,
    Finding,
    HandshakeError,
    Question,
    Range,
    Verdict,
    Who,
    WhoCompares,
    decode_answer,
    decode_from_slave,
    decode_hello,
    decode_verdict,
    encode_answer,
    encode_finding,
    encode_hello,
    encode_question,
    encode_verdict,
    encode_who,
    encode_who_compares,
    is_greeting,
)

_MAX_QUESTIONS = 10_000  # of one greeting

# Gives questions for the master, is sent its answers, and returns what it has found.
Comparison = Generator[Question, Answer, Finding]
CrcOf = Callable[[int, int], int | None]  # of (offset, size): the CRC32 of these bytes; None when the log lacks some


class Judgement(NamedTuple):
    """What a master makes of a slave's log."""

    verdict: Verdict
    slave_end: int
    same_up_to: int | None  # as the slave has found; None: it asked no questions


class Step(NamedTuple):
    """One thing that a slave has said, and what the master says to it."""

    said: Who | WhoCompares | Question | Finding | None  # None: it has asked for the greeting
    reply: bytes
    judgement: Judgement | None = None  # with the last step


class MasterGreeting:
    """The master's part, with a peer that may be a slave which does not ask for it.

    `receive` gives a step for each thing that was said; with the last of them, or when the bytes are no greeting,
    `is_over`, and `rest` is what has come behind it: reports.
    """

    def __init__(self, held_range: Callable[[], Range], crc_of: CrcOf) -> None:
        self.is_over = False
        self.rest = b""  # not taken yet
        self.reads_log = True
        self.waits = False
        self._held_range = held_range
        self._crc_of = crc_of
        self._is_asked_for = False
        self._introduced: WhoCompares | None = None  # a slave that asks questions
        self._questions = 0
        self._same_up_to = -1  # end of the blocks that were last asked for, when all were the same

    def receive(self, data: bytes | memoryview) -> Iterator[Step]:
        """What comes of `data`. HandshakeError, behind the steps before it, when the slave says what it may not."""
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
            self.is_over = True  # it did not wait for the hello
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
        raise HandshakeError(f"a greeting out of turn: {type(said).__name__}")

    def _answer(self, question: Question) -> Answer:
        """Which of the slave's blocks this log holds, too."""
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
        """Take over what the slave has found; GOOD only when it was seen here, too."""
        held, verdict = self._held_range(), finding.verdict
        if verdict is Verdict.GOOD and who.end:
            if not held.min_offset <= who.end <= held.max_offset:
                verdict = Verdict.NOT_HELD
            elif self._same_up_to != who.end and max(who.begin, held.min_offset) < who.end:
                verdict = Verdict.DIVERGED
        return self._last(finding, held, Judgement(verdict, who.end, finding.same_up_to))

    def _compare_tails(self, who: Who) -> Step:
        """Whether the slave's log is a part of this one, as far as one checksum tells."""
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
    """The slave's part, with a master that may not know it. With `compare` it is one of questions.

    `introduction` is asked for behind the hello: it gives WhoCompares when there is a `compare`, else Who.
    """

    def __init__(self, introduction: Callable[[], Who | WhoCompares],
                 compare: Callable[[Range], Comparison] | None = None) -> None:
        self.is_heard = False  # the master has said hello: it knows the greeting
        self.verdict: Verdict | None = None  # None: it goes on
        self.held = Range(0, 0)  # what the master holds, as it last said
        self.end = -1  # of the slave's log, as it was introduced
        self.same_up_to = -1  # as the slave has found; -1: nothing is known to be the same
        self._introduction = introduction
        self._compare = compare
        self._comparison: Comparison | None = None  # while the master is asked
        self._rest = b""

    @property
    def wanted(self) -> int:
        """How many bytes to read at most, so that nothing is read of what comes behind; 0 when it is over."""
        if self.verdict is not None:
            return 0
        size = HELLO_SIZE if not self.is_heard else VERDICT_SIZE if self._comparison is None else ANSWER_SIZE
        return size - len(self._rest)

    def begin(self) -> bytes:
        """What to send first."""
        return ASK

    def receive(self, data: bytes) -> bytes:
        """What to send, b"" while there are too few bytes and at the end. HandshakeError when they are no greeting.

        A ComparisonError of `compare` passes through.
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
        assert self._compare is not None  # who introduces itself so can ask
        self._comparison = self._compare(self.held)
        return encode_who_compares(who) + self._ask(self._comparison, None)

    def _hear_answer(self, comparison: Comparison) -> bytes | None:
        answer = decode_answer(self._rest)
        if answer is None:
            return None
        self._rest = self._rest[answer[1]:]
        return self._ask(comparison, answer[0])

    def _ask(self, comparison: Comparison, answer: Answer | None) -> bytes:
        """The next question, or what was found."""
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
