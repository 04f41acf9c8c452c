"""The format of an archive, and access to its files, lock and manifests; shared by the jobs.

PATH is a folder in any file system that Spark reaches: file:, hdfs:, s3a:, viewfs: and others.

    PATH/data/run=<begin>-<end>-<id>/day=<day>/*.parquet   messages of one run of the job (offsets of 20 digits each),
                                                           sorted by topic, queue and offset within each file
    PATH/_manifest/<begin>-<end>-<id>.json                 what the run added, written last: without it the run does
                                                           not count
    PATH/_manifest/<begin>-<end>-<id>.jsonl.gz             many manifests, one per line, replacing their single files
    PATH/_lock/                                            the current writer

Spark and other readers of Parquet ignore folders that begin with an underscore, and read run and day as columns. The
day is that of the store time, in UTC; 1970-01-01 for times outside the calendar. A message is its columns, its body as
stored, and its remainder (see `archive_scan`). Bytes between and after the records are in the manifest, so the log can
be restored byte for byte. Files of an interrupted run belong to no manifest; the next run removes them. See `archive`
for the protocol that commits a run.

Version 1, which can still be read, has PATH/range=<begin>-<end>/topic=<topic>/day=<day>/*.parquet with the whole
envelope of each record, and a manifest for each range.

- `ArchiveFiles`: `GatewayFiles` uses Hadoop's FileSystem in the driver's JVM. `ReaderFiles` uses Spark's readers and
  writers, for Spark Connect, which has no JVM: there a file is a folder with one part in it, and removal leaves an
  empty folder. Each reads files that the other wrote. Neither renames a folder, nor replaces an existing file by a
  rename.
- `Lock`: one writer at a time. Each writer first writes a file, then looks for files of others. So if two start at the
  same time, at least one sees the other, on any file system; both may give up. A lock of this machine is ignored
  once its process has ended. A lock of another machine is valid until it is removed by hand (`break_lock`).
- `Manifests`: files of manifests are merged, so that a run reads one listing and one file, and even 100,000 runs leave
  few files. A merged file replaces all others whose ranges lie within its own. Those remain if a run is interrupted
  after it wrote the merged file and before it removed the others.

    single ones --MOST_SINGLE of them--> one file of many --MOST_MANY such--> one file of all
"""
import base64
import gzip
import json
import os
import posixpath
import re
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from uuid import uuid4

import psutil
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rmqha.common.compression import GZIP, inflate
from rmqha.common.filesystem import fsync_path
from rmqha.common.texts import parse_json, path_below
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.session import is_connect

VERSION = 2
DATA, MANIFESTS, LOCKS = "data", "_manifest", "_lock"
SINGLE, MANY = ".json", ".jsonl.gz"
# Of a run while it is being written: pieces and residues are stored beside the messages, with a null day.
FRAMES = "day=__HIVE_DEFAULT_PARTITION__"
COLUMNS = ("topic", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "tags", "keys", "uniqKey",
           "physicalOffset", "storeSize", "sysFlag", "bodyCrc", "crcOk", "storedBody", "remainder", "piece")
# Of a file of manifests, compressed or not.
MOST_BYTES = 256 << 20
MOST_OF_A_SEGMENT = 1 << 40
_DAY_MS = 86_400_000
_LAST_OFFSET = (1 << 63) - 1
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})(?:-[0-9A-Za-z]{1,64})?(?:\.json|\.jsonl\.gz)?")
# Spark would expand them to other files.
_PATTERN = frozenset("*?[]{}\\")


class Piece(NamedTuple):
    """The CRC32 of the bytes [begin, end) of the log. In version 2 records begin and end there, and the column
    `piece` of a message is the number of its piece: where the task began to search.
    """

    begin: int
    end: int
    crc32: int
    rows: int = 0
    number: int = 0


class Residue(NamedTuple):
    """Bytes of the log at `offset` that are not a message, in zlib and base64, without the zeros at their end."""

    offset: int
    size: int
    data: str

    @classmethod
    def of(cls, offset: int, data: bytes) -> "Residue":
        """Compress bytes."""
        packed = base64.b64encode(zlib.compress(data.rstrip(b"\0"))).decode()
        return cls(offset, len(data), packed)

    def content(self) -> bytes:
        """Return the bytes, without the zeros at their end. ValueError if they are damaged, or more than `size`."""
        return inflate(base64.b64decode(self.data), self.size)


