"""The commands `rmqha up`, `down` and `ps`: a persistent cluster on this host."""
from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rmqha.common.mix_all import NAMESRV_ADDR_ENV
from rmqha.common.program import examples
from rmqha.common.units import size_text
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster import processes
from rmqha.tools.local_cluster.layout import DIR_ENV, MAX_MASTERS, MAX_SLAVES, NORMAL, SMALL, Layout
from rmqha.tools.local_cluster.processes import NodeState, Observer, State
from rmqha.tools.local_cluster.start import BringUp
from rmqha.tools.terminal import cell, duration_type, emit, output_option, put, render_table

F = TypeVar("F", bound=Callable[..., Any])

_HEADINGS = ("name", "role", "address", "pid", "state", "memory", "store")
_LOWEST_PORT = 1024


def folder_options(command: F) -> F:
    """Add --dir and --name, which select the cluster."""
    for option in (
            click.option("--name", help="The cluster's name: a folder below $XDG_DATA_HOME/rmqha or "
                                        "~/.local/share/rmqha. The default is `default`."),
            click.option("--dir", "folder", metavar="DIR",
                         help=f"The cluster's folder; without --dir and --name, ${DIR_ENV} is used if set.")):
        command = option(command)
    return command


def chosen_folder(folder: str | None, name: str | None) -> Path:
    """Return the folder that --dir, --name and the environment select."""
    if folder is not None and name is not None:
        raise click.UsageError("--dir and --name exclude each other: a name is short for a folder")
    return cluster_folder.chosen(folder, name)


@click.command("up", epilog=examples(
    "rmqha up --wait",
    "rmqha up --masters 2 --slaves 1 --auto-failover --port 9876 --wait",
    "eval \"$(rmqha up --wait --print-env --name tests)\""))
@folder_options
@click.option("--masters", type=click.IntRange(1, MAX_MASTERS), help="The number of masters.  [default: 2]")
@click.option("--slaves", type=click.IntRange(0, MAX_SLAVES), help="The number of slaves per master.  [default: 1]")
@click.option("--sync/--async", "sync", default=None,
              help="Acknowledge a message when a slave has it, or at once.  [default: --sync; --async with --slaves 0]")
@click.option("--auto-failover/--no-auto-failover", "auto_failover", default=None,
              help="Let a controller choose the master among a master and its slaves, and replace it when it fails.  "
                   "[default: --no-auto-failover]")
@click.option("--memory", type=click.Choice([SMALL, NORMAL]),
              help="small: small files, allocated when needed; normal: RocketMQ's defaults, 1 GiB per commit log file. "
                   " [default: small]")
@click.option("--metrics/--no-metrics", "metrics", default=None,
              help="Expose Prometheus metrics, on a separate port for each server.  [default: --no-metrics]")
@click.option("--port", type=click.IntRange(_LOWEST_PORT, 65_535), metavar="BASE",
              help="The name server's port; the brokers use the ports above it, four each. By default, free ports are "
                   "chosen once.")
@click.option("--wait", is_flag=True, help="Wait until all brokers are registered and all slaves connected.")
@click.option("--timeout", "timeout_s", default=60.0, show_default=True, type=duration_type(0.1),
              help="The maximum time for --wait, in seconds.")
@click.option("--print-env", is_flag=True,
              help=f"Print only the lines `export {NAMESRV_ADDR_ENV}=...` and `export {DIR_ENV}=...`, quoted for a "
                   "shell: eval \"$(rmqha up --wait --print-env)\".")
@output_option
def up_command(folder: str | None, name: str | None, masters: int | None, slaves: int | None, sync: bool | None,
               auto_failover: bool | None, memory: str | None, metrics: bool | None, port: int | None, wait: bool,
               timeout_s: float, print_env: bool, output: str) -> None:
    """Start a persistent cluster, or restart its stopped servers.

    It runs on this host, and keeps running when the terminal closes. After `rmqha down` or a reboot of the host,
    `rmqha up` starts it again with its data and on the same ports. The options from --masters to --port count only when
    the cluster is created. Prints a table of the servers and, on the last lines, the commands that set NAMESRV_ADDR.
    """
    path = chosen_folder(folder, name)
    wanted = {key: value for key, value in (("masters", masters), ("slaves", slaves), ("sync", sync),
                                            ("memory", memory), ("metrics", metrics),
                                            ("auto_failover", auto_failover)) if value is not None}
    cluster_folder.check_ours_or_empty(path)
    with cluster_folder.locked(path):
        layout = cluster_folder.make_or_load(path, wanted, port)
        BringUp(layout, lambda line: click.echo(line, err=True)).run(wait, timeout_s)
    exports = {NAMESRV_ADDR_ENV: layout.namesrv.address, DIR_ENV: str(path)}
    if print_env:
        _put_exports(exports)
        return
    _print_states(_states(layout), output)
    if output == "table":
        # `ps`, `logs` and `down` find the default folder without the variable.
        if path == cluster_folder.chosen(None, None):
            del exports[DIR_ENV]
        put("")
        _put_exports(exports)


