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
import re
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from rmqha.common.compression import inflate
from rmqha.common.texts import parse_json, path_below
from rmqha.pipeline.options import PipelineError

VERSION = 2
DATA, MANIFESTS, LOCKS = "data", "_manifest", "_lock"
SINGLE, MANY = ".json", ".jsonl.gz"
# Of a run while it is written: pieces and residues lie beside the messages, where the day is null.
FRAMES = "day=__HIVE_DEFAULT_PARTITION__"
COLUMNS = ("topic", "queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "tags", "keys", "uniqKey",
           "physicalOffset", "storeSize", "sysFlag", "bodyCrc", "crcOk", "storedBody", "remainder", "piece")
MOST_BYTES = 256 << 20  # of a file of manifests, packed or not
MOST_OF_A_SEGMENT = 1 << 40
_DAY_MS = 86_400_000
_LAST_OFFSET = (1 << 63) - 1
_NAME = re.compile(r"([0-9]{20})-([0-9]{20})(?:-[0-9A-Za-z]{1,64})?(?:\.json|\.jsonl\.gz)?")
_PATTERN = frozenset("*?[]{}\\")  # Spark would take them for other files


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
        """The bytes, without the zeros at their end. ValueError when they are damaged, or more than `size`."""
        return inflate(base64.b64decode(self.data), self.size)


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
    found = _NAME.fullmatch(name)
    if found is None:
        raise PipelineError(f"{name!r:.200} is no name of a manifest")
    return int(found[1]), int(found[2])


def archive_path(root: str, name: str) -> str:
    """Where a file or folder of an archive is. PipelineError for a name that leads out of it."""
    try:
        return f"{root}/{path_below(name.removesuffix('/'), 'the name')}" if name else root
    except ValueError as error:
        raise PipelineError(f"{root}: {error}") from None


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """A manifest of version 1 or 2. PipelineError when the text is not one; `where` tells its file."""
    try:
        fields = parse_json(text, where)
        if fields["version"] == 1:
            return _of_version_1(fields)
        if fields["version"] != VERSION:
            raise PipelineError(f"{where}: version {fields['version']} of the archive is not known, only 1 and "
                                f"{VERSION}")
        fields["pieces"] = [Piece(*piece) for piece in fields["pieces"]]
        fields["residues"] = [Residue(*residue) for residue in fields["residues"]]
        fields["segments"] = [(start, size) for start, size in fields["segments"]]
        fields["tail"] = fields["tail"] and Tail(*fields["tail"])
        return _checked(Manifest(**fields))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, PipelineError):
            raise
        raise PipelineError(f"{where} is no manifest of an archive: {error!r:.500}") from error


def _checked(manifest: Manifest) -> Manifest:
    """ValueError for what later would go wrong at a place that says less."""
    offsets = [manifest.begin, manifest.end, manifest.rows, *(manifest.tail or ())[:2],
               *(number for piece in manifest.pieces for number in (piece.begin, piece.end, piece.rows, piece.number)),
               *(number for residue in manifest.residues for number in residue[:2]),
               *(number for segment in manifest.segments for number in segment)]
    crcs = [piece.crc32 for piece in manifest.pieces] + ([manifest.tail.crc32] if manifest.tail else [])
    times = [manifest.minTime, manifest.maxTime]
    if not (_within(offsets, 0, _LAST_OFFSET) and _within(crcs, 0, 0xFFFF_FFFF)
            and _within(times, -_LAST_OFFSET - 1, _LAST_OFFSET)) or range_of_name(manifest.name) \
            != (manifest.begin, manifest.end) or not isinstance(manifest.source, str):
        raise ValueError("its numbers are not right")
    for name in manifest.files:
        path_below(name, "its files are not right:")
    if not _within(list(manifest.files.values()), 0, _LAST_OFFSET) or any(map(_PATTERN.intersection, manifest.files)):
        raise ValueError("its files are not right")
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
    """Whether all are whole numbers of a range; neither true and false, nor 1e30."""
    return all(type(number) is int and low <= number <= high for number in numbers)


def _check_residues(manifest: Manifest) -> None:
    if not all(isinstance(each.data, str) for each in manifest.residues):
        raise ValueError("its residues are not right")
    for each in manifest.residues:
        if not manifest.begin <= each.offset <= each.offset + each.size <= manifest.end:
            raise ValueError(f"its residue at offset {each.offset} lies outside of its range")


def _check_segments(manifest: Manifest) -> None:
    """Each piece, and a range of version 1 as a whole, is made in one file of the log."""
    segments = manifest.segments
    for (start, size), (following, _) in zip(segments, [*segments[1:], (_LAST_OFFSET + 1, 0)]):
        if not 0 < size <= MOST_OF_A_SEGMENT or start + size > following:
            raise ValueError(f"its segment at offset {start} has {size} bytes, which can't be")
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
    except ValueError:  # of a message whose time is beyond the calendar
        return 0
