"""Times, file names, checksums and folders.

Java: org.apache.rocketmq.common.UtilAll (4.9.8)
"""
import logging
import os
import time
import zlib
from datetime import UTC, datetime, timedelta
from typing import overload

log = logging.getLogger("RocketmqCommon")

# Before any monotonic time, whatever its unit: that clock may begin at 0 with the machine, so 0 can be a moment ago.
LONG_AGO = -(1 << 62)


def get_pid() -> int:
    """The number of this process."""
    return os.getpid()


def current_time_millis() -> int:
    """Wall clock: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_millis() -> int:
    """Milliseconds since some moment: what a step of the wall clock must not make longer or shorter."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_of(monotonic_ms: int) -> int:
    """The wall clock, in ms since 1970, at a monotonic time, as the clock stands now."""
    return current_time_millis() - (monotonic_millis() - monotonic_ms)


def offset2file_name(offset: int) -> str:
    """The file name of a mapped file: its first offset in 20 digits."""
    return f"{offset:020d}"


offset_to_file_name = offset2file_name


def compute_elapsed_time_milliseconds(begin_time: int) -> int:
    """Wall clock milliseconds since `begin_time`."""
    return current_time_millis() - begin_time


def is_it_time_to_do(when: str) -> bool:
    """True when the present hour is one of the `;` separated hours in `when`. Raises ValueError for a bad hour."""
    hours = [int(hour) for hour in when.rstrip(";").split(";")]
    return datetime.now().hour in hours


def time_millis_to_human_string(timestamp: int | None = None) -> str:
    """yyyyMMddHHmmssSSS in local time; of now without an argument."""
    moment = _local(current_time_millis() if timestamp is None else timestamp)
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"


def time_millis_to_human_string2(timestamp: int) -> str:
    """yyyy-MM-dd HH:mm:ss,SSS in local time."""
    moment = _local(timestamp)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + f",{moment.microsecond // 1000:03d}"


def time_millis_to_human_string3(timestamp: int) -> str:
    """yyyyMMddHHmmss in local time."""
    return _local(timestamp).strftime("%Y%m%d%H%M%S")


def format_date(timestamp: int) -> str:
    """yyyy-MM-dd HH:mm:ss in local time.

    Java: org.apache.rocketmq.common.UtilAll#formatDate (4.9.8)
    """
    return _local(timestamp).strftime("%Y-%m-%d %H:%M:%S")


def utc_text(timestamp: int) -> str:
    """yyyy-MM-dd HH:mm:ss.SSS+00:00 of ms; the number itself when it is beyond the calendar."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)).isoformat(" ", "milliseconds")
    except OverflowError:
        return str(timestamp)


def parse_date(text: str) -> int | None:
    """The time of `yyyy-MM-dd#HH:mm:ss:SSS` in local time (ms); None for another text.

    Java: org.apache.rocketmq.common.UtilAll#parseDate (4.9.8)
    """
    seconds, _, milliseconds = text.rpartition(":")
    try:
        return _millis(datetime.strptime(seconds, "%Y-%m-%d#%H:%M:%S")) + int(milliseconds)
    except (ValueError, OverflowError):
        return None


def _local(timestamp: int) -> datetime:
    try:
        moment = datetime.fromtimestamp(timestamp // 1000)
    except (OverflowError, ValueError, OSError):  # a time stamp out of a broken record: beyond the calendar
        moment = datetime.max if timestamp > 0 else datetime(1, 1, 1)
    return moment.replace(microsecond=timestamp % 1000 * 1000)


def compute_next_morning_time_millis() -> int:
    """Next midnight, local time."""
    return _millis(datetime.now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1))


def compute_next_minutes_time_millis() -> int:
    """The next full minute."""
    return (current_time_millis() // 60_000 + 1) * 60_000


def compute_next_hour_time_millis() -> int:
    """The next full hour, local time."""
    return _millis(datetime.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1))


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def is_path_exists(path: str) -> bool:
    """True when there is a file or folder."""
    return os.path.exists(path)


def get_disk_partition_space_used_percent(path: str | None) -> float:
    """Used part of the file system of `path`, 0.00 to 1.00 rounded up to hundredths; -1 when it is not known."""
    if not path:
        log.error("Error when measuring disk space usage, path is null or empty, path : %s", path)
        return -1
    if not os.path.exists(path):
        log.error("Error when measuring disk space usage, file doesn't exist on this path: %s", path)
        return -1
    try:
        stat = os.statvfs(path)
    except OSError:
        log.exception("Error when measuring disk space usage, got exception: ")
        return -1
    used, usable = stat.f_blocks - stat.f_bfree, stat.f_bavail
    if stat.f_blocks <= 0 or used + usable <= 0:
        return -1
    return -(-used * 100 // (used + usable)) / 100


def crc32(data: bytes | bytearray | memoryview | None) -> int:
    """CRC-32 without its highest bit, as RocketMQ keeps it in a signed int; 0 for None."""
    return 0 if data is None else zlib.crc32(data) & 0x7FFFFFFF


def as_int(text: str | None, default_value: int) -> int:
    """`text` as a number; `default_value` when it is not a number."""
    try:
        return default_value if text is None else int(text)
    except ValueError:
        return default_value


def is_blank(text: str | None) -> bool:
    """True for None, "" and white space."""
    return text is None or not text.strip()


def ensure_dir_ok(path: str | None) -> None:
    """Make a folder and its parents; nothing for None. Raises OSError.

    Java: org.apache.rocketmq.store.MappedFile (4.9.8)
    """
    if path and not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
        log.info("%s mkdir OK", path)


def delete_file(path: str) -> None:
    """Remove a file, or a folder with all that is in it; nothing when there is none."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil  # it loads bz2 and lzma, and a folder is deleted when a topic is

        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def join(items: list[str] | None, splitter: str) -> str | None:
    """The items with `splitter` between them; None for None."""
    return None if items is None else splitter.join(items)


@overload
def split(text: str, splitter: str) -> list[str]: ...


@overload
def split(text: None, splitter: str) -> None: ...


def split(text: str | None, splitter: str) -> list[str] | None:
    """The parts between the splitters, without empty ones at the end; None for None."""
    if text is None:
        return None
    parts = text.split(splitter)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def random_uuid() -> str:
    """A random UUID (version 4) as text; the standard library's module also loads what finds out about the host."""
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
