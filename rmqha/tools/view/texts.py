"""Snapshots and rates as JSON: the fields that `top --once -o json` prints and the console's API returns.

Options that `top` and `console` share.
"""
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rmqha.common.texts import real
from rmqha.tools.connection import namesrv_option
from rmqha.tools.replication.views import Fault, MasterView, SlaveView
from rmqha.tools.terminal import duration_type
from rmqha.tools.view.snapshot import BrokerState, GroupState, Picture, QueuePlace, all_faults, seconds_to_go

Json = dict[str, Any]

_OF_BROKER = (
    "cluster", "name", "broker_id", "address", "error", "role", "version", "boot_ms", "min_offset", "max_offset",
    "file_size", "put_total", "get_total", "disk_used", "queue_disk_used", "disk_text", "disk_limit",
    "dispatch_behind", "to_flush", "earliest_ms", "send_queue", "pull_queue", "latency_99", "flush", "epoch",
    "sync_state_set")


def overview(picture: Picture) -> Json:
    """Return everything in a picture except the groups' queues."""
    return {**cluster_json(picture), "groups": [group_json(picture, group) for group in picture.snapshot.groups]}


def cluster_json(picture: Picture) -> Json:
    """Return a picture without its groups."""
    now = picture.snapshot
    return {
        "at_ms": now.at_ms,
        "took_ms": round(now.took_s * 1000),
        "settled": now.settled,
        "name_servers": [{"address": address, "error": error} for address, error in now.name_servers],
        "faults": [*map(_fault, now.faults), *({"status": "WARNING", "text": text} for text in now.groups_errors)],
        "in_msgs_per_s": _rounded(picture.in_msgs),
        "out_msgs_per_s": _rounded(picture.out_msgs),
        "behind": now.behind,
        "unread": now.behind,
        "brokers": [broker_json(picture, broker) for broker in now.brokers],
        "replication": [replication_json(each) for each in now.replication],
    }


def broker_json(picture: Picture, broker: BrokerState) -> Json:
    """Return a broker with its rates; sizes are in bytes, times in ms since 1970."""
    rates = picture.broker_rates(broker.address)
    return {
        **{key: getattr(broker, key) for key in _OF_BROKER},
        "p99_ms": real(broker.latency_99 or None),
        "is_master": broker.is_master,
        "log_size": broker.log_size,
        "segments": broker.segments,
        "in_msgs_per_s": _rounded(rates.in_msgs),
        "out_msgs_per_s": _rounded(rates.out_msgs),
        "log_bytes_per_s": _rounded(rates.log_bytes),
    }


def replication_json(each: MasterView) -> Json:
    """Return a master with its slaves."""
    return {
        "cluster": each.cluster,
        "name": each.name,
        "master": each.address,
        "slaves": [slave_json(slave) for slave in each.slaves],
        "faults": [*map(_fault, all_faults(each))],
    }


def slave_json(slave: SlaveView) -> Json:
    """Return a slave as its master and the slave itself report it."""
    return {
        "address": slave.address,
        "broker_id": slave.broker_id,
        "state": slave.state,
        "status": slave.status.name,
        "ack_offset": slave.ack_offset,
        "lag_bytes": slave.lag_bytes,
        "lag_seconds": slave.lag_seconds,
        "in_sync": slave.in_sync,
        "note": slave.note,
        "registered": slave.registered,
    }


def group_json(picture: Picture, group: GroupState) -> Json:
    """Return a group as one row; `seconds_to_go` is null when its backlog does not shrink."""
    rates = picture.group_rates(group.name)
    return {
        "name": group.name,
        "topics": list(group.topics),
        "queues": len(group.places),
        "behind": group.behind,
        "unread": group.behind,
        "delay_ms": group.delay_ms(picture.snapshot.at_ms),
        "consumed_per_s": _rounded(rates.consumed),
        "produced_per_s": _rounded(rates.produced),
        "growth_per_s": _rounded(rates.growth),
        "seconds_to_go": _rounded(seconds_to_go(group.behind, rates.growth)),
    }


def place_json(place: QueuePlace) -> Json:
    """Return a group in one queue."""
    return {**place._asdict(), "behind": place.behind, "unread": place.behind}


def _fault(fault: Fault) -> Json:
    return {"status": fault.status.name, "text": fault.text}


def _rounded(value: float | None) -> float | None:
    known = real(value)
    return None if known is None else round(known, 1)


F = TypeVar("F", bound=Callable[..., Any])


def view_options(default_interval_s: float) -> Callable[[F], F]:
    """Add --namesrv, --cluster, --broker, --interval and --timeout."""
    def add(command: F) -> F:
        for option in (
                click.option("--timeout", "timeout_s", default=2.0, show_default=True, type=duration_type(0.1, 600),
                             help="Seconds to wait for each answer."),
                click.option("-i", "--interval", "interval_s", default=default_interval_s, show_default=True,
                             type=duration_type(1, 3600), help="Seconds between two polls, at least 1."),
                click.option("-b", "--broker",
                             help="Show only the brokers of this name; the host:port of one of them does the same."),
                click.option("-c", "--cluster", help="Show only the brokers of this cluster."),
                namesrv_option):
            command = option(command)
        return command
    return add
