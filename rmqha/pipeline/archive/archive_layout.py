"""What an archive consists of: pure, shared by the jobs. PATH is a folder of any file system that Spark reaches.

    PATH/data/run=<begin>-<end>-<id>/day=<day>/*.parquet   messages of one run of the job (offsets of 20 digits each),
                                                           sorted by topic, queue and offset within each file
    PATH/_manifest/<begin>-<end>-<id>.json                 what the run added, written last: without it the run does
                                                           not count
    PATH/_manifest/<begin>-<end>-<id>.jsonl.gz             many manifests, one a line, in the place of their own files
    PATH/_lock/                                            who is writing

Spark and other readers of Parquet leave out folders that begin with an underscore, and see run and day (UTC, of
storing; 1970-01-01 for times beyond the calendar) as columns. A message is its columns, its body as stored, and its
remainder (see `remainder`). What lies between and behind the records is in the manifest, so the log can be made again
byte for byte. Files of a run that was broken off belong to no manifest; the next run removes them.

Version 1, which is still read, had PATH/range=<begin>-<end>/topic=<topic>/day=<day>/*.parquet with the whole envelope
of each record, and a manifest for each range.
"""
import base64
import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rmqha.pipeline.options import PipelineError

VERSION = 2
DATA, MANIFESTS, LOCKS = "data", "_manifest", "_lock"
SINGLE, MANY = ".json", ".jsonl.gz"
# Of a run while it is written: pieces and residues lie beside the messages, where the day is null.
FRAMES = "day=__HIVE_DEFAULT_PARTITION__"
COLUMNS = ("topic", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "tags", "keys", "uniqKey",
           "physicalOffset", "storeSize", "sysFlag", "bodyCrc", "crcOk", "storedBody", "remainder", "piece")
_DAY_MS = 86_400_000


class Piece(NamedTuple):
    """CRC32 of the bytes [begin, end) of the log. In version 2 records begin and end there, and the column `piece`
    of a message is the number of the piece that it is in: where its task began to look.
    """

    begin: int
    end: int
    crc32: int
    rows: int = 0
    number: int = 0


class Residue(NamedTuple):
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


class Tail(NamedTuple):
    """CRC32 of the last bytes of a run, by which the log is known again."""

    begin: int
    end: int
    crc32: int


@dataclass
class Manifest:
    """What one run added. Times are ms, of storing; offsets are the log's."""

    begin: int
    end: int
    name: str
    rows: int
    source: str
    segments: list[tuple[int, int]]  # offset of the first byte, and bytes, of the files of the log that it touches
    pieces: list[Piece] = field(default_factory=list)
    residues: list[Residue] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)  # Parquet files below the run's folder -> bytes
    minTime: int = 0
    maxTime: int = 0
    tail: Tail | None = None
    version: int = VERSION

    @property
    def folder(self) -> str:
        """Where the messages are, below the archive."""
        return f"{DATA}/run={self.name}" if self.version > 1 else f"range={self.name}"

    @property
    def bytes(self) -> int:
        """Of its Parquet files."""
        return sum(self.files.values())

    def to_json(self) -> str:
        """The text of the manifest: one line."""
        return json.dumps(asdict(self))


def run_name(begin: int, end: int, mark: str) -> str:
    """The name of a run; `mark` keeps two runs of the same range apart."""
    return f"{begin:020d}-{end:020d}-{mark}"


def range_of_name(name: str) -> tuple[int, int]:
    """(begin, end) of the name of a run, of a manifest or of many. PipelineError for another name."""
    first, _, rest = name.partition("-")
    second = rest[:20]
    if len(first) != 20 or not (first + second).isdecimal() or len(second) != 20:
        raise PipelineError(f"{name} is no name of a manifest")
    return int(first), int(second)


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """A manifest of version 1 or 2. PipelineError when the text is not one; `where` tells its file."""
    try:
        fields = json.loads(text)
        if fields["version"] == 1:
            return _of_version_1(fields)
        if fields["version"] != VERSION:
            raise PipelineError(f"{where}: version {fields['version']} of the archive is not known, only 1 and "
                                f"{VERSION}")
        fields["pieces"] = [Piece(*piece) for piece in fields["pieces"]]
        fields["residues"] = [Residue(*residue) for residue in fields["residues"]]
        fields["segments"] = [(int(start), int(size)) for start, size in fields["segments"]]
        fields["tail"] = fields["tail"] and Tail(*fields["tail"])
        return _checked(Manifest(**fields))
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"{where} is no manifest of an archive: {error!r}") from error


def _checked(manifest: Manifest) -> Manifest:
    """ValueError for what later would go wrong at a place that tells less."""
    numbers = [manifest.begin, manifest.end, manifest.rows, manifest.minTime, manifest.maxTime,
               *(number for piece in manifest.pieces for number in piece),
               *(number for residue in manifest.residues for number in residue[:2]), *(manifest.tail or ())]
    if not all(isinstance(number, int) for number in numbers) or range_of_name(manifest.name) \
            != (manifest.begin, manifest.end):
        raise ValueError("its numbers are not right")
    if any(not isinstance(size, int) or name.startswith("/") or ".." in name.split("/")
           for name, size in manifest.files.items()):
        raise ValueError("its files are not right")
    position = manifest.begin
    for piece in manifest.pieces:
        if piece.begin != position or piece.end < position:
            raise ValueError(f"its pieces do not meet at offset {position}")
        position = piece.end
    if position != manifest.end:
        raise ValueError(f"its pieces end at offset {position}")
    return manifest


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
    except ValueError:  # of a message whose time is beyond the calendar
        return 0
