"""Snapshots and rates as JSON: what `top --once -o json` prints and the console's API answers, field by field."""
from dataclasses import asdict
from typing import Any

from rmqha.tools.dialect.numbers import real
from rmqha.tools.view.change import Picture, seconds_to_go
from rmqha.tools.view.snapshot import BrokerState, GroupState, QueuePlace, Replication

Json = dict[str, Any]


def overview(picture: Picture) -> Json:
    """All of a moment but the groups' queues."""
    now = picture.snapshot
    return {
        "at_ms": now.at_ms,
        "took_ms": round(now.took_s * 1000),
        "settled": now.settled,
        "name_servers": [{"address": address, "error": error} for address, error in now.name_servers],
        "faults": [_fault(*fault) for fault in now.faults] + [_fault("WARNING", text) for text in now.groups_errors],
        "in_msgs_per_s": _rounded(picture.in_msgs),
        "out_msgs_per_s": _rounded(picture.out_msgs),
        "behind": sum(group.behind for group in now.groups),
        "brokers": [broker_json(picture, broker) for broker in now.brokers],
        "replication": [replication_json(each) for each in now.replication],
        "groups": [group_json(picture, group) for group in now.groups],
    }


def broker_json(picture: Picture, broker: BrokerState) -> Json:
    """A broker with its rates; sizes are bytes, times ms since 1970."""
    rates = picture.broker_rates(broker.address)
    return {
        **asdict(broker),
        "is_master": broker.is_master,
        "log_size": broker.log_size,
        "segments": broker.segments,
        "in_msgs_per_s": _rounded(rates.in_msgs),
        "out_msgs_per_s": _rounded(rates.out_msgs),
        "log_bytes_per_s": _rounded(rates.log_bytes),
    }


def replication_json(each: Replication) -> Json:
    """A master with its slaves."""
    return {
        "cluster": each.cluster,
        "name": each.name,
        "master": each.master,
        "slaves": [asdict(slave) for slave in each.slaves],
        "faults": [_fault(*fault) for fault in each.faults],
    }


def group_json(picture: Picture, group: GroupState) -> Json:
    """A group as one row; `seconds_to_go` is null when its backlog does not shrink."""
    rates = picture.group_rates(group.name)
    return {
        "name": group.name,
        "topics": list(group.topics),
        "queues": len(group.places),
        "behind": group.behind,
        "delay_ms": group.delay_ms(picture.snapshot.at_ms),
        "consumed_per_s": _rounded(rates.consumed),
        "produced_per_s": _rounded(rates.produced),
        "growth_per_s": _rounded(rates.growth),
        "seconds_to_go": _rounded(seconds_to_go(group.behind, rates.growth)),
    }


def place_json(place: QueuePlace) -> Json:
    """A group in one queue."""
    return {**asdict(place), "behind": place.behind}


def _fault(status: str, text: str) -> Json:
    return {"status": status, "text": text}


def _rounded(value: float | None) -> float | None:
    known = real(value)
    return None if known is None else round(known, 1)
