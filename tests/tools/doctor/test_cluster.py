"""`doctor -n` and `-b`: what is wrong with running servers."""
import functools
import json
import time
from contextlib import ExitStack

import pytest

from rmqha.remoting import addresses
from rmqha.remoting.addresses import Probe
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker, NoAnswerError
from rmqha.tools.doctor import cluster_checks
from rmqha.tools.doctor.cluster_checks import check_cluster, check_name_servers, check_stopped_store
from rmqha.tools.doctor.host_checks import Report
from tests.store.ha.support import Peer
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

MASTER, SLAVE = Broker("C", "a", 0, "10.0.0.1:10911"), Broker("C", "a", 1, "10.0.0.2:10911")


def examine(run, *arguments):
    """The findings of `doctor`, as JSON gives them."""
    result = run("doctor", "-o", "json", "--timeout", "30", *arguments)
    answer = json.loads(result.stdout)
    assert result.exit_code == (1 if answer["errors"] else 0), result.output
    return answer["findings"]


def bad(findings):
    return [(each["severity"], each["check"], each["what"]) for each in findings
            if each["severity"] in ("ERROR", "WARNING")]


def test_good_cluster_has_no_faults(cluster, run):
    findings = examine(run, "-n", cluster.namesrv)
    assert bad(findings) == []
    assert {each["check"] for each in findings if each["severity"] == "OK"} >= {"ports", "clocks", "disk", "offsets",
                                                                               "nameserver"}
    assert "0 errors, 0 warnings" in run("doctor", "-n", cluster.namesrv).stdout


def test_refused_slave_is_an_error(run, tmp_path):
    with running_name_server(tmp_path) as namesrv, broker_at(tmp_path / "master", namesrv) as master:
        master.send("T")
        end = master.store.get_max_phy_offset()
        with Peer.connect(master.store) as peer:
            peer.report(end + 999)
            assert peer.is_closed()
        ((severity, check, what),) = bad(examine(run, "-n", namesrv))
    assert (severity, check) == ("ERROR", "replication")
    assert "refuses the slave 127.0.0.1: it is ahead of the master" in what
    assert f"it asks for {end + 999}, the master ends at {end}" in what


def test_servers_that_are_not_there(run):
    found = bad(examine(run, "-n", "127.0.0.1:1;127.0.0.1:2", "-b", "127.0.0.1:3"))
    assert [each[:2] for each in found] == [("ERROR", "nameserver")] * 2 + [("ERROR", "ports")]
    result = run("doctor", "-b", "nonsense")
    assert result.exit_code == 2 and "'nonsense' is no host:port" in result.output


def test_second_master_of_one_name_and_slave_with_id_0(run, tmp_path):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        one = stack.enter_context(broker_at(tmp_path / "one", namesrv))
        other = stack.enter_context(broker_at(tmp_path / "other", None))
        slave = stack.enter_context(broker_at(tmp_path / "slave", namesrv, brokerName="broker-b", brokerId=0,
                                              brokerRole=BrokerRole.SLAVE))
        found = bad(examine(run, "-n", namesrv, "-b", other.address))
    roles = [what for severity, check, what in found if (severity, check) == ("ERROR", "roles")]
    assert any("two masters of one name" in what and one.address in what and other.address in what for what in roles)
    assert any("brokerRole=SLAVE with brokerId 0" in what for what in roles), (slave, roles)


def test_slaves_without_a_master_and_name_servers_that_disagree(run, tmp_path):
    with ExitStack() as stack:
        first = stack.enter_context(running_name_server(tmp_path / "1"))
        second = stack.enter_context(running_name_server(tmp_path / "2"))
        stack.enter_context(broker_at(tmp_path / "slave", first, brokerId=1, brokerRole=BrokerRole.SLAVE))
        found = bad(examine(run, "-n", f"{first};{second}"))
    assert any(severity == "ERROR" and "slaves without a master" in what for severity, _check, what in found), found
    assert any(check == "nameserver" and "does not know broker-a 1" in what for _severity, check, what in found), found


class FakeAdmin:
    """Stands for ClusterAdmin: `answers` by address are (config, runtime table)."""

    answers: dict = {}

    def __init__(self, *_args, **_options):
        self.answers = dict(self.answers)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.answers.clear()

    def get_broker_config(self, address):
        if address not in self.answers:
            raise NoAnswerError(f"the broker {address} can't be reached")
        return self.answers[address][0]

    def runtime_info(self, address):
        return self.answers[address][1]


