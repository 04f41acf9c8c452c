"""A controller's counters since its start, and its metrics and health.

Metrics that 5.1.4 has, too, have its names.
"""
from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import rmqha
from rmqha.common import java
from rmqha.common.metrics import (
    COUNTER,
    GAUGE,
    HISTOGRAM,
    Family,
    Metric,
    Pace,
    Page,
    RolePage,
    Sample,
    Subject,
    role_page,
)
from rmqha.common.protocol import request_code, response_code
from rmqha.common.stats import Distribution, LatencyHistogram
from rmqha.controller.local_store import NotLeaderError
from rmqha.controller.replicas_info_manager import Decision, ReplicaSet

if TYPE_CHECKING:
    from rmqha.controller.controller import Controller
    from rmqha.remoting.remoting_server import RemotingServer


# 5.1.4's bounds, in us: 1, 3, 5, 10, 30 ... up to 10 s.
BOUNDS_S = tuple(digit * 10 ** power / 1e6 for power in range(7) for digit in (1, 3, 5)) + (10.,)

# By code, with the names of ControllerMetricsConstant.RequestType in 5.1.4.
REQUEST_TYPES = {code: name for name, code in vars(request_code).items() if name.startswith("CONTROLLER_")} | {
    request_code.BROKER_HEARTBEAT: "CONTROLLER_BROKER_HEARTBEAT",
    request_code.UPDATE_CONTROLLER_CONFIG: "CONTROLLER_UPDATE_CONTROLLER_CONFIG",
    request_code.GET_CONTROLLER_CONFIG: "CONTROLLER_GET_CONTROLLER_CONFIG",
    request_code.CLEAN_BROKER_DATA: "CONTROLLER_CLEAN_BROKER_DATA"}
_ELECTION_RESULTS = {
    response_code.SUCCESS: "new_master_elected", response_code.CONTROLLER_MASTER_STILL_EXIST: "keep_current_master",
    response_code.CONTROLLER_MASTER_NOT_AVAILABLE: "no_master_elected",
    response_code.CONTROLLER_ELECT_MASTER_FAILED: "no_master_elected"}


class ControllerCounts:
    """Requests, elections and writes, by outcome, with their latencies. Any thread may update and read them."""

    def __init__(self) -> None:
        # Guards all below.
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._elections: Counter[tuple[str, str]] = Counter()
        self._stores: Counter[str] = Counter()
        self._latencies: dict[str, LatencyHistogram] = {}
        self._store_latency = LatencyHistogram(BOUNDS_S)

    def requested(self, code: int, succeeded: bool, elapsed_ns: int) -> None:
        """Count a request of a known code that was served."""
        kind = REQUEST_TYPES.get(code)
        if kind is None:
            return
        with self._lock:
            self._requests[kind, "success" if succeeded else "failed"] += 1
            if succeeded:
                self._latencies.setdefault(kind, LatencyHistogram(BOUNDS_S)).note(elapsed_ns)

    def elected(self, broker_name: str, decision: Decision) -> None:
        """Count an election that has ended."""
        result = _ELECTION_RESULTS.get(decision.code)
        if result is not None:
            with self._lock:
                self._elections[broker_name, result] += 1

    def stored(self, succeeded: bool, elapsed_ns: int) -> None:
        """Count a decision that was written, or could not be."""
        with self._lock:
            self._stores["success" if succeeded else "failed"] += 1
            if succeeded:
                self._store_latency.note(elapsed_ns)

    def requests(self) -> dict[tuple[str, str], int]:
        """Return the requests by type and outcome."""
        with self._lock:
            return dict(self._requests)

    def elections(self) -> dict[tuple[str, str], int]:
        """Return the elections by broker name and outcome."""
        with self._lock:
            return dict(self._elections)

    def stores(self) -> dict[str, int]:
        """Return the writes by outcome."""
        with self._lock:
            return dict(self._stores)

    def latencies(self) -> dict[str, Distribution]:
        """Return the latencies of requests, by type."""
        with self._lock:
            return {kind: histogram.distribution() for kind, histogram in self._latencies.items()}

    def store_latency(self) -> Distribution:
        """Return the latency of writes."""
        with self._lock:
            return self._store_latency.distribution()


# The labels of all metrics of 5.1.4.
_OWNER = ("address", "group", "peer_id")
_SET = (*_OWNER, "cluster", "broker_set")
# Values of `role`, as in 5.1.4.
FOLLOWER, LEADER = 2, 3

ROLE = Metric("role", GAUGE, _OWNER, "3: leader, 2: follower")
ACTIVE_BROKERS = Metric("active_broker_num", GAUGE, _SET, "Replicas that this controller hears, by broker name")
REQUESTS = Metric("request_total", COUNTER, (*_OWNER, "request_type", "request_handle_status"),
                  "Requests that were served")
ELECTIONS = Metric("election_total", COUNTER, (*_OWNER, "broker_set", "election_result"), "Elections")
REQUEST_LATENCY = Metric("request_latency_seconds", HISTOGRAM, (*_OWNER, "request_type"),
                         "Latency of requests; 5.1.4 reports microseconds")
INFO = Metric("rmqha_controller_info", GAUGE, ("version", "rocketmq_version", "store"),
              "Always 1; the labels describe it")
