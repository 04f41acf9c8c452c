"""`rmqha config path` and `init`: where the servers' `conf/` is, and how it gets there."""
import os
from collections.abc import Iterator
from pathlib import Path

import click

from rmqha.common import filesystem
from rmqha.tools.dialect.exit_codes import CannotAnswerError

_SECRET = {"plain_acl.yml", "tools.yml"}
_FOR_THE_OWNER = 0o600


@click.command("path")
def path_command() -> None:
    """Print the folder conf/ that servers and mqadmin read here, whether it is there or not.

    $ROCKETMQ_HOME/conf, else that of the checkout, else ~/.config/rmqha/conf ($XDG_CONFIG_HOME/rmqha/conf).
    """
    click.echo(filesystem.rocketmq_home() / "conf")


@click.command("init")
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path | None) -> None:
    """Copy the configuration files that rmqha comes with to FOLDER, or to where `rmqha config path` says.

    A file that is there already is left as it is. Those with accounts can be read by their owner alone.
    """
    target = folder if folder is not None else filesystem.rocketmq_home() / "conf"
    source = filesystem.templates()
    if not source.is_dir():
        raise CannotAnswerError(f"{source} is missing: rmqha was not installed as a wheel makes it")
    if target.resolve() == source.resolve():
        raise CannotAnswerError(f"{target} holds the files of the checkout already; name another FOLDER")
    copied = kept = 0
    for file in _files(source):
        is_new = _copy(source / file, target / file)
        copied, kept = copied + is_new, kept + (not is_new)
    click.echo(f"{target}: {copied} files copied, {kept} were there and are left as they are\n\n"
               f"A name server, and a broker in another terminal:\n"
               f"  mqnamesrv\n  mqbroker -c {target / 'broker.conf'}")


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, as paths from there."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file.relative_to(folder)


def _copy(source: Path, target: Path) -> bool:
    """Copy a file unless there is one; whether it was copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = _FOR_THE_OWNER if source.name in _SECRET else 0o666
    try:
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return False
    with open(number, "wb") as file:
        file.write(source.read_bytes())
    return True
