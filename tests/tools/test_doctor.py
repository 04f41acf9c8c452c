"""`rmqha doctor`: running servers, config files, the host, and a broker that waits for a role."""
import functools
import json
import os
import re
import socket
import time
from collections import namedtuple
from contextlib import ExitStack

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.native import kernels
from rmqha.remoting import addresses
from rmqha.remoting.addresses import Probe
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker, NoAnswerError
from rmqha.tools.doctor import cluster_checks, host_checks
from rmqha.tools.doctor.cluster_checks import check_cluster, check_name_servers, check_stopped_store
from rmqha.tools.doctor.host_checks import Finding, Report, Severity, check_config_file, judge_limits, judge_used
from tests.store.ha.support import Peer
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.nodes import BrokerNode
from tests.support.sources import ROOT
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

# `doctor -n` and `-b`: faults of running servers.

MASTER, SLAVE = Broker("C", "a", 0, "10.0.0.1:10911"), Broker("C", "a", 1, "10.0.0.2:10911")


def examine(run, *arguments):
    """Return the findings of `doctor`, parsed from JSON."""
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
    assert f"it requests {end + 999}, but the master ends at {end}" in what


def test_unreachable_servers_are_reported(run):
    found = bad(examine(run, "-n", "127.0.0.1:1;127.0.0.1:2", "-b", "127.0.0.1:3"))
    assert [each[:2] for each in found] == [("ERROR", "nameserver")] * 2 + [("ERROR", "ports")]
    result = run("doctor", "-b", "nonsense")
    assert result.exit_code == 2 and "'nonsense' is not a valid host:port" in result.output


def test_second_master_of_a_name_and_a_slave_with_id_0_are_errors(run, tmp_path):
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(tmp_path))
        one = stack.enter_context(broker_at(tmp_path / "one", namesrv))
        other = stack.enter_context(broker_at(tmp_path / "other", None))
        slave = stack.enter_context(broker_at(tmp_path / "slave", namesrv, brokerName="broker-b", brokerId=0,
                                              brokerRole=BrokerRole.SLAVE))
        found = bad(examine(run, "-n", namesrv, "-b", other.address))
    roles = [what for severity, check, what in found if (severity, check) == ("ERROR", "roles")]
    assert any("two masters with the same" in what and one.address in what and other.address in what for what in roles)
    assert any("brokerRole=SLAVE with brokerId 0" in what for what in roles), (slave, roles)


