"""Stores with every kind of message: each side rebuilds queues and index of the other byte for byte, and reads them.

The messages have tags, keys, several keys and none, text beyond ASCII and beyond the BMP in all parts, compressed
bodies. There are batches, delayed messages (delivered), transactions (committed, rolled back, committed at a check,
given up), IPv4 and IPv6 hosts, and many commit log, consume queue and index files.
"""
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import MessageStoreConfig
from tests.support import store_compare
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.wait import wait_until

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TOPIC = "Mixed"
QUEUES = 4
COUNT = 240  # of each phase
BATCH = 5
SLOTS, ENTRIES = 97, 300
SIZES = {"mappedFileSizeCommitLog": 1 << 16, "mappedFileSizeConsumeQueue": 20 * 20, "maxHashSlotNum": SLOTS,
         "maxIndexNum": ENTRIES}
# A broker that checks a transaction again before it has the answer commits twice.
TRANSACTIONS = {"transactionCheckInterval": 2000, "transactionTimeOut": 2000, "transactionCheckMax": 2}
HOSTS = ("127.0.0.1", "::1")
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TAGS = (None, "TagA", "标签", "Ωmega-ß", "smile-\U0001F600", "a-longer-tag_0")
OUTCOMES = ("commit", "rollback", "late", "never")


def describe(index: int, **more: object) -> dict:
    """Describe message `index`: tag, keys, text and properties repeat with different periods."""
    described = {"index": index, "flag": index * 1_000_003 % (1 << 31), **more}
    keys = (None, f"key-{index}", f"key-{index} group-{index // 40}", f"Schlüssel-{index}  订单-{index // 30}",
            f"\U0001F511-{index} a b{index % 5} key-{index}")[index % 5]
    if keys:
        described["keys"] = keys
    if TAGS[index % 6]:
        described["tag"] = TAGS[index % 6]
    if index % 4 == 1:
        described["properties"] = {"名": f"值 {index}", "words": " two words ", "emoji": "\U0001F680" * (index % 7 + 1)}
    chinese = "".join(chr(0x4E00 + (index * 31 + at * at) % 900) for at in range(index % 60))
    text = f"{index} größe \U0001F600 {chinese}"
    # the client compresses from 4 KiB on
    described["body"] = text * (150 if index % 45 == 12 else 1)
    return described


