"""The file of `rmqha support bundle`: items in an archive that never exceeds a size, and a manifest of them.

An item is redacted, packed alone, and written when it fits. One that does not fit loses its beginning or its end until
it does; the manifest names everything that was left out. Room for the manifest is always kept. So the file is written
in one pass, also to a pipe, and at most one item is in memory.

A tar.gz consists of one gzip member per item, one after the other, which each program that reads gzip joins.
"""
import json
import os
import re
import tarfile
import time
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from rmqha.tools.support.redaction import Redactor
from rmqha.tools.terminal import cell

MAX_ITEMS = 2_000
_LEAST = 2_048  # bytes; a shorter rest of an item is not worth keeping
_MODE = 0o600
_MAX_NAME, _MAX_SHOWN = 150, 400
# Of an entry in the manifest, and of its line in README.md, beside the names; and of the archive's own end.
_ENTRY, _END = 400, 4_096
_SHARE_OF_NOTES, _MAX_NOTES = 8, 64 << 10
_TAR_BLOCK = 512
_GZIP = 31  # window bits of zlib: 32 KiB, with gzip's header
_LEVEL = 6
# Beside its data: two heads with the name, sizes, and the descriptor of an unseekable stream.
_ZIP_HEADS = 160
MANIFEST, README = "manifest.json", "README.md"
_README = """# Support bundle

Made by `rmqha support bundle` of rmqha {version} on {created}. It helps maintainers to understand a problem.

**Read it before you send it.** Secrets that rmqha knows of or recognizes were replaced by `***`, account names by
`<accessKey-1>` and so on, message bodies and properties by `***`. What remains are names of hosts, topics, groups,
clients and files, addresses, and lines of logs.

{contents}
"""


@dataclass(frozen=True)
class Item:
    """One member of the bundle. `source`: where it is from. `keep_end`: when it is cut, its end is kept."""

    name: str
    data: str
    source: str
    keep_end: bool = False
    note: str = ""