def test_slaves_without_a_master_and_inconsistent_name_servers_are_errors(run, tmp_path):
    with ExitStack() as stack:
        first = stack.enter_context(running_name_server(tmp_path / "1"))
        second = stack.enter_context(running_name_server(tmp_path / "2"))
        stack.enter_context(broker_at(tmp_path / "slave", first, brokerId=1, brokerRole=BrokerRole.SLAVE))
        found = bad(examine(run, "-n", f"{first};{second}"))
    assert any(severity == "ERROR" and "slaves without a master" in what for severity, _check, what in found), found
    assert any(check == "nameserver" and "does not list broker-a 1" in what for _severity, check, what in found), found


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
    """Return the answer of a broker whose clock is `ahead_s` before ours."""
    boot = int((time.time() + ahead_s - 3_723) * 1000)  # 1 hour, 2 minutes and 3 seconds ago by its clock
    return ({"brokerName": "a", "brokerId": str(broker_id), "brokerRole": role, "brokerIP2": "10.0.0.1",
             "haListenPort": "10912", "mappedFileSizeCommitLog": "1048576", **(config or {})},
            {"bootTimestamp": str(boot), "runtime": "[ 0 days, 1 hours, 2 minutes, 3 seconds ]",
             "commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "commitLogDiskRatio": "0.2", **table})


# Time passes between collecting tests and running them.
later = functools.partial(functools.partial, told)


@pytest.fixture
def findings(monkeypatch):
    """findings(master, slave, closed) -> the faults that check_cluster finds; all ports but those in `closed` are
    open."""
    def check(master, slave=None, closed=()):
        answers = {MASTER.address: master, SLAVE.address: slave}
        monkeypatch.setattr(FakeAdmin, "answers", {address: each for address, each in answers.items() if each})
        monkeypatch.setattr(cluster_checks, "connected", FakeAdmin)
        monkeypatch.setattr(cluster_checks, "probe",
                            lambda host, port, _timeout: Probe.SILENT if port in closed else Probe.OPEN)
        report = Report()
        check_cluster([MASTER, SLAVE] if slave else [MASTER], [], None, False, 1000, report)
        return [(each.severity.value, each.check, each.what) for each in report.findings
                if each.severity.value in ("ERROR", "WARNING")]
    return check


def test_good_answers_have_no_faults(findings):
    assert findings(told("SYNC_MASTER", 0, 0, 5000), told("SLAVE", 1, 0, 4000)) == []


@pytest.mark.parametrize(("master", "slave", "check", "text"), [
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 1, 0, 6000), "offsets", "it is ahead"),
    (later("ASYNC_MASTER", 0, 3000, 5000), later("SLAVE", 1, 0, 2000), "offsets", "needs is already deleted"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 1, 0, 9, config={"mappedFileSizeCommitLog": "7"}),
     "config", "mappedFileSizeCommitLog=7"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("ASYNC_MASTER", 1, 0, 9), "roles", "replicates nothing"),
    (later("ASYNC_MASTER", 0, 0, 5000), later("SLAVE", 2, 0, 9), "roles", "a 2 answers at this address"),
    (later("SYNC_MASTER", 0, 0, 5000), None, "roles", "a SYNC_MASTER without a slave"),
    (later("ASYNC_MASTER", 0, 0, 5000, config={"inSyncReplicas": "3"}), None, "roles", "inSyncReplicas=3"),
    (later("ASYNC_MASTER", 0, 0, 5000, commitLogDiskRatio="0.93"), None, "disk", "refuses messages"),
    (later("ASYNC_MASTER", 0, 0, 5000, ahead_s=30), None, "clocks", "(ahead)"),
    (later("ASYNC_MASTER", 0, 0, 5000, ahead_s=-3600), None, "clocks", "(behind)"),
])
def test_fault_in_answers_is_found(findings, master, slave, check, text):
    found = findings(master(), slave and slave())
    assert any(kind == check and text in what for _severity, kind, what in found), found


def test_clock_hours_off_is_an_error_and_seconds_off_are_a_warning(findings):
    assert [found[:2] for found in findings(told("ASYNC_MASTER", 0, 0, 0, ahead_s=7200))] == [("ERROR", "clocks")]
    assert [found[:2] for found in findings(told("ASYNC_MASTER", 0, 0, 0, ahead_s=-20))] == [("WARNING", "clocks")]


def test_closed_ports_are_reported(findings):
    found = findings(told("ASYNC_MASTER", 0, 0, 5000), closed=(10912, 10909))
    assert {(severity, check) for severity, check, _what in found} == {("ERROR", "ports"), ("WARNING", "ports")}
    assert any("10.0.0.1:10912, its HA port, by brokerIP2: no answer: a firewall drops the packets" in what
               for *_rest, what in found)


def test_store_of_a_stopped_slave_is_compared_with_its_master(findings):
    findings(told("ASYNC_MASTER", 0, 3000, 5000))  # sets the answers
    texts = []
    for end in (2000, 4000, 6000):
        report = Report()
        check_stopped_store("/store", 0, end, "a", [MASTER], 1000, report)
        texts.append(report.findings[-1].what)
    assert "deleted" in texts[0] and texts[1] == "holds 0 to 4000, its master 3000 to 5000" and "ahead" in texts[2]


def test_probe_distinguishes_open_refused_and_unknown(cluster):
    host, port = cluster.master.address.split(":")
    assert addresses.probe(host, int(port), 5) is Probe.OPEN
    assert addresses.probe("127.0.0.1", 1, 5) is Probe.REFUSED
    assert addresses.probe("a..b", 1, 5) is Probe.UNKNOWN_HOST
    assert addresses.why_not_listen(int(port)) == "in use"
    assert addresses.why_not_listen(70_000) == "not a valid port: 0 to 65535"


