"""Texts of fastjson's dialect have similar costs per byte; the tests' grammar and readers are complete."""
import ast
import dis
import inspect
import logging
import random
import sys
import types
from itertools import chain
from pathlib import Path

import pytest

from rmqha.remoting.protocol import fastjson, remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError, FrozenList, FrozenObject
from tests.fuzz import dialect
from tests.fuzz.dialect import (
    ALL,
    BODIES,
    BROKEN,
    FEW,
    LEAVES,
    PRODUCTIONS,
    READERS,
    Campaign,
    Text,
    all_readers,
    colliding,
    costly,
    drawn,
    header_classes,
    places,
    report,
)
from tests.support.sources import ROOT
from tests.support.tiers import in_all
from tests.support.watch import calls_of

# No text of fastjson's dialect costs much more per byte than others, counted in calls, which do not depend on the
# machine.

# The allowed cost per byte as a multiple of the median; lower than in a campaign, whose texts are longer.
TIMES = 5
SIZE = 800
# 13 divides neither the number of productions nor of shapes.
SOME = ALL[::13]


class CountedObject(FrozenObject):
    """A FrozenObject with counted calls: each access to its contents is a call, even from C."""

    __hash__ = FrozenObject.__hash__

    def __repr__(self) -> str:
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


class CountedList(FrozenList):
    """A FrozenList with counted calls."""

    __hash__ = FrozenList.__hash__

    def __repr__(self) -> str:
        return super().__repr__()

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other)


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(fastjson, "FrozenObject", CountedObject)
    monkeypatch.setattr(fastjson, "FrozenList", CountedList)
    # A fixed number is too large for texts as short as these.
    monkeypatch.setattr(fastjson, "_FREE_COPIES", 0)


def costs_of(reader: str, texts=ALL) -> dict[str, float]:
    costs = {}
    for one in texts:
        data = one.make(SIZE).encode("utf-8", "replace")
        costs[one.name] = calls_of(lambda data=data: READERS[reader](data)) / len(data)
    return costs


@pytest.mark.parametrize("reader", READERS)
def test_texts_cost_about_the_same_per_byte(counted, reader):
    assert costly(costs_of(reader, SOME), TIMES) == []


@pytest.mark.parametrize("planted", [
    lambda one: hash(frozenset(map(repr, one.items()))), lambda one: hash(repr(sorted(one, key=repr)))],
    ids=["text of the items", "text of the names"])
def test_planted_recursive_hash_is_found(counted, monkeypatch, planted):
    monkeypatch.setattr(CountedObject, "__hash__", planted)
    found = costly(costs_of("any value", SOME), TIMES)
    assert any("key" in one for one in found), found


def test_every_production_is_nested_in_every_other():
    names = [one.name for one in ALL]
    for outer in PRODUCTIONS:
        for inner in PRODUCTIONS:
            assert sum(f": {inner} as {outer}, of" in name for name in names) == 3
        assert sum(name.startswith("wide: ") and name.endswith(f" as {outer}") for name in names) >= len(LEAVES)


def test_most_texts_are_accepted_and_grow():
    read = 0
    right = [one for one in ALL if not one.name.startswith("token") and not any(what in one.name for what in BROKEN)]
    for one in right[::7]:
        small, large = one.make(300), one.make(2400)
        assert len(small) < 2400 and len(large) > len(small), one.name
        try:
            fastjson.parse(small)
            read += 1
        except ValueError as error:
            assert str(error)
    assert read > len(right[::7]) * 2 // 3, (read, len(right[::7]))
    assert drawn(random.Random(3), 100) == drawn(random.Random(3), 100)


# The grammar and the readers of the campaign are complete: they are compared with the parser's lines and the servers.

# Functions that write are in the same module, and strangers cannot reach them.
WRITERS = {"dumps", "WrittenEntries", "entry_text", "quote", "quote_ascii", "java_double", "_escape", "json_fields",
           "_Writer"}
SERVERS = ("broker/processor", "broker/client", "namesrv", "controller", "acl")
# These read a broker's store or its own answers, not requests.
NOT_OF_REQUESTS = {"KVConfigSerializeWrapper"}


def codes_of(module: types.ModuleType) -> list[types.CodeType]:
    """Return the code objects of all functions of a module."""
    found = []
    for name, value in vars(module).items():
        if name in WRITERS:
            continue
        members = vars(value).values() if inspect.isclass(value) else [value]
        found += [one.__code__ for one in members
                  if inspect.isfunction(one) and one.__module__ == module.__name__]
    return found


