"""What an archive consists of: pure, shared by `archive` and `restore`.

    <archive>/range=<begin>-<end>/topic=<topic>/day=<day>/*.parquet    messages of one range of the log (20 digits each)
    <archive>/_manifest/<begin>-<end>.json                             what the range is, written last: without it the
                                                                       range does not count
    <archive>/_staging/                                                what is being written

Spark and other readers of Parquet leave out folders that begin with an underscore, and see range, topic and day (UTC,
of storing) as columns. A message is its columns, its body as stored, and its envelope: the record without the body.
What lies between and behind the records is in the manifest, so the range can be made again byte for byte.
"""
import base64
import json
import os
import zlib
from dataclasses import asdict, dataclass, field

from rmqha.common.fsync import fsync_path
from rmqha.pipeline.options import PipelineError

VERSION = 1
MANIFESTS, STAGING = "_manifest", "_staging"
COLUMNS = ("topic", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "tags", "keys", "uniqKey",
           "physicalOffset", "storeSize", "sysFlag", "bodyCrc", "crcOk", "storedBody", "envelope")


@dataclass
class Piece:
    """CRC32 of the bytes [begin, end) of the log."""

    begin: int
    end: int
    crc32: int


@dataclass
class Residue:
    """Bytes of the log at `offset` that are no message: zlib, then base64. Zeros at the end are left out."""

    offset: int
    size: int
    data: str

    @classmethod
    def of(cls, offset: int, data: bytes) -> "Residue":
        """Pack bytes."""
        packed = base64.b64encode(zlib.compress(data.rstrip(b"\0"))).decode()
        return cls(offset, len(data), packed)

    def content(self) -> bytes:
        """The bytes, without the zeros at their end."""
        return zlib.decompress(base64.b64decode(self.data))


@dataclass
class Manifest:
    """One range of a log in an archive."""

    begin: int
    end: int
    segment: int  # offset of the first byte of the file that the range lies in
    fileSize: int
    rows: int
    source: str
    pieces: list[Piece] = field(default_factory=list)
    residues: list[Residue] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)  # Parquet files below the range's folder -> bytes
    version: int = VERSION

    @property
    def name(self) -> str:
        """Of the range."""
        return range_name(self.begin, self.end)

    def folder(self, archive: str) -> str:
        """Where the messages are."""
        return os.path.join(archive, f"range={self.name}")

    def to_json(self) -> str:
        """The text of the manifest."""
        return json.dumps(asdict(self), indent=1)


def range_name(begin: int, end: int) -> str:
    """The name of a range."""
    return f"{begin:020d}-{end:020d}"


def manifest_path(archive: str, name: str) -> str:
    """The file of a manifest."""
    return os.path.join(archive, MANIFESTS, f"{name}.json")


def read_manifest(path: str) -> Manifest:
    """A manifest. PipelineError when the file is not one."""
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        if fields["version"] != VERSION:
            raise PipelineError(f"{path}: version {fields['version']} of the archive is not known, only {VERSION}")
        fields["pieces"] = [Piece(**piece) for piece in fields["pieces"]]
        fields["residues"] = [Residue(**residue) for residue in fields["residues"]]
        return Manifest(**fields)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"{path} is no manifest of an archive: {error!r}") from error


def read_manifests(archive: str) -> list[Manifest]:
    """All manifests in the order of the log. PipelineError when ranges overlap."""
    folder = os.path.join(archive, MANIFESTS)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [read_manifest(os.path.join(folder, name)) for name in names if name.endswith(".json")]
    for one, other in zip(found, found[1:]):
        if other.begin < one.end:
            raise PipelineError(f"{archive}: the ranges {one.name} and {other.name} overlap")
    return found


def write_manifest(archive: str, manifest: Manifest) -> None:
    """Write a manifest, all or nothing."""
    path = manifest_path(archive, manifest.name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    fsync_path(os.path.dirname(path))
