"""The group `rmqha check`: monitoring checks of controllers, replication, groups and single servers.

- `check controller`: the controllers answer, one of them leads, and each master could be replaced.
- `check ha`: each master has the expected slaves, and their lag is within the limits.
- `check ha --deep`: in addition, each slave holds the same log bytes as its master, compared by checksums.
- `check group`: a consumer group keeps up, and its members run (`group_check`).
- `check server`: one name server or broker answers; for containers and load balancers.
"""
from __future__ import annotations

import dataclasses
import re
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from rmqha.common.program import examples
from rmqha.common.protocol import response_code
from rmqha.common.units import seconds_text, size_text
from rmqha.tools.admin.cluster_admin import (
    DEFAULT_TIMEOUT_MS,
    ClusterAdmin,
    NoAnswerError,
    RefusedError,
    own_address,
    parsed_address,
)
from rmqha.tools.check_base import CheckCommand, Limits, LimitsType, Status
from rmqha.tools.connection import connected, namesrv_option
from rmqha.tools.group_check import group_check_command
from rmqha.tools.replication.controllers import Controllers, controller_faults, faults_of, leader_of, split_addresses
from rmqha.tools.replication.judgement import Problem, Rules, judge_all, name_of, worst
from rmqha.tools.replication.log_match import (
    Difference,
    LogSide,
    describe,
    differing_blocks,
    first_difference,
    in_unread_rest,
    log_side,
)
from rmqha.tools.replication.reader import cluster_options, controller_option, read_replication
from rmqha.tools.replication.status import as_json
from rmqha.tools.replication.views import FailoverView, MasterView, SlaveView
from rmqha.tools.terminal import (
    CannotAnswerError,
    cell,
    counted,
    duration_type,
    emit,
    output_option,
    put,
    size_type,
)


@click.command("controller", cls=CheckCommand, short_help="Check that all controllers answer and one leads.",
               epilog=examples(
    "rmqha check controller -a '10.0.0.8:9878;10.0.0.9:9878'"))
@click.option("-a", "--controller", required=True, metavar="HOST:PORT", help="Controllers, separated by semicolons.")
@namesrv_option
@click.option("-b", "--broker", "names", multiple=True, metavar="NAME",
              help="A broker name that must be able to fail over; may be repeated. Default with -n: all registered "
                   "broker names.")
@click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
              type=duration_type(0.1, 600), help="How long to wait for each answer.")
@output_option
def controller_check_command(controller: str, namesrv: str | None, names: tuple[str, ...], timeout_s: float,
                             output: str) -> None:
    """Check the controllers of automatic failover: all answer, and one of them leads.

    Also check that each broker name has a master, enough replicas in sync, and a replica that could take over.
    Prints one line. Exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """
    addresses = split_addresses(controller)
    with connected(namesrv, timeout_s) as admin:
        # broker name -> address of its master, "" when no master is registered
        masters = dict.fromkeys(names, "")
        for each in admin.brokers() if namesrv else ():
            if not names or each.name in names:
                masters[each.name] = each.address if each.is_master else masters.get(each.name, "")
        controllers = Controllers(admin)
        views = {name: controllers.look_at(name, addresses) for name in sorted(masters)}
        masters = {name: _own(admin, address, views[name].master) for name, address in masters.items()}
        asked = controllers.ask(addresses)
    problems = [Problem(fault.status, fault.text) for fault in controller_faults(asked)]
    general = {problem.text for problem in problems}
    problems += [Problem(fault.status, f"{name}: {fault.text}") for name, view in views.items()
                 for fault in faults_of(view, name, masters[name], ()) if fault.text not in general]
    status, leader = worst(problems), leader_of(asked)
    text = "; ".join(each.text for each in sorted(problems, key=lambda each: each.status is not Status.CRITICAL)) or (
        f"{leader} leads, {counted(len(asked), 'controller')}, {counted(len(views), 'broker name')}")
    if output != "table":
        told = [{"status": problem.status.name, "text": problem.text} for problem in problems]
        emit({"check": "controller", "status": status.name, "code": int(status), "text": text, "problems": told,
              "leader": leader, "controllers": [asdict(each) for each in asked],
              "brokers": {name: asdict(view) for name, view in views.items()}}, output)
    else:
        put(f"CONTROLLER {status.name} - {text} | {_perfdata(views)}".removesuffix(" | "))
    raise SystemExit(int(status))


