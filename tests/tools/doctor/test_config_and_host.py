"""`doctor -c`: what is wrong with a config file, and with the host that it is for."""
import json
import os
import socket
from collections import namedtuple

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.native import kernels
from rmqha.tools.doctor import host_checks
from rmqha.tools.doctor.host_checks import Report, Severity, check_config_file, judge_limits, judge_used
from tests.support import ports
from tests.tools.conftest import broker_at


@pytest.fixture
def config(tmp_path):
    """config(**keys) -> the path of a broker's config file without faults, but for `keys` (None leaves one out)."""
    def write(**keys):
        values = {"brokerName": "broker-a", "brokerId": 0, "brokerRole": "ASYNC_MASTER", "brokerIP1": "127.0.0.1",
                  "brokerIP2": "127.0.0.1", "namesrvAddr": "127.0.0.1:1", "listenPort": ports.free_broker_port(),
                  "storePathRootDir": tmp_path / "store", "mappedFileSizeCommitLog": 1 << 20, **keys}
        file = tmp_path / "broker.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in values.items() if value is not None), "utf-8")
        return file
    return write


@pytest.fixture
def examine(run):
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


def bad(findings, check):
    return only(findings, check, "ERROR", "WARNING")


def test_good_file_has_no_fault_but_a_name_server_that_is_down(config, examine):
    findings = examine("-c", config())
    assert [each["check"] for each in findings if each["severity"] == "ERROR"] == ["nameserver"]
    for check in ("roles", "ports", "addresses", "store", "config"):
        assert bad(findings, check) == [], check
    assert len(only(findings, "ports", "OK")) == 3


@pytest.mark.parametrize(("keys", "check", "text"), [
    ({"brokerRole": "SLAVE"}, "roles", "brokerRole=SLAVE with brokerId=0"),
    ({"brokerId": 3}, "roles", "brokerRole=ASYNC_MASTER with brokerId=3"),
    ({"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": None}, "roles", "finds no master"),
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
    ({"brokerIP1": "0.0.0.0"}, "addresses", "where to listen, not where to connect"),
    ({"brokerIP1": "203.0.113.9"}, "addresses", "none of this host's addresses"),
    ({"namesrvAddr": "203.0.113.9:9876"}, "addresses", "nobody on another host reaches it"),
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


def test_missing_file_is_said(examine, tmp_path):
    assert "cannot read the config file" in bad(examine("-c", tmp_path / "none.conf"), "config")[0]


def test_several_addresses_and_none_chosen(config, monkeypatch):
    monkeypatch.setattr(host_checks.mix_all, "get_local_inet_address", lambda: ["127.0.0.1", "10.1.2.3", "10.9.9.9"])
    report = Report()
    loaded = check_config_file(str(config(brokerIP1=None)), report)
    loaded.broker.brokerIP1 = "10.9.9.9"
    host_checks.check_host(loaded, report)
    (what,) = [each.what for each in report.findings if "several addresses" in each.what]
    assert "10.1.2.3, 10.9.9.9; 10.9.9.9 is chosen" in what


def test_port_in_use_names_the_port(config, examine):
    port = ports.free_broker_port()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port + 1))
        taken.listen()
        (what,) = bad(examine("-c", config(listenPort=port)), "ports")
    assert f"{port + 1}, the HA port, listenPort + 1: in use by pid " in what


def test_running_broker_of_the_file_is_no_fault(tmp_path, config, examine):
    with broker_at(tmp_path, None) as broker:
        findings = examine("-c", config(listenPort=broker.controller.server_config.listenPort))
    assert bad(findings, "ports") == [] and bad(findings, "store") == []
    assert "a broker runs on this store" in only(findings, "store", "NOTE")


def test_abort_file_tells_of_a_crash(config, examine, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "abort").touch()
    assert "did not stop by itself" in bad(examine("-c", config()), "store")[0]


def test_file_in_the_place_of_the_store(config, examine, tmp_path):
    (tmp_path / "store").write_text("x")
    assert "is no folder" in bad(examine("-c", config()), "store")


