"""Saying the same thing at most once in a while.

The slave's side: follows a master's commit log.

    master <==TCP==> MasterConnection, one after the other --append_to_commit_log--> commit log
    master's main port <--what are you?-- HAClient
    BrokerController --update_master_address, shutdown--> wakes it
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
    """`allow(key)` is true once per interval and key. For one thread at a time, or where one more line is no harm.

    Keeps at most `MAX_KEYS` keys: a flood of new ones resets it.
    """

    MAX_KEYS = 1000

    def __init__(self, interval_ms: int) -> None:
        self._interval_ns = interval_ms * 1_000_000
        self._said: dict[object, int] = {}  # key -> when, monotonic ns

    def allow(self, key: object) -> bool:
        """Whether to say it now."""
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
_MAX_SEARCHES = 200  # connections of one search for the first file, before it pauses


def parse_address(address: str) -> tuple[str, int] | None:
    """(host, port) of "host:port"; None when the text has another form."""
    host, _colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        return None
    return host, int(port)


def _wall_clock_ms(monotonic_ns: int) -> int:
    """ms since 1970 of a monotonic time in the past, 0 of 0."""
    return current_time_millis() - (time.monotonic_ns() - monotonic_ns) // 1_000_000 if monotonic_ns else 0


class SlaveSide(Protocol):
    """What a client needs of its HAService."""

    config: MessageStoreConfig
    role: Role
    broker_config: BrokerConfig
    replicated_log: ReplicatedLog
    divergence: Divergence

    def start_scrubbing(self) -> None:
        """The master's frames fit: its log can be compared."""

    def destroy_connections(self) -> None:
        """Close those of this log's own slaves, and wait for their threads."""


