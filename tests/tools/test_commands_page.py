"""Every command with its options, and what goes wrong: `python -m tests.tools.test_commands_page` writes
docs/commands.md.
"""
import inspect
import os
import re
import sys
import tempfile
import textwrap
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
INTRO = """# Commands of `rmqha`

This page lists every command of `rmqha` with its options, formats, exit codes and errors, for those who run a cluster
or write scripts. `rmqha COMMAND --help` prints the same options. RocketMQ's own commands are on
[the page of mqadmin](mqadmin.md)."""
COMMON = """## Common options

These options mean the same in every command that has them:

| option | meaning |
|---|---|
| `-n`, `--namesrv` | name servers as host:port, separated by semicolons; by default [the context's](#contexts) |
| `--context NAME` | before or after the command: the context to work with; not together with `-n` |
| `-b`, `--broker` | a broker: its name, or its host:port where a command connects to it directly |
| `-c`, `--cluster` | a cluster; in `rmqha doctor` a config file, as in `mqbroker` |
| `-t`, `--topic` | a topic |
| `-g`, `--group` | a group of consumers or producers |
| `-o`, `--output` | `table` for people; for programs `json` (an object or a list on one line; `dlq show`, `consume` \
and others: one object per line) and `yaml` (the same as documents; needs no extra) |
| `--timeout` | a duration; a number without a unit is seconds |
| `-h`, `--help` | print the help of the command |
| `--version` | print the version |

- **Times** are printed as local time for people and as ms since 1970 for programs. JSON has both: `storeTime` and
  `storeTimestamp`.
- **Colour** is used on terminals only. `NO_COLOR=1` switches it off.
- **Tables** keep their columns aligned in any script.
- **Access control**: commands sign their requests with the account of the context. Without a context, they sign with
  the account in `conf/tools.yml`, as `mqadmin` does, if there is one. With `-n` or `NAMESRV_ADDR` the current context
  is not used, nor its account.
- **Completion**: `rmqha completion bash` (or `zsh`, `fish`) prints a script that completes commands and options, and
  the names of contexts, topics, groups, clusters and brokers.

## Contexts

A context names a cluster: its name servers and, if needed, the account and the TLS settings. A context that you add
becomes the current one with `--use`, or if no other is current. If it has the name of another one, it replaces that
one with all its settings.

```bash
rmqha context add test -n 127.0.0.1:9876
rmqha context add prod -n '10.0.0.8:9876;10.0.0.9:9876' --access-key operator --secret-key-command 'pass show mq/prod'
rmqha context use prod
rmqha context list
rmqha --context test ha status
```

Commands, `top`, `console`, Spark jobs and the [Python client's](client.md) `from_context` use the context. The first of
these that is given decides where commands connect to:

1. `-n` on the command line: no context, so neither its account nor its TLS settings are used. `-n` together with
   `--context` is an error.
2. `--context NAME`.
3. `$RMQHA_CONTEXT`, the name of a context.
4. `$NAMESRV_ADDR`, also without the context's account.
5. The current context.

`mqadmin` does not use contexts: it takes `-n` or `NAMESRV_ADDR`, and the account of `conf/tools.yml`. `from_context`
uses the context that it is given, else that of `$RMQHA_CONTEXT`, else the current one.

The access key and the secret key need more than 6 characters each. The secret key is asked for on a terminal and stored
in the contexts' file, or it is read from an environment variable (`--secret-key-env`) or from the output of a command
(`--secret-key-command`, run without a shell). The file is `rmqha/contexts.json` in the user's config folder, or
`$RMQHA_CONTEXTS_FILE`. Its mode is 600; if it contains secrets and other users may read it, it is refused. With `--tls`
and without `--tls-ca`, the server's certificate is not checked.

## Sizes, durations and times

All commands read sizes, durations and times in the same way. Only `mqadmin` has RocketMQ's own formats.

{units}

## Exit codes

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the work failed, at least in part: some brokers failed, a message was not sent, fewer messages than asked for, a \
flaw found; you answered no |
| 2 | wrong usage, or a name that does not exist or exists already: nothing was done; or no server answers, which says \
nothing about the work |
| 130 | interrupted by Ctrl-C; the usual end of `rmqha tail` |
| 143, 129 | ended by SIGTERM or SIGHUP, as cleanly as after Ctrl-C; under `nohup` SIGHUP has no effect |

`rmqha topic`, `group`, `acl`, `dlq` and `cluster` print the others' results when some brokers fail, and name those
brokers. These commands have other exit codes:

| command | exit codes |
|---|---|
| `rmqha check` | those of monitoring systems: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN |
| `rmqha acl check` | 0 allowed by all brokers, 1 denied by a broker, 2 unknown |
| `rmqha explain` | 0 something is known about the text, 1 nothing is |
| `rmqha cluster config diff --exit-code` | 1 also when there are differences |

An error is one line on standard error. After wrong usage, the command's usage is printed before that line. An internal
error of rmqha is one line, too; with `RMQHA_TRACEBACK=1` Python prints the traceback."""
MESSAGES = r"""## Sending messages

`rmqha produce` reads messages in one of three formats:

- `-f lines`, the default: one message per line. A line of blanks is a message. Empty lines are skipped and counted,
  because RocketMQ has no empty messages.
- `-f json`: one JSON object per line, with `body`, or `bodyBase64` for bytes. It may also have `keys` (a text or a
  list), `tags`, `properties`, `delay` (a level), `queue`, `broker` and `flag`.
- `-f whole`: each file is one message.

Also note:

- The output of `rmqha consume -o json` is valid input. Its times, offsets and ids are ignored.
- The output of `rmqha store dump -o json` is valid input too. Its queue is ignored as well, and a damaged message is
  an error. All messages go to the topic of `-t`, so select one with `store dump -t`.
- Options of the command set whatever a message lacks.
- A line or a file has at most 4 MiB. The body in a JSON object may be larger if the broker accepts its compressed size.
- If a broker creates the topic for the first message, a note on standard error says so. Write the topic with care.
- When you interrupt the command, it waits for the answers to outstanding sends. Then it prints how many messages were
  sent.

## Reading messages

`--from` of `consume`, `tail` and `bench consume` is the start position:

| `--from` | starts at |
|---|---|
| `earliest`, `latest` | the beginning or the end of each queue |
| `committed` | the group's committed offsets |
| a number, such as `1200` | this offset; with 13 digits or more, the time in ms |
| `-5` | the last 5 messages of each queue |
| `2024-05-31T12:30:00`, `10m` | the first messages of that time, or of 10 minutes ago |

`start` and `beginning` mean `earliest`, `end` means `latest`. `--to` of `consume` and `export` is the last message:

| `--to` | the last message |
|---|---|
| `latest`, the default | the last one that is there when the command starts |
| `2024-05-31T12:30:00`, `1h` | those stored at that time, or an hour ago, still belong to it |
| with `--queue`, a number or `-5` | the message at this offset, or the fifth one before the end of the queue |

Both ends are included, as by `store dump`: `--queue 1 --from 5 --to 8` prints four messages. `export` takes times only.

With a group (`-g`) the command reads its share of the queues, like any consumer of the group. It commits the offsets of
the messages that it printed.

Offsets that no longer exist are reported on standard error. If a topic was deleted and created again, a queue may end
before the offset that was read last. `tail`, and `consume` with `--timeout`, then read that queue from its beginning.
For `consume` without `--timeout`, and for `export`, it is an error.

`rmqha message show` and `rmqha message find` find single messages, by id and by key, with the brokers' indexes. [The
how-to](how-to/messages.md) shows all of these commands.

`-f` of `consume` and `tail` is a format string. Nothing is appended to it, so end it with `\n`. The other escapes are
`\t`, `\r`, `\0`, `\\` and `\xFF`.
"""
CARRIED = """## The export file

{}

```text
{}
```

**Writing.** `rmqha export` writes a temporary file beside FILE and moves it into place when it is complete. With
`--force` it keeps the mode of the file that it replaces. A symbolic link is followed and stays. A pipe, a terminal,
`/dev/stdout` and other descriptors are written to directly. A body that is not UTF-8, or has more than 32 MiB, is
written as base64.

**Queues.** `rmqha import` sends a message to the queue of the same name if the topic has all queues of the file.
Otherwise the first queue of the file goes to the first queue of the topic, and so on. A missing topic is created with
as many queues as in the file.

**Contents.** The import keeps body, keys, tag, properties, flag and message id. Times and offsets are new. These
properties are left out: {}.

**Failures.** An import that fails or is interrupted prints how many messages it imported. Pass this number to `--skip`
to continue after them. It also prints the number that skips the failed message as well.

**Batches and limits.** Messages are sent in batches, those with nearly 32 KiB of properties one by one. In the file, a
topic has at most 65,536 queues, a line 342 MiB, and the first line 16 MiB."""
ERRORS = """## Common errors

One error of each kind, as it is printed. NAMESRV and BROKER replace addresses, and FOLDER a folder.

| arguments of `rmqha` | exit code | message |
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
        if not isinstance(option, click.Option) or "--version" in option.opts or option.hidden:
            continue
        choices = " " + "\\|".join(option.type.choices) if isinstance(option.type, click.Choice) else ""
        names = " / ".join(", ".join(f"`{name}`" for name in given)
                           for given in (option.opts, option.secondary_opts) if given) + choices
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
        parts.append("\n".join(["| option | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def render(folder: Path) -> str:
    """The page."""
    commands = list(own_commands())[1:]
    short = [f"| `{path}` | {cell(command.get_short_help_str(300))} |" for path, command in commands]
    fields = [f"| `%{letter}` | {cell(what)} |" for letter, (what, _get) in FIELDS.items()]
    form, _, rows_of_file = inspect.cleandoc(export_file.__doc__ or "").split("\n\n", 1)[1].partition("\n\n")
    left_out = ", ".join(f"`{name}`" for name in sorted(export_file.NOT_CARRIED))
    errors = [f"| `{arguments}` | {code} | {cell(text)} |" for arguments, code, text in failures(folder)]
    chapters = [described(path, command) for path, command in commands
                if not isinstance(command, click.Group) and not needs_extra(command)]
    extras = [f"`{path}` needs the extra `{command.extra}`. `{path} --help` prints its options."
              for path, command in commands if needs_extra(command)]
    return "\n\n".join([
        INTRO, "## All commands", "\n".join(["| command | purpose |", "|---|---|", *short]), "\n".join(extras),
        COMMON.replace("{units}", str(units.__doc__).partition("\n\n")[2].strip()),
        MESSAGES + "\n" + "\n".join(["| format | prints |", "|---|---|", *fields]),
        CARRIED.format(form, textwrap.dedent(rows_of_file), left_out), "\n".join([ERRORS, *errors]),
        "## Options of each command", *chapters,
        "---\n\nThis page is generated from the commands by `python -m tests.tools.test_commands_page`."]) + "\n"


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
