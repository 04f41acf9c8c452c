"""A slave that diverged from its master after both lost power: its disk has records that the master's lacks, and the
master continues with others.

The stores are restored from images: the master's was taken before the records that it loses.
"""
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import HARuntimeInfo
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store.consume_queue_layout import PRE_BLANK_UNIT
from rmqha.store.ha import ha_client, log_comparison
from rmqha.store.message_store_config import BrokerRole, FlushDiskType
from rmqha.tools.rmqha_command import rmqha
from tests.broker.support import BrokerHarness, bodies, running_broker
from tests.support import ports
from tests.support.wait import wait_until

TOPIC, QUEUES = "T", 3
STORED = (response_code.SUCCESS, response_code.SLAVE_NOT_AVAILABLE, response_code.FLUSH_SLAVE_TIMEOUT)


@pytest.fixture(autouse=True)
def quick_waits(monkeypatch):
    monkeypatch.setattr(ha_client, "_RETRY_MS", 100)


class Pair:
    """A master and a slave whose stores are in `folder`; each may be down."""

    def __init__(self, folder: Path, stack: ExitStack, **keys: object) -> None:
        self.folder, self.stack, self.keys = folder, stack, keys
        self.ports = {name: ports.free_broker_port() for name in ("master", "slave")}
        self.running: dict[str, ExitStack] = {}
        self.sent = 0

    def start(self, name: str, **keys: object) -> BrokerHarness:
        is_slave, port = name == "slave", self.ports[name]
        role = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1,
                "haMasterAddress": f"127.0.0.1:{self.ports['master'] + 1}"
                } if is_slave else {"brokerRole": BrokerRole.SYNC_MASTER}
        self.running[name] = self.stack.enter_context(ExitStack())
        return self.running[name].enter_context(running_broker(
            self.folder / name, listenPort=port, haListenPort=port + 1, flushDiskType=FlushDiskType.SYNC_FLUSH,
            mappedFileSizeCommitLog=64 * 1024, **{**role, **self.keys, **keys}))

    def lose_power(self) -> None:
        """Stop both, and restore their stores from the images."""
        for name in ("slave", "master"):
            self.running.pop(name).close()
            shutil.rmtree(self.folder / name)
            shutil.copytree(self.folder / f"{name}.image", self.folder / name)

    def take_image(self, name: str) -> None:
        shutil.copytree(self.folder / name, self.folder / f"{name}.image")

    def send(self, master: BrokerHarness, count: int, size: int = 300) -> None:
        for _ in range(count):
            body = b"%05d|" % self.sent + b"x" * size
            assert master.send(TOPIC, body, self.sent % QUEUES).code in STORED
            self.sent += 1


def wait_for_log(slave: BrokerHarness, master: BrokerHarness) -> None:
    wait_until(lambda: slave.store.get_max_phy_offset() == master.store.get_max_phy_offset(), 60_000, "the same end")


def read_all(broker: BrokerHarness) -> list[list[bytes]]:
    """Return the messages that consumers get, queue by queue."""
    found = []
    for queue_id in range(QUEUES):
        offset, end, messages = 0, broker.next_offset(TOPIC, queue_id), []
        while offset < end:
            response = broker.pull(TOPIC, offset, queue_id=queue_id)
            messages += bodies(response)
            before, offset = offset, int(response.ext_fields["nextBeginOffset"])
            assert offset > before, response
        found.append(messages)
    return found


def flush(slave: BrokerHarness, end: int) -> None:
    """Flush the slave's log and note the flushed end in its checkpoint."""
    assert slave.store.flush_up_to(end)
    checkpoint = slave.store.store_checkpoint
    checkpoint.log_flushed = end
    checkpoint.flush()


def synchronize(slave: BrokerHarness, master: BrokerHarness) -> None:
    slave.controller.slave_synchronize.master_addr = master.address
    slave.controller.slave_synchronize.sync_all()


def told(broker: BrokerHarness) -> dict[str, str]:
    stats: dict[str, str] = {}
    broker.store.ha_service.build_running_stats(stats)
    return stats


def state(slave: BrokerHarness) -> str:
    return told(slave).get("haClientState", "")


