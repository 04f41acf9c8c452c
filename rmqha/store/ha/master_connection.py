"""A slave's connections to its master: the one that replicates, and access to the master's log for comparisons.

`MasterConnection` is one connection, from the creation of its socket to its end:

    master --frames--> MasterConnection --append_to_commit_log--> commit log
    master <--8-byte reports: after connecting, after each read that extended the log, and every 5 s--
    master <--handshake before the first report, with an rmqha master, or with haHandshakeEnable=true-->

Its client owns the state that outlives it: the followed records, the search for the first file, the known masters.

`LogOfMaster` gets checksums of the log from the master's main port, or its bytes through its HA port:

    slave --GET_COMMIT_LOG_CHECKSUMS--> main port of an rmqha master
    slave --a report of the offset to begin at--> HA port of a RocketMQ 4.9 master, which then sends its log from there

A report counts as an acknowledgement. The one sent here has an offset that this slave has acknowledged before, so it
acknowledges nothing new. The stream is read no faster than it is compared, and closed when there is nothing to compare.
"""
from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import time
import zlib
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from rmqha.common.futures import Round
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.common.util_all import LONG_AGO
from rmqha.remoting.addresses import plain_address
from rmqha.remoting.frame_decoder import ByteStream, StreamError
from rmqha.store.ha import ha_handshake, ha_transfer, log_comparison
from rmqha.store.ha.first_file_search import FirstFileSearch, Found
from rmqha.store.ha.ha_handshake import HandshakeMode, SlaveGreeting, handshake_mode
from rmqha.store.ha.ha_transfer import RecordChain, RecordChainError, follow_records
from rmqha.store.ha.log_comparison import (
    ComparisonError,
    compare_with_master,
    ends_as_master,
    first_other_record,
    report_flaw,
)
from rmqha.store.ha.peers import HAConnectionState, MasterKind, send_whole
from rmqha.store.ha.record_verifier import RecordFlawError, RecordVerifier

if TYPE_CHECKING:
    from rmqha.store.ha.ha_client import HAClient


R = TypeVar("R", bound=ha_transfer.LogBytes)

log = logging.getLogger("RocketmqStore")

_SELECT_MS = 1000
_CONNECT_TIMEOUT_MS = 5000
# Bytes of one read.
_RECEIVE_SIZE = 1024 * 1024
# After a read of at least this many bytes, more frames of the same size are probably on the way: the next read is a
# scatter read into the places that the decoder predicts for their headers and bodies.
_STREAM_SIZE = 256 * 1024
# The wait for the greeting of a master that knows the handshake.
_HELLO_WAIT_MS = 2000
_VERDICT_WAIT_MS = 20_000
_ROOM_WAIT_MS = 20
# Between two attempts to find out the kind of a master.
_SOON_MS = 1000
# A master that has the requested file sends its data this soon after the first heartbeat.
_BEHIND_HEARTBEAT_MS = 1000
# Fewer bytes within haHousekeepingInterval are heartbeats, not parts of a frame.
_STALLED_BYTES = 1024


class ReplicationError(Exception):
    """The reason why the connection to the master has to be closed.

    `state` is the client's state afterwards. `retry_ms` is its pause before the next attempt; None: the usual pause.
    """

    def __init__(self, message: str, state: HAConnectionState = HAConnectionState.READY,
                 retry_ms: int | None = None) -> None:
        super().__init__(message)
        self.state = state
        self.retry_ms = retry_ms


