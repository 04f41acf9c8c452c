"""`rmqha check`: a server, a pair, its logs record by record, and the truth table in the documentation."""
import json
import re
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common.message.message_layout import decode_header
from rmqha.common.protocol import request_code, response_code
from rmqha.store.clean_commit_log_service import CleanCommitLogService
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import ClusterAdmin, RefusedError
from rmqha.tools.check import perfdata
from rmqha.tools.check_base import Limits, LimitsType, Status
from rmqha.tools.replication import log_match
from rmqha.tools.replication.judgement import Rules, judge, judge_all, worst
from rmqha.tools.replication.views import Fault, MasterView, Reading, RefusedView, SlaveView
from tests.store.ha.support import Peer
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.tiers import in_long
from tests.support.wait import wait_until
from tests.tools.check.truth_table import CASES, DOCUMENT, PAIRS, make, read_table
from tests.tools.conftest import Cluster, broker_at

# `check ha`: exit codes, the output line, and the criteria for a bad state.

LIMITS = Rules(Limits(100, 10.0), Limits(1000, 60.0), 1)
LINE = re.compile(r"HA (?P<status>\w+) - [^|]+( \| (?P<data>.*))?\n")
PERF = re.compile(r"'[^']+'=-?[\d.e+-]+(B|s);[\d.]*;[\d.]*;0")


def slave(lag=0, seconds=0.0, address="10.0.0.2:10911", state="TRANSFER", status=Status.OK, **fields):
    return SlaveView(address, 1, state=state, ack_offset=5000 - lag, lag_bytes=lag, lag_seconds=seconds, status=status,
                     **fields)


def bad(state, **fields):
    return slave(state=state, status=Status.CRITICAL, **fields)


def view(*slaves, **fields):
    return MasterView("C", "a", "10.0.0.1:10911", 0, "SYNC_MASTER", max_offset=5000, slaves=list(slaves), **fields)


@pytest.mark.parametrize(("found", "status", "text"), [
    (view(slave()), Status.OK, None),
    (view(slave(100, 10.0)), Status.OK, None),
    (view(slave(101)), Status.WARNING, "is 101 B, 0.0 s behind"),
    (view(slave(1, 10.5)), Status.WARNING, "10.5 s behind"),
    (view(slave(1001)), Status.CRITICAL, "1001 B"),
    (view(slave(1, 61.0)), Status.CRITICAL, "1 min 1 s behind"),
    (view(slave(50, None)), Status.UNKNOWN, "no broker reports its lag in seconds"),
    (view(slave(1001, None)), Status.CRITICAL, "1001 B"),
    (view(), Status.CRITICAL, "has 0 working slaves, 1 wanted"),
    (view(note="tells nothing"), Status.UNKNOWN, "tells nothing"),
    (view(bad("APPEND_FAILED", note="disk is full")), Status.CRITICAL, "APPEND_FAILED: disk is full"),
    (view(slave(), bad("UNREACHABLE", address="10.0.0.3:10911")), Status.CRITICAL, "UNREACHABLE"),
    (view(bad("AHEAD")), Status.CRITICAL, "1 wanted"),
    (view(slave(state="IDLE", status=Status.UNKNOWN, note="who knows")), Status.UNKNOWN, "IDLE: who knows"),
    (view(slave(counts=False, registered=False, status=Status.WARNING)), Status.CRITICAL, "0 working slaves"),
    (view(slave(), slave(counts=False, registered=False, status=Status.WARNING)), Status.WARNING, "TRANSFER"),
    (view(slave(), faults=[Fault(Status.CRITICAL, "two of one id")]), Status.CRITICAL, "a: two of one id"),
    (view(error="no permission", error_status=Status.UNKNOWN), Status.UNKNOWN, "no permission"),
    (view(follows=slave(state="UNKNOWN", status=Status.UNKNOWN)), Status.UNKNOWN, "UNKNOWN"),
    (view(slave(), refused=[RefusedView("10.0.0.9", 7000, 0, 5000)]), Status.CRITICAL, "refuses the slave 10.0.0.9"),
    (view(error="can't be reached"), Status.CRITICAL, "can't be reached"),
    (view(follows=bad("OFFSET_REFUSED", note="both offsets")), Status.CRITICAL, "OFFSET_REFUSED, both offsets"),
    (view(follows=slave()), Status.OK, None),
])
def test_verdict(found, status, text):
    problems = judge(found, LIMITS)
    assert worst(problems) is status
    assert text is None or any(text in problem.text for problem in problems), problems


