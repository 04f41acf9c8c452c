"""Stores of controllers with etcd: a real one, and one in this process's memory."""
import base64
import itertools
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind
from rmqha.controller.etcd_client import EtcdRefusedError, EtcdUnavailableError, KeyValue, TxnAnswer
from rmqha.controller.etcd_store import EtcdStore
from tests.support.nodes import EtcdNode, why_no_etcd

# Stores of controllers at a real etcd. Tests that need it are skipped, with the reason, if it is not installed.

_prefixes = itertools.count(1)
LEASE_S = 2
MOST_S = 30  # for events that happen immediately
LONG_LEASE_S = 6 * MOST_S  # longer than that: without a notification, a controller checks three times per lease


def leads_until_ns(store: EtcdStore) -> int:
    """Return the time (of the monotonic clock) until which it may act as the leader if no member answers any more."""
    return store._leadership._until_ns


def require_etcd() -> None:
    """Skip this test if etcd is missing; with RMQHA_REQUIRE_ETCD=1 fail it instead."""
    reason = why_no_etcd()
    if reason is not None:
        (pytest.fail if os.environ.get("RMQHA_REQUIRE_ETCD") == "1" else pytest.skip)(reason)
    pytest.importorskip("etcd3gw", reason="not installed: etcd3gw (the extra etcd)")


def etcd_config(addresses: Iterable[str], **keys: object) -> ControllerConfig:
    """Return the configuration of a controller at these members, with its own prefix unless one is given."""
    return ControllerConfig(**{
        "controllerStore": ControllerStoreKind.etcd, "etcdEndpoints": ";".join(addresses),
        "etcdPrefix": f"/tests/{os.getpid()}/{next(_prefixes)}", "etcdLeaseSeconds": LEASE_S, **keys})


@contextmanager
def etcd_stores(config: ControllerConfig, *ids: str):
    """Yield a started EtcdStore of each id at one cluster; all are shut down at the end."""
    # nothing listens there
    stores = [EtcdStore(config, id_, f"127.0.0.{number}:1") for number, id_ in enumerate(ids, 1)]
    started = []
    try:
        for store in stores:
            started.append(store)
            store.start()
        yield stores
    finally:
        for store in started:
            store.shutdown()


def addresses(nodes: Iterable[EtcdNode]) -> list[str]:
    """Return the client addresses of members."""
    return [node.address for node in nodes]


# An etcd cluster in one process's memory, for tests that control which requests are lost or late, and the clocks.