def test_each_name_server_is_queried(cluster):
    report = Report()
    brokers = wait_until(lambda: check_name_servers([cluster.namesrv], 3000, report), 60_000)
    assert [(broker.name, broker.broker_id) for broker in brokers] == [("broker-a", 0), ("broker-a", 1)]


# `doctor -c`: faults of a config file, and of the host that it is for.


@pytest.fixture
def config(tmp_path):
    """config(**keys) -> the path of a broker's config file without faults, changed by `keys` (None removes one)."""
    def write(**keys):
        values = {"brokerName": "broker-a", "brokerId": 0, "brokerRole": "ASYNC_MASTER", "brokerIP1": "127.0.0.1",
                  "brokerIP2": "127.0.0.1", "namesrvAddr": "127.0.0.1:1", "listenPort": ports.free_broker_port(),
                  "storePathRootDir": tmp_path / "store", "mappedFileSizeCommitLog": 1 << 20, **keys}
        file = tmp_path / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value is not None), "utf-8")
        return file
    return write


@pytest.fixture
def examine_host(run):
    """examine(*arguments) -> its findings, as (severity, check, what, todo, where)."""
    def findings(*arguments):
        result = run("doctor", "-o", "json", "--timeout", "1", *arguments)
        answer = json.loads(result.stdout)
        assert result.exit_code == (1 if answer["errors"] else 0), result.output
        assert answer["errors"] == sum(each["severity"] == "ERROR" for each in answer["findings"])
        assert all(each["todo"] for each in answer["findings"] if each["severity"] in ("ERROR", "WARNING"))
        return answer["findings"]
    return findings


def only(findings, check, *severities):
    return [each["what"] for each in findings if each["check"] == check and each["severity"] in severities]


def bad_host(findings, check):
    return only(findings, check, "ERROR", "WARNING")


def test_good_file_has_no_fault_except_a_name_server_that_is_down(config, examine_host):
    findings = examine_host("-c", config())
    assert [each["check"] for each in findings if each["severity"] == "ERROR"] == ["nameserver"]
    for check in ("roles", "ports", "addresses", "store", "config"):
        assert bad_host(findings, check) == [], check
    assert len(only(findings, "ports", "OK")) == 3


@pytest.mark.parametrize(("keys", "check", "text"), [
    ({"brokerRole": "SLAVE"}, "roles", "brokerRole=SLAVE with brokerId=0"),
    ({"brokerId": 3}, "roles", "brokerRole=ASYNC_MASTER with brokerId=3"),
    ({"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": None}, "roles", "can't find its master"),
    ({"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": "nowhere"}, "config",
     "haMasterAddress: expected host:port, or nothing, not 'nowhere'"),
    ({"brokerRole": "SLAVE", "brokerId": 1, "listenPort": 23999, "haMasterAddress": "127.0.0.1:24000"}, "roles",
     "it would follow itself"),
    ({"totalReplicas": 2, "minInSyncReplicas": 3}, "roles", "is more than totalReplicas=2"),
    ({"namesrvAddr": None}, "nameserver", "no namesrvAddr"),
    ({"namesrvAddr": "host"}, "config", "namesrvAddr: expected Name Server addresses"),
    ({"haListenPort": 5}, "ports", "haListenPort=5 has no effect"),
    ({"brokerNmae": "x"}, "config", "unknown key brokerNmae, did you mean brokerName?"),
    ({"listenPort": "many"}, "config", "listenPort"),
    ({"brokerRole": "KING"}, "config", "brokerRole"),
    ({"brokerIP1": "0.0.0.0"}, "addresses", "to listen on, not to connect to"),
    ({"brokerIP1": "203.0.113.9"}, "addresses", "not one of this host's addresses"),
    ({"namesrvAddr": "203.0.113.9:9876"}, "addresses", "other hosts can't reach it"),
])
def test_fault_in_a_file_is_found(config, keys, check, text, monkeypatch, tmp_path):
    monkeypatch.setattr(host_checks.mix_all, "get_local_inet_address", lambda: ["127.0.0.1", "10.1.2.3"])
    report = Report()
    loaded = check_config_file(str(config(**keys)), report)
    if loaded is not None:
        host_checks.check_host(loaded, report)
    found = [each for each in report.findings if each.check == check and text in each.what]
    assert found and found[0].severity in (Severity.ERROR, Severity.WARNING), report.findings
    assert found[0].where.startswith(str(tmp_path / "broker.conf")) and found[0].todo


