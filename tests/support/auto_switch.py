"""Stores that change their role, rmqha's and that of RocketMQ 5.1.4, with senders; and comparisons of two replicas."""
import functools
import re
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import MessageStoreConfig
from tests.support import real_rocketmq
from tests.support.processes import ServerProcess
from tests.support.start_as import killed_with_parent
from tests.support.wait import wait_until

# A store of RocketMQ 5.1.4 with its AutoSwitchHAService, controlled by lines of text: see java/src5.

VERSION = "5.1.4"
_SOURCES = Path(__file__).resolve().parent / "java" / "src5"
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'
_MAIN = "org.rmqha.autoswitch.AutoSwitchStore"


@functools.cache
def class_path() -> str:
    """Return the jars of 5.1.4 and our class; Maven fetches them at the first use."""
    lib = real_rocketmq.jars_of(VERSION)
    return f"{lib}/*:{real_rocketmq.compiled(lib, sorted(_SOURCES.rglob('*.java')))}"


@dataclass
class State:
    """A store's report about its state."""

    max: int
    min: int
    confirm: int
    set: list[int]
    queue: int  # messages in its consume queue
    behind: int
    client: str
    connections: list[str]
    epochs: list[tuple[int, int]]


class AutoSwitchStore:
    """The Java store in a separate process. `properties` are MessageStoreConfig's."""

    def __init__(self, folder: Path, broker_id: int, **properties: object) -> None:
        logback = folder / "logback.xml"
        folder.mkdir(parents=True, exist_ok=True)
        logback.write_text(_LOGBACK, encoding="ascii")
        self.root = folder / "store"
        self.broker_id = broker_id
        self.name = f"java-{broker_id}"
        self.port = 0
        wanted = {"haListenPort": 0, "mappedFileSizeConsumeQueue": 20000, "maxHashSlotNum": 1000, "maxIndexNum": 4000,
                  "haSendHeartbeatInterval": 200, "flushDiskType": "ASYNC_FLUSH", "brokerRole": "SLAVE", **properties}
        self._command = [*real_rocketmq.java_command(), f"-Drmq.logback.configurationFile={logback}",
                         f"-Duser.home={folder}", "-cp", class_path(), _MAIN, str(self.root), str(broker_id),
                         *(f"{key}={value}" for key, value in wanted.items())]
        self._server = ServerProcess(self.name, self._command, folder, "")
        self._process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        """The address to which its slaves connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> "AutoSwitchStore":
        """Open the store; it has no role yet."""
        with open(self._server.output_file, "ab") as err:
            self._process = subprocess.Popen(killed_with_parent(self._command), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
        self.port = int(self._answer())
        return self

    def tell(self, *words: object) -> str:
        """Run one command and return its answer."""
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        assert line.startswith("ok"), f"{self.name} says {line!r}\n{self.tail()}"
        return line[3:].rstrip("\n")

    def state(self) -> State:
        """Return the store's report about its state."""
        fields = dict(re.findall(r"(\w+)=(\S*)", self.tell("state")))
        numbers = {key: int(fields[key]) for key in ("max", "min", "confirm", "queue", "behind")}
        epochs = [tuple(map(int, part.split("-"))) for part in fields["epochs"].split(",") if part]
        return State(**numbers, set=[int(part) for part in fields["set"].split(",") if part], client=fields["client"],
                     connections=[part for part in fields["connections"].split(",") if part], epochs=epochs)

    def acked(self) -> set[int]:
        """Return the numbers of the messages that were answered PUT_OK since the process started."""
        return {int(part) for part in self.tell("acked").split(" ")[0].split(",") if part}

    def shutdown(self) -> None:
        """Close the store cleanly."""
        if self._process is not None:
            self._process.stdin.close()
            assert self._process.wait(240) == 0, self.tail()
            self._process.stdout.close()
            self._process = None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(240)
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def tail(self) -> str:
        """Return the end of its output."""
        return self._server.tail()


# An rmqha store that changes its role, with senders; and comparisons of two replicas.

TOPIC = "AutoSwitch"
SEGMENT = 1 << 16
TIMEOUT_MS = 60_000


