"""`check ha`: whether each master has the slaves it should have, and whether they are near enough."""
import dataclasses
import re
from dataclasses import dataclass

import click

from rmqha.tools.check.check_base import CheckCommand, Status
from rmqha.tools.check.thresholds import Limits, LimitsType
from rmqha.tools.ha.broker_admin import BrokerAdmin
from rmqha.tools.ha.options import cluster_options, read_replication, seconds_text
from rmqha.tools.ha.replication import MasterView, SlaveView
from rmqha.tools.ha.status import as_json
from rmqha.tools.store.output import cell, output_option, put, size_text, to_json

_BAD_STATES = ("OFFSET_REFUSED", "APPEND_FAILED", "AHEAD", "UNREACHABLE", "NOT_CONNECTED", "SHUTDOWN")


@dataclass(frozen=True)
class Problem:
    """What a check found."""

    status: Status
    text: str


@dataclass(frozen=True)
class Rules:
    """What is asked for. `ignore` are hosts, or host:port."""

    warn: Limits
    crit: Limits
    min_slaves: int
    ignore: tuple[str, ...] = ()

    def ignores(self, address: str) -> bool:
        """Whether a slave of this address does not matter."""
        return address in self.ignore or address.rpartition(":")[0] in self.ignore


def judge(view: MasterView, rules: Rules) -> list[Problem]:
    """What is wrong with one master's replication."""
    if view.error:
        return [Problem(Status.CRITICAL, f"{_name(view)}: {view.error}")]
    if view.follows is not None and not view.slaves:
        return _judge_own_connection(view, view.follows)
    slaves = [slave for slave in view.slaves if not rules.ignores(slave.address)]
    problems = [problem for slave in slaves for problem in _judge_slave(view, slave, rules)]
    problems += [Problem(Status.CRITICAL, f"{_name(view)} refuses the slave {cell(each.address)}: {each.reason}")
                 for each in view.refused if not rules.ignores(each.address)]
    good = sum(slave.state not in _BAD_STATES for slave in slaves)
    if good < rules.min_slaves and not (view.note and not slaves):
        problems.append(Problem(Status.CRITICAL, f"{_name(view)} has {_counted(good, 'working slave')}, "
                                f"{rules.min_slaves} wanted"))
    if view.note and not slaves and rules.min_slaves:
        problems.append(Problem(Status.UNKNOWN, f"{_name(view)}: {view.note}"))
    return problems


def _judge_own_connection(view: MasterView, follows: SlaveView) -> list[Problem]:
    if follows.state in ("TRANSFER", "SUSPEND", "HANDSHAKE", "UNKNOWN"):
        return []
    return [Problem(Status.CRITICAL, f"{_name(view)} follows {follows.address or 'nobody'}: {follows.state}"
                    + (f", {cell(follows.note)}" if follows.note else ""))]


def _judge_slave(view: MasterView, slave: SlaveView, rules: Rules) -> list[Problem]:
    who = f"{_name(view)}'s slave {cell(slave.address)}"
    if slave.state in _BAD_STATES:
        return [Problem(Status.CRITICAL, f"{who} is {slave.state}" + (f": {cell(slave.note)}" if slave.note else ""))]
    behind = f"{who} is {size_text(slave.lag_bytes or 0)}, {seconds_text(slave.lag_seconds)} behind"
    if rules.crit.exceeded(slave.lag_bytes, slave.lag_seconds):
        return [Problem(Status.CRITICAL, behind)]
    if rules.warn.exceeded(slave.lag_bytes, slave.lag_seconds):
        return [Problem(Status.WARNING, behind)]
    timed = rules.warn.seconds is not None or rules.crit.seconds is not None
    if slave.lag_bytes is None or timed and slave.lag_seconds is None:
        return [Problem(Status.UNKNOWN, f"{who}: nobody tells how far behind it is"
                        + ("" if slave.lag_bytes is None else " in seconds"))]
    return []


def worst(problems: list[Problem]) -> Status:
    """CRITICAL before UNKNOWN: what is surely bad is not covered by what isn't known."""
    for status in (Status.CRITICAL, Status.UNKNOWN, Status.WARNING):
        if any(problem.status is status for problem in problems):
            return status
    return Status.OK


def perfdata(views: list[MasterView], rules: Rules) -> str:
    """Lag of each slave as monitoring reads it: 'label'=value;warn;crit;min."""
    parts = []
    for view in views:
        for slave in view.slaves:
            if rules.ignores(slave.address):
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
    slaves = [slave for view in views for slave in view.slaves if not rules.ignores(slave.address)]
    lag = max((slave.lag_bytes or 0 for slave in slaves), default=0)
    seconds = max((slave.lag_seconds for slave in slaves if slave.lag_seconds is not None), default=0.0)
    return (f"{_counted(len(views), 'broker name')}, {_counted(len(slaves), 'slave')}, at most {size_text(lag)}, "
            f"{seconds_text(seconds)} behind")


def _name(view: MasterView) -> str:
    return cell(view.name) or view.address


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


@click.command("ha", cls=CheckCommand)
@cluster_options
@click.option("--warn", type=LimitsType(), default="16MiB,30s", show_default=True,
              help="Lag above which it is WARNING: bytes, a time, or both with a comma.")
@click.option("--crit", type=LimitsType(), default="256MiB,300s", show_default=True,
              help="Lag above which it is CRITICAL.")
@click.option("--min-slaves", default=1, show_default=True, type=click.IntRange(0),
              help="CRITICAL when a master has fewer slaves that work.")
@click.option("--ignore", multiple=True, metavar="HOST[:PORT]",
              help="A slave that does not matter, such as a receiver; more than once for several.")
@output_option
def ha_check_command(namesrv: str | None, broker: str | None, cluster: str | None, timeout_s: float, warn: Limits,
                     crit: Limits, min_slaves: int, ignore: tuple[str, ...], output: str) -> None:
    """Check replication: each master has its slaves, none is refused, and none is too far behind."""
    rules = Rules(warn, crit, min_slaves, ignore)
    with BrokerAdmin(namesrv, timeout_s * 1000) as admin:
        views = read_replication(admin, cluster, broker)
    problems = [problem for view in views for problem in judge(view, rules)]
    if not views:
        problems.append(Problem(Status.UNKNOWN, "the name server knows no broker"))
    status, text = worst(problems), summary(views, problems, rules)
    if output == "json":
        told = [{"status": problem.status.name, "text": problem.text} for problem in problems]
        put(to_json({"check": "ha", "status": status.name, "code": int(status), "text": text, "problems": told,
                     "warn": dataclasses.asdict(warn), "crit": dataclasses.asdict(crit),
                     "brokers": [as_json(view) for view in views]}))
    else:
        data = perfdata(views, rules)
        put(f"HA {status.name} - {text}" + (f" | {data}" if data else ""))
    raise SystemExit(int(status))