class Tail(NamedTuple):
    """The CRC32 of the last bytes of a run, which identify the log."""

    begin: int
    end: int
    crc32: int


@dataclass
class Manifest:
    """The result of one run. Times are store times in ms; offsets are the log's."""

    begin: int
    end: int
    name: str
    rows: int
    source: str
    # Offset of the first byte, and size, of the log's files in the run.
    segments: list[tuple[int, int]]
    pieces: list[Piece] = field(default_factory=list)
    residues: list[Residue] = field(default_factory=list)
    # Parquet files below the run's folder -> bytes.
    files: dict[str, int] = field(default_factory=dict)
    minTime: int = 0
    maxTime: int = 0
    tail: Tail | None = None
    version: int = VERSION

    @property
    def folder(self) -> str:
        """The folder of the messages, below the archive."""
        return f"{DATA}/run={self.name}" if self.version > 1 else f"range={self.name}"

    @property
    def bytes(self) -> int:
        """The size of the run's Parquet files."""
        return sum(self.files.values())

    def to_json(self) -> str:
        """Return the text of the manifest: one line."""
        return json.dumps(asdict(self))


def run_name(begin: int, end: int, mark: str) -> str:
    """Return the name of a run; `mark` distinguishes two runs of the same range."""
    return f"{begin:020d}-{end:020d}-{mark}"


