"""Cluster folders, their cluster.json and config files, and the lock."""
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from rmqha.broker.broker_startup import create_broker_controller, parse_command_line
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file, read_config_file
from rmqha.common.controller_config import ControllerConfig, peers_of
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.tools.config.config_command import check
from rmqha.tools.local_cluster import layout
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster.layout import PORTS_PER_BROKER, ClusterError, Shape
from rmqha.tools.local_cluster.start import BringUp
from rmqha.tools.rmqha_command import rmqha


@pytest.fixture(autouse=True)
def data_home(tmp_path, monkeypatch):
    """The folder that contains the named clusters."""
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
def test_invalid_name_is_refused(name):
    with pytest.raises(ClusterError, match="letters, digits"):
        cluster_folder.chosen(None, name)


def test_dir_and_name_together_are_a_usage_error(tmp_path):
    for command in ("up", "down", "ps", "logs"):
        result = CliRunner().invoke(rmqha, [command, "--dir", str(tmp_path), "--name", "x"])
        assert result.exit_code == 2 and "--dir and --name exclude each other" in result.output


@pytest.mark.parametrize("shape", [
    Shape(), Shape(1, 0, False, "normal"), Shape(3, 2, True), Shape(2, 1, metrics=True)], ids=str)
def test_each_server_has_its_ports_and_a_valid_config(tmp_path, shape):
    found = made(tmp_path, shape)
    assert layout.read(tmp_path) == found and found.shape == shape
    ports = [port for node in found.nodes for port in node.ports]
    assert len(set(ports)) == len(ports) and {port - 21_000 for port in ports} <= set(range(shape.port_count))
    ids = {}
    for node in found.nodes[1:]:
        configs = BrokerConfig(), ServerConfig(), RemotingClientConfig(), MessageStoreConfig()
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
def test_controller_decides_the_roles_of_a_cluster_with_automatic_failover(tmp_path, shape, wanted):
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


def test_controllers_config_file_overrides_the_description(tmp_path):
    controller, = made(tmp_path, Shape(1, 1, auto_failover=True)).controllers
    properties = dict(read_config_file(str(controller.config_file)))
    layout.write_config(controller, properties | {"controllerDLegerPeers": "n1-127.0.0.1:7;n0-127.0.0.1:22333"})
    again = layout.read(tmp_path)
    assert again is not None and again.controllers[0].port == 22_333


def test_existing_cluster_gets_no_controller_later(tmp_path):
    made(tmp_path)
    assert "--auto-failover can't change" in fails("up", "--dir", tmp_path, "--auto-failover")


def test_config_file_overrides_the_description_and_a_missing_one_is_written_again(tmp_path):
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
        assert "cluster.json was not written by `rmqha up`, or is damaged" in fails(*arguments, "--dir", tmp_path)
    assert (tmp_path / "cluster.json").read_text() == text


def test_description_of_a_later_version_is_an_error(tmp_path):
    (tmp_path / "cluster.json").write_text(json.dumps({"rmqhaCluster": 2}))
    assert "has format 2, but this rmqha supports 1" in fails("up", "--dir", tmp_path)


def test_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years")
    assert "is not empty and has no cluster.json" in fails("up", "--dir", tmp_path)
    assert "no cluster in" in fails("down", "--purge", "--dir", tmp_path)
    assert "is not a folder" in fails("up", "--dir", tmp_path / "thesis.txt")
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_options_that_cannot_change_an_existing_cluster_are_named(tmp_path):
    made(tmp_path)
    said = fails("up", "--dir", tmp_path, "--masters", 3, "--slaves", 1, "--async", "--port", 25_000)
    assert "a cluster of 2 sync masters with 1 slave each, small" in said
    assert "--masters 3 --async --port 25000 can't change" in said


def test_taken_port_is_reported_with_its_process_and_no_cluster_is_made(tmp_path):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = fails("up", "--dir", tmp_path, "--port", port)
        assert f"namesrv can't start: port {port} is in use by pid {os.getpid()}" in said
        made(tmp_path / "old", port=port)
        assert f"port {port} is in use by pid {os.getpid()}" in fails("up", "--dir", tmp_path / "old")
    assert set(os.listdir(tmp_path)) == {".lock", "old"}
    assert "ports from there, beyond 65535" in fails("up", "--dir", tmp_path / "new", "--port", 65_530)


