"""Helpers for the replication tests: streams split anywhere, an in-memory store, and peers driven by the test."""
import contextlib
import os
import socket
import struct
import threading
import time

from hypothesis import strategies as st

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message.message_layout import BLANK_MAGIC_CODE, MESSAGE_MAGIC_CODE, walk
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.results import SelectMappedBufferResult
from rmqha.store.role import Role
from rmqha.store.store_state import StoreState


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Split `data` at the cuts, each any number; some pieces may be empty."""
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in zip(at, at[1:], strict=False)]


CUTS = st.lists(st.integers(0, 1 << 20), max_size=12)


# A store of bytearrays, peers driven by the test byte by byte, and services on port 0.

SEGMENT = 64 * 1024
BIG_SEGMENT = 4 * 1024 * 1024


def record(size: int, seed: int = 0) -> bytes:
    """Make bytes that look like a stored message: size, magic, any content."""
    content = bytes((seed + i) % 251 for i in range(min(size - 8, 64)))
    return struct.pack(">ii", size, MESSAGE_MAGIC_CODE) + content.ljust(size - 8, b"x")


def config(**keys) -> MessageStoreConfig:
    """Make a configuration with short intervals and port 0; `keys` override."""
    values = {"haListenPort": 0, "mappedFileSizeCommitLog": SEGMENT, "haSendHeartbeatInterval": 100,
              "haHousekeepingInterval": 20_000, "brokerRole": BrokerRole.SYNC_MASTER,
              # The records of these tests have a valid size and magic code only.
              "haVerifyRecords": False,
              **keys}
    made = MessageStoreConfig()
    for key, value in values.items():
        assert hasattr(made, key), key
        setattr(made, key, value)
    return made


class _Share:
    def __init__(self, store: "FakeStore") -> None:
        self.store = store

    def release(self) -> None:
        with self.store.lock:
            self.store.shares -= 1


class FakeStore:
    """The part of a store that replication uses: in-memory segments, appended at the end, deletable at the front."""

    def __init__(self, **keys) -> None:
        self.message_store_config = config(**keys)
        self.segment_size = self.message_store_config.mappedFileSizeCommitLog
        self.lock = threading.Lock()
        self.segments: dict[int, bytearray] = {}  # start offset -> bytes written so far
        # Results of get_commit_log_data that are not released yet.
        self.shares = 0
        self.appends = 0
        self.append_fails = False
        self.flushed = 0  # commit log offset
        self.flush_fails = False
        self.broker_config = BrokerConfig()
        self.is_shutdown = False
        self.state = StoreState(self.message_store_config, Role(self.message_store_config, self.broker_config))
        self.ha_service = HAService(self, self.state, self.broker_config)

    @property
    def mapped_file_size(self) -> int:
        return self.segment_size

    def get_max_phy_offset(self) -> int:
        with self.lock:
            last = max(self.segments, default=None)
            return 0 if last is None else last + len(self.segments[last])

    def get_min_phy_offset(self) -> int:
        with self.lock:
            return min(self.segments, default=-1)

    def get_commit_log_data(self, offset: int):
        with self.lock:
            start = offset - offset % self.segment_size
            data = self.segments.get(start, b"")
            if offset - start >= len(data):
                return None
            self.shares += 1
            view = memoryview(bytes(data))[offset - start:]
            return SelectMappedBufferResult(offset, view, len(view), _Share(self))

    def append_to_commit_log(self, start_offset, data, data_start, data_length) -> bool:
        if self.append_fails:
            return False
        with self.lock:
            start = start_offset - start_offset % self.segment_size
            segment = self.segments.setdefault(start, bytearray())
            if len(segment) + data_length > self.segment_size:
                return False
            segment += data[data_start:data_start + data_length]
            self.appends += 1
            return True

    def flush_up_to(self, offset) -> bool:
        if not self.flush_fails:
            self.flushed = max(self.flushed, offset)
        return not self.flush_fails

    def end_of_whole_records(self) -> int:
        end = self.get_max_phy_offset()
        start = end - end % self.segment_size
        with self.lock:
            segment, at = bytes(self.segments.get(start, b"")), 0
        for position, length, _magic in walk(segment, 0, len(segment)):
            if position + length > len(segment):
                break
            at = position + length
        return start + at

    def truncate_dirty_files(self, offset: int) -> None:
        with self.lock:
            for start in list(self.segments):
                if start >= offset:
                    del self.segments[start]
                else:
                    del self.segments[start][max(0, offset - start):]

    cut_off = truncate_dirty_files

    def put(self, size: int = 200, seed: int = 0) -> int:
        """Append one record as CommitLog does, roll files and wake replication; return the end offset."""
        end = self.get_max_phy_offset()
        room = self.segment_size - end % self.segment_size
        with self.lock:
            if size + 8 > room:
                blank = struct.pack(">ii", room, BLANK_MAGIC_CODE).ljust(room, b"\0")
                self.segments[end - end % self.segment_size] += blank
                end += room
            self.segments.setdefault(end - end % self.segment_size, bytearray()).extend(record(size, seed))
        self.ha_service.on_appended()
        return end + size

    def log(self, start: int = 0) -> bytes:
        """Return all bytes from `start` on."""
        with self.lock:
            return b"".join(bytes(data)[max(0, start - at):] for at, data in sorted(self.segments.items())
                            if at + len(data) > start)


@contextlib.contextmanager
def running(*stores: FakeStore):
    """Start the stores' services, and shut them down at the end."""
    try:
        for store in stores:
            store.ha_service.start()
        yield stores[0] if len(stores) == 1 else stores
    finally:
        for store in reversed(stores):
            store.ha_service.shutdown()


