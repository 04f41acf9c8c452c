"""`check ha --deep`: slaves of ours beside their masters, with and without damage, and what can't be compared."""
import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from rmqha.common.message.message_layout import decode_header
from rmqha.common.protocol import request_code
from rmqha.store.clean_commit_log_service import CleanCommitLogService
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.replication import log_match
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until
from tests.tools.conftest import Cluster, broker_at

FILE = 1 << 18
WAIT_MS = 60_000
# A disk that others fill is no reason to delete files; above 95 % only the patch below helps.
KEPT = {"fileReservedTime": 720, "cleanFileForciblyEnable": False, "diskMaxUsedSpaceRatio": 95}


@contextmanager
def filled_cluster(folder: Path, **slave_keys):
    """A master and its slave, whose logs have four files and records of all sizes."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(CleanCommitLogService, "run", lambda _self: None))
        namesrv = stack.enter_context(running_name_server(folder))
        keys = {"brokerClusterName": "C", "mappedFileSizeCommitLog": FILE, "maxMessageSize": FILE,
                "haScrubEnable": False, **KEPT}  # what is flipped here is for these tests alone to find
        master = stack.enter_context(broker_at(folder / "master", namesrv, **keys))
        slave = stack.enter_context(broker_at(
            folder / "slave", namesrv, brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}", **{**keys, **slave_keys}))
        cluster = Cluster(namesrv, master, slave)
        for number in range(60):
            size = (13, 700, 5000, 30_000)[number % 4]
            answer = master.send(f"Topic{number % 3}", bytes([number]) * size, number % 2, {"KEYS": f"k{number}"})
            assert answer.code == 0
            if number == 0:  # a slave that connects later begins with the file that is the last one then
                wait_until(lambda: slave.store.get_max_phy_offset() == master.store.get_max_phy_offset(), WAIT_MS,
                           "the slave follows")
        cluster.send(1)
        yield cluster


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with filled_cluster(tmp_path_factory.mktemp("deep")) as cluster:
        yield cluster


def records(cluster) -> list[tuple[int, int]]:
    """(offset, size) of the records of the master's log."""
    store, offset, found = cluster.master.store, 0, []
    while offset < store.get_max_phy_offset():
        result = store.commit_log.get_message(offset, 88)
        with result:
            head = decode_header(bytes(result.buffer[:88]))
        if head.magic_code == -875286124:
            offset += FILE - offset % FILE
            continue
        found.append((offset, head.total_size))
        offset += head.total_size
    return found


@contextmanager
def flipped(broker, *offsets: int):
    """Other bytes in a broker's log, while it runs; right again at the end."""
    root = Path(broker.store.message_store_config.storePathRootDir)

    def flip():
        for offset in offsets:
            path = root / "commitlog" / f"{offset - offset % FILE:020d}"
            with path.open("r+b") as file:
                file.seek(offset % FILE)
                byte = file.read(1)[0]
                file.seek(offset % FILE)
                file.write(bytes([byte ^ 0x5A]))
    flip()
    try:
        yield
    finally:
        flip()