def test_ports_of_stopped_named_clusters_are_not_assigned_again(data_home, monkeypatch):
    made(data_home / "one", Shape(1, 0))
    (data_home / "damaged").mkdir()
    (data_home / "damaged" / "cluster.json").write_text("{}")
    firsts = iter([21_000 - PORTS_PER_BROKER, 21_004, 24_000])
    monkeypatch.setattr("rmqha.tools.local_cluster.layout.random.randrange", lambda low, high: next(firsts))
    two = data_home / "two"
    two.mkdir()
    assert cluster_folder.make_or_load(two, {"masters": 1, "slaves": 0}, None).namesrv.port == 24_000
    assert "; existing clusters for --name: damaged, one, two" in fails("ps")


def test_printed_environment_works_in_a_shell_whatever_the_folders_name(tmp_path, monkeypatch):
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    folder = tmp_path / "it's $HOME; here"
    found = made(folder)
    printed = CliRunner().invoke(rmqha, ["up", "--print-env", "--dir", str(folder)]).output
    # The pages once had the second idiom, which exported only the first variable.
    for how in ('eval "$1"', 'eval "export $1"', 'set -a; eval "$1"; set +a'):
        script = how + '; sh -c \'echo "$NAMESRV_ADDR $RMQHA_DIR"\''
        result = subprocess.run(["sh", "-c", script, "sh", printed], capture_output=True, text=True, timeout=600)
        assert (result.stdout, result.stderr) == (f"{found.namesrv.address} {folder}\n", ""), how


def test_up_prints_the_arguments_that_later_commands_need(tmp_path, data_home, monkeypatch):
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    made(data_home / "default", Shape(1, 0), 21_000)
    folder = tmp_path / "of my own"
    made(folder, Shape(1, 0), 22_000)

    def exports(*arguments):
        printed = CliRunner().invoke(rmqha, ["up", *map(str, arguments)]).stdout
        return [line for line in printed.splitlines() if line.startswith("export ")]

    assert exports() == ["export NAMESRV_ADDR=127.0.0.1:21000"]
    assert exports("--dir", folder) == ["export NAMESRV_ADDR=127.0.0.1:22000", f"export RMQHA_DIR='{folder}'"]
    monkeypatch.setenv("RMQHA_DIR", str(folder))
    assert exports() == ["export NAMESRV_ADDR=127.0.0.1:22000"]
    assert exports("--name", "default")[1:] == [f"export RMQHA_DIR={data_home / 'default'}"]