def served(store: FakeStore) -> int:
    """Return the number of connections that transfer the log."""
    return sum(connection.is_serving for connection in store.ha_service.connection_list)


def follow(slave: FakeStore, master: FakeStore) -> None:
    """Point the slave at the master."""
    slave.ha_service.update_master_address(f"127.0.0.1:{master.ha_service.ha_listen_port}")


class Peer:
    """One end of a replication connection, driven byte by byte."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(60)
        self._last_report: int | None = None  # of a slave

    @classmethod
    def connect(cls, store: FakeStore) -> "Peer":
        return cls(socket.create_connection(("127.0.0.1", store.ha_service.ha_listen_port), 60))

    def report(self, *offsets: int) -> None:
        self.sock.sendall(struct.pack(f">{len(offsets)}q", *offsets))

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_frame(self, offset: int, body: bytes = b"", size: int | None = None) -> None:
        self.sock.sendall(struct.pack(">qi", offset, len(body) if size is None else size) + body)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise EOFError(f"closed after {len(data)} of {count} bytes")
            data += more
        return data

    def read_frame(self) -> tuple[int, bytes]:
        offset, size = struct.unpack(">qi", self.read(12))
        return offset, self.read(size)

    def read_data_frame(self) -> tuple[int, bytes]:
        """Read the next frame that is not a heartbeat."""
        while True:
            offset, body = self.read_frame()
            if body:
                return offset, body

    def read_report(self) -> int:
        """Read the next report, which may repeat the last one: an idle slave repeats its report."""
        self._last_report = struct.unpack(">q", self.read(8))[0]
        return self._last_report

    def next_report(self) -> int:
        """Read the next report that differs from the last one."""
        last = self._last_report
        while self.read_report() == last:
            continue
        return self._last_report

    def is_closed(self, timeout_s: float = 60) -> bool:
        """Read until the other end closes; return False if it does not close in time."""
        deadline = time.monotonic() + timeout_s
        self.sock.settimeout(timeout_s)
        try:
            while self.sock.recv(65536):
                if time.monotonic() > deadline:
                    return False
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_exc) -> None:
        self.close()


class FakeMaster:
    """A listening socket whose connections the test serves by hand."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(60)
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"

    def accept(self) -> Peer:
        return Peer(self.server.accept()[0])

    def __enter__(self) -> "FakeMaster":
        return self

    def __exit__(self, *_exc) -> None:
        self.server.close()


def open_descriptors() -> int:
    """Return the number of open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))