def test_missing_file_is_reported(examine_host, tmp_path):
    assert "cannot read the config file" in bad_host(examine_host("-c", tmp_path / "none.conf"), "config")[0]


def test_host_with_several_addresses_and_none_chosen(config, monkeypatch):
    monkeypatch.setattr(host_checks.mix_all, "get_local_inet_address", lambda: ["127.0.0.1", "10.1.2.3", "10.9.9.9"])
    report = Report()
    loaded = check_config_file(str(config(brokerIP1=None)), report)
    loaded.broker.brokerIP1 = "10.9.9.9"
    host_checks.check_host(loaded, report)
    (what,) = [each.what for each in report.findings if "several addresses" in each.what]
    assert "10.1.2.3, 10.9.9.9; 10.9.9.9 is used" in what


def test_port_in_use_names_the_port(config, examine_host):
    port = ports.free_broker_port()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port + 1))
        taken.listen()
        (what,) = bad_host(examine_host("-c", config(listenPort=port)), "ports")
    assert f"{port + 1}, the HA port, listenPort + 1: in use by pid " in what


def test_running_broker_of_the_same_file_is_no_fault(tmp_path, config, examine_host):
    with broker_at(tmp_path, None) as broker:
        findings = examine_host("-c", config(listenPort=broker.controller.server_config.listenPort))
    assert bad_host(findings, "ports") == [] and bad_host(findings, "store") == []
    assert "a broker runs on this store" in only(findings, "store", "NOTE")


def test_abort_file_shows_a_crash(config, examine_host, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "abort").touch()
    assert "did not shut down cleanly" in bad_host(examine_host("-c", config()), "store")[0]


def test_file_at_the_path_of_the_store_is_an_error(config, examine_host, tmp_path):
    (tmp_path / "store").write_text("x")
    assert "is not a folder" in bad_host(examine_host("-c", config()), "store")


def test_missing_compiled_parts_are_reported(config, examine_host, monkeypatch):
    slow = kernels.Kernel("express sends", None, "_express_send.so is of version 4, not 5")
    monkeypatch.setattr(kernels, "KERNELS", (kernels.BULK._replace(module=kernels), slow))
    findings = examine_host("-c", config())
    assert only(findings, "compiled", "OK") == ["bulk kernel: compiled"]
    assert bad_host(findings,
                    "compiled") == ["express sends: pure Python, slower: _express_send.so is of version 4, not 5"]


def test_missing_permissions_are_reported(config, tmp_path, monkeypatch):
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "store" / "config" / "topics.json").write_text("{}")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "topics.json" not in str(path) and real(path, mode))
    report = Report()
    host_checks.check_host(check_config_file(str(config()), report), report)
    (found,) = [each for each in report.findings if "can't read and write" in each.what]
    assert found.where.endswith("topics.json") and found.severity is Severity.ERROR


Mount = namedtuple("Mount", "mountpoint fstype opts")


@pytest.mark.parametrize(("mount", "severity", "text"), [
    (Mount("/", "tmpfs", "rw"), "WARNING", "tmpfs: all data is lost"),
    (Mount("/", "nfs4", "rw"), "WARNING", "a network file system"),
    (Mount("/", "ext4", "ro,relatime"), "ERROR", "mounted read-only"),
    (Mount("/", "xfs", "rw"), "OK", "the file system is xfs"),
])
def test_unsuitable_file_systems_are_reported(config, examine_host, monkeypatch, mount, severity, text):
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [mount])
    assert any(text in what for what in only(examine_host("-c", config()), "disk", severity))


@pytest.mark.parametrize(("used", "severity"), [(0.2, "OK"), (0.80, "WARNING"), (0.88, "WARNING"), (0.95, "ERROR")])
def test_full_disks_are_reported(used, severity):
    report = Report()
    judge_used("here", used, 75, report)
    assert [each.severity.value for each in report.findings] == [severity]


def test_little_free_space_is_reported(config, examine_host):
    findings = examine_host("-c", config(mappedFileSizeCommitLog=2**31 - 1, storePathRootDir="/proc"))
    assert any("less than two commit log files" in what for what in bad_host(findings, "disk"))


