"""The broker and its name servers: who is told what, and when."""
import threading

import pytest

from rmqha.broker.broker_outer_api import Registration
from rmqha.broker.broker_registration import BrokerRegistration
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import CreateTopicRequestHeader
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.protocol.namesrv_headers import (
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqha.common.protocol.table_bodies import KVTable
from rmqha.common.util_all import crc32
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import new_controller, running_broker
from tests.support.ports import free_port
from tests.support.wait import wait_until


class FakeNameServer:
    """Notes the requests and answers as told."""

    def __init__(self, port=0):
        self.requests = []
        self.answer = RegisterBrokerResponseHeader()
        self.kv_table = KVTable()
        self.changed = False
        self.hold = threading.Event()  # cleared: registrations are not answered
        self.hold.set()
        self.server = RemotingServer(ServerConfig(listenPort=port))
        self.server.register_default_processor(self)
        self.server.start()

    @property
    def address(self):
        return f"127.0.0.1:{self.server.local_listen_port}"

    def reject_request(self):
        return False

    def process_request(self, channel, request):
        self.requests.append(request)
        if not self.hold.is_set():
            return None
        response = RemotingCommand.create_response_command(response_code.SUCCESS, None)
        if request.code == request_code.REGISTER_BROKER:
            response.custom_header = self.answer
            response.body = remoting_serializable.encode(self.kv_table)
        elif request.code == request_code.QUERY_DATA_VERSION:
            response.custom_header = QueryDataVersionResponseHeader(self.changed)
            response.body = request.body
        return response

    def of_code(self, code):
        return [request for request in self.requests if request.code == code]


@pytest.fixture
def name_servers():
    """Two name servers."""
    servers = [FakeNameServer(), FakeNameServer()]
    yield servers
    for server in servers:
        server.server.shutdown()


def both(name_servers):
    return ";".join(server.address for server in name_servers)


def registration(request):
    return (request.decode_command_custom_header(RegisterBrokerRequestHeader),
            remoting_serializable.from_json(RegisterBrokerBody, request.body))


def test_broker_registers_everywhere_at_once_and_leaves_in_the_end(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        for server in name_servers:
            header, body = registration(server.of_code(request_code.REGISTER_BROKER)[0])
            assert (header.brokerName, header.brokerAddr, header.brokerId) == ("broker-a", broker.address, 0)
            ha_port = broker.store.ha_service.ha_listen_port
            assert (header.clusterName, header.haServerAddr) == ("DefaultCluster", f"127.0.0.1:{ha_port}")
            assert header.bodyCrc32 == crc32(server.requests[0].body) and not header.compressed
            assert "TBW102" in body.topicConfigSerializeWrapper.topicConfigTable
    for server in name_servers:
        request = server.of_code(request_code.UNREGISTER_BROKER)[0]
        header = request.decode_command_custom_header(UnRegisterBrokerRequestHeader)
        assert (header.brokerName, header.brokerId) == ("broker-a", 0)


def test_compressed_registration(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address, compressedRegister=True):
        request = name_servers[0].requests[0]
        assert request.ext_fields["compressed"] == "true"
        assert "TBW102" in RegisterBrokerBody.decode_compressed(
            request.body).topicConfigSerializeWrapper.topicConfigTable


def test_new_topic_is_registered_one_way_with_all_others(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        broker.send("Fresh")
        for server in name_servers:
            wait_until(lambda: len(server.of_code(request_code.REGISTER_BROKER)) == 2, 60_000, "the registration")
            request = server.of_code(request_code.REGISTER_BROKER)[1]
            table = registration(request)[1].topicConfigSerializeWrapper.topicConfigTable
            assert request.is_oneway_rpc and {"Fresh", "TBW102"} <= set(table)


def test_topic_made_by_an_admin_is_registered_alone(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address) as broker:
        header = CreateTopicRequestHeader("Made", "TBW102", 2, 2, 6, "SINGLE_TAG", 0)
        assert broker.call(request_code.UPDATE_AND_CREATE_TOPIC, header).code == response_code.SUCCESS
        request = name_servers[0].of_code(request_code.REGISTER_BROKER)[1]
        wrapper = registration(request)[1].topicConfigSerializeWrapper
        assert set(wrapper.topicConfigTable) == {"Made"} and wrapper.dataVersion.counter == 1


def test_broker_without_write_permission_registers_its_topics_so(tmp_path, name_servers):
    with running_broker(tmp_path, name_servers[0].address, brokerPermission=4) as broker:
        table = registration(name_servers[0].requests[0])[1].topicConfigSerializeWrapper.topicConfigTable
        assert {config.perm for config in table.values()} == {4}
        assert broker.controller.topic_config_manager.select_topic_config("BenchmarkTest").perm == 6


def test_slave_takes_its_masters_addresses_from_the_answer(tmp_path, name_servers):
    name_servers[0].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    slave = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1}
    with running_broker(tmp_path, name_servers[0].address, **slave) as broker:
        assert broker.controller.slave_synchronize.master_addr == "127.0.0.1:10911"
        assert broker.store.ha_service.ha_client.master_address == "127.0.0.1:1"


def test_configured_ha_address_stays(tmp_path, name_servers):
    name_servers[0].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    slave = {"brokerRole": BrokerRole.SLAVE, "brokerId": 1, "haMasterAddress": "127.0.0.1:2"}
    with running_broker(tmp_path, name_servers[0].address, **slave) as broker:
        assert broker.store.ha_service.ha_client.master_address == "127.0.0.1:2"


def test_order_topics_of_the_name_server_are_taken(tmp_path, name_servers):
    name_servers[0].kv_table = KVTable({"BenchmarkTest": "broker-a:8"})
    with running_broker(tmp_path, name_servers[0].address) as broker:
        assert broker.controller.topic_config_manager.is_order_topic("BenchmarkTest")


def test_silent_name_server_delays_the_others_no_longer_than_the_timeout(tmp_path, name_servers, caplog,
                                                                           monkeypatch):
    returned = threading.Event()
    invoke_sync = RemotingClient.invoke_sync

    def invoke(self, addr, *arguments):
        try:
            return invoke_sync(self, addr, *arguments)
        finally:  # the request has the same time-out as the registration, and may run out first
            if addr == name_servers[0].address:
                returned.wait()
    monkeypatch.setattr(RemotingClient, "invoke_sync", invoke)
    name_servers[0].hold.clear()
    name_servers[1].answer = RegisterBrokerResponseHeader("127.0.0.1:1", "127.0.0.1:10911")
    controller = new_controller(tmp_path, both(name_servers))
    controller.broker_outer_api.update_name_server_address_list(both(name_servers))
    controller.broker_outer_api.start()
    topics = controller.topic_config_manager
    registration = Registration(topics.changes, topics.build_topic_config_serialize_wrapper)
    for timeout_ms in (500, 5_000, 50_000):  # as long as it takes the other one to answer
        results = controller.broker_outer_api.register_broker_all("c", "a:1", "n", 0, "h:2", registration, [], False,
                                                                  timeout_ms, False)
        assert f"registerBroker Exception, {name_servers[0].address}: no answer within {timeout_ms} ms" in caplog.text
        if results:
            break
    returned.set()
    assert [result.masterAddr for result in results] == ["127.0.0.1:10911"]
    controller.shutdown()


def test_registration_is_spared_when_nothing_changed(tmp_path, name_servers):
    with running_broker(tmp_path, both(name_servers)) as broker:
        controller = broker.controller
        controller.registration.register_broker_all(True, False, False)
        counts = [len(server.of_code(request_code.REGISTER_BROKER)) for server in name_servers]
        assert counts == [1, 1]
        name_servers[1].changed = True
        controller.registration.register_broker_all(True, False, False)
        assert [len(server.of_code(request_code.REGISTER_BROKER)) for server in name_servers] == [2, 2]


def test_name_server_that_starts_after_the_broker_is_registered_with_soon(tmp_path, name_servers, monkeypatch):
    monkeypatch.setattr(BrokerRegistration, "register_periodically", lambda _self: None)
    port = free_port()
    with running_broker(tmp_path, f"{name_servers[0].address};127.0.0.1:{port}"):
        late = FakeNameServer(port)
        try:
            wait_until(lambda: late.of_code(request_code.REGISTER_BROKER), what="the registration")
            assert not late.of_code(request_code.REGISTER_BROKER)[0].is_oneway_rpc, "a topic made a minute later"
        finally:
            late.server.shutdown()


def test_name_server_that_is_not_there_does_not_keep_the_broker_from_serving(tmp_path):
    with running_broker(tmp_path, "127.0.0.1:1", registerBrokerTimeoutMills=300) as broker:
        assert broker.send("Alone").code == response_code.SUCCESS
