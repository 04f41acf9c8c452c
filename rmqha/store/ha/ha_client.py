"""The slave's side: follows a master's commit log.

    master --frames--> HAClient --append_to_commit_log--> commit log
    master <--8-byte reports, after connecting, after each read that grew the log, and each 5 s--
    master's main port <--what are you?-- HAClient
    master <--handshake, before the first report, when it is ours, or with haHandshakeEnable=true-->
    BrokerController --update_master_address, shutdown--> wakes it
"""
from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from rmqha.common.service_thread import ServiceThread
from rmqha.common.waker import Waker
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.common.dual_stack import plain_address
from rmqha.remoting.common.tcp_info import retransmits
from rmqha.remoting.quick_selector import QuickEpollSelector
from rmqha.remoting.write_round import write_round
from rmqha.store.ha import ha_handshake, ha_transfer, log_tail
from rmqha.store.ha.first_file_search import FirstFileSearch, Found
from rmqha.store.ha.flow_monitor import FlowMonitor
from rmqha.store.ha.greeting import SlaveGreeting
from rmqha.store.ha.handshake_mode import HandshakeMode, handshake_mode
from rmqha.store.ha.log_comparison import ComparisonError, compare_with_master
from rmqha.store.ha.log_cut import cut_off
from rmqha.store.ha.ha_connection_state import HAConnectionState
from rmqha.store.ha.rate_limit import RateLimit
from rmqha.store.ha.record_chain import RecordChain, RecordChainError, follow_records
from rmqha.store.ha.record_comparison import ends_as_master, first_other_record
from rmqha.store.ha.send_whole import send_whole

if TYPE_CHECKING:
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqStore")

_SELECT_MS = 1000
_CONNECT_TIMEOUT_MS = 5000
_RETRY_MS = 5000
_STORE_WAIT_MS = 20
_RECEIVE_SIZE = 1024 * 1024  # bytes of one read
_ERROR_INTERVAL_MS = 60_000
_HELLO_WAIT_MS = 2000  # for a master that knows the handshake
_VERDICT_WAIT_MS = 20_000
_MAIN_PORT_WAIT_MS = 10_000  # for an unknown master to tell what it is
_SOON_MS = 1000  # between two attempts at that
_BEHIND_HEARTBEAT_MS = 1000  # for the data that a master has ready
_TRANSFER = HAConnectionState.TRANSFER
_MAX_SEARCHES = 200  # connections of one search for the first file, before it pauses


class MasterKind(Enum):
    """What the main port of a master tells of it."""

    OURS = "it compares logs at the handshake"
    OTHER = "it knows no such handshake, or has it turned off"


class ReplicationError(Exception):
    """Why the connection to the master has to be closed, and the state that this leaves the client in."""

    def __init__(self, message: str, state: HAConnectionState = HAConnectionState.READY) -> None:
        super().__init__(message)
        self.state = state


def _range_text(held: ha_handshake.Range) -> str:
    return f"{held.min_offset} to {held.max_offset}"


def parse_address(address: str) -> tuple[str, int] | None:
    """(host, port) of "host:port", None when it is none."""
    host, _colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        return None
    return host, int(port)


def _wall_clock_ms(monotonic_ns: int) -> int:
    """ms since 1970 of a monotonic time in the past, 0 of 0."""
    return current_time_millis() - (time.monotonic_ns() - monotonic_ns) // 1_000_000 if monotonic_ns else 0


