"""A bit that flips on its way to a slave: damaged bytes are never acknowledged.

Flips are drawn: the place in a record or a frame's header, the sizes of the records, the record that is hit, and
whether it is hit once or every time it is sent.
"""
import json
import random
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqha.common.message.message_decoder import message_properties2string
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.ha import ha_client
from rmqha.store.ha.peers import MasterKind
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.results import PutMessageStatus
from tests.faults.flips import CHECKED, HEADER, UNCHECKED, Flip, Relay, some_size
from tests.faults.same_bytes import end_of
from tests.store.ha.test_ha_service import log_of, make_store
from tests.support import store_compare
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import GET_BROKER_RUNTIME_INFO, Answer, RawClient
from tests.support.tiers import in_all, pick
from tests.support.wait import wait_until

MIB = 1 << 20
KEYS = {"mappedFileSizeCommitLog": 8 * MIB, "haSendHeartbeatInterval": 100, "slaveTimeout": 600_000}
DRAWS = 4  # of each seed
WAIT_MS = 120_000
NOT_ACKNOWLEDGED = {PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE}
UPDATE_BROKER_CONFIG = 25
SEND_OK = 0
LATER_OR_NOT = (11, 12)  # SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT
NUDGE_S = 0.2
# Bytes; a few such messages fill the largest possible frame.
NUDGE = 700_000
# Bytes of a body: three fit into one frame.
SMALL_FRAMES = 8000


class Stores:
    """A master, a slave, and the relay between them."""

    def __init__(self, folder: Path, **keys: object) -> None:
        self.rng = random.Random(0)
        self.folder = folder
        self.master = make_store(folder / "master", BrokerRole.SYNC_MASTER, **{**KEYS, **keys})
        self.slave = make_store(folder / "slave", BrokerRole.SLAVE, haVerifyRecords=True, **{**KEYS, **keys})
        # The future results of the puts.
        self.pending: list = []
        self._nudge_at = 0.0

    def __enter__(self) -> "Stores":
        master, slave = self.master, self.slave
        assert master.load() and slave.load()
        master.start()
        self.relay = Relay(master.ha_service.ha_listen_port)
        self.client.ask_main_port = lambda _address: MasterKind.OURS
        slave.update_ha_master_address(self.relay.address)
        slave.start()
        wait_until(lambda: master.ha_service.ack_rule.is_slave_ok(master.get_max_phy_offset()), WAIT_MS, "a slave")
        self.put(300)
        self.settle()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay.close()
        self.slave.shutdown()
        self.master.shutdown()

    @property
    def client(self) -> ha_client.HAClient:
        """The slave's HA client."""
        return self.slave.ha_service.ha_client

    def stats(self) -> dict[str, str]:
        """Return the slave's runtime table."""
        table: dict[str, str] = {}
        self.slave.ha_service.build_running_stats(table)
        return table

    def put(self, size: int) -> None:
        """Put a message of random bytes without waiting."""
        msg = MessageExtBrokerInner("T", self.rng.randbytes(size))
        msg.properties_string = message_properties2string({"KEYS": f"k{size}", "TAGS": "some"})
        msg.born_host, msg.store_host = ("10.1.2.3", 4567), ("10.1.2.4", 10911)
        self.pending.append(self.master.async_put_message(msg))
        self.master.ha_service.send_to_slaves()

    @property
    def records(self) -> Path:
        """The records of the master's commit log."""
        return self.folder / "master" / "commitlog"

    def append(self, sizes: list[int]) -> list[store_compare.Record]:
        """Put messages while nothing is sent to the slave; return their records."""
        begin = self.master.get_max_phy_offset()
        self.relay.pause()
        for size in sizes:
            self.put(size)
        return list(store_compare.walk(self.records, begin=begin))

    def nudged_until(self, fact: Callable[[], object], what: str, waiting: Iterable = ()) -> None:
        """Wait, and send more from time to time, because a slave waits for the rest of a length that is too large.
        `waiting` stay unanswered."""
        def holds() -> bool:
            assert not [future for future in waiting if future.is_done], "damaged bytes were acknowledged"
            if fact():
                return True
            if time.monotonic() > self._nudge_at:
                self._nudge_at = time.monotonic() + NUDGE_S
                self.put(NUDGE)
            return False
        self._nudge_at = time.monotonic() + NUDGE_S
        wait_until(holds, WAIT_MS, what)

    def assert_nothing_wrong_is_held(self) -> None:
        """Assert that the slave's log is a part of the master's, and that no more is acknowledged than it has."""
        acknowledged = self.master.ha_service.push2_slave_max_offset.get()
        held = log_of(self.slave)
        assert held == log_of(self.master)[:len(held)]
        assert acknowledged <= len(held)

    def assert_not_acknowledged(self, record: store_compare.Record, from_there: list) -> None:
        """Assert that the slave's log ends before the record, and the puts of this and later records still wait."""
        assert self.slave.get_max_phy_offset() <= record.offset
        assert self.master.ha_service.push2_slave_max_offset.get() <= record.offset
        assert not [future for future in from_there if future.is_done]

    def settle(self) -> None:
        """Wait until everything is acknowledged, and compare the logs."""
        wait_until(lambda: self.slave.get_max_phy_offset() == self.master.get_max_phy_offset(), WAIT_MS, "the end")
        assert log_of(self.slave) == log_of(self.master)
        wait_until(lambda: all(future.is_done for future in self.pending), WAIT_MS, "an answer for each put")
        self.pending.clear()


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