def _put_exports(variables: dict[str, str]) -> None:
    """Print one `export` command per line, for this shell and the programs that it starts."""
    for name, value in variables.items():
        put(f"export {name}={shlex.quote(value)}")


@click.command("down", epilog=examples(
    "rmqha down",
    "rmqha down --purge --name tests"))
@folder_options
@click.option("--purge", is_flag=True,
              help="Delete the folder and all data too. On a terminal, ask first unless --dir, --name or --yes is "
                   "given.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, type=duration_type(0),
              help="Seconds to wait for servers to stop before they are killed.")
def down_command(folder: str | None, name: str | None, purge: bool, yes: bool, timeout_s: float) -> None:
    """Stop a cluster; keep its data.

    The servers stop in order: the controllers, the slaves, the masters, the name server.
    """
    path = chosen_folder(folder, name)
    shape = cluster_folder.load(path).shape
    if purge:
        _announce_purge(path, f"{shape}", ask=folder is None and name is None and not yes)
    with cluster_folder.locked(path):
        layout = cluster_folder.load(path)
        killed = []
        for group in layout.stop_groups:
            for node, result in processes.stop(group, timeout_s).items():
                put(f"{node} {result}")
                killed += [node] if result == "killed" else []
        if purge:
            cluster_folder.purge(path)
            put(f"deleted {path}")
    if killed:
        click.echo(f"{', '.join(killed)} did not stop within {timeout_s:g} s and had to be killed; the next start will "
                   "recover the end of the log", err=True)


def _announce_purge(path: Path, shape: str, ask: bool) -> None:
    """Name the folder that is about to be deleted; with `ask`, and on a terminal, ask for confirmation first.

    click.Abort when the answer is no.
    """
    found = f"the cluster in {path} ({shape})"
    if ask and sys.stdin.isatty():
        click.confirm(f"Stop {found} and delete it with all data?", abort=True, err=True)
    else:
        click.echo(f"deleting {found} with all data", err=True)


@click.command("ps", epilog=examples(
    "rmqha ps",
    "rmqha ps --name tests -o json"))
@folder_options
@output_option
def ps_command(folder: str | None, name: str | None, output: str) -> None:
    """Show a cluster's servers: role, address, state, memory.

    Also shows each server's pid and store folder; the memory is its RSS.

    Exit code 1 when a server is not in the state `running`.
    """
    states = _states(cluster_folder.load(chosen_folder(folder, name)))
    _print_states(states, output)
    if any(each.state is not State.RUNNING for each in states):
        raise SystemExit(1)


def _states(layout: Layout) -> list[NodeState]:
    with Observer(layout) as observer:
        return observer.states()


def _print_states(states: list[NodeState], output: str) -> None:
    if output == "table":
        put(render_table(_HEADINGS, [_cells(each) for each in states], {"pid", "memory"}))
        return
    nodes = [{"name": each.node.name, "role": each.role, "address": each.node.address, "pid": each.pid,
              "state": each.state.value, "rss": each.rss, "store": str(each.node.store),
              "config": str(each.node.config_file), "logs": str(each.node.log_folder),
              "metricsPort": each.node.metrics_port} for each in states]
    value = {NAMESRV_ADDR_ENV: states[0].node.address, "dir": str(states[0].node.folder), "nodes": nodes}
    emit(value, output)


def _cells(each: NodeState) -> tuple[str, ...]:
    return (each.node.name, each.role, each.node.address, str(each.pid or ""), each.state.value,
            size_text(each.rss) if each.rss is not None else "", cell(str(each.node.store)))
