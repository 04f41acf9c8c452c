"""Files and folders are forced to the disk by name."""
import os


class NotAskedError(OSError):
    """What was to be forced to the disk could not be opened: the disk was not asked, and has lost nothing.

    Whoever gets it may try again later. Any other OSError of a function that forces may be the disk's own answer, which
    Linux gives once: who asks again gets a success, and what was lost stays lost.
    """


def open_to_force(path: str, flags: int = os.O_RDONLY) -> int:
    """The descriptor of what is to be forced to the disk. FileNotFoundError; NotAskedError for all else."""
    try:
        return os.open(path, flags | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotAskedError(error.errno, error.strerror, path) from error


def fsync_path(path: str) -> None:
    """Force a file's bytes, or a folder's names, to the disk. OSError; NotAskedError when it can't be opened."""
    fd = open_to_force(path)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_and_force(source: str, target: str) -> None:
    """Rename `source` to `target`, and force the name to the disk. OSError; NotAskedError: nothing was renamed."""
    folder = os.path.dirname(os.path.abspath(target))
    try:
        fd = open_to_force(folder)  # first: behind the renaming nothing may fail for want of a descriptor
    except FileNotFoundError as error:
        raise NotAskedError(error.errno, error.strerror, folder) from error
    try:
        os.replace(source, target)
        os.fsync(fd)
    finally:
        os.close(fd)
