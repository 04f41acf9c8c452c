"""Brokers that fall silent are noticed when their time is out.

    BrokerLivenessWatch: waits for the next time-out --> the silent ones --> their names may need an election
"""
from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rmqha.common.service_thread import ServiceThread
from rmqha.controller.broker_liveness import BrokerLiveInfo, BrokerLiveness

log = logging.getLogger("RocketmqController")

_NS_PER_MS = 1_000_000


class BrokerLivenessWatch(ServiceThread):
    """Tells `on_silent` of brokers whose time is out. Wake it when one may be silent for too long sooner.

    Differs: RocketMQ's controller looks each five seconds.

    Java: org.apache.rocketmq.controller.impl.heartbeat.DefaultBrokerHeartbeatManager#scanNotActiveBroker (5.1.4)
    """

    join_time_ms = 5_000

    def __init__(self, liveness: BrokerLiveness, interval_ms: Callable[[], int],
                 on_silent: Callable[[BrokerLiveInfo], object]) -> None:
        super().__init__()
        self._liveness, self._interval_ms, self._on_silent = liveness, interval_ms, on_silent

    def run(self) -> None:
        """Look, and wait until the next one could be silent for too long."""
        while not self.stopped:
            self.look()
            self.wait_for_running(self._wait_ms())

    def look(self) -> None:
        """Tell of all that are silent for too long now."""
        for info in self._liveness.expired():
            log.warning("The broker channel %s expired, brokerInfo %s, expired %dms", info.channel, info.identity,
                        info.timeout_ms)
            self._on_silent(info)

    def _wait_ms(self) -> float:
        expiry_ns = self._liveness.next_expiry_ns()
        longest = self._interval_ms()
        if expiry_ns is None:
            return longest
        return min(longest, max(1, (expiry_ns - time.monotonic_ns()) / _NS_PER_MS))
