"""The manifests of an archive: found, read, added, put together, taken out.

    single ones --MOST_SINGLE of them--> one file of many --MOST_MANY such--> one file of all

so a run reads a name and one file, whatever came before, and even 100,000 runs leave few files. A file of many stands
for all others whose ranges lie within its own: those are what a run left that was broken off between writing it and
removing them.
"""
import base64
import gzip
from collections.abc import Sequence

from rmqha.common.compression import GZIP, inflate
from rmqha.pipeline.archive.archive_files import ArchiveFiles
from rmqha.pipeline.archive.archive_layout import (
    MANIFESTS,
    MANY,
    MOST_BYTES,
    SINGLE,
    Manifest,
    parse_manifest,
    range_of_name,
)
from rmqha.pipeline.options import PipelineError

MOST_SINGLE, MOST_MANY = 100, 100


class Manifests:
    """Those of one archive."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def names(self) -> list[str]:
        """The files that count, in the order of the log."""
        names = [name for name in self._files.listed(MANIFESTS) if name.endswith((SINGLE, MANY))]
        by_range = sorted(names, key=lambda name: (range_of_name(name)[0], -range_of_name(name)[1],
                                                   not name.endswith(MANY), name))
        found: list[str] = []
        for name in by_range:
            inner, outer = range_of_name(name), range_of_name(found[-1]) if found else (0, -1)
            if not (outer[0] <= inner[0] and inner[1] <= outer[1] and found[-1].endswith(MANY)):
                found.append(name)
        return found

    def last(self) -> Manifest | None:
        """The one at the end of the archive."""
        names = self.names()
        return self._read(names[-1:])[-1] if names else None

    def since(self, offset: int) -> list[Manifest]:
        """Those that may reach behind an offset, in the order of the log."""
        return self._read([name for name in self.names() if range_of_name(name)[1] > offset])

    def all(self) -> list[Manifest]:
        """All, in the order of the log. PipelineError when ranges overlap."""
        found = self._read(self.names())
        for one, other in zip(found, found[1:]):
            if other.begin < one.end:
                raise PipelineError(f"{self._files.root}: the ranges {one.name} and {other.name} overlap")
        return found

    def _read(self, names: Sequence[str]) -> list[Manifest]:
        found: list[Manifest] = []
        sizes = self._files.listed(MANIFESTS) if names else {}
        for name in names:
            if sizes.get(name, 0) > MOST_BYTES:
                raise PipelineError(f"{self._files.path(f'{MANIFESTS}/{name}')} has {sizes[name]} bytes, a file of "
                                    f"manifests has at most {MOST_BYTES}: it is damaged, or none of rmqha's")
        for path, data in self._files.read([f"{MANIFESTS}/{name}" for name in names]).items():
            where = self._files.path(path)
            if not path.endswith(MANY):
                found.append(parse_manifest(data, where))
                continue
            found += [parse_manifest(line, f"{where}, line {number}")
                      for number, line in enumerate(_unpacked(data, where).splitlines(), 1)]
        return found

    def add(self, manifest: Manifest) -> None:
        """From now on the run counts. PipelineError when its manifest would be too large to be read again."""
        text = manifest.to_json()
        if len(text) > MOST_BYTES:
            raise PipelineError(f"offsets {manifest.begin} to {manifest.end} of the log have so many bytes that are no "
                                f"messages that their manifest is larger than {MOST_BYTES} bytes: take smaller runs")
        self._files.write(f"{MANIFESTS}/{manifest.name}{SINGLE}", text)

    def compact(self, most_single: int = MOST_SINGLE, most_many: int = MOST_MANY) -> None:
        """Put manifests together when there are many files of them."""
        names = self.names()
        single = [name for name in names if not name.endswith(MANY)]
        if len(single) < most_single:
            return
        many = [name for name in names if name.endswith(MANY)]
        # only neighbours: what is put together stands for its whole range
        chosen = names if len(many) + 1 >= most_many else names[len(names) - len(single):]
        if self._put_together(self._read(chosen)):
            self._tidy()

    def _tidy(self) -> None:
        """Remove the files that do not count."""
        names = set(self.names())
        self._files.remove(f"{MANIFESTS}/{name}" for name in self._files.listed(MANIFESTS) if name not in names)

    def _put_together(self, manifests: Sequence[Manifest]) -> bool:
        """Whether they are one file now: not when it would be too large to be read again."""
        text = "\n".join(each.to_json() for each in manifests).encode()
        if len(text) > MOST_BYTES:
            return False
        packed = gzip.compress(text, mtime=0)
        name = f"{manifests[0].begin:020d}-{manifests[-1].end:020d}-{len(manifests)}{MANY}"
        if name not in self._files.listed(MANIFESTS):  # else a run that was broken off has written the same
            self._files.write(f"{MANIFESTS}/{name}", base64.b64encode(packed).decode())
        return True

    def keep_from(self, first: Manifest) -> None:
        """Take out all manifests before `first`."""
        self._tidy()  # or what is covered now would count again
        gone = []
        for name in self.names():
            begin, end = range_of_name(name)
            if begin < first.begin:
                kept = [each for each in self._read([name]) if each.begin >= first.begin]
                if kept:
                    self._put_together(kept)
                gone.append(f"{MANIFESTS}/{name}")
            if end > first.begin:
                break
        self._files.remove(gone)


def _unpacked(data: bytes, where: str) -> str:
    try:
        return inflate(base64.b64decode(data), MOST_BYTES, GZIP).decode()
    except ValueError as error:
        raise PipelineError(f"{where} holds no manifests of an archive: {error}") from error
