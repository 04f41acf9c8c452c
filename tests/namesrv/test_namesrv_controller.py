"""A whole name server, in the test's process and as mqnamesrv, and its metrics."""
import json
import os
import re
import signal
import socket
import subprocess

import pytest

from rmqha.common import metrics
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code
from rmqha.namesrv import namesrv_startup
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS, NamesrvController
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import running_broker
from tests.support.ports import free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient, Scrape, http_get
from tests.support.sources import ROOT
from tests.support.wait import own_threads, wait_until

# A whole name server in the test's process, over sockets.

BROKER = {"brokerName": "broker-a", "clusterName": "c1", "haServerAddr": "10.0.0.1:10912"}
BODY = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
    "dataVersion": {"counter": 1, "timestamp": 5},
    "topicConfigTable": {"T": {"topicName": "T", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}}}}).encode()


@pytest.fixture
def new_server(tmp_path):
    started = []

    def build(**config):
        folder = tmp_path / str(len(started))
        controller = NamesrvController(
            NamesrvConfig(kvConfigPath=str(folder / "kv.json"), configStorePath=str(folder / "ns.conf"), **config),
            ServerConfig(listenPort=0))
        started.append(controller)
        namesrv_startup.start(controller)
        return controller
    yield build
    for controller in started:
        controller.shutdown()


def client(controller):
    return RawClient(f"127.0.0.1:{controller.local_listen_port}")


def register(connection, addr="10.0.0.1:10911", broker_id=0, **fields):
    return connection.request(request_code.REGISTER_BROKER, BODY, brokerAddr=addr, brokerId=broker_id,
                              **{**BROKER, **fields})


def route_code(connection, topic="T"):
    return connection.request(request_code.GET_ROUTEINFO_BY_TOPIC, topic=topic).code


def test_boot_prints_success(new_server, capsys):
    new_server()
    assert capsys.readouterr().out == "The Name Server boot success. serializeType=JSON\n"


def test_requests_are_served_on_javas_threads(new_server):
    controller = new_server()
    with client(controller) as connection:
        assert route_code(connection) == 17
    names = {thread.name for thread in own_threads()}
    assert {"RemotingExecutorThread_1", "NSScheduledThread1"} <= names


def test_broker_is_removed_when_its_connection_closes(new_server):
    controller = new_server()
    with client(controller) as reader:
        with client(controller) as broker:
            assert register(broker).code == 0
            assert route_code(reader) == 0
        wait_until(lambda: route_code(reader) == 17, what="the route is removed with the broker's connection")


def test_slave_learns_its_master_over_the_wire(new_server):
    controller = new_server()
    with client(controller) as master, client(controller) as slave:
        register(master)
        answer = register(slave, addr="10.0.0.2:10911", broker_id=1)
        assert answer.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


def test_error_is_answered_with_its_text_and_others_are_served(new_server):
    controller = new_server()
    with client(controller) as good, client(controller) as bad:
        register(good)
        answer = register(bad, addr="10.0.0.9:1", broker_id=-5)
        assert answer.code == 1 and "brokerId -5 of broker-a is negative" in answer.remark
        answer = bad.request(request_code.REGISTER_BROKER, b"[[[[", brokerAddr="a", brokerId=0, **BROKER)
        assert answer.code == 1 and "Failed to decode RegisterBrokerBody" in answer.remark
        answer = bad.request(request_code.UPDATE_NAMESRV_CONFIG, b"serverWorkerThreads=many")
        assert answer.code == 1 and "serverWorkerThreads: expected a whole number" in answer.remark
        assert route_code(good) == route_code(bad) == 0


def test_two_name_servers_run_in_one_process(new_server):
    one, other = new_server(), new_server()
    with client(one) as first, client(other) as second:
        register(first)
        assert (route_code(first), route_code(second)) == (0, 17)


def test_port_in_use_is_an_error_and_leaves_no_thread(new_server, tmp_path):
    port = new_server().local_listen_port
    before = own_threads()
    controller = NamesrvController(NamesrvConfig(kvConfigPath=str(tmp_path / "kv")), ServerConfig(listenPort=port))
    with pytest.raises(OSError):
        namesrv_startup.start(controller)
    assert not own_threads() - before


