"""Fast way of looking behind the data of a file, and of clearing it: its holes are not read."""
from __future__ import annotations

import os
import random
from collections import Counter
from typing import Any
from unittest import mock

from rmqha.store import mapped_file
from rmqha.store.mapped_file import MappedFile
from tests.fast_ways.support_store import counting, same, scratch
from tests.fast_ways.way import FAST, PLAIN, Plant, Way, lowered, replaced, some_size


def _whole(_fd: int, start: int, stop: int) -> list[tuple[int, int]]:
    """As where the file system knows no holes."""
    return [(start, stop)] if start < stop else []


def _compare(rng: random.Random) -> Counter[str]:
    taken: Counter[str] = Counter()
    size = rng.choice((4096, 65536, 1 << 20))
    writes = [(at, rng.randbytes(min(some_size(rng, (4096,), 20_000), size - at)) if rng.random() < 0.7
               else bytes(min(5000, size - at)))
              for at in (rng.randrange(size) for _ in range(rng.choice((0, 1, 3, 9))))]
    places = [rng.choice((0, size, size - 1, rng.randrange(size), rng.randrange(size) // 4096 * 4096,
                          *[at + len(data) for at, data in writes])) for _ in range(5)]
    reserves, end = rng.random() < 0.3, rng.choice(places)
    with scratch() as root, lowered(mapped_file, _ZERO_STEP=rng.choice((512, 4096, 1 << 20))):
        found = []
        for name, way, extents in (("fast", FAST, mapped_file._data_extents), ("plain", PLAIN, _whole)):
            file = MappedFile(str(root / name / f"{0:020d}"), size)
            for at, data in writes:
                file.write_at(at, data)
            if reserves:
                fd = os.open(file.file_name, os.O_RDWR)
                os.posix_fallocate(fd, 0, size // 2)
                os.close(fd)
            with mock.patch.object(mapped_file, "_data_extents", extents), \
                    counting(taken, (mapped_file, "_data_extents", way)):
                behind = [file.first_byte_behind(place) for place in places]
                file.zero_from(end)
                behind.append(file.first_byte_behind(end))
            found.append((behind, bytes(file.slice_byte_buffer())))
            file.destroy(0)
        same(*found, f"{size} bytes, cleared from {end} on")
        assert found[0][0][-1] == -1
    return taken


def _whole_pages(fd: int, start: int, stop: int, real: Any = mapped_file._data_extents) -> list[tuple[int, int]]:
    return [(begin, end) for begin, end in real(fd, -(-start // 4096) * 4096, stop) if begin < end]


def _first_extent(fd: int, start: int, stop: int, real: Any = mapped_file._data_extents) -> list[tuple[int, int]]:
    return list(real(fd, start, stop)[:1])


HOLES = Way(
    name="store: holes behind the data",
    where="rmqha/store/mapped_file.py::_data_extents",
    condition="the file system tells where a sparse file has holes",
    plain="all bytes are read",
    compare=_compare,
    plants=(
        Plant("it begins with the next page", replaced(mapped_file, "_data_extents", _whole_pages)),
        Plant("it ends with the first hole", replaced(mapped_file, "_data_extents", _first_extent)),
    ),
    seeds=30,
)
WAYS = [HOLES]