class MasterConnection(Generic[R]):
    """A connection to the master. It appends the received bytes, and reports only what was appended.

    It belongs to its client's thread; other threads may read the numbers without underscore. `R` is the kind of run
    that its decoder yields.

    Java: org.apache.rocketmq.store.ha.HAService$HAClient (4.9.8)
    """

    new_decoder: type[ha_transfer.RunDecoder[R]]
    encode_report = ha_transfer.REPORT.pack  # of an offset
    takes_records = True  # False: the decoder's take_record always returns 0

    def __init__(self, client: HAClient, master_address: str, sock: socket.socket) -> None:
        self.client = client
        self.store = client.replicated_log
        self.config = client.config
        self.master_address = master_address
        self.socket = sock
        self.local_address = ""  # this end, "ip:port"; "" until it is connected
        # monotonic, like the next; 0: not yet
        self.last_write_ns = 0
        self.last_read_ns = 0
        # True once any bytes were appended
        self.appended = False
        # True if it was ended in order to ask for another file
        self.is_to_be_followed_at_once = False
        self._current_reported_offset = 0
        self._decoder = self.new_decoder()
        self._followed = client.followed
        # created with the first run if haVerifyRecords is set then
        self._verifier: RecordVerifier | None = None
        # True from the first run on
        self._is_begun = False
        # True from the first valid frame on
        self._transfers = False
        # True if the last read returned many bytes
        self._streams = False
        # received bytes that the flow monitor has not counted yet, because the report is sent first
        self._uncounted = 0
        # (monotonic ns, bytes received, next offset) at some time within a frame or record; None: not within one
        self._within: tuple[int, int, int] | None = None
        self._received = 0  # bytes
        # time of the first heartbeat for the file that is searched; 0: not yet
        self._heartbeat_ns = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connect(self, target: tuple[Any, ...]) -> None:
        """Connect to a socket address within 5 s; OSError when it fails."""
        sock, selector = self.socket, self.client.selector
        code = sock.connect_ex(target)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        selector.register(sock, selectors.EVENT_WRITE)
        self._await_connected()
        if sock.getsockname() == sock.getpeername():
            raise OSError("connected to itself: nothing is listening there")
        selector.modify(sock, selectors.EVENT_READ)
        self.last_read_ns = time.monotonic_ns()
        self.local_address = "{}:{}".format(*plain_address(sock.getsockname()))

    def _await_connected(self) -> None:
        deadline_ns = time.monotonic_ns() + _CONNECT_TIMEOUT_MS * 1_000_000
        while not self.client.stopped:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                raise TimeoutError("connect timed out")
            if self.client.select(remaining_ns / 1e9):
                code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
                return
        raise ConnectionAbortedError("stopped while connecting")

    def close(self) -> None:
        """Close the socket."""
        self.local_address = ""
        self._count_received()
        if self.socket in self.client.selector.get_map():
            self.client.selector.unregister(self.socket)
        self.socket.close()

    def follow(self) -> None:
        """Serve the connection until it ends by an exception, or by shutdown."""
        if not self._begin():
            return
        client, select, writes = self.client, self.client.select, Round()
        interval_ms = min(_SELECT_MS, self.config.haSendHeartbeatInterval)
        while not client.stopped:
            if self._is_time_to_report_offset():
                self._report_slave_max_offset(self._current_reported_offset)
            if select(interval_ms / 1000):
                # At the end of the round, after the report, the dispatch is woken.
                with writes:
                    self._process_read_event()
                    self._report_slave_max_offset_plus()
            self._housekeeping()

    def _begin(self) -> bool:
        """Do everything up to the first report; return False when the client has to stop."""
        log.info("HAClient connected to the master %s", self.master_address)
        self.last_read_ns = time.monotonic_ns()
        self._drop_partial_record()
        self._greet()
        # Differs: a slave sends its first report at once; 4.9 sends it only after haSendHeartbeatInterval, so each
        # connect costs 5 s.
        self._current_reported_offset = self._stored_offset()
        self._report_slave_max_offset(self._first_report())
        return True

    def _stored_offset(self) -> int:
        """Return the end of the log, which may be acknowledged. With haSlaveAckAfterFlush it is flushed first."""
        max_offset = self.store.get_max_phy_offset()
        if self.config.haSlaveAckAfterFlush:
            self._make_sure_of(max_offset)
        return max_offset

    def _make_sure_of(self, max_offset: int) -> None:
        """Flush up to `max_offset` before it is reported, for haSlaveAckAfterFlush."""
        if not self.store.flush_up_to(max_offset):
            raise ReplicationError(f"can't flush the commit log up to {max_offset}; this offset is not acknowledged",
                                   HAConnectionState.APPEND_FAILED)

    # The search for the master's first file.

    def _first_report(self) -> int:
        """Return the offset to ask for."""
        if self._current_reported_offset or not self.config.haSyncFromFirstFile:
            self.client.end_search()
            return self._current_reported_offset
        self.client.state = HAConnectionState.HANDSHAKE
        self._current_reported_offset = self.client.go_on_searching().next_report()
        return self._current_reported_offset

    def _stop_waiting(self, search: FirstFileSearch) -> None:
        """End the wait if the requested file does not exist: nothing but a heartbeat was received for it."""
        waited_ms = (time.monotonic_ns() - self._heartbeat_ns) // 1_000_000
        if self._heartbeat_ns and waited_ms > _BEHIND_HEARTBEAT_MS:
            asked = search.next_report()
            self.is_to_be_followed_at_once = search.nothing_came() is Found.AGAIN
            raise ReplicationError(f"searching for the master's first file: it sends nothing at {asked}")

    # Comparing the two logs.

    def _greet(self) -> None:
        """Compare this log with the master's if the master supports it; ReplicationError when they don't match."""
        mode = handshake_mode(self.config)
        if mode is HandshakeMode.NEVER:
            return
        address, known = self.master_address, self.client.known_masters
        kind = self._ask_main_port()
        if kind is not None:
            known.has_told(address, kind)
        elif known.is_ours(address) or mode is HandshakeMode.AUTO and self._may_wait():
            self._wait_for_main_port()
        if kind is MasterKind.OURS or mode is HandshakeMode.ALWAYS and known.may_be_asked(address):
            self._handshake(kind is MasterKind.OURS)
        elif kind is MasterKind.OTHER:
            self._compare_last_record()
        elif kind is None and self.client.ask_main_port is not None and known.is_newly_unknown(address):
            log.warning("the main port of the master %s does not respond; following it like a RocketMQ 4.9 master, "
                        "without comparing logs. With haHandshakeEnable=true the HA port is asked instead", address)

    def _ask_main_port(self) -> MasterKind | None:
        ask = self.client.ask_main_port
        return ask(self.master_address) if ask is not None else None

    def _may_wait(self) -> bool:
        """Return whether it is worth waiting for the main port of a master, which opens after its HA port."""
        if self.client.ask_main_port is None or self.store.get_max_phy_offset() == 0:
            return False
        return self.client.known_masters.may_answer_soon(self.master_address)

    def _wait_for_main_port(self) -> NoReturn:
        raise ReplicationError(f"the main port of the master {self.master_address} does not respond; the two logs "
                               "can't be compared yet", retry_ms=_SOON_MS)

    def _record_of_master(self, offset: int) -> bytes | None:
        ask = self.client.ask_record
        return ask(self.master_address, offset) if ask is not None else None

    def _compare_last_record(self) -> None:
        """Check whether the master has this log's last record, using its main port; it compares no checksums."""
        end = self.store.get_max_phy_offset()
        if self.client.ask_record is not None and ends_as_master(self.store, end, self._record_of_master) is False:
            self.client.diverged(self.master_address, end, self._first_other_record(end), "its log")

    def _first_other_record(self, end: int) -> int:
        try:
            return first_other_record(self.store, end, self._record_of_master)
        except ComparisonError as error:
            raise ReplicationError(f"comparing with the master {self.master_address}: {error}") from error

    def _handshake(self, is_ours: bool) -> None:
        """Introduce this slave and its log to the master; ReplicationError when the logs don't match."""
        client, address = self.client, self.master_address
        client.state = HAConnectionState.HANDSHAKE
        greeting = self._greeting(is_ours)
        self._send_greeting(greeting.begin())
        if not self._converse(greeting, is_ours):
            return
        held = f"{greeting.held.min_offset} to {greeting.held.max_offset}"
        if is_ours:
            client.flaw_is_reported(address)
        if greeting.verdict is ha_handshake.Verdict.DIVERGED:
            client.diverged(address, greeting.end, greeting.same_up_to, held)
        if greeting.verdict is not ha_handshake.Verdict.GOOD:
            raise ReplicationError(f"the master {address} refuses this slave: SLAVE: {greeting.end} MASTER: {held}. It "
                                   "does not hold the end of the slave's log. Set the slave up from scratch, or repair "
                                   "it by hand", HAConnectionState.OFFSET_REFUSED)
        client.fits()

    def _greeting(self, is_ours: bool) -> SlaveGreeting:
        """Return the greeting: with a single checksum, unless the master's main port says that it supports more."""
        store, broker = self.store, self.client.ha_service.broker_config
        identity = f"{broker.brokerClusterName}/{broker.brokerName}/{self.client.ha_service.role.broker_id}"
        if not is_ours:
            return SlaveGreeting(partial(log_comparison.introduction, store, identity))

        def introduction() -> ha_handshake.WhoCompares:
            begin, end = max(0, store.get_min_phy_offset()), store.get_max_phy_offset()
            return ha_handshake.WhoCompares(identity, min(begin, end), end)
        compare = compare_with_master if self.client.flaw_to_report < 0 else report_flaw
        return SlaveGreeting(introduction, partial(compare, store))

    def _converse(self, greeting: SlaveGreeting, is_ours: bool) -> bool:
        """Exchange messages up to the verdict; return False when the master does not support the greeting."""
        address = self.master_address
        while greeting.verdict is None:
            try:
                if self._hear(greeting, _VERDICT_WAIT_MS if is_ours or greeting.is_heard else _HELLO_WAIT_MS):
                    continue
            except EOFError:
                if greeting.is_heard:
                    raise
                if not is_ours:
                    self.client.known_masters.has_closed_at_the_question(address)
                    log.warning("the master %s rejects the request for a handshake (haHandshakeEnable=false?); "
                                "following it without one", address)
                raise ReplicationError(f"the master {address} closed the connection when asked for a handshake"
                                       ) from None
            if greeting.is_heard:
                raise ReplicationError(f"the master {address} stopped responding during the handshake")
            if is_ours:
                raise ReplicationError(f"the master {address} does not respond to the request for a handshake")
            log.info("the master %s does not support the handshake; following it without one", address)
            return False
        return True

    def _send_greeting(self, data: bytes) -> None:
        deadline_ns = time.monotonic_ns() + _VERDICT_WAIT_MS * 1_000_000

        def may_wait() -> bool:
            if time.monotonic_ns() > deadline_ns:
                return False
            self.client.select(_ROOM_WAIT_MS / 1000)
            return True
        try:
            send_whole(self.socket, data, may_wait)
        except BlockingIOError:
            raise ReplicationError("the master does not read the messages of the handshake") from None

    def _hear(self, greeting: SlaveGreeting, timeout_ms: int) -> bool:
        """Receive the master's next message; return False when it doesn't arrive in time. EOFError when it closes."""
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        while not self.client.stopped:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                return False
            if not self.client.select(remaining_ns / 1e9):
                continue
            try:
                data = self.socket.recv(greeting.wanted)
            except BlockingIOError:
                continue
            if not data:
                raise EOFError
            self.last_read_ns = time.monotonic_ns()
            try:
                answer = greeting.receive(data)
            except ha_handshake.HandshakeError as error:
                raise ReplicationError(f"the master {self.master_address} sends {error}") from error
            except ComparisonError as error:
                raise ReplicationError(f"comparing with the master {self.master_address}: {error}") from error
            if answer:
                self._send_greeting(answer)
            if answer or greeting.verdict is not None:
                return True
        raise ConnectionAbortedError("stopped during the handshake")

    # Reports and frames.

    def _is_time_to_report_offset(self) -> bool:
        interval_ms = (time.monotonic_ns() - self.last_write_ns) // 1_000_000
        return self.last_write_ns == 0 or interval_ms > self.config.haSendHeartbeatInterval

    def _housekeeping(self) -> None:
        self._count_received()
        # Differs: a slave ends a connection on which it received nothing for too long; 4.9 checks its own last write,
        # which says nothing about the master.
        interval_ms = (time.monotonic_ns() - self.last_read_ns) // 1_000_000
        if interval_ms > self.config.haHousekeepingInterval:
            log.warning("HAClient, housekeeping, found this connection[%s] expired, %d",
                        self.master_address, interval_ms)
            raise ReplicationError("master not response some time, so close connection")
        search = self.client.search
        if search is not None:
            self._stop_waiting(search)
        verifier = self._verifier
        if self._decoder.is_within_frame or verifier is not None and verifier.is_within_record:
            self._look_for_stall()
        elif self._within is not None:
            self._within = None

    def _look_for_stall(self) -> None:
        """Detect a frame or record that never becomes complete, because its size is damaged, while heartbeats
        arrive."""
        now, next_offset = time.monotonic_ns(), self._next_offset()
        if self._within is None or self._within[2] != next_offset:
            self._within = now, self._received, next_offset
        since_ns, received, _ = self._within
        if (now - since_ns) // 1_000_000 <= self.config.haHousekeepingInterval:
            return
        if self._received - received < _STALLED_BYTES:
            flaw = RecordFlawError(self.store.get_max_phy_offset(), "does not arrive completely")
            self.client.record_is_flawed(self.master_address, flaw)
        self._within = now, self._received, next_offset

    def _count_received(self) -> None:
        received, self._uncounted = self._uncounted, 0
        if received:
            self.client.flow_monitor.add_byte_count_transferred(received)

    def _report_slave_max_offset(self, max_offset: int) -> None:
        report = self.encode_report(max_offset)
        try:
            sent = self.socket.send(report)
        except BlockingIOError:
            log.debug("the master reads no reports at the moment")
            sent = 0
        if sent < len(report):
            try:
                send_whole(self.socket, report[sent:])
            except BlockingIOError:
                raise ReplicationError(f"reportSlaveMaxOffset error, {max_offset}") from None
        self.last_write_ns = time.monotonic_ns()

    def _report_slave_max_offset_plus(self) -> None:
        """Report if the log has grown beyond the last report."""
        max_offset = self.store.get_max_phy_offset()
        if max_offset > self._current_reported_offset:
            if self.config.haSlaveAckAfterFlush:
                self._make_sure_of(max_offset)
            self._current_reported_offset = max_offset
            self._report_slave_max_offset(max_offset)

    def _process_read_event(self) -> None:
        """Read once, and append what is complete."""
        decoder = self._decoder
        try:
            count = self._receive()
        except BlockingIOError:
            return
        if count == 0:
            raise ReplicationError(f"the master {self.master_address} has closed the connection")
        self._streams = count >= _STREAM_SIZE
        self.last_read_ns = time.monotonic_ns()
        self._uncounted += count
        self._received += count
        decoder.received(count)
        end = self._followed.end
        # The fast path: the next byte is the beginning of a record.
        verifier = self._verifier
        if self._followed.chain.next_record == end and self._transfers and self.takes_records and (
                verifier is None or verifier.end == end):
            segment_size = self.config.mappedFileSizeCommitLog
            size = decoder.take_record(end, segment_size - end % segment_size)
            if size:
                self._take_record(end, size)
                return
        self._dispatch_read_request()

    def _receive(self) -> int:
        """Read once into the decoder; return the number of bytes. BlockingIOError when there are none."""
        decoder = self._decoder
        if self._streams:
            places = decoder.places(_RECEIVE_SIZE, self.config.mappedFileSizeCommitLog)
            if places:
                return self.socket.recvmsg_into(places)[0]
        return self.socket.recv_into(decoder.writable(_RECEIVE_SIZE))

    def _dispatch_read_request(self) -> None:
        try:
            for run in self._decoder.runs(self.config.mappedFileSizeCommitLog):
                self._append(run)
        except ha_transfer.TransferError as error:
            raise ReplicationError(f"{error}; the connection is closed", HAConnectionState.APPEND_FAILED) from error
        except RecordFlawError as error:
            self.client.record_is_flawed(self.master_address, error)
        except RecordChainError as error:
            raise ReplicationError(f"the master's bytes are not a valid commit log: {error}; they are not appended. "
                                   "Either they are damaged, or the master's log is a different one than the slave's",
                                   HAConnectionState.APPEND_FAILED) from error

    def _append(self, run: R) -> None:
        """Append one run, or raise: bytes that were not appended are never reported."""
        raise NotImplementedError

    def _take_record(self, offset: int, size: int) -> None:
        """Append the record that the decoder has taken out; the log ends with a complete record."""
        view, start = self._decoder.view, ha_transfer.HEADER.size
        if self._verifier is not None:
            try:
                self._verifier.take_record(offset, view, start, size)
            except RecordFlawError as error:
                self.client.record_is_flawed(self.master_address, error)
        self._write(offset, view, start, size, RecordChain(offset + size))

    def _append_run(self, run: R, before: Callable[[], object] | None = None) -> None:
        """Append the bytes of a run that continues the log, as far as they pass all checks.

        `before` is called before the first append, if there is one.
        """
        verifier = self._verifier
        if verifier is None and self.config.haVerifyRecords and not self._is_begun:
            followed = self._followed
            # The log may end within a file's blank, see _drop_partial_record.
            within = followed.chain.next_record if run.offset == followed.end else -1
            verifier = self._verifier = RecordVerifier(self.config.mappedFileSizeCommitLog, within)
        self._is_begun = True
        if verifier is None:
            chain = self._follow_records(run)
            if before is not None:
                before()
            self._write(run.offset, self._decoder.view, run.start, run.length, chain)
            return
        pieces = verifier.take(run.offset, self._decoder.buffer, ha_transfer.ROOM_IN_FRONT + run.start, run.length,
                               overwrites=True)
        for offset, data, start, length in pieces:
            if before is not None:
                before()
                before = None
            self._write(offset, data, start, length, RecordChain(verifier.next_record(offset + length)))

    def _write(self, offset: int, data: memoryview, start: int, length: int, chain: RecordChain) -> None:
        """Append bytes whose records were verified, or followed, up to `chain`."""
        if not self.store.append_to_commit_log(offset, data, start, length):
            self._check_offset(offset, self.store.get_max_phy_offset())
            raise ReplicationError(f"can't append {length} bytes at commit log offset {offset}; they are not "
                                   "acknowledged", HAConnectionState.APPEND_FAILED)
        client, followed = self.client, self._followed
        followed.chain, followed.end, self.appended = chain, offset + length, True
        followed.is_checked = self._verifier is not None
        if followed.is_checked:
            client.verified_bytes += length
        if client.flawed_at >= 0:
            client.appended_up_to(offset + length)

    def _next_offset(self) -> int:
        """Return the commit log offset at which the next bytes must begin."""
        verifier = self._verifier
        return verifier.end if verifier is not None else self.store.get_max_phy_offset()

    def _drop_partial_record(self) -> None:
        """Truncate an incomplete last record, which the log may have after a run without haVerifyRecords.

        Verification has to begin with a record.
        """
        followed, store = self._followed, self.store
        if not self.config.haVerifyRecords or followed.is_checked or followed.chain.next_record == followed.end:
            return
        end = store.end_of_whole_records()
        if end < store.get_max_phy_offset():
            store.truncate_dirty_files(end)
        followed.forget()

    def _check_offset(self, offset: int, slave_phy_offset: int) -> None:
        if slave_phy_offset not in (0, offset):
            raise ReplicationError("master pushed offset not equal the max phy offset in slave, "
                                   f"SLAVE: {slave_phy_offset} MASTER: {offset}", HAConnectionState.OFFSET_REFUSED)
        # Differs: an empty slave begins only at the beginning of a file; 4.9 lets it begin anywhere, and then puts the
        # bytes at the beginning of a file.
        if slave_phy_offset == 0 and (offset < 0 or offset % self.config.mappedFileSizeCommitLog):
            raise ReplicationError(f"the master's log begins at {offset}, which is not the beginning of a commit log "
                                   f"file of {self.config.mappedFileSizeCommitLog} bytes: SLAVE: 0 MASTER: {offset}",
                                   HAConnectionState.OFFSET_REFUSED)

    def _follow_records(self, run: R) -> RecordChain:
        # Bytes that this client did not append end with a complete record: recovery truncates the log there, and puts
        # write complete records.
        chain = self._followed.chain if run.offset == self._followed.end else RecordChain(run.offset)
        return follow_records(chain, run.offset, self._decoder.view, run.start, run.length,
                              self.config.mappedFileSizeCommitLog)


