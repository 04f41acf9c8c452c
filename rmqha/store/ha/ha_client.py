"""The slave's side of replication: following a master's commit log. Also a rate limit for log lines.

    master <==TCP==> MasterConnection, one after the other --append_to_commit_log--> commit log
    master's main port <--which kind of master?-- HAClient
    BrokerController --update_master_address, shutdown--> wakes HAClient
"""
from __future__ import annotations

import logging
import selectors
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.service_thread import ServiceThread
from rmqha.common.texts import LATER
from rmqha.common.threads import Waker
from rmqha.common.util_all import current_time_millis
from rmqha.remoting.addresses import retransmits
from rmqha.remoting.io_thread import QuickEpollSelector
from rmqha.store.ha.first_file_search import FirstFileSearch
from rmqha.store.ha.flow_monitor import FlowMonitor
from rmqha.store.ha.ha_transfer import FollowedRecords
from rmqha.store.ha.log_comparison import Divergence, keep_end
from rmqha.store.ha.master_connection import MasterConnection, OffsetMasterConnection, ReplicationError
from rmqha.store.ha.peers import HAConnectionState, KnownMasters, MasterKind
from rmqha.store.ha.record_verifier import RecordFlawError
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.replicated_log import ReplicatedLog
from rmqha.store.role import Role


class RateLimit:
    """A limit of one event per interval and key. For one thread at a time, or where an extra event does no harm.

    It keeps at most `MAX_KEYS` keys: a flood of new keys resets it.
    """

    MAX_KEYS = 1000

    def __init__(self, interval_ms: int) -> None:
        self._interval_ns = interval_ms * 1_000_000
        self._said: dict[object, int] = {}  # key -> time of the last event, monotonic ns

    def allow(self, key: object) -> bool:
        """Return whether the event is allowed now; if so, count it."""
        now = time.monotonic_ns()
        last = self._said.get(key)
        if last is not None and now - last < self._interval_ns:
            return False
        if len(self._said) >= self.MAX_KEYS:
            self._said.clear()
        self._said[key] = now
        return True


log = logging.getLogger("RocketmqStore")

_RETRY_MS = 5000
_STORE_WAIT_MS = 20
_ERROR_INTERVAL_MS = 60_000
# Connections of one search for the master's first file, before it pauses.
_MAX_SEARCHES = 200


def parse_address(address: str) -> tuple[str, int] | None:
    """Return (host, port) of "host:port"; None when the text has another form."""
    host, _colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        return None
    return host, int(port)


def _wall_clock_ms(monotonic_ns: int) -> int:
    """Convert a monotonic time in the past to ms since 1970; 0 stays 0."""
    return current_time_millis() - (time.monotonic_ns() - monotonic_ns) // 1_000_000 if monotonic_ns else 0


class SlaveSide(Protocol):
    """The part of HAService that a client uses."""

    config: MessageStoreConfig
    role: Role
    broker_config: BrokerConfig
    replicated_log: ReplicatedLog
    divergence: Divergence

    def start_scrubbing(self) -> None:
        """Start comparing the logs. Called at the master's first frame that begins at this log's end."""

    def destroy_connections(self) -> None:
        """Close the connections of this log's own slaves, and wait for their threads."""


