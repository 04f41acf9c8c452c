"""A slave's connection, seen from the master.

    slave --greeting, first report--> AcceptSocketService reads up to a valid first report, then starts both services:
    slave --reports--> ReadSocketService  --notify_transfer_some--> GroupTransferService
    slave <--frames--  WriteSocketService <--WaitNotifyObject-- an append; the socket becoming writable
    slave <--frames--  a putting thread of a SYNC_MASTER, when the writer is waiting and the socket buffer has space

Both services use the same socket. The one that ends first calls `close`, which shuts the socket down and thereby wakes
the other. The last one to leave closes the descriptor, so that its number can't be reused while a thread still uses it.

Two ways to send. WriteSocketService's thread reads the log from the slave's offset and can send everything; this way
alone would be sufficient. But a synchronous put would then wait for two hand-overs between threads, which cost more
than the sending itself. So the putting thread tries first: `transfer_appended` sends the very bytes that it has just
appended, if they are exactly what the slave lacks and fit into one frame; `transfer_now` sends what the log has, as far
as one write goes. Either gives up (False) as soon as anything is unusual: another thread holds the lock, part of an
earlier frame is still unsent, or the flow control budget is used up. The writer is woken then, and does the same from
the log. Both ways must therefore send the same bytes at the same offsets; tests/fast_ways compares them.

Gathering, and the leading slave. If puts wait for any one slave, and there are several, only the first acknowledgement
matters; sending each put immediately to every slave costs a system call per slave and gains nothing. So one slave leads
(`HAService.leader`): the one whose acknowledgement of new bytes came first three times in a row. It is sent each put
immediately. To the other slaves (their `follows_another` is True), putting threads send nothing while puts are
frequent. Instead, the writer of each looks at the log every 5 ms, and sends in one write what has gathered
(`_looks_unasked`). If the leader falls silent, each put waits up to 5 ms longer, until another slave's acknowledgement
has come first three times in a row (`_FIRST_TIMES`); that slave then leads. If the leader's connection ends, the next
slave that acknowledges first leads at once. If puts need more than one slave, no slave follows another, and each put is
sent to all of them immediately. On an ASYNC_MASTER no put waits, so bytes gather for all slaves, for 5 ms while puts
are frequent (`_gather`). While puts are rare, nothing gathers: waiting would only add latency.
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
# The writer of a slave that no put waits for lets bytes gather for _GATHER_MS, if its last frame was sent within
# _BUSY_NS: more bytes are likely then.
_GATHER_MS = 5
_BUSY_NS = 10_000_000
# A slave leads after it was the first to acknowledge this many times in a row. A slave whose bytes gather gets them
# later, and is rarely the first.
_FIRST_TIMES = 3
_FRAMES_PER_WRITE = 16
_READ_BUFFER_SIZE = 8 * 1024
_FLOW_CONTROL_LOG_MS = 60_000
# A slave repeats its last report only as a heartbeat; more than this many within haHousekeepingInterval are a flood.
_MAX_REPEATED_REPORTS = 1000


class SlaveServer(Protocol):
    """The part of HAService that a connection uses."""

    config: MessageStoreConfig
    role: Role
    replicated_log: ReplicatedLog
    wait_notify_object: WaitNotifyObject
    leader: HAConnection | None

    def held_range(self) -> Range:
        """Return the range of offsets that the master's log holds."""

    def connection_serves(self, connection: HAConnection) -> None:
        """Handle the beginning of a transfer."""

    def remove_connection(self, connection: HAConnection) -> None:
        """Forget a connection."""

    def slave_refused(self, connection: HAConnection, slave_offset: int, reason: str = "",
                      same_up_to: int = -1) -> int:
        """Report a slave that can't be served; return the nearest offset that it could be served from."""

    def slave_acknowledged(self, connection: HAConnection, ack_offset: int) -> bool:
        """Handle a slave's acknowledgement of everything below `ack_offset`; return whether it is the first to do so.
        """

    def any_slave_will_do(self) -> bool:
        """Return whether puts wait for at most one slave, no matter which."""


