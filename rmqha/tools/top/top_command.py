"""The command `rmqha top`."""
import sys

import click

from rmqha.common.program import examples
from rmqha.tools.connection import account, needed_namesrv
from rmqha.tools.terminal import CannotAnswerError, emit, extra_needed, output_option, put, render_table
from rmqha.tools.top.rows import Table, brokers, groups, troubles
from rmqha.tools.view.snapshot import Collector, Picture, picture, snapshot_pair
from rmqha.tools.view.texts import overview, view_options

# Columns that need a history.
_SPARKS = {"in", "out", "backlog", "lag trend"}


@click.command("top", epilog=examples(
    "rmqha top -n 127.0.0.1:9876",
    "rmqha top -n 127.0.0.1:9876 --once -o json"))
@view_options(default_interval_s=2.0)
@click.option("--once", is_flag=True, help="Print one snapshot after one interval, then exit. Needs no extra.")
@output_option
def top_command(namesrv: str | None, cluster: str | None, broker: str | None, interval_s: float, timeout_s: float,
                once: bool, output: str) -> None:
    """Show a cluster live: brokers, rates, lag of slaves and groups.

    Keys sort, filter and drill down.

    Works with rmqha's and Java's brokers. With --once, exit code 2 when a listed broker does not answer.
    """
    namesrv = needed_namesrv(namesrv)
    if not once:
        if output != "table":
            raise click.UsageError("-o json and -o yaml need --once")
        with extra_needed("top", "tui"):
            from rmqha.tools.top.top_app import TopApp
        if not sys.stdout.isatty():
            raise click.UsageError("rmqha top needs a terminal; use --once to print a snapshot")
        TopApp.on_cluster(namesrv, cluster, broker, interval_s, timeout_s, account())
        return
    with Collector(namesrv, timeout_s * 1000, cluster, broker, account()) as collector:
        before, now = snapshot_pair(collector, interval_s)
    seen = picture(now, before, before if before.groups_at_s != now.groups_at_s else None)
    if output == "table":
        put(_text(seen))
    else:
        emit(overview(seen), output)
    if not seen.snapshot.brokers:
        raise CannotAnswerError("the name server knows no broker")
    if any(each.error for each in seen.snapshot.brokers):
        raise SystemExit(2)


def _text(seen: Picture) -> str:
    parts = [_render(brokers(seen, _no_history))]
    if seen.snapshot.groups:
        parts.append(_render(groups(seen, _no_history)))
    parts += [f"{'CRITICAL' if tone == 'bad' else 'WARNING'} {text}" for tone, text in troubles(seen)]
    return "\n\n".join(parts)


def _render(table: Table) -> str:
    kept = [number for number, column in enumerate(table.columns) if column.title not in _SPARKS]
    return render_table([table.columns[number].title for number in kept],
                        [[row.cells[number] for number in kept] for row in table.rows],
                        {column.title for column in table.columns if column.right})


def _no_history(_kind: str, _name: str, _last: int) -> list[float | None]:
    return []
