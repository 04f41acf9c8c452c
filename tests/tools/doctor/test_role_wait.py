"""A broker that waits for a role: its start, `config check`, `doctor`, `check ha` and `ha status` say so."""
import json

import pytest

from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.nodes import BrokerNode

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
    """A master with enableAutoSwitchHA whose store was in use."""
    node = broker(enableAutoSwitchHA="true").start()
    assert "waits for a role" not in node.output()  # it is the master of the first epoch
    node.stop()
    return node.start()


def last_start(node):
    """What it has printed since its last start."""
    return node.output().split("boot success")[-2]


def findings(run, *arguments):
    return [(each["severity"], each["where"], each["what"], each["todo"])
            for each in json.loads(run("doctor", "-o", "json", *arguments).stdout)["findings"]
            if "waits for a role" in each["what"] or "without a role" in each["what"]]


def test_a_store_that_was_in_use_waits_and_everybody_says_so(run, broker, namesrv):
    node = used_with_roles_that_change(broker)
    warning = next(line for line in last_start(node).splitlines() if "waits for a role" in line)
    assert warning.startswith("warning: this broker waits for a role, and takes no messages until then: "
                              "enableAutoSwitchHA=true")
    assert f"rmqha ha promote -b {node.address}" in warning and "it is a ASYNC_MASTER" in warning
    checked = run("config", "check", node.config_file)
    assert checked.exit_code == 0 and "warning: enableAutoSwitchHA: true, and the store at" in checked.stdout
    assert run("config", "check", "--strict", node.config_file).exit_code == 1
    (severity, where, _what, todo), = [each for each in findings(run, "-n", namesrv) if each[0] == "ERROR"
                                       and "follows no master" in each[2]]
    assert node.address in where and f"rmqha ha promote -b {node.address}" in todo and severity == "ERROR"
    assert f"{node.address} waits for a role" in run("check", "ha", "-n", namesrv).stdout
    assert run("check", "ha", "-n", namesrv).exit_code == 2
    assert "waits for a role" in run("ha", "status", "-n", namesrv).stdout
    from_file = findings(run, "-c", node.config_file)
    assert from_file[0][0] == "WARNING" and str(node.config_file) in from_file[0][1]
    assert run("ha", "promote", "-b", node.address, "-n", namesrv).exit_code == 0
    assert not [each for each in findings(run, "-n", namesrv) if "follows no master" in each[2]]


def test_without_the_key_it_is_the_master_at_once(run, broker, namesrv):
    node = used_with_roles_that_change(broker)
    node.stop()
    lines = node.config_file.read_text().splitlines(keepends=True)
    node.config_file.write_text("".join(line for line in lines if not line.startswith("enableAutoSwitchHA")))
    node.start()
    assert "waits for a role" not in last_start(node)
    assert "waits" not in run("config", "check", node.config_file).stdout
    assert run("check", "ha", "-n", namesrv, "--min-slaves", "0").exit_code == 0


def test_a_broker_whose_controllers_do_not_answer_waits(run, broker, namesrv):
    controller = f"127.0.0.1:{ports.free_port()}"
    node = broker(enableControllerMode="true", controllerAddr=controller).start()
    assert (f"warning: this broker waits for a role, and takes no messages until then: the controllers at {controller} "
            "have not given it one yet") in node.output()
    (_severity, where, what, todo), = [each for each in findings(run, "-b", node.address)
                                       if "follows no master" in each[2]]
    assert node.address in where and "takes no messages" in what and controller in todo
    (severity, where, what, _todo), = findings(run, "-c", node.config_file, "--timeout", "1")
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
        assert ("at each start but its first" in found[0]["text"]) is not was_used