READY = Metric("rmqha_controller_ready", GAUGE, (), "1 when it leads or knows who does; /readyz has the reasons")
STORES = Metric("rmqha_controller_store_total", COUNTER, ("result",), "Decisions that were written, or were not")
STORE_SECONDS = Metric("rmqha_controller_store_seconds", HISTOGRAM, (), "Time that writing a decision took")
MASTER_EPOCH = Metric("rmqha_controller_master_epoch", GAUGE, ("cluster", "broker_set"),
                      "How often the master was changed; reported by the leader, as all below")
MASTER = Metric("rmqha_controller_master_broker_id", GAUGE, ("cluster", "broker_set"),
                "The id of the master; 0 without a master")
IN_SYNC = Metric("rmqha_controller_in_sync_replicas", GAUGE, ("cluster", "broker_set"),
                 "Replicas in the sync-state set, which may become the master")
REPLICAS = Metric("rmqha_controller_replicas", GAUGE, ("cluster", "broker_set"), "Replicas that have an id")
WAITING = Metric("rmqha_controller_requests_waiting", GAUGE, (), "Requests that wait for a thread")
CONTROLLER_METRICS = (ROLE, ACTIVE_BROKERS, REQUESTS, ELECTIONS, REQUEST_LATENCY, INFO, READY, STORES, STORE_SECONDS,
                      MASTER_EPOCH, MASTER, IN_SYNC, REPLICAS, WAITING)


class _Life(Protocol):
    """The state of a controller."""

    is_started: bool
    failure: str | None
    remoting_server: RemotingServer


class ControllerMetrics(Subject):
    """The metrics and health that a controller reports on its metrics port.

    Java: org.apache.rocketmq.controller.metrics.ControllerMetricsManager (5.1.4)
    """

    def __init__(self, life: _Life, controller: Controller, owner: tuple[str, str],
                 requests_waiting: Callable[[], int]) -> None:
        self._life = life
        self._controller = controller
        self._address, self._self_id = owner
        self._requests_waiting = requests_waiting

    def families(self, pace: Pace) -> Iterator[Family]:
        """Yield each metric once."""
        counts, config, store = self._controller.counts, self._controller.config, self._controller.store
        owner = (self._address, config.controllerDLegerGroup or "", self._self_id)
        yield Family(ROLE, [(owner, LEADER if store.leads else FOLLOWER)])
        yield Family(READY, [((), float(not self.why_not_ready()))])
        yield Family(INFO, [((rmqha.__version__, java.get_version_desc(java.CURRENT_VERSION),
                              config.controllerStore.name), 1)])
        alive = Counter(info.identity[:2] for info in self._controller.liveness.all())
        yield Family(ACTIVE_BROKERS, [((*owner, *of), number) for of, number in alive.items()])
        sets = self._replica_sets()
        yield Family(MASTER, _by_set(sets, [each.master_id or 0 for each in sets]))
        yield Family(MASTER_EPOCH, _by_set(sets, [each.master_epoch for each in sets]))
        yield Family(IN_SYNC, _by_set(sets, [len(each.sync_state_set) for each in sets]))
        yield Family(REPLICAS, _by_set(sets, [len(each.replicas) for each in sets]))
        yield Family(ELECTIONS, [((*owner, *of), number) for of, number in counts.elections().items()])
        yield Family(REQUESTS, [((*owner, *of), number) for of, number in counts.requests().items()])
        yield Family(REQUEST_LATENCY, [((*owner, kind), times) for kind, times in counts.latencies().items()])
        yield Family(STORES, [((result,), number) for result, number in counts.stores().items()])
        yield Family(STORE_SECONDS, [((), counts.store_latency())])
        yield Family(WAITING, [((), self._requests_waiting())])

    def _replica_sets(self) -> list[ReplicaSet]:
        store = self._controller.store
        try:
            return [each for name in store.names() if (each := store.get(name).replica_set) is not None]
        except NotLeaderError:
            return []

    def why_not_healthy(self) -> list[str]:
        """Return the reason if the thread of its port has ended."""
        life = self._life
        if life.failure is not None:
            return [life.failure]
        if life.is_started and not life.remoting_server.io.is_alive():
            return ["the thread of its port has ended"]
        return []

    def why_not_ready(self) -> list[str]:
        """Return the reasons: it is not started yet, it is not healthy, or no leader is known."""
        if not self._life.is_started:
            return ["it is starting, or going down"]
        reasons = self.why_not_healthy()
        if self._controller.store.leader_id is None:
            reasons.append("no controller is known to lead")
        return reasons

    def role_pages(self) -> dict[str, RolePage]:
        """Return the page for load balancers and scripts."""
        return {"/leader": RolePage(lambda _query: self._leader(), "200 when this controller leads")}

    def _leader(self) -> Page:
        store, life = self._controller.store, self._life
        reasons = self.why_not_healthy() if life.is_started else ["it is starting, or going down"]
        leads = store.leads
        if not leads:
            reasons.append("another controller leads" if store.leader_id is not None else
                           "no controller is known to lead")
        return role_page(503 if reasons else 200, {
            "state": "failed" if life.failure is not None else "running" if life.is_started else "starting",
            "role": "leader" if leads else "follower", "id": self._self_id, "leaderId": store.leader_id,
            "leaderAddress": store.leader_address, "reasons": reasons})


def _by_set(sets: list[ReplicaSet], values: list[int]) -> list[Sample]:
    return [((each.cluster_name, each.broker_name), value) for each, value in zip(sets, values, strict=True)]
