"""The files of an archive, on whatever file system Spark reaches: file:, hdfs:, s3a:, viewfs: and others.

Where the driver has a JVM of its own, through Hadoop's FileSystem. With Spark Connect, which has none, through Spark's
readers and writers: a file is then a folder with one part in it, and removing leaves an empty folder. Both read what
the other wrote. No rename of a folder is used, and none of a file that would have to replace another one.
"""
import os
import posixpath
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqha.common.filesystem import fsync_path
from rmqha.pipeline.archive.archive_layout import archive_path
from rmqha.pipeline.options import PipelineError
from rmqha.pipeline.session import is_connect

_FEW = 500  # files: more are listed by tasks, whose answers come in one piece


class ArchiveFiles(Protocol):
    """Names are relative to `root`, with / between folders."""

    root: str

    def path(self, name: str) -> str:
        """What Spark takes as a path. PipelineError for a name that leads out of the archive."""

    def listed(self, folder: str) -> dict[str, int]:
        """Files below a folder, at any depth -> bytes; names are relative to it. Empty when there is no such folder."""

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """Contents of files. PipelineError when one is missing."""

    def write(self, name: str, text: str) -> None:
        """A new file of one or more lines, all or nothing."""

    def remove(self, names: Iterable[str]) -> None:
        """Files or folders with all that is in them; those that are not there are no fault."""

    def runs(self, folder: str, prefix: str) -> list[str]:
        """Names of the folders in `folder` that begin with `prefix`."""

    def sync(self, names: Iterable[str]) -> None:
        """Force files to the disk, where this machine can."""


def archive_files(spark: SparkSession, root: str) -> ArchiveFiles:
    """Of the archive at `root`: a path, or a URI of a file system that Spark knows."""
    if not root:
        raise PipelineError("an archive needs a path")
    if is_connect(spark):
        return ReaderFiles(spark, root if "://" in root else os.path.abspath(root))
    return GatewayFiles(spark, root if "://" in root or root.startswith("file:") else os.path.abspath(root))


def _logical(name: str) -> str:
    """A file that Spark wrote is a folder with a part in it."""
    folder, base = posixpath.split(name)
    return folder if base.startswith("part-") and not base.endswith(".parquet") else name


