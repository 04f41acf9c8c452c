"""Snapshots and rates as JSON: what `top --once -o json` prints and the console's API answers, field by field.

Rates, sizes and times as short texts for narrow columns.

Options that `top` and `console` share.
"""
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from rmqha.common import mix_all
from rmqha.common.texts import real
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.ha.ask import ReplicationToolError
from rmqha.tools.terminal import duration_type, size_text
from rmqha.tools.view.snapshot import BrokerState, GroupState, Picture, QueuePlace, Replication, seconds_to_go

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


_UNITS = ("", "k", "M", "G", "T")
UNKNOWN = "-"


def count_text(value: float | None) -> str:
    """`0`, `0.5`, `12`, `1,234`, `12.3k`, `4.56M`: at most six characters; `-` for unknown."""
    value = real(value)
    if value is None:
        return UNKNOWN
    sign, size, unit = "-" if value < 0 else "", abs(value), 0
    if size < 10:
        return sign + (f"{size:.1f}".removesuffix(".0"))
    if round(size) < 10_000:
        return f"{sign}{size:,.0f}"
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{sign}{size:.2f}"[:len(sign) + 4].rstrip(".") + _UNITS[unit]


def bytes_text(value: float | None) -> str:
    """`1.5 MiB`."""
    value = real(value, -2.0**64, 2.0**64)
    return UNKNOWN if value is None else size_text(round(value))


def percent_text(ratio: float | None) -> str:
    """`17 %`."""
    ratio = real(ratio)
    return UNKNOWN if ratio is None else f"{ratio:.0%}".replace("%", " %")


def span_text(seconds: float | None) -> str:
    """`0`, `0.4 s`, `12 s`, `3 min`, `2 h`, `5 d`: two places at most; `-` for unknown."""
    seconds = real(seconds)
    if seconds is None:
        return UNKNOWN
    if seconds <= 0:
        return "0"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} d"


F = TypeVar("F", bound=Callable[..., Any])


def view_options(default_interval_s: float) -> Callable[[F], F]:
    """--namesrv, --cluster, --broker, --interval, --timeout."""
    def add(command: F) -> F:
        for option in (
                click.option("--timeout", "timeout_s", default=2.0, show_default=True, type=duration_type(0.1, 600),
                             help="Seconds to wait for each answer."),
                click.option("-i", "--interval", "interval_s", default=default_interval_s, show_default=True,
                             type=duration_type(1, 3600), help="Seconds between two looks, 1 at least."),
                click.option("-b", "--broker", help="Only the brokers of this name, or of this host:port's name."),
                click.option("-c", "--cluster", help="Only the brokers of this cluster."),
                click.option("-n", "--namesrv", envvar=mix_all.NAMESRV_ADDR_ENV,
                             help="Name servers, host:port, separated by semicolons; by default $NAMESRV_ADDR.")):
            command = option(command)
        return command
    return add


def needed_namesrv(namesrv: str | None) -> str:
    """The name servers; an error for people without."""
    if not namesrv:
        raise ReplicationToolError("no name server: give it with -n host:port, or in NAMESRV_ADDR")
    return namesrv


def account() -> RPCHook | None:
    """What signs requests, by $ROCKETMQ_HOME/conf/tools.yml as for mqadmin; None without such a file."""
    from rmqha.tools.command.mq_admin_startup import get_acl_rpc_hook  # imports all of mqadmin

    return get_acl_rpc_hook()
