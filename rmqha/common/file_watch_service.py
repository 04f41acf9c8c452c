"""Notifies a callback when the contents of files change.

Certificates are reloaded this way. The contents decide, not the modification time: a deployment tool may write a file
with an old time, rewrite it unchanged, or exchange it by a rename or a symbolic link, as Kubernetes does. Reading and
hashing a few small files twice a second is cheap.

A file that cannot be read is logged and tried again at the next check. The service keeps the previous hash meanwhile,
so a file that comes back unchanged causes no notification. If the callback raises, for example because the file is half
written, the change still counts as notified; only the next change notifies again. A half-written file changes again
when the rest of it is written, so its complete contents are always reported.
"""
import logging
import os
from collections.abc import Callable, Iterable

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")

WATCH_INTERVAL_MS = 500


class FileWatchService(ServiceThread):
    """A thread that reads its files twice a second and calls `on_changed(path)` for each that changed.

    Files that do not exist when the service is created are not watched. Without files no thread is started.

    Java: org.apache.rocketmq.srvutil.FileWatchService (4.9.8)
    """

    watch_interval_ms = WATCH_INTERVAL_MS

    def __init__(self, watch_files: Iterable[str | None], on_changed: Callable[[str], None]) -> None:
        super().__init__()
        self._on_changed = on_changed
        # Used only by this thread once it runs.
        self._hashes = {path: _hash(path) for path in watch_files if path and os.path.isfile(path)}

    @property
    def watch_files(self) -> list[str]:
        """Return the watched paths."""
        return list(self._hashes)

    def start(self) -> None:
        """Start the thread, if there is a file to watch."""
        if self._hashes:
            super().start()

    def run(self) -> None:
        """Check the files until stopped."""
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(self.watch_interval_ms)
            for path in self._hashes:
                try:
                    self._check_file(path)
                except Exception as error:
                    log.warning("%s service has exception: %s: %s", self.get_service_name(), path, error,
                                exc_info=not isinstance(error, OSError))
        log.info("%s service end", self.get_service_name())

    def _check_file(self, path: str) -> None:
        new = _hash(path)
        if new != self._hashes[path]:
            self._hashes[path] = new
            self._on_changed(path)


def _hash(path: str) -> bytes:
    # Imported late: it loads OpenSSL, and most servers watch no file.
    import hashlib

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()
