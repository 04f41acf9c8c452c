"""The files of a store as such: names, sizes, that none is missing; and the checkpoint."""
import os
import time

from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rmqha.store.index.index_layout import INDEX_HEADER_SIZE
from rmqha.store.index.index_layout import file_size as index_file_size
from rmqha.tools.store.findings import Findings
from rmqha.tools.store.index_reader import IndexReader
from rmqha.tools.store.output import time_text
from rmqha.tools.store.queue_reader import QueueKey, QueueReader
from rmqha.tools.store.segments import Folder
from rmqha.tools.store.store_reader import StoreReader

_DAY_MS = 24 * 3600 * 1000


def check_commit_log_files(store: StoreReader, findings: Findings) -> None:
    """Names, sizes and order of the commit log's files."""
    for path in store.log.folder.foreign:
        findings.flaw(path, None, "it is no commit log file, and a broker does not start with it there")
    _check_folder(store.log.folder, store.log.file_size, 1, store.live, findings)


def check_queue_files(readers: dict[QueueKey, QueueReader], foreign: list[str], live: bool,
                      findings: Findings) -> None:
    """Names, sizes and order of the consume queues' files."""
    for path in foreign:
        findings.note(f"{path} is no consume queue; brokers pass it over")
    for reader in readers.values():
        for path in reader.folder.foreign:
            findings.flaw(path, None, "it is no consume queue file, and a broker does not start with it there")
        _check_folder(reader.folder, reader.file_size, CQ_STORE_UNIT_SIZE, live, findings)


def common_file_size(readers: dict[QueueKey, QueueReader]) -> int:
    """The size that consume queue files have, by all queues together."""
    return Folder([segment for reader in readers.values() for segment in reader.folder.segments], []).file_size


def _check_folder(folder: Folder, file_size: int, unit: int, live: bool, findings: Findings) -> None:
    before = None
    for segment in folder.segments:
        is_last = segment is folder.segments[-1]
        is_being_made = live and is_last and segment.size < file_size
        if segment.size != file_size and not is_being_made:
            findings.flaw(segment.path, None, f"it has {segment.size} bytes, the others have {file_size}"
                          if len(folder.segments) > 1 else f"it has {segment.size} bytes, not {file_size}")
        if file_size and (segment.start % file_size or segment.start % unit):
            findings.flaw(segment.path, None, f"its name is no multiple of the file size {file_size}")
        if before is not None and segment.start != before.start + file_size:
            findings.flaw(segment.path, None,
                          f"it follows {before.name}, where {before.start + file_size:020d} was due")
        before = segment


def check_index_files(files: list[IndexReader], foreign: list[str], live: bool, findings: Findings) -> None:
    """Names and sizes of the index files; their shapes."""
    for path in foreign:
        findings.note(f"{path} is no index file; brokers pass it over")
    sizes = [reader.size for reader in files]
    for reader in files:
        if reader.size <= INDEX_HEADER_SIZE:
            if not live:
                findings.flaw(reader.path, None, f"it has {reader.size} bytes")
        elif reader.shape is None:
            if not reader.is_empty and not live:
                findings.flaw(reader.path, None, "maxHashSlotNum and maxIndexNum do not show from what is in it: it is "
                              "damaged, or tell them with --index-slots and --index-entries")
        elif reader.size != index_file_size(*reader.shape):
            findings.flaw(reader.path, None, f"it has {reader.size} bytes, not {index_file_size(*reader.shape)}")
        elif reader.head_count_on_disk < 0:
            findings.flaw(reader.path, 36, f"it counts {reader.head_count_on_disk} entries")
        if reader.shape is None and sizes.count(reader.size) * 2 < len(sizes):
            findings.flaw(reader.path, None, f"it has {reader.size} bytes, the other index files have another size")


def check_checkpoint(store: StoreReader, last_store_timestamp: int, findings: Findings) -> None:
    """The three times: not before the calendar, not in the future."""
    path, checkpoint = store.checkpoint_path, store.checkpoint()
    if checkpoint is None:
        if os.path.exists(path):
            findings.flaw(path, None, f"it has {os.path.getsize(path)} bytes, and should have 4096")
        elif last_store_timestamp and not store.live:
            findings.note("there is no checkpoint: after a crash the whole log is looked at")
        return
    limit = int(time.time() * 1000) + _DAY_MS
    for position, (name, timestamp) in enumerate(checkpoint._asdict().items()):
        if timestamp < 0 or timestamp > max(limit, last_store_timestamp + _DAY_MS):
            findings.flaw(path, position * 8, f"{name} is {timestamp} ({time_text(timestamp)})")
        elif timestamp > last_store_timestamp > 0 and not store.live:
            findings.note(f"{name} in the checkpoint is newer than the last message")
