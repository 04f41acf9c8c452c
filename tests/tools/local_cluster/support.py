"""Helpers that run the commands as users do, in their own processes, which are forked from a warm one."""
import json
import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha as rmqha_command
from tests.support import warm
from tests.support.sources import ROOT


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user whose home is `home`."""
    kept = {key: value for key, value in os.environ.items() if key not in ("RMQHA_DIR", "NAMESRV_ADDR")}
    return {**kept, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(home), "HOME": str(home)}


def command(*arguments: object) -> list[str]:
    """Return the command line of `rmqha ...`."""
    return [sys.executable, "-m", "rmqha.tools.rmqha_command", *map(str, arguments)]


def rmqha(home: Path, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run `rmqha ...`; raise an AssertionError when its exit code is not `code`."""
    result = warm.run(command(*arguments), environment(home), home, 600)
    assert result.returncode == code, result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    return result


def nodes(home: Path, *arguments: object, code: int = 0) -> dict[str, dict]:
    """Return the output of `rmqha ps -o json` by name; called in this process, since that is faster."""
    result = CliRunner().invoke(rmqha_command, ["ps", "-o", "json", *map(str, arguments)],
                                env={**environment(home), "RMQHA_DIR": None})
    assert result.exit_code == code, result.output
    return {node["name"]: node for node in json.loads(result.stdout)["nodes"]}