class OffsetMasterConnection(MasterConnection[ha_transfer.Run]):
    """A connection with RocketMQ 4.9's frames, which need the search for the master's first file."""

    new_decoder = ha_transfer.FrameDecoder

    def _append(self, run: ha_transfer.Run) -> None:
        """Append one run, or raise: bytes that were not appended are never reported."""
        search = self.client.search
        if search is not None:
            found = self._first_run(search, run)
            if found is None:
                return
            run = found
        # A run that begins where the last append ended needs no check: the log itself refuses bytes at any other place.
        if run.offset != self._followed.end:
            self._check_offset(run.offset, self._next_offset())
        if run.length:
            # Differs: a slave checks the bytes that it appends, and a failed append ends the connection; 4.9 ignores a
            # failed append, and checks none of the bytes.
            self._append_run(run)
        # Differs: in 4.9 a heartbeat makes an empty slave create its first file.
        if not self._transfers:
            self._transfers = True
            self.client.transfers()

    def _first_run(self, search: FirstFileSearch, run: ha_transfer.Run) -> ha_transfer.Run | None:
        """Return `run`, the first of this connection, as it has to be appended; None while that is undecided.

        A master that is asked for the second byte of a file leaves out the first, which is 0. It is put back in front
        of the run, where the frame's header was.
        """
        found = search.heard(run.offset, run.length)
        if found is Found.AGAIN:
            self.is_to_be_followed_at_once = True
            raise ReplicationError(f"searching for the master's first file: it has {run.offset}")
        if found is Found.WAIT:
            self._heartbeat_ns = self._heartbeat_ns or time.monotonic_ns()
            return None
        asked = search.next_report()
        self.client.end_search()
        if asked and run.offset == asked and run.length:
            self._decoder.view[run.start - 1] = 0
            run = ha_transfer.Run(run.offset - 1, run.start - 1, run.length + 1)
        log.info("the commit log begins at %d", run.offset)
        return run


