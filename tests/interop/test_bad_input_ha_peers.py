"""Peers on the replication link that lie: on a master's HA port, and a fake master that an rmqha slave connects to."""
import socket
import struct
from collections.abc import Callable

import pytest

from tests.support import ports, store_compare
from tests.support.nodes import BrokerNode
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until
from tests.support.watch import GoodClient, Holdings

TOPIC = "GoodTopic"
SEND_OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE = 0, 12, 11
HOUSEKEEPING_MS = 2000
MAX_LONG = 2**63 - 1
FIRST_REPORTS = {"max + 1": lambda end: end + 1, "2^62": lambda end: 1 << 62, "2^63 - 1": lambda end: MAX_LONG,
                 "-1": lambda end: -1, "-2^63": lambda end: -2**63}


def report(offset: int) -> bytes:
    """What a slave sends: the end of its log."""
    return struct.pack(">q", offset)


def ha_frame(offset: int, body: bytes = b"", size: int | None = None) -> bytes:
    """What a master sends: offset, size, body; the size may lie."""
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


@pytest.fixture
def master(make_broker):
    """A SYNC_MASTER with some messages and no slave: nothing that it stores may be acknowledged."""
    broker = make_broker("rmqha", None, "master", brokerRole="SYNC_MASTER", slaveTimeout=500,
                         haHousekeepingInterval=HOUSEKEEPING_MS)
    broker.good = GoodClient(broker.address, TOPIC)
    for _ in range(5):
        broker.good.check()
    yield broker
    broker.good.close()


def status_of_a_send(master: BrokerNode) -> int:
    with RawClient(master.address) as client:
        return client.send_message_once("Sync", b"is anybody there").code


def assert_nothing_is_acknowledged(master: BrokerNode) -> None:
    assert status_of_a_send(master) in (FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE)
    master.good.check()


def assert_a_slave_that_stays_behind_acknowledges_nothing(master: BrokerNode) -> None:
    """It reports the same end of the log again and again, for the master closes a silent one: a later message is beyond
    that, whatever others have claimed before."""
    with RawClient(master.ha_address) as peer:
        end = store_compare.log_end(master.commit_log)

        def status() -> int:
            peer.send(report(end))
            return status_of_a_send(master)
        wait_until(lambda: status() == FLUSH_SLAVE_TIMEOUT, 60_000, "it counts as a slave")
        assert status() == FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("what", FIRST_REPORTS)
def test_slave_report_outside_the_log_closes_and_acknowledges_nothing(master, what):
    end = store_compare.log_end(master.commit_log)
    with RawClient(master.ha_address) as peer:
        peer.send(report(FIRST_REPORTS[what](end)))
        for _ in range(5):
            assert_nothing_is_acknowledged(master)
        assert peer.is_closed_by_peer()
    assert_nothing_is_acknowledged(master)
    wait_until(lambda: master.slaves_connected() == 0, 60_000, "the connection is gone")
    assert_a_slave_that_stays_behind_acknowledges_nothing(master)


def test_later_report_outside_the_log_closes_and_acknowledges_nothing(master):
    for bad in (1 << 62, -5):
        with RawClient(master.ha_address) as peer:
            peer.send(report(store_compare.log_end(master.commit_log)))
            peer.send(report(bad))
            assert_nothing_is_acknowledged(master)
            assert peer.is_closed_by_peer(), bad
    assert_nothing_is_acknowledged(master)


def test_slave_that_stays_behind_acknowledges_nothing(master):
    assert_a_slave_that_stays_behind_acknowledges_nothing(master)


def test_half_reports_and_silence_acknowledge_nothing_and_end(master):
    holdings = Holdings(master)
    for data in (b"", b"\0\0\0\0", b"\0\0\0\0\0\0\0"):
        with RawClient(master.ha_address) as peer:
            peer.send(data)
            assert_nothing_is_acknowledged(master)
            assert peer.is_closed_by_peer(), data
    with RawClient(master.ha_address) as peer:
        peer.send(b"\0\0\0\0")
    holdings.assert_returned()
    assert_nothing_is_acknowledged(master)


def test_flood_of_reports_is_closed_and_costs_the_good_client_nothing(master):
    end = store_compare.log_end(master.commit_log)
    with RawClient(master.ha_address) as peer, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(500):
            peer.send(report(end) * 10_000)
            master.good.check()
    assert_nothing_is_acknowledged(master)


def test_http_and_random_bytes_on_the_ha_port_end(master):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(range(200)), b"\xff" * 4096):
        with RawClient(master.ha_address) as peer:
            peer.send(data)
            assert peer.is_closed_by_peer()
    assert_nothing_is_acknowledged(master)


def test_probes_of_the_ha_port_leave_nothing(master):
    holdings = Holdings(master)
    for _ in range(10_000):
        RawClient(master.ha_address).socket.close()
    holdings.assert_returned()
    assert_nothing_is_acknowledged(master)


