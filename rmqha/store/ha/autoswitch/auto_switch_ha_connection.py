"""One slave, seen from a master whose role can change.

    slave --handshake--> ReadSocketService --its epochs, at once--> slave
    slave --reports-->   ReadSocketService --slave_acknowledged--> AutoSwitchHAService
                            | starts it at the first report
    slave <--frames--    WriteSocketService <--WaitNotifyObject-- an append; the socket turning writable
"""
from __future__ import annotations

import logging
import selectors
import socket
import time
from typing import TYPE_CHECKING

from rmqha.store.ha.autoswitch import auto_switch_transfer
from rmqha.store.ha.autoswitch.auto_switch_greeting import EpochStep, LogEnd, MasterEpochGreeting, Refusal
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.ha_connection import HAConnection, ReadSocketService, WriteSocketService
from rmqha.store.ha.ha_connection_state import HAConnectionState
from rmqha.store.ha.send_whole import send_whole

if TYPE_CHECKING:
    from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
    from rmqha.store.select_mapped_buffer_result import SelectMappedBufferResult

log = logging.getLogger("RocketmqStore")

_FRAMES_PER_WRITE = 16


class AutoSwitchHAConnection(HAConnection):
    """A connection of a slave that says who it is, and gets the master's epochs before it reports.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection (5.1.4)
    """

    ha_service: AutoSwitchHAService

    def __init__(self, ha_service: AutoSwitchHAService, sock: socket.socket, client_addr: str,
                 epoch_cache: EpochFileCache) -> None:
        super().__init__(ha_service, sock, client_addr)
        self.epoch_cache = epoch_cache
        # set by ReadSocketService at the handshake, before anything is sent
        self.slave_id: int | None = None
        self.is_sync_from_last_file = False
        self.is_async_learner = False
        # (end of the log, monotonic ns when it was there): caught up to when acknowledged; ReadSocketService's own
        self._mark: tuple[int, int] | None = None
        self.write_socket_service = AutoSwitchWriteSocketService(self)
        self.read_socket_service = AutoSwitchReadSocketService(self)

    def log_end(self) -> LogEnd:
        """Where the master's log ends now, and its epochs."""
        return self.ha_service.default_message_store.get_max_phy_offset(), self.epoch_cache.get_all_entries()

    def handshake(self, step: EpochStep) -> bool:
        """The slave has introduced itself: tell it how this log came to be; False when it can't be served."""
        said = step.said
        if step.refusal is Refusal.SAME_BROKER:
            log.error("slave[%s] says that it is broker %d, which this one is", self.client_addr, said.slave_id)
            return False
        if step.refusal is Refusal.NO_MASTER:
            log.warning("slave[%s] asks for the log, but this broker is not a master now", self.client_addr)
            return False
        if step.refusal is Refusal.REPORTS_FIRST:
            log.warning("slave[%s] reports before its handshake", self.client_addr)
            return False
        self.slave_id = said.slave_id
        self.slave_identity = f"broker {said.slave_id}"
        self.is_sync_from_last_file = said.is_sync_from_last_file
        self.is_async_learner = said.is_async_learner
        self.change_state(HAConnectionState.READY, HAConnectionState.HANDSHAKE)
        log.info("Receive slave handshake, slaveBrokerId:%d, isSyncFromLastFile:%s, isAsyncLearner:%s; maxOffset:%d, "
                 "epochEntries:%s", *said[::-1], *step.log_end)
        return self._send_now(step.reply)

    def caught_up_at(self, ack_offset: int, highest: int) -> int | None:
        """Since when (monotonic ns) the log has been longer than what the slave holds; None when that is no news.

        Differs: 5.1.4 compares with the end of the log when something was last sent, which moves on under load, and
        takes what was only sent for caught up with.
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

    def refuse(self, slave_offset: int) -> None:
        """The master does not hold `slave_offset`: say so on both sides, once in a while, and close."""
        with self._lock:
            self.state = HAConnectionState.OFFSET_REFUSED
        nearest = self.ha_service.slave_refused(self, slave_offset)
        entry = self.epoch_cache.find_epoch_entry_by_offset(nearest) or self.epoch_cache.last_entry()
        if entry is not None:
            self._send_now(auto_switch_transfer.encode_header(nearest, 0, entry, self.ha_service.confirm_offset()))
        self.close()

    def _send_now(self, data: bytes) -> bool:
        """Send on ReadSocketService's thread, while the other one does not run; False when the slave takes it not."""
        try:
            send_whole(self.socket, data)
        except OSError as error:
            log.info("slave[%s] is gone before it could be told: %s", self.client_addr, error)
            return False
        return True