def _own(admin: ClusterAdmin, registered: str, master: str) -> str:
    """Return the own address of a registered master, as far as it is known; it may have registered a proxy's."""
    if not registered or registered == master:
        return registered
    try:
        return own_address(admin.get_broker_config(registered), registered)
    except CannotAnswerError:
        return registered


def _perfdata(views: dict[str, FailoverView]) -> str:
    return " ".join(f"'{name} in sync'={len(view.sync_state_set)};;;0" for name, view in views.items())


_RANGE = re.compile(r"(\d*):(\d*)", re.ASCII)

if TYPE_CHECKING:
    _RangeParam = click.ParamType[tuple[int, int | None]]
else:
    # generic since click 8.4; 8.1 works too
    _RangeParam = click.ParamType


@dataclass(frozen=True)
class Wanted:
    """The part of the logs to compare: `begin` to `end` (None: the end of the logs), or the last `newest` bytes."""

    begin: int | None = None
    end: int | None = None
    newest: int = 0


class RangeType(_RangeParam):
    """`BEGIN:END`, two offsets of the commit log, each optional."""

    name = "range"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> tuple[int, int | None]:
        """Parse a range into its offsets."""
        match = _RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is not a valid BEGIN:END, two offsets of the commit log", param, ctx)
        begin, end = int(match[1] or 0), int(match[2]) if match[2] else None
        if end is not None and end <= begin:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return begin, end


@dataclass
class Compared:
    """The comparison of a slave with its master: the range and the result; `error` says why it was not possible."""

    name: str
    master: str
    slave: str
    begin: int = 0
    end: int = 0
    compared: int = 0  # bytes
    # files that differ only after their blank record, which is never read
    rests: int = 0
    difference: Difference | None = None
    error: str = ""

    def problem(self) -> Problem | None:
        """Return the problem found, or None when the compared bytes are equal."""
        who = f"{self.name}'s slave {cell(self.slave)}"
        if self.difference is not None:
            return Problem(Status.CRITICAL, f"{who}: {self.difference.text()}", "DIFFERS")
        return Problem(Status.UNKNOWN, f"{who} can't be compared: {self.error}") if self.error else None

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        found, record = self.difference, self.difference.record if self.difference is not None else None
        difference = None if found is None else {
            "offset": found.offset, "record": found.place.start, "wrong": found.wrong, "text": found.text(),
            "topic": record.topic if record is not None else None,
            "queueId": record.queue_id if record is not None else None,
            "queueOffset": record.queue_offset if record is not None else None,
            "size": record.size if record is not None else None}
        return {"name": self.name, "master": self.master, "slave": self.slave, "begin": self.begin, "end": self.end,
                "comparedBytes": self.compared, "unreadRestsThatDiffer": self.rests, "difference": difference,
                "error": self.error or None}

    def perfdata(self) -> str:
        """Return the number of compared bytes as performance data for monitoring."""
        label = re.sub(r"['=\s]", "_", f"{self.name}/{self.slave}")
        return f"'{label} compared'={self.compared}B;;;0"


def compare_slaves(admin: ClusterAdmin, views: list[MasterView], rules: Rules, wanted: Wanted) -> list[Compared]:
    """Compare each slave that the name server lists with its master."""
    found = []
    for view in views:
        if view.follows is not None and not view.slaves:
            found.append(Compared(name_of(view), view.follows.address, view.address,
                                  error="the broker is a slave: give the name server (-n), which knows its master"))
            continue
        slaves = [slave for slave in view.slaves if slave.broker_id is not None and not rules.ignores(slave)]
        if not slaves and not view.error:
            found.append(Compared(name_of(view), view.address, "", error="no slave is registered at the name server "
                                  "(-n)"))
        found += [_compare(admin, view, slave, wanted) for slave in slaves]
    return found


