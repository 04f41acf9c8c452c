"""A slave's connection, seen from a master whose role can change.

    slave --handshake--> ReadSocketService --the master's epochs, at once--> slave
    slave --reports-->   ReadSocketService --slave_acknowledged--> AutoSwitchHAService
                            | starts the writer at the first report
    slave <--frames--    WriteSocketService <--WaitNotifyObject-- an append; the socket becoming writable
"""
from __future__ import annotations

import logging
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmqha.store.ha.autoswitch import auto_switch_transfer
from rmqha.store.ha.autoswitch.auto_switch_transfer import (
    EpochStep,
    LogEnd,
    MasterEpochGreeting,
    Refusal,
    SlaveHandshake,
)
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.frame_format import FrameFormat
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.peers import HAConnectionState, send_whole

if TYPE_CHECKING:
    from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService

log = logging.getLogger("RocketmqStore")

class AutoSwitchHAConnection(HAConnection):
    """A connection to a slave that introduces itself, and receives the master's epochs before it reports.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection (5.1.4)
    """

    ha_service: AutoSwitchHAService

    def __init__(self, ha_service: AutoSwitchHAService, sock: socket.socket, client_addr: str,
                 epoch_cache: EpochFileCache) -> None:
        self.epoch_cache = epoch_cache
        # set by ReadSocketService at the handshake, before anything is sent
        self.is_sync_from_last_file = False
        self.is_async_learner = False
        # (end of the log, monotonic ns at that time): the slave has caught up to it once it acknowledges this offset.
        # Used only by ReadSocketService.
        self._mark: tuple[int, int] | None = None
        super().__init__(ha_service, sock, client_addr)

    def new_format(self) -> EpochFrames:
        return EpochFrames(self)

    def log_end(self) -> LogEnd:
        """Return the current end of the master's log, and its epochs."""
        return self.ha_service.replicated_log.get_max_phy_offset(), self.epoch_cache.get_all_entries()

    def introduced(self, slave: SlaveHandshake) -> None:
        """Record the slave's introduction, before anything is sent."""
        self.slave_id = slave.slave_id
        self.slave_identity = f"broker {slave.slave_id}"
        self.is_sync_from_last_file = slave.is_sync_from_last_file
        self.is_async_learner = slave.is_async_learner
        self.change_state(HAConnectionState.READY, HAConnectionState.HANDSHAKE)

    def caught_up_at(self, ack_offset: int, highest: int) -> int | None:
        """Return the last time (monotonic ns) at which the slave held all of the log; None if that is not new.

        Differs: a slave has caught up when it has acknowledged an earlier end of the log. 5.1.4 compares with the end
        of the log at the last send, which keeps moving under load; and it counts a slave as caught up when the bytes
        were only sent.
        """
        now = time.monotonic_ns()
        if ack_offset >= highest:
            self._mark = highest, now
            return now
        if self._mark is not None and ack_offset < self._mark[0]:
            return None
        caught_up_ns = None if self._mark is None else self._mark[1]
        self._mark = highest, now
        return caught_up_ns


class EpochFrames(FrameFormat[EpochStep]):
    """A protocol whose frames name the epoch of their bytes, after a handshake that transfers all epochs.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection$ReadSocketService (5.1.4)
    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection$WriteSocketService (5.1.4)
    """

    connection: AutoSwitchHAConnection
    max_body_size = auto_switch_transfer.MAX_BODY_SIZE
    sends_appended = False  # the bytes of a put may be of two epochs

    def __init__(self, connection: AutoSwitchHAConnection) -> None:
        ha_service = connection.ha_service
        self._epoch_cache = connection.epoch_cache
        self._frames = auto_switch_transfer.SlaveFrameDecoder()
        super().__init__(connection, MasterEpochGreeting(ha_service.local_broker_id, lambda: ha_service.is_master,
                                                         connection.log_end))

    def answer(self, step: EpochStep) -> bool:
        """Send the slave the epochs of this log; return False when it can't be served."""
        connection, said = self.connection, step.said
        if said is None:  # Refusal.REPORTS_FIRST
            log.warning("slave[%s] sends a report before its handshake", connection.client_addr)
            return False
        if step.refusal is Refusal.SAME_BROKER:
            log.error("slave[%s] claims to be broker %d, which is this broker", connection.client_addr, said.slave_id)
        elif step.refusal is Refusal.NO_MASTER:
            log.warning("slave[%s] asks for the log, but this broker is not a master now", connection.client_addr)
        if step.refusal is not None:
            return False
        connection.introduced(said)
        log.info("Receive slave handshake, slaveBrokerId:%d, isSyncFromLastFile:%s, isAsyncLearner:%s; maxOffset:%d, "
                 "epochEntries:%s", *said[::-1], *step.log_end)
        try:
            send_whole(connection.socket, step.reply)
        except OSError as error:
            log.info("slave[%s] disconnected before it could be notified: %s", connection.client_addr, error)
            return False
        return True

    def decode_reports(self, data: bytes | memoryview) -> Sequence[int]:
        frames = self._frames.feed(data)
        for at, frame in enumerate(frames):
            if type(frame) is not int:
                # Differs: a handshake in the middle of a transfer ends the connection. 5.1.4 returns to the handshake,
                # and never adjusts the transfer to the slave's new offset.
                if not at:
                    log.warning("slave[%s] sends a handshake in state %s", self.connection.client_addr,
                                self.connection.state.value)
                self.connection.close()
                return []
        # All frames are reports.
        return frames  # type: ignore[return-value]

    def start_position(self) -> int:
        """Return the offset at which an empty slave begins: the first file, or the last one if it asks for that."""
        ha_service = self.connection.ha_service
        held = ha_service.held_range()
        if self.connection.is_sync_from_last_file:
            return held.max_offset - held.max_offset % ha_service.config.mappedFileSizeCommitLog
        return held.min_offset

    def heartbeat(self, offset: int) -> bytes:
        entry = self._epoch_cache.find_epoch_entry_by_offset(offset) or self._epoch_cache.first_entry()
        return self._empty_frame(offset, entry)

    def refusal(self, nearest: int) -> bytes:
        entry = self._epoch_cache.find_epoch_entry_by_offset(nearest) or self._epoch_cache.last_entry()
        return self._empty_frame(nearest, entry)

    def _empty_frame(self, offset: int, entry: EpochEntry | None) -> bytes:
        if entry is None:
            return b""
        return auto_switch_transfer.encode_header(offset, 0, entry, self.connection.ha_service.confirm_offset())

    def end_of_run(self, offset: int) -> int:
        entry = self._epoch_cache.find_epoch_entry_by_offset(offset)
        return -1 if entry is None else entry.end_offset

    def encode_frames(self, offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
        """Return frames of `body`, whose bytes are all of the epoch of its first byte."""
        entry = self._epoch_cache.find_epoch_entry_by_offset(offset)
        # It was deleted after `end_of_run` had found it.
        if entry is None:
            raise ConnectionAbortedError(f"the epoch of commit log offset {offset} was deleted")
        confirm_offset = self.connection.ha_service.confirm_offset()
        buffers: list[bytes | memoryview] = []
        for start in range(0, len(body), batch_size):
            piece = body[start:start + batch_size]
            header = auto_switch_transfer.encode_header(offset + start, len(piece), entry, confirm_offset)
            buffers += (header, piece)
        return buffers