def descriptions(first: int, transactions: bool, delays: tuple[int, ...], count: int = COUNT) -> list[dict]:
    """Return `count` descriptions, some with one of the delay levels; every message of a batch has its own index."""
    described, index = [], first
    for number in range(count):
        if number % 12 == 4:
            described.append({"batch": [describe(index + at) for at in range(BATCH)]})
            index += BATCH
            continue
        more: dict[str, object] = {}
        if delays and number % 12 in (6, 8):
            more["delayLevel"] = delays[number // 12 % len(delays)]
        elif transactions and number % 12 in (1, 9):
            more["transaction"] = OUTCOMES[number // 12 % 4]
        described.append(describe(index, **more))
        index += 1
    return described


def flat(described: list[dict]) -> list[dict]:
    """Return all single messages, including those of batches."""
    return [one for each in described for one in each.get("batch", [each])]


def visible(described: list[dict]) -> dict[int, dict]:
    """Return the messages that a consumer gets, by index."""
    return {one["index"]: one for one in flat(described) if one.get("transaction") not in ("rollback", "never")}


def send(driver, broker: BrokerNode, described: list[dict]) -> None:
    """Send all messages, and assert that each is stored."""
    results = driver.send_mixed(broker.namesrv, TOPIC, described)
    assert [result for result in results if result[0] != "SEND_OK"] == []


def check_read(messages: list[dict], expected: dict[int, dict], written_by: str) -> None:
    """Assert that each message was read once, with every field as it was sent."""
    assert sorted(int(message["properties"]["index"]) for message in messages) == sorted(expected)
    for message in messages:
        properties = message["properties"]
        sent = expected[int(properties["index"])]
        # Java's broker loses the flag of a half message when it writes it again for a check.
        flag = 0 if written_by == "java" and sent.get("transaction") == "late" else sent["flag"]
        got = {"body": message["body"], "flag": message["flag"], "tag": properties.get("TAGS"),
               "keys": properties.get("KEYS"), **{name: properties.get(name) for name in sent.get("properties", {})}}
        assert got == {"body": sent["body"], "flag": flag, "tag": sent.get("tag"), "keys": sent.get("keys"),
                       **sent.get("properties", {})}


def keys_of(expected: dict[int, dict]) -> dict[str, set[int]]:
    """Return key -> messages that have it, except keys with more messages than one query returns."""
    by_key = defaultdict(set)
    for index, message in expected.items():
        for key in message.get("keys", "").split():
            by_key[key].add(index)
    return {key: indices for key, indices in by_key.items() if len(indices) <= 64}


def check_keys(driver, namesrv: str, expected: dict[int, dict]) -> int:
    """Assert that every key finds exactly its messages; return the number of keys."""
    by_key = keys_of(expected)
    keys = list(by_key)
    for key, found in zip(keys, driver.query_keys(namesrv, TOPIC, keys), strict=True):
        assert sorted(found) == sorted(by_key[key]), key
    assert driver.query_keys(namesrv, TOPIC, ["no-such-key", "Schlüssel"]) == [[], []]
    return len(keys)


def at_host(broker: BrokerNode, kind: str, host: str) -> BrokerNode:
    """Start the broker (again) as `kind`, with the address `host`, which it stores with each message."""
    broker.properties["brokerIP1"] = host
    return broker.become(kind).start()


def write_phases(driver, broker: BrokerNode, kind: str) -> list[dict]:
    """Fill the store of a broker of `kind` at an IPv4 and then an IPv6 host, and stop it; return the messages sent."""
    sent: list[dict] = []
    for phase, host in enumerate(HOSTS):
        at_host(broker, kind, host)
        if not phase:
            driver.create_topic(broker.namesrv, broker.address, TOPIC, QUEUES)
        described = descriptions(10_000 * phase, True, (1,) if phase else (1, 2))  # level 2: 5 s
        send(driver, broker, described)
        sent += described
        expected = visible(sent)
        check_read(driver.read_mixed(broker.namesrv, TOPIC, f"reader-{phase}", len(expected)), expected, kind)
        wait_until(lambda: any(record.topic == GIVEN_UP_TOPIC for record in store_compare.walk(broker.commit_log)),
                   60_000, "a message given up")
        broker.stop()
        assert not (broker.store / "abort").exists()
    return sent


@pytest.fixture(scope="module")
def javas(module_nodes: list, tmp_path_factory, java_driver) -> dict[str, tuple[Path, dict]]:
    """Return Java's stores 'stopped' and 'killed': name -> (folder, messages that can be found in it)."""
    folder = tmp_path_factory.mktemp("javas")
    namesrv = NamesrvNode("java", folder / "namesrv", shared_jvm=True)
    broker = BrokerNode("java", folder / "broker", namesrv.address, shared_jvm=True, **SIZES, **TRANSACTIONS)
    module_nodes += [namesrv, broker]
    namesrv.start()
    sent = write_phases(java_driver, broker, "java")
    shutil.copytree(broker.store, folder / "stopped")
    stores = {"stopped": (folder / "stopped", visible(sent))}
    broker.shared_jvm = False  # because it is killed
    # no writes on its own when it is killed
    broker.properties["transactionCheckInterval"] = 3_600_000
    at_host(broker, "java", HOSTS[0])
    more = descriptions(50_000, transactions=False, delays=(), count=60)
    send(java_driver, broker, more)
    expected = visible(sent + more)
    check_read(java_driver.read_mixed(broker.namesrv, TOPIC, "reader-2", len(expected)), expected, "java")
    store_compare.wait_dispatched(broker.store)
    by_key = keys_of(expected)
    last = max(by_key, key=lambda key: max(by_key[key]))
    wait_until(lambda: java_driver.query_keys(broker.namesrv, TOPIC, [last])[0], 60_000,
               "the last message in the index")
    broker.kill()
    assert (broker.store / "abort").exists()
    stores["killed"] = broker.store, expected
    namesrv.kill()
    return stores


def open_with_rmqha(root: Path, use: Callable[[DefaultMessageStore], None] = lambda store: None) -> None:
    """Load and start the store below `root` in this process, yield it, and shut it down."""
    config = MessageStoreConfig(storePathRootDir=str(root), haListenPort=0, **SIZES)
    store = DefaultMessageStore(config, None, None, BrokerConfig())
    assert store.load()
    try:
        store.start()
        use(store)
    finally:
        store.shutdown()


def without_derived(source: Path, copy: Path, *more: str) -> Path:
    """Copy a store without its consume queues, its index, and the files named."""
    shutil.copytree(source, copy)
    for name in ("consumequeue", "index"):
        shutil.rmtree(copy / name)
    for name in more:
        (copy / name).unlink(missing_ok=True)
    return copy


def assert_same_derived(store: Path, original: Path) -> None:
    """Assert that consume queues and index files have the same bytes, and match the log."""
    assert store_compare.compare_consume_queues(store, original) == store_compare.check_consume_queues(store)
    assert store_compare.compare_index_files(store, original, SLOTS) > 3 * ENTRIES


def check_kinds(store: Path) -> None:
    """Assert that the store has every kind of message that the tests need."""
    records = list(store_compare.walk(store / "commitlog"))
    topics = {record.topic for record in records}
    assert {record.sys_flag & 0x30 for record in records} >= {0, 0x30}
    assert any(record.sys_flag & 1 for record in records), "no compressed body"
    assert {record.properties["DELAY"] for record in records if record.topic == store_compare.SCHEDULE_TOPIC} == \
        {"1", "2"}
    assert {HALF_TOPIC, OP_TOPIC, GIVEN_UP_TOPIC} <= topics
    assert any(record.sys_flag & 0xC == 0x8 for record in records), "no committed message"
    assert len(store_compare.segments(store / "commitlog")) > 3
    assert len(list((store / "index").iterdir())) > 3
    assert min(len(store_compare.segments(store / "consumequeue" / TOPIC / str(queue))) for queue in range(QUEUES)) > 3


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_java_store_holds_every_kind(javas, name):
    check_kinds(javas[name][0])


@pytest.mark.parametrize("name", ["stopped", "killed"])
@pytest.mark.parametrize("gone", [(), ("checkpoint",)], ids=["with-checkpoint", "without-checkpoint"])
def test_rebuilt_consume_queues_and_index_equal_javas(javas, name, gone, tmp_path):
    original, _ = javas[name]
    copy = without_derived(original, tmp_path / "store", *gone)
    open_with_rmqha(copy)
    assert_same_derived(copy, original)
    assert store_compare.compare_commit_logs(copy / "commitlog", original / "commitlog")[1] == \
        store_compare.log_end(original / "commitlog")


@pytest.mark.parametrize("gone", [(), ("checkpoint",)], ids=["with-checkpoint", "without-checkpoint"])
def test_queues_and_index_rebuilt_by_crash_recovery_equal_javas(javas, gone, tmp_path):
    original, _ = javas["stopped"]
    copy = without_derived(original, tmp_path / "store", *gone)
    (copy / "abort").touch()
    open_with_rmqha(copy)
    assert_same_derived(copy, original)


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_opening_a_java_store_leaves_queues_and_index_unchanged(javas, name, tmp_path):
    original, _ = javas[name]
    copy = tmp_path / "store"
    shutil.copytree(original, copy)
    open_with_rmqha(copy)
    assert_same_derived(copy, original)


@pytest.mark.parametrize("name", ["stopped", "killed"])
def test_every_key_of_a_java_store_is_found(javas, name, tmp_path):
    original, expected = javas[name]

    def query(store: DefaultMessageStore) -> None:
        for key, indices in keys_of(expected).items():
            result = store.query_message(TOPIC, key, 64, 0, (1 << 63) - 1)
            found = [message_decoder.decode(buffer) for buffer in result.message_buffer_list]
            result.release()
            assert {int(message.properties["index"]) for message in found} == indices, key
            assert all(message.body.decode() == expected[int(message.properties["index"])]["body"] for message in found)

    copy = without_derived(original, tmp_path / "store")
    open_with_rmqha(copy, query)


def test_java_finds_and_reads_everything_in_an_rmqha_store(make_namesrv, make_broker, java_driver, tmp_path):
    namesrv = make_namesrv("rmqha").address
    broker = make_broker("rmqha", namesrv, start=False, shared_jvm=True, **SIZES, **TRANSACTIONS)
    sent = write_phases(java_driver, broker, "rmqha")
    expected = visible(sent)
    check_kinds(broker.store)
    written = tmp_path / "written"
    shutil.copytree(broker.store, written)

    # from here on nothing is written
    broker.properties["transactionCheckInterval"] = 3_600_000
    at_host(broker, "java", HOSTS[1])
    check_read(java_driver.read_mixed(namesrv, TOPIC, "java-reader", len(expected)), expected, "rmqha")
    assert check_keys(java_driver, namesrv, expected) > COUNT
    broker.stop()
    assert_same_derived(broker.store, written)

    for name in ("consumequeue", "index"):
        shutil.rmtree(broker.store / name)
    broker.start()
    assert check_keys(java_driver, namesrv, expected) > COUNT
    broker.stop()
    assert_same_derived(broker.store, written)
