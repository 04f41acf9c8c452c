"""A bit flips on the disk of a slave or of its master: every tool reports it until it is repaired."""
import json
import os
import struct
from contextlib import ExitStack, contextmanager

import pytest

from rmqha.broker.metrics.broker_metrics import BrokerMetrics
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from tests.support.in_process import running_name_server
from tests.support.ports import free_ha_port
from tests.support.raw_remoting import Scrape, metrics_port
from tests.support.tiers import in_all
from tests.support.wait import wait_until
from tests.tools.conftest import Cluster, broker_at

MINUTES_MS = 180_000
BODY_AT = 200  # within a record, and within its body of 1000 bytes
BORN_AT = 47  # the last byte of its bornTimestamp
PROMISE_MS, HOUR_MS = 2000, 3_600_000


def slave_of(stack, folder, namesrv, ha_address, promise_ms=PROMISE_MS):
    """A slave that has to compare its whole log within two seconds."""
    return stack.enter_context(broker_at(
        folder / "slave", namesrv, brokerClusterName="C", brokerRole=BrokerRole.SLAVE, brokerId=1,
        haMasterAddress=ha_address, haScrubPromise=promise_ms, haScrubBytesPerSecond=64 << 20))


def slave_alone(folder):
    """The slave of that folder, without its master."""
    return broker_at(folder / "slave", None, brokerRole=BrokerRole.SLAVE, brokerId=1,
                     haMasterAddress=f"127.0.0.1:{free_ha_port()}", haScrubPromise=HOUR_MS)


@pytest.fixture
def scrubbing(tmp_path):
    """A master and a slave that has compared its whole log."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        master = stack.enter_context(broker_at(tmp_path / "master", namesrv, brokerClusterName="C"))
        ha_address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        made = Cluster(namesrv, master, slave_of(stack, tmp_path, namesrv, ha_address))
        made.send(50)
        wait_until(lambda: told(made.slave).get("haScrubRounds", "0") != "0", MINUTES_MS, "a round is done")
        yield made


def told(broker) -> dict[str, str]:
    """Return a broker's runtime table."""
    with ClusterAdmin(timeout_millis=60_000) as admin:
        return admin.runtime_info(broker.address)


def record_begins(log: bytes) -> list[int]:
    """Return the commit log offsets of the records of a log that starts at 0."""
    begins, at = [], 0
    while at + 4 <= len(log) and (size := struct.unpack_from(">i", log, at)[0]) > 0:
        begins.append(at)
        at += size
    return begins


def flip(broker, offset: int) -> None:
    """Change a bit of the file on the disk, as a failing disk does: behind the broker's back."""
    file = os.open(os.path.join(broker.store.message_store_config.get_store_path_commit_log(), f"{0:020d}"), os.O_RDWR)
    try:
        byte = os.pread(file, 1, offset)
        os.pwrite(file, bytes([byte[0] ^ 1]), offset)
    finally:
        os.close(file)


@contextmanager
def damaged(broker, offset: int):
    """Flip a bit of the record at `offset` meanwhile."""
    flip(broker, offset + BODY_AT)
    yield
    flip(broker, offset + BODY_AT)


def rounds(cluster) -> int:
    return int(told(cluster.slave)["haScrubRounds"])


def differences_are(cluster, count: int) -> dict[str, str]:
    """Wait until the slave reports this number of differences; return its table."""
    def look():
        table = told(cluster.slave)
        return table if table["haScrubDifferences"] == str(count) else None
    return wait_until(look, MINUTES_MS, f"{count} records differ")


def findings(run, cluster) -> list[tuple[str, str, str]]:
    """Return the faults of replication that the doctor finds."""
    result = run("doctor", "-n", cluster.namesrv, "-o", "json", "--timeout", "60")
    assert result.exit_code in (0, 1), result.output
    return [(each["severity"], each["what"], each["todo"]) for each in json.loads(result.stdout)["findings"]
            if each["check"] == "replication" and each["severity"] in ("ERROR", "WARNING")]


def all_is_well(run, cluster) -> None:
    """Wait until the check succeeds: a slave that has just started may lag."""
    wait_until(lambda: run("check", "ha", "-n", cluster.namesrv, "--timeout", "60").exit_code == 0, MINUTES_MS,
               "nothing is wrong with replication")


