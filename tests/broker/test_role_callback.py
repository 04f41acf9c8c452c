"""The operator's command for role changes: when it is run, what it is told, and what happens when it hangs or fails."""
import logging
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqha.broker.controller import role_callback
from rmqha.broker.controller.controller_heartbeat import MasterLease
from rmqha.broker.controller.replicas_manager import Mastership, ReplicasManager
from rmqha.broker.controller.role_callback import RoleCallback
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import ConfigError, load_config_file, refused_keys
from rmqha.common.protocol.controller_headers import BrokerHeartbeatResponseHeader
from rmqha.tools.config.config_command import check
from tests.broker.support import HERE, ME, OTHER, THERE, registered_manager
from tests.support.processes import has_ended
from tests.support.wait import lasting, stays, wait_until

LONG_MS = 600_000  # longer than a test takes
HA_HERE, HA_THERE = "127.0.0.1:10912", "127.0.0.1:20912"
# Logs what it was told, then waits while the file `hold` exists. Two runs at once are logged too.
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")" || exit 9
mkdir running || echo overlap >> told
env | grep -E '^RMQHA_(ROLE|EPOCH|BROKER|CLUSTER|MASTER|ADDRESS|HA_ADDRESS)' > environment
echo "$*" >> told
while [ -e hold ]; do sleep 0.01; done
rmdir running
"""


class Command:
    """The command of a test, in its own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.script = folder / "on-role-change.sh"
        self.written(SCRIPT)

    def written(self, text: str) -> None:
        self.script.write_text(text)
        self.script.chmod(0o755)

    @property
    def line(self) -> str:
        return f"'{self.script}' 'two words'"

    def told(self) -> list[str]:
        """Return the role and the epoch of each run, in order."""
        file = self.folder / "told"
        lines = file.read_text().splitlines() if file.exists() else []
        return [line.replace("two words ", "").replace("b ", "") for line in lines]

    def environment(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / "environment").read_text().splitlines())

    def wait_told(self, *runs: str) -> None:
        """Wait until the command was told exactly this."""
        wait_until(lambda: self.told() == list(runs), 60_000, f"{runs}, not {self.told()}")

    def hold(self) -> None:
        """Let the next runs wait."""
        wait_until(lambda: not (self.folder / "running").exists())
        (self.folder / "hold").touch()

    def release(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)


@pytest.fixture
def command(tmp_path):
    # The name has a blank, which the command line has to quote.
    made = Command(tmp_path / "a folder")
    yield made
    made.release()


@pytest.fixture
def make():
    """Make a started callback with its own lease."""
    made: list[RoleCallback] = []

    def callback(line: str, **config: object) -> tuple[RoleCallback, MasterLease]:
        lease = MasterLease()
        keys = {"onRoleChangeTimeoutMills": 60_000, **config}
        here = SimpleNamespace(broker_addr=HERE, ha_server_addr=HA_HERE)
        made.append(RoleCallback(BrokerConfig(brokerName="b", brokerClusterName="c", onRoleChange=line, **keys), here,
                                 lease, lambda: ME))
        made[-1].start()
        return made[-1], lease
    yield callback
    for one in made:
        one.shutdown()


@pytest.fixture
def lines(caplog):
    """Return a function that returns the broker's log lines of a level or higher."""
    caplog.set_level(logging.INFO, "RocketmqBroker")
    return lambda level=logging.INFO: [record.getMessage() for record in caplog.records if record.levelno >= level]


def grant(lease: MasterLease, ms: float) -> None:
    """Grant a lease of `ms` from now on."""
    lease.granted(time.monotonic_ns(), round(ms / 0.9))


