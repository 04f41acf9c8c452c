"""One slave, seen from the master.

    slave --greeting, first report--> AcceptSocketService, which reads until that report is a good one; it starts both:
    slave --reports--> ReadSocketService  --notify_transfer_some--> GroupTransferService
    slave <--frames--  WriteSocketService <--WaitNotifyObject-- an append; the socket turning writable
    slave <--frames--  a thread that has put on a SYNC_MASTER, when the writer waits and the socket has room

Both services use the same socket. Whoever ends first calls `close`, whose shutdown of the socket wakes the other; the
last one to leave closes the descriptor, so its number can't be somebody else's while a thread still uses it.
"""
from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from rmqha.common.service_thread import ServiceThread
from rmqha.remoting.io_thread import QuickPollSelector
from rmqha.store.ha import ha_handshake, ha_transfer
from rmqha.store.ha.flow_monitor import FlowMonitor
from rmqha.store.ha.frame_format import FrameFormat, Greeting, OffsetFrames
from rmqha.store.ha.ha_client import RateLimit
from rmqha.store.ha.ha_handshake import Range
from rmqha.store.ha.peers import SERVING, HAConnectionState, send_whole
from rmqha.store.ha.wait_notify_object import WaitNotifyObject
from rmqha.store.message_store_config import ASYNC_MASTER, MessageStoreConfig
from rmqha.store.replicated_log import ReplicatedLog
from rmqha.store.results import SelectMappedBufferResult
from rmqha.store.role import Role

log = logging.getLogger("RocketmqStore")

_SELECT_MS = 1000
_NO_DATA_WAIT_MS = 100
# How long gathers what no put waits for, and how short a time since the last frame makes more of it likely.
_GATHER_MS = 5
_BUSY_NS = 10_000_000
# A slave leads when it was the first to tell so many times on end; what is left to gather makes it late as a rule.
_FIRST_TIMES = 3
_FRAMES_PER_WRITE = 16
_READ_BUFFER_SIZE = 8 * 1024
_FLOW_CONTROL_LOG_MS = 60_000
# A slave repeats its last report only as a heartbeat; more than this many in one housekeeping interval is a flood.
_MAX_REPEATED_REPORTS = 1000


class SlaveServer(Protocol):
    """What a connection needs of its HAService."""

    config: MessageStoreConfig
    role: Role
    replicated_log: ReplicatedLog
    wait_notify_object: WaitNotifyObject
    leader: HAConnection | None

    def held_range(self) -> Range:
        """What the master's log holds."""

    def connection_serves(self, connection: HAConnection) -> None:
        """`connection` has begun to transfer."""

    def remove_connection(self, connection: HAConnection) -> None:
        """Forget it."""

    def slave_refused(self, connection: HAConnection, slave_offset: int, reason: str = "",
                      same_up_to: int = -1) -> int:
        """Report a slave that can't be served; the nearest offset that it could be served from."""

    def slave_acknowledged(self, connection: HAConnection, ack_offset: int) -> bool:
        """A slave holds everything below `ack_offset`; whether no slave had told that before."""

    def any_slave_will_do(self) -> bool:
        """Whether puts ask for no more than one slave, whichever that is."""


