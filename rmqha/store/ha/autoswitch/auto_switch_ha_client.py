"""The slave's side of replication with roles that can change.

    AutoSwitchHAClient creates one AutoSwitchMasterConnection after the other:
    master <--handshake-- --its epochs--> truncate to the consistent point
    master --frames--> append_entry --> EpochFileCache, append_to_commit_log --> commit log
    master <--reports: after the handshake, after each read that extended the log, and every 5 s--
"""
from __future__ import annotations

import logging
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

from rmqha.store.ha.autoswitch import auto_switch_transfer
from rmqha.store.ha.autoswitch.auto_switch_transfer import (
    EpochsDifferError,
    MasterFrameDecoder,
    MasterHandshake,
    SlaveEpochGreeting,
    SlaveHandshake,
    TransferRun,
    consistent_point,
    epochs_text,
)
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.ha_client import HAClient
from rmqha.store.ha.ha_transfer import TransferError
from rmqha.store.ha.log_comparison import ends_as_master
from rmqha.store.ha.master_connection import MasterConnection, ReplicationError
from rmqha.store.ha.peers import HAConnectionState, send_whole
from rmqha.store.record_check import check_message_and_return_size
from rmqha.store.replicated_log import LogReader, ReplicatedLog

if TYPE_CHECKING:
    from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService

log = logging.getLogger("RocketmqStore")

_SELECT_MS = 1000
_REFUSED = HAConnectionState.OFFSET_REFUSED
# A slave may learn of a new master before that master itself does, so it retries soon; a master that is gone is asked
# less and less often.
_FIRST_RETRY_MS, _MAX_RETRY_MS, _RETRY_GROWS = 5, 1000, 1.5
_FAULTS = (_REFUSED, HAConnectionState.DIVERGED, HAConnectionState.APPEND_FAILED)


class AutoSwitchHAClient(HAClient):
    """The client that follows a master after truncating its log to the last common offset.

    `expected_epoch` is the master's epoch as given by the operator or the controller; None when the address comes from
    elsewhere. In that case a master whose epoch is older than this log's last one is refused.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAClient (5.1.4)
    """

    ha_service: AutoSwitchHAService

    def __init__(self, ha_service: AutoSwitchHAService) -> None:
        super().__init__(ha_service)
        self.epoch_cache: EpochFileCache = ha_service.epoch_cache
        # replaced while the client is not running, or when it increases
        self.expected_epoch: int | None = None
        self._retry_ms = float(_FIRST_RETRY_MS)

    def start(self) -> None:
        self._retry_ms = _FIRST_RETRY_MS
        super().start()

    def transfers(self) -> None:
        self._retry_ms = _FIRST_RETRY_MS
        super().transfers()

    def next_retry_ms(self) -> int:
        # Differs: a slave with a controller connects again after 5 ms, later 1 s at most; 5.1.4 waits 5 s.
        if not self.ha_service.is_controlled or self.state in _FAULTS:
            return super().next_retry_ms()
        retry_ms, self._retry_ms = self._retry_ms, min(self._retry_ms * _RETRY_GROWS, _MAX_RETRY_MS)
        return int(retry_ms)

    def new_connection(self, master_address: str, sock: socket.socket) -> AutoSwitchMasterConnection:
        return AutoSwitchMasterConnection(self, master_address, sock)


