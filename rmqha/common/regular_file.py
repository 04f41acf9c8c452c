"""Opening files that others have put there: never waiting for a pipe, never touching a device."""
import errno
import os
import stat

_KINDS = {stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFSOCK: "a socket",
          stat.S_IFDIR: "a folder"}


class NotRegularFileError(OSError):
    """A path leads to a pipe, a device, a socket or a folder where a file should be."""

    def __init__(self, path: str, mode: int) -> None:
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        super().__init__(errno.EINVAL, f"{path} is {kind}, and should be a regular file: remove it")

    def __str__(self) -> str:
        return str(self.strerror)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """The descriptor of a regular file, by os.open's flags. NotRegularFileError for all else, at once; OSError."""
    name = os.fspath(path)
    try:
        check_regular(name, os.stat(name))  # before it is opened: some devices act on that
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    fd = os.open(name, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    try:
        check_regular(name, os.fstat(fd))
    except NotRegularFileError:
        os.close(fd)
        raise
    return fd


def check_regular(path: str, found: os.stat_result) -> None:
    """NotRegularFileError unless what was found at `path` is a regular file."""
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularFileError(path, found.st_mode)
