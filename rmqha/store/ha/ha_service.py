"""Replication of one store: the master's side, the slave's side, the puts that wait for a slave, and status reports.

    slave ==TCP==> AcceptSocketService: greeting; a valid first report --> HAConnection (ReadSocketService,
                                               | acknowledgements           WriteSocketService), one per slave
    putting thread --put_request--> GroupTransferService --> futures
    HAClient ==TCP==> the master, when this store is a slave's (all parts always run, so slaves can be chained)

Rounds. A thread that handles requests handles many at once: all that its last read brought. If each put sent its bytes
to the slaves on its own, that would take one system call per put and slave. So the thread works in rounds (`Round` in
common/futures.py). Within a round, `on_appended` only registers `send_to_slaves`; at the end of the round it runs once
and sends everything that the round appended. Sending to slaves comes before statistics and wake-ups, because the
slave's round trip is the longest part of a synchronous put. A put outside a round sends at once. No code inside a round
may wait for an acknowledgement of its own put, since nothing has been sent yet.
"""
from __future__ import annotations

import errno
import logging
import selectors
import socket
import threading
import time
from collections import Counter
from functools import partial

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.futures import REPLICATE, AtomicInteger, AtomicLong, at_round_end
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.cluster_bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import Waker
from rmqha.remoting.addresses import HA_PORT, listen, plain_address, retransmits
from rmqha.store.flush_services import GroupCommitRequest
from rmqha.store.ha.ack_rules import AckRule, CountedSlaves
from rmqha.store.ha.group_transfer_service import GroupTransferService
from rmqha.store.ha.ha_client import HAClient, RateLimit
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.ha_connection_state_notification_service import (
    HAConnectionStateNotificationRequest,
    HAConnectionStateNotificationService,
)
from rmqha.store.ha.ha_handshake import Range
from rmqha.store.ha.log_comparison import Divergence
from rmqha.store.ha.peers import AllowedPeers, HAConnectionState
from rmqha.store.ha.scrub_service import ScrubService
from rmqha.store.ha.scrub_state import ScrubState
from rmqha.store.ha.wait_notify_object import WaitNotifyObject
from rmqha.store.replicated_log import ReplicatedLog
from rmqha.store.store_path_config_helper import get_diverged_file
from rmqha.store.store_state import StoreState

_MASTER_FLUSH_OFFSET_UNKNOWN = -1


def runtime_info(ha_service: HAService, master_put_where: int) -> HARuntimeInfo:
    """Return, on a slave, the state of its connection to the master; on a master, that of each connection to a
    slave."""
    if ha_service.role.is_slave:
        return HARuntimeInfo(master=False, haClientRuntimeInfo=_client_info(ha_service))
    connections = [_connection_info(ha_service, connection, master_put_where)
                   for connection in ha_service.connection_list if connection.is_serving]
    in_sync = ha_service.ack_rule.in_sync_replicas_nums(master_put_where)
    return HARuntimeInfo(True, master_put_where, in_sync - 1, connections)


def _connection_info(ha_service: HAService, connection: HAConnection, put_where: int) -> HAConnectionRuntimeInfo:
    acked = connection.slave_ack_offset
    return HAConnectionRuntimeInfo(
        addr=connection.client_addr, slaveAckOffset=acked, diff=put_where - acked,
        inSync=ha_service.ack_rule.is_in_sync(put_where, acked),
        transferredByteInSecond=connection.transferred_byte_in_second,
        transferFromWhere=connection.transfer_from_where)


def _client_info(ha_service: HAService) -> HAClientRuntimeInfo:
    client, diverged = ha_service.ha_client, ha_service.divergence.found
    return HAClientRuntimeInfo(
        masterAddr=client.master_address, transferredByteInSecond=client.transferred_byte_in_second,
        maxOffset=ha_service.replicated_log.get_max_phy_offset(),
        lastReadTimestamp=client.last_read_timestamp, lastWriteTimestamp=client.last_write_timestamp,
        masterFlushOffset=_MASTER_FLUSH_OFFSET_UNKNOWN, state=_client_state(ha_service),
        divergedOffset=diverged.offset if diverged is not None else -1,
        divergedReason=diverged.reason if diverged is not None else None)


def _client_state(ha_service: HAService) -> str:
    """Return the state of a slave's connection; DIVERGED has priority over all others.

    A slave with wrong queues may well be connected and up to date with its master.
    """
    diverged = ha_service.divergence.found is not None
    return (HAConnectionState.DIVERGED if diverged else ha_service.ha_client.state).value


