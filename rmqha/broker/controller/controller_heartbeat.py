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
# The share of a granted lease that is used: the clocks of broker and controller may run at different rates.
_KEPT_SHARE = 0.9


class MasterLease:
    """The leading controller's promise not to make another replica the master before a point in time.

    A controller elects a new master when it no longer hears the old one. The old master may be running and merely cut
    off: if it kept acknowledging, the new master would not have those messages, and they would be lost. So a master
    acknowledges only while its lease holds, and the controller waits until the lease has ended before it elects. This
    is safe if the lease never ends later here than at the controller. Three rules ensure it:

    - Time. Each heartbeat requests a lease. It counts from the moment at which the heartbeat left; the controller
      counts from its arrival, which is later. 10 % are subtracted because the clocks may run at different rates.
    - Connections. The leading controller takes the end of the connection for the end of this process, and elects at
      once. So the lease ends with the connection to any controller, as it is not known which one leads by then; before
      the connection is closed, if this side closes it. The response to an earlier heartbeat then grants nothing: its
      controller may have lost the lead since.
    - Terms. Controllers are replaced too, and an old leader may not know it yet. A term numbers the period for which a
      controller leads. Leases are accepted from one term at a time, `term`, which each heartbeat names. A controller
      that finds its own term in a heartbeat knows that this process holds no lease from an earlier leader and will not
      accept one: the process switches to another term only by a response to a heartbeat that it sent after it began to
      follow the current one, and a leader whose term was not named in a heartbeat asks its store, after the heartbeat
      has arrived, whether it still leads.

    Any thread may call `holds`, which only reads one attribute and the monotonic clock.
    """

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards writes of the following
        # When the lease ends; 0: no lease.
        self._until_ns = 0
        # When the lease was last given up.
        self._renounced_ns = -1
        # The term that is followed, written under the lock; 0: no controller of rmqha is followed.
        self.term = 0
        # Since when it is followed.
        self._followed_ns = -1

    def granted(self, asked_ns: int, lease_ms: int, term: int = 0, asked_of: int = 0) -> bool:
        """Process the response of a leading controller to a heartbeat that left at `asked_ns` (of the clock).

        `term` is the controller's term, `asked_of` the term that the heartbeat named. `lease_ms` 0: no lease. Returns
        whether the response counts: its term is followed already, or is a later one, which is followed from now on.
        """
        with self._lock:
            until_ns = self._until_ns
            if term != self.term:
                if term in (asked_of, 0) or asked_ns <= self._followed_ns:
                    return False  # That controller may no longer lead.
                self.term, self._followed_ns, until_ns = term, self._clock(), 0
            if lease_ms > 0 and asked_ns > self._renounced_ns:
                until_ns = max(until_ns, asked_ns + int(lease_ms * _KEPT_SHARE * _NS_PER_MS))
            self._until_ns = until_ns
            return True

    def follows_nobody(self) -> None:
        """Follow no term, and accept the next one that responds to a heartbeat sent from now on.

        For controllers that have lost their data.
        """
        with self._lock:
            self.term, self._followed_ns, self._until_ns = 0, self._clock(), 0

    def renounced(self, for_ms: float = 0) -> None:
        """End the lease: the controller named another master, its connection ended, or the mastership is handed over.

        Heartbeats that are sent within `for_ms` from now on grant no lease either, except for a new role.
        """
        with self._lock:
            self._until_ns = 0
            self._renounced_ns = max(self._renounced_ns, self._clock() + int(for_ms * _NS_PER_MS))

    def role_changes(self) -> None:
        """End the lease of the old role; the new role has none yet."""
        with self._lock:
            self._until_ns, self._renounced_ns = 0, self._clock()

    def holds(self) -> bool:
        """Return whether this master may acknowledge now."""
        return self._clock() < self._until_ns

    def left_ms(self) -> float:
        """Return how long the lease still holds; 0 when it does not."""
        return max(0, self._until_ns - self._clock()) / _NS_PER_MS


log = logging.getLogger("RocketmqBroker")