class AutoSwitchReadSocketService(ReadSocketService):
    """Reads a slave's handshake and its reports.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection$ReadSocketService (5.1.4)
    """

    connection: AutoSwitchHAConnection

    def __init__(self, connection: AutoSwitchHAConnection) -> None:
        super().__init__(connection)
        self._frames = auto_switch_transfer.SlaveFrameDecoder()
        ha_service = connection.ha_service
        self._greeting = MasterEpochGreeting(ha_service.local_broker_id, lambda: ha_service.is_master,
                                             connection.log_end)
        self._decode_reports = self._decode_frames

    def get_service_name(self) -> str:
        return "ReadSocketService"

    def _answer(self, step: EpochStep) -> bool:
        return self.connection.handshake(step)

    def _decode_frames(self, data: bytes | memoryview) -> list[int]:
        frames = self._frames.feed(data)
        for at, frame in enumerate(frames):
            if type(frame) is not int:
                # Differs: 5.1.4 goes back to the handshake, and never fits the slave's new offset to the transfer
                if not at:
                    log.warning("slave[%s] sends a handshake in state %s", self.connection.client_addr,
                                self.connection.state.value)
                self.connection.close()
                return []
        return frames

    def _take_over(self, first: bool, request_offset: int, ack_offset: int) -> None:
        connection = self.connection
        connection.slave_ack_offset = ack_offset
        if first:
            connection.slave_request_offset = request_offset
            log.info("slave[%s] request offset %d", connection.client_addr, request_offset)
            connection.transfer_begins()
        connection.ha_service.slave_acknowledged(connection, ack_offset)
        connection.ha_service.notify_transfer_some(ack_offset)


class AutoSwitchWriteSocketService(WriteSocketService):
    """Sends the log in frames that name the epoch of their bytes.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAConnection$WriteSocketService (5.1.4)
    """

    connection: AutoSwitchHAConnection
    max_body_size = auto_switch_transfer.MAX_BODY_SIZE

    def get_service_name(self) -> str:
        return "WriteSocketService"

    def fix_start_position(self) -> None:
        """Where the slave goes on: an empty one at the beginning of the first file, or of the last as it wishes."""
        position = self.connection.slave_request_offset
        if position == 0:
            ha_service = self.connection.ha_service
            held = ha_service.held_range()
            position = held.min_offset
            if self.connection.is_sync_from_last_file:
                position = held.max_offset - held.max_offset % ha_service.config.mappedFileSizeCommitLog
        self.next_transfer_from_where = self.sent_offset = position

    def transfer_now(self, offset: int = -1, appended: bytes = b"") -> bool:
        """As in WriteSocketService, but always from the log: a frame ends where its epoch does."""
        return super().transfer_now()

    def _entry(self) -> EpochEntry | None:
        return self.connection.epoch_cache.find_epoch_entry_by_offset(self.next_transfer_from_where)

    def _heartbeat_when_due(self, selector: selectors.BaseSelector) -> None:
        connection = self.connection
        interval_ms = (time.monotonic_ns() - self._last_write_ns) // 1_000_000
        if interval_ms <= connection.ha_service.config.haSendHeartbeatInterval:
            return
        entry = self._entry() or connection.epoch_cache.first_entry()
        if entry is not None:
            confirm_offset = connection.ha_service.confirm_offset()
            header = auto_switch_transfer.encode_header(self.next_transfer_from_where, 0, entry, confirm_offset)
            self._send(selector, [header])

    def _transfer(self, selector: selectors.BaseSelector, result: SelectMappedBufferResult) -> None:
        """Send the next frames of what there is, all of one epoch."""
        connection, entry, batch_size = self.connection, self._entry(), self._batch_size()
        with result:
            if result.start_offset != self.next_transfer_from_where or entry is None:
                connection.refuse(self.next_transfer_from_where)
                return
            size = min(result.size, batch_size * _FRAMES_PER_WRITE, entry.end_offset - self.next_transfer_from_where,
                       connection.flow_monitor.can_transfer_max_byte_num())
            with result.buffer[:size] as body:
                self._send_body(selector, body, batch_size)

    def encode_frames(self, offset: int, body: bytes | memoryview, batch_size: int) -> list[bytes | memoryview]:
        """Frames of bytes that are all of the next byte's epoch."""
        entry, confirm_offset = self._entry(), self.connection.ha_service.confirm_offset()
        buffers: list[bytes | memoryview] = []
        for start in range(0, len(body), batch_size):
            piece = body[start:start + batch_size]
            header = auto_switch_transfer.encode_header(offset + start, len(piece), entry, confirm_offset)
            buffers += (header, piece)
        return buffers