def test_failed_name_server_is_a_problem_even_with_good_slaves():
    reading = Reading([view(slave())], [Fault(Status.WARNING, "the name server n:1 can't be reached")])
    assert [(each.status, each.text) for each in judge_all(reading, LIMITS)] == [
        (Status.WARNING, "the name server n:1 can't be reached")]


def test_number_of_expected_slaves_defaults_to_the_masters_config():
    found = view(slave(), wanted_slaves=2)
    assert worst(judge(found, Rules())) is Status.CRITICAL
    assert worst(judge(found, Rules(min_slaves=1))) is Status.OK


def test_ignored_slaves_have_no_effect():
    found = view(slave(), slave(5000, 999.0, address="10.0.0.7:4000", registered=False),
                 refused=[RefusedView("10.0.0.7", 9, 10, 11)])
    assert worst(judge(found, LIMITS)) is Status.CRITICAL
    rules = Rules(LIMITS.warn, LIMITS.crit, 1, ("10.0.0.7",))
    assert worst(judge(found, rules)) is Status.OK
    assert "10.0.0.7" not in perfdata([found], rules)


def test_perfdata_has_the_format_of_monitoring_plugins():
    found = view(slave(70, 2.5), slave(80, None, address="it's=odd"))
    parts = re.findall(r"'[^']*'=\S+", perfdata([found], LIMITS))
    assert parts[:2] == ["'a/10.0.0.2:10911 lag'=70B;100;1000;0", "'a/10.0.0.2:10911 time'=2.5s;10;60;0"]
    assert len(parts) == 3 and all(PERF.fullmatch(part) for part in parts)


@pytest.mark.parametrize(("text", "limits"), [
    ("500", Limits(500)), ("64MiB", Limits(64 << 20)), ("64M", Limits(64 << 20)), ("1.5k", Limits(1536)),
    ("2GB", Limits(2 * 10**9)), ("30s", Limits(None, 30.0)), ("5min", Limits(None, 300.0)),
    ("30m", Limits(None, 1800.0)), ("30M", Limits(30 << 20)), ("2d", Limits(None, 172_800.0)),
    ("1h", Limits(None, 3600.0)),
    ("1MiB, 250ms", Limits(1 << 20, 0.25)), ("30s,1k", Limits(1024, 30.0)), ("0", Limits(0)),
])
def test_limits(text, limits):
    assert LimitsType().convert(text, None, None) == limits


@given(st.text(max_size=12))
def test_any_text_is_a_valid_limit_or_refused(text):
    try:
        limits = LimitsType().convert(text, None, None)
    except click.BadParameter:
        return
    assert limits.bytes is not None or limits.seconds is not None


def check(run, *arguments, code):
    result = run("check", "ha", *arguments)
    assert result.exit_code == code, result.output
    assert result.stdout.count("\n") == 1
    return result.stdout


def test_good_cluster(cluster, run):
    line = check(run, "-n", cluster.namesrv, code=0)
    match = LINE.fullmatch(line)
    assert match["status"] == "OK" and "1 broker name, 1 slave, at most 0 B, 0.0 s behind" in line
    assert all(PERF.fullmatch(part) for part in re.findall(r"'[^']*'=\S+", match["data"]))
    assert f"'broker-a/{cluster.slave.address} lag'=0B;16777216;268435456;0" in line


def test_slave_that_is_behind_and_too_few_slaves_are_reported(cluster, run):
    cluster.send(20)
    with Peer.connect(cluster.master.store) as peer:
        peer.report(1)
        address = f"127.0.0.1:{peer.sock.getsockname()[1]}"
        wait_until(lambda: len(cluster.master.store.ha_service.connection_list) == 2, 60_000)
        arguments = ("-n", cluster.namesrv, "--warn", "1k", "--crit")
        wait_until(lambda: run("check", "ha", *arguments, "1GiB").exit_code == 1, 60_000, "a slave is behind")
        assert "HA WARNING" in check(run, *arguments, "1GiB", code=1)
        line = check(run, *arguments, "2k", code=1)
        assert "a slave, or a receiver that the name server does not list" in line and address in line
        assert "HA OK" in check(run, *arguments, "2k", "--ignore", address, code=0)
    assert "1 working slave, 3 wanted" in check(run, "-n", cluster.namesrv, "--min-slaves", "3", "--ignore", address,
                                                code=2)