class HAConnection:
    """A connection of a slave: its offsets, and the two services that serve it.

    `slave_request_offset` is the first report, `slave_ack_offset` the last one; -1 until there is one.
    `slave_identity` is what the slave calls itself, or its address without port: a slave of RocketMQ has no name, so
    two of them on one host count as one.

    Java: org.apache.rocketmq.store.ha.HAConnection (4.9.8)
    """

    def __init__(self, ha_service: SlaveServer, sock: socket.socket, client_addr: str) -> None:
        self.ha_service = ha_service
        self.socket = sock
        self.client_addr = client_addr  # "ip:port"
        self.slave_identity = client_addr.rpartition(":")[0]  # replaced by ReadSocketService at the handshake
        self.slave_id: int | None = None  # its broker id, when it tells that; likewise
        # what the slave had acknowledged on an earlier connection and lacks now: (from, to); None: nothing
        self.lost_from: tuple[int, int] | None = None
        self.slave_request_offset = -1  # written once by ReadSocketService before WriteSocketService starts
        self.slave_ack_offset = -1  # written by ReadSocketService
        self.follows_another = False  # another slave leads, and any one will do; written by ReadSocketService
        self.caught_up_ns = time.monotonic_ns()  # the slave holds what the log held then; written by ReadSocketService
        self.flow_monitor = FlowMonitor(ha_service.config)  # WriteSocketService counts
        self.state = HAConnectionState.READY  # written under _lock
        self._lock = threading.Lock()
        self._closing = False  # guarded by _lock
        self._threads = 0  # services that use the socket; guarded by _lock
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_format = self.new_format()
        self.write_socket_service = WriteSocketService(self)
        self.read_socket_service = ReadSocketService(self)

    def new_format(self) -> FrameFormat[Any]:
        """What is spoken on this connection."""
        return OffsetFrames(self)

    @property
    def is_named(self) -> bool:
        """Whether the slave has told its own name."""
        return self.slave_identity != self.client_addr.rpartition(":")[0]

    @property
    def closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    @property
    def is_serving(self) -> bool:
        """Whether the slave has reported an offset that this log holds: only then it counts."""
        return self.state in SERVING

    @property
    def transferred_byte_in_second(self) -> int:
        """Bytes of the log sent in the last whole second."""
        return self.flow_monitor.transferred_byte_in_second

    @property
    def transfer_from_where(self) -> int:
        """Commit log offset of what is sent next, -1 before the first report."""
        return self.write_socket_service.next_transfer_from_where

    def behind_ms(self) -> int:
        """For how long the slave has not held what this log held; 0 when it holds all."""
        if self.slave_ack_offset >= self.ha_service.replicated_log.get_max_phy_offset():
            return 0
        return (time.monotonic_ns() - self.caught_up_ns) // 1_000_000

    def silence_ms(self) -> int:
        """For how long the slave has not reported."""
        return self.read_socket_service.silence_ms()

    def begin_waiting(self) -> bool:
        """Another thread reads for now, with `hear`, and calls `end_waiting` once. False when it is closing already.

        It answers nothing that takes reading the log.
        """
        if self.frame_format.greeting is not None:
            self.frame_format.greeting.reads_log = False
        with self._lock:
            if not self._closing:
                self._threads += 1
            return not self._closing

    def end_waiting(self) -> None:
        """That thread has done with the socket."""
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self.socket.close()

    def hear(self) -> bool:
        """Read once, in place of the service that is not started yet; False when the connection has to be closed."""
        return self.read_socket_service.hear()

    @property
    def asks_for_log(self) -> bool:
        """Whether the slave has asked what only the connection's own thread answers."""
        greeting = self.frame_format.greeting
        return greeting is not None and greeting.waits

    def expired(self) -> bool:
        """Whether the slave has been silent for too long, which is logged."""
        return self.read_socket_service.expired()

    @property
    def has_reported(self) -> bool:
        """Whether there was a first report that this log holds."""
        return self.slave_request_offset >= 0

    def start(self) -> None:
        """Start reading. The connection has to be registered with its HAService before."""
        self._start_service(self.read_socket_service)

    def start_transfer(self) -> None:
        """Start writing: the first report is there.

        Differs: in Java the writer polls for the first report each 10 ms. Here a peer that never reports costs no
        thread.
        """
        self._start_service(self.write_socket_service)

    def shutdown(self) -> None:
        """Close, and wait for both services."""
        self.close()
        self.read_socket_service.shutdown(True)
        self.write_socket_service.shutdown(True)

    def close(self) -> None:
        """Ask both services to end; any thread, idempotent. The descriptor goes when the last of them has left."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            if self.state not in (HAConnectionState.OFFSET_REFUSED, HAConnectionState.DIVERGED):
                self.state = HAConnectionState.SHUTDOWN
            self.read_socket_service.make_stop()
            self.write_socket_service.make_stop()
            if self._threads:
                self._wake_services()
            else:
                self.socket.close()
        try:
            self.ha_service.remove_connection(self)
        finally:
            self.ha_service.wait_notify_object.wakeup_all()

    def change_state(self, old: HAConnectionState, new: HAConnectionState) -> bool:
        """From `old` to `new`; False when the state is another one or the connection is closing."""
        with self._lock:
            if self._closing or self.state is not old:
                return False
            self.state = new
            return True

    def refuse_diverged(self, slave_end: int, same_up_to: int = -1) -> None:
        """The slave's log is another one than this: remember it, say so, and close."""
        with self._lock:
            self.state = HAConnectionState.DIVERGED
        known = f"; both are the same up to {same_up_to}" if same_up_to >= 0 else ""
        reason = f"holds other bytes in front of that offset, or none: the slave's store is of another master, or " \
                 f"went on by itself{known}"
        if same_up_to == slave_end:
            reason = f"has sent it a record at {slave_end} that failed its checks, each time: the network damages " \
                     "it, or this master's copy is damaged. `rmqha store verify` checks the store"
        self.ha_service.slave_refused(self, slave_end, reason, same_up_to)
        self.close()

    def refuse(self, slave_offset: int) -> None:
        """The master does not hold `slave_offset`: say so on both sides, once in a while, and close.

        Differs: 4.9 sends heartbeats for ever. The slave gets a heartbeat that names the nearest offset that exists;
        a 4.9 slave logs both offsets at it and closes.
        """
        with self._lock:
            self.state = HAConnectionState.OFFSET_REFUSED
        nearest = self.ha_service.slave_refused(self, slave_offset)
        try:
            send_whole(self.socket, self.frame_format.refusal(nearest))
        except OSError as error:
            log.info("slave[%s] is gone before it could be told: %s", self.client_addr, error)
        self.close()

    def transfer_begins(self) -> None:
        """The first report is a good one; from now on the peer counts as a slave.

        Its start is fixed before: a put that relies on this slave lies behind it, whatever file it goes to.
        """
        self.write_socket_service.fix_start_position()
        with self._lock:
            if self._closing:
                return
            self.state = HAConnectionState.TRANSFER
        self.start_transfer()
        self.ha_service.connection_serves(self)

    def service_ended(self, service: ServiceThread) -> None:
        """Called by each service as its last act."""
        try:
            self.close()
        finally:
            with self._lock:
                self._threads -= 1
                if self._threads == 0:
                    self.socket.close()
            log.info("%s service end", service.get_service_name())

    def _start_service(self, service: ServiceThread) -> None:
        with self._lock:
            if self._closing:
                return
            self._threads += 1
        try:
            service.start()
        except RuntimeError:  # no more threads
            log.exception("can't start %s of slave[%s]", service.get_service_name(), self.client_addr)
            self.service_ended(service)

    def _wake_services(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:  # the peer has reset it: both services see that by themselves
            log.debug("shutdown of slave[%s]: %s", self.client_addr, error)


class ReadSocketService(ServiceThread):
    """Reads the slave's reports, checks each, and hands the last one of a read on.

    Java: org.apache.rocketmq.store.ha.HAConnection$ReadSocketService (4.9.8)
    """

    goes_on = False  # an exception ends the connection; the slave comes again

    def __init__(self, connection: HAConnection) -> None:
        super().__init__()
        self.daemon = True
        self.connection = connection
        self._decode_reports = connection.frame_format.decode_reports
        self._acknowledged = connection.ha_service.slave_acknowledged
        self._greeting = connection.frame_format.greeting  # None when there is none, or it is over
        self._mark = (0, 0)  # (end of the log, monotonic ns when it was there): caught up to when acknowledged
        self._buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        self._last_report_ns = time.monotonic_ns()  # of the last whole report, or of the start
        self._repeats = 0  # reports equal to the one before, since _repeats_since_ns
        self._repeats_since_ns = 0
        self._first_times = 0  # on end, what it reported was news

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        self._last_report_ns = self._repeats_since_ns = time.monotonic_ns()
        try:
            self._read_until_end()
        except Exception:
            log.exception("%s service has exception.", self.get_service_name())
        finally:
            self.connection.service_ended(self)

    def _read_until_end(self) -> None:
        # poll, not epoll: no descriptor of its own, so a connection costs exactly one
        with QuickPollSelector() as selector:
            selector.register(self.connection.socket, selectors.EVENT_READ)
            if self._greeting is not None:
                self._greeting.reads_log = True
                if not self._take(b""):  # what has waited for this thread
                    return
            while not self.stopped:
                if selector.select(_SELECT_MS / 1000) and not self.hear():
                    return
                if self.expired():
                    return

    def silence_ms(self) -> int:
        """Since the last whole report, or since the start."""
        return (time.monotonic_ns() - self._last_report_ns) // 1_000_000

    def heard(self) -> None:
        """The slave has said something; this thread's."""
        self._last_report_ns = time.monotonic_ns()

    def expired(self) -> bool:
        """Whether nothing was heard for too long, which is logged."""
        # Differs: Java counts from the last byte; a peer that sends a byte now and then would stay for ever
        interval_ms = self.silence_ms()
        if interval_ms <= self.connection.ha_service.config.haHousekeepingInterval:
            return False
        log.warning("ha housekeeping, found this connection[%s] expired, %d", self.connection.client_addr, interval_ms)
        return True

    def hear(self) -> bool:
        """Read once; False when the connection has to be closed."""
        try:
            count = self.connection.socket.recv_into(self._buffer)
        except BlockingIOError:
            return True
        except OSError as error:
            log.info("processReadEvent exception of slave[%s]: %s", self.connection.client_addr, error)
            return False
        if count == 0:
            log.info("read socket[%s] < 0", self.connection.client_addr)
            return False
        return self._take(self._buffer[:count])

    def _take(self, data: bytes | memoryview) -> bool:
        """Take over what was read; False when the connection has to be closed."""
        try:
            if self._greeting is not None and not (data := self._greet(self._greeting, data)):
                return not self.connection.closing
            reports = self._decode_reports(data)
        except (ha_handshake.HandshakeError, ha_transfer.TransferError) as error:
            log.warning("slave[%s]: %s", self.connection.client_addr, error)
            return False
        return not reports or self._accept(reports)

    def _greet(self, greeting: Greeting[Any], data: bytes | memoryview) -> bytes:
        """Go on with the handshake; what of all that came belongs to reports. HandshakeError: the peer is no slave."""
        connection = self.connection
        for step in greeting.receive(data):
            if not connection.frame_format.answer(step):
                connection.close()
            if connection.closing:
                return b""
        if not greeting.is_over:
            return b""
        self._greeting = None
        return greeting.rest

    def _accept(self, reports: Sequence[int]) -> bool:
        """Take over the reports of one read: all, or none when one of them is impossible."""
        connection, now = self.connection, time.monotonic_ns()
        highest = connection.ha_service.replicated_log.get_max_phy_offset()
        last, sent = reports[-1], connection.write_socket_service.sent_offset
        first = connection.slave_request_offset < 0
        # One report of what was just sent, as almost always; never the first, before which nothing was sent.
        if not (len(reports) == 1 and connection.slave_ack_offset < last <= sent and last <= highest) and (
                not self._are_possible(reports, highest, now)):
            return False
        self._last_report_ns = now
        if last >= self._mark[0]:
            connection.caught_up_ns, self._mark = self._mark[1] or now, (highest, now)
        self._take_over(first, reports[0], last)
        return True

    def _are_possible(self, reports: Sequence[int], highest: int, now: int) -> bool:
        """Whether a slave that is what it should be may say that, when the log ends at `highest`."""
        connection = self.connection
        first = connection.slave_request_offset < 0
        last = reports[0] if first else connection.slave_ack_offset
        repeats = -1 if first else 0
        for offset in reports:
            if offset < last or offset < 0:
                # Differs: 4.9 accepts a report that falls; no slave of its sends one
                log.warning("slave[%s] request offset=%d after offset=%d", connection.client_addr, offset, last)
                return False
            repeats += offset == last
            last = offset
        if first and not self._holds(reports[0], highest):
            connection.refuse(reports[0])
            return False
        if last > highest:
            log.warning("slave[%s] request offset=%d greater than local commitLog offset=%d. ",
                        connection.client_addr, last, highest)
            return False
        sent = reports[0] if first else connection.write_socket_service.sent_offset
        if last > sent:
            # Differs: 4.9 believes it
            log.warning("slave[%s] reports offset=%d, but was sent nothing beyond offset=%d", connection.client_addr,
                        last, sent)
            return False
        return repeats <= 0 or not self._is_flood(repeats, now)

    def _holds(self, request_offset: int, highest: int) -> bool:
        """Whether the slave can be served from its first report on.

        Differs: 4.9 exempts the first report from the check against the local max offset, and takes it as an
        acknowledgement: a slave ahead of its master makes sync puts succeed at once.
        """
        store = self.connection.ha_service.replicated_log
        return request_offset == 0 or store.get_min_phy_offset() <= request_offset <= highest

    def _is_flood(self, repeats: int, now: int) -> bool:
        interval_ns = self.connection.ha_service.config.haHousekeepingInterval * 1_000_000
        if now - self._repeats_since_ns > interval_ns:
            self._repeats, self._repeats_since_ns = 0, now
        self._repeats += repeats
        if self._repeats <= _MAX_REPEATED_REPORTS:
            return False
        # Differs: 4.9 reads on for as long as they come
        log.warning("slave[%s] repeats its report, %d times so far", self.connection.client_addr, self._repeats)
        return True

    def _take_over(self, first: bool, request_offset: int, ack_offset: int) -> None:
        connection = self.connection
        connection.slave_ack_offset = ack_offset
        if first:
            connection.slave_request_offset = request_offset
            log.info("slave[%s] request offset %d", connection.client_addr, request_offset)
            connection.transfer_begins()
        is_news = self._acknowledged(connection, ack_offset)
        if connection.ha_service.leader is not connection:
            connection.follows_another = self._follows(is_news)

    def _follows(self, is_news: bool) -> bool:
        """Whether another slave leads; this one leads when it has been quicker for a while, or there is no other."""
        service, leader = self.connection.ha_service, self.connection.ha_service.leader
        self._first_times = self._first_times + 1 if is_news else 0
        if is_news and (leader is None or self._first_times >= _FIRST_TIMES):
            service.leader = self.connection
            return False
        return leader is not None and service.any_slave_will_do()


class WriteSocketService(ServiceThread):
    """Sends the commit log, straight from the map, from the slave's offset on; heartbeats while there is nothing new.

    What is new may also be sent by the thread that has appended it (`transfer_now`, `transfer_appended`): the
    hand-over to another thread costs more than the sending. Not so while it gathers, since no put waits for this slave.
    `_sending` guards what the two share, the socket's writing side included.

    Java: org.apache.rocketmq.store.ha.HAConnection$WriteSocketService (4.9.8)
    """

    goes_on = False  # an exception ends the connection; the slave comes again

    def __init__(self, connection: HAConnection) -> None:
        super().__init__()
        self.daemon = True
        self.connection = connection
        frame_format = connection.frame_format
        self._encode_frames = frame_format.encode_frames
        self._max_body_size = frame_format.max_body_size
        self._end_of_run = frame_format.end_of_run
        self._sends_appended = frame_format.sends_appended
        self._sending = threading.Lock()  # guards all below
        self._unsent: list[bytes | memoryview] = []  # the rest of what `transfer_now` could not write
        self._ready = False  # from the first look at the log on, until the end
        self.gathers = False  # the writer will look at the log within _GATHER_MS, unasked; set by the writer only
        self.next_transfer_from_where = -1  # commit log offset of the next frame
        self.sent_offset = -1  # end of what was handed to the socket, or is about to be
        self._last_write_ns = 0
        self._flow_control_limit = RateLimit(_FLOW_CONTROL_LOG_MS)
        self._unreadable_since_ns = 0  # since when the log ends above next_transfer_from_where and gives nothing

    def fix_start_position(self) -> None:
        """Where the slave goes on."""
        self.next_transfer_from_where = self.sent_offset = (
            self.connection.slave_request_offset or self.connection.frame_format.start_position())

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        self._last_write_ns = time.monotonic_ns()
        try:
            self._transfer_until_end()
        except OSError as error:
            log.info("transfer to slave[%s] ended: %s", self.connection.client_addr, error)
        except Exception:
            log.exception("%s service has exception.", self.get_service_name())
        finally:
            self.connection.ha_service.wait_notify_object.remove_from_waiting_thread_table()
            self.connection.service_ended(self)

    def _transfer_until_end(self) -> None:
        ha_service = self.connection.ha_service
        log.info("master transfer data from %d to slave[%s], and slave request %d", self.next_transfer_from_where,
                 self.connection.client_addr, self.connection.slave_request_offset)
        with selectors.PollSelector() as selector:
            selector.register(self.connection.socket, selectors.EVENT_WRITE)
            try:
                while not self.stopped:
                    with self._sending:
                        self._ready = True
                        all_sent = self._transfer_once(selector)
                    if all_sent:
                        if not self._looks_unasked():
                            ha_service.wait_notify_object.all_wait_for_running(_NO_DATA_WAIT_MS)
                            self._gather()
                    elif not self.connection.flow_monitor.can_transfer_max_byte_num():
                        self._suspend()
            finally:
                with self._sending:
                    self._ready = False

    def _gather(self) -> None:
        """No put of an ASYNC_MASTER waits for a slave: while many come, what they write goes out together."""
        # Differs: the original looks each 100 ms when it had nothing to send
        asynchronous = self.connection.ha_service.role.kind is ASYNC_MASTER
        if asynchronous and self._is_busy():
            self.wait_for_running(_GATHER_MS)

    def _looks_unasked(self) -> bool:
        """Wait while what puts write gathers, which needs no wake-up. False when the writer has to be woken again."""
        # Differs: the original wakes the writers of all slaves for each put. Should the slave that leads stop, puts
        # wait a little longer for this one until it leads.
        before, self.gathers = self.gathers, self.connection.follows_another and self._is_busy()
        if self.gathers:
            self.wait_for_running(_GATHER_MS)
        return before or self.gathers  # when it ends, one look more: puts that found `gathers` set woke nobody

    def _is_busy(self) -> bool:
        """Whether many puts come: while another slave answers them, what they write is left to the writer."""
        return time.monotonic_ns() - self._last_write_ns < _BUSY_NS

    def _transfer_once(self, selector: selectors.BaseSelector) -> bool:
        """Send the next frames or a heartbeat that is due; True when the slave has been sent everything."""
        connection = self.connection
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            self._send(selector, unsent)
        self._heartbeat_when_due(selector)
        if not connection.flow_monitor.can_transfer_max_byte_num():
            return False
        result = connection.ha_service.replicated_log.get_commit_log_data(self.next_transfer_from_where)
        if result is not None:
            self._transfer(selector, result)
        elif self._is_lost():
            connection.refuse(self.next_transfer_from_where)
        else:
            return True
        return False

    def transfer_now(self) -> bool:
        """Send what there is, on the calling thread; False when the writer has to be woken for it."""
        if self.connection.follows_another and self._is_busy():
            return self.gathers
        if not self._sending.acquire(blocking=False):
            return False
        try:
            connection = self.connection
            if not self._ready or self._unsent:
                return False
            if connection.ha_service.config.haFlowControlEnable and (
                    not connection.flow_monitor.can_transfer_max_byte_num()):
                return False
            return self._transfer_rest()
        except Exception as error:
            return self._broke_off(error)
        finally:
            self._sending.release()

    def transfer_appended(self, offset: int, appended: bytes) -> bool:
        """`transfer_now`, by the thread that has just written these bytes at `offset`: often all that the slave lacks.
        """
        if self.connection.follows_another and self._is_busy():
            return self.gathers
        if not self._sending.acquire(blocking=False):
            return False
        try:
            config, size = self.connection.ha_service.config, len(appended)
            if not self._ready or self._unsent:
                return False
            if config.haFlowControlEnable:
                allowed = self.connection.flow_monitor.can_transfer_max_byte_num()
                if size > allowed or not allowed:
                    return False
            if (offset != self.next_transfer_from_where or size > config.haTransferBatchSize
                    or size > self._max_body_size or not self._sends_appended):
                return self._transfer_rest()
            self.sent_offset = offset + size
            self._send(None, self._encode_frames(offset, appended, size))
            self._count_sent(size)
            return not self._unsent
        except Exception as error:
            return self._broke_off(error)
        finally:
            self._sending.release()

    def _transfer_rest(self) -> bool:
        """From the log what the slave lacks, as far as one write goes; whether that was all."""
        store = self.connection.ha_service.replicated_log
        result = store.get_commit_log_data(self.next_transfer_from_where)
        if result is None or result.start_offset != self.next_transfer_from_where:
            if result is not None:
                result.release()
            return store.get_max_phy_offset() == self.next_transfer_from_where
        self._transfer(None, result)
        return not self._unsent and self.next_transfer_from_where >= store.get_max_phy_offset()

    def _broke_off(self, error: Exception) -> bool:
        """Part of a frame may be on its way: nothing may follow it. And the puts of this round must get answers."""
        log.warning("transfer to slave[%s] ended: %r", self.connection.client_addr, error)
        self.connection.close()
        return False

    def _suspend(self) -> None:
        """Wait for the next second."""
        # Differs: 5.1.4 sends empty frames meanwhile, as fast as it can
        connection, monitor = self.connection, self.connection.flow_monitor
        if self._flow_control_limit.allow("flow control"):
            log.warning("Trigger HA flow control of slave[%s], max transfer speed %.2fKB/s", connection.client_addr,
                        monitor.max_transfer_byte_in_second / 1024)
        connection.change_state(HAConnectionState.TRANSFER, HAConnectionState.SUSPEND)
        self.wait_for_running(min(monitor.next_second_in_ms(), _SELECT_MS))
        connection.change_state(HAConnectionState.SUSPEND, HAConnectionState.TRANSFER)

    def _heartbeat_when_due(self, selector: selectors.BaseSelector) -> None:
        interval_ms = (time.monotonic_ns() - self._last_write_ns) // 1_000_000
        if interval_ms > self.connection.ha_service.config.haSendHeartbeatInterval:
            heartbeat = self.connection.frame_format.heartbeat(self.next_transfer_from_where)
            if heartbeat:
                self._send(selector, [heartbeat])

    def _transfer(self, selector: selectors.BaseSelector | None, result: SelectMappedBufferResult) -> None:
        """Send the next frames of what there is: several in one write, none above haTransferBatchSize."""
        position, batch_size = self.next_transfer_from_where, self._batch_size()
        limit = min(batch_size * _FRAMES_PER_WRITE, self._end_of_run(position) - position)
        allowed = self.connection.flow_monitor.can_transfer_max_byte_num()
        with result:
            if result.start_offset != position or limit < 0:
                self.connection.refuse(position)
                return
            size = min(result.size, limit, allowed)
            with result.buffer[:size] as body:
                self.sent_offset = position + size  # before a report of it can come
                buffers = self._encode_frames(position, body, batch_size)
                try:
                    self._send(selector, buffers)
                finally:
                    buffers.clear()  # the body is a view that is about to be released
            self._count_sent(size)

    def _count_sent(self, size: int) -> None:
        self.next_transfer_from_where += size
        self._unreadable_since_ns = 0
        self.connection.flow_monitor.add_byte_count_transferred(size)

    def _batch_size(self) -> int:
        """Bytes of the log in one frame."""
        # Differs: a batch size that no slave's buffer can hold is lowered to what it can
        return max(1, min(self.connection.ha_service.config.haTransferBatchSize, self._max_body_size))

    def _send(self, selector: selectors.BaseSelector | None, buffers: list[bytes | memoryview]) -> None:
        """Send all of it; OSError when the connection ends before.

        Without a selector nothing is waited for: a copy of the rest is left in `_unsent`.
        """
        while buffers:
            try:
                sent = self.connection.socket.sendmsg(buffers)
            except BlockingIOError:
                if selector is None:
                    self._unsent = [b"".join(buffers)]
                    return
                # A slave that takes nothing reports nothing: the reader's housekeeping ends this.
                selector.select(_SELECT_MS / 1000)
                if self.stopped:
                    raise ConnectionAbortedError("closed while it was written to") from None
                continue
            self._last_write_ns = time.monotonic_ns()
            buffers = ha_transfer.unsent(buffers, sent)

    def _is_lost(self) -> bool:
        """Whether what comes next will never be there: deleted, beyond the end, or unreadable for too long."""
        store, position = self.connection.ha_service.replicated_log, self.next_transfer_from_where
        highest = store.get_max_phy_offset()
        if position == highest:
            self._unreadable_since_ns = 0
            return False
        if position > highest or position < store.get_min_phy_offset():
            return not self.stopped
        now = time.monotonic_ns()
        self._unreadable_since_ns = self._unreadable_since_ns or now
        interval_ms = (now - self._unreadable_since_ns) // 1_000_000
        return interval_ms > self.connection.ha_service.config.haHousekeepingInterval
