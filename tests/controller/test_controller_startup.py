"""mqcontroller as a process, and a controller in a name server."""
import os
import signal
import subprocess

import pytest

from tests.support.nodes import NamesrvNode
from tests.support.ports import free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.sources import ROOT

LAUNCHER = str(ROOT / "bin" / "mqcontroller")
METADATA, BROKER_CLUSTER_INFO = 1005, 106


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        env = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run([LAUNCHER, *arguments], env=env, capture_output=True, text=True, timeout=600)
    return call


@pytest.fixture
def conf(tmp_path):
    def write(**keys):
        path = tmp_path / "controller.conf"
        keys = {"controllerDLegerGroup": "group1", "controllerDLegerPeers": f"n0-127.0.0.1:{free_port()}",
                "controllerDLegerSelfId": "n0", "controllerStorePath": tmp_path / "store", **keys}
        path.write_text("".join(f"{key} = {value}\n" for key, value in keys.items()))
        return str(path)
    return write


def test_all_config_items_are_printed(run, conf):
    result = run("-c", conf(scanNotActiveBrokerInterval=77), "-p")
    assert result.returncode == 0
    assert " INFO main - scanNotActiveBrokerInterval=77\n" in result.stdout


@pytest.mark.parametrize(("keys", "problem"), [
    ({"controllerDLegerPeers": "n0"}, ":2: controllerDLegerPeers: 'n0' is no id-host:port"),
    ({"controllerDLegerSelfId": "n7"}, ":3: controllerDLegerSelfId: 'n7' is none of controllerDLegerPeers: n0"),
    ({"scanNotActiveBrokerInterval": "x"}, "scanNotActiveBrokerInterval: expected a whole number"),
])
def test_bad_config_file_exits_with_2_and_says_where(run, conf, keys, problem):
    result = run("-c", conf(**keys))
    assert result.returncode == 2 and problem in result.stderr


def test_damaged_store_exits_with_2_and_says_what_may_be_done(run, conf, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "replicaSets.json").write_text("{")
    result = run("-c", conf())
    assert result.returncode == 2 and "replicaSets.json can't be used" in result.stderr


def test_controller_boots_logs_and_ends_on_sigterm(conf, tmp_path):
    port = free_port()
    server = ServerProcess("controller", [LAUNCHER, "-c", conf(controllerDLegerPeers=f"n0-127.0.0.1:{port}",
                                                               elephant=1)], tmp_path,
                           "The Controller Server boot success. serializeType=JSON", {"HOME": str(tmp_path)})
    try:
        server.start()
        with RawClient(f"127.0.0.1:{port}", 5) as client:
            assert client.request(METADATA).fields["isLeader"] == "true"
        assert "unknown key elephant" in server.output() and f"port {port} is open on all addresses" in server.output()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(240) == 0
        log = (tmp_path / "logs" / "rocketmqlogs" / "controller.log").read_text()
        assert "controllerDLegerGroup=group1" in log and "shutdown hook done" in log
    finally:
        server.kill()


def test_name_server_has_a_controller(tmp_path):
    port = free_port()
    node = NamesrvNode("rmqha", tmp_path)
    with open(node.config_file, "a", encoding="utf-8") as file:
        file.write(f"enableControllerInNamesrv=true\ncontrollerDLegerGroup=group1\ncontrollerDLegerSelfId=n0\n"
                   f"controllerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerStorePath={tmp_path}/store\n")
    node.ready = "The ControllerManager boot success. serializeType=JSON"
    try:
        node.start()
        with RawClient(f"127.0.0.1:{port}", 5) as client:
            assert client.request(METADATA).fields["controllerLeaderId"] == "n0"
        with RawClient(node.address, 5) as client:
            assert client.request(BROKER_CLUSTER_INFO).code == 0
        assert "unknown key" not in node.output()
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(240) == 0
    finally:
        node.kill()
