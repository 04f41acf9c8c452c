"""The command `rmqha logs`: show and follow the logs of a cluster's servers."""
from __future__ import annotations

import time

import click

from rmqha.common.program import Terminated, examples
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster.cluster_command import chosen_folder, folder_options
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.local_cluster.log_lines import LEVELS, Entry, Follower, check_names, last_entries, log_files
from rmqha.tools.terminal import cell

_LOOK_S = 0.2
_COLOURS = {"WARN": "yellow", "ERROR": "red"}


@click.command("logs", epilog=examples(
    "rmqha logs -f",
    "rmqha logs broker-a --level WARN --lines 100"))
@click.argument("node", required=False)
@folder_options
@click.option("-f", "--follow", is_flag=True, help="Follow the logs until Ctrl-C.")
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False),
              help="Show only entries of this level or more severe ones.")
@click.option("--lines", default=50, show_default=True, type=click.IntRange(1, 1_000_000), metavar="N",
              help="The number of last entries to show.")
@click.option("--file", "files", multiple=True, metavar="LOG",
              help="Read only this log, without .log: broker, store, remoting, stats ..., or `out` for the server's "
                   "output. Can be repeated. By default all logs except those that only hold statistics.")
def logs_command(node: str | None, folder: str | None, name: str | None, follow: bool, level: str | None, lines: int,
                 files: tuple[str, ...]) -> None:
    """Show or follow the logs of a cluster's servers.

    Prints the last entries of all servers, or of one NODE, sorted by time.
    """
    layout = cluster_folder.load(chosen_folder(folder, name))
    nodes = [each for each in layout.nodes if node in (None, each.name)]
    if not nodes:
        raise ClusterError(f"no server {node!r}; the servers are {', '.join(each.name for each in layout.nodes)}")
    check_names(nodes, files)
    level = level.upper() if level else None
    show = _Printer([each.name for each in nodes], level)
    followers = [Follower(each, file) for each in nodes for file in log_files(each, files)] if follow else []
    found = [entry for each in nodes for entry in last_entries(each, files, level, lines)]
    for entry in sorted(found, key=lambda entry: entry.time)[-lines:]:
        show(entry)
    if follow:
        _follow(followers, show)


class _Printer:
    """Prints entries, with the server's name before each line when there are several servers."""

    def __init__(self, names: list[str], level: str | None) -> None:
        self._width = max(map(len, names)) if len(names) > 1 else 0
        self._level = level

    def __call__(self, entry: Entry) -> None:
        if not entry.is_at_least(self._level):
            return
        begin = f"{entry.node:{self._width}} | " if self._width else ""
        for line in entry.lines:
            click.secho(begin + cell(line), fg=_COLOURS.get(entry.level or ""))


def _follow(followers: list[Follower], show: _Printer) -> None:
    try:
        while True:
            for follower in followers:
                for entry in follower.poll():
                    show(entry)
            time.sleep(_LOOK_S)
    except KeyboardInterrupt as interrupt:
        if isinstance(interrupt, Terminated):
            raise
        # Ctrl-C is the normal end of following.
        return
    finally:
        for follower in followers:
            follower.close()