class AutoSwitchMasterConnection(MasterConnection[TransferRun]):
    """A connection with a handshake, a truncation, and then frames that name their epoch.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAClient (5.1.4)
    """

    client: AutoSwitchHAClient
    new_decoder = MasterFrameDecoder
    encode_report = staticmethod(auto_switch_transfer.encode_report)
    takes_records = False

    def __init__(self, client: AutoSwitchHAClient, master_address: str, sock: socket.socket) -> None:
        super().__init__(client, master_address, sock)
        self.ha_service = client.ha_service
        self.epoch_cache = client.epoch_cache

    def _begin(self) -> bool:
        log.info("AutoSwitchHAClient connect to master %s", self.master_address)
        self.last_read_ns = time.monotonic_ns()
        self.client.state = HAConnectionState.HANDSHAKE
        self.ha_service.cut_off_partial_record()
        # The log ends with a complete record.
        self._followed.forget()
        handshake = self._handshake_with_master()
        if handshake is None:
            return False
        self._do_truncate(handshake)
        self.client.fits()
        # Differs: a slave sends its first report right after the handshake. 5.1.4 sends it only after
        # haSendHeartbeatInterval when its log is not empty.
        self._current_reported_offset = self._stored_offset()
        self._report_slave_max_offset(self._current_reported_offset)
        return True

    def _handshake_with_master(self) -> MasterHandshake | None:
        """Introduce this replica and wait for the master's epochs; return None when the client has to stop."""
        config = self.config
        greeting = SlaveEpochGreeting(SlaveHandshake(config.syncFromLastFile, config.asyncLearner,
                                                     self.ha_service.local_broker_id))
        send_whole(self.socket, greeting.begin())
        self.last_write_ns = time.monotonic_ns()
        while not self.client.stopped:
            if self.client.select(_SELECT_MS / 1000):
                self._hear_epochs(greeting)
            if greeting.handshake is not None:
                return greeting.handshake
            self._housekeeping()
        return None

    def _hear_epochs(self, greeting: SlaveEpochGreeting) -> None:
        try:
            data = self.socket.recv(greeting.wanted)
        except BlockingIOError:
            return
        if not data:
            raise ReplicationError(f"the master {self.master_address} has closed the connection")
        self.last_read_ns = time.monotonic_ns()
        self._uncounted += len(data)
        try:
            greeting.receive(data)
        except TransferError as error:
            raise ReplicationError(f"{error}; the connection is closed", _REFUSED) from error

    def _do_truncate(self, handshake: MasterHandshake) -> None:
        """Truncate log and epochs to the last offset up to which they equal the master's, or raise."""
        store, master = self.store, handshake.entries
        max_offset, local = log_end = store.get_max_phy_offset(), self.epoch_cache.get_all_entries()
        log.info("master epoch entries is %s, it ends at %d; local epoch entries is %s, and ends at %d", master,
                 handshake.max_offset, local, max_offset)
        expected = self.client.expected_epoch
        if self.ha_service.is_controlled and expected is not None and handshake.last_epoch < expected:
            # Differs: a slave does not follow a master that has not begun the expected epoch. 5.1.4 follows it, and may
            # receive what a deposed master continues to write.
            raise ReplicationError(f"the master {self.master_address} has not begun epoch {expected} yet, its last is "
                                   f"{handshake.last_epoch}")
        try:
            truncate_offset = consistent_point(handshake, log_end, expected)
        except EpochsDifferError as error:
            raise ReplicationError(str(error), _REFUSED) from error
        if not local:
            self._take_epochs_up_to(0, master)
            return
        # A controller never assigns an epoch twice; but a restarted master continues its last epoch, and may lack the
        # end of its log.
        if not self.ha_service.is_controlled or handshake.last_epoch == self.epoch_cache.last_epoch():
            self._check_is_same(truncate_offset, max_offset)
        if truncate_offset < max_offset:
            # Slaves of this slave hold the bytes to be truncated.
            self.ha_service.destroy_connections()
        self.ha_service.lower_confirm_offset(truncate_offset)
        if not truncate_files(store, truncate_offset):
            raise ReplicationError(f"the logs are identical up to {truncate_offset}, but no record of this log begins "
                                   "there", _REFUSED)
        self.epoch_cache.truncate_suffix_by_offset(truncate_offset)
        self._take_epochs_up_to(truncate_offset, master)
        log.info("Truncate slave log to %d success, change to transfer state", truncate_offset)

    def _check_is_same(self, end: int, max_offset: int) -> None:
        """Refuse a master whose log has the same epochs but other bytes: two brokers were given the same epoch number.

        Differs: a slave compares records, too, where the epochs are the same; 5.1.4 relies on the epochs alone, because
        its controller never assigns a number twice.
        """
        same = ends_as_master(self.store, end, self._record_of_master)
        if same is None and not self.ha_service.is_controlled and self._ask_main_port() is None and self._may_wait():
            self._wait_for_main_port()
        if same is not False:
            return
        same_up_to = self._first_other_record(end)
        entry = self.epoch_cache.find_epoch_entry_by_offset(end - 1)
        if same_up_to >= 0 and self.client.may_cut_off:
            self.ha_service.lower_confirm_offset(same_up_to)
        self.client.diverged(self.master_address, max_offset, same_up_to,
                             f"other bytes under epoch {entry.epoch if entry else '?'}, for which two brokers were "
                             "made the master")

    def _take_epochs_up_to(self, offset: int, master: list[EpochEntry]) -> None:
        """Record the master's epochs that begin no later than `offset`, up to which both logs are identical.

        Differs: a slave records the master's epochs as soon as its log agrees with them. 5.1.4 records each epoch with
        its first frame, and has none if it is promoted before any frame arrives.
        """
        for entry in master:
            if self.epoch_cache.last_epoch() < entry.epoch and entry.start_offset <= offset:
                self.epoch_cache.append_entry(entry)

    def _append(self, run: TransferRun) -> None:
        """Append one run, or raise: bytes that were not appended are never reported."""
        slave_phy_offset = self._next_offset()
        if slave_phy_offset not in (0, run.offset):
            raise ReplicationError("master pushed offset not equal the max phy offset in slave, "
                                   f"SLAVE: {slave_phy_offset} MASTER: {run.offset}", _REFUSED)
        if slave_phy_offset == 0 and run.length and run.offset % self.config.mappedFileSizeCommitLog:
            raise ReplicationError(f"the master's log begins at {run.offset}, which is not the beginning of a commit "
                                   f"log file of {self.config.mappedFileSizeCommitLog} bytes: SLAVE: 0 MASTER: "
                                   f"{run.offset}", _REFUSED)
        if run.length and run.offset % self.config.mappedFileSizeCommitLog + run.length > \
                self.config.mappedFileSizeCommitLog:
            raise ReplicationError(f"the master sends {run.length} bytes at {run.offset}, beyond the end of a file of "
                                   f"{self.config.mappedFileSizeCommitLog} bytes: its files have another size",
                                   _REFUSED)
        if run.length:
            self._append_run(run, partial(self._take_epoch, run))
        else:
            self._take_epoch(run)
        self.ha_service.learn_confirm_offset(run.confirm_offset)
        if not self._transfers:
            self._transfers = True
            self.client.transfers()

    def _take_epoch(self, run: TransferRun) -> None:
        """Record a new epoch before its first byte; ReplicationError when the run's epoch does not match the log."""
        known = self.epoch_cache.get_entry(run.epoch)
        last_epoch = self.epoch_cache.last_epoch()
        if known is None and run.epoch > last_epoch:
            # 5.1.4 names an epoch one frame before it begins, so the epoch may begin anywhere between the log's end and
            # this run's end. A record that has arrived only in part is not in the log yet.
            log_end = self.store.get_max_phy_offset()
            begins_here = last_epoch < 0 or log_end <= run.epoch_start_offset <= run.offset + run.length
            if begins_here and self.epoch_cache.append_entry(EpochEntry(run.epoch, run.epoch_start_offset)):
                log.info("epoch %d begins at %d", run.epoch, run.epoch_start_offset)
                return
        elif known is not None and known.start_offset == run.epoch_start_offset and \
                (not run.length or known.epoch == last_epoch):
            return
        elif not run.length and known is None:
            # The heartbeat of a 5.1.4 master may name its first epoch.
            return
        raise ReplicationError(f"the master's frame at {run.offset} names epoch {run.epoch}, which begins at "
                               f"{run.epoch_start_offset}, but this log has "
                               f"{epochs_text(self.epoch_cache.get_all_entries())}", _REFUSED)