class HAConnection:
    """A connection to one slave: its offsets, and the two services that serve it.

    `slave_request_offset` is the first report, `slave_ack_offset` the last one; -1 until there is one.
    `slave_identity` is the slave's own name, or its address without port: a slave of RocketMQ has no name, so two of
    them on one host count as one.

    Java: org.apache.rocketmq.store.ha.HAConnection (4.9.8)
    """

    def __init__(self, ha_service: SlaveServer, sock: socket.socket, client_addr: str) -> None:
        self.ha_service = ha_service
        self.socket = sock
        self.client_addr = client_addr  # "ip:port"
        # Both are replaced by ReadSocketService at the handshake; the broker id only if the slave sends it.
        self.slave_identity = client_addr.rpartition(":")[0]
        self.slave_id: int | None = None
        # (from, to) that the slave had acknowledged on an earlier connection and lacks now; None: nothing
        self.lost_from: tuple[int, int] | None = None
        # written once by ReadSocketService before WriteSocketService starts
        self.slave_request_offset = -1
        # The next three are written by ReadSocketService.
        self.slave_ack_offset = -1
        # another slave leads, and puts wait for any one slave
        self.follows_another = False
        # the slave holds everything that the log held at this time
        self.caught_up_ns = time.monotonic_ns()
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
        """Return the protocol of this connection."""
        return OffsetFrames(self)

    @property
    def is_named(self) -> bool:
        """True if the slave has sent a name of its own."""
        return self.slave_identity != self.client_addr.rpartition(":")[0]

    @property
    def closing(self) -> bool:
        """True once `close` was called."""
        return self._closing

    @property
    def is_serving(self) -> bool:
        """True if the slave has reported an offset that this log holds; only then does it count as a replica."""
        return self.state in SERVING

    @property
    def transferred_byte_in_second(self) -> int:
        """Number of log bytes sent in the last complete second."""
        return self.flow_monitor.transferred_byte_in_second

    @property
    def transfer_from_where(self) -> int:
        """The commit log offset of the next frame; -1 before the first report."""
        return self.write_socket_service.next_transfer_from_where

    def behind_ms(self) -> int:
        """Return for how many ms the slave has been behind this log; 0 when it holds everything."""
        if self.slave_ack_offset >= self.ha_service.replicated_log.get_max_phy_offset():
            return 0
        return (time.monotonic_ns() - self.caught_up_ns) // 1_000_000

    def silence_ms(self) -> int:
        """Return the time in ms since the slave last reported."""
        return self.read_socket_service.silence_ms()

    def begin_waiting(self) -> bool:
        """Let another thread read for now, with `hear`; when done, that thread must call `end_waiting` exactly once.

        Questions whose answer requires reading the log are left unanswered meanwhile. Return False when the connection
        is already closing.
        """
        if self.frame_format.greeting is not None:
            self.frame_format.greeting.reads_log = False
        with self._lock:
            if not self._closing:
                self._threads += 1
            return not self._closing

    def end_waiting(self) -> None:
        """End the other thread's use of the socket."""
        with self._lock:
            self._threads -= 1
            if self._threads == 0:
                self.socket.close()

    def hear(self) -> bool:
        """Read once, in place of the service, which is not started yet; return False when the connection has to close.
        """
        return self.read_socket_service.hear()

    @property
    def asks_for_log(self) -> bool:
        """True if the slave has asked something that only the connection's own thread answers."""
        greeting = self.frame_format.greeting
        return greeting is not None and greeting.waits

    def expired(self) -> bool:
        """Return whether the slave has been silent for too long; if so, log it."""
        return self.read_socket_service.expired()

    @property
    def has_reported(self) -> bool:
        """True if there was a first report with an offset that this log holds."""
        return self.slave_request_offset >= 0

    def start(self) -> None:
        """Start reading. The connection must already be registered with its HAService."""
        self._start_service(self.read_socket_service)

    def start_transfer(self) -> None:
        """Start writing, after the first report.

        Differs: in Java the writer polls for the first report every 10 ms. Here a peer that never reports costs no
        thread.
        """
        self._start_service(self.write_socket_service)

    def shutdown(self) -> None:
        """Close, and wait for both services."""
        self.close()
        self.read_socket_service.shutdown(True)
        self.write_socket_service.shutdown(True)

    def close(self) -> None:
        """Ask both services to end; the last one to leave closes the descriptor. Any thread may call it. Idempotent."""
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
        """Change the state from `old` to `new`; return False if it is not `old`, or if the connection is closing."""
        with self._lock:
            if self._closing or self.state is not old:
                return False
            self.state = new
            return True

    def refuse_diverged(self, slave_end: int, same_up_to: int = -1) -> None:
        """Refuse a slave whose log differs from this one: record it, log it, and close."""
        with self._lock:
            self.state = HAConnectionState.DIVERGED
        known = f"; the logs are equal up to {same_up_to}" if same_up_to >= 0 else ""
        reason = f"holds other bytes before that offset, or none: the slave's store belongs to another master, or " \
                 f"it took messages on its own{known}"
        if same_up_to == slave_end:
            reason = f"has sent it a record at {slave_end} that failed its checks every time: either the network " \
                     "damages it, or this master's copy is damaged. Check the store with `rmqha store verify`"
        self.ha_service.slave_refused(self, slave_end, reason, same_up_to)
        self.close()

    def refuse(self, slave_offset: int) -> None:
        """Refuse a slave because the master does not hold `slave_offset`: report it on both sides, and close.

        Differs: 4.9 sends a refused slave heartbeats forever. Here it gets a heartbeat with the nearest offset that
        exists; a 4.9 slave then logs both offsets and closes. The master's log line is rate-limited.
        """
        with self._lock:
            self.state = HAConnectionState.OFFSET_REFUSED
        nearest = self.ha_service.slave_refused(self, slave_offset)
        try:
            send_whole(self.socket, self.frame_format.refusal(nearest))
        except OSError as error:
            log.info("slave[%s] disconnected before it could be notified: %s", self.client_addr, error)
        self.close()

    def transfer_begins(self) -> None:
        """Begin the transfer after a valid first report; from now on the peer counts as a slave.

        The start position is fixed before the peer counts. Every put that waits for this slave then lies after the
        start position. Otherwise a put could begin a new file before the position is fixed. An empty slave would then
        start at that file, and its acknowledgement would count for an earlier put that is never sent to it.
        """
        self.write_socket_service.fix_start_position()
        with self._lock:
            if self._closing:
                return
            self.state = HAConnectionState.TRANSFER
        self.start_transfer()
        self.ha_service.connection_serves(self)

    def service_ended(self, service: ServiceThread) -> None:
        """Release a service's use of the socket. Each service calls this last."""
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
            log.exception("can't start %s for slave[%s]", service.get_service_name(), self.client_addr)
            self.service_ended(service)

    def _wake_services(self) -> None:
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError as error:
            # The peer has reset the connection; both services notice that themselves.
            log.debug("shutdown of slave[%s]: %s", self.client_addr, error)


