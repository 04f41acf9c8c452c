"""`ha status`: each master's slaves, their lag and state, and the slaves that it refuses."""
import dataclasses
import sys
import time

import click

from rmqha.common.program import Terminated, examples
from rmqha.common.units import rate_text, seconds_text
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.check_base import Status
from rmqha.tools.connection import connected
from rmqha.tools.replication.controllers import failover_lines, split_addresses
from rmqha.tools.replication.judgement import Rules, judge, log_problems, worst
from rmqha.tools.replication.reader import cluster_options, controller_option, read_replication
from rmqha.tools.replication.views import MasterView, Reading, SlaveView
from rmqha.tools.terminal import CannotAnswerError, cell, duration_type, emit, output_option, put, render_table

_HEADINGS = ("slave", "id", "state", "ack offset", "lag", "lag time", "rate", "in sync")
_RIGHT = {"id", "ack offset", "lag", "lag time", "rate"}


class RateMeter:
    """Computes the rates of slaves whose broker reports none, from two polls of their offsets."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # (master, slave) -> (monotonic s, offset)

    def fill_in(self, views: list[MasterView], now: float) -> None:
        """Set `rate` where it is unknown and the slave was seen before."""
        for view in views:
            for slave in view.slaves:
                if slave.ack_offset is None:
                    continue
                key = (view.address, slave.address)
                before = self._seen.get(key)
                self._seen[key] = (now, slave.ack_offset)
                if slave.rate is None and before is not None and now > before[0]:
                    slave.rate = max(slave.ack_offset - before[1], 0) / (now - before[0])


def render(view: MasterView) -> str:
    """Return one master and its slaves as text, with their problems."""
    lines = [_title(view)]
    if view.error:
        unreachable = view.address and view.error_status is Status.CRITICAL
        lines.append(f"  UNREACHABLE: {view.error}" if unreachable else f"  {view.error}")
    if view.follows is not None:
        lines += [f"  {line}" for line in _own_connection(view.follows)]
    if view.note:
        lines.append(f"  {view.note}")
    if view.slaves:
        table = render_table(_HEADINGS, [_cells(slave) for slave in view.slaves], _RIGHT)
        lines += [f"  {line}" for line in table.split("\n")]
    elif not view.error and not view.note and view.follows is None:
        lines.append("  no slave is connected")
    if view.failover is not None:
        lines += [f"  {line}" for line in failover_lines(view.failover)]
    lines += [f"  {_word(each.status)}{cell(each.address)}: {cell(each.note)}" for each in view.slaves if each.note]
    lines += [f"  {line}" for line in _log_lines(view)]
    lines += [f"  REFUSED {cell(each.address)}: {each.reason}; {each.todo}" for each in view.refused]
    shown = {fault.text for fault in view.faults}
    lines += [f"  {problem.status.name} {problem.text}" for problem in judge(view, Rules())
              if any(text in problem.text for text in shown) or " wanted" in problem.text]
    return "\n".join(lines)


def _title(view: MasterView) -> str:
    parts = [cell(view.name) or "(no name)", str(view.broker_id), view.address]
    parts += [part for part in (view.role, view.version) if part]
    if not view.error:
        parts.append(f"log {view.min_offset:,} to {view.max_offset:,}")
    return "  ".join(part for part in parts if part)


def _word(status: Status) -> str:
    return "" if status is Status.OK else f"{status.name} "


def _own_connection(follows: SlaveView) -> list[str]:
    lines = [f"follows {follows.address or 'nobody'}: {follows.state}, {rate_text(follows.rate)}"]
    return lines + [f"{_word(follows.status)}last error: {cell(follows.note)}"] if follows.note else lines


def _log_lines(view: MasterView) -> list[str]:
    """Return the state of the slaves' log checks, and their findings."""
    reporting = [(view.follows, "its log")] if view.follows is not None else []
    reporting += [(each, cell(each.address)) for each in view.slaves]
    lines = [f"{who}: {each.scrub.text()}" for each, who in reporting if each.scrub is not None and each.scrub.text()]
    return lines + [f"{problem.status.name} {problem.text}; {problem.todo}"
                    for problem in log_problems(view, view.slaves)]


