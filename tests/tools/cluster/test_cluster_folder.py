"""Folders, their cluster.json and config files, and the lock."""
import json
import os
import socket
import subprocess

import pytest
from click.testing import CliRunner

from rmqha.broker.broker_startup import create_broker_controller, parse_command_line
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_file import load_config_file, read_config_file
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.controller_config_checks import peers_of
from rmqha.remoting.client_config import ClientConfig
from rmqha.remoting.server_config import ServerConfig
from rmqha.store.config.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.tools.cluster import cluster_folder, layout
from rmqha.tools.cluster.bring_up import BringUp
from rmqha.tools.cluster.layout import Shape
from rmqha.tools.cluster.node import PORTS_PER_BROKER, ClusterError
from rmqha.tools.config.check import check
from rmqha.tools.rmqha_command import rmqha


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    """Named clusters lie in here."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RMQHA_DIR", raising=False)
    return tmp_path / "data" / "rmqha"


def made(folder, shape=None, port=21_000):
    folder.mkdir(parents=True, exist_ok=True)
    found = layout.make(folder, shape or Shape(), port)
    layout.write(folder, found)
    layout.complete_configs(folder, found)
    return found


def fails(*arguments):
    result = CliRunner().invoke(rmqha, [str(argument) for argument in arguments])
    assert result.exit_code == 1 and result.output.startswith("Error: "), result.output
    return result.output


def test_folder_is_chosen_by_dir_then_name_then_environment(tmp_path, data_home, monkeypatch):
    assert cluster_folder.chosen(None, None) == data_home / "default"
    monkeypatch.setenv("RMQHA_DIR", str(tmp_path / "env"))
    assert cluster_folder.chosen(None, None) == tmp_path / "env"
    assert cluster_folder.chosen(None, "two") == data_home / "two"
    assert cluster_folder.chosen(str(tmp_path / "x"), None) == tmp_path / "x"
    monkeypatch.setenv("XDG_DATA_HOME", "relative: to be passed over")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster_folder.chosen(None, "two") == tmp_path / ".local" / "share" / "rmqha" / "two"


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "-x", "a b"])
def test_name_that_is_none_is_refused(name):
    with pytest.raises(ClusterError, match="letters, digits"):
        cluster_folder.chosen(None, name)


def test_dir_and_name_together_are_a_wrong_usage(tmp_path):
    for command in ("up", "down", "ps", "logs"):
        result = CliRunner().invoke(rmqha, [command, "--dir", str(tmp_path), "--name", "x"])
        assert result.exit_code == 2 and "give either --dir or --name" in result.output


@pytest.mark.parametrize("shape", [
    Shape(), Shape(1, 0, False, "normal"), Shape(3, 2, True), Shape(2, 1, metrics=True)], ids=str)
def test_each_server_has_its_ports_and_a_config_that_a_broker_takes(tmp_path, shape):
    found = made(tmp_path, shape)
    assert layout.read(tmp_path) == found and found.shape == shape
    ports = [port for node in found.nodes for port in node.ports]
    assert len(set(ports)) == len(ports) and {port - 21_000 for port in ports} <= set(range(shape.port_count))
    ids = {}
    for node in found.nodes[1:]:
        configs = BrokerConfig(), ServerConfig(), ClientConfig(), MessageStoreConfig()
        unknown = []
        load_config_file(str(node.config_file), configs, warn=unknown.append)
        broker, server, _client, store = configs
        assert broker.metricsPort == node.metrics_port and bool(node.metrics_port) == shape.metrics
        assert unknown == [] and server.listenPort == node.port and store.storePathRootDir == str(node.store)
        ids.setdefault(broker.brokerName, []).append((broker.brokerId, store.brokerRole))
        assert store.preallocateMappedFile == (shape.memory == "normal")
        assert (store.mappedFileSizeCommitLog == 1 << 30) == (shape.memory == "normal")
    master = BrokerRole.SYNC_MASTER if shape.sync else BrokerRole.ASYNC_MASTER
    assert list(ids.values()) == [
        [(0, master), *((number, BrokerRole.SLAVE) for number in range(1, shape.slaves + 1))]] * shape.masters
    assert create_broker_controller(parse_command_line(["-c", str(found.nodes[1].config_file), "-p"])) is None


@pytest.mark.parametrize("shape, wanted", [
    (Shape(2, 1, auto_failover=True), ("true", "1")), (Shape(1, 2, metrics=True, auto_failover=True), ("true", "2")),
    (Shape(1, 2, False, auto_failover=True), ("false", "1"))], ids=str)
def test_a_controller_decides_the_roles_of_a_cluster_with_automatic_failover(tmp_path, shape, wanted):
    found = made(tmp_path, shape)
    assert layout.read(tmp_path) == found and found.shape == shape and "with automatic failover" in str(shape)
    ports = [port for node in found.nodes for port in node.ports]
    assert len(set(ports)) == len(ports) and {port - 21_000 for port in ports} <= set(range(shape.port_count))
    controller, = found.controllers
    config = ControllerConfig()
    load_config_file(str(controller.config_file), (config,))
    assert peers_of(config) == {config.controllerDLegerSelfId: controller.address}
    assert config.controllerStorePath == str(controller.store) and config.metricsPort == controller.metrics_port
    assert check(str(controller.config_file), "controller") == []
    assert len(found.replicas) == shape.masters * (1 + shape.slaves) and found.masters == found.slaves == []
    for node in found.replicas:
        properties = read_config_file(str(node.config_file))
        assert (properties["allAckInSyncStateSet"], properties["minInSyncReplicas"]) == wanted
        assert properties["controllerAddr"] == controller.address and properties["listenPort"] == str(node.port)
    assert [len(group) for group in found.start_groups] == [1, 1, shape.masters, shape.masters * shape.slaves]
    found.replicas[0].store.mkdir(parents=True)
    assert found.start_groups == [[found.namesrv], found.controllers, found.replicas]
    assert found.stop_groups == [found.controllers, found.replicas, [found.namesrv]]


def test_what_a_controllers_config_file_says_is_newer(tmp_path):
    controller, = made(tmp_path, Shape(1, 1, auto_failover=True)).controllers
    properties = dict(read_config_file(str(controller.config_file)))
    layout.write_config(controller, properties | {"controllerDLegerPeers": "n1-127.0.0.1:7;n0-127.0.0.1:22333"})
    again = layout.read(tmp_path)
    assert again is not None and again.controllers[0].port == 22_333


def test_a_cluster_without_a_controller_gets_none_later(tmp_path):
    made(tmp_path)
    assert "--auto-failover can't change" in fails("up", "--dir", tmp_path, "--auto-failover")


def test_what_a_config_file_says_is_newer_and_a_missing_one_is_written_again(tmp_path):
    found = made(tmp_path)
    slave = found.slaves[0]
    properties = dict(read_config_file(str(slave.config_file)))
    layout.write_config(slave, properties | {"brokerRole": "ASYNC_MASTER", "brokerId": 0, "listenPort": 22_222})
    found.masters[0].config_file.unlink()
    again = layout.read(tmp_path)
    layout.complete_configs(tmp_path, again)
    assert [(node.role, node.port) for node in again.nodes if node.name == slave.name] == [("ASYNC_MASTER", 22_222)]
    assert read_config_file(str(slave.config_file))["listenPort"] == "22222"
    assert read_config_file(str(found.masters[0].config_file))["brokerRole"] == "SYNC_MASTER"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rmqhaCluster": 1, "memory": "small", "nodes": [{"name": "../x"}]}',
                                  '{"rmqhaCluster": 1, "memory": "small"}', '"cluster"'])
def test_damaged_description_is_an_error_and_nothing_is_deleted(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    for arguments in (["up"], ["ps"], ["down", "--purge"]):
        assert "cluster.json is none of `rmqha up`'s, or was damaged" in fails(*arguments, "--dir", tmp_path)
    assert (tmp_path / "cluster.json").read_text() == text


def test_description_of_a_later_rmqha_is_an_error(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps({"rmqhaCluster": 2}))
    assert "has format 2, this rmqha knows 1" in fails("up", "--dir", tmp_path)


def test_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    assert "holds other things" in fails("up", "--dir", tmp_path)
    assert "no cluster in" in fails("down", "--purge", "--dir", tmp_path)
    assert "is no folder" in fails("up", "--dir", tmp_path / "thesis.txt")
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_options_that_a_cluster_can_not_be_changed_by_are_named(tmp_path):
    made(tmp_path)
    said = fails("up", "--dir", tmp_path, "--masters", 3, "--slaves", 1, "--async", "--port", 25_000)
    assert "a cluster of 2 sync masters with 1 slave each, small" in said
    assert "--masters 3 --async --port 25000 can't change" in said


def test_taken_port_is_told_with_who_has_it_and_no_cluster_is_made(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = fails("up", "--dir", tmp_path, "--port", port)
        assert f"namesrv can't start: port {port} is taken by pid {os.getpid()}" in said
        made(tmp_path / "old", port=port)
        assert f"port {port} is taken by pid {os.getpid()}" in fails("up", "--dir", tmp_path / "old")
    assert set(os.listdir(tmp_path)) == {".lock", "old"}
    assert "end beyond 65535" in fails("up", "--dir", tmp_path / "new", "--port", 65_530)


def test_ports_of_named_clusters_that_are_down_are_not_given_again(data_home, monkeypatch):
    made(data_home / "one", Shape(1, 0))
    (data_home / "damaged").mkdir()
    (data_home / "damaged" / "cluster.json").write_text("{}")
    firsts = iter([21_000 - PORTS_PER_BROKER, 21_004, 24_000])
    monkeypatch.setattr("rmqha.tools.cluster.ports.random.randrange", lambda low, high: next(firsts))
    two = data_home / "two"
    two.mkdir()
    assert cluster_folder.make_or_load(two, {"masters": 1, "slaves": 0}, None).namesrv.port == 24_000
    assert "; --name takes one that is there: damaged, one, two" in fails("ps")


def test_environment_is_printed_for_a_shell_whatever_the_folder_is_called(tmp_path, monkeypatch):
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    folder = tmp_path / "it's $HOME; here"
    found = made(folder)
    printed = CliRunner().invoke(rmqha, ["up", "--print-env", "--dir", str(folder)]).output
    script = 'set -a; eval "$1"; sh -c \'echo "$NAMESRV_ADDR $RMQHA_DIR"\''
    result = subprocess.run(["sh", "-c", script, "sh", printed], capture_output=True, text=True, timeout=60)
    assert result.stdout == f"{found.namesrv.address} {folder}\n"


def test_servers_are_listed_as_yaml_too(tmp_path):
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, the extra acl")
    found = made(tmp_path, Shape(1, 0))
    result = CliRunner().invoke(rmqha, ["ps", "-o", "yaml", "--dir", str(tmp_path)])
    told = yaml.safe_load(result.output)
    assert result.exit_code == 1 and told["NAMESRV_ADDR"] == found.namesrv.address
    assert [(node["name"], node["state"], node["pid"]) for node in told["nodes"]] == [
        ("namesrv", "stopped", None), ("broker-a", "stopped", None)]


def test_two_at_once_is_an_error_that_names_the_other(tmp_path):
    made(tmp_path)
    with cluster_folder.locked(tmp_path):
        for command in ("up", "down"):
            assert f"(pid {os.getpid()}) is at work in {tmp_path}" in fails(command, "--dir", tmp_path)
    with cluster_folder.locked(tmp_path):
        assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("made_again", [False, True])
def test_lock_of_a_folder_that_was_deleted_meanwhile_is_taken_again(tmp_path, monkeypatch, made_again):
    folder = tmp_path / "c"
    real = cluster_folder._open_lock
    opened = []

    def open_and_delete_once(path):
        opened.append(real(path))
        if len(opened) == 1:
            (path / ".lock").unlink()
            if made_again:
                os.close(real(path))
        return opened[-1]

    monkeypatch.setattr(cluster_folder, "_open_lock", open_and_delete_once)
    with cluster_folder.locked(folder):
        assert len(opened) == 2 and (folder / ".lock").read_text() == f"{os.getpid()}\n"


def test_folder_that_can_not_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert f"{tmp_path}/file/below can't be written" in fails("up", "--dir", tmp_path / "file" / "below")
