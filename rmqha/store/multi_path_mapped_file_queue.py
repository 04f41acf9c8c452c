"""A commit log spread over several disks."""
import logging
import os
from collections.abc import Callable

from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.config.message_store_config import MULTI_PATH_SPLITTER, MessageStoreConfig
from rmqha.store.mapped_file import MappedFile, ensure_dir_ok, fsync_folder
from rmqha.store.mapped_file_queue import MappedFileQueue, destroy_all

log = logging.getLogger("RocketmqStore")

_ASIDE = ".aside"
_BLANK = bytes(8)  # where a record has its length and its magic code


class MultiPathMappedFileQueue(MappedFileQueue):
    """File n goes to the (n modulo paths)-th of the sorted paths that are neither read-only nor full.

    Java: org.apache.rocketmq.store.MultiPathMappedFileQueue (4.9.8)
    """

    def __init__(self, config: MessageStoreConfig, mapped_file_size: int,
                 allocate_mapped_file_service: AllocateMappedFileService | None, allocation_unit: int,
                 full_store_paths_supplier: Callable[[], frozenset[str]]) -> None:
        super().__init__(config.get_store_path_commit_log(), mapped_file_size, allocate_mapped_file_service,
                         allocation_unit, keep_descriptor=True)
        self.config = config
        self._full_store_paths = full_store_paths_supplier

    def get_paths(self) -> set[str]:
        """The configured folders."""
        return set(self.config.get_store_path_commit_log().strip().split(MULTI_PATH_SPLITTER))

    def get_readonly_paths(self) -> set[str]:
        """Folders that are read but not written."""
        text = (self.config.readOnlyCommitLogStorePaths or "").strip()
        return set(text.split(MULTI_PATH_SPLITTER)) if text else set()

    def load(self) -> bool:
        """Map the files of all folders, in the order of their names."""
        paths = []
        for folder in self.get_paths() | self.get_readonly_paths():
            if os.path.isdir(folder):
                paths += [entry.path for entry in os.scandir(folder)]
        return self.do_load(_without_blank_twins(paths))

    def try_create_mapped_file(self, create_offset: int) -> MappedFile | None:
        """Make the file in the folder whose turn it is."""
        writable = self.get_paths() - self.get_readonly_paths()
        folders = sorted(writable - self._full_store_paths()) or sorted(writable)
        if not folders:
            log.error("all commit log folders are read-only")
            return None
        index = create_offset // self.mapped_file_size
        return self.do_create_mapped_file(
            self._path(folders[index % len(folders)], create_offset),
            self._path(folders[(index + 1) % len(folders)], create_offset + self.mapped_file_size))

    def destroy(self) -> None:
        """Delete all files and folders."""
        with self._change:
            files, self.mapped_files = self.mapped_files, []
        destroy_all(files)
        self.flushed_where = 0
        for folder in self.get_paths() | self.get_readonly_paths():
            self._remove_folder(folder)


def _without_blank_twins(paths: list[str]) -> list[str]:
    """`paths` without files that have no record, and whose offset another file has, too.

    Differs: they go to a folder beside theirs, where nobody looks for the log; the original takes either of the two.
    Files of one offset that all have records are left to whoever finds out which of them is right.
    """
    same_name: dict[str, list[str]] = {}
    for path in paths:
        same_name.setdefault(os.path.basename(path), []).append(path)
    for twins in same_name.values():
        blank = [path for path in twins if _is_blank(path)] if len(twins) > 1 else []
        for path in blank[1:] if len(blank) == len(twins) else blank:
            folder = os.path.dirname(path) + _ASIDE
            log.warning("%s has no message, and there is another file of its offset: it goes to %s", path, folder)
            ensure_dir_ok(folder, os.pathsep)
            os.replace(path, os.path.join(folder, os.path.basename(path)))
            fsync_folder(os.path.dirname(path))
            paths.remove(path)
    return paths


def _is_blank(path: str) -> bool:
    if not os.path.basename(path).isdecimal() or not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(len(_BLANK)) in (b"", _BLANK)
