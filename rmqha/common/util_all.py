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

# A time before any monotonic time, in every unit. Not 0: the monotonic clock may start at 0 when the machine boots, so
# 0 can be a moment ago.
LONG_AGO = -(1 << 62)


def get_pid() -> int:
    """Return the id of this process."""
    return os.getpid()


def current_time_millis() -> int:
    """Return the wall clock time in ms since 1970."""
    return time.time_ns() // 1_000_000


def monotonic_millis() -> int:
    """Return ms since an arbitrary moment, for durations that a step of the wall clock must not change."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_of(monotonic_ms: int) -> int:
    """Return the wall clock time, in ms since 1970, of a monotonic time, by the current setting of the clock."""
    return current_time_millis() - (monotonic_millis() - monotonic_ms)


def offset2file_name(offset: int) -> str:
    """Return the name of a mapped file: its first offset in 20 digits."""
    return f"{offset:020d}"


offset_to_file_name = offset2file_name


def compute_elapsed_time_milliseconds(begin_time: int) -> int:
    """Return the ms since `begin_time`, by the wall clock."""
    return current_time_millis() - begin_time


def is_it_time_to_do(when: str) -> bool:
    """Return whether the current hour is one of the hours in `when`, separated by `;`. ValueError for a bad hour."""
    hours = [int(hour) for hour in when.rstrip(";").split(";")]
    return datetime.now().hour in hours


def time_millis_to_human_string(timestamp: int | None = None) -> str:
    """Format a time in ms as yyyyMMddHHmmssSSS, local time; the current time without an argument."""
    moment = _local(current_time_millis() if timestamp is None else timestamp)
    return moment.strftime("%Y%m%d%H%M%S") + f"{moment.microsecond // 1000:03d}"


def time_millis_to_human_string2(timestamp: int) -> str:
    """Format a time in ms as yyyy-MM-dd HH:mm:ss,SSS, local time."""
    moment = _local(timestamp)
    return moment.strftime("%Y-%m-%d %H:%M:%S") + f",{moment.microsecond // 1000:03d}"


def time_millis_to_human_string3(timestamp: int) -> str:
    """Format a time in ms as yyyyMMddHHmmss, local time."""
    return _local(timestamp).strftime("%Y%m%d%H%M%S")


def format_date(timestamp: int) -> str:
    """Format a time in ms as yyyy-MM-dd HH:mm:ss, local time.

    Java: org.apache.rocketmq.common.UtilAll#formatDate (4.9.8)
    """
    return _local(timestamp).strftime("%Y-%m-%d %H:%M:%S")


def utc_text(timestamp: int) -> str:
    """Format a time in ms as yyyy-MM-dd HH:mm:ss.SSS+00:00; the plain number when it is beyond the calendar."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)).isoformat(" ", "milliseconds")
    except OverflowError:
        return str(timestamp)


def parse_date(text: str) -> int | None:
    """Parse `yyyy-MM-dd#HH:mm:ss:SSS`, local time, to ms since 1970; None for any other text.

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
    except (OverflowError, ValueError, OSError):
        # A timestamp beyond the calendar, from a damaged record.
        moment = datetime.max if timestamp > 0 else datetime(1, 1, 1)
    return moment.replace(microsecond=timestamp % 1000 * 1000)


def compute_next_morning_time_millis() -> int:
    """Return the next midnight, local time, in ms since 1970."""
    return _millis(datetime.now().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1))


def compute_next_minutes_time_millis() -> int:
    """Return the next full minute, in ms since 1970."""
    return (current_time_millis() // 60_000 + 1) * 60_000


def compute_next_hour_time_millis() -> int:
    """Return the next full hour, local time, in ms since 1970."""
    return _millis(datetime.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1))


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def is_path_exists(path: str) -> bool:
    """Return whether a file or folder exists."""
    return os.path.exists(path)


def get_disk_partition_space_used_percent(path: str | None) -> float:
    """Return the used part of the file system of `path`: 0.00 to 1.00, rounded up to hundredths; -1 when unknown."""
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
    """Return the CRC-32 without its highest bit, as RocketMQ keeps it in a signed int; 0 for None."""
    return 0 if data is None else zlib.crc32(data) & 0x7FFFFFFF


def as_int(text: str | None, default_value: int) -> int:
    """Return `text` as an integer; `default_value` when it is not one."""
    try:
        return default_value if text is None else int(text)
    except ValueError:
        return default_value


def is_blank(text: str | None) -> bool:
    """Return whether a text is None, empty or only white space."""
    return text is None or not text.strip()


def ensure_dir_ok(path: str | None) -> None:
    """Create a folder and its parents; do nothing for None. Raises OSError.

    Java: org.apache.rocketmq.store.MappedFile (4.9.8)
    """
    if path and not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)
        log.info("%s mkdir OK", path)


def delete_file(path: str) -> None:
    """Remove a file, or a folder with its contents; do nothing when the path does not exist."""
    if os.path.isdir(path) and not os.path.islink(path):
        # Imported late: it loads bz2 and lzma, and a broker deletes folders only with topics.
        import shutil

        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def join(items: list[str] | None, splitter: str) -> str | None:
    """Join the items with `splitter`; None for None."""
    return None if items is None else splitter.join(items)


@overload
def split(text: str, splitter: str) -> list[str]: ...


@overload
def split(text: None, splitter: str) -> None: ...


def split(text: str | None, splitter: str) -> list[str] | None:
    """Split a text, without empty parts at the end; None for None."""
    if text is None:
        return None
    parts = text.split(splitter)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def random_uuid() -> str:
    """Return a random UUID (version 4) as text.

    The standard library's `uuid` is not used because it also loads modules that inspect the host.
    """
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