@pytest.fixture
def stores(tmp_path):
    with Stores(tmp_path) as made:
        yield made


def draw(stores: Stores, rng: random.Random, place: str) -> tuple[store_compare.Record, list, Flip]:
    """Return the records to be sent, the one to hit, the puts that wait for it or a later one, and the flip."""
    sizes = [some_size(rng) for _ in range(rng.choice((1, 1, 3, 6)))]
    if place == "frame's size":
        # each frame ends with a record
        sizes = [rng.randint(100, SMALL_FRAMES) for _ in sizes[:3]]
    records = stores.append(sizes)
    assert len(records) == len(sizes)
    number = rng.randrange(len(records))
    record, waiting = records[number], stores.pending[number:]
    if place in HEADER:
        bit = HEADER[place](rng)
        return record, waiting, Flip(record.offset, bit.mask, bit.byte)
    bit = CHECKED[place](store_compare.bytes_of(stores.records, record), rng)
    return record, waiting, Flip(record.offset + bit.byte, bit.mask)


def is_hit_once(stores: Stores, record: store_compare.Record, waiting: list, flip: Flip) -> None:
    """Check that after one flip the slave reconnects and fetches the record again, and all is acknowledged."""
    failures, ended = stores.client.verify_failures, stores.relay.ended
    mine = list(stores.pending)
    stores.relay.hold()
    stores.relay.flip = flip
    stores.relay.go()
    stores.nudged_until(lambda: stores.relay.ended > ended, "the slave closes the connection",
                        waiting if flip.header_at is None else ())
    stores.assert_nothing_wrong_is_held()
    if flip.header_at is None:
        stores.assert_not_acknowledged(record, waiting)
        assert stores.client.verify_failures == failures + 1
        assert stores.client.verify_failed_offset == record.offset
    stores.relay.admit()
    stores.settle()
    assert {future.get(0).put_message_status for future in mine} == {PutMessageStatus.PUT_OK}
    assert flip.hits == 1 and stores.slave.ha_service.divergence.found is None
    if flip.header_at is None:
        assert stores.client.verify_failures == failures + 1