@dataclass(frozen=True)
class Missing:
    """Something that could not be had, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class JsonItem:
    """One member of the bundle that is a JSON value; it is redacted by its structure."""

    name: str
    value: Any
    source: str


Found = Item | JsonItem | Missing


class Archive(Protocol):
    """An archive that is written from its beginning to its end."""

    suffix: str

    def packed(self, name: str, data: bytes, mtime: float) -> tuple[int, Any]:
        """Return how many bytes a member takes at most, and what `write` needs."""

    def write(self, packed: Any) -> None:
        """Write a member."""

    def close(self) -> None:
        """Write the end."""


class TarGz:
    """A tar.gz with one gzip member for each file."""

    suffix = ".tar.gz"

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def packed(self, name: str, data: bytes, mtime: float) -> tuple[int, bytes]:
        """Return the size and the bytes of a member."""
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.mode = len(data), int(mtime), _MODE
        blank = bytes(-len(data) % _TAR_BLOCK)
        member = _gzip(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + data + blank)
        return len(member), member

    def write(self, packed: bytes) -> None:
        """Write a member."""
        self._stream.write(packed)

    def close(self) -> None:
        """Write the two empty blocks that end a tar file."""
        self._stream.write(_gzip(bytes(2 * _TAR_BLOCK)))


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()


# The times that a zip file can have: 1980 to 2107.
_ZIP_FIRST_S, _ZIP_LAST_S = 315_532_800, 4_354_819_198


class Zip:
    """A zip file."""

    suffix = ".zip"

    def __init__(self, stream: IO[bytes]) -> None:
        self._file = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)

    def packed(self, name: str, data: bytes, mtime: float) -> tuple[int, tuple[zipfile.ZipInfo, bytes]]:
        """Return the most that a member takes, and what is written."""
        info = zipfile.ZipInfo(name, time.gmtime(min(max(mtime, _ZIP_FIRST_S), _ZIP_LAST_S))[:6])
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, _MODE << 16
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -15)
        size = len(packer.compress(data)) + len(packer.flush())
        return size + _ZIP_HEADS + 2 * len(name.encode()), (info, data)

    def write(self, packed: tuple[zipfile.ZipInfo, bytes]) -> None:
        """Write a member."""
        self._file.writestr(*packed)

    def close(self) -> None:
        """Write the directory."""
        self._file.close()


@dataclass
class Bundle:
    """Writes found items to an archive of at most `max_size` bytes. `about`: the head of the manifest."""

    archive: Archive
    redactor: Redactor
    max_size: int
    about: dict[str, Any]
    folder: str
    now: float
    items: list[dict[str, Any]] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    _used: int = 0
    _reserved: int = _END + len(_README)
    _names: set[str] = field(default_factory=lambda: {MANIFEST.lower(), README.lower()})

    @property
    def _for_notes(self) -> int:
        """The room that items leave for notes of what is missing."""
        return min(self.max_size // _SHARE_OF_NOTES, _MAX_NOTES)

    def __post_init__(self) -> None:
        self._reserved += 2 * len(json.dumps(self.about))

    def add(self, found: Found) -> None:
        """Add an item, or the note that it is missing."""
        if isinstance(found, Missing):
            self.add_missing(found)
            return
        if len(self.items) >= MAX_ITEMS:
            self.add_missing(Missing(found.source, f"the bundle already has {MAX_ITEMS} items"))
            return
        name = self._free_name(found.name)
        source = self._shown(found.source)
        reserved = _ENTRY + 4 * (len(name.encode()) + len(source.encode()))
        if isinstance(found, JsonItem):
            text = json.dumps(self.redactor.value(found.value), indent=1, ensure_ascii=False) + "\n"
            note, keep_end = "", False
        else:
            text, note, keep_end = self.redactor.text(found.data), found.note, found.keep_end
        data = text.encode("utf-8", "backslashreplace")
        whole = len(data)
        while True:
            size, packed = self.archive.packed(f"{self.folder}/{name}", data, self.now)
            room = self.max_size - self._used - self._reserved - reserved - self._for_notes
            if size <= room:
                break
            data = _shrunk(data, room / size, keep_end)
            if len(data) < _LEAST:
                self.add_missing(Missing(f"{name}, from {source}", f"its {whole} bytes do not fit: raise --max-size"))
                return
        self.archive.write(packed)
        self._used, self._reserved = self._used + size, self._reserved + reserved
        entry = {"name": name, "source": source, "bytes": len(data)}
        if len(data) < whole:
            entry["cut"] = f"{'the end' if keep_end else 'the beginning'} of {whole} bytes, to fit into --max-size"
        if note:
            entry["note"] = note
        self.items.append(entry)

    def add_missing(self, missing: Missing) -> None:
        """Note that something could not be had."""
        missing = Missing(self._shown(missing.what), self._shown(missing.why))
        room = _ENTRY + 4 * len(f"{missing.what}{missing.why}".encode())
        if missing in self.missing:
            return
        if len(self.missing) < MAX_ITEMS and self._used + self._reserved + room <= self.max_size:
            self._reserved += room
            self.missing.append(missing)

    def close(self) -> int:
        """Write the manifest and the end of the archive; return the number of bytes before the end."""
        manifest = {**self.about, "items": self.items, "missing": [vars(each) for each in self.missing],
                    "hiddenTexts": self.redactor.hidden}
        for name, text in ((MANIFEST, json.dumps(manifest, indent=1) + "\n"), (README, self._readme())):
            size, packed = self.archive.packed(f"{self.folder}/{name}", text.encode(), self.now)
            self.archive.write(packed)
            self._used += size
        self.archive.close()
        return self._used

    def _readme(self) -> str:
        contents = ["## Contents", "", *(f"- `{item['name']}`: {item['source']}" for item in self.items)]
        if self.missing:
            contents += ["", "## Not included", "", *(f"- {each.what}: {each.why}" for each in self.missing)]
        return _README.format(version=self.about.get("rmqha", ""), created=self.about.get("created", ""),
                              contents="\n".join(contents))

    def _shown(self, text: str) -> str:
        return cell(self.redactor.line(text))[:_MAX_SHOWN]

    def _free_name(self, name: str) -> str:
        safe = self.redactor.literal(safe_name(name))
        stem, suffix = os.path.splitext(safe)
        number = 1
        while safe.lower() in self._names:
            number += 1
            safe = f"{stem}-{number}{suffix}"
        self._names.add(safe.lower())
        return safe


def safe_name(name: str) -> str:
    """Return a path for an archive: plain characters only, no `..`, not absolute, and not too long."""
    parts = [re.sub(r"[^A-Za-z0-9._+\-]", "_", part)[:_MAX_NAME // 2] for part in name.split("/")]
    kept: Sequence[str] = [part for part in parts if part.strip(".")]
    return "/".join(kept)[-_MAX_NAME:].lstrip("/") or "item"


def _shrunk(data: bytes, share: float, keep_end: bool) -> bytes:
    """Return about that share of a text, and at most three quarters, cut between two lines if it has any."""
    part = len(data) - int(len(data) * max(min(share * 0.95, 0.75), 0))
    if keep_end:
        end = data.find(b"\n", part)
        return data[end + 1:] if 0 <= end < len(data) - 1 else data[part:]
    begin = data.rfind(b"\n", 0, len(data) - part)
    return data[:begin + 1] if begin > 0 else data[:len(data) - part]
