"""`rmqha man`: manual pages made from the same commands that print `--help`, one page per command.

click-man was tried: it loses the examples (it joins their lines), and it can't load commands that are imported when
they are used.
"""
import re
from collections.abc import Iterator
from pathlib import Path

import click

from rmqha import __version__
from rmqha.common.program import EXAMPLES, examples
from rmqha.tools.terminal import LazyCommand, LazyGroup, put

_EXIT_STATUS = (("0", "The work is done."), ("1", "The work failed, at least in part."),
                ("2", "The usage is wrong, or no server answered."), ("130", "Interrupted by Ctrl-C."),
                ("143, 129", "Ended in order by SIGTERM or SIGHUP."))


def pages(root: click.Command) -> Iterator[tuple[str, str]]:
    """Yield (file name, text in roff) of the page of each command below `root`, the root first."""
    yield from _pages(root, str(root.name), ())


def _pages(command: click.Command, path: str, parents: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(command, (LazyCommand, LazyGroup)):
        command = command.load()
    inner = command.commands if isinstance(command, click.Group) else {}
    yield f"{path.replace(' ', '-')}.1", _page(command, path, parents, tuple(f"{path} {name}" for name in inner))
    for name, one in inner.items():
        yield from _pages(one, f"{path} {name}", (*parents, path))


def _page(command: click.Command, path: str, parents: tuple[str, ...], inner: tuple[str, ...]) -> str:
    context = click.Context(command, info_name=path)
    help_text = _text(command.help or "")
    name = path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f'.TH "{_quoted(name.upper())}" 1 "" "rmqha {__version__}" "rmqha"',
             ".SH NAME", f"{_quoted(name)} \\- {_quoted(_first_sentence(help_text))}",
             ".SH SYNOPSIS", f"\\fB{_quoted(path)}\\fR {_quoted(usage)}", ".SH DESCRIPTION"]
    lines += _paragraphs(help_text)
    options = [record for parameter in command.get_params(context) if (record := parameter.get_help_record(context))]
    lines += _entries("OPTIONS", options)
    if isinstance(command, click.Group):
        lines += _entries("COMMANDS", [(one, command.commands[one].get_short_help_str(200))
                                       for one in command.list_commands(context)])
    lines += _examples(command.epilog)
    lines += _entries("EXIT STATUS", _EXIT_STATUS if parents[1:2] != ("rmqha check",) else ())
    others = [*parents, *inner]
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{_quoted(one.replace(' ', '-'))}\\fR(1)" for one in others)]
    return "\n".join(lines) + "\n"


def _text(help_text: str) -> str:
    """Return the text of a help without click's marks: `\\b` (keep the lines) and `\\f` (the end of the help)."""
    return help_text.partition("\f")[0].strip()


def _first_sentence(text: str) -> str:
    first = " ".join(text.split("\n\n", 1)[0].replace("\b", "").split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", first, maxsplit=1)[0].rstrip(".:")


def _quoted(text: str) -> str:
    """Return a text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return "\\&" + text if text.startswith((".", "'")) else text


def _paragraphs(text: str) -> list[str]:
    lines = []
    for number, paragraph in enumerate(text.split("\n\n")):
        kept = paragraph.startswith("\b")
        rows = [row for row in paragraph.replace("\b", "").splitlines() if row.strip()]
        lines += [".PP"] if number else []
        if kept:
            lines += [".nf", *map(_quoted, rows), ".fi"]
        else:
            lines.append(_quoted(" ".join(row.strip() for row in rows)))
    return lines


def _entries(heading: str, entries: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"] if entries else []
    for term, meaning in entries:
        lines += [".TP", f"\\fB{_quoted(term)}\\fR", _quoted(" ".join(meaning.split()))]
    return lines


def _examples(epilog: str | None) -> list[str]:
    if not epilog or EXAMPLES not in epilog:
        return []
    rows = [row[2:] for row in epilog.partition(EXAMPLES)[2].splitlines() if row.strip()]
    return [".SH EXAMPLES", ".nf", *map(_quoted, rows), ".fi"]


@click.command("man", short_help="Write the manual pages of all commands to a folder.",
               epilog=examples("rmqha man ~/.local/share/man/man1 && man rmqha-produce"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.pass_context
def man_command(ctx: click.Context, folder: Path) -> None:
    """Write the manual pages of all commands to a folder.

    FOLDER gets one file per command. It is created if it does not exist, and files of the same names are overwritten.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = dict(pages(ctx.find_root().command))
    for name, text in made.items():
        (folder / name).write_text(text, "utf-8")
    put(f"wrote {len(made)} manual pages to {folder}")
