"""Peers driven by the test frame by frame, and small real stores."""
import contextlib
import struct
from functools import partial
from pathlib import Path

from rmqha.common.broker_config import BrokerConfig
from rmqha.store.ha.autoswitch import auto_switch_transfer as transfer
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry
from rmqha.store.message_store_config import BrokerRole
from tests.store.ha.support import Peer
from tests.store.support import new_store
from tests.support.wait import wait_until

SEGMENT = 16384
WAIT_MS = 60_000


@contextlib.contextmanager
def open_replica(root: Path, broker_id: int = 1, role: BrokerRole = BrokerRole.SLAVE, controlled: bool = False,
                 **keys: object):
    """Open a running store whose role may change, by a controller if `controlled`; shut it down at the end."""
    values = {"enableAutoSwitchHA": True, "brokerRole": role, "haSendHeartbeatInterval": 100, "slaveTimeout": 60_000,
              "mappedFileSizeCommitLog": SEGMENT, **keys}
    store = new_store(root, broker=BrokerConfig(brokerId=broker_id, enableControllerMode=controlled), **values)
    assert store.load()
    try:
        store.start()
        yield store
    finally:
        store.shutdown()


def master_of(root: Path, **keys: object):
    """Open a new store that is the master of epoch 1, with id 1."""
    return open_replica(root, role=BrokerRole.SYNC_MASTER, **keys)


class DecidingController:
    """A stand-in for the controller: holds the sync-state set of one broker name, and may stop answering."""

    def __init__(self) -> None:
        self.members: frozenset[int] = frozenset()
        self.epoch = 0
        self.answers = True
        self.asked: list[tuple[frozenset[int], int]] = []

    def elect(self, store, master_epoch: int) -> bool:
        """Make a store the master."""
        service = store.ha_service
        self.members, self.epoch = frozenset((service.local_broker_id,)), self.epoch + 1
        service.register_sync_state_set_changed_listener(partial(self._ask, service))
        return service.change_to_master(master_epoch, self.members, self.epoch)

    def resumes(self, store, master_epoch: int) -> bool:
        """Restart the master, which keeps its epoch."""
        service = store.ha_service
        service.register_sync_state_set_changed_listener(partial(self._ask, service))
        return service.change_to_master(master_epoch, self.members, self.epoch)

    def _ask(self, service, wanted: frozenset[int], epoch: int) -> bool:
        self.asked.append((wanted, epoch))
        if not self.answers:
            return False
        if epoch == self.epoch:
            self.members, self.epoch = wanted, epoch + 1
        service.set_sync_state_set(self.members, self.epoch)
        return True


class SlavePeer(Peer):
    """A slave whose frames are sent and read by the test."""

    def greet(self, slave_id: int = 2, last_file: int = 0, learner: int = 0) -> tuple[int, int, list[EpochEntry]]:
        """Introduce the slave; return (max offset, last epoch, epochs) of the master's answer."""
        self.send(struct.pack(">ihhq", 1, last_file, learner, slave_id))
        state, size, max_offset, last_epoch = struct.unpack(">iiqi", self.read(20))
        assert state == 1
        return max_offset, last_epoch, [EpochEntry(*fields) for fields in struct.iter_unpack(">iq", self.read(size))]

    def say(self, *offsets: int) -> None:
        """Report these offsets."""
        for offset in offsets:
            self.send(transfer.encode_report(offset))

    def frame(self) -> tuple[int, int, int, int, bytes]:
        """Return (offset, epoch, epoch's start, confirm offset, bytes) of the next frame."""
        state, size, offset, epoch, start, confirm = struct.unpack(">iiqiqq", self.read(36))
        assert state == 2
        return offset, epoch, start, confirm, self.read(size)

    def data(self, end: int) -> list[tuple[int, int, int, int, bytes]]:
        """Return the frames with bytes, up to the log's `end`."""
        frames = []
        while not frames or frames[-1][0] + len(frames[-1][4]) < end:
            frame = self.frame()
            if frame[4]:
                frames.append(frame)
        return frames

    def is_in_sync(self, store, slave_id: int = 2) -> None:
        """Wait until the slave is in the sync-state set."""
        wait_until(lambda: slave_id in store.ha_service.sync_state_set.members, WAIT_MS, "in sync")


class MasterPeer(Peer):
    """A master whose frames are sent and read by the test."""

    def greeted(self) -> tuple[int, int, int]:
        """Return (isSyncFromLastFile, isAsyncLearner, id) from the handshake of a slave."""
        state, last_file, learner, slave_id = struct.unpack(">ihhq", self.read(16))
        assert state == 1
        return last_file, learner, slave_id

    def answer(self, max_offset: int, *entries: tuple[int, int]) -> None:
        """Send the epochs."""
        self.send(transfer.encode_master_handshake(max_offset, [EpochEntry(*entry) for entry in entries]))

    def reported(self) -> int:
        """Return the offset of the next report that differs from the last one: an idle slave repeats its report."""
        last = self._last_report
        while self._last_report == last:
            state, self._last_report = struct.unpack(">iq", self.read(12))
            assert state == 2
        return self._last_report

    def send_log(self, offset: int, body: bytes, epoch: int, start: int, confirm: int = 0) -> None:
        """Send one frame."""
        self.send(transfer.encode_header(offset, len(body), EpochEntry(epoch, start), confirm) + body)