def range_of_name(name: str) -> tuple[int, int]:
    """Return (begin, end) from the name of a run or of a file of manifests. PipelineError for another name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise PipelineError(f"{name!r:.200} is not the name of a manifest")
    return int(found[1]), int(found[2])


def archive_path(root: str, name: str) -> str:
    """Return the path of a file or folder of an archive. PipelineError for a name that leads out of it."""
    try:
        return f"{root}/{path_below(name.removesuffix('/'), 'the name')}" if name else root
    except ValueError as error:
        raise PipelineError(f"{root}: {error}") from None


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """Return a manifest of version 1 or 2. PipelineError if the text is not one; `where` names its file."""
    try:
        fields = parse_json(text, where)
        if fields["version"] == 1:
            return _of_version_1(fields)
        if fields["version"] != VERSION:
            raise PipelineError(f"{where}: unknown archive version {fields['version']}; known are 1 and "
                                f"{VERSION}")
        fields["pieces"] = [Piece(*piece) for piece in fields["pieces"]]
        fields["residues"] = [Residue(*residue) for residue in fields["residues"]]
        fields["segments"] = [(start, size) for start, size in fields["segments"]]
        fields["tail"] = fields["tail"] and Tail(*fields["tail"])
        return _checked(Manifest(**fields))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"{where} is not a manifest of an archive: {error!r:.500}") from error


def _checked(manifest: Manifest) -> Manifest:
    """Return the manifest, or raise ValueError for what would fail later with a less helpful error."""
    offsets = [manifest.begin, manifest.end, manifest.rows, *(manifest.tail or ())[:2],
               *(number for piece in manifest.pieces for number in (piece.begin, piece.end, piece.rows, piece.number)),
               *(number for residue in manifest.residues for number in residue[:2]),
               *(number for segment in manifest.segments for number in segment)]
    crcs = [piece.crc32 for piece in manifest.pieces] + ([manifest.tail.crc32] if manifest.tail else [])
    times = [manifest.minTime, manifest.maxTime]
    if not (_within(offsets, 0, _LAST_OFFSET) and _within(crcs, 0, 0xFFFF_FFFF)
            and _within(times, -_LAST_OFFSET - 1, _LAST_OFFSET)) or range_of_name(manifest.name) \
            != (manifest.begin, manifest.end) or not isinstance(manifest.source, str):
        raise ValueError("its numbers are invalid")
    for name in manifest.files:
        path_below(name, "its files are invalid:")
    if not _within(list(manifest.files.values()), 0, _LAST_OFFSET) or any(map(_PATTERN.intersection, manifest.files)):
        raise ValueError("its files are invalid")
    position = manifest.begin
    for piece in manifest.pieces:
        if piece.begin != position or piece.end < position:
            raise ValueError(f"its pieces do not meet at offset {position}")
        position = piece.end
    if position != manifest.end:
        raise ValueError(f"its pieces end at offset {position}")
    _check_residues(manifest)
    _check_segments(manifest)
    return manifest


def _within(numbers: Sequence[object], low: int, high: int) -> bool:
    """Return whether all are whole numbers in a range; true, false and 1e30 are not."""
    return all(type(number) is int and low <= number <= high for number in numbers)


def _check_residues(manifest: Manifest) -> None:
    if not all(isinstance(each.data, str) for each in manifest.residues):
        raise ValueError("its residues are invalid")
    for each in manifest.residues:
        if not manifest.begin <= each.offset <= each.offset + each.size <= manifest.end:
            raise ValueError(f"its residue at offset {each.offset} is outside its range")


def _check_segments(manifest: Manifest) -> None:
    """Check that each piece, or a range of version 1 as a whole, is within one file of the log."""
    segments = manifest.segments
    for (start, size), (following, _) in zip(segments, [*segments[1:], (_LAST_OFFSET + 1, 0)]):
        if not 0 < size <= MOST_OF_A_SEGMENT or start + size > following:
            raise ValueError(f"its segment at offset {start} has {size} bytes, which is impossible")
    spans = [(piece.begin, piece.end) for piece in manifest.pieces] if manifest.version > 1 \
        else [(manifest.begin, manifest.end)]
    number = 0
    for begin, end in spans:
        while number < len(segments) and segments[number][0] + segments[number][1] <= begin:
            number += 1
        if begin < end and not (number < len(segments) and segments[number][0] <= begin
                                and end <= segments[number][0] + segments[number][1]):
            raise ValueError(f"none of its segments has the bytes from offset {begin} to {end}")


def _of_version_1(fields: dict[str, Any]) -> Manifest:
    begin, end = fields["begin"], fields["end"]
    pieces = [Piece(piece["begin"], piece["end"], piece["crc32"]) for piece in fields["pieces"]]
    residues = [Residue(each["offset"], each["size"], each["data"]) for each in fields["residues"]]
    files = {str(name): size for name, size in fields["files"].items()}
    days = sorted(name.partition("day=")[2][:10] for name in files)
    last = pieces[-1]
    return _checked(Manifest(begin, end, f"{begin:020d}-{end:020d}", fields["rows"], fields["source"],
                             [(fields["segment"], fields["fileSize"])], pieces, residues, files,
                             _day_ms(days[0]) if days else 0, _day_ms(days[-1]) + _DAY_MS - 1 if days else 0,
                             Tail(last.begin, last.end, last.crc32), 1))


def _day_ms(day: str) -> int:
    from datetime import UTC, datetime
    try:
        return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
    # The time of a message is outside the calendar.
    except ValueError:
        return 0


# Files; if there are more, tasks list them, and their answers come in one piece.
_FEW = 500


class ArchiveFiles(Protocol):
    """Access to an archive's files. Names are relative to `root`, with / between folders."""

    root: str

    def path(self, name: str) -> str:
        """Return the path for Spark. PipelineError for a name that leads out of the archive."""

    def listed(self, folder: str) -> dict[str, int]:
        """Return the files below a folder, at any depth -> bytes; names are relative to it. Empty if it does not
        exist.
        """

    def read(self, names: Collection[str]) -> dict[str, bytes]:
        """Return the contents of files. PipelineError if one is missing."""

    def write(self, name: str, text: str) -> None:
        """Write a new file of one or more lines, all or nothing."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, or folders with their contents; missing ones are ignored."""

    def runs(self, folder: str, prefix: str) -> list[str]:
        """Return the names of the folders in `folder` that begin with `prefix`."""

    def sync(self, names: Iterable[str]) -> None:
        """Force files to disk, where this machine can."""


def archive_files(spark: SparkSession, root: str) -> ArchiveFiles:
    """Return the files of the archive at `root`: a path, or a URI of a file system that Spark supports."""
    if not root:
        raise PipelineError("an archive needs a path")
    if is_connect(spark):
        return ReaderFiles(spark, root if "://" in root else os.path.abspath(root))
    return GatewayFiles(spark, root if "://" in root or root.startswith("file:") else os.path.abspath(root))


def _logical(name: str) -> str:
    """Return the name of a file: one that Spark wrote is a folder with a part in it."""
    folder, base = posixpath.split(name)
    return folder if base.startswith("part-") and not base.endswith(".parquet") else name