_TIMEOUT_S = 5.0
_READ_WAIT_S = 1.0
_SILENCE_S = 20.0  # longest wait without any expected byte


class CantAsk(Enum):
    """The reason why there is no answer."""

    UNKNOWN_REQUEST = "the master does not support the request"
    NO_ANSWER = "the master's main port does not respond"


# Arguments: HA address, offset, block size, number of blocks.
AskChecksums = Callable[[str, int, int, int], LogChecksums | CantAsk]


class MasterLogError(Exception):
    """The reason why the master's log can't be read now."""


class LogOfMaster:
    """The log of the master whose HA port is at `address`; used by one thread.

    `streams`: its HA port speaks RocketMQ 4.9's protocol. `stopped` ends a wait when it returns True.
    """

    def __init__(self, address: str, place: tuple[str, int], ask: AskChecksums, streams: bool, segment_size: int,
                 stopped: Callable[[], bool]) -> None:
        self.address = address
        self._place = place
        self._ask = ask
        self._streams = streams
        self._segment_size = segment_size
        self._stopped = stopped
        # it is known not to support the request
        self._is_other = False
        self._stream: _Stream | None = None

    def checksums(self, offset: int, block_size: int, count: int) -> LogChecksums:
        """Return the CRC32 of `count` blocks from `offset` on, fewer where the log ends.

        MasterLogError when it can't be read.
        """
        if not self._is_other:
            answer = self._ask(self.address, offset, block_size, count)
            if isinstance(answer, LogChecksums):
                return answer
            if answer is CantAsk.NO_ANSWER:
                raise MasterLogError(answer.value)
            self._is_other = True
        if not self._streams:
            raise MasterLogError("the master provides no checksums, and its HA port does not speak RocketMQ 4.9's "
                                 "protocol")
        data = self._bytes(offset, block_size * count)
        crcs = tuple(zlib.crc32(data[at:at + block_size]) for at in range(0, len(data), block_size))
        return LogChecksums(0, offset + len(data), crcs)

    @property
    def is_streamed(self) -> bool:
        """True if it is known to provide no checksums."""
        return self._is_other

    @property
    def is_open(self) -> bool:
        """True if a stream is open."""
        return self._stream is not None

    def close(self) -> bool:
        """Close the stream; return whether one was open."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        return stream is not None

    def _bytes(self, offset: int, size: int) -> bytes:
        try:
            if self._stream is None or not self._stream.holds(offset):
                self.close()
                self._stream = _Stream(self._place, offset, self._segment_size)
            return self._stream.read(offset, size, self._stopped)
        except (StreamError, ha_transfer.TransferError) as error:
            self.close()
            raise MasterLogError(str(error)) from error


class _Stream:
    """A connection to an HA port, which sends the log from `begin` on."""

    def __init__(self, place: tuple[str, int], begin: int, segment_size: int) -> None:
        self._segment_size = segment_size
        # A report of 0 would ask for the last file; the byte at 0 is 0, the highest byte of a record's size.
        self._report = max(begin, 1)
        self._start = begin  # commit log offset of the first byte in `_data`
        self._data = bytearray(self._report - begin)
        self._decoder = ha_transfer.FrameDecoder()
        self._last_report: float = LONG_AGO
        self._socket = ByteStream(place, _TIMEOUT_S)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def holds(self, offset: int) -> bool:
        """Return whether the kept bytes, or the next ones, include `offset`."""
        return self._start <= offset <= self._start + len(self._data)

    def read(self, offset: int, size: int, stopped: Callable[[], bool]) -> bytes:
        """Return `size` bytes at `offset`; the bytes before them are dropped."""
        del self._data[:offset - self._start]
        self._start = offset
        last_byte = time.monotonic()
        while len(self._data) < size:
            if stopped():
                raise StreamError("stopped")
            self._report_when_due()
            count = self._socket.receive_into(self._decoder.writable(_RECEIVE_SIZE), _READ_WAIT_S)
            if count and self._take(count):
                last_byte = time.monotonic()
            elif time.monotonic() - last_byte > _SILENCE_S:
                raise StreamError(f"{self._socket.name} sends nothing at {self._start + len(self._data)}")
        return bytes(self._data[:size])

    def _report_when_due(self) -> None:
        now = time.monotonic()
        if now - self._last_report > _TIMEOUT_S:
            self._socket.send_all(ha_transfer.encode_report(self._report), _TIMEOUT_S)
            self._last_report = now

    def _take(self, count: int) -> bool:
        """Decode received bytes; return whether they contained bytes of the log."""
        self._decoder.received(count)
        before = len(self._data)
        for run in self._decoder.runs(self._segment_size):
            if run.offset != self._start + len(self._data):
                raise StreamError(f"{self._socket.name} was asked for {self._start + len(self._data)} and sends "
                                  f"{run.offset}: it does not hold the bytes in between")
            self._data += self._decoder.view[run.start:run.start + run.length]
        return len(self._data) > before
