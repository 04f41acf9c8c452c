"""Hand-made snapshots of a cluster."""
from dataclasses import replace

from rmqha.tools.replication.views import MasterView, SlaveView
from rmqha.tools.view.snapshot import BrokerState, GroupState, QueuePlace, Snapshot

MASTER = BrokerState("C", "broker-a", "10.0.0.1:10911", 0, role="ASYNC_MASTER", boot_ms=1, min_offset=0,
                     max_offset=5_000, put_total=100, get_total=40, disk_used=0.5, disk_limit=0.75)
SLAVE = replace(MASTER, broker_id=1, address="10.0.0.2:10911", role="SLAVE", max_offset=4_000, get_total=0)
SLAVE_OF = SlaveView(SLAVE.address, 1, state="TRANSFER", ack_offset=4_000, lag_bytes=1_000, lag_seconds=0.5,
                     in_sync=True)


def place(queue_id=0, end=100, offset=100, consumed_ms=0, topic="T", broker="broker-a"):
    return QueuePlace(topic, broker, queue_id, end, offset, consumed_ms)


def snapshot(at_s=10.0, brokers=(MASTER, SLAVE), groups=(), groups_at_s=None, **more):
    more.setdefault("replication", (MasterView("C", "broker-a", MASTER.address, slaves=[SLAVE_OF]),))
    return Snapshot(at_ms=round(1_700_000_000_000 + at_s * 1000), at_s=at_s, brokers=tuple(brokers),
                    groups=tuple(groups), groups_at_s=at_s if groups_at_s is None else groups_at_s, **more)


def group(name="readers", *places):
    return GroupState(name, places or (place(),))