def build_running_stats(ha_service: HAService, stats: dict[str, str]) -> None:
    """Add the state of replication to a broker's runtime information.

    `haSlave_<ip:port>` = state, ack offset, bytes behind, ms behind, bytes sent in the last second, identity.
    `haSlaveLost_<ip:port>` = from, to: the slave had acknowledged this range, but returned without it; the master is
    sending it again.
    `haSlaveSilenceMs_<ip:port>`, `haClientSilenceMs`: the time since the peer last sent anything.
    `haSlaveRetransmits_<ip:port>`, `haClientRetransmits`: how often in a row the kernel has resent the same bytes.
    `haClientAddress`: the slave's end of its connection, as its master sees it when there is no proxy in between.
    `haRefusedSlave_<ip>_<offset>` = the refused offset, and the lowest and the highest offset that the master holds;
    after a handshake also the offset up to which both logs are identical, if the slave has found it. On a slave:
    haMasterAddress, haClientState, haClientLastError, and the results of the slave's checks (haVerified...,
    haVerifyFail..., haScrub..., see `_add_checks`). If it has diverged (haClientState is then DIVERGED):
    haDivergedOffset, haDivergedReason, and haDivergedCount, which is the number of records that did not fit into their
    queue. `haCutOff` = where its log was truncated to rejoin, where it had ended, the file that contains the truncated
    bytes.
    """
    highest = ha_service.replicated_log.get_max_phy_offset()
    stats["haConnectionCount"] = str(ha_service.connection_count.get())
    stats["haSlaveCount"] = str(ha_service.slave_count())
    stats["haPush2SlaveMaxOffset"] = str(ha_service.push2_slave_max_offset.get())
    for connection in ha_service.connection_list:
        acked = connection.slave_ack_offset
        stats[f"haSlave_{connection.client_addr}"] = (
            f"{connection.state.value},{acked},{highest - max(0, acked)},{connection.behind_ms()},"
            f"{connection.transferred_byte_in_second},{connection.slave_identity}")
        if connection.lost_from is not None and connection.is_serving and acked < connection.lost_from[1]:
            stats[f"haSlaveLost_{connection.client_addr}"] = f"{connection.lost_from[0]},{connection.lost_from[1]}"
        stats[f"haSlaveSilenceMs_{connection.client_addr}"] = str(connection.silence_ms())
        stats[f"haSlaveRetransmits_{connection.client_addr}"] = str(retransmits(connection.socket))
    for refused in ha_service.refused_slaves():
        stats[f"haRefusedSlave_{refused.host}_{refused.slave_offset}"] = (
            f"{refused.slave_offset},{refused.master_min_offset},{refused.master_max_offset}"
            + (f",{refused.same_up_to}" if refused.same_up_to >= 0 else ""))
    client = ha_service.ha_client
    if client.master_address is not None:
        stats["haMasterAddress"] = client.master_address
        stats["haClientState"] = _client_state(ha_service)
        stats["haClientLastError"] = client.last_error
        stats["haClientAddress"] = client.local_address
        stats["haClientSilenceMs"] = str(client.silence_ms())
        stats["haClientRetransmits"] = str(client.retransmits())
        _add_checks(ha_service, stats)
    if client.last_cut is not None:
        stats["haCutOff"] = ",".join(map(str, client.last_cut))
    diverged = ha_service.divergence.found
    if diverged is not None:
        stats["haDivergedOffset"], stats["haDivergedReason"] = str(diverged.offset), diverged.reason
        stats["haDivergedCount"] = str(ha_service.divergence.queue_count)