class ReadSocketService(ServiceThread):
    """The thread that reads and checks the slave's reports, and passes on the last one of each read.

    Java: org.apache.rocketmq.store.ha.HAConnection$ReadSocketService (4.9.8)
    """

    # An exception ends the connection; the slave reconnects.
    goes_on = False

    def __init__(self, connection: HAConnection) -> None:
        super().__init__()
        self.daemon = True
        self.connection = connection
        self._decode_reports = connection.frame_format.decode_reports
        self._acknowledged = connection.ha_service.slave_acknowledged
        # None when the protocol has no greeting, or when it is over
        self._greeting = connection.frame_format.greeting
        # (end of the log, monotonic ns): a slave that acknowledges this end holds all that the log held at that time.
        self._mark = (0, 0)
        self._buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        # of the last complete report, or of the start
        self._last_report_ns = time.monotonic_ns()
        # number of reports that repeat the previous one, since _repeats_since_ns
        self._repeats = 0
        self._repeats_since_ns = 0
        # how many times in a row its report was news
        self._first_times = 0

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
        # poll rather than epoll: it needs no descriptor of its own, so a connection costs exactly one.
        with QuickPollSelector() as selector:
            selector.register(self.connection.socket, selectors.EVENT_READ)
            if self._greeting is not None:
                self._greeting.reads_log = True
                # messages that were left for this thread
                if not self._take(b""):
                    return
            while not self.stopped:
                if selector.select(_SELECT_MS / 1000) and not self.hear():
                    return
                if self.expired():
                    return

    def silence_ms(self) -> int:
        """Return the time in ms since the last complete report, or since the start."""
        return (time.monotonic_ns() - self._last_report_ns) // 1_000_000

    def heard(self) -> None:
        """Record that the slave has sent something. Called by this thread."""
        self._last_report_ns = time.monotonic_ns()

    def expired(self) -> bool:
        """Return whether nothing was received for too long; if so, log it."""
        # Differs: silence counts from a peer's last full report. In Java one byte now and then keeps it connected
        # forever.
        interval_ms = self.silence_ms()
        if interval_ms <= self.connection.ha_service.config.haHousekeepingInterval:
            return False
        log.warning("ha housekeeping, found this connection[%s] expired, %d", self.connection.client_addr, interval_ms)
        return True

    def hear(self) -> bool:
        """Read once; return False when the connection has to be closed."""
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
        """Process what was read; return False when the connection has to be closed."""
        try:
            if self._greeting is not None and not (data := self._greet(self._greeting, data)):
                return not self.connection.closing
            reports = self._decode_reports(data)
        except (ha_handshake.HandshakeError, ha_transfer.TransferError) as error:
            log.warning("slave[%s]: %s", self.connection.client_addr, error)
            return False
        return not reports or self._accept(reports)

    def _greet(self, greeting: Greeting[Any], data: bytes | memoryview) -> bytes:
        """Continue the handshake; return the bytes that belong to reports. HandshakeError: not a valid slave."""
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
        """Accept all reports of one read; or reject all if one of them is impossible, and return False."""
        connection, now = self.connection, time.monotonic_ns()
        highest = connection.ha_service.replicated_log.get_max_phy_offset()
        last, sent = reports[-1], connection.write_socket_service.sent_offset
        first = connection.slave_request_offset < 0
        # Almost always there is one report, of bytes that were just sent, which needs no closer check. A first report
        # never meets this condition, because nothing was sent before it.
        if not (len(reports) == 1 and connection.slave_ack_offset < last <= sent and last <= highest) and (
                not self._are_possible(reports, highest, now)):
            return False
        self._last_report_ns = now
        if last >= self._mark[0]:
            connection.caught_up_ns, self._mark = self._mark[1] or now, (highest, now)
        self._take_over(first, reports[0], last)
        return True

    def _are_possible(self, reports: Sequence[int], highest: int, now: int) -> bool:
        """Return whether a correct slave may send these reports when the log ends at `highest`."""
        connection = self.connection
        first = connection.slave_request_offset < 0
        last = reports[0] if first else connection.slave_ack_offset
        repeats = -1 if first else 0
        for offset in reports:
            if offset < last or offset < 0:
                # Differs: decreasing reports end the connection; 4.9 accepts them, although its slaves never send any.
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
            # Differs: a report of bytes that were never sent ends the connection; 4.9 accepts it.
            log.warning("slave[%s] reports offset=%d, but was sent nothing beyond offset=%d", connection.client_addr,
                        last, sent)
            return False
        return repeats <= 0 or not self._is_flood(repeats, now)

    def _holds(self, request_offset: int, highest: int) -> bool:
        """Return whether the slave can be served from the offset of its first report.

        Differs: 4.9 does not check the first report against the local max offset, but treats it as an acknowledgement:
        a slave that is ahead of its master makes synchronous puts succeed at once.
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
        # Differs: a slave that repeats its report too often is disconnected; 4.9 reads such reports without limit.
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
        """Return whether another slave leads; take the lead if this one was faster for a while, or no slave leads."""
        service, leader = self.connection.ha_service, self.connection.ha_service.leader
        self._first_times = self._first_times + 1 if is_news else 0
        if is_news and (leader is None or self._first_times >= _FIRST_TIMES):
            service.leader = self.connection
            return False
        return leader is not None and service.any_slave_will_do()


class WriteSocketService(ServiceThread):
    """The thread that sends the commit log from the slave's offset on, directly from the mapped file, and heartbeats.

    New bytes may also be sent by the thread that has appended them (`transfer_now`, `transfer_appended`), because a
    hand-over to another thread costs more than the sending; see the module. That thread does not send while bytes
    gather, since no put waits for this slave then. `_sending` guards the sending side of the socket, and all writes of
    what the two threads share.

    Java: org.apache.rocketmq.store.ha.HAConnection$WriteSocketService (4.9.8)
    """

    # An exception ends the connection; the slave reconnects.
    goes_on = False

    def __init__(self, connection: HAConnection) -> None:
        super().__init__()
        self.daemon = True
        self.connection = connection
        frame_format = connection.frame_format
        self._encode_frames = frame_format.encode_frames
        self._max_body_size = frame_format.max_body_size
        self._end_of_run = frame_format.end_of_run
        self._sends_appended = frame_format.sends_appended
        self._sending = threading.Lock()  # guards writes of all below but `gathers`
        # the rest that a putting thread could not write
        self._unsent: list[bytes | memoryview] = []
        # True from the writer's first check of the log until its end
        self._ready = False
        # the writer will check the log within _GATHER_MS without being woken; set only by the writer
        self.gathers = False
        # commit log offset of the next frame
        self.next_transfer_from_where = -1
        # end of the bytes that were passed to the socket, or are about to be
        self.sent_offset = -1
        self._last_write_ns = 0
        self._flow_control_limit = RateLimit(_FLOW_CONTROL_LOG_MS)
        # When the log first ended beyond next_transfer_from_where but returned no bytes there; 0: it returns them.
        self._unreadable_since_ns = 0

    def fix_start_position(self) -> None:
        """Set the offset from which the slave is sent the log."""
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
        """Wait for more bytes on a busy ASYNC_MASTER, whose puts wait for no slave; the caller sends them together."""
        # Differs: a busy ASYNC_MASTER gathers bytes; the original checks every 100 ms when it had nothing to send.
        asynchronous = self.connection.ha_service.role.kind is ASYNC_MASTER
        if asynchronous and self._is_busy():
            self.wait_for_running(_GATHER_MS)

    def _looks_unasked(self) -> bool:
        """Wait while the bytes of puts gather. Return True to check the log next, False to wait until woken."""
        # Differs: on a busy master, a put wakes at most the leading slave's writer; in the original it wakes the
        # writers of all slaves. If the leading slave stops, puts wait a little longer for this one until it leads.
        before, self.gathers = self.gathers, self.connection.follows_another and self._is_busy()
        if self.gathers:
            self.wait_for_running(_GATHER_MS)
        # One more check at the end: puts that found `gathers` set did not wake the writer.
        return before or self.gathers

    def _is_busy(self) -> bool:
        """Return whether puts are frequent; if so, and if another slave leads, their bytes are left to the writer."""
        return time.monotonic_ns() - self._last_write_ns < _BUSY_NS

    def _transfer_once(self, selector: selectors.BaseSelector) -> bool:
        """Send the next frames or a due heartbeat; return True when the slave has been sent everything."""
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
        """Send the new bytes of the log on the calling thread; return False when the writer has to be woken for that.
        """
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
        """Send like `transfer_now`, on the thread that has just appended these bytes at `offset`.

        They often are everything that the slave lacks, and need not be read from the log.
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
        """Send from the log what the slave lacks, as far as one write goes; return whether that was everything."""
        store = self.connection.ha_service.replicated_log
        result = store.get_commit_log_data(self.next_transfer_from_where)
        if result is None or result.start_offset != self.next_transfer_from_where:
            if result is not None:
                result.release()
            return store.get_max_phy_offset() == self.next_transfer_from_where
        self._transfer(None, result)
        return not self._unsent and self.next_transfer_from_where >= store.get_max_phy_offset()

    def _broke_off(self, error: Exception) -> bool:
        """Close the connection after a failure: a part of a frame may have been sent, so other bytes must not follow.

        The exception is not raised, because the other puts of this round must get their responses.
        """
        log.warning("transfer to slave[%s] ended: %r", self.connection.client_addr, error)
        self.connection.close()
        return False

    def _suspend(self) -> None:
        """Wait for the next second of flow control."""
        # Differs: a suspended transfer sends nothing; 5.1.4 sends empty frames meanwhile, as fast as it can.
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
        """Send the next frames of `result`: several in one write, none larger than haTransferBatchSize."""
        position, batch_size = self.next_transfer_from_where, self._batch_size()
        limit = min(batch_size * _FRAMES_PER_WRITE, self._end_of_run(position) - position)
        allowed = self.connection.flow_monitor.can_transfer_max_byte_num()
        with result:
            if result.start_offset != position or limit < 0:
                self.connection.refuse(position)
                return
            size = min(result.size, limit, allowed)
            with result.buffer[:size] as body:
                # Set before the slave can report this offset.
                self.sent_offset = position + size
                buffers = self._encode_frames(position, body, batch_size)
                try:
                    self._send(selector, buffers)
                finally:
                    # They refer to the body, a view that is about to be released.
                    buffers.clear()
            self._count_sent(size)

    def _count_sent(self, size: int) -> None:
        self.next_transfer_from_where += size
        self._unreadable_since_ns = 0
        self.connection.flow_monitor.add_byte_count_transferred(size)

    def _batch_size(self) -> int:
        """Return the number of log bytes in one frame."""
        # Differs: a haTransferBatchSize that exceeds a slave's buffer is lowered to fit.
        return max(1, min(self.connection.ha_service.config.haTransferBatchSize, self._max_body_size))

    def _send(self, selector: selectors.BaseSelector | None, buffers: list[bytes | memoryview]) -> None:
        """Send all of `buffers`; OSError when the connection ends before that.

        Without a selector it does not wait: a copy of the rest is left in `_unsent`.
        """
        while buffers:
            try:
                sent = self.connection.socket.sendmsg(buffers)
            except BlockingIOError:
                if selector is None:
                    self._unsent = [b"".join(buffers)]
                    return
                # A slave that receives nothing reports nothing, so the reader's housekeeping ends this wait.
                selector.select(_SELECT_MS / 1000)
                if self.stopped:
                    raise ConnectionAbortedError("closed during a write") from None
                continue
            self._last_write_ns = time.monotonic_ns()
            buffers = ha_transfer.unsent(buffers, sent)

    def _is_lost(self) -> bool:
        """Return whether the next bytes will never be available: deleted, beyond the end, or unreadable for too long.
        """
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