def _compare(admin: ClusterAdmin, view: MasterView, slave: SlaveView, wanted: Wanted) -> Compared:
    result = Compared(name_of(view), view.address, slave.address)
    if view.error:
        result.error = view.error
        return result
    try:
        with closing(log_side(admin, view.address, "master")) as master, \
                closing(log_side(admin, slave.address, "slave")) as held:
            _compare_logs(master, held, result, wanted)
    except CannotAnswerError as error:
        result.error = error.message
    return result


def _compare_logs(master: LogSide, slave: LogSide, result: Compared, wanted: Wanted) -> None:
    begin, end = max(master.begin, slave.begin), min(master.end, slave.end)
    if master.file_size != slave.file_size:
        result.error = (f"their log files differ in size, {master.file_size} and {slave.file_size} bytes: set the same "
                        "mappedFileSizeCommitLog at both")
        return
    if wanted.end is not None:
        end = min(end, wanted.end)
    begin = max(begin, wanted.begin if wanted.begin is not None else end - wanted.newest)
    if begin >= end and (master.end or slave.end):
        result.error = (f"they share no bytes in that range: the master holds {master.begin} to {master.end}, "
                        f"the slave {slave.begin} to {slave.end}")
        return
    result.begin, result.end = begin, end
    _find(master, slave, result)


def _find(master: LogSide, slave: LogSide, result: Compared) -> None:
    """Find the first difference that matters, and count the bytes compared up to it."""
    def come_to(offset: int) -> None:
        result.compared = offset - result.begin
    done = result.begin  # everything before it is compared
    for low, high in differing_blocks(master, slave, result.begin, result.end, come_to):
        while (at := first_difference(master, slave, max(low, done), high)) is not None:
            found = describe(master, slave, at)
            if not in_unread_rest(master, slave, at, found.place):
                result.difference, result.compared = found, at - result.begin
                return
            result.rests += 1
            done = found.place.end


def deep_text(results: list[Compared]) -> str:
    """Return the text for the check's line when all compared bytes are equal."""
    total = sum(each.compared for each in results)
    rests = sum(each.rests for each in results)
    return (f"; {counted(len(results), 'slave')} compared by checksums: {size_text(total)} ({total} bytes) are equal"
            + (f", except for the unread ends of {counted(rests, 'file')}" if rests else ""))


# bytes that --deep compares by default
_NEWEST = 256 << 20


def perfdata(views: list[MasterView], rules: Rules) -> str:
    """Return the lag of each slave as performance data for monitoring: 'label'=value;warn;crit;min."""
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
    """Return the text of the check's line: the problems, the worst first, or the counts and the greatest lag."""
    if problems:
        order = (Status.CRITICAL, Status.UNKNOWN, Status.WARNING)
        return "; ".join(problem.text for problem in sorted(problems, key=lambda each: order.index(each.status)))
    slaves = [slave for view in views for slave in view.slaves if not rules.ignores(slave)]
    lag = max((slave.lag_bytes or 0 for slave in slaves), default=0)
    seconds = max((slave.lag_seconds for slave in slaves if slave.lag_seconds is not None), default=0.0)
    return (f"{counted(len(views), 'broker name')}, {counted(len(slaves), 'slave')}, at most {size_text(lag)}, "
            f"{seconds_text(seconds)} behind")


@click.command("ha", cls=CheckCommand, short_help="Check that each master has its slaves, and their lag.",
               epilog=examples(
    "rmqha check ha -n 127.0.0.1:9876",
    "rmqha check ha -n 127.0.0.1:9876 --warn 1MiB --crit 64MiB --min-slaves 1"))
@cluster_options
@controller_option
@click.option("--warn", type=LimitsType(), default="16MiB,30s", show_default=True,
              help="Lag above which the result is WARNING: a size, a time, or both separated by a comma.")
@click.option("--crit", type=LimitsType(), default="256MiB,300s", show_default=True,
              help="Lag above which the result is CRITICAL.")
@click.option("--min-slaves", type=click.IntRange(0), help="CRITICAL when a master has fewer working slaves; default: "
              "1, or more if its totalReplicas or inSyncReplicas requires more.")
@click.option("--ignore", multiple=True, metavar="HOST[:PORT]",
              help="Ignore this slave, for example a receiver; may be repeated.")
