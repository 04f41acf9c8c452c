"""The files of a bundle: settings, accounts without their keys, ends of logs, and the listing of a store.

Nothing here follows a path out of a log folder, waits for a pipe, or reads a message.
"""
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmqha.acl.common import AclException
from rmqha.common import java
from rmqha.common.filesystem import is_segment_name, open_regular, pread, read_at
from rmqha.common.texts import HIDDEN
from rmqha.store import store_path_config_helper as paths
from rmqha.tools.explain.catalog import catalog
from rmqha.tools.explain.summary import Summary
from rmqha.tools.store_files.reading import is_held
from rmqha.tools.support.bundle import Found, Item, JsonItem, Missing
from rmqha.tools.support.redaction import Redactor, is_access_key, is_secret_key
from rmqha.tools.terminal import iso_time, to_yaml

MAX_CONFIG = 1 << 20  # bytes of a config file
_UNREADABLE = (ValueError, AclException)
MAX_FILES = 1_000  # log files of one folder
_DEPTH = 4
_LOG_ENDINGS = (".log", ".out", ".err")
_OTHER_DAYS = "otherdays"
_LEFT_OUT = "(left out: not a key of rmqha)"
# Fields of account files whose values are shown.
_SHOWN_FIELDS = frozenset({
    "accounts", "globalWhiteRemoteAddresses", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm",
    "topicPerms", "groupPerms", "dataVersion", "counter", "timestamp", "stateVersion"})
_STALL = "no other thread had a turn for"
_MAX_STALL_LINES = 5_000
_CHECKPOINT = struct.Struct(">qqq")
_MAX_LISTED = 50_000  # files of a store


def read_config(path: str) -> bytes:
    """Return the bytes of a config file. OSError; ValueError when it is too large."""
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > MAX_CONFIG:
            raise ValueError(f"it has {size} bytes, more than a config file")
        return pread(fd, MAX_CONFIG, 0)
    finally:
        os.close(fd)


def is_yaml(path: str) -> bool:
    """Return whether a file is read as YAML."""
    return path.lower().endswith((".yml", ".yaml"))


def harvest(paths_of_files: list[str], redactor: Redactor) -> None:
    """Learn the secrets of all config files, before anything is written. Unreadable files are reported later."""
    for path in paths_of_files:
        try:
            data = read_config(path)
        except (OSError, ValueError):
            continue
        for key, value in _parsed(path, data):
            if is_access_key(key):
                redactor.add_access_key(value)
            elif is_secret_key(key):
                redactor.add_secret(value)
        # Its comments, and everything that its parser refuses.
        redactor.harvest(data.decode("utf-8", "replace"))
        redactor.harvest(data.decode("latin-1"))


def _parsed(path: str, data: bytes) -> list[tuple[str, str]]:
    """Return the keys and values of a file as its reader sees them; none when it is malformed."""
    try:
        if is_yaml(path):
            from rmqha.acl.acl_files import loads  # YAML needs an extra

            return list(_scalars("", loads(data)))
        return list(java.load(data).items())
    except _UNREADABLE:
        # The file's item reports the error; `harvest` has read the text itself.
        return []


