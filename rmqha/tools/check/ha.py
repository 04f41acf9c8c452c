"""`check ha`: whether each master has the slaves it should have, and whether they are near enough."""
import dataclasses
import re

import click

from rmqha.tools.check.check_base import CheckCommand, Status
from rmqha.tools.check.deep import RangeType, Wanted, compare_slaves, deep_text
from rmqha.tools.check.thresholds import Limits, LimitsType
from rmqha.tools.dialect.unit_types import size_type
from rmqha.tools.ha.broker_admin import ReplicationToolError
from rmqha.tools.ha.controllers import split_addresses
from rmqha.tools.ha.judgement import Problem, Rules, judge_all, worst
from rmqha.tools.ha.log_sides import LogAdmin
from rmqha.tools.ha.options import cluster_options, controller_option, read_replication
from rmqha.tools.ha.status import as_json
from rmqha.tools.ha.views import MasterView
from rmqha.tools.store.output import counted, emit, output_option, put, seconds_text, size_text

_NEWEST = 256 << 20  # bytes that --deep compares by default


def perfdata(views: list[MasterView], rules: Rules) -> str:
    """Lag of each slave as monitoring reads it: 'label'=value;warn;crit;min."""
    parts = []
    for view in views:
        for slave in view.slaves:
            if rules.ignores(slave):
                continue
            label = re.sub(r"['=\s]", "_", f"{view.name}/{slave.address}")
            if slave.lag_bytes is not None:
                parts.append(f"'{label} lag'={max(slave.lag_bytes, 0)}B;{rules.warn.text('bytes')};"
                             f"{rules.crit.text('bytes')};0")
            if slave.lag_seconds is not None:
                parts.append(f"'{label} time'={slave.lag_seconds:g}s;{rules.warn.text('seconds')};"
                             f"{rules.crit.text('seconds')};0")
    return " ".join(parts)


def summary(views: list[MasterView], problems: list[Problem], rules: Rules) -> str:
    """What the line says: the problems, the worst first, or how good things are."""
    if problems:
        order = (Status.CRITICAL, Status.UNKNOWN, Status.WARNING)
        return "; ".join(problem.text for problem in sorted(problems, key=lambda each: order.index(each.status)))
    slaves = [slave for view in views for slave in view.slaves if not rules.ignores(slave)]
    lag = max((slave.lag_bytes or 0 for slave in slaves), default=0)
    seconds = max((slave.lag_seconds for slave in slaves if slave.lag_seconds is not None), default=0.0)
    return (f"{counted(len(views), 'broker name')}, {counted(len(slaves), 'slave')}, at most {size_text(lag)}, "
            f"{seconds_text(seconds)} behind")


@click.command("ha", cls=CheckCommand)
@cluster_options
@controller_option
@click.option("--warn", type=LimitsType(), default="16MiB,30s", show_default=True,
              help="Lag above which it is WARNING: bytes, a time, or both with a comma.")
@click.option("--crit", type=LimitsType(), default="256MiB,300s", show_default=True,
              help="Lag above which it is CRITICAL.")
@click.option("--min-slaves", type=click.IntRange(0), help="CRITICAL when a master has fewer slaves that work; by "
              "default 1, or more when its totalReplicas or inSyncReplicas wants more.")
@click.option("--ignore", multiple=True, metavar="HOST[:PORT]",
              help="A slave that does not matter, such as a receiver; more than once for several.")
@click.option("--probe", is_flag=True,
              help="Send one small message to each master of 4.9 whose slaves stand still, and look for it there.")
@click.option("--deep", is_flag=True,
              help="Compare the logs of each slave and its master by checksums: the newest 256 MiB that both hold.")
@click.option("--range", "offsets", type=RangeType(), metavar="BEGIN:END",
              help="With --deep: from one commit log offset to another; 0: is all that both hold.")
@click.option("--bytes", "newest", type=size_type(1),
              help="With --deep: so much of the newest, for example 2GiB.")
@output_option
def ha_check_command(namesrv: str | None, broker: str | None, cluster: str | None, timeout_s: float,
                     controller: str | None, warn: Limits, crit: Limits, min_slaves: int | None,
                     ignore: tuple[str, ...], probe: bool, deep: bool, offsets: tuple[int, int | None] | None,
                     newest: int | None, output: str) -> None:
    """Check replication: each master has its slaves, none is refused, and none is too far behind.

    With automatic failover also that a controller leads, enough replicas are in sync, and one could take over.

    What nobody can tell is UNKNOWN. A cluster of 4.9 at rest is: --probe makes its log go on.

    With --deep also that each slave holds its master's bytes. A difference is CRITICAL, with the first record that
    differs, and whose copy of it is wrong. A broker of RocketMQ is read through its HA port, and its host's network
    carries the whole range; brokers of rmqha send checksums.
    """
    wanted = _wanted(deep, offsets, newest)
    with LogAdmin(namesrv, timeout_s * 1000) as admin:
        reading = read_replication(admin, cluster, broker, probe, split_addresses(controller or ""))
        rules = Rules(warn, crit, min_slaves, ignore)
        compared = compare_slaves(admin, reading.views, rules, wanted) if wanted is not None else []
    views = reading.views
    if min_slaves is None:
        for view in views:
            view.wanted_slaves = max(view.wanted_slaves, 1)
    problems = judge_all(reading, rules)
    problems += [problem for each in compared if (problem := each.problem()) is not None]
    if not views:
        problems.append(Problem(Status.UNKNOWN, "the name server knows no broker"))
    status, text = worst(problems), summary(views, problems, rules)
    if compared and not problems:
        text += deep_text(compared)
    if output != "table":
        told = [{"status": problem.status.name, "text": problem.text} for problem in problems]
        emit({"check": "ha", "status": status.name, "code": int(status), "text": text, "problems": told,
              "warn": dataclasses.asdict(warn), "crit": dataclasses.asdict(crit),
              "brokers": [as_json(view) for view in views],
              **({"deep": [each.as_json() for each in compared]} if deep else {})}, output)
    else:
        data = " ".join(filter(None, [perfdata(views, rules), *(each.perfdata() for each in compared)]))
        put(f"HA {status.name} - {text}" + (f" | {data}" if data else ""))
    raise SystemExit(int(status))


def _wanted(deep: bool, offsets: tuple[int, int | None] | None, newest: int | None) -> Wanted | None:
    """Which part of the logs is compared; None: none."""
    if not deep:
        if offsets is not None or newest is not None:
            raise ReplicationToolError("--range and --bytes say what --deep compares: give it, too")
        return None
    if offsets is not None:
        if newest is not None:
            raise ReplicationToolError("--range and --bytes exclude each other")
        return Wanted(*offsets)
    if newest is None:
        return Wanted(newest=_NEWEST)
    return Wanted(newest=newest)
