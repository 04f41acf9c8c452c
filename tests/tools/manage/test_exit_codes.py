"""The help of each command that works on all masters has its exit codes, and its durations have units."""
import re

import click
import pytest
from click.testing import CliRunner

from rmqha.tools.manage.masters import EXIT_CODES
from rmqha.tools.rmqha_command import rmqha
from tests.tools.test_help import COMMANDS, SINGLE

GROUPS = ("topic", "group", "cluster", "acl", "dlq")
OWN = ("rmqha acl check",)


@pytest.mark.parametrize("path", [path for path in SINGLE if path.split()[1] in GROUPS])
def test_each_command_says_its_exit_codes(path):
    text = " ".join(CliRunner().invoke(rmqha, [*path.split()[1:], "--help"]).output.split())
    assert ("Exit code 0: allowed" if path in OWN else f"{EXIT_CODES} Examples:") in text
    assert text.count("Exit code 0") == 1 and "[default: 3s]" in text


@pytest.mark.parametrize("path", [path for path in SINGLE if path.split()[1] in (
    *GROUPS, "check", "doctor", "ha", "support")])
def test_time_outs_are_shown_with_their_unit(path):
    for option in COMMANDS[path].params:
        if option.name == "timeout_s":
            assert re.fullmatch(r"[\d.]+s", str(option.default)), option.default
            assert option.type_cast_value(click.Context(COMMANDS[path]), option.default) == float(option.default[:-1])
            assert option.help.startswith("How long to wait ")


def test_defaults_with_units_are_read_as_seconds():
    for path in SINGLE:
        for option in COMMANDS[path].params:
            if path.split()[1] in GROUPS and isinstance(option, click.Option) and str(option.default).endswith("s"):
                assert option.get_default(click.Context(COMMANDS[path])) in ("1s", "3s", "10s")
                assert option.type_cast_value(click.Context(COMMANDS[path]), option.default) in (1.0, 3.0, 10.0)


@pytest.mark.parametrize(("path", "real"), [
    ("topic ls", "list"), ("topic rm", "delete"), ("topic remove", "delete"), ("group ls", "list"),
    ("group rm", "delete"), ("context ls", "list"), ("context rm", "remove"), ("context delete", "remove"),
    ("dlq ls", "list"), ("acl user ls", "list"), ("acl user rm", "delete")])
def test_names_of_other_programs_are_hidden_aliases(path, real):
    *group, alias = path.split()
    told = CliRunner().invoke(rmqha, [*group, alias, "--help"])
    wanted = CliRunner().invoke(rmqha, [*group, real, "--help"])
    assert told.exit_code == 0
    assert told.output.splitlines()[1:] == wanted.output.splitlines()[1:]
    assert alias not in COMMANDS[f"rmqha {' '.join(group)}"].commands


def test_alias_of_a_command_that_a_group_does_not_have_is_refused():
    told = CliRunner().invoke(rmqha, ["dlq", "rm"])
    assert told.exit_code == 2 and "No such command 'rm'" in told.output
