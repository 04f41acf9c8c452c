"""Ways to damage a closed store, each with the outcome that is expected of the next start.

They apply to rmqha and to the real RocketMQ alike. The store has messages 0..COUNT-1, message n in queue n % 2 of
topic T, in six files of the log, three files of each consume queue and several of the index.
"""
import os
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.store.support import FILE_SIZE, message, new_store, put, wait_dispatched
from tests.support import store_compare

COUNT = 120
SIZES = {"mappedFileSizeCommitLog": FILE_SIZE, "mappedFileSizeConsumeQueue": 400, "maxHashSlotNum": 50,
         "maxIndexNum": 40}
DELAY_OFFSETS = '{\n\t"offsetTable":{1:0}\n}'
# Field of a record -> its position in a record without IPv6 addresses; the body begins at 88.
FIELDS = {"total size": 0, "magic": 4, "body crc": 8, "queue id": 12, "flag": 16, "queue offset": 20,
          "physical offset": 28, "system flag": 39, "born time": 40, "born host": 48, "store time": 56,
          "store host": 64, "reconsume times": 72, "prepared offset": 76, "body length": 84, "body": 100}
# Fields that no check covers: a record holds nothing that contradicts a wrong value.
UNGUARDED = {"queue id", "flag", "born time", "born host", "store time", "store host", "reconsume times",
             "prepared offset"}


def body_of(number: int) -> bytes:
    """Return the body of a message, which contains its number."""
    return b"body%03d" % number + b"x" * 700


def write(root: Path) -> None:
    """Write a store with all messages, and close it properly."""
    store = new_store(root, **SIZES)
    assert store.load()
    store.start()
    for number in range(COUNT):
        put(store, message("T", number % 2, body_of(number), KEYS=f"key{number}", TAGS="A"))
        if number % 10 == 9:
            wait_dispatched(store)
    store.shutdown()
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "delayOffset.json").write_text(DELAY_OFFSETS, encoding="ascii")
    (root / "config" / "delayOffset.json.bak").write_text(DELAY_OFFSETS, encoding="ascii")


