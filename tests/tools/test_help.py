"""`--help` of every command of `rmqha`, its examples, and the manual pages made from the same source."""
import shlex
import shutil
import subprocess

import click
import pytest
from click.testing import CliRunner

from rmqha.common.program import EXAMPLES
from rmqha.tools import man_pages
from rmqha.tools.rmqha_command import GROUPS, SECTIONS, rmqha
from tests.support.guide import loaded
from tests.test_guides import wrong_with_rmqha

LINE = 80  # columns of a terminal


def commands(command=rmqha, path="rmqha"):
    """(path, command) of every command, groups too."""
    command = loaded(command)
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}")


COMMANDS = dict(commands())
SINGLE = [path for path, command in COMMANDS.items() if not isinstance(command, click.Group)]


def examples_of(path):
    """The lines of a command's examples."""
    return [line.strip() for line in (COMMANDS[path].epilog or "").partition(EXAMPLES)[2].splitlines() if line.strip()]


def words_of(line):
    """The arguments of `rmqha` in a line of a shell."""
    line = line.partition("rmqha ")[2]
    line = line.partition(")")[0].rstrip('"') if "$(" in line or line.count('"') % 2 else line
    words = shlex.split(line, comments=True)
    ends = [place for place, word in enumerate(words) if word in ("|", "&&", ">")]
    return words[:ends[0]] if ends else words


def test_the_root_lists_every_command_in_one_section():
    listed = [command.name for section in SECTIONS.values() for command in section]
    assert sorted(listed) == sorted(rmqha.commands) and len(GROUPS) == len(listed)
    text = CliRunner().invoke(rmqha, ["--help"], terminal_width=LINE).output
    for heading, section in SECTIONS.items():
        assert f"\n{heading}:\n  {section[0].name} " in text


@pytest.mark.parametrize("path", [path for path in COMMANDS if path not in SINGLE])
def test_a_group_says_what_each_command_does_in_one_line(path):
    text = CliRunner().invoke(rmqha, [*path.split()[1:], "--help"], terminal_width=LINE).output
    assert not [line for line in text.splitlines()[1:] if line.endswith("...") or len(line) > LINE]


@pytest.mark.parametrize("path", SINGLE)
def test_each_command_has_examples_that_it_accepts(path):
    lines = examples_of(path)
    assert lines
    for line in lines:
        assert len(line) <= LINE - 4
        words = words_of(line)
        assert f"rmqha {' '.join(words)} ".startswith(f"{path} "), line
        assert wrong_with_rmqha(rmqha, words) is None, line


@pytest.mark.parametrize("path", SINGLE)
def test_the_help_shows_the_examples_as_they_are(path):
    text = CliRunner().invoke(rmqha, [*path.split()[1:], "--help"], terminal_width=LINE).output
    assert text.endswith("\n  Examples:\n" + "".join(f"    {line}\n" for line in examples_of(path)))


def test_a_manual_page_is_written_for_every_command(tmp_path):
    result = CliRunner().invoke(rmqha, ["man", str(tmp_path / "man1")])
    assert result.exit_code == 0 and f"wrote {len(COMMANDS)} manual pages" in result.output
    assert {file.name for file in (tmp_path / "man1").iterdir()} == {f"{path.replace(' ', '-')}.1" for path in COMMANDS}


@pytest.mark.parametrize("path", COMMANDS)
def test_a_manual_page_has_what_the_help_has(path):
    text = dict(man_pages.pages(rmqha))[f"{path.replace(' ', '-')}.1"]
    plain = text.replace("\\-", "-").replace("\\(dq", '"').replace("\\e", "\\").replace("\\&", "")
    for parameter in COMMANDS[path].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert all(name in plain for name in parameter.opts), parameter.opts
    for line in examples_of(path):
        assert line in plain


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_groff_formats_every_page_without_a_warning():
    for name, text in man_pages.pages(rmqha):
        done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", "-k"], input=text, text=True,
                              capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), f"{name}: {done.stderr}"


def test_text_that_roff_would_read_as_a_request_is_printed():
    command = click.Command("x", help=".TH is not a request\n\n'neither is this \\fB", params=[])
    [(_name, text)] = man_pages.pages(command)
    assert "\n\\&.TH is not a request\n" in text and "\n\\&'neither is this \\efB\n" in text