def test_command_is_told_roles_and_addresses(command, make, lines):
    callback, lease = make(command.line)
    command.wait_told("none 0")
    grant(lease, LONG_MS)
    callback.becomes_master(3)
    assert command.told() == ["none 0", "master 3"]
    assert command.environment() == {
        "RMQHA_ROLE": "master", "RMQHA_EPOCH": "3", "RMQHA_BROKER_NAME": "b", "RMQHA_BROKER_ID": "1",
        "RMQHA_CLUSTER_NAME": "c", "RMQHA_ADDRESS": HERE, "RMQHA_HA_ADDRESS": HA_HERE, "RMQHA_MASTER_ADDRESS": HERE,
        "RMQHA_MASTER_HA_ADDRESS": HA_HERE}
    callback.becomes_slave(4, THERE, HA_THERE)
    command.wait_told("none 0", "master 3", "slave 4")
    wait_until(lambda: any("onRoleChange slave b 4 ended with exit code 0" in line for line in lines()))
    environment = command.environment()
    assert (environment["RMQHA_ROLE"], environment["RMQHA_EPOCH"]) == ("slave", "4")
    assert (environment["RMQHA_MASTER_ADDRESS"], environment["RMQHA_MASTER_HA_ADDRESS"]) == (THERE, HA_THERE)
    assert environment["RMQHA_ADDRESS"] == HERE and not lines(logging.WARNING)
    callback.becomes_slave(5, THERE, None)
    command.wait_told("none 0", "master 3", "slave 4", "slave 5")
    callback.shutdown()
    assert command.told()[4:] == ["none 5"]
    callback.shutdown()
    assert len(command.told()) == 5


def test_end_of_the_lease_is_told_and_its_renewal(command, make):
    callback, lease = make(command.line)
    grant(lease, LONG_MS)
    callback.becomes_master(1)
    wait_until(lambda: command.told()[-1:] == ["master 1"])
    told = len(command.told())
    lease.role_changes()
    with lasting(0.25):
        grant(lease, 300)
        callback.wakeup()
        wait_until(lambda: len(command.told()) > told)
    assert command.told()[told:] == ["none 1"]
    grant(lease, LONG_MS)
    callback.wakeup()
    wait_until(lambda: command.told()[told:] == ["none 1", "master 1"])
    callback.becomes_slave(2, THERE, None)
    wait_until(lambda: command.told()[told:] == ["none 1", "master 1", "slave 2"])
    callback.shutdown()
    assert command.told()[-1] == "none 2"


def test_renewed_lease_changes_nothing(command, make, monkeypatch):
    monkeypatch.setattr(role_callback, "_RENEWAL_MS", LONG_MS)
    callback, lease = make(command.line)
    command.wait_told("none 0")
    grant(lease, LONG_MS)
    callback.becomes_master(1)
    wait_until(lambda: callback._had_lease, what="the lease is seen")
    for _ in range(3):
        # A connection to a controller has ended.
        lease.renounced()
        callback.wakeup()
        grant(lease, LONG_MS)
        callback.wakeup()
    stays(lambda: command.told() == ["none 0", "master 1"], 300)


def test_lease_that_was_given_up_is_told_before_its_time(command, make):
    callback, lease = make(command.line)
    command.wait_told("none 0")
    grant(lease, LONG_MS)
    callback.becomes_master(1)
    wait_until(lambda: callback._had_lease, what="the lease is seen")
    lease.renounced()
    callback.wakeup()
    command.wait_told("none 0", "master 1", "none 1")


def test_master_without_a_first_lease_is_told_after_the_time_in_which_it_may_be_replaced(command, make):
    callback, _lease = make(command.line, controllerHeartBeatTimeoutMills=200)
    command.wait_told("none 0")
    callback.becomes_master(1)
    command.wait_told("none 0", "master 1", "none 1")


def test_master_without_leases_stays_the_master(command, make):
    callback, _lease = make(command.line, controllerLease=False, controllerHeartBeatTimeoutMills=1)
    command.wait_told("none 0")
    callback.becomes_master(1)
    stays(lambda: callback.wakeup() or command.told() == ["none 0", "master 1"], 200)


