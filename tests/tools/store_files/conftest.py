"""Stores for the tools: one of rmqha's own, and those written by RocketMQ 4.9.7. Each test gets a copy."""
import json
import shutil

import pytest
from click.testing import CliRunner

from rmqha.common import sys_flags
from rmqha.tools.rmqha_command import rmqha
from tests.store.support import batch, crash, message, new_store, open_store, put, unpack_golden, wait_dispatched

BODIES = 200


def fill(store, count=BODIES, start=0):
    """Put messages of all kinds."""
    for number in range(start, start + count):
        if number % 10 == 9:
            store.put_messages(batch([b"one", b"two", b"three"], "Batch", number % 2, TAGS="B"))
            continue
        properties = {"UNIQ_KEY": f"U{number:08d}", "user": f"value {number}"}
        if number % 2:
            properties["TAGS"] = ("TagA", "标签", "C")[number % 3]
        if number % 3:
            properties["KEYS"] = f"key{number % 7} 订单{number}"
        if number % 8 == 4:
            properties["DELAY"] = str(1 + number % 18)
        msg = message("TopicA" if number % 2 else "TopicB", number % 3, bytes(range(number % 200)) * 4, **properties)
        msg.sys_flag |= {5: sys_flags.TRANSACTION_PREPARED_TYPE, 7: sys_flags.TRANSACTION_COMMIT_TYPE,
                         11: sys_flags.TRANSACTION_ROLLBACK_TYPE}.get(number % 13, 0)
        if number % 6 == 1:
            msg.born_host = ("2001:db8::1", 40000)
        put(store, msg)
    wait_dispatched(store)


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Name -> store; no test writes to these."""
    folder = tmp_path_factory.mktemp("stores")
    with open_store(folder / "own") as store:
        fill(store)
    crashed = new_store(folder / "crashed")
    assert crashed.load()
    crashed.start()
    fill(crashed)
    crash(crashed)
    return {"own": folder / "own", "crashed": folder / "crashed",
            "normal": unpack_golden("normal", folder), "kill": unpack_golden("kill", folder)}


@pytest.fixture
def copy(originals, tmp_path):
    """copy(name[, as]) -> a copy of a store."""
    def make(name, target=None):
        shutil.copytree(originals[name], tmp_path / (target or name))
        return tmp_path / (target or name)
    return make


@pytest.fixture
def run():
    """run(*arguments) -> (exit code, standard output, standard error) of `rmqha store`."""
    def invoke(*arguments):
        result = CliRunner().invoke(rmqha, ["store", *map(str, arguments)])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise AssertionError(f"{arguments} failed: {result.output}") from result.exception
        return result.exit_code, result.stdout, result.stderr
    return invoke


@pytest.fixture
def run_json(run):
    """run_json(*arguments) -> (exit code, the object) of `rmqha store ... -o json`."""
    def invoke(*arguments):
        code, out, err = run(*arguments, "-o", "json")
        assert out, err
        return code, json.loads(out)
    return invoke
