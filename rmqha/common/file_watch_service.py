"""Tells when files have other contents."""
import logging
import os
from collections.abc import Callable, Iterable

from rmqha.common.service_thread import ServiceThread

log = logging.getLogger("RocketmqCommon")

WATCH_INTERVAL_MS = 500


class FileWatchService(ServiceThread):
    """Reads its files twice a second; `on_changed(path)` is called on its thread. No file, no thread.

    Files that are not there when it is made are not watched.

    Java: org.apache.rocketmq.srvutil.FileWatchService (4.9.8)
    """

    watch_interval_ms = WATCH_INTERVAL_MS

    def __init__(self, watch_files: Iterable[str | None], on_changed: Callable[[str], None]) -> None:
        super().__init__()
        self._on_changed = on_changed
        # this thread's own once it runs
        self._hashes = {path: _hash(path) for path in watch_files if path and os.path.isfile(path)}

    @property
    def watch_files(self) -> list[str]:
        """The paths that are watched."""
        return list(self._hashes)

    def start(self) -> None:
        """Watch, if there is anything to."""
        if self._hashes:
            super().start()

    def run(self) -> None:
        """Look, until stopped."""
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
    import hashlib  # it loads OpenSSL, and most servers watch no file

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).digest()
