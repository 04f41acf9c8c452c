"""Runs of the C sources under ASan and UBSan: `python -m tests.fuzz.native_sanitizers --inputs 500000 --seed 1`.

Compiles each source with -fsanitize=address,undefined into a temporary folder, gives it random inputs, and compares its
results with its twin in Python. The first access outside of a buffer, the first undefined behaviour and the first
difference end the run of that source. Needs gcc and its libasan.
"""
import argparse
import ctypes
import importlib.util
import os
import random
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from rmqha.broker.processor.send_codec import cluster_property, json_in_python, sends_in_python
from rmqha.common.message.message_layout import HEADS
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageRow, records_in_python
from rmqha.store.bulk import bulk, bulk_python
from rmqha.store.bulk.bulk_layout import KEY, IndexCounters
from rmqha.store.bulk.bulk_python import columns_in_python
from tests.faults import ledger
from tests.support.sources import ROOT

# Random inputs for the compiled functions, and the comparison with their twins in Python.
#
# An input consists of valid pieces, some of which are changed: truncated, with flipped bytes, numbers at the edges of
# int32 and int64, wrong lengths. Buffers end where their memory ends, so that a sanitizer detects reads beyond them.

EDGES = (0, 1, -1, 2, 3, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1, -2**31, 2**31, 2**32 - 1, 2**62 - 1,
         2**62, 2**63 - 1, -2**63, 2**63, 2**64 - 1, 1_700_000_000_000)
EDGES_AND_NEIGHBOURS = [edge + step for edge in EDGES for step in (0, 0, 1, -1)]
# The probability of a usual number.
USUAL = 0.85
CLUSTER = cluster_property("DefaultCluster")
HOST, HOST_HEX = bytes((127, 0, 0, 1, 0, 0, 42, 159)), b"7F00000100002A9F"
HOST_V6 = bytes((0x20, 1, *bytes(13), 7, 0, 0, 0, 81))
ROUTES = {"Topic": ("Topic-0", "Topic-1", "Topic-2", "Topic-3"), "Other": ("Other-0",)}
PROPERTIES = ("", "TAGS\x01a", "KEYS\x01a b  c\x02UNIQ_KEY\x017F0000010BF818B4AAC201\x02WAIT\x01true\x02",
              "a\x01b\x02", "\x02", "a\x01b\x02\x02", "WAIT\x01false", "DELAY\x013", "k\x01" + "v" * 1200, "é\x01ü",
              "CLUSTER\x01x", "".join(f"n{number}\x01v\x02" for number in range(11)),
              "".join(f"n{number}\x01v\x02" for number in range(13)), "TAGS\x01t\x02TAGS\x01u", "a\x01b\x01c")
TOPICS = (b"T", b"orders", "\u6807".encode(), "\U0001f600".encode(), b"SCHEDULE_TOPIC_XXXX", b"x" * 127, b"\xff", b"",
          b"\xed\xa0\x80")
TEXTS = (b"a", b"TagA", "\u6807\u7b7e".encode(), "\U0001f600x".encode(), b"k" * 40, b"", b"\xff\xfe", b"a b c",
         b" ", b"polygenelubricants", b"\xf4\x90\x80\x80", b"-3", b"2147483648", b"x")
NAMES = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"WAIT", b"INNER_MULTI_DISPATCH", b"", b"XTAGS")
_HEAD = struct.Struct(">iIiiiqqiq")

Target = Callable[["Inputs"], None]


class Difference(AssertionError):
    """A difference between a compiled function and its twin."""


