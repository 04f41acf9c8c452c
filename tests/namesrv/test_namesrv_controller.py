"""A whole name server within the test's process, over sockets."""
import json

import pytest

from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code
from rmqha.namesrv import namesrv_startup
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.remoting_config import ServerConfig
from tests.support.own_threads import own_threads
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

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


def test_boot_tells_success(new_server, capsys):
    new_server()
    assert capsys.readouterr().out == "The Name Server boot success. serializeType=JSON\n"


def test_requests_are_served_by_javas_threads(new_server):
    controller = new_server()
    with client(controller) as connection:
        assert route_code(connection) == 17
    names = {thread.name for thread in own_threads()}
    assert {"RemotingExecutorThread_1", "NSScheduledThread1"} <= names


def test_broker_is_gone_with_its_connection(new_server):
    controller = new_server()
    with client(controller) as reader:
        with client(controller) as broker:
            assert register(broker).code == 0
            assert route_code(reader) == 0
        wait_until(lambda: route_code(reader) == 17, what="the route goes with the broker's connection")


def test_slave_learns_its_master_over_the_wire(new_server):
    controller = new_server()
    with client(controller) as master, client(controller) as slave:
        register(master)
        answer = register(slave, addr="10.0.0.2:10911", broker_id=1)
        assert answer.fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


def test_error_is_answered_with_its_text_and_others_go_on(new_server):
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


def test_two_name_servers_live_in_one_process(new_server):
    one, other = new_server(), new_server()
    with client(one) as first, client(other) as second:
        register(first)
        assert (route_code(first), route_code(second)) == (0, 17)


def test_taken_port_is_an_error_and_leaves_no_thread(new_server, tmp_path):
    port = new_server().local_listen_port
    before = own_threads()
    controller = NamesrvController(NamesrvConfig(kvConfigPath=str(tmp_path / "kv")), ServerConfig(listenPort=port))
    with pytest.raises(OSError):
        namesrv_startup.start(controller)
    assert not own_threads() - before


def test_shutdown_twice_is_shutdown_once(new_server):
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