def test_changes_during_a_run_are_merged_and_the_last_one_wins(command, make):
    command.hold()
    callback, lease = make(command.line)
    grant(lease, LONG_MS)
    command.wait_told("none 0")
    callback.becomes_slave(1, THERE, None)
    threads = [threading.Thread(target=callback.becomes_master, args=(2,))]
    threads[0].start()
    wait_until(lambda: callback._place.epoch == 2)
    callback.becomes_slave(3, THERE, None)
    callback.becomes_slave(4, THERE, None)
    command.release()
    command.wait_told("none 0", "slave 4")
    callback.shutdown()
    threads[0].join(60)
    assert not threads[0].is_alive() and command.told() == ["none 0", "slave 4", "none 4"]


def test_repeated_election_of_the_master_does_not_wait(command, make):
    callback, lease = make(command.line)
    grant(lease, LONG_MS)
    callback.becomes_master(1)
    command.hold()
    callback.becomes_master(2)
    wait_until(lambda: command.told()[-1] == "master 2")
    command.release()


def test_command_that_hangs_is_killed_with_its_children(command, make, lines):
    command.written('#!/bin/sh\nsleep 600 &\necho $! >> "$(dirname "$0")/told"\nwait\n')
    callback, _lease = make(command.line, onRoleChangeTimeoutMills=300)
    with lasting(0.25):
        callback.becomes_master(1)
    wait_until(lambda: len(command.told()) >= 2)
    wait_until(lambda: has_ended(int(command.told()[0])))
    wait_until(lambda: any("onRoleChange none b 0 was killed after" in line for line in lines(logging.WARNING)))
    callback.shutdown()
    wait_until(lambda: all(has_ended(int(pid)) for pid in command.told()))
    assert [line.split(" was ")[0] for line in lines(logging.WARNING) if "was killed" in line][-2:] == [
        "onRoleChange master b 1", "onRoleChange none b 1"]


def test_process_in_the_background_is_not_waited_for(command, make, lines):
    command.written('#!/bin/sh\nsleep 600 &\necho $! >> "$(dirname "$0")/told"\necho started\n')
    callback, _lease = make(command.line)
    callback.becomes_master(1)
    callback.shutdown()
    assert lines().count("onRoleChange master b 1: started") == 1 and not lines(logging.WARNING)
    for pid in command.told():
        assert not has_ended(int(pid))
        os.kill(int(pid), 9)


@pytest.mark.parametrize(("text", "line"), [
    ("#!/bin/sh\necho no right >&2\nexit 3\n", "onRoleChange master b 1 failed with exit code 3 after "),
    ("#!/bin/sh\nkill -9 $$\n", "onRoleChange master b 1 failed with exit code -9 after "),
    ("#!/no/such/interpreter\n", "onRoleChange master b 1 cannot be run: [Errno 2] No such file or directory")])
def test_failure_is_logged_and_changes_nothing(command, make, lines, text, line):
    command.written(text)
    callback, _lease = make(command.line)
    callback.becomes_master(1)
    wait_until(lambda: any(each.startswith(line) for each in lines(logging.WARNING)))
    assert ("onRoleChange master b 1: no right" in lines()) is ("no right" in text)
    callback.becomes_slave(2, THERE, None)
    wait_until(lambda: any("slave b 2" in each for each in lines(logging.WARNING)))


def test_logged_output_is_limited_and_has_no_control_characters(command, make, lines):
    command.written("#!/bin/sh\nprintf 'a\\033[31m\\rb\\n'\nyes line | head -c 1000000\n")
    callback, _lease = make(command.line)
    callback.becomes_master(1)
    callback.shutdown()
    output = [line for line in lines() if line.startswith("onRoleChange master b 1: ")]
    assert output[0] == "onRoleChange master b 1: a [31m" and output[1] == "onRoleChange master b 1: b"
    assert 700 < len(output) < 900 and not lines(logging.WARNING)