class HAClient(ServiceThread):
    """The thread that keeps a connection to the master, and holds the state that outlives a connection.

    On a master it has no address and waits. State belongs to its thread, unless a comment says otherwise; any thread
    may read `state` and `last_error`, and set `master_address`.

    Java: org.apache.rocketmq.store.ha.HAService$HAClient (4.9.8)
    """

    def __init__(self, ha_service: SlaveSide) -> None:
        super().__init__()
        self.ha_service = ha_service
        self.replicated_log = ha_service.replicated_log
        self.config = ha_service.config
        # replaced by any thread, read at each connect
        self.master_address: str | None = None
        self.state = HAConnectionState.READY
        # why the last connection ended; "" while one works
        self.last_error = ""
        # for the waker and the current connection; created by the thread
        self.selector: selectors.BaseSelector = LATER
        self.flow_monitor = FlowMonitor(self.config)
        self.followed = FollowedRecords()
        # Set while this log is empty: the search for the beginning of the master's first file. Each connection asks the
        # master one question.
        self.search: FirstFileSearch | None = None
        self.known_masters = KnownMasters()
        # Takes a master's HA address, and returns the kind of that master, or None if that is not known now. Set before
        # the start.
        self.ask_main_port: Callable[[str], MasterKind | None] | None = None
        # Takes a master's HA address and a log offset, and returns that master's record at this offset.
        # log_comparison.AskRecord says what b"" and None mean.
        self.ask_record: Callable[[str, int], bytes | None] | None = None
        # True if the next handshake may truncate what the master does not have. Set by any thread, reset when the two
        # logs match.
        self.rejoin_once = False
        # number of bytes verified and appended since the start
        self.verified_bytes = 0
        # number of times that a record failed its checks
        self.verify_failures = 0
        # commit log offset of the last such record
        self.verify_failed_offset = -1
        # offset of the record that is fetched again; -1: none
        self.flawed_at = -1
        # offset of the record to report to the master at the next handshake; -1: none
        self.flaw_to_report = -1
        # (offset at which the log was truncated, its previous end, the file with the truncated bytes)
        self.last_cut: tuple[int, int, str] | None = None
        # ends a pause
        self._rejoin_asked = False
        # created by start, closed by the thread
        self._waker: Waker | None = None
        # Set from the creation of the connection's socket until the connection ends. Any thread may read it.
        self._connection: MasterConnection[Any] | None = None
        # of the previous connections
        self._last_read_ns = self._last_write_ns = 0
        # number of connections of the search
        self._searches = 0
        self._error_limit = RateLimit(_ERROR_INTERVAL_MS)

    @property
    def local_address(self) -> str:
        """The local address of the current connection, "ip:port"; "" while there is none."""
        connection = self._connection
        return "" if connection is None else connection.local_address

    @property
    def transferred_byte_in_second(self) -> int:
        """Number of bytes received in the last complete second."""
        return self.flow_monitor.transferred_byte_in_second

    @property
    def last_read_timestamp(self) -> int:
        """The time at which bytes of the master were last received, ms since 1970; 0 for never."""
        connection = self._connection
        return _wall_clock_ms(connection and connection.last_read_ns or self._last_read_ns)

    @property
    def last_write_timestamp(self) -> int:
        """The time of the last report to the master, ms since 1970; 0 for never."""
        connection = self._connection
        return _wall_clock_ms(connection and connection.last_write_ns or self._last_write_ns)

    def silence_ms(self) -> int:
        """Return for how many ms the master has sent nothing on the current connection; -1 while there is none."""
        connection = self._connection
        if connection is None or not connection.local_address:
            return -1
        return (time.monotonic_ns() - connection.last_read_ns) // 1_000_000

    def retransmits(self) -> int:
        """Return how many times in a row the same bytes were resent to the master without a response of its kernel."""
        connection = self._connection
        return 0 if connection is None else retransmits(connection.socket)

    def update_master_address(self, new_addr: str | None) -> None:
        """Follow `new_addr` ("host:port") from the next connect on; an invalid address is logged and ignored."""
        if new_addr is not None and parse_address(new_addr) is None:
            log.error("the master's HA address %r is not a valid host:port; keeping %s", new_addr, self.master_address)
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
        assert waker is not None  # created by start
        try:
            self.keep_going(partial(self._follow_until_stopped, waker))
        finally:
            self._waker = None
            waker.close()
            self.state = HAConnectionState.SHUTDOWN
        log.info("%s service end", self.get_service_name())

    def _follow_until_stopped(self, waker: Waker) -> None:
        with QuickEpollSelector() as self.selector:
            self.selector.register(waker, selectors.EVENT_READ)
            while not self.stopped:
                self._follow_once()

    def _follow_once(self) -> None:
        """Serve one connection from its beginning to its end, or wait once for a master."""
        if self.replicated_log.is_shutdown:
            # The store starts replication before it accepts appends. Until then no connection is made: appends would
            # fail.
            self.select(_STORE_WAIT_MS / 1000)
            return
        address, retry_ms = self.master_address, None
        try:
            connection = self._connect_master(address)
            if connection is not None:
                connection.follow()
        except ReplicationError as error:
            retry_ms = error.retry_ms
            self._failed(error)
        except OSError as error:
            self._failed(ReplicationError(f"connection to the master {address}: {error}"))
        except Exception as error:
            log.warning("%s service has exception. ", self.get_service_name(), exc_info=True)
            self._failed(ReplicationError(repr(error)))
        finally:
            ended = self._connection
            self._close_master()
        # Differs: a slave pauses before it connects again. Java connects at once, but sends its first
        # report only after haSendHeartbeatInterval. Here the report follows at once, so without a pause a master that
        # refuses the offset would be asked again and again.
        if ended is None or not (ended.appended or self._is_searching(ended)):
            self._pause(self.next_retry_ms() if retry_ms is None else retry_ms, address)

    def next_retry_ms(self) -> int:
        """Return the pause before the next connection, if the last error does not determine it."""
        return _RETRY_MS

    def _is_searching(self, ended: MasterConnection[Any]) -> bool:
        """Return whether the next connection may follow at once."""
        return ended.is_to_be_followed_at_once and self._searches % _MAX_SEARCHES != 0

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
        """Wait for `timeout_ms`; a master address other than `address`, a rejoin or shutdown ends the wait."""
        deadline_ns, self._rejoin_asked = time.monotonic_ns() + timeout_ms * 1_000_000, False
        while not self.stopped and address == self.master_address and not self._rejoin_asked:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                return
            self.select(remaining_ns / 1e9)

    def select(self, timeout_s: float) -> bool:
        """Wait for `timeout_s`; return whether the connection's socket is ready."""
        ready = False
        for key, _events in self.selector.select(timeout_s):
            if key.fileobj is self._waker:
                self._waker.drain()
            else:
                ready = True
        return ready

    def new_connection(self, master_address: str, sock: socket.socket) -> MasterConnection[Any]:
        """Return a connection that is not connected yet."""
        return OffsetMasterConnection(self, master_address, sock)

    def _connect_master(self, address: str | None) -> MasterConnection[Any] | None:
        """Connect within 5 s; return None when there is no address. OSError when it fails."""
        if address is None:
            return None
        place = parse_address(address)
        assert place is not None  # update_master_address has checked
        host, port = place
        family, kind, protocol, _name, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._connection = connection = self.new_connection(address, socket.socket(family, kind, protocol))
        connection.connect(target)
        return connection

    def _close_master(self) -> None:
        connection = self._connection
        if connection is None:
            return
        self._last_read_ns = connection.last_read_ns or self._last_read_ns
        self._last_write_ns = connection.last_write_ns or self._last_write_ns
        self._connection = None
        connection.close()

    # Called by a connection.

    def transfers(self) -> None:
        """Handle the first valid frame from the master."""
        self.state, self.last_error = HAConnectionState.TRANSFER, ""
        if self.config.haScrubEnable and not self.stopped:
            self.ha_service.start_scrubbing()

    def go_on_searching(self) -> FirstFileSearch:
        """Count one more connection of the search for the master's first file, and return the search."""
        if self.search is None:
            self.search, self._searches = FirstFileSearch(self.config.mappedFileSizeCommitLog), 0
        self._searches += 1
        return self.search

    def end_search(self) -> None:
        """End the search, once it is known where this log begins.

        With haSyncFromFirstFile=false the master decides that, and nothing is searched.
        """
        self.search = None

    def fits(self) -> None:
        """Record that this log is a part of the master's."""
        self.rejoin_once = False
        self.ha_service.divergence.log_fits()

    def record_is_flawed(self, master_address: str, flaw: RecordFlawError) -> NoReturn:
        """Handle a record from the master that fails its checks: fetch it again once, then report it."""
        self.verify_failures += 1
        self.verify_failed_offset = flaw.offset
        what = f"the master {master_address} sends damaged bytes: {flaw}; they are not appended or acknowledged"
        if flaw.offset != self.flawed_at:
            self.flawed_at = flaw.offset
            log.error("%s. The record is fetched again", what)
            raise ReplicationError(what, HAConnectionState.APPEND_FAILED, retry_ms=0)
        reason = (f"{what}. The record arrived damaged again: either the network damages it, or the master's own copy "
                  "is damaged (run `rmqha store verify` on the master's store), or its log is a different one than the "
                  "slave's. It is fetched again every few seconds; haVerifyRecords=false accepts it as it is")
        self.ha_service.divergence.record_is_flawed(flaw.offset, reason)
        self.flaw_to_report = flaw.offset
        raise ReplicationError(reason, HAConnectionState.DIVERGED)

    def flaw_is_reported(self, master_address: str) -> None:
        """End a connection whose only purpose was to report a flawed record to the master."""
        offset, self.flaw_to_report = self.flaw_to_report, -1
        if offset >= 0:
            raise ReplicationError(f"reported to the master {master_address} that its record at {offset} arrives "
                                   "damaged", HAConnectionState.DIVERGED)

    def appended_up_to(self, end: int) -> None:
        """Handle an append up to `end`: forget the flawed record once the log contains it."""
        if end > self.flawed_at:
            log.info("the record at %d, which had failed its checks, was fetched again and appended", self.flawed_at)
            self.flawed_at = self.flaw_to_report = -1
            self.ha_service.divergence.record_is_good()

    def diverged(self, master_address: str, end: int, same_up_to: int, held: str) -> NoReturn:
        """Handle bytes that the slave has and the master does not: truncate them if that is allowed, else report them.
        """
        if same_up_to >= 0 and self.may_cut_off:
            path = keep_end(self.replicated_log, self.config.storePathRootDir, same_up_to)
            # Slaves of this slave hold the bytes to be truncated.
            self.ha_service.destroy_connections()
            self.replicated_log.cut_off(same_up_to)
            self.ha_service.divergence.cut_off(same_up_to)
            self.followed.forget()
            self.last_cut = same_up_to, end, path
            raise ReplicationError(f"this slave's log was truncated at {same_up_to}, the last offset up to which it "
                                   f"equals the master's; the bytes from there to {end} are kept in {path}", retry_ms=0)
        what = (f"the logs are equal up to {same_up_to}; `rmqha ha rejoin` truncates the slave's log there, and saves "
                "the truncated bytes to a file" if same_up_to >= 0 else
                "no record at the log's end is also in the master's log: set it up from scratch")
        self.ha_service.divergence.log_differs(
            same_up_to if same_up_to >= 0 else end, f"{what} (the slave's log ends at {end}, the master holds {held})")
        raise ReplicationError(f"this slave can't follow the master {master_address}: SLAVE: {end} MASTER: "
                               f"{held}. The master holds other bytes before the slave's end, or none: this store "
                               f"belongs to another master, or took messages on its own; {what}",
                               HAConnectionState.DIVERGED)

    @property
    def may_cut_off(self) -> bool:
        """True if bytes that the master does not have may be truncated."""
        return self.rejoin_once or self.config.haTruncateDivergedTail

    def rejoin(self) -> None:
        """Let the next handshake truncate bytes that the master does not have, if it finds any. Safe from any
        thread."""
        self.rejoin_once = True
        self._rejoin_asked = True
        self.wakeup()