class RmqhaReplica:
    """A store in this process, with the interface of AutoSwitchStore. `properties` are MessageStoreConfig's."""

    def __init__(self, folder: Path, broker_id: int, **properties: object) -> None:
        self.root = folder / "store"
        self.broker_id = broker_id
        self.name = f"rmqha-{broker_id}"
        self.properties = {"haListenPort": 0, "mappedFileSizeCommitLog": SEGMENT, "mappedFileSizeConsumeQueue": 20000,
                           "maxHashSlotNum": 1000, "maxIndexNum": 4000, "haSendHeartbeatInterval": 200,
                           "enableAutoSwitchHA": True, "brokerRole": "SLAVE", **properties}
        self.store: DefaultMessageStore | None = None
        self._acked: set[int] = set()  # guarded by _lock
        self._next = 0  # of the load; guarded by _lock
        self._lock = threading.Lock()
        self._loading = threading.Event()
        self._senders: list[threading.Thread] = []

    @property
    def service(self):
        """The store's AutoSwitchHAService."""
        return self.store.ha_service

    @property
    def address(self) -> str:
        """The address to which its slaves connect."""
        return f"127.0.0.1:{self.service.ha_listen_port}"

    def start(self) -> "RmqhaReplica":
        """Open the store."""
        config = MessageStoreConfig(storePathRootDir=str(self.root))
        for key, value in self.properties.items():
            kind = type(getattr(config, key))
            setattr(config, key, kind[value] if isinstance(value, str) and hasattr(kind, "__members__") else value)
        self.store = DefaultMessageStore(config, None, None, BrokerConfig(brokerId=self.broker_id))
        assert self.store.load()
        self.store.start()
        return self

    def promote(self, epoch: int) -> None:
        """Become the master."""
        assert self.service.change_to_master(epoch)

    def follow(self, address: str | None, epoch: int | None) -> None:
        """Become a slave."""
        assert self.service.change_to_slave(address, epoch)

    def put(self, first: int, count: int, size: int = 100) -> None:
        """Put messages one after the other."""
        for index in range(first, first + count):
            self._put(index, size)

    def _put(self, index: int, size: int) -> bool:
        msg = MessageExtBrokerInner(TOPIC, f"{index}:".encode().ljust(size, b"\0"))
        msg.queue_id = 0
        msg.born_host, msg.store_host = ("127.0.0.1", 40000), ("127.0.0.1", 10911)
        msg.properties = {"KEYS": f"k{index}"}
        msg.properties_string = message_properties2string(msg.properties)
        done = self.store.put_message(msg).put_message_status.name == "PUT_OK"
        if done:
            with self._lock:
                self._acked.add(index)
        return done

    def load(self, first: int, size: int = 100, threads: int = 3) -> None:
        """Put messages in the background until `stop`."""
        self._next = first
        self._loading.set()
        self._senders = [threading.Thread(target=self._send, args=(size,), name=f"sender-{at}", daemon=True)
                         for at in range(threads)]
        for sender in self._senders:
            sender.start()

    def _send(self, size: int) -> None:
        while self._loading.is_set():
            with self._lock:
                index, self._next = self._next, self._next + 1
            if not self._put(index, size):
                self._refused.wait(0.01)

    _refused = threading.Event()  # never set: a refused sender pauses

    def stop(self) -> None:
        """End the load."""
        self._loading.clear()
        for sender in self._senders:
            sender.join(240)
            assert not sender.is_alive(), "a sender hangs"

    def acked(self) -> set[int]:
        """Return the numbers of the messages that were answered PUT_OK."""
        with self._lock:
            return set(self._acked)

    def state(self) -> State:
        """Return the store's report about its state."""
        service, store = self.service, self.store
        return State(max=store.get_max_phy_offset(), min=store.get_min_phy_offset(), confirm=service.confirm_offset(),
                     set=sorted(service.sync_state_set.members), queue=store.get_max_offset_in_queue(TOPIC, 0),
                     behind=store.dispatch_behind_bytes(), client=service.ha_client.state.name,
                     connections=[f"{one.state.name}/{one.slave_ack_offset}" for one in service.connection_list],
                     epochs=[entry[:2] for entry in service.epoch_cache.get_all_entries()])

    def shutdown(self) -> None:
        """Close the store cleanly."""
        if self.store is not None:
            self.store.shutdown()
            self.store = None

    def kill(self) -> None:
        """Stop as in a crash: the abort file stays, nothing is flushed, and the checkpoint is not updated."""
        if self.store is not None:
            self.store.running_flags.get_and_make_not_writeable()
            self.store.store_checkpoint.flush = self.store.store_checkpoint.shutdown = lambda: None
            self.shutdown()

    def crash_under_load(self) -> None:
        """Do `kill` while messages are put: senders get no answer, or an error."""
        store = self.store
        self._loading.clear()
        self.kill()
        assert store.is_shutdown
        self.stop()

    def tail(self) -> str:
        """Return an empty text: pytest shows this process's log."""
        return ""