def told(role, broker_id, begin, end, ahead_s=0.0, config=None, **table):
    """What a broker answers whose clock is `ahead_s` before ours."""
    boot = int((time.time() + ahead_s - 3_723) * 1000)  # 1 hour, 2 minutes and 3 seconds ago by its clock
    return ({"brokerName": "a", "brokerId": str(broker_id), "brokerRole": role, "brokerIP2": "10.0.0.1",
             "haListenPort": "10912", "mappedFileSizeCommitLog": "1048576", **(config or {})},
            {"bootTimestamp": str(boot), "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
             "commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "commitLogDiskRatio": "0.2", **table})


later = functools.partial(functools.partial, told)  # clocks go on between collecting tests and running them


@pytest.fixture
def findings(monkeypatch):
    """findings(master, slave, probes) -> what check_cluster says of them; all ports are open unless said."""
    def check(master, slave=None, closed=()):
        answers = {MASTER.address: master, SLAVE.address: slave}
        monkeypatch.setattr(FakeAdmin, "answers", {address: each for address, each in answers.items() if each})
        monkeypatch.setattr(cluster_checks, "ClusterAdmin", FakeAdmin)
        monkeypatch.setattr(cluster_checks, "probe",
                            lambda host, port, _timeout: Probe.SILENT if port in closed else Probe.OPEN)
        report = Report()
        check_cluster([MASTER, SLAVE] if slave else [MASTER], [], None, False, 1000, report)
        return [(each.severity.value, each.check, each.what) for each in report.findings
                if each.severity.value in ("ERROR", "WARNING")]
    return check


def test_no_faults_in_good_answers(findings):
    assert findings(told("SYNC_MASTER", 0, 0, 5000), told("SLAVE", 1, 0, 4000)) == []


@pytest.mark.parametrize(("master", "slave", "check", "text"), [
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 1, 0, 6000), "offsets", "it is ahead"),
    (later("ASYNC_MASTER", 0, 3000, 5000), later("SLAVE", 1, 0, 2000), "offsets", "what it needs is deleted"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 1, 0, 9, config={"mappedFileSizeCommitLog": "7"}),
     "config", "mappedFileSizeCommitLog=7"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("ASYNC_MASTER", 1, 0, 9), "roles", "replicates from nobody"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 2, 0, 9), "roles", "at this address a 2 answers"),
    (later("SYNC_MASTER", 0, 0, 5000), None, "roles", "a SYNC_MASTER without a slave"),
    (later("ASYNC_MASTER", 0, 0, 5000, config={"inSyncReplicas": "3"}), None, "roles", "inSyncReplicas=3"),
    (later("ASYNC_MASTER", 0, 0, 5000, commitLogDiskRatio="0.93"), None, "disk", "refuses to store"),
    (later("ASYNC_MASTER", 0, 0, 5000, ahead_s=30), None, "clocks", "(ahead)"),
    (later("ASYNC_MASTER", 0, 0, 5000, ahead_s=-3600), None, "clocks", "(behind)"),
])
def test_fault_in_answers_is_found(findings, master, slave, check, text):
    found = findings(master(), slave and slave())
    assert any(kind == check and text in what for _severity, kind, what in found), found


def test_clock_hours_off_is_an_error_and_seconds_are_a_warning(findings):
    assert [found[:2] for found in findings(told("ASYNC_MASTER", 0, 0, 0, ahead_s=7200))] == [("ERROR", "clocks")]
    assert [found[:2] for found in findings(told("ASYNC_MASTER", 0, 0, 0, ahead_s=-20))] == [("WARNING", "clocks")]


def test_closed_ports_are_found(findings):
    found = findings(told("ASYNC_MASTER", 0, 0, 5000), closed=(10912, 10909))
    assert {(severity, check) for severity, check, _what in found} == {("ERROR", "ports"), ("WARNING", "ports")}
    assert any("10.0.0.1:10912, its HA port, by brokerIP2: no answer: a firewall drops it" in what
               for *_rest, what in found)


def test_stopped_slaves_store_is_compared_with_its_master(findings):
    findings(told("ASYNC_MASTER", 0, 3000, 5000))  # sets the answers
    texts = []
    for end in (2000, 4000, 6000):
        report = Report()
        check_stopped_store("/store", 0, end, "a", [MASTER], 1000, report)
        texts.append(report.findings[-1].what)
    assert "is deleted" in texts[0] and texts[1] == "holds 0 to 4000, its master 3000 to 5000" and "ahead" in texts[2]


def test_probe_tells_open_refused_and_unknown(cluster):
    host, port = cluster.master.address.split(":")
    assert addresses.probe(host, int(port), 5) is Probe.OPEN
    assert addresses.probe("127.0.0.1", 1, 5) is Probe.REFUSED
    assert addresses.probe("a..b", 1, 5) is Probe.UNKNOWN_HOST
    assert addresses.why_not_listen(int(port)) == "in use"
    assert addresses.why_not_listen(70_000) == "it is no port: 0 to 65535"


def test_name_servers_are_asked_each(cluster):
    report = Report()
    brokers = wait_until(lambda: check_name_servers([cluster.namesrv], 3000, report), 60_000)
    assert [(broker.name, broker.broker_id) for broker in brokers] == [("broker-a", 0), ("broker-a", 1)]