def test_without_a_command_there_is_no_thread(make):
    callback, _lease = make("")
    callback.becomes_master(1)
    callback.becomes_slave(2, THERE, None)
    assert not callback.is_alive()
    callback.shutdown()


# The command and the role changes of a broker.


@pytest.fixture
def manager(command):
    made = registered_manager(onRoleChange=command.line, onRoleChangeTimeoutMills=60_000)
    made._callback.start()
    yield made
    command.release()
    made.shutdown()


def beat(manager: ReplicasManager, epoch: int, lease_ms: int) -> None:
    manager.told_by_leader("leader", BrokerHeartbeatResponseHeader(ME, epoch, lease_ms), time.monotonic_ns())


def test_new_master_leads_only_when_the_command_has_ended(command, manager):
    command.wait_told("none 0")
    command.hold()
    change = threading.Thread(target=manager.change_broker_role, args=(ME, HERE, 1, [ME], 1, None))
    change.start()
    command.wait_told("none 0", "master 1")
    # Heartbeats and questions about the role do not wait for it; no lease is taken.
    assert manager.heartbeat().epoch == 0
    beat(manager, 1, LONG_MS)
    assert not manager.role.leads and not manager.lease.holds() and not manager.may_register()
    assert manager.ha_service.told == [("master", 1, {ME}, 1)], "the store has switched"
    command.release()
    change.join(60)
    assert manager.role == Mastership(1, ME, True) and manager.may_register()
    beat(manager, 1, LONG_MS)
    assert manager.lease.holds()


def test_broker_that_is_stopped_meanwhile_does_not_lead(command, manager):
    command.wait_told("none 0")
    command.hold()
    change = threading.Thread(target=manager.change_broker_role, args=(ME, HERE, 1, [ME], 1, None))
    change.start()
    command.wait_told("none 0", "master 1")
    threading.Thread(target=manager.shutdown).start()
    change.join(60)
    assert not manager.role.leads
    command.release()
    command.wait_told("none 0", "master 1", "none 1")


def test_manager_tells_slaves_ends_of_leases_and_its_end(command, manager):
    manager.change_broker_role(OTHER, THERE, 1, [OTHER], 1, HA_THERE)
    wait_until(lambda: command.told()[-1:] == ["slave 1"])
    assert command.environment()["RMQHA_MASTER_HA_ADDRESS"] == HA_THERE
    manager.change_broker_role(ME, HERE, 2, [ME], 2, None)
    assert command.told()[-1] == "master 2"
    beat(manager, 2, 300)
    wait_until(lambda: command.told()[-1] == "none 2")
    beat(manager, 2, LONG_MS)
    wait_until(lambda: command.told()[-1] == "master 2")
    manager.lease.renounced()
    manager._connection_ended()
    wait_until(lambda: command.told()[-1] == "none 2")
    beat(manager, 2, LONG_MS)
    wait_until(lambda: command.told()[-1] == "master 2")
    manager.shutdown()
    assert command.told()[-1] == "none 2" and "overlap" not in command.told()


def test_key_is_checked_and_cannot_be_changed_from_outside(tmp_path):
    assert refused_keys(["onRoleChange", "onRoleChangeTimeoutMills"]) == ["onRoleChange"]
    file = tmp_path / "broker.conf"
    file.write_text("onRoleChange=/etc/rmqha/vip.sh 'eth0\n")
    with pytest.raises(ConfigError, match="onRoleChange: expected a command line with matching quotes"):
        load_config_file(str(file), [BrokerConfig()])
    file.write_text("onRoleChange=/etc/rmqha/vip.sh eth0\n")
    [finding] = check(str(file), "broker")
    assert (finding.line, finding.severity) == (1, "error") and "needs enableControllerMode=true" in finding.text
    file.write_text("onRoleChange=/etc/rmqha/vip.sh eth0\nenableControllerMode=true\ncontrollerAddr=10.0.0.1:9878\n")
    assert check(str(file), "broker") == []