@pytest.fixture
def terminal(monkeypatch):
    """Make the standard input of CliRunner a terminal."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)


@pytest.mark.parametrize("from_environment", [False, True])
@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_purge_of_a_cluster_not_named_asks_on_a_terminal(data_home, tmp_path, monkeypatch, terminal,
                                                         from_environment, answer):
    folder = tmp_path / "mine" if from_environment else data_home / "default"
    made(folder, Shape(2, 1))
    if from_environment:
        monkeypatch.setenv("RMQHA_DIR", str(folder))
    result = CliRunner().invoke(rmqha, ["down", "--purge"], input=answer)
    assert result.exit_code == 1 and (folder / "cluster.json").exists()
    assert f"Stop the cluster in {folder} (2 sync masters with 1 slave each, small)" in result.stderr
    result = CliRunner().invoke(rmqha, ["down", "--purge"], input="y\n")
    assert result.exit_code == 0 and f"deleted {folder}" in result.stdout and not folder.exists()


@pytest.mark.parametrize("arguments", [["--dir", "HERE"], ["--name", "default"], ["--yes"], ["-y"]])
def test_purge_of_a_named_cluster_prints_the_folder_and_does_not_ask(data_home, terminal, arguments):
    folder = data_home / "default"
    made(folder, Shape(1, 0))
    arguments = [str(folder) if argument == "HERE" else argument for argument in arguments]
    result = CliRunner().invoke(rmqha, ["down", "--purge", *arguments], input="")
    assert result.exit_code == 0 and not folder.exists(), result.output
    assert f"deleting the cluster in {folder}" in result.stderr and "[y/N]" not in result.output


def test_purge_without_a_terminal_prints_the_folder(data_home):
    made(data_home / "default", Shape(1, 0))
    result = CliRunner().invoke(rmqha, ["down", "--purge"], input="n\n")
    assert result.exit_code == 0 and f"deleting the cluster in {data_home / 'default'}" in result.stderr


@pytest.mark.parametrize("command", [["up"], ["down", "--purge"], ["ps"], ["logs"]])
def test_empty_dir_from_an_unset_variable_is_not_the_working_directory(tmp_path, monkeypatch, command):
    made(tmp_path, Shape(1, 0))
    # No server may be left running.
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    monkeypatch.chdir(tmp_path)
    assert "--dir is empty" in fails(*command, "--dir", "")
    assert (tmp_path / "cluster.json").exists()


@pytest.mark.parametrize("options, role", [
    (["--slaves", 0], "ASYNC_MASTER"), (["--slaves", 0, "--async"], "ASYNC_MASTER"),
    (["--slaves", 2], "SYNC_MASTER"), ([], "SYNC_MASTER"), (["--slaves", 1, "--async"], "ASYNC_MASTER")])
def test_master_waits_for_slaves_only_where_it_has_some(tmp_path, monkeypatch, options, role):
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    arguments = [str(each) for each in ("up", "--dir", tmp_path / "c", "--print-env", "--masters", 1, *options)]
    for _again in range(2):
        result = CliRunner().invoke(rmqha, arguments)
        assert result.exit_code == 0, result.output
    found = layout.read(tmp_path / "c")
    assert found is not None and [node.role for node in found.masters] == [role]


def test_sync_master_without_a_slave_is_refused(tmp_path):
    said = fails("up", "--dir", tmp_path, "--slaves", 0, "--sync")
    assert "--sync needs a slave" in said and os.listdir(tmp_path) == [".lock"]


def test_single_replica_with_a_controller_accepts_messages(tmp_path, monkeypatch):
    monkeypatch.setattr(BringUp, "run", lambda self, wait, timeout_s: None)
    assert CliRunner().invoke(rmqha, ["up", "--dir", str(tmp_path / "c"), "--slaves", "0", "--auto-failover",
                                      "--print-env"]).exit_code == 0
    found = layout.read(tmp_path / "c")
    properties = read_config_file(str(found.replicas[0].config_file))
    assert (properties["allAckInSyncStateSet"], properties["minInSyncReplicas"]) == ("false", "1")


def test_pages_name_the_cluster_that_they_delete():
    """Check commands on the pages: a reader who pastes them must not lose a cluster that is in use."""
    pages = [Path(__file__).parents[3] / "README.md", *(Path(__file__).parents[3] / "docs").rglob("*.md")]
    shell = re.compile(r"^(?:bin/)?rmqha down\b.*--purge.*$", re.MULTILINE)
    lines = [(page.name, line) for page in pages for line in shell.findall(page.read_text("utf-8"))]
    unnamed = [(page, line) for page, line in lines if not re.search(r"--(dir|name) ", line)]
    # The exception cleans up after the list for a laptop.
    assert len(lines) >= 3 and [page for page, _line in unnamed] == ["clusters.md"], unnamed


def test_servers_are_listed_as_yaml_too(tmp_path):
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, the extra acl")
    found = made(tmp_path, Shape(1, 0))
    result = CliRunner().invoke(rmqha, ["ps", "-o", "yaml", "--dir", str(tmp_path)])
    told = yaml.safe_load(result.output)
    assert result.exit_code == 1 and told["NAMESRV_ADDR"] == found.namesrv.address
    assert [(node["name"], node["state"], node["pid"]) for node in told["nodes"]] == [
        ("namesrv", "stopped", None), ("broker-a", "stopped", None)]


def test_second_command_at_the_same_time_is_an_error_that_names_the_first(tmp_path):
    made(tmp_path)
    with cluster_folder.locked(tmp_path):
        for command in ("up", "down"):
            assert f"(pid {os.getpid()}) is running on {tmp_path}" in fails(command, "--dir", tmp_path)
    with cluster_folder.locked(tmp_path):
        assert (tmp_path / ".lock").exists()


@pytest.mark.parametrize("made_again", [False, True])
def test_lock_of_a_folder_deleted_in_the_meantime_is_taken_again(tmp_path, monkeypatch, made_again):
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


def test_unwritable_folder_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    assert f"can't write to {tmp_path}/file/below" in fails("up", "--dir", tmp_path / "file" / "below")