class HAClient(ServiceThread):
    """Connects to the master, again and again, and keeps what outlives a connection.

    On a master it runs without an address and waits. All state but `master_address` belongs to its thread; `state`
    and `last_error` may be read by any.

    Java: org.apache.rocketmq.store.ha.HAService$HAClient (4.9.8)
    """

    def __init__(self, ha_service: SlaveSide) -> None:
        super().__init__()
        self.ha_service = ha_service
        self.replicated_log = ha_service.replicated_log
        self.config = ha_service.config
        self.master_address: str | None = None  # replaced by any thread, read at each connect
        self.state = HAConnectionState.READY
        self.last_error = ""  # why the last connection ended, "" while one works
        self.selector: selectors.BaseSelector = LATER  # of the waker and the present connection; made by the thread
        self.flow_monitor = FlowMonitor(self.config)
        self.followed = FollowedRecords()
        self.search: FirstFileSearch | None = None  # for the master's first file, while this log is empty
        self.known_masters = KnownMasters()
        # Asked for what a master is, given its HA address; None: it can't be told now. Set before the start.
        self.ask_main_port: Callable[[str], MasterKind | None] | None = None
        # Asked for the master's record at an offset, given its HA address, see AskRecord.
        self.ask_record: Callable[[str, int], bytes | None] | None = None
        self.rejoin_once = False  # set by any thread, taken back when the two logs fit
        self.verified_bytes = 0  # checked and appended since the start
        self.verify_failures = 0  # records that failed their checks, each time they came
        self.verify_failed_offset = -1  # commit log offset of the last one
        self.flawed_at = -1  # of the one that is fetched again; -1: none
        self.flaw_to_report = -1  # of the one that the master is to be told of at the next handshake
        self.last_cut: tuple[int, int, str] | None = None  # where the log was cut off, where it had ended, the file
        self._rejoin_asked = False  # ends a pause
        self._waker: Waker | None = None  # made by start, closed by the thread
        self._connection: MasterConnection[Any] | None = None  # from its socket to its end; any thread may look
        self._last_read_ns = self._last_write_ns = 0  # of the connections before
        self._searches = 0  # connections of the search
        self._error_limit = RateLimit(_ERROR_INTERVAL_MS)

    @property
    def local_address(self) -> str:
        """This end of the present connection, "ip:port"; "" while there is none."""
        connection = self._connection
        return "" if connection is None else connection.local_address

    @property
    def transferred_byte_in_second(self) -> int:
        """Bytes received in the last whole second."""
        return self.flow_monitor.transferred_byte_in_second

    @property
    def last_read_timestamp(self) -> int:
        """When the master was last heard, ms since 1970; 0 for never."""
        connection = self._connection
        return _wall_clock_ms(connection and connection.last_read_ns or self._last_read_ns)

    @property
    def last_write_timestamp(self) -> int:
        """When it was last reported to, ms since 1970; 0 for never."""
        connection = self._connection
        return _wall_clock_ms(connection and connection.last_write_ns or self._last_write_ns)

    def silence_ms(self) -> int:
        """For how long the master has said nothing on the present connection; -1 while there is none."""
        connection = self._connection
        if connection is None or not connection.local_address:
            return -1
        return (time.monotonic_ns() - connection.last_read_ns) // 1_000_000

    def retransmits(self) -> int:
        """How often in a row the same bytes were sent to the master without an answer of its kernel."""
        connection = self._connection
        return 0 if connection is None else retransmits(connection.socket)

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
        assert waker is not None  # start has made it
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
        """One connection from its beginning to its end, or one wait for a master."""
        if self.replicated_log.is_shutdown:
            # The store starts its replication before it takes appends: nothing may be refused meanwhile.
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
        # Differs: Java connects again at once; a master that refuses the offset would be asked without a pause,
        # now that the first report leaves at once.
        if ended is None or not (ended.appended or self._is_searching(ended)):
            self._pause(self.next_retry_ms() if retry_ms is None else retry_ms, address)

    def next_retry_ms(self) -> int:
        """How long to wait before the master is asked once more, when its last answer says nothing of it."""
        return _RETRY_MS

    def _is_searching(self, ended: MasterConnection[Any]) -> bool:
        """Whether the next connection may follow at once."""
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
        """Wait; a master address other than `address` or shutdown ends it."""
        deadline_ns, self._rejoin_asked = time.monotonic_ns() + timeout_ms * 1_000_000, False
        while not self.stopped and address == self.master_address and not self._rejoin_asked:
            remaining_ns = deadline_ns - time.monotonic_ns()
            if remaining_ns <= 0:
                return
            self.select(remaining_ns / 1e9)

    def select(self, timeout_s: float) -> bool:
        """Wait; whether there is something to do at the connection's socket."""
        ready = False
        for key, _events in self.selector.select(timeout_s):
            if key.fileobj is self._waker:
                self._waker.drain()
            else:
                ready = True
        return ready

    def new_connection(self, master_address: str, sock: socket.socket) -> MasterConnection[Any]:
        """A connection that is yet to be connected."""
        return OffsetMasterConnection(self, master_address, sock)

    def _connect_master(self, address: str | None) -> MasterConnection[Any] | None:
        """Connect within 5 s; None when there is no address, OSError when it fails."""
        if address is None:
            return None
        place = parse_address(address)
        assert place is not None  # as update_master_address has seen to
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

    # What a connection tells.

    def transfers(self) -> None:
        """The master's frames fit."""
        self.state, self.last_error = HAConnectionState.TRANSFER, ""
        if self.config.haScrubEnable and not self.stopped:
            self.ha_service.start_scrubbing()

    def go_on_searching(self) -> FirstFileSearch:
        """One more connection of the search for the master's first file."""
        if self.search is None:
            self.search, self._searches = FirstFileSearch(self.config.mappedFileSizeCommitLog), 0
        self._searches += 1
        return self.search

    def end_search(self) -> None:
        """The log has a beginning, or begins wherever the master likes."""
        self.search = None

    def fits(self) -> None:
        """This log is a part of the master's."""
        self.rejoin_once = False
        self.ha_service.divergence.log_fits()

    def record_is_flawed(self, master_address: str, flaw: RecordFlawError) -> NoReturn:
        """What the master sends fails its checks: fetch it again once, then say so."""
        self.verify_failures += 1
        self.verify_failed_offset = flaw.offset
        what = f"the master {master_address} sends damaged bytes: {flaw}; nothing of it is appended or acknowledged"
        if flaw.offset != self.flawed_at:
            self.flawed_at = flaw.offset
            log.error("%s. It is fetched again", what)
            raise ReplicationError(what, HAConnectionState.APPEND_FAILED, retry_ms=0)
        reason = (f"{what}, and it came so again. Either the network damages it, or the master's own copy is damaged "
                  "(`rmqha store verify` on the master's store), or its log is another one than the slave's. It is "
                  "fetched again every few seconds; haVerifyRecords=false takes it as it is")
        self.ha_service.divergence.record_is_flawed(flaw.offset, reason)
        self.flaw_to_report = flaw.offset
        raise ReplicationError(reason, HAConnectionState.DIVERGED)

    def flaw_is_reported(self, master_address: str) -> None:
        """The master has heard of the flaw, if there was one: this connection was for that alone."""
        offset, self.flaw_to_report = self.flaw_to_report, -1
        if offset >= 0:
            raise ReplicationError(f"the master {master_address} was told that its record at {offset} arrives damaged",
                                   HAConnectionState.DIVERGED)

    def appended_up_to(self, end: int) -> None:
        """The log ends at `end`: the record that had failed its checks is in it, when it lies before that."""
        if end > self.flawed_at:
            log.info("the record at %d, which had failed its checks, was fetched again and appended", self.flawed_at)
            self.flawed_at = self.flaw_to_report = -1
            self.ha_service.divergence.record_is_good()

    def diverged(self, master_address: str, end: int, same_up_to: int, held: str) -> NoReturn:
        """The slave has what the master has not: cut it off when that is wanted, else say so."""
        if same_up_to >= 0 and self.may_cut_off:
            path = keep_end(self.replicated_log, self.config.storePathRootDir, same_up_to)
            self.ha_service.destroy_connections()  # slaves of this one hold what goes
            self.replicated_log.cut_off(same_up_to)
            self.ha_service.divergence.cut_off(same_up_to)
            self.followed.forget()
            self.last_cut = same_up_to, end, path
            raise ReplicationError(f"this slave's log was cut off at {same_up_to}, up to where it is the master's; "
                                   f"what was behind it, up to {end}, is in {path}", retry_ms=0)
        what = (f"its log is the master's up to {same_up_to}; `rmqha ha rejoin` cuts off what is behind it, and keeps "
                "that in a file" if same_up_to >= 0 else
                "nothing of its end is known to be the master's: set it up anew")
        self.ha_service.divergence.log_differs(
            same_up_to if same_up_to >= 0 else end, f"the slave's log ends at {end}, the master holds {held}: {what}")
        raise ReplicationError(f"this slave can't follow the master {master_address}: SLAVE: {end} MASTER: "
                               f"{held}. It holds other bytes in front of the slave's "
                               f"end, or none: this store is of another master, or went on by itself; {what}",
                               HAConnectionState.DIVERGED)

    @property
    def may_cut_off(self) -> bool:
        """Whether what the master does not have is to be cut off."""
        return self.rejoin_once or self.config.haTruncateDivergedTail

    def rejoin(self) -> None:
        """Cut off what the master does not have, at the next handshake that finds anything; any thread."""
        self.rejoin_once = True
        self._rejoin_asked = True
        self.wakeup()