class JavaReplica(AutoSwitchStore):
    """The same interface for a real 5.1.4 store."""

    def __init__(self, folder: Path, broker_id: int, **properties: object) -> None:
        super().__init__(folder, broker_id, **{"mappedFileSizeCommitLog": SEGMENT, **properties})
        self._acked_before: set[int] = set()

    def promote(self, epoch: int) -> None:
        """Become the master, alone in its syncStateSet, as its controller sets it."""
        # Before the role change: unconfirmed messages would get no place in its queue.
        self.tell("set", self.broker_id)
        assert self.tell("master", epoch) == "true"

    def follow(self, address: str | None, epoch: int) -> None:
        """Become a slave; without an address, of a master that does not exist."""
        assert self.tell("slave", address or "127.0.0.1:1", epoch) == "true"

    def put(self, first: int, count: int, size: int = 100) -> None:
        """Put messages one after the other."""
        self.tell("put", first, count, size)

    def load(self, first: int, size: int = 100, threads: int = 3) -> None:
        """Put messages in the background until `stop`."""
        self.tell("load", first, size, threads)

    def stop(self) -> None:
        """End the load."""
        self.tell("stop")


Replica = RmqhaReplica | JavaReplica


def wait_same_end(one: Replica, other: Replica) -> None:
    """Wait until both logs end at the same offset and everything is dispatched."""
    wait_until(lambda: one.state().max == other.state().max, TIMEOUT_MS, f"{one.name} and {other.name} end alike")
    for replica in (one, other):
        def has_all(replica: Replica = replica) -> bool:
            now = replica.state()  # read once: it lags behind the confirmed offset
            return now.behind <= 0 and now.confirm == one.state().max
        wait_until(has_all, TIMEOUT_MS, f"{replica.name} dispatches all: {replica.state()}")


def log_bytes(replica: Replica, start: int, end: int) -> bytes:
    """Return the commit log's bytes from `start` to `end`, as they are in its files."""
    data = b""
    for path in sorted((replica.root / "commitlog").iterdir()):
        at = int(path.name)
        if at < end and at + SEGMENT > start:
            data += path.read_bytes()[max(0, start - at):end - at]
    return data


def assert_same_logs(one: Replica, other: Replica) -> int:
    """Check that the logs are byte-identical over their common range; return its end."""
    first, second = one.state(), other.state()
    assert first.max == second.max
    start = max(first.min, second.min, 0)
    assert log_bytes(one, start, first.max) == log_bytes(other, start, first.max)
    assert len(log_bytes(one, start, first.max)) == first.max - start
    return first.max


def stored_indexes(replica: RmqhaReplica) -> list[int]:
    """Return the numbers of the messages in the queue, in its order, as a consumer gets them."""
    found, offset = [], replica.store.get_min_offset_in_queue(TOPIC, 0)
    while offset < replica.store.get_max_offset_in_queue(TOPIC, 0):
        result = replica.store.get_message("g", TOPIC, 0, offset, 32)
        for buffer in result.message_buffer_list:
            body_at = 4 * 5 + 8 * 2 + 4 + 8 + 8 + 8 + 8 + 4 + 8 + 4
            found.append(int(bytes(buffer[body_at:body_at + 24]).partition(b":")[0]))
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
        result.release()
    return found