@dataclass
class FakeEtcd:
    """The common state of the members: keys, revisions, leases. `history` has each value that a key ever had."""

    now_ns: int = 0
    revision: int = 1
    keys: dict[bytes, KeyValue] = field(default_factory=dict)
    lease_of: dict[bytes, int] = field(default_factory=dict)
    leases: dict[int, tuple[int, int]] = field(default_factory=dict)  # (seconds, time of expiry)
    history: list[tuple[bytes, int, bytes | None]] = field(default_factory=list)
    _next_lease: int = 1000

    def advance(self, ns: int) -> None:
        """Let time pass; leases expire."""
        self.now_ns += ns
        for id_, (_seconds, end_ns) in list(self.leases.items()):
            if end_ns <= self.now_ns:
                self.revoke(id_)

    def grant(self, seconds: int) -> int:
        """Grant a new lease."""
        self._next_lease += 1
        self.leases[self._next_lease] = seconds, self.now_ns + seconds * 1_000_000_000
        return self._next_lease

    def keep_alive(self, id_: int) -> bool:
        """Renew a lease; return False if it has expired."""
        if id_ not in self.leases:
            return False
        seconds = self.leases[id_][0]
        self.leases[id_] = seconds, self.now_ns + seconds * 1_000_000_000
        return True

    def revoke(self, id_: int) -> None:
        """End a lease and its keys."""
        if self.leases.pop(id_, None) is None:
            raise EtcdRefusedError("requested lease not found")
        gone = [key for key, lease in self.lease_of.items() if lease == id_]
        if gone:
            self.revision += 1
        for key in gone:
            self._delete(key)

    def _delete(self, key: bytes) -> None:
        self.lease_of.pop(key, None)
        if self.keys.pop(key, None) is not None:
            self.history.append((key, self.revision, None))

    def transaction(self, compare: list[dict], success: list[dict], failure: list[dict]) -> TxnAnswer:
        """Apply a transaction atomically, as etcd does."""
        succeeded = all(map(self._holds, compare))
        branch = success if succeeded else failure
        for action in branch:
            lease = action.get("request_put", {}).get("lease", 0)
            if lease and lease not in self.leases:
                raise EtcdRefusedError("requested lease not found")
        if any("request_range" not in action for action in branch):
            self.revision += 1
        ranges = [found for found in map(self._act, branch) if found is not None]
        return TxnAnswer(succeeded, self.revision, tuple(ranges))

    def _holds(self, compare: dict) -> bool:
        assert compare["result"] == "EQUAL"
        key = self.keys.get(base64.b64decode(compare["key"]))
        field_name = {"CREATE": "create_revision", "MOD": "mod_revision"}[compare["target"]]
        return (0 if key is None else getattr(key, field_name)) == compare[field_name]

    def _act(self, action: dict) -> tuple[KeyValue, ...] | None:
        ((kind, asked),) = action.items()
        key = base64.b64decode(asked["key"])
        if kind == "request_range":
            end = base64.b64decode(asked["range_end"]) if "range_end" in asked else key + b"\0"
            return tuple(self.keys[name] for name in sorted(self.keys) if key <= name < end)
        if kind == "request_delete_range":
            self._delete(key)
            return None
        value, before = base64.b64decode(asked["value"]), self.keys.get(key)
        self.keys[key] = KeyValue(key, value, before.create_revision if before else self.revision, self.revision)
        self.history.append((key, self.revision, value))
        self.lease_of.pop(key, None)
        if asked.get("lease"):
            self.lease_of[key] = asked["lease"]
        return None


class FakeEtcdClient:
    """An EtcdClient at a FakeEtcd. `fate` decides the outcome of each request:

    "ok"; "lost": it does not arrive; "unheard": it is executed, but its answer is lost; "late": it is executed when
    `late` is called; "refused". Any outcome except "ok" takes `timeout_ns`.
    """

    def __init__(self, etcd: FakeEtcd, fate: Callable[[], str] = lambda: "ok", timeout_ns: int = 500_000_000) -> None:
        self.etcd = etcd
        self.fate = fate
        self.timeout_ns = timeout_ns
        # Called after a request is executed and before it is answered.
        self.meanwhile: Callable[[], object] = lambda: None
        self.late: list[Callable[[], object]] = []
        self.watch_s = 0.0  # 0 for tests with a single thread
        self._interrupted = threading.Event()

    def _ask(self, act: Callable[[], object]) -> object:
        fate = self.fate()
        if fate == "ok":
            try:
                return act()
            finally:
                self.meanwhile()
        if fate == "refused":
            raise EtcdRefusedError("permission denied")
        if fate == "unheard":
            try:
                act()
            except EtcdRefusedError:
                pass  # its answer is lost too
        elif fate == "late":
            self.late.append(act)
        self.etcd.advance(self.timeout_ns)
        raise EtcdUnavailableError(fate)

    def transaction(self, compare: list[dict], success: list[dict], failure: list[dict] | None = None) -> TxnAnswer:
        return self._ask(lambda: self.etcd.transaction(compare, success, failure or []))

    def grant_lease(self, seconds: int) -> int:
        return self._ask(lambda: self.etcd.grant(seconds))

    def keep_alive(self, lease_id: int) -> bool:
        return self._ask(lambda: self.etcd.keep_alive(lease_id))

    def revoke_lease(self, lease_id: int) -> None:
        self._ask(lambda: self.etcd.revoke(lease_id))

    def wait_for_change(self, key: bytes, revision: int, timeout_s: float) -> bool:
        self._interrupted.wait(self.watch_s)
        self._interrupted.clear()
        return True

    def interrupt(self) -> None:
        self._interrupted.set()

    def close(self) -> None:
        pass
