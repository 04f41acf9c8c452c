"""`ha status` of running servers, rmqha's and Java's."""
import json
import os
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.client.exception import MQBrokerException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.cluster_admin import ClusterAdmin, RefusedError
from rmqha.tools.terminal import CannotAnswerError
from tests.store.ha.support import Peer
from tests.support.java_driver import Workload
from tests.support.wait import wait_until


def told(run, *arguments):
    """The answer of `ha status -o json`."""
    result = run("ha", "status", "-o", "json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_master_and_its_slave(cluster, run):
    end = cluster.master.store.get_max_phy_offset()
    (master,) = told(run, "-n", cluster.namesrv)
    assert (master["name"], master["role"], master["max_offset"]) == ("broker-a", "ASYNC_MASTER", end)
    (slave,) = master["slaves"]
    assert slave["connection"].startswith("127.0.0.1:") and slave["address"] == cluster.slave.address
    assert (slave["broker_id"], slave["state"], slave["ack_offset"]) == (1, "TRANSFER", end)
    assert (slave["lag_bytes"], slave["lag_seconds"], slave["in_sync"]) == (0, 0.0, True)
    text = run("ha", "status", "-n", cluster.namesrv).stdout
    assert f"broker-a  0  {cluster.master.address}  ASYNC_MASTER" in text
    assert f"{end:,}" in text and "TRANSFER" in text and "yes" in text


def test_chosen_by_cluster_name_and_address(cluster, run):
    for choice in (["-c", "C"], ["-b", "broker-a"], ["-b", cluster.slave.address]):
        assert [each["name"] for each in told(run, "-n", cluster.namesrv, *choice)] == ["broker-a"]


def test_one_address_is_enough(cluster, run):
    (master,) = told(run, "-b", cluster.master.address)
    assert [slave["state"] for slave in master["slaves"]] == ["TRANSFER"]
    (slave,) = told(run, "-b", cluster.slave.address)
    assert slave["follows"]["address"] == cluster.ha_address and slave["follows"]["state"] == "TRANSFER"
    assert f"follows {cluster.ha_address}: TRANSFER" in run("ha", "status", "-b", cluster.slave.address).stdout


def test_refused_slave_is_shown_with_both_offsets(cluster, run):
    end = cluster.master.store.get_max_phy_offset()
    with Peer.connect(cluster.master.store) as peer:
        peer.report(end + 12345)
        assert peer.is_closed()
    (master,) = told(run, "-n", cluster.namesrv)
    assert [each["slave_offset"] for each in master["refused"]] == [end + 12345]
    text = run("ha", "status", "-n", cluster.namesrv).stdout
    assert f"it asks for {end + 12345}, the master ends at {end}" in text


@pytest.mark.parametrize(("arguments", "code", "text"), [
    ([], 2, "give a name server with -n host:port"),
    (["-n", "127.0.0.1:1"], 2, "the name server 127.0.0.1:1 can't be reached"),
    (["-n", "nonsense"], 2, "'nonsense' is no host:port"),
    (["-b", "nonsense"], 2, "or a broker's address with -b host:port"),
    (["-b", "127.0.0.1:1", "-c", "C"], 2, "known to its name server"),
])
def test_what_can_not_be_asked_is_said(run, arguments, code, text):
    result = run("ha", "status", *arguments)
    assert result.exit_code == code and text in result.output


def test_unreachable_broker_and_unknown_name(cluster, run):
    result = run("ha", "status", "-b", "127.0.0.1:1")
    assert result.exit_code == 2 and "UNREACHABLE: the broker 127.0.0.1:1 can't be reached" in result.stdout
    result = run("ha", "status", "-n", cluster.namesrv, "-b", "broker-b")
    assert result.exit_code == 2 and "did you mean broker-a?" in result.output


def test_a_port_of_something_else_is_said(cluster, run):
    result = run("ha", "status", "-n", cluster.ha_address, "--timeout", "1")
    assert result.exit_code == 2 and cluster.ha_address in result.output


def test_watch_is_for_a_terminal(cluster, run):
    result = run("ha", "status", "-n", cluster.namesrv, "--watch")
    assert result.exit_code == 2 and "--watch is for a terminal" in result.output


@pytest.mark.java
def test_lag_of_a_stopped_slave_of_a_49_master(make_namesrv, make_broker, java_driver, run):
    namesrv = make_namesrv("rmqha").address
    # a busy machine is no reason to refuse sends
    master = make_broker("java", namesrv, "master", brokerFastFailureEnable="false", osPageCacheBusyTimeOutMills=60_000)
    slave = make_broker("java", namesrv, "slave", brokerRole="SLAVE", brokerId=1, haMasterAddress=master.ha_address)
    java_driver.create_topic(namesrv, master.address, "T")
    load = Workload("T", 400, [1000])
    assert any(one.ok for one in java_driver.produce(namesrv, load.part(0, 200)))

    def slave_seen(**wanted):
        """The slave as `ha status` shows it, once all of `wanted` is so; a busy machine may need several looks."""
        def look():
            result = run("ha", "status", "-n", namesrv, "-o", "json", "--timeout", "3")
            views = json.loads(result.stdout) if result.stdout.startswith("[") else []
            slaves = [each for view in views if view["max_offset"] for each in view["slaves"]]
            return slaves[0] if slaves and all(slaves[0][key] == value for key, value in wanted.items()) else None
        return wait_until(look, 60_000, f"the slave is {wanted}")
    at = slave_seen(lag_bytes=0, broker_id=1)["ack_offset"]
    os.kill(slave.pid, signal.SIGSTOP)
    try:
        assert any(one.ok for one in java_driver.produce(namesrv, load.part(200, 200)))
        assert slave_seen(state="UNREACHABLE")["in_sync"] is False
    finally:
        os.kill(slave.pid, signal.SIGCONT)
    behind = slave_seen(lag_bytes=0)
    assert behind["ack_offset"] > at and behind["lag_seconds"] == 0.0 and behind["in_sync"] is True
    with ClusterAdmin(namesrv, 30_000) as admin:
        wait_until(lambda: len({admin.newest_store_timestamp(node.address) for node in (master, slave)}) == 1, 60_000,
                   "both tell the time of the same last message")


@pytest.mark.java
def test_master_of_49_that_has_just_started_tells_of_itself(make_namesrv, make_broker):
    master = make_broker("java", make_namesrv("rmqha").address, "master")
    with ClusterAdmin(timeout_millis=30_000) as admin:  # in its first second it answers with an exception
        assert admin.runtime_info(master.address)["commitLogMaxOffset"] == "0"


@pytest.mark.parametrize(("code", "text"), [
    (16, "refuses, no permission: not you. Ask with an account"),
    (1, "answers with error 1: not you"),
])
def test_broker_that_refuses_is_said(code, text):
    def refuse(*_arguments):
        raise MQBrokerException(code, "not you", "h:1")
    with ClusterAdmin() as admin:
        admin.api.get_broker_config = refuse
        with pytest.raises(RefusedError) as failed:
            admin.get_broker_config("h:1")
    assert text in failed.value.message and "the broker h:1" in failed.value.message


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60))
def test_any_body_of_an_answer_is_taken_or_refused(body):
    response = RemotingCommand.create_response_command(0, None)
    response.body = body
    with ClusterAdmin() as admin:
        admin.api.remoting_client.invoke_sync = lambda *_arguments: response
        for ask in (admin.ha_runtime_info, admin.runtime_info, admin.get_broker_config):
            try:
                ask("h:1")
            except CannotAnswerError as error:
                assert "the broker h:1" in error.message
