"""Calls from a test to its cluster in another process: lines of JSON through the standard input and output.

    test --{"id": 3, "call": "kill", "arguments": ["broker-a"], "named": {}}--> CallServer --> the cluster
    test <--{"id": 3, "result": null} or {"id": 3, "error": "...", "is_unsupported": false}-- CallServer

Other lines of the input are ignored. A fault stays in the cluster's process; its result is a number, by which the test
asks for its hits and heals it.
"""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Protocol

from rmqha.common.texts import parse_json
from rmqha.testing.cluster_parts import EmbeddedError, NotSupportedError

CALL, ARGUMENTS, NAMED, ID = "call", "arguments", "named", "id"
RESULT, ERROR, IS_UNSUPPORTED = "result", "error", "is_unsupported"
NODES, HEAL_FAULT, HITS = "nodes", "heal_fault", "hits"
FAULTS = ("refuse", "slow_down", "fill_disk", "partition")
METHODS = ("create_topic", "reset", "kill", "kill_master", "restart", "wait_for_slaves", "heal",
           "hurry_transaction_checks")


class ServedBroker(Protocol):
    """The part of a broker that is reported. `address` and `pid` need a running broker."""

    node: str
    broker_name: str
    broker_id: int

    @property
    def is_running(self) -> bool:
        """True if it is up."""

    @property
    def address(self) -> str:
        """ "host:port" for clients."""

    @property
    def pid(self) -> int:
        """Its process."""


class ServedCluster(Protocol):
    """A cluster that is served: the attributes that METHODS and FAULTS name, and its brokers."""

    @property
    def namesrv_addr(self) -> str:
        """ "host:port" of the name server."""

    @property
    def brokers(self) -> list[Any]:
        """All brokers, each a ServedBroker."""


class CallServer:
    """Carries out the calls of a test at a cluster. Used by one thread."""

    def __init__(self, cluster: ServedCluster) -> None:
        self._cluster = cluster
        self._faults: dict[int, Any] = {}
        self._numbers = count(1)
        self._own: Mapping[str, Callable[..., Any]] = {
            NODES: self._nodes, HITS: lambda fault: self._faults[fault].hits,
            HEAL_FAULT: lambda fault: self._faults[fault].heal()}
        self._input = b""

    def take(self, data: bytes) -> list[str]:
        """Carry out the calls whose lines end in `data`; return the lines of the answers."""
        *lines, self._input = (self._input + data).split(b"\n")
        return [json.dumps(self._answer(call)) for call in map(_call_of, lines) if call is not None]

    def _answer(self, call: dict[str, Any]) -> dict[str, Any]:
        try:
            return {ID: call[ID], RESULT: self._carried_out(call[CALL], call[ARGUMENTS], call[NAMED])}
        except Exception as error:
            # The test must get any error; of the expected ones the text is enough
            text = str(error) if isinstance(error, EmbeddedError) else f"{type(error).__name__}: {error}"
            return {ID: call[ID], ERROR: text, IS_UNSUPPORTED: isinstance(error, NotSupportedError)}

    def _carried_out(self, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        if name in self._own:
            return self._own[name](*arguments)
        if name not in METHODS and name not in FAULTS:
            raise EmbeddedError(f"unknown call {name!r}")
        result = getattr(self._cluster, name)(*arguments, **named)
        if name not in FAULTS:
            return result
        number = next(self._numbers)
        self._faults[number] = result
        return number

    def _nodes(self) -> list[list[Any]]:
        return [[broker.node, broker.broker_name, broker.broker_id, broker.address if broker.is_running else None,
                 getattr(broker, "pid", None) if broker.is_running else None] for broker in self._cluster.brokers]


def _call_of(line: bytes) -> dict[str, Any] | None:
    """Return the call in a line of the input, or None."""
    try:
        call = parse_json(line, "a call")
    except ValueError:
        return None
    return call if isinstance(call, dict) and {ID, CALL, ARGUMENTS, NAMED} <= call.keys() else None