def test_second_shutdown_does_nothing(new_server):
    before = own_threads()
    controller = new_server()
    with client(controller) as connection:
        route_code(connection)
        controller.shutdown()
        with pytest.raises((EOFError, OSError)):
            connection.read_frame()
    controller.shutdown()
    wait_until(lambda: not own_threads() - before, what="all threads ended")


def test_test_environment_asks_the_product_environment(new_server, monkeypatch):
    product = new_server()
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:{product.local_listen_port}")
    test_environment = new_server(clusterTest=True)
    with client(product) as broker, client(test_environment) as connection:
        register(broker)
        answer = connection.request(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T")
        assert answer.code == 0 and b'"brokerAddrs":{0:"10.0.0.1:10911"}' in answer.body
        assert route_code(connection, "X") == 17
        register(connection, addr="10.0.0.5:10911")
        answer = connection.request(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T")
        assert b"10.0.0.5:10911" in answer.body


def test_silent_product_environment_is_an_unknown_topic(new_server, monkeypatch):
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    with client(new_server(clusterTest=True)) as connection:
        assert route_code(connection) == 17


# A name server's metrics compared with the registered brokers.


def test_brokers_topics_and_health(tmp_path):
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kv.json"), configStorePath=str(tmp_path / "ns.conf"),
                           metricsPort=free_port())
    controller = NamesrvController(config, ServerConfig(listenPort=0))
    assert controller.initialize()
    assert controller.metrics().why_not_ready() == ["it is starting or shutting down"]
    controller.start()
    try:
        address, port = f"127.0.0.1:{controller.local_listen_port}", config.metricsPort
        assert Scrape(port).value("rmqha_namesrv_topics") == 0 and http_get(port, "/readyz")[0] == 200
        with running_broker(tmp_path / "m", address, brokerClusterName="C") as master:
            slave = {"brokerClusterName": "C", "brokerRole": BrokerRole.SLAVE, "brokerId": 1}
            with running_broker(tmp_path / "s", address, **slave):
                scrape = Scrape(port)
                assert scrape.value("rmqha_namesrv_brokers", cluster="C") == 2
                assert scrape.value("rmqha_namesrv_masters", cluster="C") == 1
                assert scrape.value("rmqha_namesrv_broker_names_without_master", cluster="C") == 0
                assert 0 <= scrape.value("rmqha_namesrv_broker_heartbeat_age_seconds", cluster="C", broker="broker-a",
                                         broker_id="0", address=master.address) < 60
                assert scrape.value("rmqha_namesrv_connections") == 2
                topics = scrape.value("rmqha_namesrv_topics")
                assert topics > 1
                master.send("New")
                wait_until(lambda: Scrape(port).value("rmqha_namesrv_topics") == topics + 1)
            wait_until(lambda: Scrape(port).value("rmqha_namesrv_brokers", cluster="C") == 1)
        told = {name + ("_total" if family.type == "counter" else "") for name, family in scrape.families.items()}
        assert {metric.name for metric in NAMESRV_METRICS} <= told
        controller.remoting_server.io.shutdown()
        assert http_get(port, "/healthz")[:2] == (503, b"the thread of its port has ended\n")
    finally:
        controller.shutdown()


def test_broker_name_with_only_slaves_left_is_exposed(tmp_path):
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kv.json"), configStorePath=str(tmp_path / "ns.conf"),
                           metricsPort=free_port())
    controller = NamesrvController(config, ServerConfig(listenPort=0))
    assert controller.initialize()
    controller.start()
    try:
        address = f"127.0.0.1:{controller.local_listen_port}"
        with running_broker(tmp_path / "s", address, brokerRole=BrokerRole.SLAVE, brokerId=1):
            scrape = Scrape(config.metricsPort)
            assert scrape.value("rmqha_namesrv_broker_names_without_master", cluster="DefaultCluster") == 1
            assert scrape.value("rmqha_namesrv_masters", cluster="DefaultCluster") == 0
    finally:
        controller.shutdown()


# mqnamesrv as a process: options, exit codes and config files.

LAUNCHER = str(ROOT / "bin" / "mqnamesrv")


@pytest.fixture
def run(tmp_path):
    def call(*arguments):
        env = {**os.environ, "HOME": str(tmp_path)}
        return subprocess.run([LAUNCHER, *arguments], env=env, capture_output=True, text=True, timeout=600)
    return call


@pytest.fixture
def conf(tmp_path):
    def write(text):
        path = tmp_path / "ns.conf"
        path.write_bytes(text.encode("latin-1"))
        return str(path)
    return write


