"""A commit log spread over several disks."""
import logging
import os
from collections.abc import Callable

from rmqha.store.allocate_mapped_file_service import AllocateMappedFileService
from rmqha.store.config.message_store_config import MULTI_PATH_SPLITTER, MessageStoreConfig
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue, destroy_all

log = logging.getLogger("RocketmqStore")


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
        return self.do_load(paths)

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
