"""`ha status`, request 907, and the tools' reports about a slave that scrubs its log."""
import json
import os
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.client.exception import MQBrokerException
from rmqha.common.protocol import request_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.check import summary
from rmqha.tools.check_base import Status
from rmqha.tools.doctor import cluster_checks
from rmqha.tools.doctor.host_checks import Report
from rmqha.tools.replication.judgement import Rules, judge, worst
from rmqha.tools.replication.reader import read_broker
from rmqha.tools.replication.status import as_json, render
from rmqha.tools.replication.views import Reading
from rmqha.tools.terminal import CannotAnswerError
from rmqha.tools.view.snapshot import all_faults
from tests.store.ha.support import Peer
from tests.support import real_rocketmq
from tests.support.java_driver import Workload
from tests.support.mqadmin import JavaMqadmin
from tests.support.wait import wait_until
from tests.tools.replication.test_replication import (
    MASTER,
    SLAVE,
    Answers,
    broker,
    java_slave,
    our_master,
    our_slave,
    read_group,
)

# `ha status` on running servers, rmqha's and Java's.


def told(run, *arguments):
    """Return the output of `ha status -o json`."""
    result = run("ha", "status", "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_master_and_its_slave(cluster, run):
    end = cluster.master.store.get_max_phy_offset()
    (master,) = told(run, "-n", cluster.namesrv)
    assert (master["name"], master["role"], master["max_offset"]) == ("broker-a", "ASYNC_MASTER", end)
    (slave,) = master["slaves"]
    assert slave["connection"].startswith("127.0.0.1:") and slave["address"] == cluster.slave.address
    assert (slave["broker_id"], slave["state"], slave["ack_offset"]) == (1, "TRANSFER", end)
    assert (slave["lag_bytes"], slave["lag_seconds"], slave["in_sync"]) == (0, 0.0, True)
    text = run("ha", "status", "-n", cluster.namesrv).stdout
    assert f"broker-a  0  {cluster.master.address}  ASYNC_MASTER" in text
    assert f"{end:,}" in text and "TRANSFER" in text and "yes" in text


def test_brokers_are_selected_by_cluster_name_and_address(cluster, run):
    for choice in (["-c", "C"], ["-b", "broker-a"], ["-b", cluster.slave.address]):
        assert [each["name"] for each in told(run, "-n", cluster.namesrv, *choice)] == ["broker-a"]


def test_one_address_is_enough(cluster, run):
    (master,) = told(run, "-b", cluster.master.address)
    assert [slave["state"] for slave in master["slaves"]] == ["TRANSFER"]
    (slave,) = told(run, "-b", cluster.slave.address)
    assert slave["follows"]["address"] == cluster.ha_address and slave["follows"]["state"] == "TRANSFER"
    assert f"follows {cluster.ha_address}: TRANSFER" in run("ha", "status", "-b", cluster.slave.address).stdout


def test_refused_slave_is_shown_with_both_offsets(cluster, run):
    end = cluster.master.store.get_max_phy_offset()
    with Peer.connect(cluster.master.store) as peer:
        peer.report(end + 12345)
        assert peer.is_closed()
    (master,) = told(run, "-n", cluster.namesrv)
    assert [each["slave_offset"] for each in master["refused"]] == [end + 12345]
    text = run("ha", "status", "-n", cluster.namesrv).stdout
    assert f"it requests {end + 12345}, but the master ends at {end}" in text


@pytest.mark.parametrize(("arguments", "code", "text"), [
    ([], 2, "give a name server with -n host:port"),
    (["-n", "127.0.0.1:1"], 2, "the name server 127.0.0.1:1 can't be reached"),
    (["-n", "nonsense"], 2, "'nonsense' is not a valid host:port"),
    (["-b", "nonsense"], 2, "or a broker's address with -b host:port"),
    (["-b", "127.0.0.1:1", "-c", "C"], 2, "--cluster needs the name server"),
])
def test_invalid_request_is_reported(run, arguments, code, text):
    result = run("ha", "status", *arguments)
    assert result.exit_code == code and text in result.output


def test_unreachable_broker_and_unknown_name(cluster, run):
    result = run("ha", "status", "-b", "127.0.0.1:1")
    assert result.exit_code == 2 and "UNREACHABLE: the broker 127.0.0.1:1 can't be reached" in result.stdout
    result = run("ha", "status", "-n", cluster.namesrv, "-b", "broker-b")
    assert result.exit_code == 2 and "did you mean broker-a?" in result.output


def test_port_of_another_service_is_reported(cluster, run):
    result = run("ha", "status", "-n", cluster.ha_address, "--timeout", "1")
    assert result.exit_code == 2 and cluster.ha_address in result.output


def test_watch_needs_a_terminal(cluster, run):
    result = run("ha", "status", "-n", cluster.namesrv, "--watch")
    assert result.exit_code == 2 and "--watch needs a terminal" in result.output


@pytest.mark.java
def test_lag_of_a_stopped_slave_of_a_49_master(make_namesrv, make_broker, java_driver, run):
    namesrv = make_namesrv("rmqha").address
    # A busy machine must not cause refused sends.
    master = make_broker("java", namesrv, "master", brokerFastFailureEnable="false", osPageCacheBusyTimeOutMills=60_000)
    slave = make_broker("java", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
    java_driver.create_topic(namesrv, master.address, "T")
    load = Workload("T", 400, [1000])
    assert any(one.ok for one in java_driver.produce(namesrv, load.part(0, 200)))

    def slave_seen(**wanted):
        """Return the slave as `ha status` shows it, once it matches `wanted`; a busy machine may need several polls."""
        def look():
            result = run("ha", "status", "-n", namesrv, "-o", "json", "--timeout", "3")
            views = json.loads(result.stdout) if result.stdout.startswith("[") else []
            slaves = [each for view in views if view["max_offset"] for each in view["slaves"]]
            return slaves[0] if slaves and all(slaves[0][key] == value for key, value in wanted.items()) else None
        return wait_until(look, 60_000, f"the slave is {wanted}")
    at = slave_seen(lag_bytes=0, broker_id=1)["ack_offset"]
    os.kill(slave.pid, signal.SIGSTOP)
    try:
        assert any(one.ok for one in java_driver.produce(namesrv, load.part(200, 200)))
        assert slave_seen(state="UNREACHABLE")["in_sync"] is False
    finally:
        os.kill(slave.pid, signal.SIGCONT)
    behind = slave_seen(lag_bytes=0)
    assert behind["ack_offset"] > at and behind["lag_seconds"] == 0.0 and behind["in_sync"] is True
    with ClusterAdmin(namesrv, 30_000) as admin:
        wait_until(lambda: len({admin.newest_store_timestamp(node.address) for node in (master, slave)}) == 1, 60_000,
                   "both tell the time of the same last message")


@pytest.mark.java
def test_master_of_49_that_has_just_started_reports_itself(make_namesrv, make_broker):
    master = make_broker("java", make_namesrv("rmqha").address, "master")
    # During its first second it answers with an exception.
    with ClusterAdmin(timeout_millis=30_000) as admin:
        assert admin.runtime_info(master.address)["commitLogMaxOffset"] == "0"


@pytest.mark.parametrize(("code", "text"), [
    (16, "refused the request, no permission: not you. Use an account"),
    (1, "returned error 1: not you"),
])
def test_refusing_broker_is_reported(code, text):
    def refuse(*_arguments):
        raise MQBrokerException(code, "not you", "h:1")
    with ClusterAdmin() as admin:
        admin.api.get_broker_config = refuse
        with pytest.raises(RefusedError) as failed:
            admin.get_broker_config("h:1")
    assert text in failed.value.message and "the broker h:1" in failed.value.message


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_response_body_is_parsed_or_refused(body):
    response = RemotingCommand.create_response_command(0, None)
    response.body = body
    with ClusterAdmin() as admin:
        admin.api.remoting_client.invoke_sync = lambda *_arguments: response
        for ask in (admin.ha_runtime_info, admin.runtime_info, admin.get_broker_config):
            try:
                ask("h:1")
            except CannotAnswerError as error:
                assert "the broker h:1" in error.message


# Request 907 and the times of replication: rmqha's answers, as read by itself and by RocketMQ 5.1.4's haStatus.

_FIELDS = {"master", "masterCommitLogMaxOffset", "inSyncSlaveNums", "haConnectionInfo", "haClientRuntimeInfo"}


@pytest.fixture
def admin(cluster):
    with ClusterAdmin(cluster.namesrv) as made:
        yield made


@pytest.fixture
def only_slave(cluster):
    """Wait until the cluster's slave is the only connection of its master and in sync: peers of other tests have
    left."""
    store = cluster.master.store
    wait_until(lambda: [peer.slave_ack_offset for peer in store.ha_service.connection_list]
               == [store.get_max_phy_offset()], what="only the slave is connected")


@pytest.mark.usefixtures("only_slave")
def test_master_reports_its_slaves_in_the_fields_of_5x(cluster):
    answer = json.loads(cluster.master.call(request_code.GET_BROKER_HA_STATUS).body)
    assert set(answer) == _FIELDS
    end = cluster.master.store.get_max_phy_offset()
    assert answer["master"] is True and answer["masterCommitLogMaxOffset"] == end
    (slave,) = answer["haConnectionInfo"]
    assert set(slave) == {"addr", "slaveAckOffset", "diff", "inSync", "transferredByteInSecond", "transferFromWhere"}
    assert (slave["slaveAckOffset"], slave["diff"], slave["inSync"]) == (end, 0, True)


def test_slave_reports_its_own_side(cluster):
    answer = json.loads(cluster.slave.call(request_code.GET_BROKER_HA_STATUS).body)
    assert set(answer) == _FIELDS and answer["master"] is False
    client = answer["haClientRuntimeInfo"]
    assert client["masterAddr"] == cluster.ha_address
    assert client["maxOffset"] == cluster.slave.store.get_max_phy_offset()


def test_runtime_table_reports_the_lag_of_a_slave_as_time(cluster, admin):
    store = cluster.master.store
    begin = store.get_max_phy_offset()
    cluster.send(1)
    first = store.get_max_phy_offset()
    wait_until(lambda: cluster.master.send("T").code in (0, 12) and _newest(cluster, admin) > _stored(cluster, begin),
               60_000, "a message that was stored later")
    with Peer.connect(store) as peer:
        peer.report(first - 10)  # within a record: the next one counts
        name = f"haSlaveLagMs_127.0.0.1:{peer.sock.getsockname()[1]}"
        table = wait_until(lambda: (told := admin.runtime_info(cluster.master.address)) and name in told and told,
                           60_000, "the peer is told")
    assert int(table[name]) == int(table["haNewestStoreTimestamp"]) - _stored(cluster, first)


def _stored(cluster, offset):
    with cluster.master.store.select_one_message_by_offset(offset) as result:
        return int.from_bytes(result.buffer[56:64])


def _newest(cluster, admin):
    return int(admin.runtime_info(cluster.master.address)["haNewestStoreTimestamp"])


def ha_status(folder, namesrv, address):
    """Return the output of 5.1.4's mqadmin haStatus, without log lines."""
    done = JavaMqadmin(folder, real_rocketmq.VERSION_5).run("haStatus", "-n", namesrv, "-b", address)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split() for line in done.stdout.splitlines() if line.startswith("#") or line[:1].isdigit()]


@pytest.mark.java
@pytest.mark.usefixtures("only_slave")
def test_mqadmin_of_514_shows_a_master_and_its_slave(cluster, tmp_path):
    cluster.send(1)
    end = str(cluster.master.store.get_max_phy_offset())
    lines = ha_status(tmp_path, cluster.namesrv, cluster.master.address)
    assert ["#MasterAddr", cluster.master.address] in lines and ["#MasterCommitLogMaxOffset", end] in lines
    assert ["#SlaveNum", "1"] in lines and ["#InSyncSlaveNum", "1"] in lines
    address, acked, diff, _speed, status, where = lines[-1]
    assert address.startswith("127.0.0.1:") and (acked, diff, status, where) == (end, "0", "OK", end)


# The tools' reports about a slave that scrubs its log and verifies received records.

HOUR_MS = 3_600_000
SCRUBBED = {"haScrubState": "RUNNING", "haScrubPosition": "1200", "haScrubRoundBegin": "0", "haScrubRoundEnd": "5000",
            "haScrubRounds": "2", "haScrubComparedBytes": "11200", "haScrubUnscrubbedMs": str(2 * HOUR_MS),
            "haScrubDifferences": "0", "haScrubLastError": "", "haVerifiedBytes": "5000", "haVerifyFailures": "0"}
DIFFERS = {"haScrubDifferences": "2", "haScrubFirstDifference": "4321"}
LATE = {"haScrubUnscrubbedMs": str(169 * HOUR_MS)}
ROOT = {"storePathRootDir": "/data/s1"}
REPAIR = "rmqha store repair /data/s1 --master 10.0.0.1:10911 --apply"


def scrubbed(**told):
    """Return a healthy slave that reports its checks; None removes a key."""
    table = {key: value for key, value in {**SCRUBBED, **told}.items() if value is not None}
    slave = our_slave(5000, **table)
    slave[0].update(ROOT)
    return slave


def view_of(slave):
    return read_group(Answers(master=our_master(5000, 5000), slave=slave), [MASTER, SLAVE])


def examined(monkeypatch, slave, brokers=(MASTER, SLAVE), master=None):
    """Return the doctor's findings about replication."""
    class Nobody:
        def __init__(self, _admin):
            pass

        def look(self, _name, _told):
            return None
    monkeypatch.setattr(cluster_checks, "Controllers", Nobody)
    report = Report()
    cluster_checks.check_replication(Answers(master=master or our_master(5000, 5000), slave=slave), brokers, True,
                                         report)
    return [(each.severity.value, each.what, each.todo) for each in report.findings]


@pytest.mark.parametrize(("told", "status", "state", "texts"), [
    ({}, Status.OK, "", []),
    (LATE, Status.WARNING, "SCRUB_LATE", ["for 169 h 0 min, at most 168 h 0 min is promised (RUNNING)"]),
    ({**LATE, "haScrubState": "OFF"}, Status.OK, "", []),
    ({**LATE, "haScrubState": None}, Status.OK, "", []),
    ({**LATE, "haScrubState": "CANT", "haScrubLastError": "refused"}, Status.WARNING, "SCRUB_LATE",
     ["(CANT: refused)"]),
    ({"haScrubUnscrubbedMs": "-1"}, Status.OK, "", []),
    ({"haScrubUnscrubbedMs": str(168 * HOUR_MS)}, Status.OK, "", []),
    (DIFFERS, Status.CRITICAL, "DIFFERS", ["2 records of its log are not its master's, the first at offset 4321",
                                           "no CRC shows which copy is right"]),
    ({**DIFFERS, "haScrubDamaged": "slave:2", "haScrubFirstReason": "at 4400"}, Status.CRITICAL, "DIFFERS",
     ["4321 (at 4400): the slave's copy is damaged"]),
    ({**DIFFERS, "haScrubDamaged": "slave:1,unknown:1"}, Status.CRITICAL, "DIFFERS",
     ["in 1 of them the slave's copy is damaged"]),
    ({**DIFFERS, "haScrubDamaged": "slave:1,master:1"}, Status.CRITICAL, "MASTER_DAMAGED",
     ["in 1 of them the master's copy is damaged"]),
    ({**DIFFERS, "haScrubDifferences": "1", "haScrubDamaged": "master:1"}, Status.CRITICAL, "MASTER_DAMAGED",
     ["1 record of its log is not its master's, the first at offset 4321: the master's copy is damaged"]),
    ({"haScrubDifferences": "1", "haScrubState": "OFF", "haScrubDamaged": "?"}, Status.CRITICAL, "DIFFERS",
     ["1 record of its log is not its master's: no CRC"]),
    ({"haVerifyFailures": "3", "haVerifyFailedOffset": "777"}, Status.WARNING, "VERIFY_FAILED",
     ["3 times since its start, the last at offset 777"]),
    ({"haVerifyFailures": "1", "haScrubState": None}, Status.WARNING, "VERIFY_FAILED", ["1 time since its start"]),
])
def test_differences_found_by_a_slave_are_judged(told, status, state, texts):
    view = view_of(scrubbed(**told))
    problems = judge(view, Rules())
    assert worst(problems) is status and [each.state for each in problems] == [state] * bool(state)
    assert (view.slaves[0].state, view.slaves[0].in_sync) == ("TRANSFER", True), "it replicates nevertheless"
    for text in texts:
        assert text in problems[0].text and text in render(view) and text in summary([view], problems, Rules())
    assert all(each.text.startswith(f"a's slave {SLAVE.address}: ") and each.todo for each in problems)


def test_promised_time_is_the_slaves_own():
    slave = scrubbed(haScrubUnscrubbedMs="60001")
    slave[0]["haScrubPromise"] = "60000"
    assert "at most 1 min 0 s is promised" in judge(view_of(slave), Rules())[0].text
    slave[0]["haScrubPromise"] = "0"
    assert judge(view_of(slave), Rules()) == []


def test_status_shows_the_progress_of_scrubbing_and_the_action_to_take():
    text = render(view_of(scrubbed()))
    assert f"  {SLAVE.address}: scrubbing RUNNING; round 3: compared up to 1,200 (range 0 to 5,000); the oldest " \
           "uncompared bytes are 2 h 0 min old, at most 168 h 0 min is promised; 4.9 KiB of received records " \
           "verified" in text
    assert "everything compared" in render(view_of(scrubbed(haScrubUnscrubbedMs="0")))
    assert "nothing compared yet" in render(view_of(scrubbed(haScrubUnscrubbedMs="-1")))
    assert "scrubbing CANT" in render(view_of(scrubbed(haScrubState="CANT")))
    assert "last error: no\\u001banswer" in render(view_of(scrubbed(haScrubLastError="no\x1banswer")))
    assert "scrubbing OFF" in render(view_of(scrubbed(haScrubState="OFF")))
    text = render(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:2")))
    assert f"  CRITICAL a's slave {SLAVE.address}: 2 records" in text and REPAIR in text


def test_repair_from_a_damaged_master_is_never_recommended():
    text = render(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:1,master:1")))
    assert "store repair" not in text and "never repair this slave from this master" in text


def test_json_has_the_numbers():
    told = json.loads(json.dumps(as_json(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:1,unknown:1")))))
    (slave,) = told["slaves"]
    assert told["status"] == "CRITICAL" and "not its master's" in told["problems"][0]["text"]
    assert (slave["scrub"]["differences"], slave["scrub"]["first_difference"]) == (2, 4321)
    assert slave["scrub"]["damaged"] == {"slave": 1, "unknown": 1} and slave["scrub"]["verify_failed_offset"] is None


@pytest.mark.parametrize("slave", [our_slave(5000), java_slave(5000)])
def test_slaves_that_report_no_checks_are_judged_as_before(slave):
    view = view_of(slave)
    assert view.slaves[0].scrub is None and judge(view, Rules()) == [] and "scrubbing" not in render(view)
    assert as_json(view)["slaves"][0]["scrub"] is None


def test_slave_without_its_master_reports_its_findings():
    alone = read_broker(Answers(slave=scrubbed(**DIFFERS)), Broker("", "", 0, SLAVE.address))
    text = f"a: 2 records of its log are not its master's, the first at offset {DIFFERS['haScrubFirstDifference']}"
    assert any(text in each.text for each in judge(alone, Rules())) and REPAIR in render(alone)
    orphan = read_group(Answers(slave=scrubbed(**DIFFERS)), [MASTER, SLAVE])
    assert orphan.error and any("2 records of its log" in each.text for each in judge(orphan, Rules()))


def test_ignored_slave_does_not_matter():
    assert judge(view_of(scrubbed(**DIFFERS)), Rules(ignore=("10.0.0.2",), min_slaves=0)) == []


def test_invalid_number_makes_the_answer_unusable():
    view = view_of(scrubbed(haScrubDifferences="many"))
    assert (view.slaves[0].state, view.slaves[0].status) == ("NOT_TOLD", Status.UNKNOWN)


REJOIN = "run rmqha ha rejoin: it truncates the slave's log at 4532, where the logs begin to differ, and saves"


@pytest.mark.parametrize(("offsets", "remedy"), [
    ("5159,0,5159,4532", REJOIN), ("5159,0,4900,4532", REJOIN), ("70,100,5159", "set it up again with an empty store"),
    ("5159,0,5159", "stop both, compare them with rmqha store diff"),
    ("5159,0,4900", "stop both, compare them with rmqha store diff"),
    ("5000,0,6000,5000", "run rmqha store verify on the master's store")])
def test_refused_slave_has_one_remedy(monkeypatch, offsets, remedy):
    master = our_master(6000, **{"haRefusedSlave_10.0.0.2_5159": offsets})
    line, = (line for line in render(read_group(Answers(master=master), [MASTER])).splitlines() if "REFUSED" in line)
    assert f"; {remedy}" in line and line.count("; ") <= 2
    found = [todo for _severity, what, todo in examined(monkeypatch, scrubbed(), master=master)
             if "refuses the slave" in what]
    assert len(found) == 1 and remedy in found[0]


def test_slave_that_reports_its_refusal_itself_has_a_remedy(monkeypatch):
    (finding,) = [each for each in examined(monkeypatch, scrubbed(state="OFFSET_REFUSED")) if each[0] == "ERROR"]
    assert finding[2].startswith("stop both, compare them with rmqha store diff")


def test_top_and_console_show_differences():
    faults = all_faults(view_of(scrubbed(**DIFFERS)))
    assert [(each.status, each.text.partition(":10911")[0]) for each in faults] == [
        (Status.CRITICAL, "slave 10.0.0.2")]


@pytest.mark.parametrize(("told", "severity", "todo"), [
    ({**DIFFERS, "haScrubDamaged": "slave:2"}, "ERROR", REPAIR),
    ({**DIFFERS, "haScrubDamaged": "master:2"}, "ERROR", "make this slave the master"),
    (LATE, "WARNING", "raise haScrubBytesPerSecond"),
    ({"haVerifyFailures": "1"}, "WARNING", "they were good when fetched again"),
    ({"haScrubState": "CANT"}, "NOTE", "main port and its white list"),
    ({}, "OK", ""),
])
def test_doctor_recommends_an_action(monkeypatch, told, severity, todo):
    found = [each for each in examined(monkeypatch, scrubbed(**told)) if "log" in each[1] or "records" in each[1]]
    assert [each[0] for each in found] == [severity] and todo in found[0][2]


def test_slave_that_only_receives_damaged_bytes_need_not_be_set_up_again(monkeypatch):
    slave = scrubbed(state="DIVERGED", haDivergedOffset="5000", haDivergedReason="damaged records, each time",
                     haVerifyFailures="2", haVerifyFailedOffset="5000")
    master = our_master(6000, **{"haRefusedSlave_10.0.0.2_5000": "5000,0,6000,5000"})
    view = read_group(Answers(master=master, slave=slave), [MASTER, SLAVE])
    assert "the master's record at 5000 arrives damaged each time" in render(view)
    assert "set it up again" not in render(view)
    found = [each for each in examined(monkeypatch, slave, master=master) if each[0] in ("ERROR", "WARNING")]
    damaged = [todo for _severity, what, todo in found if "damaged" in what]
    assert len(damaged) == 3 and all(each.startswith("run rmqha store verify on the master's") for each in damaged)
    slave[1]["haDivergedOffset"] = "4000"
    found = [each for each in examined(monkeypatch, slave, master=our_master(6000)) if "at offset 4000" in each[1]]
    assert [(each[0], "rebuild the other" in each[2]) for each in found] == [("ERROR", True)]


def test_doctor_names_the_difference_of_a_slave_without_its_master(monkeypatch):
    found = examined(monkeypatch, scrubbed(**DIFFERS), brokers=(SLAVE,), master=broker("ASYNC_MASTER", 0))
    assert [each[0] for each in found if "2 records of its log" in each[1]] == ["ERROR"]


def test_check_ha_is_critical(monkeypatch, run):
    reading = Reading([view_of(scrubbed(**DIFFERS)), view_of(scrubbed(**LATE))])
    monkeypatch.setattr("rmqha.tools.check.read_replication", lambda *_arguments: reading)
    result = run("check", "ha", "-b", SLAVE.address)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"HA CRITICAL - a's slave {SLAVE.address}: 2 records of its log are not its")
    assert "; a's slave 10.0.0.2:10911: bytes of its log have not been compared" in result.stdout
    reading.views.pop(0)
    result = run("check", "ha", "-b", SLAVE.address)
    assert result.exit_code == 1 and result.stdout.startswith("HA WARNING - a's slave")