def test_json_has_the_same_content(cluster, run):
    answer = json.loads(check(run, "-n", cluster.namesrv, "-o", "json", "--min-slaves", "5", code=2))
    assert (answer["status"], answer["code"], answer["check"]) == ("CRITICAL", 2, "ha")
    assert answer["problems"][0]["status"] == "CRITICAL" and answer["brokers"][0]["name"] == "broker-a"


@pytest.mark.parametrize(("arguments", "text"), [
    (["-n", "127.0.0.1:1"], "can't be reached"),
    ([], "give a name server"),
    (["--warn", "3X", "-n", "127.0.0.1:1"], "'3X' is neither a size nor a duration"),
    (["--warn", "1k,2k", "-n", "127.0.0.1:1"], "gives bytes twice"),
    (["--nonsense"], "No such option"),
])
def test_check_that_is_impossible_is_unknown(run, arguments, text):
    line = check(run, *arguments, code=3)
    assert line.startswith("HA UNKNOWN - ") and text in line


def test_master_that_does_not_answer_is_critical(run):
    assert "HA CRITICAL" in check(run, "-b", "127.0.0.1:1", code=2)


# `check ha --deep`: rmqha's slaves beside their masters, with and without damage, and logs that can't be compared.

FILE = 1 << 18
WAIT_MS = 60_000
# Other programs may fill the disk, and that must not delete files; above 95 % only the patch below helps.
KEPT = {"fileReservedTime": 720, "cleanFileForciblyEnable": False, "diskMaxUsedSpaceRatio": 95}


@contextmanager
def filled_cluster(folder: Path, **slave_keys):
    """A master and its slave, whose logs have four files and records of all sizes."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(CleanCommitLogService, "run", lambda _self: None))
        namesrv = stack.enter_context(running_name_server(folder))
        keys = {"brokerClusterName": "C", "mappedFileSizeCommitLog": FILE, "maxMessageSize": FILE,
                # Only these tests may find the bits that they flip.
                "haScrubEnable": False, **KEPT}
        master = stack.enter_context(broker_at(folder / "master", namesrv, **keys))
        slave = stack.enter_context(broker_at(
            folder / "slave", namesrv, brokerRole=BrokerRole.SLAVE, brokerId=1,
            haMasterAddress=f"127.0.0.1:{master.store.ha_service.ha_listen_port}", **{**keys, **slave_keys}))
        cluster = Cluster(namesrv, master, slave)
        for number in range(60):
            size = (13, 700, 5000, 30_000)[number % 4]
            answer = master.send(f"Topic{number % 3}", bytes([number]) * size, number % 2, {"KEYS": f"k{number}"})
            assert answer.code == 0
            # A slave that connects later starts with the file that is the last one then.
            if number == 0:
                wait_until(lambda: slave.store.get_max_phy_offset() == master.store.get_max_phy_offset(), WAIT_MS,
                           "the slave follows")
        cluster.send(1)
        yield cluster


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    with filled_cluster(tmp_path_factory.mktemp("deep")) as cluster:
        yield cluster


def records(cluster) -> list[tuple[int, int]]:
    """Return (offset, size) of the records of the master's log."""
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
    """Flip bytes in a running broker's log; restore them at the end."""
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


def deep_check(run, cluster, *arguments, code):
    result = run("check", "ha", "-n", cluster.namesrv, "--deep", *arguments)
    assert result.exit_code == code, result.output
    return result.stdout


def test_equal_logs_are_ok_with_the_number_of_bytes_compared(filled, run):
    end = filled.master.store.get_max_phy_offset()
    line = deep_check(run, filled, code=0)
    assert f"1 slave compared by checksums: {end / 1024:.1f} KiB ({end} bytes) are equal" in line
    assert f"'broker-a/{filled.slave.address} compared'={end}B;;;0" in line
    for arguments, size in ((("--bytes", "100000"), 100_000), (("--range", "5:77777"), 77_772), (("--range", ":"), end),
                            (("--range", f"{end - 3}:"), 3), (("--range", f"7:{end + 99}"), end - 7)):
        assert f"({size} bytes) are equal" in deep_check(run, filled, *arguments, code=0)
    answer = json.loads(deep_check(run, filled, "-o", "json", code=0))
    assert answer["deep"] == [{"name": "broker-a", "master": filled.master.address, "slave": filled.slave.address,
                               "begin": 0, "end": end, "comparedBytes": end, "unreadRestsThatDiffer": 0,
                               "difference": None, "error": None}]