def _cells(slave: SlaveView) -> tuple[str, ...]:
    return (cell(slave.address), "" if slave.broker_id is None else str(slave.broker_id), slave.state,
            "?" if slave.ack_offset is None else f"{slave.ack_offset:,}",
            "?" if slave.lag_bytes is None else f"{slave.lag_bytes:,} B", seconds_text(slave.lag_seconds),
            rate_text(slave.rate), {None: "?", True: "yes", False: "NO"}[slave.in_sync])


def as_json(view: MasterView) -> dict[str, object]:
    """Return one master and its slaves for programs; `status` and `problems` are judged without lag limits."""
    answer = dataclasses.asdict(view)
    problems = judge(view, Rules())
    answer["status"] = worst(problems).name
    answer["problems"] = [{"status": problem.status.name, "text": problem.text} for problem in problems]
    answer["error_status"] = view.error_status.name
    for told, shown in zip([*answer["slaves"], *answer["faults"], answer["follows"] or {}],
                           [*view.slaves, *view.faults, view.follows]):
        if shown is not None:
            told["status"] = shown.status.name
    for told, refused in zip(answer["refused"], view.refused):
        told["reason"] = refused.reason
    return answer


def _print(reading: Reading, output: str) -> None:
    for fault in reading.faults:
        click.echo(f"{fault.status.name} {fault.text}", err=True)
    if output != "table":
        emit([as_json(view) for view in reading.views], output)
    else:
        put(_text(reading))


def _text(reading: Reading) -> str:
    return "\n\n".join(render(view) for view in reading.views) or "the name server knows no broker"


def _watch(admin: ClusterAdmin, cluster: str | None, broker: str | None, controllers: list[str],
           interval_s: float) -> None:
    meter = RateMeter()
    while True:
        try:
            reading = read_replication(admin, cluster, broker, controllers=controllers)
            meter.fill_in(reading.views, time.monotonic())
            text = "\n".join([*(fault.text for fault in reading.faults), _text(reading)])
        except CannotAnswerError as error:
            text = error.message
        click.clear()
        put(f"{time.strftime('%H:%M:%S')}, every {interval_s:g} s; Ctrl-C to exit\n\n{text}")
        time.sleep(interval_s)


@click.command("status", short_help="Show each master's slaves: offset, lag, rate, state.", epilog=examples(
    "rmqha ha status -n 127.0.0.1:9876",
    "rmqha ha status -n 127.0.0.1:9876 --watch"))
@cluster_options
@controller_option
@click.option("--watch", is_flag=True, help="Refresh continuously; on a terminal only.")
@click.option("--interval", "interval_s", default=2.0, show_default=True, type=duration_type(0.2),
              help="Seconds between two refreshes of --watch.")
@output_option
def status_command(namesrv: str | None, broker: str | None, cluster: str | None, timeout_s: float,
                   controller: str | None, watch: bool, interval_s: float, output: str) -> None:
    """Show each master's slaves: offset, lag, rate, whether they are in sync, and the slaves that it refuses.

    With automatic failover also show the controllers' view: the replicas that may become the master, and why others may
    not.

    Works with rmqha, RocketMQ 4.9 and 5. Exit code 2 when a listed broker does not answer.
    """
    if watch and (output != "table" or not sys.stdout.isatty()):
        raise click.UsageError("--watch needs a terminal and table output; programs can poll with -o json")
    controllers = split_addresses(controller or "")
    with connected(namesrv, timeout_s) as admin:
        if watch:
            try:
                _watch(admin, cluster, broker, controllers, interval_s)
            except KeyboardInterrupt as interrupt:
                if isinstance(interrupt, Terminated):
                    raise
                # Ctrl-C is the normal end of --watch.
                return
        reading = read_replication(admin, cluster, broker, controllers=controllers)
    _print(reading, output)
    if any(view.error or any(slave.state == "UNREACHABLE" for slave in view.slaves) for view in reading.views):
        raise SystemExit(2)