def _told(error: Exception) -> str:
    """The first line of a long story."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    java = getattr(error, "java_exception", None)
    return str(java.toString()).splitlines()[0] if java is not None else lines[0] if lines else repr(error)


class GatewayFiles:
    """Through the driver's JVM."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark: Any = spark
        self._jvm = self._spark._jvm
        self._made = self._jvm.org.apache.hadoop.fs.Path
        # with what the session sets, and with class loaders of jars that were added
        conf = self._spark._jsparkSession.sessionState().newHadoopConf()
        given = self._try(lambda: self._made(root), root)
        self._fs = self._try(lambda: given.getFileSystem(conf), root)
        self.root = str(self._fs.makeQualified(given).toString())

    def path(self, name: str) -> str:
        """See ArchiveFiles."""
        return archive_path(self.root, name)

    def _try(self, work: Callable[[], Any], name: str) -> Any:
        from py4j.protocol import Py4JJavaError
        try:
            return work()
        except Py4JJavaError as error:
            raise PipelineError(f"{name}: {_told(error)}") from error

    def listed(self, folder: str) -> dict[str, int]:
        """See ArchiveFiles."""
        found: dict[str, int] = self._try(lambda: self._listed(folder), self.path(folder))
        return found

    def _listed(self, folder: str) -> dict[str, int]:
        top = self._made(self.path(folder))
        if not self._fs.exists(top):
            return {}
        begin = len(str(top.toString())) + 1
        found, entries = {}, self._fs.listFiles(top, True)
        while entries.hasNext():
            entry = entries.next()
            name = str(entry.getPath().toString())[begin:]
            if not any(part.startswith((".", "_")) for part in name.split("/")):
                found[_logical(name)] = int(entry.getLen())
            if len(found) > _FEW:
                return _listed_by_spark(self._spark, self.path(folder))
        return found

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """See ArchiveFiles."""
        return {name: self._try(partial(self._read, name), self.path(name)) for name in names}

    def _read(self, name: str) -> bytes:
        path = self._made(self.path(name))
        if self._fs.getFileStatus(path).isDirectory():
            path = next(entry.getPath() for entry in self._fs.listStatus(path)
                        if str(entry.getPath().getName()).startswith("part-"))
        stream = self._fs.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """See ArchiveFiles."""
        self._try(lambda: self._write(name, text.encode()), self.path(name))

    def _write(self, name: str, data: bytes) -> None:
        # an object store shows a whole file or none, others what has been written of it: so it gets its name last
        path = self._made(self.path(name))
        new = self._made(path.getParent(), f".new-{uuid4().hex}")
        self._fs.mkdirs(path.getParent())
        stream = self._fs.create(new, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        self.sync([posixpath.relpath(str(new.toString()), self.root)])
        if self._fs.exists(path) or not self._fs.rename(new, path):
            self._fs.delete(new, False)
            raise PipelineError(f"{self.path(name)} is there already: somebody else writes to this archive")
        self.sync([posixpath.dirname(name)])

    def remove(self, names: Iterable[str]) -> None:
        """See ArchiveFiles."""
        for name in names:
            self._try(partial(self._fs.delete, self._made(self.path(name)), True), self.path(name))

    def runs(self, folder: str, prefix: str) -> list[str]:
        """See ArchiveFiles."""
        def names() -> list[str]:
            entries = self._fs.globStatus(self._made(self.path(f"{folder}/{prefix}*")))
            return [str(entry.getPath().getName()) for entry in entries or ()]
        found: list[str] = self._try(names, self.path(folder))
        return found

    def sync(self, names: Iterable[str]) -> None:
        """See ArchiveFiles."""
        if self.root.startswith("file:"):
            for name in names:
                path = self.path(name).removeprefix("file:").replace("//", "/", 1)
                if os.path.exists(path):
                    fsync_path(path)


def _listed_by_spark(spark: SparkSession, folder: str) -> dict[str, int]:
    """By tasks: the names come back in one piece, also when there are very many."""
    try:
        rows = (spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder)
                .select("path", "length").toArrow())
    except PySparkException as error:
        if "PATH_NOT_FOUND" in str(error):
            return {}
        raise PipelineError(f"{folder}: {_told(error)}") from error
    begin = urlsplit(folder).path + "/"
    return {_logical(path.partition(begin)[2]): length
            for path, length in zip(rows["path"].to_pylist(), rows["length"].to_pylist(), strict=True)}


class ReaderFiles:
    """Through Spark's readers and writers."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")

    def path(self, name: str) -> str:
        """See ArchiveFiles."""
        return archive_path(self.root, name)

    def listed(self, folder: str) -> dict[str, int]:
        """See ArchiveFiles."""
        return _listed_by_spark(self._spark, self.path(folder))

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """See ArchiveFiles."""
        found = {}
        for name in names:
            rows = self._spark.read.format("binaryFile").load(self.path(name)).select("content").toArrow()
            if len(rows) != 1:
                raise PipelineError(f"{self.path(name)} is {len(rows)} files, not one")
            found[name] = rows["content"][0].as_py()
        return found

    def write(self, name: str, text: str) -> None:
        """See ArchiveFiles."""
        try:
            (self._spark.createDataFrame([(text,)], "value string").coalesce(1)
             .write.mode("error").text(self.path(name)))
        except PySparkException as error:
            raise PipelineError(f"{self.path(name)}: {_told(error)}") from error

    def remove(self, names: Iterable[str]) -> None:
        """See ArchiveFiles."""
        for name in names:
            # without rows there is no value of `part`, so no file is written in the place of those that were there
            (self._spark.createDataFrame([], "value string, part string")
             .write.mode("overwrite").partitionBy("part").text(self.path(name)))

    def runs(self, folder: str, prefix: str) -> list[str]:
        """See ArchiveFiles."""
        return sorted({name.partition("/")[0] for name in self.listed(folder) if name.startswith(prefix)})

    def sync(self, names: Iterable[str]) -> None:
        """See ArchiveFiles: nothing can be done here."""
