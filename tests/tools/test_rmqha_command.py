"""All commands of `rmqha`: help, version, wrong usage, groups that need an extra; never a traceback."""
import os
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from rmqha.common.filesystem import how_to_install
from rmqha.tools.rmqha_command import GROUPS, rmqha
from rmqha.tools.terminal import LazyCommand, LazyGroup
from tests.support.guide import is_leaf, needs_extra, own_commands

# All commands of `rmqha`: help, version, wrong usage, no name server; never a traceback.

COMMANDS = dict(own_commands())
LEAVES = [path for path, command in COMMANDS.items() if is_leaf(command)]
# It writes what it could collect when no server answers: tests/tools/support.
PARTIAL = ["rmqha support bundle"]
ASKING = [path for path in LEAVES if any(parameter.name == "namesrv" for parameter in COMMANDS[path].params)
          and path not in PARTIAL]
# The other arguments required by commands that query a name server.
GIVEN = {
    "rmqha produce": ["-t", "T", "-m", "x"], "rmqha consume": ["-t", "T"], "rmqha tail": ["-t", "T"],
    "rmqha export": ["-t", "T", "out"], "rmqha import": ["in"], "rmqha bench produce": ["-t", "T"],
    "rmqha bench consume": ["-t", "T"], "rmqha bench e2e": ["-t", "T"], "rmqha ha promote": ["-b", "127.0.0.1:1"]}
SERVING = ["rmqha console"]
# Exit codes for monitoring systems: 3 is UNKNOWN.
CHECKS = "rmqha check "