def is_hit_each_time(stores: Stores, record: store_compare.Record, waiting: list, flip: Flip) -> None:
    """Check that this and later records are acknowledged only after the flips end."""
    flip.times = float("inf")
    mine = list(stores.pending)
    stores.relay.flip = flip
    stores.relay.go()
    divergence = stores.slave.ha_service.divergence
    if flip.header_at is None:
        stores.nudged_until(lambda: divergence.found is not None, "the slave has diverged", waiting)
        found = divergence.found
        assert found.offset == record.offset and "damaged" in found.reason
        assert stores.stats()["haClientState"] == "DIVERGED"
        assert stores.stats()["haDivergedOffset"] == str(record.offset)
        stores.assert_not_acknowledged(record, waiting)
    # the records of a frame with a damaged header may be good, and then are not sent again
    stores.nudged_until(lambda: flip.hits >= 4 or flip.header_at is not None and
                        stores.slave.get_max_phy_offset() > record.offset, "the slave keeps requesting it")
    stores.assert_nothing_wrong_is_held()
    if flip.header_at is None:
        stores.assert_not_acknowledged(record, waiting)
        assert divergence.found is not None
    stores.relay.flip = None
    stores.settle()
    assert {future.get(0).put_message_status for future in mine} == {PutMessageStatus.PUT_OK}
    wait_until(lambda: stores.stats()["haClientState"] == "TRANSFER", WAIT_MS, "the slave has recovered")
    assert divergence.found is None