@pytest.mark.parametrize(("side", "where", "whose"), [
    ("slave", "body", "the slave's copy is wrong: its body CRC is wrong"),
    ("master", "body", "the master's copy is wrong: its body CRC is wrong"),
    ("slave", "properties", "both copies have a valid CRC: they differ in the properties or the head"),
    ("slave", "size", "the slave's copy is wrong: "),
    ("slave", "magic", "the slave's copy is wrong: magic code"),
    ("slave", "place", "the slave's copy is wrong: it contains the offset"),
    ("master", "magic", "the master's copy is wrong: magic code"),
])
def test_first_differing_record_is_named(filled, run, side, where, whose):
    found = records(filled)
    for number in (0, 1, 7, len(found) // 2, len(found) - 1):
        offset, size = found[number]
        at = offset + {"body": 90, "properties": size - 2, "size": 2, "magic": 5, "place": 33}[where]
        # A second one after it is not the first.
        later = found[-1][0] + 92
        broker = getattr(filled, side)
        with flipped(broker, *{at, later if later > offset + size else at}):
            answer = json.loads(deep_check(run, filled, "-o", "json", code=2))["deep"][0]["difference"]
        assert answer["offset"] == at and answer["record"] == offset and whose in answer["text"], answer
        if number < 60:
            assert (answer["topic"], answer["queueId"]) == (f"Topic{number % 3}", number % 2)
            assert answer["size"] == size and answer["queueOffset"] == sum(
                1 for earlier in range(number) if earlier % 6 == number % 6)
    assert "are equal" in deep_check(run, filled, code=0)


def test_both_copies_may_be_wrong(filled, run):
    offset, _size = records(filled)[6]
    with flipped(filled.slave, offset + 91), flipped(filled.master, offset + 92):
        assert "both copies are wrong; the master's: its body" in deep_check(run, filled, code=2)


def test_difference_outside_of_the_range_is_ignored(filled, run):
    (first, _size), (last, _other) = records(filled)[3], records(filled)[-2]
    with flipped(filled.slave, first + 100):
        deep_check(run, filled, "--range", f"{last}:", code=0)
        deep_check(run, filled, "--bytes", "50000", code=0)
        assert f"offset {first + 100}, byte 100 of the record at {first}" in deep_check(run, filled, code=2)


def test_unused_bytes_after_a_blank_may_differ(filled, run):
    ends = [offset for offset, size in records(filled)]
    blanks = {offset - offset % FILE + FILE for offset in ends[:-1]} - {FILE * 10}
    rest = next(end - 1 for end in sorted(blanks) if all(offset + size < end - 20 for offset, size in records(filled)
                                                         if offset < end) and end < ends[-1])
    later = records(filled)[-1][0] + 95
    with flipped(filled.slave, rest):
        assert "are equal, except for the unread ends of 1 file" in deep_check(run, filled, code=0)
        with flipped(filled.slave, later):
            assert f"differ at offset {later}" in deep_check(run, filled, code=2)


def test_logs_that_cannot_be_compared_are_unknown(filled, run, monkeypatch):
    end = filled.master.store.get_max_phy_offset()
    assert "share no bytes in that range: the master holds 0 to" in deep_check(
        run, filled, "--range", f"{end}:", code=3)
    with monkeypatch.context() as patched:
        handlers = filled.slave.controller.remoting_server.default_request_processor.processor._handlers
        refuse = filled.slave.controller.remoting_server.default_request_processor.processor._handlers[
            request_code.REJOIN_MASTER]
        patched.setitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS, refuse)
        assert "can't be compared: the broker" in deep_check(run, filled, code=3)
    alone = run("check", "ha", "-b", filled.slave.address, "--deep", "--min-slaves", "0")
    assert alone.exit_code == 3 and "give the name server (-n)" in alone.output
    for arguments, reason in ((("--range", "1:"), "need --deep"), (("--bytes", "1k"), "need --deep")):
        refused = run("check", "ha", "-n", filled.namesrv, *arguments)
        assert refused.exit_code == 3 and reason in refused.output
    for arguments, reason in ((("--range", "9:8"), "ends before"), (("--range", "x"), "not a valid BEGIN:END"),
                              (("--bytes", "3s"), "is a duration, not a size"),
                              (("--bytes", "3", "--range", "1:"), "can't be used together")):
        assert reason in deep_check(run, filled, *arguments, code=3)


