"""The one check of names that come from a file or a peer before they become paths.

Topics become folders of queues, runs of an archive and the files of a manifest become paths below the archive, servers
of a cluster folders of it. Whoever writes such a name must not get out of the folder that it belongs to.
"""
import os

MAX_BYTES = 255  # of a name; file systems take no more


def is_folder_name(name: object) -> bool:
    """Whether `name` is a text that names one entry of a folder: no path, not the folder itself, nor the one above."""
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name) <= MAX_BYTES and len(os.fsencode(name)) <= MAX_BYTES
    except UnicodeEncodeError:
        return False


def folder_name(name: object, what: str) -> str:
    """`name` when it names one entry of a folder. ValueError, which names `what` it is of, otherwise."""
    if not is_folder_name(name):
        raise ValueError(f"{what} {name!r:.200} can't be the name of a file or folder: it must be a text of 1 to "
                         f"{MAX_BYTES} bytes, without / and NUL, and neither . nor ..")
    return str(name)


def path_below(path: object, what: str) -> str:
    """`path` when it leads down from a folder: names with / between them. ValueError otherwise."""
    if not isinstance(path, str) or not all(map(is_folder_name, path.split("/"))):
        raise ValueError(f"{what} {path!r:.200} does not lead to a place below its folder: it must be names with / "
                         "between them, none of which is empty, . or ..")
    return path
