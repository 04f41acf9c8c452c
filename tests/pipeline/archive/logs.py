"""Small logs for the tests of the archive."""
from pathlib import Path

from tests.store import support


def put(root: Path, first: int, count: int, file_size: int = support.FILE_SIZE) -> None:
    """Messages of three topics and two queues, with bodies of many sizes."""
    with support.open_store(root, mappedFileSizeCommitLog=file_size) as store:
        for number in range(first, first + count):
            support.put(store, support.message(f"%T{number % 3}", number % 2, b"x" * (number * 37 % 500),
                                               KEYS=str(number), TAGS="a/b"))


def log_of(root: Path) -> dict[str, bytes]:
    """The files of a log, as far as they are in use."""
    return {name: data for name, data in support.tree(Path(root) / "commitlog").items() if any(data)}
