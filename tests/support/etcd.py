"""Stores of controllers at a real etcd. Tests that ask for it skip, with the reason, where it isn't installed."""
import itertools
import os
from collections.abc import Iterable
from contextlib import contextmanager

import pytest

from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind
from rmqha.controller.etcd_store import EtcdStore
from tests.support.controller_nodes import EtcdNode, why_no_etcd

_prefixes = itertools.count(1)
LEASE_S = 2
MOST_S = 30  # for what happens at once
LONG_LEASE_S = 6 * MOST_S  # longer than that: a controller that is not told looks three times in a lease


def leads_until_ns(store: EtcdStore) -> int:
    """Until when (of the monotonic clock) it may take itself for the leader, if no member answers any more."""
    return store._leadership._until_ns


def require_etcd() -> None:
    """Skip this test without etcd; with RMQHA_REQUIRE_ETCD=1 it fails instead."""
    reason = why_no_etcd()
    if reason is not None:
        (pytest.fail if os.environ.get("RMQHA_REQUIRE_ETCD") == "1" else pytest.skip)(reason)
    pytest.importorskip("etcd3gw", reason="not installed: etcd3gw (the extra etcd)")


def etcd_config(addresses: Iterable[str], **keys: object) -> ControllerConfig:
    """Of a controller at these members, with a prefix of its own where none is given."""
    return ControllerConfig(**{
        "controllerStore": ControllerStoreKind.etcd, "etcdEndpoints": ";".join(addresses),
        "etcdPrefix": f"/tests/{os.getpid()}/{next(_prefixes)}", "etcdLeaseSeconds": LEASE_S, **keys})


@contextmanager
def etcd_stores(config: ControllerConfig, *ids: str):
    """A started EtcdStore of each id at one cluster; all are shut down at the end."""
    # nobody listens there
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
    """Where clients reach members."""
    return [node.address for node in nodes]