class Inputs:
    """A source of inputs for one seed, with counts of their outcomes."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.outcomes: Counter[str] = Counter()
        self.frames = [frame(self.random) for _ in range(400)]

    def number(self, *usual: int) -> int:
        """Draw a usual number, an edge, or a neighbor of an edge."""
        # one draw for all: numbers are most of the work
        draw = self.random.random()
        if draw < USUAL and usual:
            return usual[int(draw / USUAL * len(usual))]
        return EDGES_AND_NEIGHBOURS[int(draw * 1e6) % len(EDGES_AND_NEIGHBOURS)]

    def changed(self, data: bytes, odds: float = 0.4) -> bytes:
        """Return the data, sometimes with damage."""
        pick = self.random
        while data and pick.random() < odds:
            data = bytearray(data)
            at, kind = pick.randrange(len(data)), pick.randrange(7)
            if kind == 0:
                data[at] ^= 1 << pick.randrange(8)
            elif kind == 1:
                data[at] = pick.choice(b'0"1a\\{},\x00\x01\x02\xff ')
            elif kind == 2:
                del data[at:at + pick.randint(1, 9)]
            elif kind == 3:
                data[at:at] = pick.randbytes(pick.randint(1, 5))
            elif kind == 4:
                del data[at:]
            elif kind == 5:
                data[at] = (data[at] + pick.choice((-1, 1))) % 256
            else:
                number = pick.choice(EDGES) & 2**32 - 1
                data[at:at + 4] = number.to_bytes(4, "big")[:len(data) - at]
            data = bytes(data)
        return data

    def exact(self, data: bytes) -> memoryview:
        """Return a writable view of `data` that ends where its memory ends."""
        # so that the memory is not inside the object
        before = 32
        array = (ctypes.c_ubyte * (before + len(data))).from_buffer_copy(bytes(before) + data)
        return memoryview(array).cast("B")[before:]

    def same(self, what: str, compiled: Callable, twin: Callable, *arguments: Callable[[], object]) -> object:
        """Return the common result, or None if both refuse. `arguments` make separate arguments for each call."""
        results = []
        for function in (compiled, twin):
            given = [make() for make in arguments]
            try:
                results.append((function(*given), [bytes(one) for one in given if isinstance(one, memoryview)]))
            except (ValueError, TypeError, OverflowError, struct.error) as refusal:
                results.append(refusal)
        refused = [isinstance(result, Exception) for result in results]
        if refused[0] != refused[1] or not refused[0] and results[0] != results[1]:
            raise Difference(f"{what}: compiled {results[0]!r:.600}\nin Python {results[1]!r:.600}\n"
                             f"of {[make() for make in arguments]!r:.3000}")
        self.outcomes[f"{what}: {'refused' if refused[0] else 'same'}"] += 1
        return None if refused[0] else results[0][0]


def frame(pick: random.Random) -> bytes:
    """Return a send's frame with its length field, as a client writes it."""
    def mostly(usual: tuple, *others: object) -> object:
        return pick.choice(usual if pick.random() < 0.95 else others)

    header = SendMessageRequestHeaderV2(
        a="producer", b=mostly(("Topic", "Topic", "Other"), "unknown", "x" * 128), c="TBW102", d=4,
        e=mostly((0, 0, 1, 3), 4, -1, 2**31 - 1), f=mostly((0, 1), 4, 8, 16, 32), g=1_700_000_000_123,
        h=mostly((0, 7, 999_999_999), -1), i=mostly(PROPERTIES[:4], *PROPERTIES[4:]), j=pick.choice((0, 2)),
        k=pick.random() < 0.5, l=pick.choice((None, 16)), m=mostly((False,), True))
    header.n = mostly((None, "broker-a"), "")
    command = RemotingCommand.create_request_command(request_code.SEND_MESSAGE_V2, header)
    command.opaque = mostly((0, 1, 4711, 999_999_999), 2**31 - 1)
    command.body = pick.randbytes(pick.choice((0, 1, 7, 8, 9, 15, 16, 17, 100, 1000))) or None
    command.serialize_type = pick.choice(list(SerializeType))
    return command.encode()


def record(inputs: Inputs, offset: int) -> bytes:
    """Return a record for `offset`, usually a valid one."""
    pick = inputs.random
    topic, body = pick.choice(TOPICS), pick.randbytes(pick.choice((0, 1, 15, 16, 17, 33, 63, 64, 65, 79, 80, 128, 300)))
    entries = [pick.choice(NAMES) + b"\x01" + pick.choice(TEXTS) for _ in range(pick.choice((0, 1, 2, 3, 5)))]
    properties = b"\x02".join(entries) + pick.choice((b"", b"\x02"))
    flags = pick.choice((0, 0, 0, 4, 8, 12, 0x10, 0x20, 0x30))
    born, store = bytes(20 if flags & 0x10 else 8), bytes(20 if flags & 0x20 else 8)
    size = 88 + len(born) + len(store) - 16 + len(body) + 1 + len(topic) + 2 + len(properties)
    head = _HEAD.pack(size, 0xDAA320A7, zlib.crc32(body) & 2**31 - 1, pick.choice((0, 1, 2, 2**31 - 1, -2**31)), 7,
                      to_long(inputs.number(0, 1, 2, 3, 4)), to_long(offset), flags, 1)
    stored = struct.pack(">q", to_long(inputs.number(1_700_000_000_000, 1_700_000_000_001)))
    return b"".join((head, born, stored, store, bytes(12), struct.pack(">i", len(body)), body, bytes((len(topic),)),
                     topic, struct.pack(">h", len(properties)), properties))