def _scalars(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _scalars(str(name), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _scalars(key, inner)
    elif value is not None:
        yield key, str(value)


def config_item(path: str, name: str, known: frozenset[str], redactor: Redactor) -> list[Found]:
    """Return a config file without its secrets and comments; properties stay on their lines."""
    try:
        data = read_config(path)
        text = _accounts(data, redactor) if is_yaml(path) else _properties(data, known)
    except FileNotFoundError:
        return [Missing(path, "the file does not exist")]
    except (OSError, *_UNREADABLE) as error:
        return [Missing(path, f"{_reason(error)}; nothing of it is included, since its secrets can't be recognized")]
    return [Item(name, text, path, note="comments and secrets were removed")]


def _properties(data: bytes, known: frozenset[str]) -> str:
    properties = java.load(data)
    lines = [""] * max(properties.lines.values(), default=0)
    for key, value in properties.items():
        lines[properties.lines[key] - 1] += _property(key, value, known)
    return "\n".join(lines) + "\n"


def _property(key: str, value: str, known: frozenset[str]) -> str:
    if is_secret_key(key):
        return f"{java.escape(key, is_key=True)}={HIDDEN}"
    if key in known:
        return f"{key}={java.escape(value)}"
    is_plain = value.strip().lower() in ("true", "false") or value.strip().isdecimal() and len(value) < 7
    if not value or not key.replace(".", "").replace("_", "").isalnum():
        return "(a line without a key of rmqha)"
    return f"{java.escape(key, is_key=True)}={value.strip() if is_plain else _LEFT_OUT}"


def _accounts(data: bytes, redactor: Redactor) -> str:
    from rmqha.acl.acl_files import loads

    return to_yaml(_masked("accounts", loads(data), redactor)) + "\n"


def _masked(key: str, value: Any, redactor: Redactor) -> Any:
    if isinstance(value, dict):
        return {str(name) if str(name) in _SHOWN_FIELDS or is_secret_key(str(name)) else "(another field)":
                _masked(str(name), inner, redactor) for name, inner in value.items()}
    if isinstance(value, list):
        return [_masked(key, inner, redactor) for inner in value]
    if value is None:
        return None
    if is_access_key(key):
        return redactor.add_access_key(str(value))
    return value if key in _SHOWN_FIELDS and not is_secret_key(key) else HIDDEN


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


# ---- logs


@dataclass(frozen=True)
class LogFile:
    """A log file, and its name in the bundle."""

    path: str
    name: str


def log_files(folder: str, label: str) -> tuple[list[LogFile], list[Missing]]:
    """Return the logs of a folder: the current ones, then the newest rolled ones. OSError when it can't be listed."""
    found: list[LogFile] = []
    missing: list[Missing] = []
    os.scandir(folder).close()  # os.walk is silent about a folder that can't be read
    root = os.path.realpath(folder)

    def unreadable(error: OSError) -> None:
        missing.append(Missing(str(error.filename), _reason(error)))
    for path, folders, names in os.walk(folder, onerror=unreadable):
        inner = os.path.relpath(path, folder)
        if inner.count(os.sep) >= _DEPTH:
            folders.clear()
        for name in sorted(names):
            is_rolled = _OTHER_DAYS in inner.split(os.sep)
            if not name.endswith(_LOG_ENDINGS) or is_rolled and not name.endswith(".1.log"):
                continue
            place = os.path.join(path, name)
            if os.path.islink(place) and not os.path.realpath(place).startswith(root + os.sep):
                missing.append(Missing(place, "it is a link to a file outside of the folder"))
            elif len(found) >= MAX_FILES:
                missing.append(Missing(folder, f"it has more than {MAX_FILES} logs"))
                return _ranked(found), missing
            else:
                found.append(LogFile(place, os.path.normpath(f"logs/{label}/{inner}/{name}")))
    return _ranked(found), missing


def _ranked(found: list[LogFile]) -> list[LogFile]:
    """Return the logs in the order of their importance: the size of a bundle is limited."""
    first = ("store.log", "storeerror.log", "broker.log", "controller.log", "namesrv.log", "remoting.log")

    def rank(each: LogFile) -> tuple[bool, int, str]:
        name = os.path.basename(each.path)
        return _OTHER_DAYS in each.path, first.index(name) if name in first else len(first), each.path
    return sorted(found, key=rank)


def end_of_log(file: LogFile, most: int) -> list[Found]:
    """Return the end of a log: at most `most` bytes, whole lines; its stalls; and what `rmqha explain` knows of it."""
    try:
        fd = open_regular(file.path)
    except OSError as error:
        return [Missing(file.path, str(error) if error.strerror and file.path in error.strerror else _reason(error))]
    try:
        size = os.fstat(fd).st_size
        data = pread(fd, most, max(size - most, 0))
    except OSError as error:
        return [Missing(file.path, _reason(error))]
    finally:
        os.close(fd)
    if not size:
        return []
    if size > most:
        # The first line may have lost its beginning, and with it the key of a secret.
        data = data.partition(b"\n")[2]
    text = data.decode("utf-8", "replace")
    note = f"the last {len(data)} of {size} bytes" if size > most else ""
    found: list[Found] = [Item(file.name, text, file.path, keep_end=True, note=note)]
    lines, name = text.split("\n"), file.name.removeprefix("logs/")
    stalls = list(stalls_of(lines))
    if stalls:
        found.append(Item(f"stalls/{name}", "\n".join(stalls) + "\n", file.path, keep_end=True))
    summary = Summary(catalog())
    for line in lines:
        summary.feed(line)
    if summary.known or summary.unknown:
        found.append(JsonItem(f"explained/{name}.json", {
            "lines": summary.lines, "troubles": summary.troubles, "unknownLines": summary.unknown_count,
            "known": {entry.id: [seen.count, seen.first, seen.last] for entry, seen in summary.ranked()}}, file.path))
    return found


def stalls_of(lines: list[str]) -> Iterator[str]:
    """Yield the entries of StallWatch: the line with the length of the pause, and the stacks below it."""
    count, inside = 0, False
    for line in lines:
        if _STALL in line:
            inside = True
        elif inside and not line.startswith((" ", "\t")):
            inside = False
        if inside and count < _MAX_STALL_LINES:
            count += 1
            yield line


# ---- stores


def store_items(root: str, logs: list[str], label: str) -> list[Found]:
    """Return the listing of a store: names, sizes and times of its files, its checkpoint; no content."""
    if not os.path.isdir(root):
        return [Missing(root, "the folder does not exist")]
    missing: list[Missing] = []
    rows, counts, is_whole = _listing(root, logs, missing)
    summary: dict[str, Any] = {
        "root": root, "commitLogs": logs, "lockIsHeld": _held(paths.get_lock_file(root)),
        "abortFile": os.path.exists(paths.get_abort_file(root)), "checkpoint": _checkpoint(root), "isWhole": is_whole,
        **counts}
    text = "bytes\tallocated\tmodified\tpath\n" + "\n".join(rows) + "\n"
    return [JsonItem(f"{label}/summary.json", summary, root), Item(f"{label}/files.tsv", text, root), *missing]


def _held(lock: str) -> bool | str:
    try:
        return is_held(lock)
    except OSError as error:
        return _reason(error)


def _checkpoint(root: str) -> dict[str, str] | None:
    try:
        data = read_at(paths.get_store_checkpoint(root), 0, _CHECKPOINT.size)
    except OSError as error:
        return {"error": _reason(error)}
    if len(data) < _CHECKPOINT.size:
        return None
    names = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
    return {name: f"{value} ({iso_time(value)})" for name, value in zip(names, _CHECKPOINT.unpack(data))}


def _listing(root: str, logs: list[str], missing: list[Missing]) -> tuple[list[str], dict[str, Any], bool]:
    """Return a row per file, counts per folder of the store, and whether all files are listed."""
    rows: list[str] = []
    counts: dict[str, dict[str, int]] = {}
    elsewhere = [log for log in logs if not os.path.realpath(log).startswith(os.path.realpath(root) + os.sep)]

    def unreadable(error: OSError) -> None:
        missing.append(Missing(str(error.filename), _reason(error)))
    for top in (root, *elsewhere):
        for folder, _folders, names in os.walk(top, onerror=unreadable):
            inner = os.path.relpath(folder, top)
            kind = "." if inner == "." and top == root else top if top != root else inner.split(os.sep)[0]
            count = counts.setdefault(kind, {"files": 0, "bytes": 0, "allocated": 0, "segments": 0})
            for name in sorted(names):
                if len(rows) >= _MAX_LISTED:
                    return rows, {"folders": counts}, False
                try:
                    status = os.lstat(os.path.join(folder, name))
                except FileNotFoundError:  # a running broker has deleted it
                    continue
                count["files"] += 1
                count["bytes"] += status.st_size
                count["allocated"] += status.st_blocks * 512
                count["segments"] += is_segment_name(name)
                moment = iso_time(int(status.st_mtime * 1000)) or "?"
                rows.append(f"{status.st_size}\t{status.st_blocks * 512}\t{moment}\t{os.path.join(folder, name)!r}")
    return rows, {"folders": counts}, True