_FIRST_PAUSE_MS, _MAX_PAUSE_MS = 50, 1000


class MasterHaAddress:
    """Finds the master's HA address while the role does not change.

    Differs: a slave asks the new master for its HA address; in 5.1.4 it learns the address at its next registration
    with a name server.
    """

    def __init__(self, api: BrokerOuterAPI, registration: BrokerRegistration) -> None:
        self._api = api
        self._registration = registration
        self._pause = threading.Event()  # never set

    def find(self, master_address: str, is_wanted: Callable[[], bool]) -> str | None:
        """Return the HA address, retrying while `is_wanted()` is true; None when it no longer is. May take long."""
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
            log.info("cannot get the HA address of the master %s: %s", master_address, error)
            return None
        if HA_ADDRESS_FIELD in fields:
            return fields[HA_ADDRESS_FIELD]
        port = fields.get(HA_PORT_FIELD)
        return None if port is None else f"{master_address.rpartition(':')[0]}:{port}"

    def _ask_name_servers(self, master_address: str) -> str | None:
        """Return the address that the name servers report in response to a registration."""
        self._registration.register_broker_all(True, False, True)
        told = self._registration.registered_master
        return told[1] if told is not None and told[0] == master_address else None


_MAX_DOUBLED = 4
_LEADERLESS_INTERVAL_MS = 200  # while no controller is known to lead

CALL_ERRORS = (RemotingException, FastjsonError)


class ControllerHeartbeat(ServiceThread):
    """The heartbeats to one controller. Each waits for its response; a controller that hangs delays no other one.

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
        # The time of the last response, or of the last close of an unresponsive connection.
        self._heard_ns = time.monotonic_ns()
        # How many times in a row the connection was closed without a response.
        self._closed = 0
        # The time of the last query for the leader.
        self._asked_leader_ns = 0
        # The time of the last heartbeat that was followed by another one at once.
        self._again_ns = 0
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
        """Send one heartbeat and process its response."""
        asked_ns = time.monotonic_ns()
        try:
            header = self._manager.heartbeat()
            answer = self._api.send_heartbeat(self.address, header, self._config.sendHeartbeatTimeoutMillis)
            self._heard_ns, self._closed = time.monotonic_ns(), 0
            if answer.leaseMillis is None:
                self._ask_who_leads(doubted=False)
                self._ask_for_more()
            elif answer.masterEpoch is None:
                # A controller of rmqha that does not lead, or does not know this broker yet.
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
        """Send another heartbeat at once, but at most once per 200 ms.

        Two controllers that do not know of each other both lead; the broker would alternate between them for ever.
        """
        if asked_ns - self._again_ns > _LEADERLESS_INTERVAL_MS * _NS_PER_MS:
            self._again_ns = asked_ns
            self.wakeup()

    def _ask_who_leads(self, doubted: bool) -> None:
        """Ask this controller which one leads: periodically, while none is known, and when `doubted`."""
        manager = self._manager
        now_ns = time.monotonic_ns()
        period_ns = self._config.syncControllerMetadataPeriod * _NS_PER_MS
        leader = manager.controller_leader_address
        if doubted or not leader or leader != self.address and now_ns - self._asked_leader_ns > period_ns:
            self._asked_leader_ns = now_ns
            manager.told_of_leader(self.address, self._api.get_controller_meta_data(
                self.address, self._config.sendHeartbeatTimeoutMillis))

    def _ask_for_more(self) -> None:
        """Ask a controller of RocketMQ for the master, if it leads; its response counts as a lease."""
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
        """Close the connection of a controller that has not responded for a while; it may be dead.

        The time doubles with each close in a row: closing ends the lease as well, and a controller that hangs without
        leading should rarely cost the master its lease.
        """
        self._manager.leads_no_more(self.address)
        limit_ms = self._config.controllerHeartBeatTimeoutMills << min(self._closed, _MAX_DOUBLED)
        if time.monotonic_ns() - self._heard_ns > limit_ms * _NS_PER_MS:
            self._heard_ns = time.monotonic_ns()
            self._closed += 1
            self._api.close(self.address)