def test_what_is_not_compiled_is_told(config, examine, monkeypatch):
    slow = kernels.Kernel("express sends", None, "_express_send.so is of version 4, not 5")
    monkeypatch.setattr(kernels, "KERNELS", (kernels.BULK._replace(module=kernels), slow))
    findings = examine("-c", config())
    assert only(findings, "compiled", "OK") == ["bulk kernel: compiled"]
    assert bad(findings, "compiled") == ["express sends: pure Python, slower: _express_send.so is of version 4, not 5"]


def test_permissions(config, tmp_path, monkeypatch):
    (tmp_path / "store" / "config").mkdir(parents=True)
    (tmp_path / "store" / "config" / "topics.json").write_text("{}")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "topics.json" not in str(path) and real(path, mode))
    report = Report()
    host_checks.check_host(check_config_file(str(config()), report), report)
    (found,) = [each for each in report.findings if "may not read and write" in each.what]
    assert found.where.endswith("topics.json") and found.severity is Severity.ERROR


Mount = namedtuple("Mount", "mountpoint fstype opts")


@pytest.mark.parametrize(("mount", "severity", "text"), [
    (Mount("/", "tmpfs", "rw"), "WARNING", "tmpfs: all is gone after a restart"),
    (Mount("/", "nfs4", "rw"), "WARNING", "over the network"),
    (Mount("/", "ext4", "ro,relatime"), "ERROR", "mounted read-only"),
    (Mount("/", "xfs", "rw"), "OK", "the file system is xfs"),
])
def test_file_systems(config, examine, monkeypatch, mount, severity, text):
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: [mount])
    assert any(text in what for what in only(examine("-c", config()), "disk", severity))


@pytest.mark.parametrize(("used", "severity"), [(0.2, "OK"), (0.80, "WARNING"), (0.88, "WARNING"), (0.95, "ERROR")])
def test_full_disks(used, severity):
    report = Report()
    judge_used("here", used, 75, report)
    assert [each.severity.value for each in report.findings] == [severity]


def test_little_space(config, examine):
    findings = examine("-c", config(mappedFileSizeCommitLog=2**31 - 1, storePathRootDir="/proc"))
    assert any("less than two commit log files" in what for what in bad(findings, "disk"))


def test_text_says_severity_place_and_what_to_do(config, run):
    result = run("doctor", "-c", config(brokerRole="SLAVE"))
    assert result.exit_code == 1
    assert "ERROR   roles      " in result.stdout and "broker.conf:2: brokerRole=SLAVE with brokerId=0" in result.stdout
    assert "                   -> give each slave of a master its own brokerId above 0" in result.stdout
    assert "OK" not in result.stdout.split("\n")[0] and "-v shows those" in result.stdout


def test_nothing_to_look_at_is_said(run):
    result = run("doctor")
    assert result.exit_code == 2 and "give a config file with -c" in result.output


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=120))
def test_any_bytes_are_a_config_file_or_an_error(tmp_path, data):
    file = tmp_path / "any.conf"
    file.write_bytes(data)
    report = Report()
    if check_config_file(str(file), report) is None:
        assert report.count(Severity.ERROR) == 1


@pytest.mark.parametrize("files, severity", [(0, Severity.OK), (8000, Severity.OK), (8001, Severity.WARNING),
                                             (40_000, Severity.WARNING)])
def test_as_many_files_of_queues_as_may_be_mapped(files, severity):
    report = Report()
    judge_limits("here", files, 10_000, report)
    assert [finding.severity for finding in report.findings] == [severity]
    assert f"{files:,} files" in report.findings[0].what


def test_files_of_queues_are_counted(tmp_path, monkeypatch):
    for number in range(9):
        folder = tmp_path / "store" / "consumequeue" / "T" / str(number)
        folder.mkdir(parents=True)
        (folder / f"{0:020d}").touch()
    monkeypatch.setattr(host_checks, "max_mapped_files", lambda _descriptors: 10)
    report = Report()
    host_checks._check_limits(str(tmp_path / "store" / "consumequeue"), report)
    assert [(each.severity, each.check) for each in report.findings] == [(Severity.WARNING, "limits")]
    assert "9 files" in report.findings[0].what
