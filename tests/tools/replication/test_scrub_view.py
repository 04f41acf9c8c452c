"""What the tools say of a slave that scrubs its log and verifies what comes."""
import json

import pytest

from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.check import summary
from rmqha.tools.check_base import Status
from rmqha.tools.doctor import cluster_checks
from rmqha.tools.doctor.host_checks import Report
from rmqha.tools.replication.judgement import Rules, judge, worst
from rmqha.tools.replication.reader import read_broker
from rmqha.tools.replication.status import as_json, render
from rmqha.tools.replication.views import Reading
from rmqha.tools.view.snapshot import all_faults
from tests.tools.replication.test_evidence import java_slave, our_master, our_slave
from tests.tools.replication.test_replication import MASTER, SLAVE, Answers, broker, read_group

HOUR_MS = 3_600_000
SCRUBBED = {"haScrubState": "RUNNING", "haScrubPosition": "1200", "haScrubRoundBegin": "0", "haScrubRoundEnd": "5000",
            "haScrubRounds": "2", "haScrubComparedBytes": "11200", "haScrubUnscrubbedMs": str(2 * HOUR_MS),
            "haScrubDifferences": "0", "haScrubLastError": "", "haVerifiedBytes": "5000", "haVerifyFailures": "0"}
DIFFERS = {"haScrubDifferences": "2", "haScrubFirstDifference": "4321"}
LATE = {"haScrubUnscrubbedMs": str(169 * HOUR_MS)}
ROOT = {"storePathRootDir": "/data/s1"}
REPAIR = "rmqha store repair /data/s1 --master 10.0.0.1:10911 --apply"


def scrubbed(**told):
    """A healthy slave that reports of its checks; None takes a key away."""
    table = {key: value for key, value in {**SCRUBBED, **told}.items() if value is not None}
    slave = our_slave(5000, **table)
    slave[0].update(ROOT)
    return slave


def view_of(slave):
    return read_group(Answers(master=our_master(5000, 5000), slave=slave), [MASTER, SLAVE])


def examined(monkeypatch, slave, brokers=(MASTER, SLAVE), master=None):
    """The doctor's findings about replication."""
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
    (LATE, Status.WARNING, "SCRUB_LATE", ["for 169 h 0 min, 168 h 0 min are promised (RUNNING)"]),
    ({**LATE, "haScrubState": "OFF"}, Status.OK, "", []),
    ({**LATE, "haScrubState": None}, Status.OK, "", []),
    ({**LATE, "haScrubState": "CANT", "haScrubLastError": "refused"}, Status.WARNING, "SCRUB_LATE",
     ["(CANT: refused)"]),
    ({"haScrubUnscrubbedMs": "-1"}, Status.OK, "", []),
    ({"haScrubUnscrubbedMs": str(168 * HOUR_MS)}, Status.OK, "", []),
    (DIFFERS, Status.CRITICAL, "DIFFERS", ["2 records of its log are not its master's, the first at offset 4321",
                                           "no CRC says which copy is the right one"]),
    ({**DIFFERS, "haScrubDamaged": "slave:2", "haScrubFirstReason": "at 4400"}, Status.CRITICAL, "DIFFERS",
     ["4321 (at 4400): the slave's copy is the damaged one"]),
    ({**DIFFERS, "haScrubDamaged": "slave:1,unknown:1"}, Status.CRITICAL, "DIFFERS",
     ["in 1 of them the slave's copy is the damaged one"]),
    ({**DIFFERS, "haScrubDamaged": "slave:1,master:1"}, Status.CRITICAL, "MASTER_DAMAGED",
     ["in 1 of them the master's copy is the damaged one"]),
    ({**DIFFERS, "haScrubDifferences": "1", "haScrubDamaged": "master:1"}, Status.CRITICAL, "MASTER_DAMAGED",
     ["1 record of its log is not its master's, the first at offset 4321: the master's copy is the damaged one"]),
    ({"haScrubDifferences": "1", "haScrubState": "OFF", "haScrubDamaged": "?"}, Status.CRITICAL, "DIFFERS",
     ["1 record of its log is not its master's: no CRC"]),
    ({"haVerifyFailures": "3", "haVerifyFailedOffset": "777"}, Status.WARNING, "VERIFY_FAILED",
     ["3 times since its start, the last at offset 777"]),
    ({"haVerifyFailures": "1", "haScrubState": None}, Status.WARNING, "VERIFY_FAILED", ["1 time since its start"]),
])
def test_what_a_slave_finds_in_its_own_log_is_judged(told, status, state, texts):
    view = view_of(scrubbed(**told))
    problems = judge(view, Rules())
    assert worst(problems) is status and [each.state for each in problems] == [state] * bool(state)
    assert (view.slaves[0].state, view.slaves[0].in_sync) == ("TRANSFER", True), "it replicates all the same"
    for text in texts:
        assert text in problems[0].text and text in render(view) and text in summary([view], problems, Rules())
    assert all(each.text.startswith(f"a's slave {SLAVE.address}: ") and each.todo for each in problems)