def test_text_contains_severity_place_and_action(config, run):
    result = run("doctor", "-c", config(brokerRole="SLAVE"))
    assert result.exit_code == 1
    assert "ERROR   roles      " in result.stdout and "broker.conf:2: brokerRole=SLAVE with brokerId=0" in result.stdout
    assert "                   -> give each slave of a master its own brokerId above 0" in result.stdout
    assert "OK" not in result.stdout.split("\n")[0] and "-v shows those" in result.stdout


def test_nothing_to_check_is_a_usage_error(run):
    result = run("doctor")
    assert result.exit_code == 2 and "give a config file with -c" in result.output


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=120))
def test_any_bytes_are_a_valid_config_file_or_an_error(tmp_path, data):
    file = tmp_path / "any.conf"
    file.write_bytes(data)
    report = Report()
    if check_config_file(str(file), report) is None:
        assert report.count(Severity.ERROR) == 1


@pytest.mark.parametrize("files, severity", [(0, Severity.OK), (8000, Severity.OK), (8001, Severity.WARNING),
                                             (40_000, Severity.WARNING)])
def test_number_of_queue_files_is_compared_with_the_mapping_limit(files, severity):
    report = Report()
    judge_limits("here", files, 10_000, report)
    assert [finding.severity for finding in report.findings] == [severity]
    assert f"{files:,} consume queue files" in report.findings[0].what


def test_queue_files_are_counted(tmp_path, monkeypatch):
    for number in range(9):
        folder = tmp_path / "store" / "consumequeue" / "T" / str(number)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").touch()
    monkeypatch.setattr(host_checks, "max_mapped_files", lambda _descriptors: 10)
    report = Report()
    host_checks._check_limits(str(tmp_path / "store" / "consumequeue"), report)
    assert [(each.severity, each.check) for each in report.findings] == [(Severity.WARNING, "limits")]
    assert "9 consume queue files" in report.findings[0].what


# The doctor's lines: each column is separated from the next by a blank.

CHECKS = {name for file in (ROOT / "rmqha" / "tools" / "doctor").glob("*.py")
          for name in re.findall(r"\b(?:error|warning|note|good|say)\(\s*\"(\w+)\"", file.read_text("utf-8"))}


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("check", sorted(CHECKS))
def test_columns_are_separated_and_the_advice_is_aligned_with_the_text(severity, check):
    line, advice = Finding(severity, check, "broker-a", "is away", "start it").text().split("\n")
    assert line.split(None, 2) == [severity.value, check, "broker-a: is away"]
    assert advice.index("->") == line.index("broker-a")


def test_names_of_checks_are_found_in_the_sources():
    assert {"replication", "nameserver", "compiled", "ports"} <= CHECKS


# A broker that waits for a role: its start, `config check`, `doctor`, `check ha` and `ha status` report it.