def run(path: str, *arguments: str) -> Result:
    result = CliRunner().invoke(rmqha, [*path.split()[1:], *arguments], env={"NAMESRV_ADDR": "", "COLUMNS": "100"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def cannot_answer(path: str) -> int:
    return 3 if path.startswith(CHECKS) else 2


@pytest.mark.parametrize("path", COMMANDS)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help(path, option):
    if not needs_extra(COMMANDS[path]):
        result = run(path, option)
        assert result.exit_code == 0 and result.output.startswith("Usage: "), result.output
    assert path == "rmqha" or COMMANDS[path].get_short_help_str(200)


@pytest.mark.parametrize("path", LEAVES)
def test_command_run_without_its_root_has_the_same_help(path):
    alone = CliRunner().invoke(COMMANDS[path], ["-h"], prog_name=path, env={"COLUMNS": "100"})
    assert alone.exit_code == 0 and alone.output == run(path, "-h").output


@pytest.mark.parametrize("path", LEAVES)
def test_version(path):
    result = run(path, "--version")
    assert result.exit_code == 0 and result.output.startswith("rmqha, version ")


@pytest.mark.parametrize("path", LEAVES)
def test_unknown_option_is_a_usage_error(path):
    result = run(path, "--no-such-option")
    assert result.exit_code == cannot_answer(path) and "No such option" in result.output


@pytest.mark.parametrize("path", ASKING)
@pytest.mark.parametrize("where", [(), ("-n", "127.0.0.1:1"), ("-n", "nowhere")], ids=["none", "dead", "no address"])
def test_no_name_server(path, where, tmp_path, monkeypatch):
    if path in SERVING and where[-1:] == ("127.0.0.1:1",):
        pytest.skip("it shows the error on its page, and keeps serving")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text('{"rmqhaExport": 1, "topics": {"T": {"b": 1}}}\n')
    result = run(path, *GIVEN.get(path, ()), *where)
    assert result.exit_code != 0
    told = [row for row in result.output.splitlines() if row and not row.startswith(("Usage:", "Try ", "warning:"))]
    assert len(told) == 1 or path == "rmqha doctor", result.output
    assert not (tmp_path / "out").exists()


def test_required_arguments_are_given_for_enough_commands():
    assert set(GIVEN) <= set(ASKING) and len(ASKING) >= 12


def test_lazy_commands_have_the_help_of_the_real_ones():
    for command in GROUPS:
        if isinstance(command, (LazyCommand, LazyGroup)) and command.extra is None:
            real = command.load()
            first = " ".join((command.help or "").split())
            assert " ".join((real.help or "").split()).startswith(first.rstrip(".")), command.name
            assert real.name == command.name


def outside(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "rmqha.tools.rmqha_command", *arguments], capture_output=True,
                          text=True, timeout=600, check=False, env={**os.environ, "NAMESRV_ADDR": ""})


@pytest.mark.parametrize("arguments, code", [
    (("--help",), 0), (("nope",), 2), (("consume", "-t", "T", "-n", "127.0.0.1:1"), 2), (("config", "check", "/"), 2),
    (("completion", "fish"), 0), (("produce",), 2)])
def test_exit_code_of_the_process(arguments, code):
    done = outside(*arguments)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr


def test_help_imports_no_client():
    code = ("import sys; from click.testing import CliRunner; from rmqha.tools.rmqha_command import rmqha; "
            "assert CliRunner().invoke(rmqha, ['--help']).exit_code == 0; "
            "print([name for name in sys.modules if name.startswith(('rmqha.client', 'rmqha.remoting', 'psutil'))])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "[]\n"


def test_internal_error_is_one_line(monkeypatch):
    def broken(*_arguments):
        raise ZeroDivisionError("no\nsuch number")
    monkeypatch.setattr("rmqha.tools.config.config_command.explain", broken)
    result = run("rmqha config explain", "brokerName")
    assert result.exit_code == 2 and result.stderr.startswith(
        "Error: internal error in rmqha, ZeroDivisionError: no such number.") and result.stderr.count("\n") == 1
    monkeypatch.setenv("RMQHA_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(rmqha, ["config", "explain", "brokerName"]).exception, ZeroDivisionError)


def test_interrupt_ends_with_130(monkeypatch):
    def interrupted(*_arguments):
        raise KeyboardInterrupt
    monkeypatch.setattr("rmqha.tools.config.config_command.explain", interrupted)
    result = run("rmqha config explain", "brokerName")
    assert result.exit_code == 130 and result.stderr == "interrupted\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    result = run("rmqha completion", shell)
    assert result.exit_code == 0 and "_RMQHA_COMPLETE" in result.stdout


def test_completions_come_from_the_commands(monkeypatch):
    monkeypatch.setenv("_RMQHA_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "rmqha ha sta")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = outside()
    assert done.stdout == "plain,status\n"


# Groups that need an extra: listed in the help without it, and a clear error when they are used.


def test_help_lists_the_group_without_importing_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rmqha.pipeline.pipeline_command", None)
    result = CliRunner().invoke(rmqha, ["--help"])
    assert result.exit_code == 0 and re.search(r"^  pipeline +Audit, archive, restore", result.output, re.MULTILINE)


def test_use_without_the_extra_names_the_command_to_install_it(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rmqha.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ["pyspark", *(name for name in sys.modules if name.startswith("pyspark."))]:
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(rmqha, ["pipeline", "audit", ".", "."])
    assert result.exit_code == 2
    assert "`rmqha pipeline audit` needs the extra `spark`" in result.output
    assert how_to_install("spark") in result.output


def without_extras(*arguments: str) -> subprocess.CompletedProcess:
    """The output of `rmqha` in a process that can't import the libraries of `tui` and `console`."""
    code = ("import sys; sys.modules.update(dict.fromkeys(['h11', 'rich', 'starlette', 'textual', 'uvicorn'])); "
            "from rmqha.tools.rmqha_command import main; main()")
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=600,
                          check=False, env={**os.environ, "NAMESRV_ADDR": "", "COLUMNS": "100"})


@pytest.mark.parametrize("command, extra", [("top", "tui"), ("console", "console")])
def test_help_needs_no_extra_and_the_command_names_it(command, extra):
    shown = without_extras(command, "--help")
    assert shown.returncode == 0 and shown.stdout.startswith("Usage: ") and shown.stderr == ""
    used = without_extras(command, "-n", "127.0.0.1:1")
    assert used.returncode == 2 and f"`rmqha {command}` needs the extra `{extra}`" in used.stderr
    assert how_to_install(extra) in used.stderr and used.stderr.count("\n") == 1


# --context, before the command and after it.


@pytest.mark.parametrize("arguments", [
    ("--context", "dev", "topic", "list"), ("topic", "list", "--context", "dev"), ("topic", "--help", "list"),
    ("cluster", "config", "get", "--context=dev"), ("message", "find", "-t", "T", "--context", "dev", "-k", "x"),
    ("consume", "T", "--context", "dev")])
def test_context_is_accepted_before_and_after_the_command(arguments, tmp_path, monkeypatch):
    monkeypatch.setenv("RMQHA_CONTEXTS_FILE", str(tmp_path / "contexts.json"))
    for name, address in (("other", "127.0.0.1:2"), ("dev", "127.0.0.1:1")):
        assert CliRunner().invoke(rmqha, ["context", "add", name, "-n", address]).exit_code == 0
    result = CliRunner().invoke(rmqha, arguments, env={"NAMESRV_ADDR": "127.0.0.1:3"})
    if "--help" in arguments:
        assert "--context" not in result.output
        return
    assert result.exit_code == 2 and "name server 127.0.0.1:1 can't be reached" in result.output, result.output
    both = CliRunner().invoke(rmqha, [*arguments, "-n", "127.0.0.1:3"])
    assert both.exit_code == 2 and "give --context or -n, not both" in both.output


def test_context_is_no_option_of_a_command_without_a_cluster():
    for path in ("rmqha up", "rmqha config path", "rmqha check server"):
        assert "No such option '--context'" in run(path, "--context", "dev").output
