"""One controller is told again and again that this broker lives, and tells who is the master.

    ControllerHeartbeat, one per controller --904, of a controller of RocketMQ also 1005 and 1004--> its answers
      --> ReplicasManager: the lease, which controller leads, whether the role is to change
"""
from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from rmqha.broker.out.broker_outer_api import BrokerAnswerException
from rmqha.common.protocol import response_code
from rmqha.common.service_thread import ServiceThread
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol.fastjson import FastjsonError

if TYPE_CHECKING:
    from rmqha.broker.controller.replicas_manager import ReplicasManager

log = logging.getLogger("RocketmqBroker")

_NS_PER_MS = 1_000_000
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
