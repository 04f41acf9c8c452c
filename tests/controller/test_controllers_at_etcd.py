"""Two controllers as processes, at three members of etcd."""
import os
import signal

import psutil
import pytest

from rmqha.common.protocol import request_code, response_code
from tests.support.controller_nodes import ControllerNode, EtcdNode, etcd_cluster, start_etcd
from tests.support.etcd import LONG_LEASE_S, MOST_S, addresses, require_etcd
from tests.support.ports import free_port
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until

pytestmark = pytest.mark.etcd

SHORT_LEASE_S = 10  # it ends within MOST_S, and not by itself on a busy machine
NAME = {"clusterName": "c", "brokerName": "b"}


@pytest.fixture
def lease_s():
    return LONG_LEASE_S


@pytest.fixture
def pair(tmp_path, nodes, lease_s):
    """Both controllers, running."""
    require_etcd()
    etcd = etcd_cluster(tmp_path, 3, sync=False)
    nodes.extend(etcd)
    start_etcd(etcd)
    peers = {f"n{number}": f"127.0.0.1:{free_port()}" for number in range(2)}
    controllers = [ControllerNode("rmqha", tmp_path, id_, peers, controllerStore="etcd", etcdLeaseSeconds=lease_s,
                                  etcdEndpoints=";".join(addresses(etcd))) for id_ in peers]
    nodes.extend(controllers)
    for controller in controllers:
        controller.start()
    return controllers


def ask(controller, code, **fields):
    with RawClient(controller.address, 10) as client:
        return client.request(code, **fields)


def leader_of(controllers):
    """The one that leads, as all of these say."""
    def found():
        told = {controller.leader() for controller in controllers}
        return next((one for one in controllers if told == {one.address}), None)
    return wait_until(found, what="all name the same leader")


def _is_watched(controller):
    return any(each.laddr.port == controller.port and each.status == psutil.CONN_ESTABLISHED
               for each in psutil.Process(controller.pid).net_connections("tcp"))


def apply_id(controller, broker_id):
    """A broker takes an id; the answer's code."""
    return ask(controller, request_code.CONTROLLER_APPLY_BROKER_ID, **NAME, appliedBrokerId=broker_id,
               registerCheckCode=f"127.0.0.1:{broker_id};1").code


def next_id(controller):
    return int(ask(controller, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME).fields["nextBrokerId"])


def test_one_decides_and_the_other_names_it(pair):
    leader = leader_of(pair)
    (other,) = (one for one in pair if one is not leader)
    assert apply_id(leader, 1) == response_code.SUCCESS and next_id(leader) == 2
    refused = ask(other, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME)
    assert refused.code == response_code.CONTROLLER_NOT_LEADER and leader.address in refused.remark
    about = ask(other, request_code.CONTROLLER_GET_METADATA_INFO).fields
    assert about["controllerLeaderId"] == leader.self_id and about["isLeader"] == "false"


@pytest.mark.parametrize("number, lease_s", [
    (signal.SIGKILL, LONG_LEASE_S), (signal.SIGSTOP, SHORT_LEASE_S), (signal.SIGTERM, LONG_LEASE_S)])
def test_another_one_goes_on_where_the_leader_ended(pair, number):
    """One that ends in good order says so, and one that is killed is seen to end: no lease is waited for."""
    leader = leader_of(pair)
    (other,) = (one for one in pair if one is not leader)
    assert apply_id(leader, 1) == response_code.SUCCESS
    wait_until(lambda: _is_watched(leader), what="the other one is connected to it")
    os.kill(leader.pid, number)
    wait_until(lambda: other.leader() == other.address, MOST_S * 1000, "the other one leads")
    assert next_id(other) == 2 and apply_id(other, 2) == response_code.SUCCESS
    if number == signal.SIGSTOP:
        os.kill(leader.pid, signal.SIGCONT)
        assert ask(leader, request_code.CONTROLLER_GET_NEXT_BROKER_ID, **NAME).code == \
            response_code.CONTROLLER_NOT_LEADER
        assert leader_of(pair) is other
    else:
        leader.kill()
        leader.start()
        assert leader_of(pair) is other and next_id(other) == 3


def test_a_controller_waits_for_etcd_and_says_so(tmp_path, nodes):
    require_etcd()
    etcd = EtcdNode(tmp_path)
    controller = ControllerNode("rmqha", tmp_path, controllerStore="etcd", etcdEndpoints=etcd.address)
    nodes.extend([etcd, controller])
    controller.start()
    assert ask(controller, request_code.CONTROLLER_GET_METADATA_INFO).fields.get("isLeader") == "false"
    etcd.start()
    wait_until(lambda: controller.leader() == controller.address)