def _add_checks(ha_service: HAService, stats: dict[str, str]) -> None:
    """Add the results of a slave's two checks: it verifies records before it acknowledges them, and compares the logs.

    `haScrubUnscrubbedMs`: age of the oldest byte that is due for comparison, see ScrubState. `haScrubFirstDifference`,
    `haScrubFirstReason` and `haScrubDamaged` (copies that fail their checks, by side: `master:1,slave:2`) are added
    only if there is a difference, `haScrubLastError` only if the master can't be queried.
    """
    client, scrub = ha_service.ha_client, ha_service.scrub
    stats["haVerifiedBytes"] = str(client.verified_bytes)
    stats["haVerifyFailures"] = str(client.verify_failures)
    if client.verify_failures:
        stats["haVerifyFailedOffset"] = str(client.verify_failed_offset)
    stats["haScrubState"] = scrub.state
    stats["haScrubPosition"] = str(scrub.position)
    stats["haScrubRoundBegin"], stats["haScrubRoundEnd"] = str(scrub.round_begin), str(scrub.round_end)
    stats["haScrubUnscrubbedMs"] = str(scrub.unscrubbed_ms())
    stats["haScrubRounds"], stats["haScrubComparedBytes"] = str(scrub.rounds), str(scrub.compared_bytes)
    stats["haScrubDifferences"] = str(scrub.differences)
    if scrub.found:
        first = min(scrub.found)
        stats["haScrubFirstDifference"], stats["haScrubFirstReason"] = str(first.offset), first.reason
        damaged = Counter(each.where for each in scrub.found)
        stats["haScrubDamaged"] = ",".join(f"{where}:{count}" for where, count in sorted(damaged.items()))
    if scrub.last_error:
        stats["haScrubLastError"] = scrub.last_error


log = logging.getLogger("RocketmqStore")

_SELECT_MS = 1000
_BACKLOG = 1024
_ACCEPT_PAUSE_MS = 100
_ERROR_INTERVAL_MS = 60_000
_FORGET_REFUSED_MS = 60_000
_MAX_REFUSED = 100
# The limit on connections that have reported nothing yet; beyond it, the one that was silent longest is closed.
# Differs: the number of HA connections that have reported nothing yet is limited; 4.9 starts two threads for every peer
# that connects.
MAX_WAITING = 128
# The limit on connections whose questions about the log are being answered; beyond it, the one that was silent longest
# is closed.
MAX_COMPARING = 16
# Errors of accept(): this process can't accept a connection now.
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# The listening socket can't be used any more. All other errors mean that the connection is gone already.
_BROKEN = (errno.EBADF, errno.EINVAL, errno.ENOTSOCK)


@dataclass(slots=True, frozen=True)
class RefusedSlave:
    """A slave whose offset the master does not hold, as last seen."""

    host: str
    slave_offset: int
    master_min_offset: int
    master_max_offset: int
    refused_at_ns: int  # monotonic
    # The log offset up to which both logs are identical, if the slave has found it; -1: not known.
    same_up_to: int = -1


