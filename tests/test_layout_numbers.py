"""Where the fields of a record lie is said in message_layout and native.h alone; everybody else uses their names."""
import ast
import re

import pytest

from rmqha.common.message import message_layout as layout
from tests.support.sources import ROOT, imports, modules

LAYOUT = "rmqha.common.message.message_layout"
# What only walks from record to record has no places.
WALK = {f"{LAYOUT}.{name}" for name in ("HEAD", "walk", "fits")}
# Where Java keeps its own numbers of requests and answers.
OTHER_NUMBERS = "rmqha/common/protocol/"
MORE = layout.MORE_IN_V6
BEHIND_A_HOST = {layout.STORE_TIMESTAMP_POSITION, layout.STORE_HOST_POSITION, layout.RECONSUME_TIMES_POSITION,
                 layout.PREPARED_TRANSACTION_OFFSET_POSITION, layout.BODY_LENGTH_POSITION, layout.HEAD_LENGTH}
PLACES = {number + more for number in BEHIND_A_HOST for more in (0, MORE, 2 * MORE)} | {layout.MIN_RECORD_LENGTH} | {
    value for name, value in vars(layout).items() if name.endswith("_POSITION")}
# Common numbers, which mean a place only beside the layout's other names.
COMMON = {number for number in PLACES if number < 50 or number in (64, 72, 80, 100)}
# Too common even there: TOTALSIZE to FLAG are found by their names, or by a Struct.
SMALL = {number for number in PLACES if number <= layout.QUEUE_OFFSET_POSITION}
RECORD_FORMAT = re.compile(r"^>i{4}")


def is_count(parent):
    """`64 * 1024`, `4 << 20`, `percent / 100`."""
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Mult, ast.Div, ast.LShift, ast.Pow))


def bare_numbers(tree):
    """(line, what) of the places and layouts of records that a module writes as numbers."""
    uses_layout = any(name.startswith(LAYOUT) and name not in WALK for name, _ in imports(tree))
    forbidden = PLACES - SMALL if uses_layout else PLACES - COMMON - SMALL
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            if not isinstance(node, ast.Constant):
                continue
            if type(node.value) is int and node.value in forbidden and not is_count(parent):
                yield node.lineno, node.value
            if isinstance(node.value, str) and RECORD_FORMAT.match(node.value):
                yield node.lineno, node.value


def test_no_module_but_the_layout_has_the_places_of_fields():
    own = LAYOUT.replace(".", "/") + ".py"
    wrong = [f"{path}:{line} {what}" for path, tree in modules().items() for line, what in bare_numbers(tree)
             if path != own and not path.startswith(OTHER_NUMBERS)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("planted", [
    "LONG.unpack_from(data, 56)", "at = start + 68", "body_at = 88 + v6", "data[:112]", "smallest = 91",
    'HEAD = Struct(">iiii4xqqi44xi")', 'HEAD = Struct(f">iiiiiqqi{born}s")',
    f"from {LAYOUT} import LONG\nLONG.unpack_from(data, 28)", f"from {LAYOUT} import INT\nINT.unpack_from(data, 36)"])
def test_planted_number_is_found(planted):
    assert list(bare_numbers(ast.parse(planted)))


# A place of a record is added to a pointer; `file` and `unit` point elsewhere.
PLACE_IN_C = re.compile(r"\b(?:p|record|head|at|data|room|out)\s*(?:[+<]|\[)\s*(\d+)\b")


def numbers_in_c(text):
    """The places of a record that C adds to a pointer as numbers."""
    return [int(number) for number in PLACE_IN_C.findall(text) if int(number) in PLACES - SMALL]


@pytest.mark.parametrize("source", sorted((ROOT / "rmqha" / "native").glob("*.c")), ids=lambda source: source.name)
def test_c_sources_take_the_places_from_their_header(source):
    assert not numbers_in_c(source.read_text("utf-8"))


def test_planted_number_is_found_in_c():
    assert numbers_in_c("int64_t stored = get64(p + 56);") == [56]
    assert numbers_in_c("if (room < 88)") == [88]
