"""The choice between the compiled and the Python implementation, and the numbers in the C sources' header."""
import logging
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from types import SimpleNamespace

import pytest

from rmqha.broker.processor import send_codec
from rmqha.broker.processor import send_codec as send_answers
from rmqha.common import sys_flags
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import HEADS, RecordHead
from rmqha.common.protocol import request_code
from rmqha.native import kernels
from rmqha.remoting.protocol.header_codec import HEADER_FIXED
from rmqha.store import append
from rmqha.store.append import MessageRow
from rmqha.store.bulk import bulk, bulk_python
from tests.support.sources import ROOT

# The choice between the two implementations, and its report.

EXTENSION_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
NOT_COMPILED = "pure Python, slower: no C compiler was available when rmqha was installed"
SLOW = kernels.Kernel("message rows", None, "it is missing")


@pytest.mark.parametrize("used, kernel, name, twin", [
    (send_codec.read_simple_sends, kernels.EXPRESS_SENDS, "read_simple_sends", send_codec.sends_in_python),
    (send_answers._json_answers, kernels.EXPRESS_SENDS, "json_answers", send_answers.json_in_python),
    (append.records_of_rows, kernels.MESSAGE_ROWS, "records_of_rows", append.records_in_python),
    (bulk._kernel.scan, kernels.BULK, "scan", bulk_python.scan),
    (bulk_python.property_columns, kernels.PROPERTIES, "property_columns", bulk_python.columns_in_python),
], ids=["sends", "answers", "records", "bulk", "properties"])
def test_compiled_implementation_is_used_when_available(used, kernel, name, twin):
    assert used is (getattr(kernel.module, name) if kernel.module else twin)


def test_extensions_built_here_are_used():
    built = list(kernels.FOLDER.glob(f"*{EXTENSION_SUFFIX}"))
    if not built:
        pytest.skip("no C compiler was there at the install")
    assert len(built) == len(list(kernels.FOLDER.glob("*.c"))) == len(kernels.KERNELS)
    assert kernels.told() == "; ".join(f"{name}: compiled" for name in (
        "bulk kernel", "message rows", "express sends", "property columns"))


@pytest.mark.parametrize("module, reason", [
    (SimpleNamespace(VERSION=7, f=1, g=2), ""),
    (SimpleNamespace(VERSION=7, f=1, g=2, h=3), ""),
    (SimpleNamespace(VERSION=6, f=1, g=2), "_any.so has version 6, not 7"),
    (SimpleNamespace(f=1, g=2), "_any.so has version None, not 7"),
    (SimpleNamespace(VERSION=7, f=1), "_any.so has no g"),
    (ImportError("undefined symbol: crc"), "undefined symbol: crc"),
    (SystemError("initialization of _any failed"), "initialization of _any failed"),
])
def test_module_is_used_only_with_this_version_and_all_functions(monkeypatch, module, reason):
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
def test_extension_that_fails_to_load_is_reported(tmp_path, file, told):
    """In a copy of the package with nothing compiled, or with one file that is not an extension for this Python."""
    native = tmp_path / "rmqha" / "native"
    native.mkdir(parents=True)
    shutil.copy(ROOT / "rmqha" / "__init__.py", native.parent)
    (native.parent / "common").symlink_to(ROOT / "rmqha" / "common")
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
     "slower: it is missing; install a C compiler, then reinstall rmqha"),
])
def test_choice_is_logged_in_one_line(monkeypatch, caplog, chosen, level, text):
    monkeypatch.setattr(kernels, "KERNELS", chosen)
    with caplog.at_level(logging.INFO, kernels.log.name):
        kernels.log_choice()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, text)]


# The header of the C sources: each number in it equals Python's.

HEADER = (ROOT / "rmqha" / "native" / "native.h").read_text("utf-8")
DEFINED = {name: int(number.rstrip("u"), 0)
           for name, number in re.findall(r"^#define (\w+) (\w+)(?: /\*.*\*/)?$", HEADER, re.MULTILINE)
           if number[0].isdigit()}


def places(layout):
    """Return the position of each field of a struct."""
    fields = re.findall(r"\d*[A-Za-z]", layout[1:])
    return [struct.calcsize(layout[0] + "".join(fields[:count])) for count in range(len(fields))]


RECORD = dict(zip(RecordHead._fields, places(HEADS[0].format), strict=True))
# code, language, version, opaque, flag, length of the remark; then the length of the fields
CODE, _, _, OPAQUE, FLAG, REMARK = places(HEADER_FIXED.format)
# Length of a name, a name of one character, length of its value.
FIELD = places(">hci")

PYTHON = {
    "VERSION": kernels.VERSION,
    "STORE_HOST_POSITION": RECORD["store_host"],
    "RECONSUME_TIMES_POSITION": RECORD["reconsume_times"],
    "PREPARED_TRANSACTION_OFFSET_POSITION": RECORD["prepared_transaction_offset"],
    "BODY_LENGTH_POSITION": RECORD["body_length"],
    "HOST_LENGTH": len(message_layout.host_to_bytes(("10.0.0.1", 1))),
    "MORE_IN_V6": HEADS[1].size - HEADS[0].size,
    "CRC_MASK": message_layout.MAX_INT,
    "SEND_MESSAGE_V2": request_code.SEND_MESSAGE_V2,
    "HEADER_CODE_POSITION": CODE,
    "HEADER_OPAQUE_POSITION": OPAQUE,
    "HEADER_FLAG_POSITION": FLAG,
    "HEADER_REMARK_POSITION": REMARK,
    "HEADER_FIELDS_POSITION": HEADER_FIXED.size,
    "HEADER_FIXED_LENGTH": HEADER_FIXED.size + message_layout.INT.size,
    "FIELD_NAME_POSITION": FIELD[1],
    "FIELD_LENGTH_POSITION": FIELD[2],
    "FIELD_VALUE_POSITION": struct.calcsize(">hci"),
}


@pytest.mark.parametrize("name", DEFINED)
def test_number_equals_pythons(name):
    number = PYTHON[name] if name in PYTHON else getattr(message_layout, name, None)
    number = getattr(sys_flags, name) if number is None else number
    assert number & 0xFFFF_FFFF == DEFINED[name]


def test_positions_of_a_record_equal_pythons():
    names = ("magic_code", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
             "born_timestamp", "born_host")
    positions = [number for name, number in DEFINED.items() if name.endswith("_POSITION")]
    assert positions[:len(names)] == [RECORD[name] for name in names]


def test_positions_of_a_simple_send_are_those_of_its_fields():
    found = re.search(r"enum \{([^}]*SEND_FIELDS)\s*\}", HEADER)[1]
    assert re.findall(r"SEND_(\w+)", found) == [*(field.upper() for field in MessageRow._fields), "FIELDS"]


@pytest.mark.parametrize("source", sorted((ROOT / "rmqha" / "native").glob("*.c")), ids=lambda source: source.name)
def test_sources_take_the_layouts_from_the_header(source):
    text = source.read_text("utf-8")
    assert '#include "native.h"' in text and "module_of_this_version" in text
    assert not set(re.findall(r"#define (\w+)", text)) & set(DEFINED)