class HAService:
    """The replication of one store: serves slaves, follows a master, and completes the puts of a SYNC_MASTER.

    `connection_list` is replaced as a whole under `_lock` and read without it. `push2_slave_max_offset` is the highest
    offset that any slave has acknowledged; it never falls.

    Java: org.apache.rocketmq.store.ha.HAService (4.9.8)
    """

    def __init__(self, replicated_log: ReplicatedLog, state: StoreState, broker_config: BrokerConfig) -> None:
        self.replicated_log = replicated_log
        self.config = state.config
        self.role = state.role
        self.broker_config = broker_config
        # all peers, including those that have reported nothing yet
        self.connection_count = AtomicInteger(0)
        self.connection_list: tuple[HAConnection, ...] = ()
        self.wait_notify_object = WaitNotifyObject()
        self.push2_slave_max_offset = AtomicLong(0)
        # The slave that usually acknowledges first. It is sent each put at once. For the others, puts gather for a
        # moment and are sent together (see ha_connection). Written by any ReadSocketService; the last write wins.
        self.leader: HAConnection | None = None
        self.counted_slaves = CountedSlaves(self.config, self, replicated_log.get_max_phy_offset)
        self.ack_rule = self.new_ack_rule()
        self.accept_socket_service = AcceptSocketService(self)
        self.group_transfer_service = GroupTransferService(self.ack_rule, self.role)
        # of this store as a slave
        self.divergence = Divergence(get_diverged_file(self.config.storePathRootDir))
        self.ha_client = self.new_client()
        self.ha_connection_state_notification_service = HAConnectionStateNotificationService(
            self.role, lambda: self.connection_list, lambda: self.ha_client.state)
        self.scrub_service = ScrubService(replicated_log, self.role, self.ha_client)
        self._lock = threading.Lock()  # guards connection_list's replacement and _refused
        self._stopped = True  # guarded by _lock: no connection is added once it is set
        self._refused: dict[tuple[str, int], RefusedSlave] = {}
        # name of a slave -> the highest offset that it has ever acknowledged; guarded by _lock
        self._acknowledged: dict[str, int] = {}
        self._error_limit = RateLimit(_ERROR_INTERVAL_MS)

    # Overridden by AutoSwitchHAService (enableAutoSwitchHA).

    def new_ack_rule(self) -> AckRule:
        """Return the rule that says which replicas must have a put before it is acknowledged."""
        return self.counted_slaves

    def new_client(self) -> HAClient:
        """Return the client that follows a master."""
        return HAClient(self)

    def new_connection(self, sock: socket.socket, client_addr: str) -> HAConnection:
        """Return the connection of a peer that was just accepted; it is not registered yet."""
        return HAConnection(self, sock, client_addr)

    @property
    def scrub(self) -> ScrubState:
        """The progress of comparing this log with its master's, on a slave."""
        return self.scrub_service.state

    @property
    def ha_listen_port(self) -> int:
        """The bound port once started, the configured one before."""
        return self.accept_socket_service.listen_port or self.config.haListenPort

    def update_master_address(self, new_addr: str | None) -> None:
        """Set the address of the master's HA port, "host:port", for the next connect. None: follow no master."""
        self.ha_client.update_master_address(new_addr)

    def put_request(self, request: GroupCommitRequest) -> None:
        """Complete `request` once a slave has its bytes, or at its deadline."""
        self.group_transfer_service.put_request(request)

    def on_appended(self) -> None:
        """Handle a put's growth of the log. On a SYNC_MASTER, the calling thread sends the new bytes, at the end of its
        round. In other roles, wake the writing threads.

        Differs: on a SYNC_MASTER the thread of a put sends its bytes to slaves. Java wakes the writing threads, and
        only for puts that wait for a slave.
        """
        if not self.role.is_sync_master:
            self.wait_notify_object.wakeup_all()
        elif not at_round_end(REPLICATE, self.send_to_slaves):
            self.send_to_slaves()

    def send_to_slaves(self) -> None:
        """Send each slave what it lacks, as far as possible without waiting; the writing threads do the rest."""
        all_sent = True
        for connection in self.connection_list:
            all_sent &= connection.write_socket_service.transfer_now()
        if not all_sent:
            self.wait_notify_object.wakeup_all()

    def send_appended(self, offset: int, appended: bytes) -> None:
        """Do what `on_appended` does, but send now instead of at the end of the round.

        For a round that serves only one connection: waiting for its end would gather no puts of other connections.
        `appended`: the bytes that were just appended at `offset`.
        """
        all_sent = self.role.is_sync_master
        if all_sent:
            for connection in self.connection_list:
                all_sent &= connection.write_socket_service.transfer_appended(offset, appended)
        if not all_sent:
            self.wait_notify_object.wakeup_all()

    def why_no_puts(self) -> str | None:
        """Return, as a text for producers, why this broker's role refuses puts; None if it does not. In this class it
        never does. A role that a controller assigns may refuse puts: AutoSwitchHAService overrides this method."""
        return None

    def slave_count(self) -> int:
        """Return the number of slaves that have reported and are being served."""
        return len(self.counted_slaves.slave_acks())

    def slave_acknowledged(self, connection: HAConnection, ack_offset: int) -> bool:
        """Handle a slave's acknowledgement of everything below `ack_offset`; return whether it is the first to reach
        that offset.

        Java: org.apache.rocketmq.store.ha.HAService#notifyTransferSome (4.9.8)
        """
        is_news = self.push2_slave_max_offset.set_max(ack_offset)
        if is_news or self.group_transfer_service.waits_for_several:
            self.group_transfer_service.notify_transfer_some()
        return is_news

    def any_slave_will_do(self) -> bool:
        """Return whether puts wait for at most one slave, no matter which."""
        return self.ack_rule.any_slave_will_do() and not self.group_transfer_service.waits_for_several

    def start_scrubbing(self) -> None:
        """Start comparing this log with the master's. HAClient calls it at the master's first frame that begins at this
        log's end."""
        self.scrub_service.start()

    def put_group_connection_state_request(self, request: HAConnectionStateNotificationRequest) -> None:
        """Complete `request` when its connection reaches the requested state."""
        service = self.ha_connection_state_notification_service
        with self._lock:
            if not self._stopped:
                # Differs: the thread that watches connection states starts with the first request; 5.1.4 runs it in
                # every broker, but most brokers never need it.
                service.start()
                service.set_request(request)
                return
        request.request_future.complete(False)

    def get_runtime_info(self, master_put_where: int) -> HARuntimeInfo:
        """Return the state of replication; `master_put_where` is the end of the log."""
        return runtime_info(self, master_put_where)

    def held_range(self) -> Range:
        """Return the range of offsets that this log holds."""
        held = self.replicated_log
        return Range(max(0, held.get_min_phy_offset()), max(0, held.get_max_phy_offset()))

    def connection_serves(self, connection: HAConnection) -> None:
        """Handle the beginning of a transfer: close older connections of a slave with the same name."""
        self.ha_connection_state_notification_service.check_connection_state_and_notify(connection)
        # A connection without a name is identified by its host only. An older one from there may be another slave's, so
        # it is not closed.
        if not connection.is_named:
            return
        connections = self.connection_list
        # If this connection was closed meanwhile, the slave may already have a newer one, which must stay open.
        if connection not in connections:
            return
        self._look_for_lost_bytes(connection)
        for other in connections[:connections.index(connection)]:
            if other.slave_identity == connection.slave_identity:
                if self._error_limit.allow(("twice", other.slave_identity)):
                    log.warning("slave %s has reconnected, from %s; closing its connection from %s. If this continues, "
                                "two brokers run with the same brokerClusterName, brokerName and brokerId: give one of "
                                "them another brokerId", other.slave_identity, connection.client_addr,
                                other.client_addr)
                other.close()

    def start(self) -> None:
        """Listen and start the services. PortError when the port can't be used, ValueError for bad haAllowedPeers."""
        self.accept_socket_service.begin_accept()
        if self.role.is_slave:
            self.divergence.load()
            self.scrub_service.load()
        with self._lock:
            self._stopped = False
        try:
            self.group_transfer_service.start()
            self.accept_socket_service.start()
            self.ha_client.start()
        except RuntimeError:  # no more threads
            self.shutdown()
            raise

    def shutdown(self) -> None:
        """Stop following, listening and serving. Idempotent."""
        self.ha_client.shutdown()
        # after the client, which starts it
        self.scrub_service.shutdown()
        with self._lock:
            self._stopped = True
        self.accept_socket_service.shutdown(True)
        self.destroy_connections()
        self.group_transfer_service.shutdown()
        self.ha_connection_state_notification_service.shutdown()

    def _look_for_lost_bytes(self, connection: HAConnection) -> None:
        """Report a slave that returns with less than it had acknowledged, usually after a power loss.

        It is sent the lost bytes again, and from now on only the offset that it reports counts. No put that still waits
        relies on the lost bytes. If any one slave is enough, the end offset of a put that still waits is above
        everything ever acknowledged. If a put needs several replicas, only the slaves' present offsets count.
        """
        for other in self.connection_list:
            if other is not connection and other.slave_identity == connection.slave_identity:
                self._remember_acknowledged(other)
        known = self._acknowledged.get(connection.slave_identity, -1)
        if connection.slave_request_offset < known:
            connection.lost_from = connection.slave_request_offset, known
            log.error("slave %s had acknowledged %d, but returns with %d: the bytes in between were only in its memory "
                      "and were lost; they are sent again. With haSlaveAckAfterFlush=true the slave acknowledges only "
                      "what is on its disk", connection.slave_identity, known, connection.slave_request_offset)

    def forget_acknowledged(self) -> None:
        """Forget what slaves have acknowledged, because it referred to another log."""
        with self._lock:
            self._acknowledged.clear()

    def _remember_acknowledged(self, connection: HAConnection) -> None:
        if connection.is_named and connection.slave_ack_offset >= 0:
            with self._lock:
                name = connection.slave_identity
                if len(self._acknowledged) >= _MAX_REFUSED and name not in self._acknowledged:
                    self._acknowledged.clear()
                self._acknowledged[name] = max(self._acknowledged.get(name, -1), connection.slave_ack_offset)

    def add_connection(self, connection: HAConnection) -> bool:
        """Register a connection before its threads start; return False when the service has been shut down."""
        with self._lock:
            if self._stopped:
                return False
            self.connection_list = (*self.connection_list, connection)
            self.connection_count.increment_and_get()
            return True

    def remove_connection(self, connection: HAConnection) -> None:
        """Forget a connection; does nothing the second time."""
        self._remember_acknowledged(connection)
        with self._lock:
            if connection in self.connection_list:
                self.connection_list = tuple(one for one in self.connection_list if one is not connection)
                self.connection_count.decrement_and_get()
        if self.leader is connection:
            self.leader = None
        self.ha_connection_state_notification_service.check_connection_state_and_notify(connection)

    def destroy_connections(self) -> None:
        """Close all connections and wait for their threads."""
        for connection in self.connection_list:
            connection.shutdown()

    def slave_refused(self, connection: HAConnection, slave_offset: int, reason: str = "",
                      same_up_to: int = -1) -> int:
        """Record and log a slave that can't be served; return the nearest offset that it could be served from."""
        lowest, highest = self.held_range()
        reason = reason or ("has lost bytes that the slave holds" if slave_offset > highest
                            else "has deleted bytes that the slave needs")
        host = connection.client_addr.rpartition(":")[0]
        refused = RefusedSlave(host, slave_offset, lowest, highest, time.monotonic_ns(), same_up_to)
        with self._lock:
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused[host, slave_offset] = refused
            say = self._error_limit.allow((host, slave_offset))
        if say:
            log.error("slave[%s] can't be served: SLAVE: %d MASTER: %d to %d. The master %s. `rmqha ha status` "
                      "prints the remedy", connection.client_addr, slave_offset, lowest, highest, reason)
        return highest if slave_offset > highest or slave_offset == lowest else lowest

    def refused_slaves(self) -> list[RefusedSlave]:
        """Return the slaves that were refused within the last minute; a refused slave retries every few seconds."""
        begin_ns = time.monotonic_ns() - _FORGET_REFUSED_MS * 1_000_000
        with self._lock:
            recent = {key: refused for key, refused in self._refused.items()
                      if refused.refused_at_ns >= begin_ns}
            self._refused = recent
            return list(recent.values())

    def build_running_stats(self, stats: dict[str, str]) -> None:
        """Add the state of replication to `stats`, for operators.

        Differs: the runtime info of a broker has the state of replication; 4.9 reports none of it.
        """
        build_running_stats(self, stats)


