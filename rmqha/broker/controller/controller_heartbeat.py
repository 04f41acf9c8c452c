"""Heartbeats of a broker to its controllers, the master's lease that they renew, and the master's HA address.

`MasterLease` is the time until which a master may acknowledge without asking again.

    ReplicasManager  --granted, renounced-->  MasterLease  <--holds--  every acknowledgement

`MasterHaAddress` finds where slaves connect to the master if the controller does not report it (only rmqha's do).

    ReplicasManager_ExecutorService_: the master's main port (rmqha's reports it), the name servers --> ReplicasManager

`ControllerHeartbeat` periodically reports to one controller that this broker is alive; the answer names the master.

    ControllerHeartbeat, one per controller --904, to a controller of RocketMQ also 1005 and 1004--> its answers
      --> ReplicasManager: the lease, which controller leads, whether the role is to change
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.master_main_port import HA_ADDRESS_FIELD, HA_PORT_FIELD
from rmqha.common.protocol import response_code
from rmqha.common.service_thread import ServiceThread
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol.fastjson import FastjsonError

if TYPE_CHECKING:
    from rmqha.broker.broker_outer_api import BrokerOuterAPI
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.broker.controller.replicas_manager import ReplicasManager


_NS_PER_MS = 1_000_000
_KEPT_SHARE = 0.9  # of what a controller grants: the rest is for clocks that do not go at the same pace


class MasterLease:
    """The leading controller's word that nobody else is made the master before a moment.

    Leases are taken of one leadership at a time, which each heartbeat names: `term`. So a controller that is named in
    one knows that this process holds no lease of a leader of before, and will take none: who is followed next has
    answered what was asked behind the beginning of this one, and a leader that was not named in the question asks its
    store behind it whether it still leads.

    It counts from when the question left, so it ends here before it ends at the controller, which counts from when the
    question came. The end of a connection to any controller takes the lease with it at once, before the connection is
    closed if it is this side that closes it: the controller that leads by now takes that for the end of this process.
    An answer to what was asked before that grants nothing: its controller may have lost the lead since. Any thread may
    ask `holds`, which reads one attribute and the monotonic clock.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards writing what follows
        self._until_ns = 0  # of the clock; 0: there is none
        self._renounced_ns = -1  # of the clock, the last time
        self.term = 0  # the leadership that is followed, written under the lock; 0: of no controller of rmqha
        self._followed_ns = -1  # of the clock, since when

    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        """The leading controller has answered what was asked at `asked_ns` (of the clock): you are the master.

        It has answered in this term, and the question named another one or the same: `asked_of`. Returns whether that
        counts: it is the leadership that is followed, or a later one, which is followed from now on. 0 ms: no lease.
        """
        with self._lock:
            until_ns = self._until_ns
            if term != self.term:
                if term in (asked_of, 0) or asked_ns <= self._followed_ns:
                    return False  # that one leads no more, or may not
                self.term, self._followed_ns, until_ns = term, self._clock(), 0
            if lease_ms > 0 and asked_ns > self._renounced_ns:
                until_ns = max(until_ns, asked_ns + int(lease_ms * _KEPT_SHARE * _NS_PER_MS))
            self._until_ns = until_ns
            return True

    def follows_nobody(self) -> None:
        """The controllers have forgotten this broker: it follows whoever answers what is asked from now on."""
        with self._lock:
            self.term, self._followed_ns, self._until_ns = 0, self._clock(), 0

    def renounced(self, for_ms: float = 0) -> None:
        """It says otherwise, its connection has ended, or the mastership is handed over: there is no lease any more.

        Nor will there be one by what is asked within `for_ms` from now on, but for a new role.
        """
        with self._lock:
            self._until_ns = 0
            self._renounced_ns = max(self._renounced_ns, self._clock() + int(for_ms * _NS_PER_MS))

    def role_changes(self) -> None:
        """There is no lease for the new role yet."""
        with self._lock:
            self._until_ns, self._renounced_ns = 0, self._clock()

    def holds(self) -> bool:
        """Whether this master may acknowledge now."""
        return self._clock() < self._until_ns

    def left_ms(self) -> float:
        """How long it still holds; 0 when it does not."""
        return max(0, self._until_ns - self._clock()) / _NS_PER_MS


log = logging.getLogger("RocketmqBroker")

_FIRST_PAUSE_MS, _MAX_PAUSE_MS = 50, 1000


class MasterHaAddress:
    """Finds it, for as long as the role does not change.

    Differs: in 5.1.4 a slave learns it when it registers with a name server next.
    """

    def __init__(self, api: BrokerOuterAPI, registration: BrokerRegistration) -> None:
        self._api = api
        self._registration = registration
        self._pause = threading.Event()  # never set

    def find(self, master_address: str, is_wanted: Callable[[], bool]) -> str | None:
        """Look for it as long as it is wanted; None when it is no more. May take long."""
        pause_ms = _FIRST_PAUSE_MS
        while is_wanted():
            address = self._ask_master(master_address) or self._ask_name_servers(master_address)
            if address is not None:
                return address
            self._pause.wait(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _MAX_PAUSE_MS)
        return None

    def _ask_master(self, master_address: str) -> str | None:
        try:
            fields = self._api.get_broker_ha_fields(master_address)
        except RemotingException as error:
            log.info("the master %s does not tell its HA address: %s", master_address, error)
            return None
        if HA_ADDRESS_FIELD in fields:
            return fields[HA_ADDRESS_FIELD]
        port = fields.get(HA_PORT_FIELD)
        return None if port is None else f"{master_address.rpartition(':')[0]}:{port}"

    def _ask_name_servers(self, master_address: str) -> str | None:
        """They tell a slave that registers."""
        self._registration.register_broker_all(True, False, True)
        told = self._registration.registered_master
        return told[1] if told is not None and told[0] == master_address else None