def _told(error: Exception) -> str:
    """Return the first line of a long error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    java = getattr(error, "java_exception", None)
    return str(java.toString()).splitlines()[0] if java is not None else lines[0] if lines else repr(error)


class GatewayFiles:
    """Access through the driver's JVM."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark: Any = spark
        self._jvm = self._spark._jvm
        self._made = self._jvm.org.apache.hadoop.fs.Path
        # Use the session's settings, and the class loaders of jars that were added.
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
        # An object store shows a whole file or none; others show what has been written so far. So it gets its name
        # last.
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
            raise PipelineError(f"{self.path(name)} already exists: another process writes to this archive")
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
    """List files in tasks: the names come back in one piece, even if there are very many."""
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
    """Access through Spark's readers and writers."""

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
            # Without rows `part` has no value, so no file is written in place of the existing ones.
            (self._spark.createDataFrame([], "value string, part string")
             .write.mode("overwrite").partitionBy("part").text(self.path(name)))

    def runs(self, folder: str, prefix: str) -> list[str]:
        """See ArchiveFiles."""
        return sorted({name.partition("/")[0] for name in self.listed(folder) if name.startswith(prefix)})

    def sync(self, names: Iterable[str]) -> None:
        """See ArchiveFiles: does nothing, as it can't be done here."""


@contextmanager
def locked(files: ArchiveFiles, what: str, break_lock: bool = False) -> Iterator["Lock"]:
    """Hold the lock during the block. PipelineError if another process writes."""
    lock = Lock(files, what)
    if break_lock:
        files.remove(f"{LOCKS}/{name}" for name in files.listed(LOCKS))
    lock.take()
    try:
        yield lock
    finally:
        lock.give_back()


