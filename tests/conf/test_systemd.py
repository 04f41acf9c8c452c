"""The units of conf/systemd: what they start is there, and systemd takes them."""
import configparser
import re
import shutil
import subprocess

import pytest

from rmqha.common import logs, mix_all, process, server_util
from tests.support.sources import ROOT

UNITS = ROOT / "conf" / "systemd"
NAMES = ("rmqha-namesrv.service", "rmqha-controller.service", "rmqha-broker@.service")
HARDENING = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables",
             "ProtectKernelModules", "ProtectControlGroups", "RestrictNamespaces", "RestrictSUIDSGID",
             "LockPersonality", "MemoryDenyWriteExecute")


def unit(name):
    """section -> key -> value; a key that is there twice in a section is an error."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    parser.optionxform = str
    parser.read_string((UNITS / name).read_text("ascii"))
    return parser


def test_there_are_these_units():
    assert sorted(path.name for path in UNITS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_unit_starts_a_program_that_is_installed_with_a_config_file(name):
    service = unit(name)["Service"]
    program, option, file = service["ExecStart"].split()
    entries = (ROOT / "setup.cfg").read_text("utf-8")
    assert re.search(rf"^    {program.rpartition('/')[2]} = rmqha\.", entries, re.MULTILINE)
    assert option == "-c" and file == "/etc/rmqha/" + (
        "%i.properties" if "@" in name else name.removeprefix("rmqha-").replace(".service", ".properties"))
    kept = dict(item.split("=") for item in service["Environment"].split())
    assert kept[mix_all.ROCKETMQ_HOME_ENV] == "/etc/rmqha"
    assert kept[logs.LOG_DIR_ENV] == "/var/log/" + service["LogsDirectory"]
    assert kept["HOME"] == service["WorkingDirectory"] and service["WorkingDirectory"].startswith("/var/lib/rmqha")


@pytest.mark.parametrize("name", NAMES)
def test_unit_waits_for_what_the_server_tells(name):
    service = unit(name)["Service"]
    assert service["Type"] == "notify" and process.SOCKET_ENV == "NOTIFY_SOCKET"
    # its look at its threads must have time: a quarter of this
    assert int(service["WatchdogSec"]) >= 60
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(server_util.EXIT_BAD_CONFIG)
    assert int(service["TimeoutStopSec"]) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_unit_takes_rights_away_but_not_those_that_are_needed(name):
    service = unit(name)["Service"]
    assert service["User"] == service["Group"] == "rmqha" and service["ProtectSystem"] == "strict"
    assert {service[key] for key in HARDENING} == {"yes"} and service["CapabilityBoundingSet"] == ""
    assert int(service["LimitNOFILE"]) >= 100_000
    assert set(service["RestrictAddressFamilies"].split()) == {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}
    assert ("LimitMEMLOCK" in service) == ("broker" in name)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (package systemd) is not here")
def test_systemd_takes_the_units(tmp_path):
    for name in NAMES:
        text = (UNITS / name).read_text("ascii").replace("/opt/rmqha/bin/", f"{tmp_path}/")
        (tmp_path / name.replace("@", "@broker-a")).write_text(text)
    for program in ("mqnamesrv", "mqcontroller", "mqbroker"):
        shutil.copy("/bin/true", tmp_path / program)
    files = [str(tmp_path / name.replace("@", "@broker-a")) for name in NAMES]
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True,
                            timeout=600)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    broken = tmp_path / "rmqha-namesrv.service"
    broken.write_text(broken.read_text().replace("WatchdogSec=60", "WatchdogSec=soon"))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(broken)], capture_output=True, text=True,
                            timeout=600)
    assert "Failed to parse sec value" in result.stderr  # it does look
