"""Options that several replication commands share, and times and rates as texts."""
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from rmqha.tools.dialect.options import namesrv_option
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import DEFAULT_TIMEOUT_MS, Broker, BrokerAdmin, ReplicationToolError, chosen
from rmqha.tools.ha.controllers import Controllers, controller_faults, faults_of
from rmqha.tools.ha.name_servers import ask_name_servers
from rmqha.tools.ha.replication import Group, Reader
from rmqha.tools.ha.views import Fault, Reading
from rmqha.tools.store.output import size_text

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(command: F) -> F:
    """--namesrv, --broker, --cluster, --timeout."""
    for option in (
            click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
                         type=duration_type(0.1, 600), help="Seconds to wait for each answer."),
            click.option("-c", "--cluster", help="Only the brokers of this cluster."),
            click.option("-b", "--broker", help="Only this broker: its name, or its host:port."),
            namesrv_option):
        command = option(command)
    return command


def controller_option(command: F) -> F:
    """--controller."""
    return click.option("--controller", metavar="HOST:PORT",
                        help="Controllers of automatic failover, separated by semicolons; by default those that the "
                             "brokers name.")(command)


def read_replication(admin: BrokerAdmin, cluster: str | None, broker: str | None, probe: bool = False,
                     controllers: Sequence[str] = ()) -> Reading:
    """How replication stands at each broker chosen; an address without a name server is asked alone.

    `controllers`: also those; else the ones that the brokers name.
    """
    reader = Reader(admin, probe=admin.put_probe if probe else None)
    if not admin.namesrv:
        if broker is None or ":" not in broker:
            raise ReplicationToolError("give a name server with -n host:port, or a broker's address with -b host:port")
        if cluster is not None:
            raise ReplicationToolError("a cluster's brokers are known to its name server: give it with -n host:port")
        return _read(admin, reader, [Group([Broker("", "", 0, broker)], listed=False)], controllers, [])
    name_servers = ask_name_servers(admin.namesrv, admin.timeout_ms)
    groups: dict[tuple[str, str], Group] = {}
    for each in chosen(name_servers.brokers, cluster, broker):
        groups.setdefault((each.cluster, each.name), Group([])).brokers.append(each)
    faults = name_servers.faults()
    for missing, fault in name_servers.missing():
        group = groups.get((missing.cluster, missing.name))
        if group is not None:
            group.faults.append(fault)
        elif cluster in (None, missing.cluster) and broker in (None, missing.name, missing.address):
            faults.append(fault)  # the last one of its name
    return _read(admin, reader, list(groups.values()), controllers, faults)


def _read(admin: BrokerAdmin, reader: Reader, groups: list[Group], given: Sequence[str],
          faults: list[Fault]) -> Reading:
    views, controllers = reader.read(groups), Controllers(admin, given)
    for group, view in zip(groups, views, strict=True):
        told = group.looks[-1].values()
        view.failover = controllers.look(view.name, told)
        if view.failover is not None:
            view.faults += faults_of(view.failover, view.name, view.address, told) if group.listed else (
                controller_faults(view.failover.controllers))
    return Reading(views, faults)


def rate_text(rate: float | None) -> str:
    """Bytes a second; "?" for unknown."""
    return "?" if rate is None else f"{size_text(round(rate))}/s"
