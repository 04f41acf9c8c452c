"""Files and folders are forced to the disk by name."""
import os


def fsync_path(path: str) -> None:
    """Force a file's bytes, or a folder's names, to the disk. OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