def to_long(number: int) -> int:
    """Return the number as a Java long."""
    return (number + 2**63) % 2**64 - 2**63


def log_span(inputs: Inputs) -> tuple[bytes, int]:
    """Return consecutive records, some of them damaged, and the log offset of the first."""
    pick = inputs.random
    begin = pick.choice((0, 0, 1 << 30, 2**62 - 1 - 4096))
    data = bytearray()
    for _ in range(pick.choice((0, 1, 2, 3, 5))):
        data += inputs.changed(record(inputs, begin + len(data)), 0.12)
    data += pick.choice((b"", b"", b"\0" * 8, struct.pack(">iI", 64, 0xCBD43194), b"\0\0\0\x01", pick.randbytes(9)))
    return bytes(data), begin


class BulkTarget:
    """The target for walk, scan and put_keys of the bulk kernel."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled

    def __call__(self, inputs: Inputs) -> None:
        """Run one input."""
        pick = inputs.random
        data, begin = log_span(inputs)
        start = 0 if pick.random() < 0.8 else pick.randint(0, len(data))
        end = len(data) if pick.random() < 0.8 else pick.randint(start, len(data))
        crc = pick.random() < 0.5
        begin = begin if pick.random() < 0.9 else inputs.number()

        def buffer() -> memoryview:
            return inputs.exact(data)

        place = pick.choice((None, begin))
        self._both(inputs, "walk", buffer, lambda: start, lambda: end, lambda: crc, lambda: place, lambda: crc)
        delays = pick.choice((None, [1000, 5000, -1], [], [2**63 - 1, -2**63]))
        limit = pick.choice((1, 2, 1 << 16, inputs.number(3)))
        multi = pick.random() < 0.5
        found = self._both(inputs, "scan", buffer, lambda: start, lambda: end, lambda: begin, lambda: crc,
                           lambda: delays, lambda: multi, lambda: limit)
        self._put_keys(inputs, found.keys if found is not None else b"")
        self._nonsense(inputs, data)

    def _both(self, inputs: Inputs, name: str, *arguments: Callable[[], object]) -> object:
        def through(kernel: ModuleType) -> Callable:
            def call(*given: object) -> object:
                before, bulk._kernel = bulk._kernel, kernel
                try:
                    return getattr(bulk, name)(*given)
                finally:
                    bulk._kernel = before
            return call
        return inputs.same(name, through(self._compiled), through(bulk_python), *arguments)

    def _put_keys(self, inputs: Inputs, keys: bytes) -> None:
        pick = inputs.random
        if not keys or pick.random() < 0.5:
            keys = b"".join([KEY.pack(to_long(inputs.number(5, 6)), to_long(inputs.number(1_700_000_000_000)),
                                      pick.choice((0, 1, 7, 2**31 - 1, -1, -2**31)), 0)
                             for _ in range(pick.randint(0, 5))])
        slots, entries = pick.randint(1, 6), pick.randint(0, 8)
        first_entry = pick.choice((0, 0, 0, 1, 2))
        size = 40 + slots * 4 + max(0, entries - first_entry) * 20 + pick.choice((0, 0, 0, 1, -1, 20))
        file = bytes(40) + b"".join([struct.pack(">i", pick.choice((0, 0, 1, 2, 3, -1, 2**31 - 1, -2**31)))
                                     for _ in range(slots)]) + bytes(max(size, 0))
        counters = IndexCounters(to_long(inputs.number(0, 1_700_000_000_000)), to_long(inputs.number(0)),
                                 to_long(inputs.number(0)), to_long(inputs.number(0)),
                                 pick.choice((0, 1, 3, 2**31 - 1, 2**31 - 2)),
                                 pick.choice((1, 1, 2, 3, 7, 8, 2**31 - 1)))
        rows = len(keys) // KEY.size
        first = pick.choice((0, 0, 0, pick.randint(0, rows)))
        last = pick.choice((rows, rows, None, pick.randint(0, rows + 1)))
        self._both(inputs, "put_keys", lambda: inputs.exact(file[:max(size, 0)]), lambda: slots, lambda: entries,
                   lambda: counters, lambda: keys, lambda: first, lambda: last, lambda: first_entry)

    def _nonsense(self, inputs: Inputs, data: bytes) -> None:
        """Call it with arguments that `bulk` never passes: the compiled function may refuse or accept them."""
        draw, view = inputs.number, inputs.exact(data)
        calls = (lambda: self._compiled.walk(view, draw(0), draw(8), True, draw(0), True),
                 lambda: self._compiled.scan(view, draw(0), draw(8), draw(0), True, [draw(0)], True, draw(1)),
                 lambda: self._compiled.put_keys(inputs.exact(data), draw(1), draw(1),
                                                 tuple(draw(1) for _ in range(6)), data, draw(0), draw(1), draw(0)))
        try:
            inputs.random.choice(calls)()
            inputs.outcomes["nonsense: served"] += 1
        except (ValueError, TypeError, OverflowError):
            inputs.outcomes["nonsense: refused"] += 1


# Topic and properties with their lengths: none, usual, with NULs, cut.
_TAILS = (b"", b"\1T\0\3k\1v", b"\1T\0\3k\1v", b"\1T\0\4k\1v\0", b"\1\0\0\3k\1v", b"\1T\0\0", b"\1T", b"\xff\0")


class RecordsTarget:
    """The target for records_of_rows."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled

    def __call__(self, inputs: Inputs) -> None:
        """Run one input."""
        pick = inputs.random
        sends, total = [], 0
        for _ in range(pick.choice((0, 1, 1, 2, 5))):
            body, tail = pick.randbytes(pick.choice((0, 1, 40))), pick.choice(_TAILS)
            sys_flag = inputs.number(0, 0, 4, 8, 12, 16, 32, 48)
            size = HEADS[sys_flag >> 4 & 3].size + len(body) + len(tail) + pick.choice((0,) * 20 + (1, -1))
            queue = pick.randrange(3)
            sends.append(MessageRow(
                pick.choice("TTU"), inputs.number(queue), f"T-{queue}", size, inputs.number(1), inputs.number(2),
                sys_flag, to_long(inputs.number(1_700_000_000_123)), pick.choice((HOST, HOST_V6)),
                inputs.number(0, 3), body if pick.random() < 0.5 else inputs.exact(body), tail))
            total += size
        # Rarely 2 GiB: a sanitizer needs time to mark them.
        if pick.random() < 0.05:
            total = pick.choice((total + 1, total - 1, 0, 88, -1, 2**31) if pick.random() < 0.99 else EDGES)
        table = {f"T-{queue}": to_long(inputs.number(0, 7, 1 << 40)) for queue in range(pick.randrange(3))}
        offset, now = to_long(inputs.number(0, 1 << 40)), to_long(inputs.number(1_700_000_000_456))
        store_host, prepared = pick.choice((HOST, HOST_V6)), to_long(inputs.number(0, 1 << 40))
        inputs.same("records_of_rows", self._compiled.records_of_rows, records_in_python, lambda: sends, lambda: total,
                    lambda: dict(table), lambda: offset, lambda: now, lambda: store_host, lambda: prepared)
        if sends and pick.random() < 0.2:
            self._nonsense(inputs, sends[0], table)

    def _nonsense(self, inputs: Inputs, send: MessageRow, table: dict[str, int]) -> None:
        """Call it with a wrong value in one place of a send: the compiled function refuses it, regardless of the
        twin."""
        place = inputs.random.randrange(len(send))
        wrong = inputs.random.choice((None, "text", b"", b"seven b", 2**80, -1.5, (), [send]))
        changed = tuple([wrong if at == place else value for at, value in enumerate(send)])
        try:
            self._compiled.records_of_rows([changed], send.size, table, 0, 0, HOST)
            inputs.outcomes["nonsense: served"] += 1
        except (ValueError, TypeError, OverflowError, SystemError):
            inputs.outcomes["nonsense: refused"] += 1