def lines_of(code: types.CodeType) -> set[int]:
    """Return the lines that run when the function is called."""
    return {line for _, line in dis.findlinestarts(code) if line is not None and line > code.co_firstlineno}


@pytest.fixture(scope="module")
def whole_dialect_drawn():
    """Return (lines run by code object, errors, tokens by parser state) of all texts."""
    lines: dict[types.CodeType, set[int]] = {code: set() for code in codes_of(fastjson)}
    errors, states = set(), set()
    original = fastjson._Parser.take

    def take(self, kind, token):
        states.add((self.expected, kind, token if kind == 1 else ""))
        original(self, kind, token)

    def trace(frame, event, _argument):
        own = lines.get(frame.f_code)
        if own is None:
            return None
        if event == "line":
            own.add(frame.f_lineno)
        return trace

    sizes_of = {"long": 5000, "deep": 5000, "colliding": 60_000}
    fastjson._Parser.take = take
    sys.settrace(trace)
    try:
        for one in ALL:
            for size in {150, sizes_of.get(one.name.partition(":")[0], 150) if "reference" in one.name
                         or not one.name.startswith("deep") else 150}:
                try:
                    fastjson.loads(one.make(size).encode("utf-8", "replace"))
                except FastjsonError as error:
                    errors.add(str(error))
        fastjson.loads(b'{"a":"' + b"x" * fastjson._LARGE + b'"}')
    finally:
        sys.settrace(None)
        fastjson._Parser.take = original
    return lines, errors, states


@in_all
def test_every_line_of_the_parser_is_reached(whole_dialect_drawn):
    lines, _, _ = whole_dialect_drawn
    # for errors of the readers after the parser
    elsewhere = {"brief", "__len__"}
    missed = [f"{Path(code.co_filename).name}:{line}" for code, reached in lines.items()
              if code.co_name not in elsewhere for line in sorted(lines_of(code) - reached)]
    assert missed == []