def check(run, cluster, *arguments, code):
    result = run("check", "ha", "-n", cluster.namesrv, "--deep", *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_equal_logs_are_ok_with_the_bytes_that_were_compared(filled, run):
    end = filled.master.store.get_max_phy_offset()
    line = check(run, filled, code=0)
    assert f"1 slave compared by checksums: {end / 1024:.1f} KiB ({end} bytes) are equal" in line
    assert f"'broker-a/{filled.slave.address} compared'={end}B;;;0" in line
    for arguments, size in ((("--bytes", "100000"), 100_000), (("--range", "5:77777"), 77_772), (("--range", ":"), end),
                            (("--range", f"{end - 3}:"), 3), (("--range", f"7:{end + 99}"), end - 7)):
        assert f"({size} bytes) are equal" in check(run, filled, *arguments, code=0)
    answer = json.loads(check(run, filled, "-o", "json", code=0))
    assert answer["deep"] == [{"name": "broker-a", "master": filled.master.address, "slave": filled.slave.address,
                               "begin": 0, "end": end, "comparedBytes": end, "unreadRestsThatDiffer": 0,
                               "difference": None, "error": None}]


@pytest.mark.parametrize(("side", "where", "whose"), [
    ("slave", "body", "the slave's copy is wrong: its body has another CRC than it says"),
    ("master", "body", "the master's copy is wrong: its body has another CRC than it says"),
    ("slave", "properties", "neither copy fails its CRC: properties or head differ"),
    ("slave", "size", "the slave's copy is wrong: "),
    ("slave", "magic", "the slave's copy is wrong: magic code"),
    ("slave", "place", "the slave's copy is wrong: it says that it lies at"),
    ("master", "magic", "the master's copy is wrong: magic code"),
])
def test_the_first_record_that_differs_is_named(filled, run, side, where, whose):
    found = records(filled)
    for number in (0, 1, 7, len(found) // 2, len(found) - 1):
        offset, size = found[number]
        at = offset + {"body": 90, "properties": size - 2, "size": 2, "magic": 5, "place": 33}[where]
        later = found[-1][0] + 92  # a second one behind it is not the first
        broker = getattr(filled, side)
        with flipped(broker, *{at, later if later > offset + size else at}):
            answer = json.loads(check(run, filled, "-o", "json", code=2))["deep"][0]["difference"]
        assert answer["offset"] == at and answer["record"] == offset and whose in answer["text"], answer
        if number < 60:
            assert (answer["topic"], answer["queueId"]) == (f"Topic{number % 3}", number % 2)
            assert answer["size"] == size and answer["queueOffset"] == sum(
                1 for earlier in range(number) if earlier % 6 == number % 6)
    assert "are equal" in check(run, filled, code=0)


def test_both_copies_may_be_wrong(filled, run):
    offset, _size = records(filled)[6]
    with flipped(filled.slave, offset + 91), flipped(filled.master, offset + 92):
        assert "both copies are wrong; the master's: its body" in check(run, filled, code=2)


def test_a_difference_outside_of_the_range_is_not_seen(filled, run):
    (first, _size), (last, _other) = records(filled)[3], records(filled)[-2]
    with flipped(filled.slave, first + 100):
        check(run, filled, "--range", f"{last}:", code=0)
        check(run, filled, "--bytes", "50000", code=0)
        assert f"offset {first + 100}, byte 100 of the record at {first}" in check(run, filled, code=2)


def test_what_nobody_reads_behind_a_blank_may_differ(filled, run):
    ends = [offset for offset, size in records(filled)]
    blanks = {offset - offset % FILE + FILE for offset in ends[:-1]} - {FILE * 10}
    rest = next(end - 1 for end in sorted(blanks) if all(offset + size < end - 20 for offset, size in records(filled)
                                                         if offset < end) and end < ends[-1])
    later = records(filled)[-1][0] + 95
    with flipped(filled.slave, rest):
        assert "are equal, but for the unread rests of 1 file" in check(run, filled, code=0)
        with flipped(filled.slave, later):
            assert f"differ at offset {later}" in check(run, filled, code=2)


def test_what_cannot_be_compared_is_unknown(filled, run, monkeypatch):
    end = filled.master.store.get_max_phy_offset()
    assert "nothing of that range in common: the master holds 0 to" in check(
        run, filled, "--range", f"{end}:", code=3)
    with monkeypatch.context() as patched:
        handlers = filled.slave.controller.remoting_server.default_request_processor.processor._handlers
        refuse = filled.slave.controller.remoting_server.default_request_processor.processor._handlers[
            request_code.REJOIN_MASTER]
        patched.setitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS, refuse)
        assert "can't be compared: the broker" in check(run, filled, code=3)
    alone = run("check", "ha", "-b", filled.slave.address, "--deep", "--min-slaves", "0")
    assert alone.exit_code == 3 and "give the name server (-n)" in alone.output
    for arguments, reason in ((("--range", "1:"), "say what --deep compares"), (("--bytes", "1k"), "say what --deep")):
        refused = run("check", "ha", "-n", filled.namesrv, *arguments)
        assert refused.exit_code == 3 and reason in refused.output
    for arguments, reason in ((("--range", "9:8"), "ends before it begins"), (("--range", "x"), "is not BEGIN:END"),
                              (("--bytes", "3s"), "is a duration, not a size"),
                              (("--bytes", "3", "--range", "1:"), "exclude each other")):
        assert reason in check(run, filled, *arguments, code=3)


def test_a_broker_that_gives_no_checksums_is_read_through_its_ha_port(filled, run, monkeypatch):
    monkeypatch.setattr(log_match, "BLOCK", 1000)  # several windows, and blocks that fit no file
    end = filled.master.store.get_max_phy_offset()
    for side in (filled.master, filled.slave):
        handlers = side.controller.remoting_server.default_request_processor.processor._handlers
        monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
        assert f"({end} bytes) are equal" in check(run, filled, code=0)
        assert "(1234 bytes) are equal" in check(run, filled, "--range", f"{FILE - 1000}:{FILE + 234}", code=0)
        for number in (0, 5, 50):
            offset = records(filled)[number][0]
            with flipped(filled.slave, offset + 90):
                assert f"byte 90 of the record at {offset}, topic Topic" in check(run, filled, code=2)
    store = filled.master.store
    wait_until(lambda: len(store.ha_service.connection_list) == 1, WAIT_MS, "the readers have gone")
    assert store.ha_service.connection_list[0].slave_ack_offset == end