class AcceptSocketService(ServiceThread):
    """The thread that accepts slaves. It creates a HAConnection for each, and reads it up to a valid first report.

    So a silent peer costs a descriptor but no thread, and at most MAX_WAITING such peers are kept. A peer whose log is
    being compared has a thread of its own, because checksums take time; there are at most MAX_COMPARING of these.
    Whichever way this thread ends, it closes the port; `on_failed` is called if it ends without having been stopped.

    Like 4.9, this thread checks no identity. So a 4.9 slave that reconnects while its half-open connection still exists
    is served twice, until housekeeping ends the old connection. But that slave counts only once.

    Java: org.apache.rocketmq.store.ha.HAService$AcceptSocketService (4.9.8)
    """

    # In a row. The pauses in between grow.
    max_failures = 10

    def __init__(self, ha_service: HAService) -> None:
        super().__init__()
        self.ha_service = ha_service
        self.listen_port = 0  # set by begin_accept
        # owned by this thread once it runs
        self._server_socket: socket.socket | None = None
        self._waker: Waker | None = None
        self._allowed_peers = AllowedPeers(None)  # set by begin_accept
        self._refused_limit = RateLimit(_ERROR_INTERVAL_MS)
        # Both belong to this thread: connections that have reported nothing yet, in order of arrival; and those that
        # were given threads before they had reported.
        self._waiting: dict[HAConnection, None] = {}
        self._comparing: list[HAConnection] = []

    def begin_accept(self) -> None:
        """Bind and listen on haListenPort of all addresses; port 0 takes a free one. PortError when that fails."""
        self._allowed_peers = AllowedPeers(self.ha_service.config.haAllowedPeers)
        sock = listen(self.ha_service.config.haListenPort, HA_PORT, _BACKLOG)
        self._server_socket, self._waker = sock, Waker()
        self.listen_port = sock.getsockname()[1]

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        server_socket, waker = self._server_socket, self._waker
        assert server_socket is not None and waker is not None  # begin_accept comes first
        try:
            self.keep_going(partial(self._accept_until_stopped, server_socket, waker))
        finally:
            while self._waiting:
                connection, _none = self._waiting.popitem()
                connection.close()
                connection.end_waiting()
            server_socket.close()
            waker.close()
        log.info("%s service end", self.get_service_name())

    def _accept_until_stopped(self, server_socket: socket.socket, waker: Waker) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(server_socket, selectors.EVENT_READ)
            selector.register(waker, selectors.EVENT_READ)
            # left over from a run of this method that failed
            for connection in self._waiting:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            while not self.stopped:
                for key, _events in selector.select(_SELECT_MS / 1000):
                    if key.data in self._waiting:
                        self._hear(selector, key.data)
                waker.drain()
                if not self._accept_all(selector, server_socket):
                    self.wait_for_running(_ACCEPT_PAUSE_MS)
                for connection in [one for one in self._waiting if one.closing or one.expired()]:
                    self._close(selector, connection)

    def _hear(self, selector: selectors.BaseSelector, connection: HAConnection) -> None:
        """Read from a waiting connection; after a valid first report, its own threads take over."""
        try:
            goes_on = connection.hear()
        except Exception:
            log.exception("%s service has exception. ", self.get_service_name())
            goes_on = False
        if not goes_on:
            self._close(selector, connection)
        elif connection.has_reported or connection.asks_for_log:
            self._leave(selector, connection)
            if not connection.has_reported:
                self._make_room_to_compare(connection)
            connection.start()
            connection.end_waiting()

    def _make_room_to_compare(self, connection: HAConnection) -> None:
        self._comparing = [one for one in self._comparing if not (one.closing or one.has_reported)]
        if len(self._comparing) == MAX_COMPARING:
            oldest = max(self._comparing, key=lambda one: one.silence_ms())
            self._comparing.remove(oldest)
            if self._refused_limit.allow("comparing"):
                log.warning("more than %d connections are having their logs compared; closing the one silent longest: "
                            "%s, %d ms", MAX_COMPARING, oldest.client_addr, oldest.silence_ms())
            oldest.close()
        self._comparing.append(connection)

    def _close(self, selector: selectors.BaseSelector, connection: HAConnection) -> None:
        self._leave(selector, connection)
        try:
            connection.close()
        finally:
            connection.end_waiting()

    def _leave(self, selector: selectors.BaseSelector, connection: HAConnection) -> None:
        self._waiting.pop(connection, None)
        selector.unregister(connection.socket)

    def wakeup(self) -> None:
        super().wakeup()
        if self._waker is not None:
            self._waker.wakeup()

    def shutdown(self, interrupt: bool = False) -> None:
        super().shutdown(interrupt)
        # If the thread never ran, nothing else closes these two. Closing them twice does no harm.
        if self._server_socket is not None and self._waker is not None:
            self._server_socket.close()
            self._waker.close()

    def _accept_all(self, selector: selectors.BaseSelector, server_socket: socket.socket) -> bool:
        """Accept all pending connections; return False when this process can't accept more now."""
        while not self.stopped:
            try:
                sock, address = server_socket.accept()
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno in _NO_ROOM:
                    log.error("%s service has exception. %s", self.get_service_name(), error)
                    return False
                if error.errno in _BROKEN:
                    raise
                log.info("a connection was closed before it was accepted: %s", error)
                continue
            host, port = plain_address(address)
            client_addr = f"{host}:{port}"
            if not self._allowed_peers.allows(host):
                if self._refused_limit.allow(host):
                    log.warning("%s is not in haAllowedPeers; closing its connection", client_addr)
                sock.close()
                continue
            log.info("HAService receive new connection, %s", client_addr)
            self._serve(selector, sock, client_addr)
            if len(self._waiting) > MAX_WAITING:
                oldest = max(self._waiting, key=lambda one: one.silence_ms())
                if self._refused_limit.allow("silent"):
                    log.warning("more than %d connections have reported nothing; closing the one silent longest: %s, "
                                "%d ms", MAX_WAITING, oldest.client_addr, oldest.silence_ms())
                self._close(selector, oldest)
        return True

    def _serve(self, selector: selectors.BaseSelector, sock: socket.socket, client_addr: str) -> None:
        try:
            connection = self.ha_service.new_connection(sock, client_addr)
        except Exception:
            log.exception("new HAConnection exception")
            sock.close()
            return
        try:
            # Differs: a slave's connection is registered before it is read. Java starts it first and registers it
            # afterwards; a connection that ends in between stays registered forever.
            if self.ha_service.add_connection(connection) and connection.begin_waiting():
                self._waiting[connection] = None
                selector.register(sock, selectors.EVENT_READ, connection)
            else:
                connection.close()
        except Exception:
            log.exception("%s service has exception. ", self.get_service_name())
            connection.close()