_MAX_DOUBLED = 4
_LEADERLESS_INTERVAL_MS = 200  # while no controller is known to lead

CALL_ERRORS = (RemotingException, FastjsonError)


class ControllerHeartbeat(ServiceThread):
    """Heartbeats to one controller, each of which waits for its answer; one that hangs delays nobody else's.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager#sendHeartbeatToController (5.1.4)
    """

    def __init__(self, manager: ReplicasManager, address: str, number: int) -> None:
        super().__init__()
        self.daemon = True
        self.join_time_ms = 5000
        self.address = address
        self._manager = manager
        self._api = manager.api
        self._config = manager.broker_config
        self._number = number
        self._heard_ns = time.monotonic_ns()  # the last answer, or when the silent connection was closed
        self._closed = 0  # how often in a row it was closed because it was silent
        self._asked_leader_ns = 0  # who leads
        self._again_ns = 0  # the last heartbeat that was followed by another one at once
        self._last_error = ""

    def get_service_name(self) -> str:
        return f"ReplicasManager_Heartbeat_{self._number}"

    def run(self) -> None:
        while not self.stopped:
            self.beat()
            interval_ms = self._config.brokerHeartbeatInterval
            if not self._manager.controller_leader_address:
                interval_ms = min(interval_ms, _LEADERLESS_INTERVAL_MS)
            self.wait_for_running(interval_ms)

    def beat(self) -> None:
        """One heartbeat, and what its answer asks for."""
        asked_ns = time.monotonic_ns()
        try:
            header = self._manager.heartbeat()
            answer = self._api.send_heartbeat(self.address, header, self._config.sendHeartbeatTimeoutMillis)
            self._heard_ns, self._closed = time.monotonic_ns(), 0
            if answer.leaseMillis is None:
                self._ask_who_leads(doubted=False)
                self._ask_for_more()
            elif answer.masterEpoch is None:  # one of rmqha that does not lead, or does not know this broker yet
                self._ask_who_leads(doubted=self._manager.controller_leader_address == self.address)
            else:
                if self._manager.told_by_leader(self.address, answer, asked_ns, header.leaderTerm or 0):
                    self._beat_again(asked_ns)
            self._last_error = ""
        except BrokerAnswerException as error:
            self._heard_ns = time.monotonic_ns()
            self._failed(error)
            if error.response_code == response_code.CONTROLLER_NOT_LEADER:
                self._manager.leads_no_more(self.address)
        except CALL_ERRORS as error:
            self._failed(error)
            self._maybe_close()

    def _beat_again(self, asked_ns: int) -> None:
        """At once, but not on and on: two controllers that know nothing of each other would both lead."""
        if asked_ns - self._again_ns > _LEADERLESS_INTERVAL_MS * _NS_PER_MS:
            self._again_ns = asked_ns
            self.wakeup()

    def _ask_who_leads(self, doubted: bool) -> None:
        """Now and then, while nobody is known to, and when that is in doubt."""
        manager = self._manager
        now_ns = time.monotonic_ns()
        period_ns = self._config.syncControllerMetadataPeriod * _NS_PER_MS
        leader = manager.controller_leader_address
        if doubted or not leader or leader != self.address and now_ns - self._asked_leader_ns > period_ns:
            self._asked_leader_ns = now_ns
            manager.told_of_leader(self.address, self._api.get_controller_meta_data(
                self.address, self._config.sendHeartbeatTimeoutMillis))

    def _ask_for_more(self) -> None:
        """It is a controller of RocketMQ: if it leads it says who is the master, which is as good as a lease."""
        manager = self._manager
        if manager.controller_leader_address == self.address:
            asked_ns = time.monotonic_ns()
            info, sync_state_set = self._api.get_replica_info(self.address, self._config.brokerName,
                                                              self._config.sendHeartbeatTimeoutMillis)
            manager.told_by_replica_info(info, sync_state_set, asked_ns)

    def _failed(self, error: Exception) -> None:
        if str(error) != self._last_error and not self.stopped:
            log.warning("heartbeat to the controller %s: %s", self.address, error)
            self._last_error = str(error)

    def _maybe_close(self) -> None:
        """No answer: after a while the connection is given up, in case it leads nowhere; each time after a longer one.

        Since the lease goes with it, a controller that hangs and does not lead should cost it seldom.
        """
        self._manager.leads_no_more(self.address)
        limit_ms = self._config.controllerHeartBeatTimeoutMills << min(self._closed, _MAX_DOUBLED)
        if time.monotonic_ns() - self._heard_ns > limit_ms * _NS_PER_MS:
            self._heard_ns = time.monotonic_ns()
            self._closed += 1
            self._api.close(self.address)
