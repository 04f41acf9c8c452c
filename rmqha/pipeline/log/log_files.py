"""Finding commit logs: store roots, folders of commit log files, single files, and globs of them."""
import glob
import os
from collections.abc import Iterable
from typing import NamedTuple

from rmqha.common.filesystem import NAME_LENGTH, Segment, is_segment_name, list_segments
from rmqha.common.texts import JsonTextError, parse_json
from rmqha.pipeline.at_once import at_once
from rmqha.pipeline.options import Options, PipelineError

COMMIT_LOG = "commitlog"


class LogFiles(NamedTuple):
    """The files of one commit log in order. `name`: of the store, for the column brokerName; `path`: its folder."""

    name: str
    path: str
    segments: list[Segment]

    @property
    def min_offset(self) -> int:
        """Offset of the first byte; 0 for an empty log."""
        return self.segments[0].start if self.segments else 0

    @property
    def files_end(self) -> int:
        """Where the last file ends."""
        return self.segments[-1].end if self.segments else 0


def list_log(path: str, name: str) -> LogFiles:
    """The files of a commit log folder. PipelineError when it is gone."""
    try:
        return LogFiles(name, path, list_segments(path)[0])
    except OSError as error:
        raise PipelineError(f"{path}: {error.strerror}") from error


def wanted_paths(options: Options) -> list[str]:
    """The paths of `.load(...)` or of the option `path`, as given."""
    if "paths" in options:
        try:
            paths = parse_json(options.text("paths", ""), "paths")
        except JsonTextError as error:
            raise options.wrong("paths", f"a JSON list of paths: {error.reason}") from None
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise options.wrong("paths", "a JSON list of paths")
    else:
        paths = [options.text("path", "")]
    paths = [path for path in paths if path]
    if not paths:
        raise PipelineError(f"{options.where} needs a path: .load('/path/to/store'), a store root, a commitlog folder, "
                            "or a glob of them")
    return paths


def find_logs(paths: Iterable[str], name: str | None = None, errors: list[PipelineError] | None = None,
              ) -> list[LogFiles]:
    """The commit logs at `paths`; a log may have no files yet. PipelineError for a path that has none; where there is
    a list `errors`, it is put there instead.
    """
    matches: list[str] = []
    for given in paths:
        path = given.removeprefix("file://") if given.startswith("file://") else given.removeprefix("file:")
        if not glob.has_magic(path):
            matches.append(path)
        elif not (matching := sorted(glob.glob(path))):
            _raise_or_add(PipelineError(f"nothing matches {given}"), errors)
        else:
            matches += matching
    found: dict[str, LogFiles] = {}
    files: dict[str, list[Segment]] = {}
    for log in at_once(lambda match: _log_or_error(match, name), matches):
        if isinstance(log, PipelineError):
            _raise_or_add(log, errors)
        elif isinstance(log, Segment):
            files.setdefault(os.path.dirname(log.path), []).append(log)
        else:
            found[log.path] = log
    for folder, segments in files.items():
        found.setdefault(folder, LogFiles(name or _store_name(folder), folder, sorted(set(segments))))
    return list(found.values())


def _raise_or_add(error: PipelineError, errors: list[PipelineError] | None) -> None:
    if errors is None:
        raise error
    errors.append(error)


def _log_or_error(path: str, name: str | None) -> "LogFiles | Segment | PipelineError":
    """What lies at a path: a log, a single file of one, or the reason why neither."""
    try:
        return _single(os.path.abspath(path)) if os.path.isfile(path) else _folder(path, name)
    except PipelineError as error:
        return error


def _single(path: str) -> Segment:
    name = os.path.basename(path)
    if not is_segment_name(name):
        raise PipelineError(f"{path} is no commit log file: their names are {NAME_LENGTH} digits, the offset of the "
                            "first byte")
    return Segment(int(name), path, os.stat(path).st_size)


def _folder(path: str, name: str | None) -> LogFiles:
    if not os.path.isdir(path):
        raise PipelineError(f"{path}: there is no such folder or file")
    path = os.path.abspath(path)
    inner = os.path.join(path, COMMIT_LOG)
    if os.path.isdir(inner):
        return list_log(inner, name or os.path.basename(path))
    log = list_log(path, name or _store_name(path))
    if not log.segments and os.path.basename(path) != COMMIT_LOG:
        raise PipelineError(f"{path} is no store: it has neither a folder {COMMIT_LOG} nor commit log files (names of "
                            f"{NAME_LENGTH} digits). Give the broker's storePathRootDir or storePathCommitLog.")
    return log


def _store_name(folder: str) -> str:
    """The name of the store whose commit log folder this is."""
    parent, name = os.path.split(folder.rstrip("/"))
    return os.path.basename(parent) if name == COMMIT_LOG else name