def test_promised_time_is_the_slaves_own():
    slave = scrubbed(haScrubUnscrubbedMs="60001")
    slave[0]["haScrubPromise"] = "60000"
    assert "1 min 0 s are promised" in judge(view_of(slave), Rules())[0].text
    slave[0]["haScrubPromise"] = "0"
    assert judge(view_of(slave), Rules()) == []


def test_status_shows_how_far_scrubbing_has_come_and_what_to_do():
    text = render(view_of(scrubbed()))
    assert f"  {SLAVE.address}: scrubbing RUNNING; round 3 is at 1,200 of 0 to 5,000; what is due was appended or " \
           "compared 2 h 0 min ago, 168 h 0 min are promised; 4.9 KiB verified before they were acknowledged" in text
    assert "all is compared" in render(view_of(scrubbed(haScrubUnscrubbedMs="0")))
    assert "nothing is compared yet" in render(view_of(scrubbed(haScrubUnscrubbedMs="-1")))
    assert "scrubbing CANT" in render(view_of(scrubbed(haScrubState="CANT")))
    assert "last error: no\\u001banswer" in render(view_of(scrubbed(haScrubLastError="no\x1banswer")))
    assert "scrubbing OFF" in render(view_of(scrubbed(haScrubState="OFF")))
    text = render(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:2")))
    assert f"  CRITICAL a's slave {SLAVE.address}: 2 records" in text and REPAIR in text


def test_repair_from_a_damaged_master_is_never_proposed():
    text = render(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:1,master:1")))
    assert "store repair" not in text and "never repair this slave from this master" in text


def test_json_has_the_numbers():
    told = json.loads(json.dumps(as_json(view_of(scrubbed(**DIFFERS, haScrubDamaged="slave:1,unknown:1")))))
    (slave,) = told["slaves"]
    assert told["status"] == "CRITICAL" and "not its master's" in told["problems"][0]["text"]
    assert (slave["scrub"]["differences"], slave["scrub"]["first_difference"]) == (2, 4321)
    assert slave["scrub"]["damaged"] == {"slave": 1, "unknown": 1} and slave["scrub"]["verify_failed_offset"] is None


@pytest.mark.parametrize("slave", [our_slave(5000), java_slave(5000)])
def test_slaves_that_do_not_report_of_checks_are_judged_as_before(slave):
    view = view_of(slave)
    assert view.slaves[0].scrub is None and judge(view, Rules()) == [] and "scrubbing" not in render(view)
    assert as_json(view)["slaves"][0]["scrub"] is None


def test_slave_that_is_asked_alone_or_whose_master_is_gone_says_what_it_has_found():
    alone = read_broker(Answers(slave=scrubbed(**DIFFERS)), Broker("", "", 0, SLAVE.address))
    text = f"a: 2 records of its log are not its master's, the first at offset {DIFFERS['haScrubFirstDifference']}"
    assert any(text in each.text for each in judge(alone, Rules())) and REPAIR in render(alone)
    orphan = read_group(Answers(slave=scrubbed(**DIFFERS)), [MASTER, SLAVE])
    assert orphan.error and any("2 records of its log" in each.text for each in judge(orphan, Rules()))


def test_ignored_slave_does_not_matter():
    assert judge(view_of(scrubbed(**DIFFERS)), Rules(ignore=("10.0.0.2",), min_slaves=0)) == []


def test_number_that_is_none_is_an_answer_that_nobody_can_judge():
    view = view_of(scrubbed(haScrubDifferences="many"))
    assert (view.slaves[0].state, view.slaves[0].status) == ("NOT_TOLD", Status.UNKNOWN)


def test_top_and_console_show_it():
    faults = all_faults(view_of(scrubbed(**DIFFERS)))
    assert [(each.status, each.text.partition(":10911")[0]) for each in faults] == [
        (Status.CRITICAL, "slave 10.0.0.2")]


@pytest.mark.parametrize(("told", "severity", "todo"), [
    ({**DIFFERS, "haScrubDamaged": "slave:2"}, "ERROR", REPAIR),
    ({**DIFFERS, "haScrubDamaged": "master:2"}, "ERROR", "make this slave the master"),
    (LATE, "WARNING", "raise haScrubBytesPerSecond"),
    ({"haVerifyFailures": "1"}, "WARNING", "what came again was good"),
    ({"haScrubState": "CANT"}, "NOTE", "main port, and its white list"),
    ({}, "OK", ""),
])
def test_doctor_says_what_to_do(monkeypatch, told, severity, todo):
    found = [each for each in examined(monkeypatch, scrubbed(**told)) if "log" in each[1] or "records" in each[1]]
    assert [each[0] for each in found] == [severity] and todo in found[0][2]


def test_slave_that_only_gets_damaged_bytes_need_not_be_set_up_again(monkeypatch):
    slave = scrubbed(state="DIVERGED", haDivergedOffset="5000", haDivergedReason="damaged records, each time",
                     haVerifyFailures="2", haVerifyFailedOffset="5000")
    master = our_master(6000, **{"haRefusedSlave_10.0.0.2_5000": "5000,0,6000,5000"})
    view = read_group(Answers(master=master, slave=slave), [MASTER, SLAVE])
    assert "the master's record at 5000 comes damaged each time" in render(view) and "set up anew" not in render(view)
    found = [each for each in examined(monkeypatch, slave, master=master) if each[0] in ("ERROR", "WARNING")]
    damaged = [todo for _severity, what, todo in found if "damaged" in what]
    assert len(damaged) == 3 and all(each.startswith("rmqha store verify on the master's store") for each in damaged)
    slave[1]["haDivergedOffset"] = "4000"
    found = [each for each in examined(monkeypatch, slave, master=our_master(6000)) if "from offset 4000" in each[1]]
    assert [(each[0], "set the other up anew" in each[2]) for each in found] == [("ERROR", True)]


def test_doctor_names_the_difference_of_a_slave_whose_master_is_gone(monkeypatch):
    found = examined(monkeypatch, scrubbed(**DIFFERS), brokers=(SLAVE,), master=broker("ASYNC_MASTER", 0))
    assert [each[0] for each in found if "2 records of its log" in each[1]] == ["ERROR"]


def test_check_ha_is_critical(monkeypatch, run):
    reading = Reading([view_of(scrubbed(**DIFFERS)), view_of(scrubbed(**LATE))])
    monkeypatch.setattr("rmqha.tools.check.read_replication", lambda *_arguments: reading)
    result = run("check", "ha", "-b", SLAVE.address)
    assert result.exit_code == 2
    assert result.stdout.startswith(f"HA CRITICAL - a's slave {SLAVE.address}: 2 records of its log are not its")
    assert "; a's slave 10.0.0.2:10911: bytes of its log were not compared" in result.stdout
    reading.views.pop(0)
    result = run("check", "ha", "-b", SLAVE.address)
    assert result.exit_code == 1 and result.stdout.startswith("HA WARNING - a's slave")