def test_broker_without_checksums_is_read_through_its_ha_port(filled, run, monkeypatch):
    monkeypatch.setattr(log_match, "BLOCK", 1000)  # several windows, and blocks that fit no file
    end = filled.master.store.get_max_phy_offset()
    for side in (filled.master, filled.slave):
        handlers = side.controller.remoting_server.default_request_processor.processor._handlers
        monkeypatch.delitem(handlers, request_code.GET_COMMIT_LOG_CHECKSUMS)
        assert f"({end} bytes) are equal" in deep_check(run, filled, code=0)
        assert "(1234 bytes) are equal" in deep_check(run, filled, "--range", f"{FILE - 1000}:{FILE + 234}", code=0)
        for number in (0, 5, 50):
            offset = records(filled)[number][0]
            with flipped(filled.slave, offset + 90):
                assert f"byte 90 of the record at {offset}, topic Topic" in deep_check(run, filled, code=2)
    store = filled.master.store
    wait_until(lambda: len(store.ha_service.connection_list) == 1, WAIT_MS, "the readers have gone")
    assert store.ha_service.connection_list[0].slave_ack_offset == end


# `rmqha check server`: one server answers, or does not.


def test_servers_that_answer_are_ok(cluster, run):
    for option, address in (("-n", cluster.namesrv), ("-b", cluster.master.address), ("-b", cluster.slave.address)):
        result = run("check", "server", option, address)
        assert result.exit_code == 0 and f"{address} answers | 'time'=0." in result.output
    result = run("check", "server", "-n", cluster.namesrv, "-o", "json")
    assert json.loads(result.output)["status"] == "OK"


def test_missing_server_is_critical(run):
    for option in ("-n", "-b"):
        result = run("check", "server", option, f"127.0.0.1:{ports.free_port()}")
        assert result.exit_code == 2 and result.output.startswith("SERVER CRITICAL - the ")
        assert "can't be reached" in result.output


def test_broker_queried_as_a_name_server_is_critical(cluster, run):
    result = run("check", "server", "-n", cluster.master.address)
    assert result.exit_code == 2 and "returned error" in result.output


def test_broker_that_refuses_the_request_is_answering(run, monkeypatch):
    def refuse(_admin, _address):
        raise RefusedError("no", response_code.NO_PERMISSION)

    monkeypatch.setattr(ClusterAdmin, "runtime_info", refuse)
    result = run("check", "server", "-b", "127.0.0.1:1")
    assert result.exit_code == 0 and "answers, but refuses the request" in result.output


def test_missing_arguments_are_an_error(run):
    for arguments in ([], ["-n", "127.0.0.1:1", "-b", "127.0.0.1:1"], ["-n", "nowhere"]):
        result = run("check", "server", *arguments)
        assert result.exit_code == 3 and result.output.startswith("SERVER UNKNOWN - ")


# The truth table in the documentation: complete, never OK for a broken pair, and true for running brokers.

_GOOD = ("healthy", "one of two name servers", "a receiver beside a healthy slave", "two slaves with one brokerId")
# Quick cases of each kind: detected by the slave, by the master, by the name server, and not at all.
QUICK = ("healthy, under load", "never connected, both logs empty", "killed with its host", "refused: its log",
         "a receiver, and the slave follows no master", "name server down")
QUICK_JAVA = ("healthy, idle", "never connected: nothing listens", "killed with its host")


@pytest.fixture(scope="module")
def table():
    return read_table(DOCUMENT.read_text("utf-8"))


def test_table_has_every_case_for_every_pair(table):
    assert list(table) == list(CASES)
    for title, cells in table.items():
        made = [pair for pair, cell in zip(PAIRS, cells, strict=True) if cell != "-"]
        assert made == [pair for pair in PAIRS if pair in CASES[title].only], title


def test_no_broken_pair_is_ok(table):
    for title, cells in table.items():
        if not title.startswith(_GOOD):
            assert not [cell for cell in cells if "; OK 0;" in cell], title
    assert "OK" in table["healthy, under load"][PAIRS.index("java-java")]


def differing(table, pair, tmp_path, words):
    """Return title -> the row made now and the row of the table, where they differ."""
    rows = make(pair, tmp_path, words)
    assert len(rows) >= len(words)
    return {title: (row.cell(), table[title][PAIRS.index(pair)]) for title, row in rows.items()
            if row.cell() != table[title][PAIRS.index(pair)]}


def test_running_brokers_produce_the_rows(table, tmp_path):
    assert differing(table, "rmqha-rmqha", tmp_path, QUICK) == {}


@pytest.mark.java
@in_long
def test_running_brokers_of_49_produce_the_rows(table, tmp_path):
    assert differing(table, "java-java", tmp_path, QUICK_JAVA) == {}