class Place:
    """A store to damage, with the positions that a damage needs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.records = list(store_compare.walk(root / "commitlog"))

    def logs(self) -> list[Path]:
        """Return the files of the commit log."""
        return sorted((self.root / "commitlog").iterdir())

    def queue(self, queue_id: int = 0) -> list[Path]:
        """Return the files of a consume queue."""
        return sorted((self.root / "consumequeue" / "T" / str(queue_id)).iterdir())

    def indexes(self) -> list[Path]:
        """Return the files of the index."""
        return sorted((self.root / "index").iterdir())

    def first_in(self, path: Path) -> int:
        """Return the number of the first message in a file of the log."""
        return next(number for number, record in enumerate(self.records) if record.offset >= int(path.name))

    def flip(self, number: int, position: int) -> None:
        """Flip all bits of a byte of message `number`."""
        offset = self.records[number].offset
        flip(self.root / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}", offset % FILE_SIZE + position)


def flip(path: Path, position: int, bits: int = 0xFF) -> None:
    """Flip bits of one byte of a file."""
    with open(path, "r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ bits]))


def cut(path: Path, size: int) -> None:
    """Shorten a file."""
    os.truncate(path, size)


def extend(path: Path) -> None:
    """Add 100 bytes to a file."""
    with open(path, "ab") as file:
        file.write(b"\x5a" * 100)


@dataclass(frozen=True)
class Damage:
    """A way to damage the store.

    `outcome` is "whole" (no message is lost), "refused" (the log names `names`), or "cut" (a prefix of the log
    remains). `kept(place)` returns the number of messages that remain; it is called before the damage is done.
    """

    name: str
    do: Callable[[Place], None]
    outcome: str
    names: Callable[[Place], str] | None = None
    kept: Callable[[Place], int] | None = None


# A message in the last file, with one message after it.
LAST = COUNT - 2
# A message in one of the last three files, but not in the last.
MIDDLE = COUNT - 30


def _log_damages() -> list[Damage]:
    def first_of_last(place: Place) -> int:
        return place.first_in(place.logs()[-1])

    def named(number: int) -> Callable[[Place], str]:
        return lambda place: place.logs()[number].name

    def do(action: Callable[..., None], number: int, *args: object) -> Callable[[Place], None]:
        return lambda place: action(place.logs()[number], *args)

    return [
        Damage("log: last file cut", lambda p: cut(p.logs()[-1], p.records[LAST].offset % FILE_SIZE + 50), "cut",
               kept=lambda p: LAST),
        Damage("log: last file emptied", do(cut, -1, 0), "cut", kept=first_of_last),
        Damage("log: last file missing", do(os.unlink, -1), "cut", kept=first_of_last),
        Damage("log: last file extended", do(extend, -1), "whole"),
        Damage("log: middle file cut", do(cut, 2, 5000), "refused", named(2)),
        Damage("log: middle file emptied", do(cut, 2, 0), "refused", named(2)),
        Damage("log: middle file extended", do(extend, 2), "refused", named(2)),
        Damage("log: middle file missing", do(os.unlink, 2), "refused", named(2)),
        Damage("log: one of the last files missing", do(os.unlink, -2), "refused", named(-2)),
        Damage("log: middle file zeroed", lambda p: p.logs()[-3].write_bytes(bytes(FILE_SIZE)), "refused", named(-3)),
        Damage("log: two files exchanged", lambda p: _exchange(p.logs()[-3], p.logs()[-2]), "refused", named(-3)),
        Damage("log: foreign file", lambda p: (p.root / "commitlog" / "notes.txt").write_bytes(b"hello"), "refused",
               lambda p: "notes.txt"),
        Damage("log: empty foreign file", lambda p: (p.root / "commitlog" / "zz").write_bytes(b""), "refused",
               lambda p: "zz"),
        Damage("log: foreign file of the same length",
               lambda p: (p.root / "commitlog" / "notes.txt").write_bytes(bytes(FILE_SIZE)), "refused",
               lambda p: "notes.txt"),
        Damage("log: file between two others",
               lambda p: shutil.copy(p.logs()[1], p.logs()[1].with_name(f"{20000:020d}")), "refused",
               lambda p: f"{20000:020d}"),
        Damage("log: sub-folder", lambda p: (p.root / "commitlog" / "lost+found").mkdir(), "whole"),
    ]


def _exchange(one: Path, other: Path) -> None:
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def _flips() -> list[Damage]:
    found = []
    for field, position in FIELDS.items():
        # The queue offset is compared with the queue only when the record is dispatched again.
        blind = field in UNGUARDED or field == "queue offset"
        found.append(Damage(f"log: {field} flipped in the last file",
                            lambda p, at=position: p.flip(LAST, at), "whole" if blind else "cut",
                            kept=lambda p: LAST))
        found.append(Damage(f"log: {field} flipped in an earlier file",
                            lambda p, at=position: p.flip(MIDDLE, at), "whole" if blind else "refused",
                            lambda p: str(p.records[MIDDLE].offset)))
    for name, back in (("topic length", 4), ("properties length", 1)):
        found.append(Damage(f"log: {name} flipped in the last file",
                            lambda p, back=back: p.flip(LAST, p.records[LAST].size - _tail(p) - back), "cut",
                            kept=lambda p: LAST))
    return found


def _tail(place: Place) -> int:
    """Return the length of the properties of message LAST."""
    record = place.records[LAST]
    return record.size - 88 - len(record.body) - 1 - len(record.topic) - 2


def _queue_damages() -> list[Damage]:
    def do(action: Callable[..., None], number: int, *args: object) -> Callable[[Place], None]:
        return lambda place: action(place.queue()[number], *args)

    def all_gone(place: Place) -> None:
        shutil.rmtree(place.root / "consumequeue")

    def named(place: Place) -> str:
        return f"T{os.sep}0{os.sep}"

    return [
        Damage("queue: last file cut in a unit", do(cut, -1, 50), "whole"),
        Damage("queue: last file emptied", do(cut, -1, 0), "whole"),
        Damage("queue: last file missing", do(os.unlink, -1), "whole"),
        Damage("queue: last file extended", do(extend, -1), "whole"),
        Damage("queue: middle file missing", do(os.unlink, 1), "whole"),
        Damage("queue: middle file cut", do(cut, 1, 50), "refused", named),
        Damage("queue: middle file emptied", do(cut, 1, 0), "whole"),
        Damage("queue: middle file zeroed", lambda p: p.queue()[1].write_bytes(bytes(400)), "whole"),
        Damage("queue: size of a unit zeroed", lambda p: _patch(p.queue()[-1], 200 + 8, bytes(4)), "whole"),
        Damage("queue: offset of a unit negative", do(flip, -1, 200), "whole"),
        Damage("queue: offset of the last unit raised", do(flip, -1, 380 + 4), "whole"),
        Damage("queue: offset of the last unit changed", do(flip, -1, 380 + 7), "whole"),
        Damage("queue: size of the last unit changed", do(flip, -1, 380 + 11), "whole"),
        Damage("queue: foreign file", lambda p: p.queue()[0].with_name("notes.txt").write_bytes(b"hello"), "refused",
               lambda p: "notes.txt"),
        Damage("queue: sub-folder", lambda p: p.queue()[0].with_name("lost+found").mkdir(), "whole"),
        Damage("queue: foreign folder beside the queues",
               lambda p: (p.root / "consumequeue" / "T" / "notes").mkdir(), "whole"),
        Damage("queue: foreign file beside the topics",
               lambda p: (p.root / "consumequeue" / "notes.txt").write_bytes(b"hello"), "whole"),
        Damage("queue: all missing", all_gone, "whole"),
    ]


def _patch(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def _other_damages() -> list[Damage]:
    def index(action: Callable[..., None], *args: object) -> Callable[[Place], None]:
        return lambda place: action(place.indexes()[-1], *args)

    def checkpoint(action: Callable[..., None], *args: object) -> Callable[[Place], None]:
        return lambda place: action(place.root / "checkpoint", *args)

    def delay(main: bytes, bak: bytes | None) -> Callable[[Place], None]:
        def apply(place: Place) -> None:
            path = place.root / "config" / "delayOffset.json"
            path.write_bytes(main)
            path.with_name("delayOffset.json.bak").write_bytes(bak) if bak is not None else os.unlink(f"{path}.bak")
        return apply

    good = DELAY_OFFSETS.encode()
    return [
        Damage("index: last file cut", index(cut, 100), "whole"),
        Damage("index: last file emptied", index(cut, 0), "whole"),
        Damage("index: last file extended", index(extend), "whole"),
        Damage("index: count raised", index(_patch, 36, struct.pack(">i", 0x7FFF_FFFF)), "whole"),
        Damage("index: count negative", index(_patch, 36, struct.pack(">i", -1)), "whole"),
        Damage("index: slots and entries overwritten", index(_patch, 40, b"\x11" * 600), "whole"),
        Damage("index: end offset raised", index(_patch, 24, struct.pack(">q", 1 << 60)), "whole"),
        Damage("index: foreign file", lambda p: (p.root / "index" / "notes.txt").write_bytes(b"hello"), "whole"),
        Damage("index: sub-folder", lambda p: (p.root / "index" / "lost+found").mkdir(), "whole"),
        Damage("index: all missing", lambda p: shutil.rmtree(p.root / "index"), "whole"),
        Damage("checkpoint: cut", checkpoint(cut, 10), "whole"),
        Damage("checkpoint: emptied", checkpoint(cut, 0), "whole"),
        Damage("checkpoint: extended", checkpoint(extend), "whole"),
        Damage("checkpoint: times in the far future", checkpoint(_patch, 0, struct.pack(">q", 1 << 62) * 3), "whole"),
        Damage("checkpoint: times negative", checkpoint(_patch, 0, b"\xff" * 24), "whole"),
        Damage("checkpoint: missing", checkpoint(os.unlink), "whole"),
        Damage("JSON: cut, backup good", delay(good[:9], good), "whole"),
        Damage("JSON: empty, backup good", delay(b"", good), "whole"),
        Damage("JSON: bytes flipped, backup good", delay(bytes(byte ^ 0xFF for byte in good), good), "whole"),
        Damage("JSON: both cut", delay(good[:9], good[:9]), "refused", lambda p: "delayOffset.json"),
        Damage("JSON: both empty", delay(b"", b""), "refused", lambda p: "delayOffset.json"),
        Damage("JSON: extended, no backup", delay(good + b"}{", None), "refused", lambda p: "delayOffset.json"),
    ]


DAMAGES = {damage.name: damage for damage in
           (*_log_damages(), *_flips(), *_queue_damages(), *_other_damages())}