@pytest.mark.parametrize("seed", range(pick(3, all=11)))
def test_flipped_bit_is_never_acknowledged(stores, seed):
    """Eleven seeds with four draws each cover all places."""
    places = [*CHECKED, *HEADER]
    rng = random.Random(seed)
    for number in range(DRAWS):
        place = places[(seed * DRAWS + number) % len(places)]
        each_time = bool((seed * DRAWS + number) // len(places) % 2)
        (is_hit_each_time if each_time else is_hit_once)(stores, *draw(stores, rng, place))


def status(future) -> PutMessageStatus:
    """Return the result of a put."""
    return wait_until(lambda: future.is_done and future.get(0), WAIT_MS, "an answer").put_message_status


def test_damage_is_reported_on_both_sides_and_to_senders(tmp_path, caplog):
    caplog.set_level("INFO", "RocketmqStore")
    with Stores(tmp_path, slaveTimeout=300) as stores:
        (record,) = stores.append([5000])
        future = stores.pending[-1]
        flip = stores.relay.flip = Flip.each_time(record.offset + 1000, 1)
        stores.relay.go()
        divergence = stores.slave.ha_service.divergence
        wait_until(lambda: divergence.found is not None, WAIT_MS, "the slave has diverged")
        assert status(future) in NOT_ACKNOWLEDGED
        wait_until(lambda: flip.hits >= 4, WAIT_MS, "the slave keeps requesting it")
        stores.put(100)
        assert status(stores.pending[-1]) in NOT_ACKNOWLEDGED
        assert stores.slave.get_max_phy_offset() == record.offset
        place = f"the record at commit log offset {record.offset} has a body that does not match its CRC"
        wait_until(lambda: "failed its checks every time" in caplog.text, WAIT_MS, "the master's report")
        lines = [line for line in caplog.text.splitlines() if place in line]
        assert "The record is fetched again" in lines[0] and any("arrived damaged again" in line for line in lines[1:])
        wait_until(lambda: f"sent it a record at {record.offset} that failed its checks" in caplog.text, WAIT_MS)
        stores.relay.flip = None
        stores.settle()
        assert divergence.found is None
        wait_until(lambda: f"the record at {record.offset}, which had failed its checks, was " in caplog.text, WAIT_MS)
        stores.nudged_until(lambda: status(stores.pending[-1]) is PutMessageStatus.PUT_OK
                            if stores.pending else stores.put(100), "a message is acknowledged")


def test_flips_at_unchecked_places_are_accepted_and_left_to_scrubbing(tmp_path):
    """A slave accepts and acknowledges these places. If that changes, the lists in flips.py must change, too."""
    rng, segment = random.Random(1), 128 * 1024
    with Stores(tmp_path, mappedFileSizeCommitLog=segment, haScrubEnable=False) as stores:
        flipped = []
        for place, (reason, some_bit) in UNCHECKED.items():
            (record,) = stores.append([300])
            bit = some_bit(store_compare.bytes_of(stores.records, record), rng)
            flipped.append(record.offset + bit.byte)
            take_flipped(stores, Flip(flipped[-1], bit.mask), place)
            assert reason
        while stores.master.get_max_phy_offset() < segment:
            stores.append([30_000])
        # in the rest of a file
        flipped.append(segment - 1)
        take_flipped(stores, Flip(flipped[-1], 1), "rest of a file")
        mine, theirs = log_of(stores.master), log_of(stores.slave)
        assert [at for at, (a, b) in enumerate(zip(mine, theirs, strict=True)) if a != b] == flipped


def take_flipped(stores: Stores, flip: Flip, place: str) -> None:
    """Send the waiting records with a flip, and return when they are acknowledged."""
    stores.relay.flip = flip
    stores.relay.go()
    for future in stores.pending:
        assert status(future) is PutMessageStatus.PUT_OK, place
    stores.pending.clear()
    assert flip.hits == 1 and stores.client.verify_failures == 0, place


def test_all_bits_of_a_record_are_listed():
    """Each byte of a record is in one of the lists, or in both, depending on its bits."""
    body, topic, properties = 40, b"Topic", b"KEYS\x01k\x02"
    record = bytes(84) + body.to_bytes(4, "big") + bytes(body) + bytes([len(topic)]) + topic
    record += len(properties).to_bytes(2, "big") + properties
    rng = random.Random(2)
    drawn = {some_bit(record, rng).byte for some_bit in [*CHECKED.values(), *(pair[1] for pair in UNCHECKED.values())]
             for _ in range(1000)}
    topic_at = 88 + body + 1
    drawn |= set(range(topic_at, topic_at + len(topic))) if topic_at in drawn else set()  # its first byte is hit
    assert drawn == set(range(len(record)))


class Brokers:
    """A master of any kind, an rmqha slave, and the relay between them."""

    def __init__(self, folder: Path, kind: str) -> None:
        keys = {"mappedFileSizeCommitLog": 8 * MIB}
        self.master = BrokerNode(kind, folder / "master", None, "master", brokerRole="SYNC_MASTER",
                                 slaveTimeout=600_000, **keys).start(WAIT_MS)
        self.relay = Relay(self.master.ha_port, self.master.port)
        self.slave = BrokerNode("rmqha", folder / "slave", None, "slave", brokerRole="SLAVE", brokerId=1,
                                haMasterAddress=self.relay.address, **keys).start(WAIT_MS)
        self.rng = random.Random(3)
        self.answers: list[Answer] = []

    def close(self) -> None:
        """Kill both brokers."""
        self.relay.close()
        self.slave.kill()
        self.master.kill()

    def send(self, size: int) -> Answer:
        """Send a message of random bytes."""
        with RawClient(self.master.address, WAIT_MS / 1000) as client:
            return client.send_message("Flipped", self.rng.randbytes(size))

    def appended(self, sizes: list[int]) -> tuple[list[store_compare.Record], list[threading.Thread]]:
        """Send while the relay is paused; return the master's records, and the threads that wait for answers."""
        begin = end_of(self.master)
        self.relay.pause()
        self.answers = []
        threads = [threading.Thread(target=lambda size=size: self.answers.append(self.send(size))) for size in sizes]
        for thread in threads:
            thread.start()

        def records() -> list[store_compare.Record] | None:
            found = list(store_compare.walk(self.master.commit_log, end_of(self.master), begin))
            return found if len(found) == len(sizes) else None
        return wait_until(records, WAIT_MS, "the master has them"), threads

    def table(self) -> dict[str, str]:
        """Return the slave's runtime table."""
        with RawClient(self.slave.address) as client:
            return json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]

    def set_slave_timeout(self, timeout_ms: int) -> None:
        """Set the time that the master waits for its slave."""
        with RawClient(self.master.address) as client:
            assert client.request(UPDATE_BROKER_CONFIG, f"slaveTimeout={timeout_ms}\n".encode()).code == 0

    def wait_until_equal(self) -> None:
        """Wait until the slave has the whole log, and compare it byte for byte."""
        end = end_of(self.master)
        wait_until(lambda: end_of(self.slave) == end, WAIT_MS, "the master's end")
        assert store_compare.compare_commit_logs(self.master.commit_log, self.slave.commit_log, end) == (0, end)

    def log(self, node: BrokerNode) -> str:
        """Return the store log of a broker."""
        return "".join(file.read_text("utf-8") for file in node.folder.rglob("store.log"))