@click.option("--probe", is_flag=True,
              help="If the slaves of a RocketMQ 4.9 master do not advance, send it one small message and check that "
                   "they receive it.")
@click.option("--deep", is_flag=True,
              help="Compare the log of each slave with its master's by checksums: the last 256 MiB that both hold.")
@click.option("--range", "offsets", type=RangeType(), metavar="BEGIN:END",
              help="With --deep: compare this range of commit log offsets; `0:` (from 0 to the end) compares "
                   "everything that both hold.")
@click.option("--bytes", "newest", type=size_type(1),
              help="With --deep: compare this much of the end of the log, for example 2GiB.")
@output_option
def ha_check_command(namesrv: str | None, broker: str | None, cluster: str | None, timeout_s: float,
                     controller: str | None, warn: Limits, crit: Limits, min_slaves: int | None,
                     ignore: tuple[str, ...], probe: bool, deep: bool, offsets: tuple[int, int | None] | None,
                     newest: int | None, output: str) -> None:
    """Check replication: each master has its slaves, none is refused, and none is too far behind.

    With automatic failover, also check that a controller leads, enough replicas are in sync, and one could take over.
    Prints one line. Exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    UNKNOWN means that the servers' answers do not show whether replication works. An idle RocketMQ 4.9 cluster is
    UNKNOWN, because its log does not grow; --probe sends a message to find out.

    With --deep, also check that each slave holds the same bytes as its master. A difference is CRITICAL; the output
    names the first record that differs, and says whose copy is wrong: the master's or the slave's. RocketMQ's own
    brokers are read through their HA port, so the whole range crosses the network; rmqha's brokers send checksums only.
    """
    wanted = _wanted(deep, offsets, newest)
    with connected(namesrv, timeout_s) as admin:
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
        problems.append(Problem(Status.UNKNOWN, "no broker is registered at the name server"))
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
    """Return the part of the logs to compare; None without --deep."""
    if not deep:
        if offsets is not None or newest is not None:
            raise CannotAnswerError("--range and --bytes need --deep")
        return None
    if offsets is not None:
        if newest is not None:
            raise CannotAnswerError("--range and --bytes can't be used together")
        return Wanted(*offsets)
    if newest is None:
        return Wanted(newest=_NEWEST)
    return Wanted(newest=newest)


@click.command("server", cls=CheckCommand, short_help="Check that a server answers.", epilog=examples(
    "rmqha check server -b 127.0.0.1:10911",
    "rmqha check server -n 127.0.0.1:9876"))
@click.option("-n", "--namesrv", metavar="HOST:PORT", help="A name server.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="A broker.")
@click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
              type=duration_type(0.1, 600), help="How long to wait for the answer.")
@output_option
def server_check_command(namesrv: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Check one server: it answers a request at its port.

    A broker that refuses the request because of access control counts as answering. Prints one line. Exit code: 0 OK,
    2 CRITICAL, 3 UNKNOWN.
    """
    if (namesrv is None) == (broker is None):
        raise click.UsageError("give exactly one server: a name server with -n, or a broker with -b")
    kind, option, address = ("name server", "--namesrv", namesrv) if broker is None else ("broker", "--broker", broker)
    parsed_address(address or "", option)
    begin = time.monotonic()
    status, text = Status.OK, f"{kind} {address} answers"
    try:
        with connected(namesrv, timeout_s) as admin:
            if broker is None:
                admin.examine_broker_cluster_info()
            else:
                admin.runtime_info(broker)
    except (NoAnswerError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.code == response_code.NO_PERMISSION:
            text += ", but refuses the request (access control)"
        else:
            status, text = Status.CRITICAL, error.message
    seconds = time.monotonic() - begin
    if output != "table":
        emit({"check": "server", "status": status.name, "code": int(status), "text": text, "seconds": seconds}, output)
    else:
        put(f"SERVER {status.name} - {text} | 'time'={seconds:.3f}s;;;0")
    raise SystemExit(int(status))


@click.group("check")
def check_group() -> None:
    """Run checks for monitoring: one line and an exit code each.

    Exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    """


for _command in (ha_check_command, controller_check_command, group_check_command, server_check_command):
    check_group.add_command(_command)
