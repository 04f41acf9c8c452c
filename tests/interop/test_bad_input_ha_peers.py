"""Lying peers on the replication link: at a master's HA port, and a fake master that an rmqha slave connects to."""
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
    """Return a slave's report, which is the end of its log."""
    return struct.pack(">q", offset)


def ha_frame(offset: int, body: bytes = b"", size: int | None = None) -> bytes:
    """Return a master's frame: offset, size, body. The size may be wrong."""
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


@pytest.fixture
def master(make_broker):
    """Yield a SYNC_MASTER with some messages and no slave: it may acknowledge nothing that it stores."""
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
    """The slave keeps reporting the same end of its log, because the master closes silent connections. A later message
    is beyond that end, whatever other peers have claimed before."""
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


def test_slave_that_does_not_catch_up_acknowledges_nothing(master):
    assert_a_slave_that_stays_behind_acknowledges_nothing(master)


def test_partial_reports_and_silence_acknowledge_nothing_and_are_closed(master):
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


def test_flood_of_reports_is_closed_without_delaying_other_clients(master):
    end = store_compare.log_end(master.commit_log)
    with RawClient(master.ha_address) as peer, pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(500):
            peer.send(report(end) * 10_000)
            master.good.check()
    assert_nothing_is_acknowledged(master)


def test_http_and_random_bytes_on_the_ha_port_are_closed(master):
    for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + bytes(range(200)), b"\xff" * 4096):
        with RawClient(master.ha_address) as peer:
            peer.send(data)
            assert peer.is_closed_by_peer()
    assert_nothing_is_acknowledged(master)


def test_probes_of_the_ha_port_leak_nothing(master):
    holdings = Holdings(master)
    for _ in range(10_000):
        RawClient(master.ha_address).socket.close()
    holdings.assert_returned()
    assert_nothing_is_acknowledged(master)


class FakeMaster:
    """A server at the HA address that the slave connects to."""

    def __init__(self) -> None:
        self.port = ports.free_ha_port()
        self.address = f"127.0.0.1:{self.port}"
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listener.settimeout(60)
        self.connection: socket.socket | None = None

    def accept(self) -> int:
        """Accept the slave's next connection that sends a report, and return the report.

        For 10 s a slave with a log keeps reconnecting, because nothing on the main port says what this master is.
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
        """Return the slave's next report. Raise EOFError when the slave closes."""
        data = b""
        while len(data) < 8:
            chunk = self.connection.recv(8 - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return struct.unpack(">q", data)[0]

    def highest_report_until_closed(self, timeout_s: float = 60) -> int:
        """Read reports until the slave closes; return the highest one, or -1 if there was none."""
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
        """Close all sockets."""
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
    """Return the log of a master with ten messages."""
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
    """A separate slave process for one lie. It first gets a valid log, then the lie."""

    def __init__(self, what: str, make_broker: Callable, log: bytes):
        self.what, self.end = what, len(log)
        self.fake = FakeMaster()
        self.slave = make_broker("rmqha", None, what.replace(" ", "-"), brokerRole="SLAVE", brokerId=1,
                                 haMasterAddress=self.fake.address)
        assert self.fake.accept() == 0
        self.fake.connection.sendall(ha_frame(0, log))
        wait_until(lambda: self.fake.read_report() == self.end, 60_000, "the slave reports what it appended")

    def lie(self) -> None:
        """Send the lie. The slave may close before it is sent completely."""
        try:
            self.fake.connection.sendall(LIES[self.what](self.end))
        except (BrokenPipeError, ConnectionResetError):
            pass

    def fault(self) -> str | None:
        """Return the slave's mistake, or None if it closed, acknowledged no more, kept its log, and reconnected."""
        try:
            assert self.fake.highest_report_until_closed() <= self.end, "acknowledged"
            assert self.slave.is_alive and store_compare.log_end(self.slave.commit_log) == self.end, "log changed"
            with RawClient(self.slave.address) as client:
                assert client.request(28).code == 0, "serves no client"
            assert self.fake.accept() == self.end, "reconnected with another offset"
            assert store_compare.check_consume_queues(self.slave.store) == 10, "consume queue"
        except (AssertionError, TimeoutError) as e:
            return f"{self.what}: {e!r}"
        finally:
            self.fake.close()
        return None


def test_slave_disconnects_from_a_lying_master_and_acknowledges_nothing(make_broker, log_bytes):
    """All lies run in parallel, because a slave waits a while before it reconnects."""
    deceived = [Deceived(what, make_broker, log_bytes) for what in LIES]
    for one in deceived:
        one.lie()
    faults = [fault for one in deceived if (fault := one.fault())]
    assert not faults, "\n".join(faults)


# The slave last: it waits for 4 s only.
def test_slave_accepts_the_log_in_single_bytes(log_bytes, slave, fake_master):
    assert fake_master.accept() == 0
    fake_master.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in ha_frame(0, log_bytes):
        fake_master.connection.sendall(bytes([byte]))
    wait_until(lambda: fake_master.read_report() == len(log_bytes), 60_000, "the slave has the whole log")
    assert store_compare.log_end(slave.commit_log) == len(log_bytes)
    wait_until(lambda: store_compare.unit_count(slave.store) == 10, 60_000, "dispatched")


def test_silent_master_costs_no_cpu_time(slave, fake_master):
    """Silence, and then frames that never end: the slave waits or disconnects, and does not spin."""
    assert fake_master.accept() == 0
    watch = Holdings(slave)
    before = watch.cpu_seconds()
    fake_master.connection.sendall(ha_frame(0, size=1000) + b"only a part")
    assert fake_master.highest_report_until_closed() <= 0
    assert watch.cpu_seconds() - before < 1.5, "seconds of processor time while nothing happened"
    assert fake_master.accept() == 0