def test_help_lists_rocketmqs_options(run):
    result = run("-h")
    assert result.returncode == 0
    for option in ("-c( <arg>)?, --configFile <arg>", "-n( <arg>)?, --namesrvAddr <arg>", "-p, --printConfigItem"):
        # Python 3.13 prints the value's name once.
        assert re.search(option, result.stdout)


def test_wrong_option_exits_with_1(run):
    assert run("-q").returncode == 1


def test_all_config_items_are_printed(run, conf):
    result = run("-c", conf("productEnvName=here\n"), "-p")
    assert result.returncode == 0
    assert " INFO main - productEnvName=here\n" in result.stdout and " - listenPort=9876\n" in result.stdout


@pytest.mark.parametrize(("text", "problem"), [
    ("listenPort=ten\n", ":1: listenPort: expected a whole number from 0 to 65535, not 'ten'"),
    ("# x\nproductEnvName=\\u12\n", ":2: Malformed \\uxxxx encoding."),
])
def test_invalid_config_file_exits_with_2_and_the_place(run, conf, text, problem):
    file = conf(text)
    result = run("-c", file)
    assert result.returncode == 2 and file + problem in result.stderr


def test_missing_config_file_exits_with_2(run):
    result = run("-c", "/nowhere/ns.conf")
    assert result.returncode == 2 and "/nowhere/ns.conf: cannot read the config file" in result.stderr


def test_damaged_kv_file_exits_with_2(run, conf, tmp_path):
    (tmp_path / "kv.json").write_text("{")
    result = run("-c", conf(f"listenPort={free_port()}\nkvConfigPath={tmp_path}/kv.json\n"))
    assert result.returncode == 2 and "kv.json" in result.stderr


def test_server_boots_writes_logs_and_ends_on_sigterm(conf, tmp_path):
    port = free_port()
    file = conf(f"listenPort={port}\nkvConfigPath={tmp_path}/kv.json\nproductEnvNmae=x\n")
    server = ServerProcess("namesrv", [LAUNCHER, "-c", file], tmp_path, "boot success. serializeType=JSON",
                           {"HOME": str(tmp_path), "ROCKETMQ_LOG_DIR": ""})
    try:
        server.start()
        assert "unknown key productEnvNmae, did you mean productEnvName?" in server.output()
        with RawClient(f"127.0.0.1:{port}") as connection:
            assert connection.request(100, namespace="n", key="k", value="v").code == 0
            assert server.stop() == 0
        log = (tmp_path / "logs" / "rocketmqlogs" / "namesrv.log").read_text()
        assert " INFO main - The Name Server boot success. serializeType=JSON\n" in log
        assert "did you mean productEnvName?" in log and "shutdown hook was invoked" in log
        server.start()
        with RawClient(f"127.0.0.1:{port}") as connection:
            assert connection.request(101, namespace="n", key="k").fields == {"value": "v"}
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(240) == 0
    finally:
        server.kill()


def test_port_in_use_ends_the_start_with_a_line_naming_it_and_its_holder(run, conf):
    port = free_port()
    with socket.create_server(("0.0.0.0", port)):
        result = run("-c", conf(f"listenPort={port}\n"))
    assert result.returncode == 255
    (line,) = result.stderr.strip().split("\n")
    assert line.startswith(f"The Name Server cannot start: port {port} (listenPort) is in use by pid {os.getpid()} (")


def test_health_is_served_without_the_library_of_the_metrics(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "is_available", lambda: False)
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kv.json"), metricsPort=free_port())
    controller = NamesrvController(config, ServerConfig(listenPort=0))
    assert controller.initialize()
    controller.start()
    try:
        wanted = {"/healthz": 200, "/readyz": 200, "/metrics": 501, "/leader": 404, "/master": 404}
        assert {path: http_get(config.metricsPort, path)[0] for path in wanted} == wanted
    finally:
        controller.shutdown()


def test_metrics_port_in_use_ends_the_start_with_a_line_naming_it(run, conf):
    port = free_port()
    with socket.create_server(("127.0.0.1", port)):
        result = run("-c", conf(f"listenPort={free_port()}\nmetricsPort={port}\n"))
    assert result.returncode == 255
    assert f"port {port} of 127.0.0.1 (metricsPort) is in use by pid {os.getpid()}" in result.stderr
