"""Settings of replicas that differ: who reports them, and which."""
import pytest

from rmqha.common.config_keys import base_type, config_keys, key_types
from rmqha.common.mix_all import property_text
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.check_base import Status
from rmqha.tools.doctor.cluster_checks import check_replication
from rmqha.tools.doctor.host_checks import Report
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.judgement import Rules, judge
from rmqha.tools.replication.reader import SHARED, Group, differing, told_slave, view_of
from tests.support.wait import wait_until

BROKERS = [Broker("C", "a", number, f"10.0.0.{number + 1}:10911") for number in range(3)]


def told(broker, table=None, **config):
    role = "SYNC_MASTER" if broker.is_master else "SLAVE"
    return Told(broker, {"brokerName": "a", "brokerId": str(broker.broker_id), "brokerRole": role, **config},
                {"commitLogMaxOffset": "0", "commitLogMinOffset": "0", **(table or {})})


def problems(*configs, **common):
    group = Group(BROKERS[:len(configs)])
    group.looks.append({broker: told(broker, **common, **config) for broker, config in zip(group.brokers, configs)})
    group.times.append(0.0)
    found = judge(view_of(group, told_slave, lambda _address, _told: None), Rules())
    return [each for each in found if "settings differ" in each.text]


@pytest.mark.parametrize("key", SHARED)
@pytest.mark.parametrize("switch", ["enableControllerMode", "enableAutoSwitchHA"])
def test_each_shared_setting_that_one_replica_lacks_is_a_warning(key, switch):
    if key == "enableControllerMode":
        configs = [{key: "true"}, {key: "true"}, {key: "false"}]
    else:
        configs = [{key: "7", switch: "true"}, {key: "7", switch: "true"}, {key: "8", switch: "true"}]
    found, = problems(*configs)
    value, other = configs[0][key], configs[2][key]
    assert found.status is Status.WARNING
    assert found.text == (f"a: settings differ: {key}={value} at 10.0.0.1:10911 and 10.0.0.2:10911, {other} at "
                          "10.0.0.3:10911")
    assert "-b HOST:PORT for each replica (-c reaches the present master only)" in found.todo


def test_settings_that_are_alike_or_of_fixed_roles_are_no_problem():
    assert problems({"minInSyncReplicas": "2"}, {"minInSyncReplicas": "2"}, enableControllerMode="true") == []
    assert problems({"minInSyncReplicas": "2"}, {}) == []
    assert problems({"minInSyncReplicas": "2"}, {}, enableAutoSwitchHA="true") != []
    assert problems({"minInSyncReplicas": "1"}, {}, enableAutoSwitchHA="true") == []  # the default


def test_controllers_are_a_set():
    one, other = {"controllerAddr": "x:1;y:2"}, {"controllerAddr": "y:2; x:1;"}
    assert problems(one, other, enableControllerMode="true") == []


def test_who_gives_no_answer_is_not_compared():
    assert differing({"a": {"minInSyncReplicas": "2"}, "b": {}}) == []


def test_every_key_about_replicas_in_sync_is_shared():
    """A new key of that kind has to be listed, too."""
    types = key_types(MessageStoreConfig)
    kind = {key for key, item in config_keys(MessageStoreConfig).items()
            if "InSync" in key and base_type(types[item.name]) is not str}
    assert kind and kind <= set(SHARED)


def test_check_and_doctor_report_a_running_pairs(cluster, run):
    """Of roles that stay doctor alone, as a note; of roles that change both."""
    def asked(key, value, *nodes):
        for node in nodes:
            config = node.controller.message_store_config
            setattr(config, key, value)

    def notes():
        report = Report()
        with ClusterAdmin(cluster.namesrv) as admin:
            check_replication(admin, admin.brokers(), True, report)
        return [(each.severity.name, each.what) for each in report.findings if "settings differ" in each.what]

    before = cluster.master.controller.message_store_config.minInSyncReplicas
    wait_until(lambda: run("check", "ha", "-n", cluster.namesrv).exit_code == 0, 60_000)
    try:
        asked("minInSyncReplicas", 2, cluster.master)
        (severity, text), = notes()
        assert severity == "NOTE" and text.startswith("settings differ: minInSyncReplicas=")
        assert run("check", "ha", "-n", cluster.namesrv).exit_code == 0
        asked("enableAutoSwitchHA", True, cluster.master, cluster.slave)
        line = run("check", "ha", "-n", cluster.namesrv)
        assert line.exit_code == 1 and "broker-a: settings differ: minInSyncReplicas=" in line.stdout
        assert notes()[0][0] == "WARNING"
        assert "settings differ" in run("ha", "status", "-n", cluster.namesrv).stdout
    finally:
        asked("minInSyncReplicas", before, cluster.master)
        asked("enableAutoSwitchHA", False, cluster.master, cluster.slave)
    assert property_text(before) == "1"
