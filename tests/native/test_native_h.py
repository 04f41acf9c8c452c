"""The header of the C sources: each number in it is Python's."""
import re
import struct

import pytest

from rmqha.common import sys_flags
from rmqha.common.message import message_layout
from rmqha.common.message.message_layout import HEADS, RecordHead
from rmqha.common.protocol import request_code
from rmqha.native import kernels
from rmqha.remoting.protocol.header_codec import HEADER_FIXED
from rmqha.store.append import MessageRow
from tests.support.sources import ROOT

HEADER = (ROOT / "rmqha" / "native" / "native.h").read_text("utf-8")
DEFINED = {name: int(number.rstrip("u"), 0)
           for name, number in re.findall(r"^#define (\w+) (\w+)(?: /\*.*\*/)?$", HEADER, re.MULTILINE)
           if number[0].isdigit()}


def places(layout):
    """Where each field of a struct begins."""
    fields = re.findall(r"\d*[A-Za-z]", layout[1:])
    return [struct.calcsize(layout[0] + "".join(fields[:count])) for count in range(len(fields))]


RECORD = dict(zip(RecordHead._fields, places(HEADS[0].format), strict=True))
# code, language, version, opaque, flag, length of the remark; then the length of the fields
CODE, _, _, OPAQUE, FLAG, REMARK = places(HEADER_FIXED.format)
FIELD = places(">hci")  # length of a name, a name of one character, length of its value

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
def test_number_is_pythons(name):
    number = PYTHON[name] if name in PYTHON else getattr(message_layout, name, None)
    number = getattr(sys_flags, name) if number is None else number
    assert number & 0xFFFF_FFFF == DEFINED[name]


def test_positions_of_a_record_are_where_python_packs_them():
    names = ("magic_code", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
             "born_timestamp", "born_host")
    positions = [number for name, number in DEFINED.items() if name.endswith("_POSITION")]
    assert positions[:len(names)] == [RECORD[name] for name in names]


def test_places_of_a_simple_send_are_its_fields():
    found = re.search(r"enum \{([^}]*SEND_FIELDS)\s*\}", HEADER)[1]
    assert re.findall(r"SEND_(\w+)", found) == [*(field.upper() for field in MessageRow._fields), "FIELDS"]


@pytest.mark.parametrize("source", sorted((ROOT / "rmqha" / "native").glob("*.c")), ids=lambda source: source.name)
def test_sources_take_the_layouts_from_the_header(source):
    text = source.read_text("utf-8")
    assert '#include "native.h"' in text and "module_of_this_version" in text
    assert not set(re.findall(r"#define (\w+)", text)) & set(DEFINED)
