"""Every command with its options, and what goes wrong: `python -m tests.tools.test_commands_page` writes
docs/commands.md.
"""
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
from click.testing import CliRunner

from rmqha.common import units
from rmqha.tools.messages import export_file
from rmqha.tools.messages.consume import FIELDS
from rmqha.tools.rmqha_command import rmqha
from tests.store.support import wait_dispatched
from tests.support.guide import needs_extra, own_commands
from tests.support.in_process import running_name_server
from tests.support.sources import ROOT
from tests.tools.conftest import broker_at

PAGE = ROOT / "docs" / "commands.md"
INTRO = """# The commands of `rmqha`

Made by `python -m tests.tools.test_commands_page`. `mqadmin` has RocketMQ's own commands: [mqadmin.md](mqadmin.md).

## One dialect

| option | means |
|---|---|
| `-n`, `--namesrv` | name servers, host:port, separated by semicolons; else what `NAMESRV_ADDR` says |
| `-b`, `--broker` | a broker: its name, or its host:port where a command asks it directly |
| `-c`, `--cluster` | a cluster. `rmqha doctor` has `-c` for a config file, as `mqbroker` has |
| `-t`, `--topic` | a topic |
| `-g`, `--group` | a group of consumers or producers |
| `-o`, `--output` | `table` for people; `json` and `yaml` for programs: an object or a document each |
| `--timeout` | a duration: a number is seconds |
| `-h`, `--help`, `--version` | of each command |

Every size, duration and time that an option takes is read alike (the options of `mqadmin` are RocketMQ's own):

{units}

Times stand as local time for people and as ms since 1970 for programs; JSON has both (`storeTime`, `storeTimestamp`).
Colour is for terminals alone, and `NO_COLOR=1` switches it off. Tables keep their columns in any script. Requests are
signed with the account of `$ROCKETMQ_HOME/conf/tools.yml`, as those of `mqadmin`, by the commands that send and read
messages. `rmqha completion bash` (or `zsh`, `fish`) prints what a shell needs to complete commands and options.

| exit code | means |
|---|---|
| 0 | done |
| 1 | the work failed, in part at least: a message not sent, fewer there than asked for, a flaw found |
| 2 | wrong usage, or nobody can answer, which says nothing about the work |
| 130 | interrupted (Ctrl-C); `rmqha tail` ends so |
| 143, 129 | ended by SIGTERM, SIGHUP: in order, as after Ctrl-C; under `nohup` SIGHUP changes nothing |

`rmqha check` has those of monitoring systems: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. Errors are one line on standard
error. A fault in rmqha itself is one too; with `RMQHA_TRACEBACK=1` Python shows where it is."""
MESSAGES = """## Messages

`rmqha produce` takes a message a line, a JSON object a line (`-f json`), or each file as a message (`-f whole`). A line
of blanks is a message; RocketMQ has no empty ones, so empty lines are left out, and counted. When it is interrupted it
waits for the answer to what is on its way, and says how many were sent. An
object has `body`, or `bodyBase64` for bytes, and may have `keys` (a text or a list), `tags`, `properties`, `delay` (a
level), `queue`, `broker`, `flag`. What `rmqha consume -o json` prints is taken too; its times, offsets and ids are
passed over. Options give each message what it lacks. A line or a file has at most 4 MiB; a body in JSON may be longer
where the broker takes what it comes to compressed.

`--from` of `consume`, `tail` and `bench consume`: `earliest`, `latest`, `committed` (where the group is), an offset,
`-5` (the last five of each queue), or a time (`2024-05-31T12:30:00`, `10m` for ten minutes ago; of numbers alone 13
digits and more are ms).
With a group the command takes its share of the queues, as any consumer of it, and commits what was printed.
Offsets that are gone are reported on stderr. A queue that ends before what was read, as its topic was made again, is
read from its beginning by `tail` and with `--timeout`; else, and for `export`, it is an error.

`-f` of `consume` and `tail` is a format string; nothing is added to it, so end it with `\\n`. Also `\\t`, `\\r`, `\\0`,
`\\\\`, `\\xFF`.
"""
CARRIED = """## The file of `rmqha export`

```
{}
```
FILE is written beside its place and moved there when it is whole, in the mode of the file that it replaces (`--force`).
A symbolic link is followed, and stays; a pipe, a terminal, `/dev/stdout` and other descriptors are written to as they
are. A body that is not UTF-8, or has more than 32 MiB, stands as base64.

Queues go to those of the same names, if the topic has them all, else to those of the same rank; a topic that is missing
is made with as many. Carried are body, keys, tag, properties, flag and message id. Times and offsets are new, and
{} are left out.

An import that fails or is interrupted says how many messages are imported, which `--skip` then passes over, and which
number leaves out the one that failed. Messages go in batches, those with nearly 32 KiB of properties alone. A topic has
at most 65,536 queues there, a line 342 MiB, the first one 16 MiB."""
ERRORS = """## What goes wrong

One error of each kind, as it is printed (NAMESRV, BROKER and FOLDER stand for what was there).

| behind `rmqha` | exit code | says |
|---|---|---|"""
HEADER = '{"rmqhaExport": 1, "topics": {"T": {"broker-a": 2}}}\n'
# Arguments; standard input. A topic `orders` is there with one message.
CASES: tuple[tuple[str, str], ...] = (
    ("nope", ""), ("consume --zzz", ""), ("consume -n NAMESRV", ""), ("consume -t orders -o xml", ""),
    ("consume -t orders", ""), ("consume -t orders -n 127.0.0.1:1", ""), ("consume -t orders -n localhost", ""),
    ("consume -t orders -n BROKER", ""),
    ("consume -t order -n NAMESRV", ""), ("consume -t orders -n NAMESRV -b broker-b", ""),
    ("consume -t orders -n NAMESRV --count 5 -f %s", ""), ("consume -t orders -n NAMESRV -f %z", ""),
    ("consume -t orders -n NAMESRV --from soon", ""), ("consume -t orders -n NAMESRV --queue 0 --sql a=", ""),
    ("consume -t orders -n NAMESRV --tag a --sql a=1", ""), ("produce -t orders -n NAMESRV -f json", "{}"),
    ("produce -t orders -n NAMESRV --queue 99", "x"), ("produce -t orders -n NAMESRV -p colour", "x"),
    ("produce -t orders -n NAMESRV none.txt", ""), ("produce -t or%/ers -n NAMESRV", "x"),
    ("bench consume -t orders -n NAMESRV --from latest", ""), ("export -n NAMESRV out", ""),
    ("export -n NAMESRV -t orders there", ""), ("import -n NAMESRV there", ""), ("import -n NAMESRV cut", ""),
    ("config explain brokerNam", ""), ("config check broker.conf", ""), ("config check none.conf", ""),
    ("store du none", ""), ("store verify empty", ""), ("ha status", ""), ("ha status -n NAMESRV -c other", ""),
    ("ha promote -b BROKER", ""),
    ("check ha -n 127.0.0.1:1", ""), ("doctor", ""))