@pytest.fixture
def brokers(tmp_path):
    """Yield brokers(kind of the master) -> running Brokers, after the first acknowledgement."""
    made: list[Brokers] = []

    def start(kind: str) -> Brokers:
        made.append(Brokers(tmp_path, kind))
        wait_until(lambda: made[0].send(100).code == SEND_OK, WAIT_MS, "an acknowledgement")
        made[0].wait_until_equal()
        return made[0]
    yield start
    for one in made:
        one.close()


@in_all
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["rmqha", pytest.param("java", marks=pytest.mark.java)])
def test_brokers_never_acknowledge_a_flipped_bit(brokers, kind):
    pair = brokers(kind)
    is_fetched_again(pair)
    is_never_acknowledged(pair, kind)
    pair.set_slave_timeout(600_000)
    pair.relay.flip = None
    wait_until(lambda: pair.send(1000).code == SEND_OK, WAIT_MS, "a message is acknowledged")
    pair.wait_until_equal()
    wait_until(lambda: pair.table()["haClientState"] == "TRANSFER", WAIT_MS, "the slave has recovered")
    assert "haDivergedOffset" not in pair.table()


def is_fetched_again(pair: Brokers) -> None:
    """Check that after one flip every waiting message is acknowledged and correct."""
    records, threads = pair.appended([300, 20_000, 200_000, 5000])
    hit, ended = records[2], pair.relay.ended
    flip = pair.relay.flip = Flip(hit.offset + hit.size // 2, 0x20)
    pair.relay.hold()
    pair.relay.go()
    wait_until(lambda: pair.relay.ended > ended, WAIT_MS, "the slave closes the connection")
    assert end_of(pair.slave) <= hit.offset
    pair.relay.admit()
    for thread in threads:
        thread.join(WAIT_MS / 1000)
    assert [answer.code for answer in pair.answers] == [SEND_OK] * len(records)
    pair.wait_until_equal()
    assert flip.hits == 1 and "haDivergedOffset" not in pair.table()
    assert f"record at commit log offset {hit.offset} has a body" in pair.log(pair.slave)


def is_never_acknowledged(pair: Brokers, kind: str) -> None:
    """Check the answers, the slave's table and the logs while the bit flips every time."""
    pair.set_slave_timeout(1000)
    (hit,), (thread,) = pair.appended([20_000])
    flip = pair.relay.flip = Flip.each_time(hit.offset + hit.size // 2, 0x20)
    pair.relay.go()
    thread.join(WAIT_MS / 1000)
    wait_until(lambda: pair.table()["haClientState"] == "DIVERGED", WAIT_MS, "the slave has diverged")
    assert pair.answers[0].code in LATER_OR_NOT
    assert pair.table()["haDivergedOffset"] == str(hit.offset)
    wait_until(lambda: flip.hits >= 3, WAIT_MS, "the slave requests it again")
    assert pair.send(100).code in LATER_OR_NOT
    assert end_of(pair.slave) == hit.offset
    assert f"record at commit log offset {hit.offset} has a body" in pair.log(pair.slave)
    assert "arrived damaged again" in pair.log(pair.slave)
    if kind == "rmqha":
        wait_until(lambda: f"sent it a record at {hit.offset} that failed its checks" in pair.log(pair.master), WAIT_MS,
                   "the master's report")
