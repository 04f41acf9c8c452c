"""Modules that the programs load before they do anything: each costs CPU at every start (tests/bench/import_cpu.py)."""
import os
import subprocess
import sys

import pytest

from tests.support.program_starts import STARTS, telling
from tests.support.sources import ROOT

NOT_AT_FIRST = {"asyncio", "concurrent.futures", "decimal", "difflib", "email", "hashlib", "html", "http",
                "multiprocessing", "platform", "psutil", "shutil", "ssl", "subprocess", "tempfile", "urllib.request",
                "uuid", "xml", "yaml"}
"""Of the standard library and others: what few starts need, and what takes long to load."""
OF_CLICK = {"platform", "shutil", "uuid"}  # click loads them itself
DATACLASSES = {"dataclasses", "inspect"}
FORBIDDEN = {
    "broker": NOT_AT_FIRST | DATACLASSES | {"click", "rmqha.client", "rmqha.acl.plain_access_validator"},
    "producer": NOT_AT_FIRST | DATACLASSES | {"click", "logging.handlers", "rmqha.common.logs", "rmqha.acl",
                                              "rmqha.store", "rmqha.tools"},
    "mqadmin": NOT_AT_FIRST | {"click", "rmqha.acl", "rmqha.store", "rmqha.client.producer.default_mq_producer",
                               "rmqha.tools.terminal"},
    "rmqha --help": NOT_AT_FIRST - OF_CLICK | {"dataclasses", "json", "logging", "queue", "rmqha.client",
                                               "rmqha.remoting", "rmqha.common.mix_all"},
}
COMMANDS = "rmqha.tools.command."
MOST_OF_RMQHA = {"broker": 208, "producer": 96, "mqadmin": 104, "rmqha --help": 14}


def loaded(arguments, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, *telling(arguments)], env=env, cwd=tmp_path, text=True, capture_output=True,
                          check=True, timeout=600)
    return set(done.stderr.split())


@pytest.mark.parametrize("program", STARTS)
def test_start_loads_only_necessary_modules(program, tmp_path):
    modules = loaded(STARTS[program], tmp_path) - loaded(["-c", "pass"], tmp_path)
    needless = {name for name in modules
                if any(f"{name}.".startswith(f"{each}.") for each in FORBIDDEN[program])}
    assert not needless, sorted(needless)
    own = sorted(name for name in modules if name.partition(".")[0] == "rmqha")
    assert len(own) <= MOST_OF_RMQHA[program], own


def test_one_sub_command_of_mqadmin_does_not_load_the_others(tmp_path):
    modules = {name.removeprefix(COMMANDS) for name in loaded(STARTS["mqadmin"], tmp_path) if name.startswith(COMMANDS)}
    assert modules == {"mq_admin_startup", "sub_commands", "sub_command", "commons_cli", "controller", "namesrv"}