def truncate_files(replicated_log: ReplicatedLog, offset_to_truncate: int) -> bool:
    """Drop everything from `offset_to_truncate` on; return False when no record begins there.

    Java: org.apache.rocketmq.store.DefaultMessageStore#truncateFiles (5.1.4)
    """
    max_offset = replicated_log.get_max_phy_offset()
    if offset_to_truncate >= max_offset:
        log.info("no need to truncate files, truncate offset is %s, max physical offset is %s", offset_to_truncate,
                 max_offset)
        return True
    if not is_offset_aligned(replicated_log, offset_to_truncate):
        log.error("offset %s is not align, truncate failed, need manual fix", offset_to_truncate)
        return False
    replicated_log.truncate_dirty_files(offset_to_truncate)
    return True


def is_offset_aligned(log_reader: LogReader, offset: int) -> bool:
    """Return whether a record, or a file's blank, begins at `offset`; True when the log does not hold that offset.

    Java: org.apache.rocketmq.store.DefaultMessageStore#isOffsetAligned (5.1.4)
    """
    result = log_reader.get_commit_log_data(offset)
    if result is None:
        return True
    with result:
        request = check_message_and_return_size(result.buffer, 0, True, True)
        return request.success and (request.msg_size == 0 or request.commit_log_offset == offset)