class Lock:
    """The lock of one writer."""

    def __init__(self, files: ArchiveFiles, what: str) -> None:
        self._files = files
        self._name = f"{uuid4().hex}.json"
        self._what = what

    def take(self) -> None:
        """Acquire the lock. PipelineError if another process has it."""
        process = psutil.Process()
        told = {"host": os.uname().nodename, "pid": process.pid, "started": process.create_time(),
                "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "what": self._what}
        self._files.write(f"{LOCKS}/{self._name}", json.dumps(told))
        gone, living = [], ""
        for name in self._files.listed(LOCKS):
            if name != self._name and not living:
                living = self._who(name)
                gone += [] if living else [f"{LOCKS}/{name}"]
        if living:
            self.give_back()
            raise PipelineError(f"{self._files.root} is being written by {living}. Only one can write at a time: wait "
                                "for it; if it has certainly ended, add --break-lock")
        self._files.remove(gone)

    def _who(self, name: str) -> str:
        """Return a description of a lock's owner; "" if the lock is no longer held."""
        try:
            told = parse_json(self._files.read([f"{LOCKS}/{name}"])[f"{LOCKS}/{name}"], name)
            host, pid, started = str(told["host"]), int(told["pid"]), float(told["started"])
        except PipelineError:
            return "" if name not in self._files.listed(LOCKS) else f"an unknown process (lock {name} can't be read)"
        except (ArithmeticError, KeyError, TypeError, ValueError):
            return f"an unknown process (lock {name} is damaged)"
        if not 0 < pid < 1 << 31:
            return f"an unknown process (lock {name} is damaged)"
        if host == os.uname().nodename and not _is_alive(pid, started):
            return ""
        return f"process {pid} on {host} ({told.get('what')}) since {told.get('since')}"

    def check(self) -> None:
        """Raise PipelineError if another process has broken the lock."""
        if self._name not in self._files.listed(LOCKS):
            raise PipelineError(f"{self._files.root}: another process broke the lock of this one, so its work does not "
                                "count")

    def give_back(self) -> None:
        """Release the lock."""
        self._files.remove([f"{LOCKS}/{self._name}"])


def _is_alive(pid: int, started: float) -> bool:
    try:
        return abs(psutil.Process(pid).create_time() - started) < 1 and pid != os.getpid()
    except psutil.NoSuchProcess:
        return False


MOST_SINGLE, MOST_MANY = 100, 100


class Manifests:
    """The manifests of one archive."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def names(self) -> list[str]:
        """Return the files that count, in the order of the log."""
        names = [name for name in self._files.listed(MANIFESTS) if name.endswith((SINGLE, MANY))]
        by_range = sorted(names, key=lambda name: (range_of_name(name)[0], -range_of_name(name)[1],
                                                   not name.endswith(MANY), name))
        found: list[str] = []
        for name in by_range:
            inner, outer = range_of_name(name), range_of_name(found[-1]) if found else (0, -1)
            if not (outer[0] <= inner[0] and inner[1] <= outer[1] and found[-1].endswith(MANY)):
                found.append(name)
        return found

    def last(self) -> Manifest | None:
        """Return the manifest at the end of the archive."""
        names = self.names()
        return self._read(names[-1:])[-1] if names else None

    def since(self, offset: int) -> list[Manifest]:
        """Return the manifests that may reach beyond an offset, in the order of the log."""
        return self._read([name for name in self.names() if range_of_name(name)[1] > offset])

    def all(self) -> list[Manifest]:
        """Return all manifests, in the order of the log. PipelineError if ranges overlap."""
        found = self._read(self.names())
        for one, other in zip(found, found[1:]):
            if other.begin < one.end:
                raise PipelineError(f"{self._files.root}: the ranges {one.name} and {other.name} overlap")
        return found

    def _read(self, names: Sequence[str]) -> list[Manifest]:
        found: list[Manifest] = []
        sizes = self._files.listed(MANIFESTS) if names else {}
        for name in names:
            if sizes.get(name, 0) > MOST_BYTES:
                raise PipelineError(f"{self._files.path(f'{MANIFESTS}/{name}')} has {sizes[name]} bytes, a file of "
                                    f"manifests has at most {MOST_BYTES}: it is damaged, or not rmqha's")
        for path, data in self._files.read([f"{MANIFESTS}/{name}" for name in names]).items():
            where = self._files.path(path)
            if not path.endswith(MANY):
                found.append(parse_manifest(data, where))
                continue
            found += [parse_manifest(line, f"{where}, line {number}")
                      for number, line in enumerate(_unpacked(data, where).splitlines(), 1)]
        return found

    def add(self, manifest: Manifest) -> None:
        """Make the run count. PipelineError if its manifest would be too large to be read again."""
        text = manifest.to_json()
        if len(text) > MOST_BYTES:
            raise PipelineError(f"offsets {manifest.begin} to {manifest.end} of the log have so many bytes that are "
                                f"not messages that their manifest is larger than {MOST_BYTES} bytes: use smaller runs")
        self._files.write(f"{MANIFESTS}/{manifest.name}{SINGLE}", text)

    def compact(self, most_single: int = MOST_SINGLE, most_many: int = MOST_MANY) -> None:
        """Merge manifests if there are many files of them."""
        names = self.names()
        single = [name for name in names if not name.endswith(MANY)]
        if len(single) < most_single:
            return
        many = [name for name in names if name.endswith(MANY)]
        # Only neighbors: a merged file covers its whole range.
        chosen = names if len(many) + 1 >= most_many else names[len(names) - len(single):]
        if self._put_together(self._read(chosen)):
            self._tidy()

    def _tidy(self) -> None:
        """Remove the files that do not count."""
        names = set(self.names())
        self._files.remove(f"{MANIFESTS}/{name}" for name in self._files.listed(MANIFESTS) if name not in names)

    def _put_together(self, manifests: Sequence[Manifest]) -> bool:
        """Merge manifests into one file; return False if it would be too large to be read again."""
        text = "\n".join(each.to_json() for each in manifests).encode()
        if len(text) > MOST_BYTES:
            return False
        packed = gzip.compress(text, mtime=0)
        name = f"{manifests[0].begin:020d}-{manifests[-1].end:020d}-{len(manifests)}{MANY}"
        # Otherwise an interrupted run has written the same.
        if name not in self._files.listed(MANIFESTS):
            self._files.write(f"{MANIFESTS}/{name}", base64.b64encode(packed).decode())
        return True

    def keep_from(self, first: Manifest) -> None:
        """Remove all manifests before `first`."""
        # Otherwise files that are covered now would count again.
        self._tidy()
        gone = []
        for name in self.names():
            begin, end = range_of_name(name)
            if begin < first.begin:
                kept = [each for each in self._read([name]) if each.begin >= first.begin]
                if kept:
                    self._put_together(kept)
                gone.append(f"{MANIFESTS}/{name}")
            if end > first.begin:
                break
        self._files.remove(gone)


def _unpacked(data: bytes, where: str) -> str:
    try:
        return inflate(base64.b64decode(data), MOST_BYTES, GZIP).decode()
    except ValueError as error:
        raise PipelineError(f"{where} does not contain manifests of an archive: {error}") from error
