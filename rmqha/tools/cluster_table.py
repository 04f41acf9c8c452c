"""A table of brokers: who is who, how far each has come, and whether a slave's log equals its master's."""
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqha.common.filesystem import open_regular
from rmqha.tools.dialect.output import render_table as render_table

CHUNK = 1 << 20
HEADINGS = ("name", "role", "address", "max offset", "lag", "bytes identical")
RIGHT_ALIGNED = {"max offset", "lag"}


@dataclass(frozen=True)
class BrokerRow:
    """One broker. `lag` is in bytes of commit log; both it and `identical` are None for masters."""

    name: str
    role: str
    address: str
    max_offset: int
    lag: int | None = None
    identical: bool | None = None

    def cells(self) -> tuple[str, ...]:
        """The row as texts."""
        lag = "" if self.lag is None else f"{self.lag:,}"
        identical = {None: "", True: "yes", False: "NO"}[self.identical]
        return self.name, self.role, self.address, f"{self.max_offset:,}", lag, identical


def render(rows: Sequence[BrokerRow]) -> str:
    """The table as text, columns aligned."""
    return render_table(HEADINGS, [row.cells() for row in rows], RIGHT_ALIGNED)


class CommitLogFiles:
    """The files of a commit log folder, read as one run of bytes while a broker may be writing behind them.

    Each file's name is the offset of its first byte, and the next file begins where it ends.
    """

    def __init__(self, folder: Path) -> None:
        names = [entry for entry in folder.iterdir() if len(entry.name) == 20 and entry.name.isdigit()]
        self._files = {int(entry.name): entry for entry in sorted(names)}

    @property
    def min_offset(self) -> int:
        """The offset of the first byte; 0 when there are no files."""
        return min(self._files, default=0)

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on; fewer where the files end."""
        parts = []
        for start, path in self._files.items():
            length = path.stat().st_size
            first, last = max(offset, start), min(offset + size, start + length)
            if first < last:
                with open(open_regular(path), "rb") as file:
                    file.seek(first - start)
                    parts.append(file.read(last - first))
        return b"".join(parts)


def first_difference(master: Path, slave: Path, end: int) -> int | None:
    """The first offset below `end` at which two commit logs differ, over the range that both hold; None: nowhere."""
    master_files, slave_files = CommitLogFiles(master), CommitLogFiles(slave)
    offset = max(master_files.min_offset, slave_files.min_offset)
    while offset < end:
        size = min(CHUNK, end - offset)
        ours, theirs = master_files.read(offset, size), slave_files.read(offset, size)
        if ours != theirs or len(ours) < size:
            common = min(len(ours), len(theirs))
            return offset + next((place for place in range(common) if ours[place] != theirs[place]), common)
        offset += size
    return None
