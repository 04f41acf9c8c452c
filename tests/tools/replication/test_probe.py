"""`check ha --probe`: one message follows its way to the slaves of whom nobody tells, and there is a verdict."""
import logging

import pytest

from rmqha.common.protocol import response_code
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, RefusedError
from rmqha.tools.check_base import Status
from rmqha.tools.replication.judgement import Rules, judge, worst
from rmqha.tools.replication.reader import Group, Reader
from tests.support.in_process import running_name_server
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at
from tests.tools.replication.test_evidence import java_master, java_slave
from tests.tools.replication.test_replication import MASTER, OTHER, SLAVE, Answers

END, PROBED = 5000, 5200  # the master's log before the probe, and with it
AT = END  # the probe's offset


def verdict(master, brokers, refuses=False):
    """What is said of brokers of 4.9, which answer these one look after the other."""
    def probe(_master):
        if refuses:
            raise RefusedError("refused", response_code.NO_PERMISSION)
        return AT
    group = Group([MASTER, *brokers])
    answers = Answers(master=master, **{{SLAVE: "slave", OTHER: "other"}[each]: list(told)
                                        for each, told in brokers.items()})
    view, = Reader(answers, 0, probe, 0).read([group])
    return view, worst(judge(view, Rules()))


REST, WITH = java_master(END), java_master(PROBED)


@pytest.mark.parametrize(("slave", "state", "status"), [
    ([java_slave(END), java_slave(END), java_slave(PROBED)], "FOLLOWS", Status.OK),
    ([java_slave(END)] * 3, "STANDS_STILL", Status.CRITICAL),
    ([java_slave(END, "10.0.0.9:1"), java_slave(END, "10.0.0.9:1")], "STANDS_STILL", Status.CRITICAL),
    ([java_slave(END - 100)] * 3, "STANDS_STILL", Status.CRITICAL),
])
@pytest.mark.parametrize("flushed", [PROBED, PROBED + 1000])  # others may send, too
def test_the_probe_decides(slave, state, status, flushed):
    view, found = verdict([REST, REST, java_master(flushed)], {SLAVE: slave})
    assert (view.slaves[0].state, found) == (state, status), view.slaves[0]


def test_an_empty_pair_that_is_not_connected_is_critical():
    master = [java_master(0), java_master(0), java_master(200)]
    group = Group([MASTER, SLAVE])
    view, = Reader(Answers(master=master, slave=[java_slave(0)] * 3), 0, lambda _master: 0, 0).read([group])
    assert worst(judge(view, Rules())) is Status.CRITICAL and "the probe, a message at 0 of" in view.slaves[0].note


def test_each_slave_is_judged_by_itself():
    got, not_got = [java_slave(END), java_slave(END), java_slave(PROBED)], [java_slave(END)] * 3
    view, found = verdict([REST, REST, WITH], {SLAVE: got, OTHER: not_got})
    assert [slave.state for slave in view.slaves] == ["FOLLOWS", "STANDS_STILL"] and found is Status.CRITICAL


def test_a_probe_that_is_refused_leaves_it_unknown():
    view, found = verdict([REST] * 3, {SLAVE: [java_slave(END)] * 3}, refuses=True)
    assert found is Status.UNKNOWN and view.faults[0].text == "the probe failed: refused"


@pytest.mark.parametrize(("deleted", "topic"), [
    ([], "broker-a"), (["broker-a"], "C"), (["broker-a", "C"], "BenchmarkTest")])
def test_it_goes_to_a_topic_that_each_broker_has(tmp_path, deleted, topic):
    with broker_at(tmp_path, None, brokerClusterName="C", autoCreateTopicEnable=False) as broker, \
            ClusterAdmin() as admin:
        broker.send("BenchmarkTest", b"before")
        for name in deleted:
            broker.controller.topic_config_manager.delete_topic_config(name)
        before = set(broker.controller.topic_config_manager.topic_config_table)
        offset = admin.put_probe(Broker("C", "broker-a", 0, broker.address))
        end = broker.store.get_max_phy_offset()
        assert 0 < offset < end
        message = broker.store.look_message_by_offset(offset)
        assert (message.topic, bytes(message.body)) == (topic, b"rmqha check ha --probe")
        assert set(broker.controller.topic_config_manager.topic_config_table) == before


def test_a_broker_that_takes_nothing_says_so(tmp_path):
    with broker_at(tmp_path, None, brokerClusterName="C", autoCreateTopicEnable=False) as broker, \
            ClusterAdmin() as admin:
        for name in ("broker-a", "C", "BenchmarkTest"):
            broker.controller.topic_config_manager.delete_topic_config(name)
        with pytest.raises(RefusedError, match="topic\\[broker-a\\] not exist") as refused:
            admin.put_probe(Broker("C", "broker-a", 0, broker.address))
        assert refused.value.code == response_code.TOPIC_NOT_EXIST


@pytest.fixture
def namesrv(tmp_path):
    with running_name_server(tmp_path) as address:
        yield address


def test_a_slave_whose_name_no_master_has_is_warned_of(tmp_path, namesrv, run, caplog):
    with caplog.at_level(logging.INFO, "RocketmqBroker"), \
            broker_at(tmp_path / "master", namesrv, brokerClusterName="C", brokerName="orders"), \
            broker_at(tmp_path / "slave", namesrv, brokerClusterName="C", brokerName="order", brokerId=1,
                      brokerRole=BrokerRole.SLAVE) as slave:
        wait_until(lambda: slave.controller.registration.lacks_master, 60_000, "it knows")
        slave.controller.registration.register_broker_all(True, False, True)
        warned = [each for each in caplog.records if "no master of brokerName=order is registered" in each.getMessage()]
        assert [each.levelname for each in warned] == ["WARNING"]
        assert namesrv in warned[0].getMessage() and "nobody to follow" in warned[0].getMessage()
        line = run("check", "ha", "-n", namesrv, "--min-slaves", "0")
        assert line.exit_code == 2 and "no master of this name is registered; is orders meant?" in line.stdout
        with broker_at(tmp_path / "other", namesrv, brokerClusterName="C", brokerName="order"):
            slave.controller.registration.register_broker_all(True, False, True)
            assert not slave.controller.registration.lacks_master