def test_bit_flip_on_a_slave_is_reported_everywhere_until_it_is_repaired(scrubbing, run):
    offset = record_begins(scrubbing.log())[20]
    where = f"1 record of its log is not its master's, the first at offset {offset}"
    all_is_well(run, scrubbing)
    with damaged(scrubbing.slave, offset), metrics_port(BrokerMetrics(scrubbing.slave.controller)) as port:
        before = rounds(scrubbing)
        table = differences_are(scrubbing, 1)
        assert int(table["haScrubRounds"]) <= before + 2, "the current round or the next one has to find it"
        assert table["haScrubFirstDifference"] == str(offset) and table["haScrubDamaged"].startswith("slave:1")
        shown = run("ha", "status", "-n", scrubbing.namesrv, "--timeout", "60").stdout
        root = scrubbing.slave.store.message_store_config.storePathRootDir
        assert where in shown and "the slave's copy is damaged" in shown and "TRANSFER" in shown
        assert f"rmqha store repair {root} --master {scrubbing.master.address} --apply" in shown
        checked = run("check", "ha", "-n", scrubbing.namesrv, "--timeout", "60")
        assert checked.exit_code == 2 and checked.stdout.startswith("HA CRITICAL") and where in checked.stdout
        ((severity, what, todo),) = findings(run, scrubbing)
        assert severity == "ERROR" and where in what and "rmqha store repair" in todo
        assert Scrape(port).value("rmqha_slave_scrub_differences") == 1
    differences_are(scrubbing, 0)
    all_is_well(run, scrubbing)
    assert findings(run, scrubbing) == []


@in_all
def test_repaired_slave_reports_it_as_soon_as_it_follows_again(tmp_path, run):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        master = stack.enter_context(broker_at(tmp_path / "master", namesrv, brokerClusterName="C"))
        ha_address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        with ExitStack() as first:
            cluster = Cluster(namesrv, master, slave_of(first, tmp_path, namesrv, ha_address))
            cluster.send(20)
            offset = record_begins(cluster.log())[10]
            # No checksum of a record covers it, and a start does not notice it.
            flip(cluster.slave, offset + BORN_AT)
            assert differences_are(cluster, 1)["haScrubDamaged"] == "unknown:1"
            assert "no CRC shows which copy is right" in run("ha", "status", "-n", namesrv).stdout
            # A round that the shutdown interrupts is completed, and counted, after the start.
            cluster.slave.store.message_store_config.haScrubEnable = False
            wait_until(lambda: told(cluster.slave)["haScrubState"] == "OFF", MINUTES_MS, "no round is under way")
        with slave_alone(tmp_path) as broker:
            table = told(broker)
            assert (table["haScrubState"], table["haScrubFirstDifference"]) == ("WAITING", str(offset)), "is forgotten"
        root = cluster.slave.store.message_store_config.storePathRootDir
        repaired = run("store", "repair", root, "--master", master.address, "--apply", "--timeout", "60")
        assert repaired.exit_code == 0 and "1 replaced by the master's" in repaired.output, repaired.output
        cluster.slave = slave_of(stack, tmp_path, namesrv, ha_address, promise_ms=HOUR_MS)
        differences_are(cluster, 0)
        assert rounds(cluster) == 0, "it must not have to compare everything again for that"
        assert cluster.log() == Cluster(namesrv, cluster.slave, master).log()


def test_bit_flip_on_the_master_is_not_taken_for_the_slaves(scrubbing, run):
    offset = record_begins(scrubbing.log())[30]
    with damaged(scrubbing.master, offset):
        differences_are(scrubbing, 1)
        shown = run("ha", "status", "-n", scrubbing.namesrv, "--timeout", "60").stdout
        assert f"the first at offset {offset} (" in shown and "): the master's copy is damaged" in shown
        assert "store repair" not in shown
        ((severity, what, todo),) = findings(run, scrubbing)
        assert severity == "ERROR" and "the master's copy" in what and "make this slave the master" in todo


@in_all
def test_damaged_record_of_the_master_is_not_stored_and_does_not_condemn_the_slave(tmp_path, run):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        master = stack.enter_context(broker_at(tmp_path / "master", namesrv, brokerClusterName="C"))
        for _ in range(10):
            assert master.send("T", b"b" * 1000).code == 0
        ha_address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        cluster = Cluster(namesrv, master, master)
        offset = record_begins(cluster.log())[5]
        with damaged(master, offset):
            cluster.slave = slave_of(stack, tmp_path, namesrv, ha_address)
            wait_until(lambda: told(cluster.slave).get("haClientState") == "DIVERGED", MINUTES_MS, "it comes twice")
            table = told(cluster.slave)
            assert int(table["haVerifyFailures"]) >= 2 and table["haVerifyFailedOffset"] == str(offset)
            assert table["commitLogMaxOffset"] == str(offset) == table["haVerifiedBytes"]
            checked = run("check", "ha", "-n", namesrv, "--timeout", "60")
            assert checked.exit_code == 2 and f"diverged at offset {offset}: " in checked.stdout
            wrong = [todo for severity, what, todo in findings(run, cluster) if "damaged" in what]
            assert wrong and all(each.startswith("run rmqha store verify on the master's store") for each in wrong)
        end = master.store.get_max_phy_offset()
        wait_until(lambda: cluster.slave.store.get_max_phy_offset() == end, MINUTES_MS, "it continues")
        checked = wait_until(lambda: (result := run("check", "ha", "-n", namesrv, "--timeout", "60")).exit_code < 2
                             and result, MINUTES_MS, "nothing of it is left but the count")
        assert checked.exit_code == 1 and f"the last at offset {offset}" in checked.stdout
