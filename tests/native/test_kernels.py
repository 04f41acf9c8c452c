"""Which of two implementations is used, and that it is told."""
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
from types import SimpleNamespace

import pytest

from rmqha.broker.processor import send_codec
from rmqha.broker.processor import send_codec as send_answers
from rmqha.native import kernels
from rmqha.store import append
from rmqha.store.bulk import bulk, bulk_python
from tests.support.sources import ROOT

EXTENSION_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
NOT_COMPILED = "pure Python, slower: no C compiler was there when rmqha was installed"
SLOW = kernels.Kernel("message rows", None, "it is missing")


@pytest.mark.parametrize("used, kernel, name, twin", [
    (send_codec.read_simple_sends, kernels.EXPRESS_SENDS, "read_simple_sends", send_codec.sends_in_python),
    (send_answers._json_answers, kernels.EXPRESS_SENDS, "json_answers", send_answers.json_in_python),
    (append.records_of_rows, kernels.MESSAGE_ROWS, "records_of_rows", append.records_in_python),
    (bulk._kernel.scan, kernels.BULK, "scan", bulk_python.scan),
    (bulk_python.property_columns, kernels.PROPERTIES, "property_columns", bulk_python.columns_in_python),
], ids=["sends", "answers", "records", "bulk", "properties"])
def test_compiled_one_is_used_where_there_is_one(used, kernel, name, twin):
    assert used is (getattr(kernel.module, name) if kernel.module else twin)


def test_what_is_built_here_is_used():
    built = list(kernels.FOLDER.glob(f"*{EXTENSION_SUFFIX}"))
    if not built:
        pytest.skip("no C compiler was there at the install")
    assert len(built) == len(list(kernels.FOLDER.glob("*.c"))) == len(kernels.KERNELS)
    assert kernels.told() == "; ".join(f"{name}: compiled" for name in (
        "bulk kernel", "message rows", "express sends", "property columns"))


@pytest.mark.parametrize("module, reason", [
    (SimpleNamespace(VERSION=7, f=1, g=2), ""),
    (SimpleNamespace(VERSION=7, f=1, g=2, h=3), ""),
    (SimpleNamespace(VERSION=6, f=1, g=2), "_any.so is of version 6, not 7"),
    (SimpleNamespace(f=1, g=2), "_any.so is of version None, not 7"),
    (SimpleNamespace(VERSION=7, f=1), "_any.so has no g"),
    (ImportError("undefined symbol: crc"), "undefined symbol: crc"),
    (SystemError("initialization of _any failed"), "initialization of _any failed"),
])
def test_module_is_used_when_it_has_this_version_and_all_functions(monkeypatch, module, reason):
    def import_module(name):
        assert name == "rmqha.native._any"
        if isinstance(module, Exception):
            raise module
        module.__file__ = "_any.so"
        return module

    monkeypatch.setattr(kernels.importlib, "import_module", import_module)
    monkeypatch.setattr(kernels, "VERSION", 7)
    kernel = kernels.load("any", "_any", ("f", "g"))
    assert (kernel.module, kernel.reason) == (None if reason else module, reason)
    assert kernel.function("f", "twin") == ("twin" if reason else 1)
    assert kernel.told() == (f"any: pure Python, slower: {reason}" if reason else "any: compiled")


@pytest.mark.parametrize("file, told", [
    (None, NOT_COMPILED),
    ("_express_send.cpython-27-any.so", "pure Python, slower: _express_send.cpython-27-any.so is for another Python"),
    (f"_express_send{EXTENSION_SUFFIX}", "pure Python, slower: "),
])
def test_extension_that_does_not_load_is_told(tmp_path, file, told):
    """With a copy of the room in which nothing is compiled, or one file is, which is no extension of this Python."""
    native = tmp_path / "rmqha" / "native"
    native.mkdir(parents=True)
    shutil.copy(ROOT / "rmqha" / "__init__.py", native.parent)
    for name in ("__init__.py", "kernels.py"):
        shutil.copy(ROOT / "rmqha" / "native" / name, native)
    if file:
        (native / file).write_bytes(b"no library")
    script = "from rmqha.native import kernels; print(kernels.__file__); print(kernels.told())"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
                          capture_output=True, text=True, timeout=600, check=True)
    where, said = done.stdout.splitlines()
    assert where == str(native / "kernels.py")
    parts = said.split("; ")
    assert parts[:2] == [f"bulk kernel: {NOT_COMPILED}", f"message rows: {NOT_COMPILED}"]
    assert parts[2].startswith(f"express sends: {told}")
    assert parts[3:] == [f"property columns: {NOT_COMPILED}", kernels.MEND]
    if told.endswith(" "):
        assert str(native / file) in parts[2]


@pytest.mark.parametrize("chosen, level, text", [
    ((kernels.BULK._replace(module=kernels),), "INFO", "bulk kernel: compiled"),
    ((kernels.BULK._replace(module=kernels), SLOW), "WARNING", "bulk kernel: compiled; message rows: pure Python, "
     "slower: it is missing; with a C compiler there, install rmqha again"),
])
def test_choice_is_one_line_of_the_log(monkeypatch, caplog, chosen, level, text):
    monkeypatch.setattr(kernels, "KERNELS", chosen)
    with caplog.at_level(logging.INFO, kernels.log.name):
        kernels.log_choice()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, text)]
