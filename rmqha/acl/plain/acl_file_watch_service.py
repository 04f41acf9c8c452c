"""Sees changes of the account files.

    timer, 5 s --> AclFileWatchService: looks at the files -> tells the listener (PlainPermissionManager loads)
"""
import logging
import os
from typing import Protocol

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")

WATCH_INTERVAL_MS = 5000
_SUFFIXES = (".yml", ".yaml")
_MAX_DEPTH = 32  # of folders; links may make circles


class Listener(Protocol):
    """Who is told.

    Java: org.apache.rocketmq.srvutil.AclFileWatchService$Listener (4.9.8)
    """

    def on_file_changed(self, acl_file_name: str) -> None:
        """A file has changed."""

    def on_file_num_changed(self, path: str) -> None:
        """Files came or went in the folder."""


class AclFileWatchService(ServiceThread):
    """Tells a listener of changes in a folder of account files and in the default file.

    Java: org.apache.rocketmq.srvutil.AclFileWatchService (4.9.8)
    """

    def __init__(self, path: str, default_acl_file: str, listener: Listener) -> None:
        super().__init__()
        self.daemon = True
        self._acl_path = path
        self._default_acl_file = default_acl_file
        self._listener = listener
        self._known: dict[str, tuple[int, int, int] | None] = {}  # stamp by file; this thread's, once it runs

    def remember(self) -> None:
        """Take the files as they are now for known. To be called before they are read the first time."""
        self._known = self._stamps()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(WATCH_INTERVAL_MS)
            if self.stopped:
                break
            try:
                self.look()
            except Exception:  # a file may be wrong in any way; what was loaded before stays in force
                log.exception("%s service has exception.", self.get_service_name())
        log.info("%s service end", self.get_service_name())

    def look(self) -> None:
        """Look once, and tell of what has changed since the last time."""
        known, self._known = self._known, self._stamps()
        # Differs: another set of files counts as a change of their number, also when as many came as went
        if known.keys() != self._known.keys():
            log.info("aclFilesNum: %d  realAclFilesNum: %d", len(known), len(self._known))
            self._listener.on_file_num_changed(self._acl_path)
            return
        for file_name, stamp in self._known.items():
            if stamp != known[file_name]:
                self._notify_listener(file_name)

    def _notify_listener(self, file_name: str) -> None:
        try:
            self._listener.on_file_changed(file_name)
        except Exception:  # the other files' changes must not wait for this one
            log.exception("%s: %s could not be loaded, what it said before stays in force", self.get_service_name(),
                          file_name)

    def _stamps(self) -> dict[str, tuple[int, int, int] | None]:
        return {file: _stamp(file) for file in acl_files(self._acl_path, self._default_acl_file)}


def acl_files(folder: str, default_acl_file: str) -> list[str]:
    """All .yml and .yaml files below a folder (none when it is missing) and, when it exists, the default file."""
    files = _below(folder, _MAX_DEPTH)
    if default_acl_file not in files and os.path.exists(default_acl_file):
        files.append(default_acl_file)
    return files


def _below(folder: str, depth: int) -> list[str]:
    if depth == 0:
        raise OSError(f"{folder}: folders are nested too deeply, perhaps a link leads back")
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        log.debug("The default acl dir %s is not exist", folder)
        return []
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(_SUFFIXES):
            found.append(path)
        elif os.path.isdir(path):
            found += _below(path, depth - 1)
    return found


def _stamp(file: str) -> tuple[int, int, int] | None:
    """What changes with a file: time (ns), size, inode; None when it is gone."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