@pytest.fixture
def after_loss(tmp_path):
    """after_loss(size of the new messages, **keys) -> pair, master, slave, end of the common log, end of the
    slave's."""
    with ExitStack() as stack:
        def make(size: int, new: int = 60, of_master: dict | None = None, **keys: object):
            pair, of_master = Pair(tmp_path, stack, **keys), of_master or {}
            master, slave = pair.start("master", **of_master), pair.start("slave")
            pair.send(master, 40)
            wait_for_log(slave, master)
            common = master.store.get_max_phy_offset()
            pair.take_image("master")
            pair.send(master, 20)
            wait_for_log(slave, master)
            end = slave.next_offset(TOPIC) and slave.store.get_max_phy_offset()
            # Without being asked, a slave truncates only records that look intact but were not flushed.
            flush(slave, end)
            pair.take_image("slave")
            pair.lose_power()
            master = pair.start("master", **of_master)
            assert master.store.get_max_phy_offset() == common
            pair.send(master, new, size)
            slave = pair.start("slave")
            assert keys.get("haTruncateDivergedTail") or slave.store.get_max_phy_offset() == end
            return pair, master, slave, common, end

        yield make


@pytest.mark.parametrize("size, new", [(300, 60), (520, 60), (300, 7), (300, 0)],
                         ids=["equal sizes, overtaken", "other sizes, overtaken", "not overtaken yet", "nothing new"])
def test_slave_with_a_tail_that_the_master_lost_is_refused_until_it_rejoins(size, new, after_loss):
    pair, master, slave, common, end = after_loss(size, new)
    wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
    stats = told(slave)
    assert stats["haDivergedOffset"] == str(common) and f"equal up to {common}" in stats["haDivergedReason"]
    assert slave.store.get_max_phy_offset() == end
    key = f"haRefusedSlave_127.0.0.1_{end}"
    wait_until(lambda: key in told(master) and master.store.ha_service.slave_count() == 0, 60_000,
               "refused by the master, and gone")
    refused = told(master)[key].split(",")
    assert (refused[0], refused[3]) == (str(end), str(common))
    # The truncated tail is saved.
    tail = read_log(slave, common)
    assert slave.call(request_code.REJOIN_MASTER).code == response_code.SUCCESS
    wait_for_log(slave, master)
    (kept,) = (pair.folder / "slave" / "store" / "diverged").iterdir()
    assert kept.name.startswith(f"{common:020d}.") and kept.read_bytes() == tail
    pair.send(master, 10, size)
    wait_for_log(slave, master)
    check_same(master, slave)


def check_same(master: BrokerHarness, slave: BrokerHarness) -> None:
    assert read_log(slave, 0) == read_log(master, 0)
    synchronize(slave, master)
    expected = read_all(master)
    assert read_all(slave) == expected
    assert sum(map(len, expected)) >= 20
    assert state(slave) == "TRANSFER" and "haDivergedOffset" not in told(slave)


def read_log(broker: BrokerHarness, offset: int) -> bytes:
    data = b""
    while (result := broker.store.get_commit_log_data(offset)) is not None:
        with result:
            data += bytes(result.buffer)
            offset += result.size
    return data


@pytest.mark.parametrize("size", [300, 520], ids=["equal sizes", "other sizes"])
def test_slave_may_truncate_its_tail_automatically(size, after_loss):
    _pair, master, slave, _common, _end = after_loss(size, haTruncateDivergedTail=True)
    wait_for_log(slave, master)
    check_same(master, slave)


@pytest.mark.parametrize("size", [300, 520], ids=["equal sizes", "other sizes"])
def test_end_of_a_master_without_log_comparison_is_checked_record_by_record(size, after_loss):
    """As with RocketMQ: its HA port has no handshake, but its main port shows records."""
    pair, master, slave, common, end = after_loss(size, of_master={"haHandshakeEnable": "false"})
    wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
    assert told(slave)["haDivergedOffset"] == str(common) and slave.store.get_max_phy_offset() == end
    assert slave.call(request_code.REJOIN_MASTER).code == response_code.SUCCESS
    wait_for_log(slave, master)
    (kept,) = (pair.folder / "slave" / "store" / "diverged").iterdir()
    assert kept.stat().st_size == end - common
    assert read_log(slave, 0) == read_log(master, 0)
    synchronize(slave, master)
    assert read_all(slave) == read_all(master)


def test_truncation_survives_a_restart(after_loss):
    pair, master, slave, _common, _end = after_loss(300, haTruncateDivergedTail=True)
    wait_for_log(slave, master)
    pair.running.pop("slave").close()
    slave = pair.start("slave")
    pair.send(master, 5)
    wait_for_log(slave, master)
    check_same(master, slave)