class SendsTarget:
    """The target for read_simple_sends and json_answers."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled

    def __call__(self, inputs: Inputs) -> None:
        """Run one input."""
        pick = inputs.random
        data = b"".join([self._frame(inputs) for _ in range(pick.choice((0, 1, 1, 2, 4)))])
        data = inputs.changed(data, 0.1)
        position = 0 if pick.random() < 0.9 else pick.randint(0, len(data) + 3)
        most, max_body = pick.choice((256, 256, 256, 1, 2, 0)), pick.choice((1 << 20, 1 << 20, 1 << 20, 8, 0))
        found = inputs.same(
            "read_simple_sends", self._compiled.read_simple_sends, sends_in_python, lambda: inputs.exact(data),
            lambda: position, lambda: CLUSTER, lambda: HOST, lambda: ROUTES, lambda: max_body, lambda: most,
            lambda: MessageRow)
        if found is not None:
            inputs.outcomes["sends that were read"] += len(found[0])
        self._answers(inputs, found[0] if found is not None else [])

    def _frame(self, inputs: Inputs) -> bytes:
        """Return a frame: valid, damaged, or with lengths that match a damaged or truncated header."""
        pick = inputs.random
        whole = pick.choice(inputs.frames)
        if pick.random() < 0.75:
            return whole
        if pick.random() < 0.3:
            return inputs.changed(whole)
        header = whole[8:8 + int.from_bytes(whole[5:8])]
        header = inputs.changed(header) if pick.random() < 0.6 else header[:pick.randrange(len(header) + 1)]
        body = pick.choice((b"", b"", b"x"))
        length = max(0, len(header) + pick.choice((0, 0, 0, 0, 1, -1)))
        return struct.pack(">iI", 4 + len(header) + len(body), whole[4] << 24 | length) + header + body

    def _answers(self, inputs: Inputs, sends: list[MessageRow]) -> None:
        pick = inputs.random
        between = tuple([pick.choice((b"", b'{"a":"', b"x" * 40)) for _ in range(5)])
        order = tuple(pick.sample(range(4), 4))
        offsets, queue_offsets = ([to_long(inputs.number(0, 1 << 40)) & 2**63 - 1 for _ in sends] for _ in range(2))
        opaques = [to_long(inputs.number(0, 4711)) for _ in sends]
        inputs.same("json_answers", self._compiled.json_answers, json_in_python, lambda: between, lambda: order,
                    lambda: HOST_HEX, lambda: offsets, lambda: sends, lambda: queue_offsets, lambda: opaques)


_SCRAPS = (b"\1", b"\2", b"\0", b"\xff", b"\xe5\x90", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
           b"\xc1\xbf", "\u6807".encode(), "\U0001f600".encode())


class PropertiesTarget:
    """The target for property_columns."""

    def __init__(self, compiled: ModuleType) -> None:
        self._compiled = compiled

    def __call__(self, inputs: Inputs) -> None:
        """Run one input."""
        pick = inputs.random
        data, begins, ends = bytearray(), [], []
        for _ in range(pick.choice((0, 1, 2, 3, 9))):
            data += pick.randbytes(pick.choice((0, 1, 40)))
            begins.append(len(data))
            data += inputs.changed(self._text(pick), 0.2)
            ends.append(len(data))
        wanted = tuple(pick.sample(NAMES, pick.choice((0, 1, 3)))) if pick.random() < 0.98 else (b"x",) * 17
        with_map = pick.random() < 0.7
        if begins and pick.random() < 0.05:
            pick.choice((begins, ends))[-1] = inputs.number(len(data), len(data) + 1)
        packed = [struct.pack(f"={len(places)}q", *map(to_long, places)) for places in (begins, ends)]
        if pick.random() < 0.02:
            packed[pick.randrange(2)] += bytes(pick.choice((1, 8)))
        inputs.same("property_columns", self._compiled.property_columns, columns_in_python,
                    lambda: inputs.exact(bytes(data)), lambda: inputs.exact(packed[0]), lambda: inputs.exact(packed[1]),
                    lambda: wanted, lambda: with_map)

    @staticmethod
    def _text(pick: random.Random) -> bytes:
        """Return properties: usual ones, fragments, or more than are compared with each other."""
        kind = pick.random()
        if kind < 0.1:
            return b"\2".join([b"%d\1%d" % (pick.randrange(70), pick.randrange(9))
                               for _ in range(pick.choice((64, 65, 66, 200)))])
        if kind < 0.3:
            return b"".join([pick.choice(_SCRAPS + NAMES[:3]) for _ in range(pick.randrange(20))])
        entries = [pick.choice(NAMES) + b"\1" + pick.choice(TEXTS) for _ in range(pick.choice((0, 1, 2, 5, 9)))]
        return b"\2".join(entries) + pick.choice((b"", b"\2"))


TARGETS: dict[str, tuple[str, Callable[[ModuleType], Target]]] = {
    "rmqha/native/_bulk.c": ("rmqha.native._bulk", BulkTarget),
    "rmqha/native/_message_rows.c": ("rmqha.native._message_rows", RecordsTarget),
    "rmqha/native/_express_send.c": ("rmqha.native._express_send", SendsTarget),
    "rmqha/native/_properties.c": ("rmqha.native._properties", PropertiesTarget),
}
"""By source: the compiled module, and what feeds it."""


def feed(target: Target, count: int, seed: int) -> Counter:
    """Give `count` inputs to a target, and return the outcomes. Raise Difference if a twin differs."""
    inputs = Inputs(seed)
    for number in range(count):
        try:
            target(inputs)
        except Difference as difference:
            raise Difference(f"input {number} of seed {seed}: {difference}") from None
    return inputs.outcomes


WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type")
FLAGS = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fPIC",
         "-shared", *WARNINGS)
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",
           "UBSAN_OPTIONS": "print_stacktrace=1", "PYTHONMALLOC": "malloc"}


def compile_source(source: str, folder: Path) -> Path:
    """Compile one source with the sanitizers."""
    made = folder / f"{TARGETS[source][0].rpartition('.')[2]}{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(["gcc", *FLAGS, f"-I{sysconfig.get_paths()['include']}", str(ROOT / source), "-o", str(made)],
                   check=True)
    return made


def run_child(source: str, made: Path, count: int, seed: int) -> bool:
    """Feed one source in a process under the sanitizers; return whether it passed."""
    library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True, text=True)
    child = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.native_sanitizers", "--child", source, str(made), "--inputs", str(count),
         "--seed", str(seed)], cwd=ROOT, check=False,
        env={**os.environ, **OPTIONS, "LD_PRELOAD": os.path.realpath(library.stdout.strip())})
    return child.returncode == 0


def load(source: str, made: Path) -> ModuleType:
    """Load the compiled module from its folder."""
    spec = importlib.util.spec_from_file_location(TARGETS[source][0], made)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(source: str, made: Path, count: int, seed: int) -> None:
    """Feed a source, in the process under the sanitizers, and print the result."""
    begin = time.monotonic()
    outcomes = feed(TARGETS[source][1](load(source, made)), count, seed)
    said = ", ".join(f"{what} {times}" for what, times in sorted(outcomes.items()))
    sys.stdout.write(f"{source}: {count} inputs of seed {seed} in {time.monotonic() - begin:.0f} s: {said}\n")


def main() -> int:
    """Run the command line; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--inputs", type=int, default=500_000, help="for each source")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", action="append", choices=TARGETS, help="instead of all")
    parser.add_argument("--record", action="store_true", help="append the result to tests/faults/ledger.tsv")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]), options.inputs, options.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        well = {source: run_child(source, compile_source(source, Path(folder)), options.inputs, options.seed)
                for source in options.source or TARGETS}
    if options.record:
        ledger.append([ledger.Entry(ledger.present_commit(), f"fuzz {Path(source).stem}", "sanitizers", options.seed,
                                    options.inputs, 0, int(not fine)) for source, fine in well.items()])
    sys.stdout.write("nothing found\n" if all(well.values()) else "found something, see above\n")
    return 0 if all(well.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
