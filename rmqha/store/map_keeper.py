"""Which of very many files are mapped: no more at a time than the system lets a process have with ease."""
from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from rmqha.common.process import max_mapped_files

if TYPE_CHECKING:
    from rmqha.store.mapped_file import MappedFile

log = logging.getLogger("RocketmqStore")


class MapKeeper:
    """Takes the map of the file away that has had one for longest and was not used lately, when there are too many.

    A file tells when it has been mapped (`note`), and when it is closed (`forget`). Any thread calls.
    `reads_ahead`: who reads a large file goes on behind what he has read; recovery jumps.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit if limit is not None else max_mapped_files()
        self._lock = threading.Lock()
        self._files: OrderedDict[MappedFile, None] = OrderedDict()  # the longest mapped first; guarded by _lock
        self._is_short = False  # guarded by _lock
        self.reads_ahead = False

    def note(self, mapped_file: MappedFile) -> None:
        """The file has a map now."""
        with self._lock:
            self._files[mapped_file] = None
            if len(self._files) > self.limit:
                if not self._is_short:
                    self._is_short = True
                    log.info("more than %s files of consume queues are in use: maps go and come back", self.limit)
                self._drop_one()

    def forget(self, mapped_file: MappedFile) -> None:
        """The file is closed."""
        with self._lock:
            self._files.pop(mapped_file, None)

    def make_room(self) -> bool:
        """The system gives no map or descriptor: half of the maps go; False when there are none."""
        with self._lock:
            count = (len(self._files) + 1) // 2
            for _ in range(count):
                self._drop_one()
        return count > 0

    def end_recovery(self) -> None:
        """No file is in use as far as anybody knows: all maps go."""
        self.reads_ahead = True
        with self._lock:
            files, self._files = self._files, OrderedDict()
        for mapped_file in files:
            mapped_file.drop_map()

    def __len__(self) -> int:
        return len(self._files)

    def _drop_one(self) -> None:
        for _ in range(len(self._files)):
            mapped_file, _none = self._files.popitem(last=False)
            if not mapped_file.is_touched:
                mapped_file.drop_map()
                return
            mapped_file.is_touched = False  # a second chance
            self._files[mapped_file] = None
        mapped_file, _none = self._files.popitem(last=False)
        mapped_file.drop_map()
