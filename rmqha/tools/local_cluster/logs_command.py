"""The command `rmqha logs`: what the servers of a cluster write."""
from __future__ import annotations

import time

import click

from rmqha.common.program import Terminated
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster.cluster_command import chosen_folder, folder_options
from rmqha.tools.local_cluster.layout import ClusterError
from rmqha.tools.local_cluster.log_lines import LEVELS, Entry, Follower, check_names, last_entries, log_files
from rmqha.tools.terminal import cell

_LOOK_S = 0.2
_COLOURS = {"WARN": "yellow", "ERROR": "red"}


@click.command("logs")
@click.argument("node", required=False)
@folder_options
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only lines of this level, or graver.")
@click.option("--lines", default=50, show_default=True, type=click.IntRange(1, 1_000_000), metavar="N",
              help="How many of the last entries to show.")
@click.option("--file", "files", multiple=True, metavar="LOG",
              help="Only this log, without .log: broker, store, remoting, stats ... or `out`, what the server prints; "
                   "more than once for several. By default all but those that only count.")
def logs_command(node: str | None, folder: str | None, name: str | None, follow: bool, level: str | None, lines: int,
                 files: tuple[str, ...]) -> None:
    """Show the end of the logs of a cluster's servers, or of one NODE, in the order of their times."""
    layout = cluster_folder.load(chosen_folder(folder, name))
    nodes = [each for each in layout.nodes if node in (None, each.name)]
    if not nodes:
        raise ClusterError(f"no server {node!r}; there are {', '.join(each.name for each in layout.nodes)}")
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
    """Prints entries; with the server's name before each line when there are several servers."""

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
        return  # Ctrl-C is how it ends
    finally:
        for follower in followers:
            follower.close()
