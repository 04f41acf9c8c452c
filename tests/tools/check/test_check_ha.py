"""`check ha`: exit codes, the line, and what counts as bad."""
import json
import re

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.tools.check import perfdata
from rmqha.tools.check_base import Limits, LimitsType, Status
from rmqha.tools.replication.judgement import Rules, judge, judge_all, worst
from rmqha.tools.replication.views import Fault, MasterView, Reading, RefusedView, SlaveView
from tests.store.ha.support import Peer
from tests.support.wait import wait_until

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
    (view(slave(50, None)), Status.UNKNOWN, "nobody tells how far behind it is in seconds"),
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


def test_name_server_that_is_wrong_is_a_problem_beside_good_slaves():
    reading = Reading([view(slave())], [Fault(Status.WARNING, "the name server n:1 can't be reached")])
    assert [(each.status, each.text) for each in judge_all(reading, LIMITS)] == [
        (Status.WARNING, "the name server n:1 can't be reached")]


def test_as_many_slaves_are_wanted_as_the_masters_config_says_unless_told():
    found = view(slave(), wanted_slaves=2)
    assert worst(judge(found, Rules())) is Status.CRITICAL
    assert worst(judge(found, Rules(min_slaves=1))) is Status.OK


def test_ignored_slaves_do_not_matter():
    found = view(slave(), slave(5000, 999.0, address="10.0.0.7:4000", registered=False),
                 refused=[RefusedView("10.0.0.7", 9, 10, 11)])
    assert worst(judge(found, LIMITS)) is Status.CRITICAL
    rules = Rules(LIMITS.warn, LIMITS.crit, 1, ("10.0.0.7",))
    assert worst(judge(found, rules)) is Status.OK
    assert "10.0.0.7" not in perfdata([found], rules)


def test_perfdata_is_as_monitoring_reads_it():
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
def test_any_text_is_limits_or_refused(text):
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


def test_slave_that_is_behind_and_one_too_few(cluster, run):
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


def test_json_says_the_same(cluster, run):
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
def test_what_can_not_be_checked_is_unknown(run, arguments, text):
    line = check(run, *arguments, code=3)
    assert line.startswith("HA UNKNOWN - ") and text in line


def test_master_that_gives_no_answer_is_critical(run):
    assert "HA CRITICAL" in check(run, "-b", "127.0.0.1:1", code=2)