class FakeMaster:
    """Listens where the slave looks for its master's log."""

    def __init__(self) -> None:
        self.port = ports.free_ha_port()
        self.address = f"127.0.0.1:{self.port}"
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(60)
        self.connection: socket.socket | None = None

    def accept(self) -> int:
        """Take the slave's next connection that reports, and the report.

        For 10 s a slave that holds a log comes and goes: nobody on the main port tells what this master is.
        """
        while True:
            self.hang_up()
            self.connection, _ = self._listener.accept()
            self.connection.settimeout(60)
            try:
                return self.read_report()
            except (EOFError, ConnectionResetError):
                continue

    def read_report(self) -> int:
        """The slave's next report; EOFError when it closes."""
        data = b""
        while len(data) < 8:
            chunk = self.connection.recv(8 - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return struct.unpack(">q", data)[0]

    def highest_report_until_closed(self, timeout_s: float = 60) -> int:
        """Read reports until the slave closes; the highest one, -1 when there was none."""
        highest = -1
        self.connection.settimeout(timeout_s)
        while True:
            try:
                highest = max(highest, self.read_report())
            except (EOFError, ConnectionResetError):
                return highest

    def hang_up(self) -> None:
        """Close the connection."""
        if self.connection:
            self.connection.close()

    def close(self) -> None:
        """Close all."""
        self.hang_up()
        self._listener.close()


@pytest.fixture
def fake_master():
    fake = FakeMaster()
    yield fake
    fake.close()


@pytest.fixture
def slave(make_broker, fake_master):
    return make_broker("rmqha", None, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=fake_master.address,
                       haHousekeepingInterval=HOUSEKEEPING_MS * 2)


@pytest.fixture
def log_bytes(make_broker) -> bytes:
    """The log of a master with ten messages."""
    broker = make_broker("rmqha", None, "writer")
    good = GoodClient(broker.address, TOPIC)
    for _ in range(10):
        good.check()
    good.close()
    broker.stop()
    return (broker.commit_log / ("0" * 20)).read_bytes()[:store_compare.log_end(broker.commit_log)]


LIES: dict[str, Callable[[int], bytes]] = {
    "size -1": lambda end: ha_frame(end, size=-1),
    "size -13": lambda end: ha_frame(end, size=-13),
    "size -2^31": lambda end: ha_frame(end, size=-2**31),
    "size 2^31 - 1": lambda end: ha_frame(end, size=2**31 - 1) + bytes(100_000),
    "size above the read buffer": lambda end: ha_frame(end, size=4 * 1024 * 1024 + 1) + bytes(4 * 1024 * 1024),
    "offset too high": lambda end: ha_frame(end + 8, b"x" * 100),
    "offset too low": lambda end: ha_frame(end - 8, b"x" * 100),
    "offset negative": lambda end: ha_frame(-1, b"x" * 100),
    "heartbeat at a wrong offset": lambda end: ha_frame(end + 1),
    "bytes that are no messages": lambda end: ha_frame(end, b"garbage!" * 100),
    "record with an absurd size": lambda end: ha_frame(end, struct.pack(">II", 2**31 - 1, 0xDAA320A7) + bytes(200)),
    "HTTP": lambda end: b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
}


class Deceived:
    """A slave process of its own for one lie: first it gets a right log, then the lie."""

    def __init__(self, what: str, make_broker: Callable, log: bytes):
        self.what, self.end = what, len(log)
        self.fake = FakeMaster()
        self.slave = make_broker("rmqha", None, what.replace(" ", "-"), brokerRole="SLAVE", brokerId=1,
                                 haMasterAddress=self.fake.address)
        assert self.fake.accept() == 0
        self.fake.connection.sendall(ha_frame(0, log))
        wait_until(lambda: self.fake.read_report() == self.end, 60_000, "the slave reports what it took")

    def lie(self) -> None:
        """Send the lie; the slave may close before it is sent whole."""
        try:
            self.fake.connection.sendall(LIES[self.what](self.end))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def fault(self) -> str | None:
        """What the slave did wrong; None when it closed, acknowledged no more, kept its log, and came back."""
        try:
            assert self.fake.highest_report_until_closed() <= self.end, "acknowledged"
            assert self.slave.is_alive and store_compare.log_end(self.slave.commit_log) == self.end, "log changed"
            with RawClient(self.slave.address) as client:
                assert client.request(28).code == 0, "serves nobody"
            assert self.fake.accept() == self.end, "came back with another offset"
            assert store_compare.check_consume_queues(self.slave.store) == 10, "consume queue"
        except (AssertionError, TimeoutError) as e:
            return f"{self.what}: {e!r}"
        finally:
            self.fake.close()
        return None


def test_lying_master_is_left_and_never_acknowledged(make_broker, log_bytes):
    """All lies side by side, as a slave waits a while before it comes back."""
    deceived = [Deceived(what, make_broker, log_bytes) for what in LIES]
    for one in deceived:
        one.lie()
    faults = [fault for one in deceived if (fault := one.fault())]
    assert not faults, "\n".join(faults)


def test_slave_takes_the_log_in_single_bytes(log_bytes, slave, fake_master):  # the slave last: it waits for 4 s only
    assert fake_master.accept() == 0
    fake_master.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in ha_frame(0, log_bytes):
        fake_master.connection.sendall(bytes([byte]))
    wait_until(lambda: fake_master.read_report() == len(log_bytes), 60_000, "all taken")
    assert store_compare.log_end(slave.commit_log) == len(log_bytes)
    wait_until(lambda: store_compare.unit_count(slave.store) == 10, 60_000, "dispatched")


def test_silent_master_costs_no_processor_time(slave, fake_master):
    """Silence, then frames that never end: the slave waits or leaves, and spins in neither case."""
    assert fake_master.accept() == 0
    watch = Holdings(slave)
    before = watch.cpu_seconds()
    fake_master.connection.sendall(ha_frame(0, size=1000) + b"only a part")
    assert fake_master.highest_report_until_closed() <= 0
    assert watch.cpu_seconds() - before < 1.5, "seconds of processor time while nothing happened"
    assert fake_master.accept() == 0