def messages_of(module: types.ModuleType) -> list[str]:
    """Return the longest fixed part of each error message."""
    found = []
    readers = [node for node in ast.parse(inspect.getsource(module)).body if getattr(node, "name", "") not in WRITERS]
    for node in chain.from_iterable(map(ast.walk, readers)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("self.require", "FastjsonError"):
            for argument in node.args:
                texts = [one.value for one in ast.walk(argument)
                         if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                if isinstance(argument, (ast.Constant, ast.JoinedStr)) and texts:
                    found.append(max(texts, key=len))
    return found


@in_all
def test_every_error_is_reached(whole_dialect_drawn):
    _, errors, _ = whole_dialect_drawn
    messages = messages_of(fastjson)
    assert len(messages) > 6
    assert [text for text in messages if not any(text in error for error in errors)] == []


@in_all
def test_every_token_occurs_in_every_state(whole_dialect_drawn):
    _, _, states = whole_dialect_drawn
    tokens = [*((1, token) for token in "{}[],:"), *((kind, "") for kind in range(2, 7))]
    assert [(state, token) for state in range(4) for token in tokens if (state, *token) not in states] == []


def decoded_by_servers() -> tuple[set[str], set[str]]:
    """Return (classes of bodies, classes of headers) that the servers' sources decode from requests."""
    bodies, headers = set(), set()
    for folder in SERVERS:
        for file in sorted((Path(ROOT) / "rmqha" / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if not isinstance(node, ast.Call) or not node.args:
                    continue
                name = ast.unparse(node.func).rpartition(".")[2]
                if name == "decode_command_custom_header":
                    headers.add(ast.unparse(node.args[0]))
                elif name in ("from_json", "decode") and "remoting_serializable" in ast.unparse(node.func):
                    bodies.add(ast.unparse(node.args[0]))
                elif name == "decode_body":
                    bodies.add(ast.unparse(node.args[1]))
                elif name == "_body" and len(node.args) == 2:
                    bodies.add(ast.unparse(node.args[0]))
    return bodies - {"cls", "kind"}, headers


def test_every_decoded_body_and_header_has_readers():
    bodies, headers = decoded_by_servers()
    assert len(bodies) > 9 and len(headers) > 40
    assert bodies - {getattr(cls, "__name__", "") for cls in BODIES} - {"list[str]"} <= NOT_OF_REQUESTS
    assert headers - {cls.__name__ for cls in header_classes()} <= {"answer.header"}
    readers = all_readers()
    assert set(readers) > set(READERS)
    for name in ("body HeartbeatData.consumerDataSet[].subscriptionDataSet[].codeSet[]",
                 "body TopicConfigSerializeWrapper.topicConfigTable{key}", "body list[]",
                 "header PullMessageRequestHeader.subscription", "binary fields"):
        assert name in readers, name


def test_places_of_a_type_are_its_fields_elements_and_keys():
    assert [name for name, _ in places(dict[str, list[int]])] == ["", "{key}", "{}", "{}[]"]
    assert dict(places(dict[str, list[int]]))["{}[]"] == b'{"k":[@]}'


@pytest.mark.parametrize("quote, kind", [("", dict[int, int]), ("'", dict[int, int]), ('"', dict[int, int])])
def test_many_colliding_keys_are_refused_and_few_are_accepted(quote, kind):
    def text(walkers):
        return "{" + ",".join(f"{quote}{key}{quote}:1" for key in colliding(8192, walkers)) + "}"

    with pytest.raises(FastjsonError, match="numeric keys beyond 16 bits in one object"):
        remoting_serializable.decode(kind, text(None).encode())
    assert len(remoting_serializable.decode(kind, text(FEW).encode())) == 8192 * 2 // 3


def test_files_may_have_any_number_of_colliding_keys():
    keys = colliding(8192)
    assert fastjson.loads("{" + ",".join(f"{key}:1" for key in keys) + "}") == dict.fromkeys(keys, 1)


def test_set_of_many_numbers_is_refused():
    most = remoting_serializable.MAX_NUMBERS_OF_SET
    assert len(remoting_serializable.decode(set[int], str(list(range(most))).encode())) == most
    with pytest.raises(FastjsonError, match=f"a set of {most + 1} numbers, the limit is {most}"):
        remoting_serializable.decode(set[int], str(list(range(most + 1))).encode())


def probes(keys: list[int], size: int) -> int:
    """Return the number of places that a dict of `size` places probes for these keys, in this order."""
    taken, count, mask = set(), 0, size - 1
    for key in keys:
        left, place = key, key & mask
        count += 1
        while place in taken:
            left >>= 5
            place = (5 * place + left + 1) & mask
            count += 1
        taken.add(place)
    return count


def test_colliding_numbers_probe_many_places():
    keys = colliding(1024)
    assert len(set(keys)) == len(keys) == 682
    assert probes(keys, 1024) > 20 * len(keys) > 5 * probes(list(range(682)), 1024)


def slow(data: bytes) -> object:
    if data.startswith(b"{[["):
        return sum(number for _ in range(len(data)) for number in range(3000))
    return None


def quick(data: bytes) -> object:
    fastjson.parse("{a:0}")
    if data == b"{a:0}":
        return None
    return sum(number for _ in range(len(data)) for number in range(30))


def test_campaign_names_the_costliest_and_ignores_fixed_costs_and_unparsed_texts():
    def late(data: bytes) -> object:
        sum(range(100_000))
        return quick(data)

    texts = [Text("cheap", "[1]".ljust), Text("costly", "{[[".ljust)]
    unparsed = {f"unparsed {number}": len for number in range(9)}
    campaign = Campaign(1, {"quick": quick, "late": late, "slow": slow, **unparsed})
    campaign.run(1600, texts=texts, shares={64: 0.9, 250: 0.1})
    found = campaign.worst(10)
    assert found and {(one.reader, one.text.name) for one in found} == {("slow", "costly")}
    lines = report(campaign, 10)
    assert any("costly" in line and "slow" in line for line in lines), lines


def test_campaign_does_the_requested_readings_and_ends_in_time(monkeypatch):
    logging.getLogger("RocketmqRemoting").addHandler(logging.NullHandler())
    campaign = Campaign(3)
    campaign.run(200)
    assert len(campaign.readings) == 200
    assert len({one.reader for one in campaign.readings}) > 50
    campaign.run(10_000, seconds_max=-1)
    assert len(campaign.readings) == 200
    monkeypatch.setattr(sys, "argv", ["dialect", "--inputs", "50", "--seed", "1", "--seconds-max", "-1"])
    with pytest.raises(ValueError):  # no readings in no time
        dialect.main()


def test_references_in_a_short_text_copy_little():
    text = '{"a":[%s1],"b":[%s]}'
    numbers, reference = "1," * 200, '{"$ref":"$.a"}'
    assert fastjson.loads(text % (numbers, f"{reference},{reference}"))["b"] == [[1] * 201] * 2
    with pytest.raises(FastjsonError, match="references expand to too many values"):
        fastjson.loads(text % (numbers, ",".join([reference] * 4)))
