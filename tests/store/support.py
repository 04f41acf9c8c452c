"""Small stores for tests, and the messages in them."""
import tarfile
import zlib
from contextlib import contextmanager
from pathlib import Path

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageExtBatch
from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import MessageStoreConfig
from tests.support.wait import wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "store_java_4.9.7"
BORN_HOST = ("10.1.2.3", 40000)
STORE_HOST = ("127.0.0.1", 10911)
# Bytes of a record that `message` makes for one-letter topics with a body of 100 bytes.
FILE_SIZE = 16384


def config(root, **keys) -> MessageStoreConfig:
    """Make the configuration of a store with small files, like the golden stores."""
    sizes = {"mappedFileSizeCommitLog": FILE_SIZE, "mappedFileSizeConsumeQueue": 1000, "maxHashSlotNum": 50,
             "maxIndexNum": 200, "haListenPort": 0, "deleteCommitLogFilesInterval": 0,
             "deleteConsumeQueueFilesInterval": 0, "syncFlushTimeout": 60_000, "slaveTimeout": 60_000}
    return MessageStoreConfig(storePathRootDir=str(root), **{**sizes, **keys})


def new_store(root, listener=None, broker: BrokerConfig | None = None, **keys) -> DefaultMessageStore:
    """Make a store that is not loaded yet."""
    return DefaultMessageStore(config(root, **keys), None, listener, broker or BrokerConfig())


@contextmanager
def open_store(root, listener=None, **keys):
    """Open a running store, and shut it down at the end."""
    store = new_store(root, listener, **keys)
    assert store.load()
    try:
        store.start()
        yield store
    finally:
        store.shutdown()


def crash(store: DefaultMessageStore) -> None:
    """Stop a store without a clean shutdown: the abort file stays, nothing is flushed, the checkpoint stays."""
    store.running_flags.get_and_make_not_writeable()
    store.store_checkpoint.flush = lambda: None
    store.shutdown()


def message(topic: str = "T", queue_id: int = 0, body: bytes = b"b" * 100, **properties: str) -> MessageExtBrokerInner:
    """Make a message with `properties`, ready to be put."""
    msg = MessageExtBrokerInner(topic, body)
    msg.queue_id = queue_id
    msg.born_host, msg.store_host = BORN_HOST, STORE_HOST
    msg.born_timestamp = 1_600_000_000_000
    msg.properties = dict(properties)
    msg.properties_string = message_properties2string(msg.properties)
    return msg


def batch(bodies: list[bytes], topic: str = "T", queue_id: int = 0, **properties: str) -> MessageExtBatch:
    """Make a batch of messages with `bodies`, ready to be put."""
    from rmqha.common.message.message import Message
    encoded = b"".join(message_decoder.encode_message(_plain(Message(topic, body))) for body in bodies)
    msg = MessageExtBatch(topic, encoded)
    msg.queue_id = queue_id
    msg.born_host, msg.store_host = BORN_HOST, STORE_HOST
    msg.properties = dict(properties)
    return msg


def _plain(msg):
    msg.properties = {"KEYS": "k"}
    return msg


def put(store: DefaultMessageStore, *messages: MessageExtBrokerInner) -> list:
    """Put messages, and expect success; return their append results."""
    results = []
    for msg in messages:
        result = store.put_message(msg)
        assert result.is_ok, result
        results.append(result.append_message_result)
    return results


def wait_dispatched(store: DefaultMessageStore) -> None:
    """Wait until every appended byte is dispatched."""
    wait_until(lambda: store.dispatch_behind_bytes() <= 0, 60_000, "everything dispatched")


def bodies(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0, offset: int = 0) -> list[bytes]:
    """Return the bodies of all messages of a queue from `offset` on."""
    found = []
    while offset < store.get_max_offset_in_queue(topic, queue_id):
        result = store.get_message("g", topic, queue_id, offset, 32)
        found += [message_decoder.decode(buffer, True, False).body for buffer in result.message_buffer_list]
        assert result.next_begin_offset > offset, result
        offset = result.next_begin_offset
        result.release()
    return found


def describe(store: DefaultMessageStore) -> list[str]:
    """Describe everything in the store, in the format of the golden files."""
    out = []
    for topic in sorted(store.consume_queue_table):
        for queue_id in sorted(store.consume_queue_table[topic]):
            offset = store.get_min_offset_in_queue(topic, queue_id)
            end = store.get_max_offset_in_queue(topic, queue_id)
            while offset < end:
                result = store.get_message("g", topic, queue_id, offset, 32)
                out += [_line(topic, queue_id, buffer) for buffer in result.message_buffer_list]
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
                result.release()
            out.append(f"queue {topic} {queue_id} {store.get_min_offset_in_queue(topic, queue_id)} {end}")
    for number in range(10):
        found = store.query_message(f"GoldenTopic{number % 3}", f"key{number}", 64, 0, (1 << 63) - 1)
        out.append(f"key{number} {len(found.message_buffer_list)} {found.buffer_total_size}")
        found.release()
    out.append(f"end {store.get_max_phy_offset()}")
    return out


def _line(topic: str, queue_id: int, buffer: memoryview) -> str:
    msg = message_decoder.decode(buffer, True, False)
    return " ".join(map(str, (topic, queue_id, msg.queue_offset, msg.commit_log_offset, msg.store_size,
                              zlib.crc32(msg.body), msg.sys_flag, msg.store_timestamp, msg.tags or "null")))


def unpack_golden(name: str, folder: Path) -> Path:
    """Unpack the golden store `name` below `folder`, and return its path."""
    # Extraction filters exist since Python 3.11.4.
    filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
        archive.extractall(folder, **filters)
    return folder / name


def tree(root) -> dict[str, bytes]:
    """Map the path below `root` of each file to its content."""
    root = Path(root)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
