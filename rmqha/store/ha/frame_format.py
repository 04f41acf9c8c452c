"""The protocol of a slave's connection: the parts that differ between HAService and AutoSwitch."""
from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from rmqha.store.ha import ha_handshake, ha_transfer
from rmqha.store.ha.ha_handshake import HandshakeMode, Judgement, MasterGreeting, Step, handshake_mode
from rmqha.store.ha.log_comparison import read_tail
from rmqha.store.ha.peers import HAConnectionState, send_whole

if TYPE_CHECKING:
    from rmqha.store.ha.ha_connection import HAConnection

log = logging.getLogger("RocketmqStore")

_ANYWHERE = 1 << 63

S = TypeVar("S")  # the step that a greeting yields for each message of the slave
S_co = TypeVar("S_co", covariant=True)


class Greeting(Protocol[S_co]):
    """The master's part of a handshake. It yields a step for each message of the slave, until `is_over`."""

    is_over: bool
    # bytes that arrived after the handshake
    rest: bytes
    # False: messages whose answer needs bytes of the log are left in `rest`
    reads_log: bool
    # such a message is waiting
    waits: bool

    def receive(self, data: bytes | memoryview) -> Iterator[S_co]:
        """Yield the steps that result from `data`."""


class FrameFormat(Generic[S]):
    """The parts of a connection that depend on its protocol. Each connection has its own instance.

    ReadSocketService's thread calls `decode_reports` and `answer`; the sending thread calls the rest. `greeting` is
    None for a protocol without a handshake. `max_body_size`: log bytes that a slave's buffer can hold in one frame.
    `sends_appended`: the bytes passed in by a put may be sent as they are; otherwise they are read from the log.
    """

    max_body_size: int
    sends_appended = True

    def __init__(self, connection: HAConnection, greeting: Greeting[S] | None) -> None:
        self.connection = connection
        self.greeting = greeting

    def decode_reports(self, data: bytes | memoryview) -> Sequence[int]:
        """Return the offsets of the reports that `data` completes. TransferError: the peer is not a valid slave."""
        raise NotImplementedError

    def encode_frames(self, offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
        """Return `body` at commit log `offset` as frames of up to `batch_size` bytes: header, slice, header, slice...
        """
        raise NotImplementedError

    def end_of_run(self, offset: int) -> int:
        """Return the offset up to which bytes from `offset` on may be sent together; -1: not at all."""
        return _ANYWHERE

    def answer(self, step: S) -> bool:
        """Send the greeting's reply; return False when the connection has to be closed."""
        raise NotImplementedError

    def start_position(self) -> int:
        """Return the commit log offset at which an empty slave begins."""
        raise NotImplementedError

    def heartbeat(self, offset: int) -> bytes:
        """Return an empty frame at `offset`; b"" when there can't be one."""
        raise NotImplementedError

    def refusal(self, nearest: int) -> bytes:
        """Return the frame that names the nearest offset that this log holds; b"" when there can't be one."""
        raise NotImplementedError


class OffsetFrames(FrameFormat[Step]):
    """RocketMQ 4.9's 8-byte reports and 12-byte headers, after the greeting if the slave asks for one."""

    max_body_size = ha_transfer.MAX_BODY_SIZE

    def __init__(self, connection: HAConnection) -> None:
        ha_service, greeting = connection.ha_service, None
        if handshake_mode(ha_service.config) is not HandshakeMode.NEVER:
            greeting = MasterGreeting(ha_service.held_range, partial(read_tail, ha_service.replicated_log))
        super().__init__(connection, greeting)
        self._reports = ha_transfer.ReportDecoder()

    def decode_reports(self, data: bytes | memoryview) -> Sequence[int]:
        return self._reports.feed(data)

    encode_frames = staticmethod(ha_transfer.encode_frames)

    def answer(self, step: Step) -> bool:
        connection, judgement, said = self.connection, step.judgement, step.said
        if said is None:
            connection.change_state(HAConnectionState.READY, HAConnectionState.HANDSHAKE)
        else:
            connection.read_socket_service.heard()
        if isinstance(said, (ha_handshake.Who, ha_handshake.WhoCompares)):
            connection.slave_identity = said.identity or connection.slave_identity
        if judgement is not None:
            self._say(judgement)
        send_whole(connection.socket, step.reply)
        if judgement is None:
            return True
        if judgement.verdict is ha_handshake.Verdict.NOT_HELD:
            connection.refuse(judgement.slave_end)
        elif judgement.verdict is ha_handshake.Verdict.DIVERGED:
            same_up_to = -1 if judgement.same_up_to is None else judgement.same_up_to
            connection.refuse_diverged(judgement.slave_end, same_up_to)
        return True

    def _say(self, judgement: Judgement) -> None:
        connection, (verdict, slave_end, same_up_to) = self.connection, judgement
        known = "" if same_up_to is None else f", identical up to {same_up_to}"
        log.info("slave[%s] is %s, its log ends at %d: %s%s", connection.client_addr, connection.slave_identity,
                 slave_end, verdict.name, known)

    def start_position(self) -> int:
        """Return the beginning of the master's last file, as in 4.9; of its first file with haSyncFromFirstFile.

        A slave of 4.9 accepts either.
        """
        ha_service = self.connection.ha_service
        held = ha_service.held_range()
        position = held.max_offset - held.max_offset % ha_service.config.mappedFileSizeCommitLog
        return min(position, held.min_offset) if ha_service.config.haSyncFromFirstFile else position

    def heartbeat(self, offset: int) -> bytes:
        return ha_transfer.encode_header(offset, 0)

    def refusal(self, nearest: int) -> bytes:
        return ha_transfer.encode_header(nearest, 0)