def first_error(arguments: str, stdin: str, names: dict[str, str]) -> tuple[int, str]:
    """Exit code and what a command says of its failure; `names`: what stands for what."""
    words = [names.get(word, word) for word in arguments.split()]
    result = CliRunner().invoke(rmqha, words, input=stdin, env={"NAMESRV_ADDR": "", "NO_COLOR": "1"})
    told = [row for row in (result.stderr or result.output).splitlines()
            if row and not row.startswith(("Usage:", "Try "))]
    text = next((row for row in told if not row.startswith("Error: 0 ")), "") if told else ""
    for name, value in names.items():
        text = text.replace(value, name)
    return result.exit_code, text


def failures(folder: Path) -> Iterator[tuple[str, int, str]]:
    """(arguments, exit code, text) of each case."""
    with running_name_server(folder) as namesrv, \
            broker_at(folder / "broker", namesrv, enablePropertyFilter=True) as broker:
        names = {"NAMESRV": namesrv, "BROKER": broker.address, "FOLDER": str(folder)}
        made = CliRunner().invoke(rmqha, ["produce", "-t", "orders", "-n", namesrv, "--queue", "0", "-m", "x"])
        assert made.exit_code == 0, made.output
        wait_dispatched(broker.store)
        (folder / "empty").mkdir()
        (folder / "there").write_text("no export, no log\n")
        (folder / "cut").write_text(HEADER)
        (folder / "broker.conf").write_text("brokerName=a\nbrokerRole=MASTER\n")
        before = Path.cwd()
        os.chdir(folder)
        try:
            for arguments, stdin in CASES:
                yield arguments, *first_error(arguments, stdin, names)
        finally:
            os.chdir(before)