CLIENT_KEYS = {"brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}


@pytest.fixture
def namesrv(tmp_path):
    with running_name_server(tmp_path) as address:
        yield address


@pytest.fixture
def broker(tmp_path, namesrv):
    """broker(**properties) -> a broker's process, not started."""
    made = []

    def make(**properties):
        made.append(BrokerNode("rmqha", tmp_path / "broker", namesrv, **CLIENT_KEYS, **properties))
        return made[-1]
    yield make
    for node in made:
        node.kill()


def used_with_roles_that_change(broker):
    """Start a master with enableAutoSwitchHA on a store that was already in use."""
    node = broker(enableAutoSwitchHA="true").start()
    # At its first start it is the master of the first epoch.
    assert "has no role yet" not in node.output()
    node.stop()
    return node.start()


def last_start(node):
    """Return the output since the last start."""
    return node.output().split("boot success")[-2]


def role_wait_findings(run, *arguments):
    return [(each["severity"], each["where"], each["what"], each["todo"])
            for each in json.loads(run("doctor", "-o", "json", *arguments).stdout)["findings"]
            if "waits for a role" in each["what"] or "without a role" in each["what"]]


def test_broker_with_a_used_store_waits_and_every_command_reports_it(run, broker, namesrv):
    node = used_with_roles_that_change(broker)
    warning = next(line for line in last_start(node).splitlines() if "has no role yet" in line)
    assert warning.startswith("warning: this broker has no role yet and accepts no messages until it has one: "
                              "enableAutoSwitchHA=true")
    assert f"rmqha ha promote -b {node.address}" in warning and "it starts as ASYNC_MASTER" in warning
    checked = run("config", "check", node.config_file)
    assert checked.exit_code == 0 and "warning: enableAutoSwitchHA: true, and the store at" in checked.stdout
    assert run("config", "check", "--strict", node.config_file).exit_code == 1
    (severity, where, _what, todo), = [each for each in role_wait_findings(run, "-n", namesrv) if each[0] == "ERROR"
                                       and "follows no master" in each[2]]
    assert node.address in where and f"rmqha ha promote -b {node.address}" in todo and severity == "ERROR"
    assert f"{node.address} waits for a role" in run("check", "ha", "-n", namesrv).stdout
    assert run("check", "ha", "-n", namesrv).exit_code == 2
    assert "waits for a role" in run("ha", "status", "-n", namesrv).stdout
    from_file = role_wait_findings(run, "-c", node.config_file)
    assert from_file[0][0] == "WARNING" and str(node.config_file) in from_file[0][1]
    assert run("ha", "promote", "-b", node.address, "-n", namesrv).exit_code == 0
    assert not [each for each in role_wait_findings(run, "-n", namesrv) if "follows no master" in each[2]]


def test_broker_without_the_key_is_the_master_at_once(run, broker, namesrv):
    node = used_with_roles_that_change(broker)
    node.stop()
    lines = node.config_file.read_text().splitlines(keepends=True)
    node.config_file.write_text("".join(line for line in lines if not line.startswith("enableAutoSwitchHA")))
    node.start()
    assert "has no role yet" not in last_start(node)
    assert "waits" not in run("config", "check", node.config_file).stdout
    assert run("check", "ha", "-n", namesrv, "--min-slaves", "0").exit_code == 0


def test_broker_whose_controllers_do_not_answer_waits(run, broker, namesrv):
    controller = f"127.0.0.1:{ports.free_port()}"
    node = broker(enableControllerMode="true", controllerAddr=controller).start()
    assert ("warning: this broker has no role yet and accepts no messages until it has one: the controllers at "
            f"{controller} have not assigned one yet") in node.output()
    (_severity, where, what, todo), = [each for each in role_wait_findings(run, "-b", node.address)
                                       if "follows no master" in each[2]]
    assert node.address in where and "takes no messages" in what and controller in todo
    (severity, where, what, _todo), = role_wait_findings(run, "-c", node.config_file, "--timeout", "1")
    assert severity == "ERROR" and where.startswith(f"{node.config_file}:") and "no controller answers" in what


@pytest.mark.parametrize("keys, waits", [
    ("enableAutoSwitchHA=true\n", True), ("enableAutoSwitchHA=true\nbrokerRole=SLAVE\nbrokerId=1\n", False),
    ("enableAutoSwitchHA=true\nenableControllerMode=true\ncontrollerAddr=h:1\n", False),
    ("enableAutoSwitchHA=true\nbrokerRole=SYNC_MASTER\n", True), ("enableAutoSwitchHA=false\n", False),
])
@pytest.mark.parametrize("epochs", [None, "1\n0\n1-0\n", "0\n0\n", ""])
def test_config_check_by_file_and_store(run, tmp_path, keys, waits, epochs):
    store, file = tmp_path / "store", tmp_path / "broker.conf"
    store.mkdir()
    if epochs is not None:
        (store / "epochFileCheckpoint").write_text(epochs)
    file.write_text(f"storePathRootDir={store}\n{keys}")
    told = json.loads(run("config", "check", file, "-o", "json").stdout)["findings"]
    found = [each for each in told if each["text"].startswith("enableAutoSwitchHA: ")]
    assert len(found) == waits
    if waits:
        was_used = epochs is not None and epochs[:1] == "1"
        assert found[0]["line"] == 2 and ("was in use with it" in found[0]["text"]) is was_used
        assert ("at every start except the first" in found[0]["text"]) is not was_used
