"""What a controller has done since its start, for its metrics."""
from __future__ import annotations

import threading
from collections import Counter

from rmqha.common.protocol import request_code, response_code
from rmqha.common.stats import Distribution, LatencyHistogram
from rmqha.controller.replicas_info_manager import Decision

# 5.1.4's, in us: 1, 3, 5, 10, 30 ... up to 10 s
BOUNDS_S = tuple(digit * 10 ** power / 1e6 for power in range(7) for digit in (1, 3, 5)) + (10.,)

# by code, as ControllerMetricsConstant.RequestType of 5.1.4 calls them
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
    """Requests, elections and writes, by their outcome and by how long they took. Any thread may note and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._requests: Counter[tuple[str, str]] = Counter()
        self._elections: Counter[tuple[str, str]] = Counter()
        self._stores: Counter[str] = Counter()
        self._latencies: dict[str, LatencyHistogram] = {}
        self._store_latency = LatencyHistogram(BOUNDS_S)

    def requested(self, code: int, succeeded: bool, elapsed_ns: int) -> None:
        """A request of a known code was served."""
        kind = REQUEST_TYPES.get(code)
        if kind is None:
            return
        with self._lock:
            self._requests[kind, "success" if succeeded else "failed"] += 1
            if succeeded:
                self._latencies.setdefault(kind, LatencyHistogram(BOUNDS_S)).note(elapsed_ns)

    def elected(self, broker_name: str, decision: Decision) -> None:
        """An election has ended."""
        result = _ELECTION_RESULTS.get(decision.code)
        if result is not None:
            with self._lock:
                self._elections[broker_name, result] += 1

    def stored(self, succeeded: bool, elapsed_ns: int) -> None:
        """A decision was written, or was not."""
        with self._lock:
            self._stores["success" if succeeded else "failed"] += 1
            if succeeded:
                self._store_latency.note(elapsed_ns)

    def requests(self) -> dict[tuple[str, str], int]:
        """By type and outcome."""
        with self._lock:
            return dict(self._requests)

    def elections(self) -> dict[tuple[str, str], int]:
        """By broker name and outcome."""
        with self._lock:
            return dict(self._elections)

    def stores(self) -> dict[str, int]:
        """By outcome."""
        with self._lock:
            return dict(self._stores)

    def latencies(self) -> dict[str, Distribution]:
        """Of requests, by type."""
        with self._lock:
            return {kind: histogram.distribution() for kind, histogram in self._latencies.items()}

    def store_latency(self) -> Distribution:
        """Of writes."""
        with self._lock:
            return self._store_latency.distribution()