class HAClient(ServiceThread):
    """Connects to the master, appends what it sends, and reports only what was appended.

    On a master it runs without an address and waits. All state but `master_address` belongs to its thread; `state`
    and `last_error` may be read by any.

    Java: org.apache.rocketmq.store.ha.HAService$HAClient (4.9.8)
    """

    def __init__(self, default_message_store: DefaultMessageStore) -> None:
        super().__init__()
        self.default_message_store = default_message_store
        self.config = default_message_store.message_store_config
        self.master_address: str | None = None  # replaced by any thread, read at each connect
        self.state = HAConnectionState.READY
        self.last_error = ""  # why the last connection ended, "" while one works
        self.local_address = ""  # this end of the present connection, "ip:port"; "" while there is none
        self.current_reported_offset = 0
        self._waker: Waker | None = None  # made by start, closed by the thread
        self._selector: selectors.BaseSelector | None = None
        self._socket: socket.socket | None = None
        self._decoder: ha_transfer.FrameDecoder | None = None
        self._chain = RecordChain(-1)  # where the next record begins, as of _chain_end
        self._chain_end = -1  # commit log offset up to which records were followed; -1 before the first append
        self._last_write_ns = 0
        self._last_read_ns = 0
        self._appended = False  # whether the present connection has brought anything
        self._again = False  # whether it was ended to ask for another file
        self._error_limit = RateLimit(_ERROR_INTERVAL_MS)
        self._flow_monitor = FlowMonitor(self.config)
        self._uncounted = 0  # bytes received that it has not been told of yet: the report goes first
        self._search: FirstFileSearch | None = None  # for the master's first file, while this log is empty
        self._searches = 0  # connections of the search
        self._heartbeat_ns = 0  # when the search heard a heartbeat of the file that it asked for; 0: not yet
        # Asked for what a master is, given its HA address; None: it can't be told now. Set before the start.
        self.ask_main_port: Callable[[str], MasterKind | None] | None = None
        # Asked for the master's record at an offset, given its HA address, see AskRecord.
        self.ask_record: Callable[[str, int], bytes | None] | None = None
        self.rejoin_once = False  # set by any thread, taken back when the two logs fit
        self.last_cut: tuple[int, int, str] | None = None  # where the log was cut off, where it had ended, the file
        self._rejoin_asked = False  # ends a pause
        self._retry_ms: int | None = None  # how long to wait before the next attempt; None: as ever
        self._plain_master: str | None = None  # closed when it was asked for a handshake
        self._said_unknown: str | None = None  # a master of which it was said that nothing can be compared
        self._ours: set[str] = set()  # HA addresses of masters that have told to be ours
        self._waiting_for = ("", 0)  # a master whose main port did not answer, and since when (monotonic ns)

    @property
    def transferred_byte_in_second(self) -> int:
        """Bytes received in the last whole second."""
        return self._flow_monitor.transferred_byte_in_second

    @property
    def last_read_timestamp(self) -> int:
        """When the master was last heard, ms since 1970; 0 for never."""
        return _wall_clock_ms(self._last_read_ns)

    @property
    def last_write_timestamp(self) -> int:
        """When it was last reported to, ms since 1970; 0 for never."""
        return _wall_clock_ms(self._last_write_ns)

    def silence_ms(self) -> int:
        """For how long the master has said nothing on the present connection; -1 while there is none."""
        return (time.monotonic_ns() - self._last_read_ns) // 1_000_000 if self.local_address else -1

    def retransmits(self) -> int:
        """How often in a row the same bytes were sent to the master without an answer of its kernel."""
        sock = self._socket
        return 0 if sock is None else retransmits(sock)

    def update_master_address(self, new_addr: str | None) -> None:
        """Follow `new_addr` ("host:port") from the next connect on; one that can't be parsed is refused in the log."""
        if new_addr is not None and parse_address(new_addr) is None:
            log.error("the master's HA address %r is no host:port, it stays %s", new_addr, self.master_address)
            return
        current_addr, self.master_address = self.master_address, new_addr
        if current_addr != new_addr:
            log.info("update master address, OLD: %s NEW: %s", current_addr, new_addr)
            self.wakeup()

    def start(self) -> None:
        if self._waker is None:
            self._waker = Waker()
        super().start()

    def wakeup(self) -> None:
        super().wakeup()
        waker = self._waker
        if waker is not None:
            waker.wakeup()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        waker, self.state = self._waker, HAConnectionState.READY
        try:
            self.keep_going(self._follow_until_stopped)
        finally:
            self._waker = None
            waker.close()
            self.state = HAConnectionState.SHUTDOWN
        log.info("%s service end", self.get_service_name())

    def _follow_until_stopped(self) -> None:
        with QuickEpollSelector() as self._selector:
            self._selector.register(self._waker, selectors.EVENT_READ)
            while not self.stopped:
                self._follow_once()

    def _follow_once(self) -> None:
        """One connection from its beginning to its end, or one wait for a master."""
        if self.default_message_store.is_shutdown:
            # The store starts its replication before it takes appends: nothing may be refused meanwhile.
            self._select(_STORE_WAIT_MS / 1000)
            return
        self._appended, address = False, self.master_address
        try:
            if self._connect_master(address):
                self._follow()
        except ReplicationError as error:
            self._failed(error)
        except OSError as error:
            self._failed(ReplicationError(f"connection to the master {address}: {error}"))
        except Exception as error:
            log.warning("%s service has exception. ", self.get_service_name(), exc_info=True)
            self._failed(ReplicationError(repr(error)))
        finally:
            self._close_master()
        # Differs: Java connects again at once; a master that refuses the offset would be asked without a pause,
        # now that the first report leaves at once.
        retry_ms, self._retry_ms = self._retry_ms, None
        if not self._appended and not self._is_searching():
            self._pause(_RETRY_MS if retry_ms is None else retry_ms, address)

    def _is_searching(self) -> bool:
        """Whether the next connection may follow at once."""
        searching, self._again = self._again, False
        return searching and self._searches % _MAX_SEARCHES != 0

    def _failed(self, error: ReplicationError) -> None:
        self.last_error = str(error)
        if error.state is HAConnectionState.READY:
            log.info("HAClient, %s", error)
            if self.state is HAConnectionState.TRANSFER:
                self.state = error.state
            return
        self.state = error.state
        if self._error_limit.allow(error.state):
            log.error("%s", error)

    def _pause(self, timeout_ms: int, address: str | None) -> None:
        """Wait; a master address other than `address` or shutdown ends it."""
        deadline_ns, self._rejoin_asked = time.monotonic_ns() + timeout_ms * 1_000_000, False
        while not self.stopped and address == self.master_address and not self._rejoin_asked:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                return
            self._select(remaining_ns / 1e9)

    def _select(self, timeout_s: float) -> bool:
        """Wait; whether there is something to do at the socket."""
        ready = False
        for key, _events in self._selector.select(timeout_s):
            if key.fileobj is self._waker:
                self._waker.drain()
            else:
                ready = True
        return ready

    def _connect_master(self, address: str | None) -> bool:
        """Connect within 5 s; False when there is no address, OSError when it fails."""
        if address is None:
            return False
        host, port = parse_address(address)
        family, kind, protocol, _name, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = self._socket = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = sock.connect_ex(target)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._selector.register(sock, selectors.EVENT_WRITE)
        self._await_connected(sock)
        if sock.getsockname() == sock.getpeername():
            raise OSError("connected to itself: nobody listens there")
        self._selector.modify(sock, selectors.EVENT_READ)
        self._decoder = ha_transfer.FrameDecoder()
        self._last_read_ns = time.monotonic_ns()
        self.local_address = "{}:{}".format(*plain_address(sock.getsockname()))
        return True

    def _await_connected(self, sock: socket.socket) -> None:
        deadline_ns = time.monotonic_ns() + _CONNECT_TIMEOUT_MS * 1_000_000
        while not self.stopped:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                raise TimeoutError("connect timed out")
            if self._select(remaining_ns / 1e9):
                code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    raise OSError(code, os.strerror(code))
                return
        raise ConnectionAbortedError("stopped while connecting")

    def _follow(self) -> None:
        """Serve the connection until it ends by an exception, or by shutdown."""
        log.info("HAClient connected to the master %s", self.master_address)
        self._last_read_ns = time.monotonic_ns()
        self._greet()
        # Differs: 4.9 sends its first report only after haSendHeartbeatInterval, so that each connect costs 5 s
        self.current_reported_offset = self._stored_offset()
        self._report_slave_max_offset(self._first_report())
        interval_ms, writes = min(_SELECT_MS, self.config.haSendHeartbeatInterval), write_round()
        while not self.stopped:
            if self._is_time_to_report_offset():
                self._report_slave_max_offset(self.current_reported_offset)
            if self._select(interval_ms / 1000):
                with writes:  # at its end, behind the report, the dispatch is woken
                    self._process_read_event()
                    self._report_slave_max_offset_plus()
            self._housekeeping()

    def _stored_offset(self) -> int:
        """The end of the log: all that may be acknowledged. With haSlaveAckAfterFlush it is on the disk then."""
        max_offset = self.default_message_store.get_max_phy_offset()
        if self.config.haSlaveAckAfterFlush:
            self._make_sure_of(max_offset)
        return max_offset

    def _make_sure_of(self, max_offset: int) -> None:
        """With haSlaveAckAfterFlush, before `max_offset` is reported."""
        if not self.default_message_store.flush_up_to(max_offset):
            raise ReplicationError(f"can't flush the commit log up to {max_offset}; it is not acknowledged",
                                   HAConnectionState.APPEND_FAILED)

    def _first_report(self) -> int:
        """The offset to ask for."""
        self._heartbeat_ns = 0
        if self.current_reported_offset or not self.config.haSyncFromFirstFile:
            self._search = None
            return self.current_reported_offset
        if self._search is None:
            self._search, self._searches = FirstFileSearch(self.config.mappedFileSizeCommitLog), 0
        self._searches += 1
        self.state = HAConnectionState.HANDSHAKE
        self.current_reported_offset = self._search.next_report()
        return self.current_reported_offset

    def _found(self, run: ha_transfer.Run) -> ha_transfer.Run | None:
        """`run`, the first of this connection, as it is to be appended; None while nothing is known.

        Asked for the second byte of a file, the master leaves out the first, which is 0. Room for it is in front of
        the run, where its frame's header was.
        """
        found = self._search.heard(run.offset, run.length)
        if found is Found.AGAIN:
            self._again = True
            raise ReplicationError(f"looking for the master's first file, it has {run.offset}")
        if found is Found.WAIT:
            self._heartbeat_ns = self._heartbeat_ns or time.monotonic_ns()
            return None
        asked = self._search.next_report()
        self._search = None
        if asked and run.offset == asked and run.length:
            self._decoder.view[run.start - 1] = 0
            run = ha_transfer.Run(run.offset - 1, run.start - 1, run.length + 1)
        log.info("the commit log begins at %d", run.offset)
        return run

    def _stop_waiting(self) -> None:
        """Nothing but a heartbeat came of the file that was asked for: it is not there."""
        waited_ms = (time.monotonic_ns() - self._heartbeat_ns) // 1_000_000
        if self._search is not None and self._heartbeat_ns and waited_ms > _BEHIND_HEARTBEAT_MS:
            asked = self._search.next_report()
            self._again = self._search.nothing_came() is Found.AGAIN
            raise ReplicationError(f"looking for the master's first file, it sends nothing at {asked}")

    def _greet(self) -> None:
        """Find out whether the master's log is this one, if it knows how; ReplicationError when it is not."""
        mode = handshake_mode(self.config)
        if mode is HandshakeMode.NEVER:
            return
        kind = self._ask_main_port()
        if kind is MasterKind.OURS:
            self._ours.add(self.master_address)
        elif kind is MasterKind.OTHER:
            self._ours.discard(self.master_address)
        elif self.master_address in self._ours or mode is HandshakeMode.AUTO and self._may_wait():
            self._wait_for_main_port()
        if kind is MasterKind.OURS or mode is HandshakeMode.ALWAYS and self._plain_master != self.master_address:
            self._handshake(kind is MasterKind.OURS)
        elif kind is MasterKind.OTHER:
            self._compare_last_record()
        elif kind is None and self.ask_main_port is not None and self._said_unknown != self.master_address:
            self._said_unknown = self.master_address
            log.warning("the main port of the master %s does not answer: it is followed as one of RocketMQ 4.9, which "
                        "compares no logs. haHandshakeEnable=true asks on the HA port", self.master_address)

    def _wait_for_main_port(self) -> NoReturn:
        self._retry_ms = _SOON_MS
        raise ReplicationError(f"the main port of the master {self.master_address} does not answer: whether the two "
                               "logs are the same can't be found out yet")

    def _compare_last_record(self) -> None:
        """The master compares nothing: see whether it has this log's last record, as far as its main port shows it."""
        store, end = self.default_message_store, self.default_message_store.get_max_phy_offset()
        if self.ask_record is None or ends_as_master(store, end, self._record_of_master) is not False:
            return
        try:
            same_up_to = first_other_record(store, end, self._record_of_master)
        except ComparisonError as error:
            raise ReplicationError(f"comparing with the master {self.master_address}: {error}") from error
        self._diverged(end, same_up_to, "its log")

    def _record_of_master(self, offset: int) -> bytes | None:
        return self.ask_record(self.master_address, offset) if self.ask_record is not None else None

    def _ask_main_port(self) -> MasterKind | None:
        ask = self.ask_main_port
        return ask(self.master_address) if ask is not None else None

    def _may_wait(self) -> bool:
        """Whether the main port of a master, which opens after its HA port, may answer soon, and it matters."""
        if self.ask_main_port is None or self.default_message_store.get_max_phy_offset() == 0:
            return False
        now = time.monotonic_ns()
        address, since_ns = self._waiting_for
        if address != self.master_address:
            self._waiting_for, since_ns = (self.master_address, now), now
        return now - since_ns < _MAIN_PORT_WAIT_MS * 1_000_000

    def _handshake(self, is_ours: bool) -> None:
        """Tell the master who this is and how its log ends; ReplicationError when the two don't fit together."""
        self.state = HAConnectionState.HANDSHAKE
        greeting = self._greeting(is_ours)
        self._send_greeting(greeting.begin())
        if not self._converse(greeting, is_ours):
            return
        if greeting.verdict is ha_handshake.Verdict.DIVERGED:
            self._diverged(greeting.end, greeting.same_up_to, _range_text(greeting.held))
        elif greeting.verdict is not ha_handshake.Verdict.GOOD:
            self._not_held(greeting.end, greeting.held)
        self._fits()

    def _greeting(self, is_ours: bool) -> SlaveGreeting:
        """A master whose main port has not told that it can do more compares one checksum."""
        store, broker = self.default_message_store, self.default_message_store.broker_config
        identity = f"{broker.brokerClusterName}/{broker.brokerName}/{broker.brokerId}"
        if not is_ours:
            return SlaveGreeting(partial(log_tail.introduction, store, identity))

        def introduction() -> ha_handshake.WhoCompares:
            begin, end = max(0, store.get_min_phy_offset()), store.get_max_phy_offset()
            return ha_handshake.WhoCompares(identity, min(begin, end), end)
        return SlaveGreeting(introduction, partial(compare_with_master, store))

    def _converse(self, greeting: SlaveGreeting, is_ours: bool) -> bool:
        """Up to the verdict; False when the master does not know the greeting."""
        while greeting.verdict is None:
            try:
                if self._hear(greeting, _VERDICT_WAIT_MS if is_ours or greeting.is_heard else _HELLO_WAIT_MS):
                    continue
            except EOFError:
                if greeting.is_heard:
                    raise
                if not is_ours:
                    self._plain_master = self.master_address
                    log.warning("the master %s does not take the question for a handshake (haHandshakeEnable=false?); "
                                "it is followed without", self.master_address)
                raise ReplicationError(f"the master {self.master_address} has closed at the question for a handshake"
                                       ) from None
            if greeting.is_heard:
                raise ReplicationError(f"the master {self.master_address} says nothing to the handshake")
            if is_ours:
                raise ReplicationError(f"the master {self.master_address} says nothing to the question for a handshake")
            log.info("the master %s knows no handshake; it is followed without", self.master_address)
            return False
        return True

    def _fits(self) -> None:
        self.rejoin_once = False
        self.default_message_store.ha_service.divergence.log_fits()

    def _not_held(self, end: int, held: ha_handshake.Range) -> NoReturn:
        raise ReplicationError(f"the master {self.master_address} refuses this slave: SLAVE: {end} MASTER: "
                               f"{held.min_offset} to {held.max_offset}. It does not hold the slave's end; set the "
                               "slave up anew, or repair it by hand", HAConnectionState.OFFSET_REFUSED)

    def _diverged(self, end: int, same_up_to: int, held: str) -> NoReturn:
        """The slave has what the master has not: cut it off when that is wanted, else say so."""
        if same_up_to >= 0 and (self.rejoin_once or self.config.haTruncateDivergedTail):
            path = cut_off(self.default_message_store, same_up_to)
            self._chain_end, self._retry_ms, self.last_cut = -1, 0, (same_up_to, end, path)
            raise ReplicationError(f"this slave's log was cut off at {same_up_to}, up to where it is the master's; "
                                   f"what was behind it, up to {end}, is in {path}")
        what = (f"its log is the master's up to {same_up_to}; `rmqha ha rejoin` cuts off what is behind it, and keeps "
                "that in a file" if same_up_to >= 0 else
                "nothing of its end is known to be the master's: set it up anew")
        self.default_message_store.ha_service.divergence.log_differs(
            same_up_to if same_up_to >= 0 else end, f"the slave's log ends at {end}, the master holds {held}: {what}")
        raise ReplicationError(f"this slave can't follow the master {self.master_address}: SLAVE: {end} MASTER: "
                               f"{held}. It holds other bytes in front of the slave's "
                               f"end, or none: this store is of another master, or went on by itself; {what}",
                               HAConnectionState.DIVERGED)

    def rejoin(self) -> None:
        """Cut off what the master does not have, at the next handshake that finds anything; any thread."""
        self.rejoin_once = True
        self._rejoin_asked = True
        self.wakeup()

    def _send_greeting(self, data: bytes) -> None:
        deadline_ns = time.monotonic_ns() + _VERDICT_WAIT_MS * 1_000_000

        def may_wait() -> bool:
            if time.monotonic_ns() > deadline_ns:
                return False
            self._select(_STORE_WAIT_MS / 1000)
            return True
        try:
            send_whole(self._socket, data, may_wait)
        except BlockingIOError:
            raise ReplicationError("the master takes nothing of the handshake") from None

    def _hear(self, greeting: SlaveGreeting, timeout_ms: int) -> bool:
        """Hear the next thing that the master says; False when it doesn't come in time. EOFError when it closes."""
        deadline_ns = time.monotonic_ns() + timeout_ms * 1_000_000
        while not self.stopped:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                return False
            if not self._select(remaining_ns / 1e9):
                continue
            try:
                data = self._socket.recv(greeting.wanted)
            except BlockingIOError:
                continue
            if not data:
                raise EOFError
            self._last_read_ns = time.monotonic_ns()
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
        raise ConnectionAbortedError("stopped within the handshake")

    def _is_time_to_report_offset(self) -> bool:
        interval_ms = (time.monotonic_ns() - self._last_write_ns) // 1_000_000
        return interval_ms > self.config.haSendHeartbeatInterval

    def _housekeeping(self) -> None:
        received, self._uncounted = self._uncounted, 0
        if received:
            self._flow_monitor.add_byte_count_transferred(received)
        # Differs: 4.9 looks at its own last write, which says nothing about the master
        interval_ms = (time.monotonic_ns() - self._last_read_ns) // 1_000_000
        if interval_ms > self.config.haHousekeepingInterval:
            log.warning("HAClient, housekeeping, found this connection[%s] expired, %d",
                        self.master_address, interval_ms)
            raise ReplicationError("master not response some time, so close connection")
        if self._search is not None:
            self._stop_waiting()

    def _report_slave_max_offset(self, max_offset: int) -> None:
        report = ha_transfer.REPORT.pack(max_offset)
        try:
            sent = self._socket.send(report)
        except BlockingIOError:
            log.debug("the master reads no reports at the moment")
            sent = 0
        if sent < len(report):
            try:
                send_whole(self._socket, report[sent:])
            except BlockingIOError:
                raise ReplicationError(f"reportSlaveMaxOffset error, {max_offset}") from None
        self._last_write_ns = time.monotonic_ns()

    def _report_slave_max_offset_plus(self) -> None:
        """Report when the log has grown beyond the last report."""
        max_offset = self.default_message_store.get_max_phy_offset()
        if max_offset > self.current_reported_offset:
            if self.config.haSlaveAckAfterFlush:
                self._make_sure_of(max_offset)
            self.current_reported_offset = max_offset
            self._report_slave_max_offset(max_offset)

    def _process_read_event(self) -> None:
        """Read once and append what is complete."""
        try:
            count = self._socket.recv_into(self._decoder.writable(_RECEIVE_SIZE))
        except BlockingIOError:
            return
        if count == 0:
            raise ReplicationError(f"the master {self.master_address} has closed the connection")
        self._last_read_ns = time.monotonic_ns()
        self._uncounted += count
        self._decoder.received(count)
        end = self._chain_end
        if self._chain.next_record == end and self.state is _TRANSFER:  # nothing but the next record is awaited
            segment_size = self.config.mappedFileSizeCommitLog
            size = self._decoder.take_record(end, segment_size - end % segment_size)
            if size:
                self._write(end, ha_transfer.HEADER.size, size, RecordChain(end + size))
                return
        self._dispatch_read_request()

    def _dispatch_read_request(self) -> None:
        try:
            for run in self._decoder.runs(self.config.mappedFileSizeCommitLog):
                self._append(run)
        except ha_transfer.TransferError as error:
            raise ReplicationError(f"{error}; the connection is closed", HAConnectionState.APPEND_FAILED) from error
        except RecordChainError as error:
            raise ReplicationError(f"what the master sends is no commit log: {error}; nothing of it is appended. "
                                   "Either its bytes are damaged, or its log is another one than the slave's",
                                   HAConnectionState.APPEND_FAILED) from error

    def _append(self, run: ha_transfer.Run) -> None:
        """Append one run, or raise: nothing that was not appended is ever reported."""
        if self._search is not None:
            found = self._found(run)
            if found is None:
                return
            run = found
        if run.offset != self._chain_end:  # where the last append ended: the log itself refuses all but its end
            self._check_offset(run.offset)
        if run.length:
            # Differs: 4.9 ignores a failed append, and looks at no byte of what it appends
            self._write(run.offset, run.start, run.length, self._follow_records(run))
        # Differs: in 4.9 a heartbeat makes an empty slave create its first file
        if self.state is not _TRANSFER:
            self.state, self.last_error = _TRANSFER, ""

    def _write(self, offset: int, start: int, length: int, chain: RecordChain) -> None:
        """Append bytes whose records were followed, up to `chain`."""
        if not self.default_message_store.append_to_commit_log(offset, self._decoder.view, start, length):
            self._check_offset(offset)
            raise ReplicationError(f"can't append {length} bytes at commit log offset {offset}; they are not "
                                   "acknowledged", HAConnectionState.APPEND_FAILED)
        self._chain, self._chain_end, self._appended = chain, offset + length, True

    def _check_offset(self, offset: int) -> None:
        slave_phy_offset = self.default_message_store.get_max_phy_offset()
        if slave_phy_offset not in (0, offset):
            raise ReplicationError("master pushed offset not equal the max phy offset in slave, "
                                   f"SLAVE: {slave_phy_offset} MASTER: {offset}", HAConnectionState.OFFSET_REFUSED)
        # Differs: 4.9 lets an empty slave begin anywhere, and then puts the bytes at the beginning of a file
        if slave_phy_offset == 0 and (offset < 0 or offset % self.config.mappedFileSizeCommitLog):
            raise ReplicationError(f"the master begins at {offset}, where no commit log file of "
                                   f"{self.config.mappedFileSizeCommitLog} bytes begins: SLAVE: 0 MASTER: {offset}",
                                   HAConnectionState.OFFSET_REFUSED)

    def _follow_records(self, run: ha_transfer.Run) -> RecordChain:
        # What this client has not appended ends with a whole record: recovery cuts it there, and puts write whole ones.
        chain = self._chain if run.offset == self._chain_end else RecordChain(run.offset)
        return follow_records(chain, run.offset, self._decoder.view, run.start, run.length,
                              self.config.mappedFileSizeCommitLog)

    def _close_master(self) -> None:
        sock, self._socket, self._decoder = self._socket, None, None
        self.local_address = ""
        if sock is None:
            return
        if sock in self._selector.get_map():
            self._selector.unregister(sock)
        sock.close()