def cell(text: str) -> str:
    """A text within a table, or in prose."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def option_rows(command: click.Command) -> list[str]:
    """A row for each option, and for arguments that say something."""
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or "--version" in option.opts:
            continue
        choices = " " + "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
        names = ", ".join(f"`{name}`" for name in option.opts) + choices
        default = option.default
        is_told = option.show_default and default is not None and not option.is_flag
        words = (option.help or "").strip() + (f" Default: {default}." if is_told else "") + (
            " Required." if option.required else "")
        rows.append(f"| {names} | {cell(words)} |")
    return rows


def described(path: str, command: click.Command) -> str:
    """A command's chapter."""
    arguments = " ".join(each.make_metavar(click.Context(command)) for each in command.params
                         if isinstance(each, click.Argument))
    text = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
    parts = [f"### {path}", f"`{path} [OPTIONS]{' ' + arguments if arguments else ''}`", cell(text)]
    rows = option_rows(command)
    if rows:
        parts.append("\n".join(["| option | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def render(folder: Path) -> str:
    """The page."""
    commands = list(own_commands())[1:]
    short = [f"| `{path}` | {cell(command.get_short_help_str(300))} |" for path, command in commands]
    fields = [f"| `%{letter}` | {cell(what)} |" for letter, (what, _get) in FIELDS.items()]
    form = inspect.cleandoc(export_file.__doc__ or "").split("\n\n", 1)[1]
    left_out = ", ".join(f"`{name}`" for name in sorted(export_file.NOT_CARRIED))
    errors = [f"| `{arguments}` | {code} | {cell(text)} |" for arguments, code, text in failures(folder)]
    chapters = [described(path, command) for path, command in commands
                if not isinstance(command, click.Group) and not needs_extra(command)]
    extras = [f"`{path}` needs the extra `{command.extra}`; `{path} --help` tells its options."
              for path, command in commands if needs_extra(command)]
    return "\n\n".join([
        INTRO.replace("{units}", str(units.__doc__).partition("\n\n")[2].strip()),
        "## All of them", "\n".join(["| command | |", "|---|---|", *short]), "\n".join(extras),
        MESSAGES + "\n" + "\n".join(["| format | prints |", "|---|---|", *fields]), CARRIED.format(form, left_out),
        "\n".join([ERRORS, *errors]), "## Each", *chapters]) + "\n"


def test_page_has_each_command_and_what_goes_wrong(tmp_path):
    page = render(tmp_path)
    assert page == PAGE.read_text("utf-8"), "run: python -m tests.tools.test_commands_page"
    rows = re.findall(r"^\| `([^`]+)` \| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert [arguments for arguments, _code, _text in rows] == [arguments for arguments, _stdin in CASES]
    assert all(code in "123" and text for _arguments, code, text in rows) and "Traceback" not in page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        PAGE.write_text(render(Path(home)), "utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
