"""mqadmin's command lines: those captured from the real one, rmqha's own options, and any text at all."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha import __version__
from rmqha.tools.command import commons_cli, mq_admin_startup
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, ParseException
from rmqha.tools.command.mq_admin_startup import find_sub_command, main0
from rmqha.tools.command.sub_command import Document, Heading, SubCommand, Table
from rmqha.tools.command.sub_commands import SUB_COMMANDS
from tests.tools.command.capture_command_lines import GOLDEN

ROOT = Path(__file__).resolve().parents[3]
CAPTURED = [captured for captured in json.loads(GOLDEN.read_text("utf-8"))
            if captured["args"] != ["help"]]  # rmqha lists the commands, the original knows no command help
NUMBERS = Table("%-8s%4d%8.2f\n", {"name": "#Name", "count": "#N", "rate": "#Rate"})


class Printing(SubCommand):
    """Prints one part of each kind, and fails with -f."""

    command_name = "printing"
    command_desc = "prints"
    options = (commons_cli.flag("f", "fail", "fails"),)

    @classmethod
    def load(cls):
        return cls

    def execute(self, command_line, admin):
        yield "before\n"
        yield NUMBERS.heading()
        yield NUMBERS.row("a", 1, 0.5)
        yield NUMBERS.row("bb", 20, 2.345, rate="fast", more=[1])
        yield Document("{a\n}\n", {"a": 1})
        yield Heading("---\n")
        if command_line.has_option("f"):
            raise NumberFormatException("x")


class Ordered(Printing):
    """Has an -o of its own."""

    command_name = "ordered"
    options = (commons_cli.option("o", "order", "order"),)


@pytest.fixture
def printing(monkeypatch):
    monkeypatch.setattr(mq_admin_startup, "SUB_COMMANDS", (Printing, Ordered))


@pytest.mark.parametrize("captured", CAPTURED, ids=lambda captured: " ".join(captured["args"]) or "nothing")
def test_exit_code_and_output_are_those_of_the_original(captured, capsys, monkeypatch):
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    code = main0(captured["args"])
    printed = capsys.readouterr()
    assert code == captured["code"]
    if "usage:" in captured["out"] and captured["args"] != ["exportMetadata", "-n", "127.0.0.1:1"]:
        explained, own = printed.out[:len(captured["out"])], printed.out[len(captured["out"]):]
        assert explained == captured["out"]
        assert own.endswith("--output json or --json prints rows and documents as JSON, an object a line.\n")
    elif captured["args"]:
        assert printed.out == captured["out"]
    if code == 0:
        hint = "No name server: give it with -n host:port, or in NAMESRV_ADDR.\n"
        assert printed.err == captured["err"] + ("" if "-n" in captured["args"] or not captured["err"] else hint)


def test_rows_and_documents_are_json_and_the_rest_goes_to_standard_error(printing, capsys):
    for args in (["-o", "json"], ["--output", "json"], ["--output=json"], ["--json"]):
        assert main0(["printing", *args]) == 0
        printed = capsys.readouterr()
        assert [json.loads(line) for line in printed.out.splitlines()] == [
            {"name": "a", "count": 1, "rate": 0.5}, {"name": "bb", "count": 20, "rate": "fast", "more": [1]}, {"a": 1}]
        assert printed.err == "before\n"


def test_text_has_columns_as_printf_makes_them(printing, capsys):
    assert main0(["printing", "-o", "text"]) == 0
    assert capsys.readouterr().out == (
        "before\n#Name     #N   #Rate\na          1    0.50\nbb        20    2.35\n{a\n}\n---\n")


def test_a_failed_command_has_exit_code_0_as_the_originals_and_1_with_json(printing, capsys):
    told = ("org.apache.rocketmq.tools.command.SubCommandException: Printing command failed\n"
            'Caused by: java.lang.NumberFormatException: For input string: "x"\n')
    assert main0(["printing", "-f"]) == 0
    assert capsys.readouterr().err.startswith(told)
    assert main0(["printing", "-f", "--json"]) == 1
    assert told in capsys.readouterr().err


def test_a_command_with_its_own_o_keeps_it(printing, capsys):
    assert main0(["ordered", "-o", "json"]) == 0
    assert capsys.readouterr().out.startswith("before\n")
    assert main0(["ordered", "-o", "x", "--output", "json"]) == 0
    assert capsys.readouterr().out.startswith("{")


def test_an_output_that_is_neither_text_nor_json_is_refused(printing, capsys):
    assert main0(["printing", "-o", "yaml"]) == 1
    assert "--output yaml: text or json" in capsys.readouterr().err


def test_a_missing_option_is_named(capsys):
    assert main0(["updateTopic", "-b", "x"]) == 1
    assert capsys.readouterr().err == "Missing required option: t\n"
    assert main0(["updateTopic", "-t", "x"]) == 1
    assert capsys.readouterr().err == "Missing required option: -b | -c\n"


def test_the_program_writes_its_logs_into_files_and_ends_with_a_reader_that_goes_away(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ROCKETMQ_LOG_DIR": str(tmp_path)}
    done = subprocess.run([ROOT / "bin" / "mqadmin", "topicList", "-n", "127.0.0.1:1"], capture_output=True, text=True,
                          timeout=600, check=True, env=env)
    assert done.stdout == "" and done.stderr.startswith("org.apache.rocketmq.tools.command.SubCommandException: ")
    assert len(done.stderr.splitlines()) == 2
    assert {file.name for file in tmp_path.glob("*.log")} == {"tools.log", "tools_default.log"}
    done = subprocess.run(f"{sys.executable} -m rmqha.tools.command.mq_admin_startup | true", shell=True, text=True,
                          capture_output=True, timeout=600, check=True, env=env, cwd=ROOT)
    assert done.stderr == ""


@pytest.mark.parametrize("asked", ["help", "-h", "--help"])
def test_help_lists_the_commands_and_explains_one(asked, capsys):
    assert main0([asked]) == 0
    listed = capsys.readouterr().out
    assert main0([]) == 0 and capsys.readouterr().out == listed
    assert listed.startswith("The most commonly used mqadmin commands are:\n   updateTopic ")
    assert main0([asked, "topicRoute"]) == 0
    assert capsys.readouterr().out.startswith("usage: mqadmin topicRoute ")


def test_it_tells_its_version(capsys):
    assert main0(["--version"]) == 0 and capsys.readouterr().out == f"mqadmin {__version__}\n"


def test_names_are_found_in_whatever_case_and_by_alias():
    assert find_sub_command("TOPICroute").command_name == "topicRoute"
    assert find_sub_command("deleteACCESSconfig").command_name == "deleteAclConfig"
    assert find_sub_command("topic") is None


@pytest.mark.parametrize("listed", SUB_COMMANDS, ids=lambda listed: listed.command_name)
def test_the_list_says_what_the_commands_say(listed):
    command = listed.load()
    assert (listed.command_name, listed.command_alias, listed.command_desc) == (
        command.command_name, command.command_alias, command.command_desc)


def test_no_two_options_of_a_command_share_a_name():
    for command in SUB_COMMANDS:
        options = command.load().options_to_parse()
        longs = [each.long_opt for each in options.by_key.values()]
        assert len(set(longs)) == len(longs), command


def test_the_page_about_mqadmin_has_each_sub_command_once():
    table = (ROOT / "docs" / "mqadmin.md").read_text("utf-8").partition("| sub-command |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in row.split("|")[1].replace(",", " ").split()]
    assert sorted(named) == sorted(command.command_name for command in SUB_COMMANDS)


def test_accounts_come_from_tools_yml(tmp_path, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert mq_admin_startup.get_acl_rpc_hook() is None
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: rocketmq2\nsecretKey: 12345678\n", encoding="ascii")
    assert mq_admin_startup.get_acl_rpc_hook() is not None


TOKENS = st.lists(st.one_of(st.text(max_size=6), st.sampled_from(
    ["-t", "-b", "-c", "--topic", "--topic=x", "-o", "--", "-", "-n", "-h", "-1", "-tb", "--json", "x"])), max_size=8)


@given(st.sampled_from(SUB_COMMANDS), TOKENS)
def test_any_command_line_is_read_or_refused(command, tokens):
    options = command.load().options_to_parse()
    try:
        command_line = commons_cli.parse(options, tokens)
    except ParseException as error:
        assert str(error)
        return
    for each in options.by_key.values():
        given_value = command_line.get_option_value(each.key)
        assert (given_value is None) or each.has_arg
        assert not each.required or command_line.has_option(each.key)


@given(st.text(max_size=22) | st.integers().map(str) | st.integers(-1 << 70, 1 << 70).map(lambda number: f"+{number}"))
def test_numbers_are_longs_or_refused(text):
    try:
        assert -1 << 63 <= commons_cli.parse_long(text) < 1 << 63
    except NumberFormatException as error:
        assert str(error) == f'For input string: "{text}"'


def test_values_are_read_by_short_and_long_name():
    options = find_sub_command("updateTopic").build_commandline_options()
    line: CommandLine = commons_cli.parse(options, ["-t", " x ", "-b", "a", "--order", "TRUE", "-r", "+7"])
    assert (line.text("topic"), line.text("t"), line.get_option_value("t")) == ("x", "x", " x ")
    assert line.boolean("o") and not line.boolean("u") and line.boolean("u", True)
    assert (line.integer("readQueueNums"), line.integer("w", 8)) == (7, 8)
    assert line.text("nothing") is None and not line.has_option("nothing")
