"""A table of the broker that lives in one JSON file."""
import logging
import os
import threading
from abc import ABC, abstractmethod
from typing import Self

from rmqha.common import mix_all
from rmqha.common.change_log import ChangeLog

log = logging.getLogger("RocketmqCommon")


class ConfigManager(ABC):
    """Loads and saves one config file through `encode` and `decode`; a subclass owns the state.

    On disk there is always the old or the new state: see mix_all.string2file.

    Java: org.apache.rocketmq.common.ConfigManager (4.9.8)
    """

    _persist_lock: threading.Lock  # one writer of the file at a time
    _has_changed: bool  # since the last write began, or the start; set after each change, by any thread
    _backup_is_older: bool  # than the file; for the thread that saves changes
    changes: ChangeLog  # of the entries

    def __new__(cls, *_args: object, **_kwargs: object) -> Self:
        self = super().__new__(cls)
        self._persist_lock = threading.Lock()
        self._has_changed, self._backup_is_older = True, False
        self.changes = ChangeLog()
        return self

    @abstractmethod
    def config_file_path(self) -> str:
        """The file."""

    @abstractmethod
    def encode(self, pretty_format: bool = False) -> str | None:
        """The state as JSON; None means that there is nothing to save."""

    @abstractmethod
    def decode(self, json_string: str) -> None:
        """Take the state out of JSON. Raises ValueError or a subclass when it is malformed."""

    def load(self) -> bool:
        """Read the file, or its `.bak` when the file is missing, empty or malformed.

        True when one of them was read, and when neither exists; False when there was something and none is readable.
        """
        file_name = self.config_file_path()
        if self._load_from(file_name):
            return True
        if self._load_from(file_name + ".bak"):
            log.warning("%s could not be used, its backup file was", file_name)
            return True
        # Differs: for Java empty files count as loaded, and the state starts anew without a word
        if os.path.exists(file_name) or os.path.exists(file_name + ".bak"):
            log.error("load %s Failed: neither it nor its backup file is usable; "
                      "restore one of them, or remove both to start with an empty state", file_name)
            return False
        return True

    def _load_from(self, file_name: str) -> bool:
        try:
            text = mix_all.file2string(file_name)
            if not text:
                return False
            self.decode(text)
        except Exception:
            log.exception("load %s failed, and try to load backup file", file_name)
            return False
        log.info("load %s OK", file_name)
        return True

    def note_change(self, *names: str) -> None:
        """The state is to be saved by `persist_changes`: by whoever has changed it, afterwards.

        With the names of the entries that are new or have changed; without one when an entry is gone.
        """
        self._has_changed = True
        if names:
            self.changes.note(names)
        else:
            self.changes.note_all()

    def persist_changes(self) -> None:
        """Save the state when it has changed since it was saved, and once more then, which brings the backup up to it.

        Differs: the original writes each table that it saves every few seconds whole, also when nothing happens.
        """
        is_new = self._has_changed
        if is_new or self._backup_is_older:
            self._has_changed = False
            self._backup_is_older = is_new
            if not self.persist():
                self._has_changed = True

    def persist(self) -> bool:
        """Save the state durably; False, with a line in the log, when the disk refuses."""
        with self._persist_lock:
            text = self.encode(True)
            if text is None:
                return True
            file_name = self.config_file_path()
            try:
                mix_all.string2file(text, file_name)
            except OSError:
                log.exception("persist file %s exception", file_name)
                return False
            return True
