"""Whether a job's output can be written, asked before the work begins."""
import os
import tempfile

from rmqha.pipeline.options import PipelineError


def check_folder(path: str) -> None:
    """PipelineError when no file can be made in the folder `path`, or the folder itself can't be made. A path of
    another file system (hdfs://, s3a://) is left to Spark.
    """
    local = local_path(path)
    if local is not None:
        _check(path, os.path.abspath(local))


def check_file(path: str) -> None:
    """PipelineError when the file `path` can't be made: its folder must be there."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise PipelineError(f"{path} is a folder, not a file to write")
    if not os.path.isdir(folder):
        raise PipelineError(f"{path} can't be written: there is no folder {folder}")
    _check(path, folder)


def local_path(path: str) -> str | None:
    """The path in this machine's own file system; None for one of another."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    scheme, colon, _ = path.partition(":/")
    return None if colon and scheme.isalnum() and len(scheme) > 1 else path


def _check(path: str, folder: str) -> None:
    """`folder`: what must take a file; the nearest one above it that is there is tried."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise PipelineError(f"{path} can't be written: {folder}: {error.strerror}") from error
