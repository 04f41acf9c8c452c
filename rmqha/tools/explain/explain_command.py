"""The command `rmqha explain`."""
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

from rmqha.common.program import examples
from rmqha.tools.explain.catalog import Match, catalog
from rmqha.tools.explain.entry import Entry, Kind
from rmqha.tools.explain.summary import LineReader, Seen, Summary
from rmqha.tools.terminal import FAILED, cell, counted, emit, output_option, put, render_table

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Without --all: matches of a text, and kinds of lines of a log.
_SHOWN, _KINDS = 3, 10
_COMPLETED = 200
_LABELS = 7  # columns
_KEY = re.compile(r"([A-Za-z][\w.]{2,60})(?:\s{0,4}[=:].{0,1000})?\Z", re.ASCII)


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete names of codes, states and alerts, ids of entries, and config keys."""
    from click.shell_completion import CompletionItem

    from rmqha.tools.config.config_command import known_keys

    entries = catalog().entries.values()
    helps = {name: entry.means for entry in entries for name in (*entry.names, entry.id)}
    helps |= dict.fromkeys(known_keys() - helps.keys(), "config key")
    found = [name for name in sorted(helps) if name.startswith(incomplete)]
    return [CompletionItem(name, help=helps[name]) for name in found[:_COMPLETED]]


def _key_match(text: str) -> list[Match]:
    """Return the match of a text that is a config key, or a line of a config file."""
    found = _KEY.match(text.strip())
    if found is None:
        return []
    from rmqha.tools.config.config_command import explain as explain_key  # reads the sources of all servers

    told = explain_key(found[1])
    if not told:
        return []
    means = f"{told[0].meaning[:1].upper()}{told[0].meaning[1:]}. A key of the {told[0].file_of}."
    return [Match(Entry(f"key.{found[1]}", Kind.KEY, means, f"`rmqha config explain {found[1]}` shows its values, its "
                        "default and what reads it.", page="config-keys.md"), 0)]


def _as_json(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, "kind": entry.kind.value, "name": entry.names[0] if entry.names else "", "code": entry.code,
            "means": entry.means, "do": entry.do, "page": f"docs/{entry.page}" if entry.page else ""}


def _put_paragraphs(rows: list[tuple[str, str]]) -> None:
    """Print labels with texts, wrapped to the terminal."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    for label, text in rows:
        lines = textwrap.wrap(cell(text), width - _LABELS - 2, break_long_words=False, break_on_hyphens=False) or [""]
        put(f"  {click.style(f'{label:<{_LABELS}}', bold=True)}{lines[0]}")
        for line in lines[1:]:
            put(f"  {'':<{_LABELS}}{line}")


def _title(entry: Entry) -> str:
    named = f" {entry.names[0]}" if entry.names and entry.kind is not Kind.LINE else ""
    number = f" {entry.code}" if entry.code is not None else ""
    return f"{entry.id}  ({entry.kind.value}{number}{named})"


def _put_entry(entry: Entry, values: dict[str, str] | None = None) -> None:
    put(click.style(_title(entry), fg="cyan"))
    rows = [("where", ", ".join(f"{name}={value}" for name, value in (values or {}).items() if value))]
    rows += [("means", entry.means), ("do", entry.do), ("see", f"docs/{entry.page}" if entry.page else "")]
    _put_paragraphs([row for row in rows if row[1]])


def explain_text(text: str, show_all: bool, output: str) -> None:
    """Print what is known about a text; exit code 1 when nothing is."""
    matches = catalog().explain(text) + _key_match(text)
    nearest = [] if matches else catalog().nearest(text)
    if output != "table":
        emit({"known": [{**_as_json(match.entry), "values": match.values} for match in matches],
              "nearest": [_as_json(entry) for entry in nearest]}, output)
    else:
        shown = matches if show_all else matches[:_SHOWN]
        for number, match in enumerate(shown):
            if number:
                put("")
            _put_entry(match.entry, match.values)
        if len(matches) > len(shown):
            put(f"\n{len(matches) - len(shown)} more; --all shows them")
        if not matches:
            put("Nothing is known about this text." + (" The nearest entries:" if nearest else ""))
            for entry in nearest:
                put("")
                _put_entry(entry)
    if not matches:
        raise SystemExit(FAILED)


