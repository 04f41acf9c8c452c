"""The file `abort`: it is there while a store runs, so a start that finds it knows of a crash."""
from __future__ import annotations

import logging
import os

from rmqha.store.mapped_file import fsync_folder

log = logging.getLogger("RocketmqStore")


def create_temp_file(file_name: str) -> None:
    """Make it, on the disk.

    Differs: it is there before anything that a loss of power may tear; the original leaves that to chance.
    """
    exists = os.path.exists(file_name)
    os.close(os.open(file_name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
    fsync_folder(os.path.dirname(file_name))
    log.info("%s%s", file_name, " already exists" if exists else " create OK")


def delete_file(file_name: str) -> None:
    """Delete it, or another file of the store; one that can't be deleted stays, with a line in the log."""
    try:
        os.unlink(file_name)
        log.info("%s delete OK", file_name)
    except OSError as error:
        log.info("%s delete Failed: %s", file_name, error.strerror)