def test_slave_with_a_prefix_of_the_masters_log_is_compared_and_continues(tmp_path):
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        master, slave = pair.start("master"), pair.start("slave")
        pair.send(master, 10)
        wait_for_log(slave, master)
        pair.running.pop("slave").close()
        pair.send(master, 10)
        slave = pair.start("slave")
        wait_for_log(slave, master)
        (identity,) = master.store.ha_service.counted_slaves.slave_acks()
        # Exchanged in the handshake.
        assert identity == "DefaultCluster/broker-a/1"
        check_same(master, slave)


def test_status_of_a_diverged_slave_is_reported_over_the_wire(after_loss):
    _pair, _master, slave, common, _end = after_loss(300)
    wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
    body = slave.call(request_code.GET_BROKER_HA_STATUS).body
    client = remoting_serializable.decode(HARuntimeInfo, body).haClientRuntimeInfo
    assert (client.state, client.divergedOffset) == ("DIVERGED", common)


def test_command_brings_a_diverged_slave_back(after_loss):
    pair, master, slave, common, end = after_loss(300)
    wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
    result = CliRunner().invoke(rmqha, ["ha", "rejoin", "-b", slave.address])
    assert result.exit_code == 0, result.output
    (kept,) = (pair.folder / "slave" / "store" / "diverged").iterdir()
    assert result.output == (f"{slave.address}: truncated {end - common} bytes from offset {common}, saved to {kept}\n"
                             f"{slave.address} follows 127.0.0.1:{pair.ports['master'] + 1} again\n")
    wait_for_log(slave, master)
    check_same(master, slave)
    result = CliRunner().invoke(rmqha, ["ha", "rejoin", "-b", slave.address])
    assert result.exit_code == 2 and "has not diverged" in result.output


def test_slave_with_no_common_record_is_not_truncated(tmp_path):
    """A wrong haMasterAddress must not cost a store."""
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack, haTruncateDivergedTail=True)
        pair.send(pair.start("slave", brokerRole=BrokerRole.ASYNC_MASTER, brokerId=0), 30)
        pair.running.pop("slave").close()
        pair.send(pair.start("master"), 60)
        slave = pair.start("slave")
        end = slave.store.get_max_phy_offset()
        wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
        assert "set it up from scratch" in told(slave)["haDivergedReason"]
        assert slave.store.get_max_phy_offset() == end and sum(map(len, read_all(slave))) == 30


def test_slave_that_can_not_save_its_tail_keeps_it(after_loss, monkeypatch):
    _pair, _master, slave, _common, end = after_loss(300)
    wait_until(lambda: state(slave) == "DIVERGED", 60_000, "the divergence is found")
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(log_comparison.os, "fsync", lambda _fd: (_ for _ in ()).throw(full))
    assert slave.call(request_code.REJOIN_MASTER).code == response_code.SUCCESS
    client = slave.store.ha_service.ha_client
    wait_until(lambda: "No space left" in client.last_error, 60_000, "said why")
    assert slave.store.get_max_phy_offset() == end and state(slave) == "DIVERGED"


def test_only_a_slave_that_has_diverged_rejoins(tmp_path):
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        master, slave = pair.start("master"), pair.start("slave")
        pair.send(master, 1)
        wait_for_log(slave, master)
        for broker, reason in ((master, "not a slave"), (slave, "has not diverged")):
            answer = broker.call(request_code.REJOIN_MASTER)
            assert answer.code == response_code.SYSTEM_ERROR and reason in answer.remark


def test_pulls_from_a_slave_skip_no_message_after_blank_units(tmp_path):
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack)
        master, slave = pair.start("master"), pair.start("slave")
        pair.send(master, 90)
        wait_for_log(slave, master)
        synchronize(slave, master)
        expected = read_all(slave)
        files = slave.store.get_consume_queue(TOPIC, 1).mapped_file_queue.mapped_files
        files[0].slice_byte_buffer()[7 * 20:10 * 20] = PRE_BLANK_UNIT * 3
        answer = slave.pull(TOPIC, 8, queue_id=1)
        assert answer.code == response_code.PULL_RETRY_IMMEDIATELY and answer.ext_fields["nextBeginOffset"] == "10"
        del expected[1][7:10]
        assert read_all(slave) == expected