def explain_log(show_all: bool, output: str) -> None:
    """Read a log from the standard input, and print which known lines it has."""
    reader, summary = LineReader(sys.stdin.buffer), Summary(catalog())
    for line in reader:
        summary.feed(line)
    if output != "table":
        emit({"lines": summary.lines, "troubles": summary.troubles, "cutLines": reader.cut,
              "known": [{**_as_json(entry), **_counts(seen)} for entry, seen in summary.ranked()],
              "unknownLines": summary.unknown_count, "unknown": list(map(_counts, summary.ranked_unknown()))}, output)
        return
    put(f"{counted(summary.lines, 'line')}, {summary.troubles} of them at WARN or above, {summary.unknown_count} of "
        "these unknown" + (f"; {reader.cut} were cut" if reader.cut else ""))
    limit = len(summary.known) + len(summary.unknown) if show_all else _KINDS
    known = summary.ranked()[:limit]
    if known:
        _put_table("entry", [(seen, entry.id) for entry, seen in known])
    for entry, seen in known:
        put("")
        _put_entry(entry, {"line": seen.example})
    if len(summary.known) > limit:
        put(f"\n{len(summary.known) - limit} more; --all shows them")
    if summary.unknown:
        put("\nUnknown lines at WARN or above:")
        _put_table("line", [(seen, seen.example) for seen in summary.ranked_unknown()[:limit]])


def _put_table(what: str, rows: list[tuple[Seen, str]]) -> None:
    put("")
    put(render_table(("count", "first", "last", what), [(str(seen.count), cell(seen.first), cell(seen.last), cell(text))
                                                        for seen, text in rows], {"count"}))


def _counts(seen: Seen) -> dict[str, Any]:
    return {"count": seen.count, "first": seen.first, "last": seen.last, "example": seen.example}


def _list_all(output: str) -> None:
    entries = catalog().entries.values()
    if output != "table":
        emit([{**_as_json(each), "patterns": [pattern.text for pattern in each.patterns]} for each in entries], output)
        return
    rows = [(each.id, each.kind.value, textwrap.shorten(each.means, 90, placeholder=" ...")) for each in entries]
    put(render_table(("entry", "kind", "means"), rows, set()))


@click.command("explain", short_help="Explain a log line, an error, a code or a state.", epilog=examples(
    "rmqha explain SLAVE_NOT_AVAILABLE",
    'rmqha explain "CODE: 17  DESC: No topic route info in name server"',
    "tail -n 5000 ~/logs/rocketmqlogs/store.log | rmqha explain -"))
@click.argument("words", nargs=-1, metavar="TEXT", shell_complete=_complete)
@click.option("-a", "--all", "show_all", is_flag=True, help="Show all matches, not only the best ones.")
@click.option("--list", "list_all", is_flag=True, help="List everything that can be explained.")
@output_option
def explain_command(words: tuple[str, ...], show_all: bool, list_all: bool, output: str) -> None:
    """Explain a log line, an error, a code or a state: the meaning, and what to do.

    TEXT is a line of a log of rmqha or of RocketMQ 4.9, an error of a client or a tool, a response code (14), its name,
    a state of `rmqha ha status`, an alert, an exit code (`exit code 253`) or a config key. A lone `-` reads a log from
    the standard input, and prints which known lines it has, how often, and when first and last.

    Exit code 1 when nothing is known about TEXT.
    """
    if list_all:
        _list_all(output)
    elif not words:
        raise click.UsageError("give a text, or - to read a log from the standard input")
    elif words == ("-",):
        explain_log(show_all, output)
    else:
        explain_text(" ".join(words), show_all, output)
