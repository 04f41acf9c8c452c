"""A broker with planted faults, to prove that the fault suite finds them.

    python -m tests.faults.planted NAME[,NAME] -c FILE

Each plant replaces a method of rmqha in this process before the broker starts. It fails if the method is gone or
renamed.
"""
import os
import signal
import sys
import threading
import time

from rmqha.broker import broker_startup
from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.relay import client_relay
from rmqha.broker.relay.master_relay import SENDS
from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code
from rmqha.store.commit_log import CommitLog
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.flush_services import FlushCommitLogService
from rmqha.store.ha import master_connection
from rmqha.store.ha.autoswitch.auto_switch_ha_service import AutoSwitchHAService
from rmqha.store.ha.ha_connection import ReadSocketService
from rmqha.store.ha.ha_transfer import FrameDecoder
from rmqha.store.mapped_file import MappedFile
from rmqha.store.results import PutMessageStatus
from tests.faults.points import Trap
from tests.faults.process_faults import ARM, OF_MASTER, OF_SLAVE

_LATE_S = 0.05
# Longer than another replica takes to become the master.
_WRITE_LATE_S = 0.5
_FLUSH_LATE_S = 0.3


def _completed() -> Completable:
    future = Completable()
    future.complete(PutMessageStatus.PUT_OK)
    return future


def ack_before_flush() -> None:
    """Let the master answer before the fsync, which follows a moment later."""
    submit, flush = CommitLog.submit_flush_request, FlushCommitLogService.flush

    def submit_flush_request(self, *arguments):
        submit(self, *arguments)
        return _completed()

    def late_flush(self, flush_least_pages):
        time.sleep(_FLUSH_LATE_S)
        return flush(self, flush_least_pages)
    CommitLog.submit_flush_request, FlushCommitLogService.flush = submit_flush_request, late_flush


def ack_before_replica() -> None:
    """Let the master answer before a slave has the message."""
    original = CommitLog.submit_replica_request

    def submit_replica_request(self, *arguments):
        original(self, *arguments)
        return _completed()
    CommitLog.submit_replica_request = submit_replica_request


def ack_before_write() -> None:
    """Let the slave report received bytes, and write them a moment later, or never if its role changes before."""
    append, max_offset = DefaultMessageStore.append_to_commit_log, DefaultMessageStore.get_max_phy_offset
    leave_role = AutoSwitchHAService._leave_role
    lock = threading.Lock()  # guards pending
    pending: list[tuple[int, bytes]] = []

    def append_to_commit_log(self, start_offset, data, data_start, data_length):
        with lock:
            pending.append((start_offset, bytes(data[data_start:data_start + data_length])))
        return True

    def get_max_phy_offset(self):
        with lock:
            return pending[-1][0] + len(pending[-1][1]) if pending else max_offset(self)

    def write_late(store):
        while True:
            time.sleep(_WRITE_LATE_S)
            with lock:
                for offset, data in pending:
                    append(store, offset, data, 0, len(data))
                pending.clear()

    def leave_role_and_forget(self):
        """Drop pending writes: later they would lie after the start of a new epoch, and nothing would be lost."""
        leave_role(self)
        with lock:
            pending.clear()

    start = DefaultMessageStore.start

    def start_with_writer(self):
        start(self)
        threading.Thread(target=write_late, args=(self,), daemon=True).start()

    DefaultMessageStore.append_to_commit_log = append_to_commit_log
    DefaultMessageStore.get_max_phy_offset = get_max_phy_offset
    DefaultMessageStore.start = start_with_writer
    AutoSwitchHAService._leave_role = leave_role_and_forget


def swallowed_eio() -> None:
    """Treat a failed fsync as successful."""
    original = MappedFile._force

    def force(self):
        try:
            original(self)
        except OSError as error:
            print(f"swallowed: {error}")
    MappedFile._force = force


def tail_not_zeroed() -> None:
    """Keep the bytes after the end of a truncated file."""
    assert callable(MappedFile.zero_from)
    MappedFile.zero_from = lambda self, position: None


def first_ack_unchecked() -> None:
    """Treat the first report of a peer as an acknowledgement, whatever its offset."""
    original = ReadSocketService._accept

    def accept(self, reports):
        if self.connection.slave_request_offset < 0:
            self.connection.ha_service.slave_acknowledged(self.connection, reports[0])
        return original(self, reports)
    ReadSocketService._accept = accept


def offsets_not_loaded() -> None:
    """Let a restarted broker forget the consumer offsets."""
    assert callable(ConsumerOffsetManager.decode)
    ConsumerOffsetManager.decode = lambda self, json_string: None


def lone_record_in_pieces() -> None:
    """Let a slave treat a lone record as one piece even if it was received in several, an earlier bug: it stores other
    bytes than were sent. Neither the check of each record nor scrubbing finds that."""
    take_record, start = FrameDecoder.take_record, DefaultMessageStore.start

    def take_wherever(self, offset, room):
        foreseen, self._foreseen = self._foreseen, 0
        size = take_record(self, offset, room)
        self._foreseen = foreseen
        return size

    def start_unchecked(self):
        config = self.message_store_config
        assert config.haVerifyRecords and config.haScrubEnable
        config.haVerifyRecords = config.haScrubEnable = False
        start(self)
    assert master_connection._STREAM_SIZE > 1
    # else only a record after many bytes may come in pieces
    master_connection._STREAM_SIZE = 1
    FrameDecoder.take_record, DefaultMessageStore.start = take_wherever, start_unchecked


def relay_repeats_sends() -> None:
    """Let a relay send a message again after the master ended without an answer: it may be stored already."""
    assert request_code.SEND_MESSAGE not in client_relay.REPEATABLE
    client_relay.REPEATABLE |= SENDS


def die() -> None:
    """Not a fault of the broker itself: on a signal, arm a kill at the n-th passage of a named point."""
    name = os.environ["FAULTS_POINT"]
    trap = Trap(int(os.environ["FAULTS_PASSAGE"]), lambda: None)
    {**OF_MASTER, **OF_SLAVE}[name].plant(trap)

    def arm(*_):
        trap.armed = True
    signal.signal(ARM, arm)


def slow_slave() -> None:
    """Not a fault: let a slave write received bytes a moment later, and only then report them."""
    append = DefaultMessageStore.append_to_commit_log

    def append_to_commit_log(self, start_offset, data, data_start, data_length):
        time.sleep(_LATE_S)
        return append(self, start_offset, data, data_start, data_length)
    DefaultMessageStore.append_to_commit_log = append_to_commit_log


HELPERS = {helper.__name__: helper for helper in (die, slow_slave)}
PLANTS = {plant.__name__: plant for plant in (ack_before_flush, ack_before_replica, ack_before_write, swallowed_eio,
                                              tail_not_zeroed, first_ack_unchecked, offsets_not_loaded,
                                              lone_record_in_pieces, relay_repeats_sends)}


if __name__ == "__main__":
    for name in sys.argv[1].split(","):
        (HELPERS | PLANTS)[name]()
    sys.exit(broker_startup.main(sys.argv[2:]))
