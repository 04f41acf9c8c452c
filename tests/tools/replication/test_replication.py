"""The view of replication from the answers of masters, slaves and name servers, and from a probe message."""
import logging
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.common.config_keys import base_type, config_keys, key_types
from rmqha.common.mix_all import property_text
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import HAConnectionRuntimeInfo, HARuntimeInfo
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, NoAnswerError, RefusedError, chosen
from rmqha.tools.check_base import Status
from rmqha.tools.doctor.cluster_checks import check_replication
from rmqha.tools.doctor.host_checks import Report
from rmqha.tools.replication import reader
from rmqha.tools.replication.ask import Told, ask_all
from rmqha.tools.replication.judgement import Rules, judge, worst
from rmqha.tools.replication.reader import (
    SHARED,
    Group,
    Reader,
    differing,
    read_broker,
    sample_offsets,
    told_slave,
    view_of,
)
from rmqha.tools.replication.status import RateMeter, as_json, render
from rmqha.tools.terminal import CannotAnswerError
from tests.support.in_process import running_name_server
from tests.support.tiers import drawn
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

# The view made of the answers of masters and slaves, whatever their kind.

MASTER = Broker("C", "a", 0, "10.0.0.1:10911")
SLAVE = Broker("C", "a", 1, "10.0.0.2:10911")
OTHER = Broker("C", "a", 2, "10.0.0.3:10911")


class Answers:
    """Stands for ClusterAdmin: address -> (config, runtime table, answer to 907, newest store time).

    A broker may be a list of those: one for each poll, the last one from then on.
    """

    timeout_millis = 60_000

    def __init__(self, records=None, **brokers):
        self._records = records or {}
        self._brokers = {name.replace("_", ".").replace("..", ":"): told for name, told in brokers.items()}

    def _told(self, address):
        for broker, told in ((MASTER, "master"), (SLAVE, "slave"), (OTHER, "other")):
            if broker.address == address and told in self._brokers:
                answers = self._brokers[told]
                return answers if isinstance(answers, tuple) else answers[0]
        raise NoAnswerError(f"the broker {address} can't be reached")

    def get_broker_config(self, address):
        return self._told(address)[0]

    def runtime_info(self, address):
        answer = self._told(address)[1]
        for answers in self._brokers.values():
            if isinstance(answers, list) and answers[0][1] is answer and len(answers) > 1:
                answers.pop(0)  # the last request of a poll
        return answer

    def ha_runtime_info(self, address):
        return self._told(address)[2]

    def view_record(self, address, offset):
        return self._records.get(address, b"same") if offset == 0 else b"same"

    def newest_store_timestamp(self, address, _deadline):
        return self._told(address)[3]


def read_group(admin, group):
    return reader.read_group(admin, group, patience_s=0)


def broker(role, end, info=None, newest=None, begin=0, config=None, **table):
    return ({"brokerRole": role, "brokerName": "a", "haSlaveFallbehindMax": "1000", **(config or {})},
            {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end), "brokerVersionDesc": "V", **table},
            info, newest)


def connection(address, acked, end, **fields):
    return HAConnectionRuntimeInfo(address, acked, end - acked, end - acked < 1000, **fields)


def master_of_5(end, *connections):
    return HARuntimeInfo(True, end, 0, list(connections))


def test_slaves_of_a_49_master_are_queried_themselves():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000, newest=9_000),
                              slave=[broker("SLAVE", 3000), broker("SLAVE", 3500, newest=2_500)]), [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.state, slave.ack_offset, slave.lag_bytes, slave.lag_seconds) == ("FOLLOWS", 3500, 1500, 6.5)
    assert slave.in_sync is False and slave.rate is None and slave.status is Status.OK


def test_connection_and_registered_slave_of_one_host_are_matched():
    info = master_of_5(5000, connection("10.0.0.2:40001", 4900, 5000, transferredByteInSecond=77))
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10_000),
                              slave=[broker("SLAVE", 4900, None, 9_000), broker("SLAVE", 4950, None, 9_000)]),
                      [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.address, slave.connection, slave.broker_id) == (SLAVE.address, "10.0.0.2:40001", 1)
    assert (slave.ack_offset, slave.lag_bytes, slave.lag_seconds, slave.rate) == (4900, 100, 1.0, 77)
    assert (slave.state, slave.in_sync) == ("CONNECTED", True)


def test_state_and_time_reported_by_an_rmqha_master_are_used():
    info = master_of_5(5000, connection("10.0.0.2:40001", 4000, 5000))
    told = {"haSlave_10.0.0.2:40001": "TRANSFER,4000,1000,5,6,x", "haSlaveLagMs_10.0.0.2:40001": "1234"}
    (slave,) = read_broker(Answers(master=broker("SYNC_MASTER", 5000, info, **told)), MASTER).slaves
    assert (slave.state, slave.lag_seconds, slave.in_sync) == ("TRANSFER", 1.234, False)


def test_slave_without_a_connection_is_shown():
    info = master_of_5(5000, connection("10.0.0.2:40001", 5000, 5000))
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10), slave=broker("SLAVE", 5000),
                              other=broker("SLAVE", 100, None, 5)), [MASTER, SLAVE, OTHER])
    assert [(slave.address, slave.state) for slave in view.slaves] == [(SLAVE.address, "CONNECTED"),
                                                                       (OTHER.address, "NOT_CONNECTED")]
    told = broker("SLAVE", 100, haClientState="APPEND_FAILED", haClientLastError="disk is full")
    view = read_group(Answers(master=broker("SYNC_MASTER", 5000, info, 10), slave=broker("SLAVE", 5000), other=told),
                      [MASTER, SLAVE, OTHER])
    assert (view.slaves[1].state, view.slaves[1].note) == ("APPEND_FAILED", "disk is full")


def test_slave_with_another_first_record_has_diverged():
    records = {SLAVE.address: b"other"}
    view = read_group(Answers(records, master=broker("ASYNC_MASTER", 5000), slave=broker("SLAVE", 5000)),
                      [MASTER, SLAVE])
    assert [(slave.state, slave.status) for slave in view.slaves] == [("DIVERGED", Status.CRITICAL)]
    assert "its record at offset 0 differs from its master's" in render(view)


def told(begin, end, **config):
    return Told(MASTER, {"mappedFileSizeCommitLog": "1000", **config},
                {"commitLogMinOffset": str(begin), "commitLogMaxOffset": str(end)})


@pytest.mark.parametrize(("master", "slave", "offsets"), [
    (told(0, 5000), told(0, 3500), [0, 3000]),
    (told(0, 5000), told(0, 3000), [0, 2000]),
    (told(0, 500), told(0, 300), [0]),
    (told(2000, 5000), told(0, 3500), [2000, 3000]),
    (told(2000, 5000), told(0, 1500), []),
    (told(0, 5000), told(0, 0), []),
    (told(0, 5000), told(0, 5000, mappedFileSizeCommitLog="2000"), []),
])
def test_samples_are_at_starts_of_files_that_both_hold(master, slave, offsets):
    assert sample_offsets(master, slave) == offsets


def test_slave_that_does_not_answer_is_shown():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000, newest=9_000)), [MASTER, SLAVE])
    assert [(slave.state, slave.in_sync) for slave in view.slaves] == [("UNREACHABLE", False)]


def test_slave_ahead_of_its_master_is_not_healthy():
    view = read_group(Answers(master=broker("ASYNC_MASTER", 5000), slave=broker("SLAVE", 6000)), [MASTER, SLAVE])
    (slave,) = view.slaves
    assert (slave.state, slave.lag_bytes, slave.lag_seconds, slave.in_sync) == ("AHEAD", -1000, None, False)
    assert "1000 bytes more than its master" in render(view)


def test_refused_slaves_are_shown_with_the_reason():
    table = {"haRefusedSlave_10.0.0.9_7000": "7000,0,5000", "haRefusedSlave_fd00::1_5": "5,100,5000"}
    view = read_broker(Answers(master=broker("SYNC_MASTER", 5000, master_of_5(5000), **table)), MASTER)
    assert [each.address for each in view.refused] == ["10.0.0.9", "fd00::1"]
    diverged = read_broker(Answers(master=broker("SYNC_MASTER", 5000, None, haRefusedSlave_h_9="4000,0,5000")), MASTER)
    assert "REFUSED h: its log diverged: somewhere before 4000" in render(diverged)
    text = render(view)
    assert "REFUSED 10.0.0.9: it is ahead of the master: it requests 7000, but the master ends at 5000" in text
    assert "REFUSED fd00::1: it is too far behind: it requests 5, but the master begins at 100" in text
    assert "is ahead" in as_json(view)["refused"][0]["reason"]


def test_unreachable_master_and_slaves_without_one_are_reported():
    view = read_group(Answers(), [MASTER])
    assert "UNREACHABLE: the broker 10.0.0.1:10911 can't be reached" in render(view)
    view = read_group(Answers(slave=broker("SLAVE", 5000)), [SLAVE])
    assert "no master of this name is registered" in render(view) and view.slaves[0].ack_offset == 5000


def test_rate_of_a_slave_is_computed_from_two_polls():
    def look(end):
        return read_group(Answers(master=broker("ASYNC_MASTER", 9000), slave=broker("SLAVE", end)), [MASTER, SLAVE])
    meter, first, second = RateMeter(), look(1000), look(4000)
    meter.fill_in([first], 10.0)
    meter.fill_in([second], 12.0)
    assert (first.slaves[0].rate, second.slaves[0].rate) == (None, 1500)


@pytest.mark.parametrize(("cluster", "name", "text"), [
    ("D", None, "no cluster 'D' at the name server; it knows C"),
    (None, "10.0.0.1:10912", "did you mean 10.0.0.1:10911?"),
    (None, "zzz", "no broker 'zzz' at the name server; it knows"),
])
def test_unknown_names_get_a_suggestion(cluster, name, text):
    with pytest.raises(CannotAnswerError) as failed:
        chosen([MASTER, SLAVE], cluster, name)
    assert text in failed.value.message


def test_broker_may_be_given_by_name_or_any_of_its_addresses():
    lone = Broker("C", "b", 0, "10.0.0.4:10911")
    for name in ("a", MASTER.address, SLAVE.address):
        assert chosen([MASTER, SLAVE, lone], "C", name) == [MASTER, SLAVE]


@settings(max_examples=drawn(200), deadline=None)
@given(st.dictionaries(st.sampled_from(["commitLogMaxOffset", "haRefusedSlave_h_1", "haRefusedSlave_", "haSlave_h:1",
                                        "haSlaveLagMs_h:1", "haClientState", "commitLogMinOffset"]), st.text()),
       st.dictionaries(st.sampled_from(["brokerId", "brokerRole", "haSlaveFallbehindMax"]), st.text()))
def test_any_answer_is_shown_or_refused(table, config):
    answer = ({**config}, table, master_of_5(5, connection("h:1", 1, 5)), None)
    try:
        render(read_group(Answers(master=answer, slave=answer), [MASTER, SLAVE]))
    except CannotAnswerError as error:
        assert "not a 64-bit number" in error.message


# Differing settings of replicas: the commands that report them, and the settings.

BROKERS = [Broker("C", "a", number, f"10.0.0.{number + 1}:10911") for number in range(3)]


def settings_told(broker, table=None, **config):
    role = "SYNC_MASTER" if broker.is_master else "SLAVE"
    return Told(broker, {"brokerName": "a", "brokerId": str(broker.broker_id), "brokerRole": role, **config},
                {"commitLogMaxOffset": "0", "commitLogMinOffset": "0", **(table or {})})


def problems(*configs, **common):
    group = Group(BROKERS[:len(configs)])
    group.looks.append({broker: settings_told(broker, **common, **config) for broker,
                        config in zip(group.brokers, configs)})
    group.times.append(0.0)
    found = judge(view_of(group, told_slave, lambda _address, _told: None), Rules())
    return [each for each in found if "settings differ" in each.text]


@pytest.mark.parametrize("key", SHARED)
@pytest.mark.parametrize("switch", ["enableControllerMode", "enableAutoSwitchHA"])
def test_each_shared_setting_missing_at_one_replica_is_a_warning(key, switch):
    if key == "enableControllerMode":
        configs = [{key: "true"}, {key: "true"}, {key: "false"}]
    else:
        configs = [{key: "7", switch: "true"}, {key: "7", switch: "true"}, {key: "8", switch: "true"}]
    found, = problems(*configs)
    value, other = configs[0][key], configs[2][key]
    assert found.status is Status.WARNING
    assert found.text == (f"a: settings differ: {key}={value} at 10.0.0.1:10911 and 10.0.0.2:10911, {other} at "
                          "10.0.0.3:10911")
    assert "-b HOST:PORT for each one (-c reaches only the current master)" in found.todo


def test_equal_settings_and_those_of_fixed_roles_are_no_problem():
    assert problems({"minInSyncReplicas": "2"}, {"minInSyncReplicas": "2"}, enableControllerMode="true") == []
    assert problems({"minInSyncReplicas": "2"}, {}) == []
    assert problems({"minInSyncReplicas": "2"}, {}, enableAutoSwitchHA="true") != []
    assert problems({"minInSyncReplicas": "1"}, {}, enableAutoSwitchHA="true") == []  # the default


def test_order_of_controllers_does_not_matter():
    one, other = {"controllerAddr": "x:1;y:2"}, {"controllerAddr": "y:2; x:1;"}
    assert problems(one, other, enableControllerMode="true") == []


def test_broker_that_does_not_answer_is_not_compared():
    assert differing({"a": {"minInSyncReplicas": "2"}, "b": {}}) == []


def test_every_key_about_in_sync_replicas_is_shared():
    """Find new keys of that kind, which have to be listed, too."""
    types = key_types(MessageStoreConfig)
    kind = {key for key, item in config_keys(MessageStoreConfig).items()
            if "InSync" in key and base_type(types[item.name]) is not str}
    assert kind and kind <= set(SHARED)


def test_check_and_doctor_report_differing_settings_of_a_running_pair(cluster, run):
    """With fixed roles only the doctor reports them, as a note; with changing roles both commands do."""
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


# The state of a slave from the answers of master, slave and name server: each broken pair, and the healthy ones.

HA = {"brokerIP2": "10.0.0.1", "haListenPort": "10912", "haSendHeartbeatInterval": "5000"}
END = "10.0.0.2:40001"  # the slave's end of its connection


def java_master(end, **table):
    return broker("ASYNC_MASTER", end, config=HA, **table)


def our_master(end, acked=None, address=END, **table):
    """Return an rmqha master with a connection that has acknowledged `acked`."""
    told = {f"haSlave_{address}": f"TRANSFER,{acked},0,0,0,{address.partition(':')[0]}"} if acked is not None else {}
    connections = [connection(address, acked, end)] if acked is not None else []
    return broker("ASYNC_MASTER", end, master_of_5(end, *connections), config=HA, **told, **table)


def our_slave(end, state="TRANSFER", address=END, follows="10.0.0.1:10912", **table):
    return broker("SLAVE", end, config=HA, haClientState=state, haClientAddress=address, haMasterAddress=follows,
                  **{"haClientSilenceMs": "100", "haClientLastError": "", **table})


def java_slave(end, follows=None, **config):
    return broker("SLAVE", end, config={**HA, **({"haMasterAddress": follows} if follows else {}), **config})


CRITICAL, UNKNOWN, WARNING, OK = Status.CRITICAL, Status.UNKNOWN, Status.WARNING, Status.OK


@pytest.mark.parametrize(("master", "slave", "state", "status"), [
    # healthy
    (our_master(5000, 5000), our_slave(5000), "TRANSFER", OK),
    (our_master(5000, 5000), java_slave(5000), "TRANSFER", OK),
    (java_master(5000), our_slave(5000), "TRANSFER", OK),
    ([java_master(5000), java_master(6000)], [java_slave(5000), java_slave(6000)], "FOLLOWS", OK),
    # no server reports it
    (java_master(5000), java_slave(5000), "IDLE", UNKNOWN),
    (java_master(0), java_slave(0), "IDLE", UNKNOWN),
    # never connected
    (our_master(5000), our_slave(0, "READY", "", haClientLastError="refused"), "NOT_CONNECTED", CRITICAL),
    (our_master(5000), java_slave(0), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), our_slave(0, "READY", ""), "NOT_CONNECTED", CRITICAL),
    (java_master(0), our_slave(0, "READY", "10.0.0.2:4"), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), java_slave(0), "STANDS_STILL", CRITICAL),
    # one direction only
    (our_master(5000, 5000), our_slave(5000, haClientSilenceMs="11500"), "SILENT", CRITICAL),
    (our_master(5000, 5000, **{f"haSlaveSilenceMs_{END}": "11500"}), our_slave(5000), "SILENT", CRITICAL),
    (our_master(5000, 5000, **{f"haSlaveRetransmits_{END}": "4"}), java_slave(5000), "SILENT", CRITICAL),
    (java_master(5000), our_slave(5000, haClientRetransmits="5"), "SILENT", CRITICAL),
    (our_master(5000, 4000), our_slave(4000), "STANDS_STILL", CRITICAL),
    # logs that do not match
    (java_master(5000), java_slave(6000), "AHEAD", CRITICAL),
    (broker("ASYNC_MASTER", 5000, config=HA, begin=3000), java_slave(2000), "TOO_FAR_BEHIND", CRITICAL),
    (our_master(5000, 5000), our_slave(5000, haDivergedReason="index", haDivergedOffset="7"), "DIVERGED", CRITICAL),
    (our_master(5000), our_slave(4000, "OFFSET_REFUSED"), "OFFSET_REFUSED", CRITICAL),
    (our_master(5000), our_slave(4000, "APPEND_FAILED"), "APPEND_FAILED", CRITICAL),
    # another broker
    (our_master(5000), our_slave(4000, follows="10.0.0.9:10912"), "NOT_CONNECTED", CRITICAL),
    (java_master(5000), our_slave(5000, follows="10.0.0.3:10912"), "IDLE", UNKNOWN),
    (java_master(5000), java_slave(5000, "10.0.0.9:10912"), "IDLE", UNKNOWN),
    ([java_master(5000), java_master(6000)], [java_slave(5000, "10.0.0.9:1"), java_slave(6000, "10.0.0.9:1")],
     "FOLLOWS", WARNING),
    (our_master(5000, 5000), java_slave(5000, brokerName="b"), "NO_SLAVE", CRITICAL),
    (our_master(5000, 5000), broker("ASYNC_MASTER", 5000, config=HA), "NO_SLAVE", CRITICAL),
])
def test_slave_has_only_the_proven_state(master, slave, state, status):
    view = read_group(Answers(master=master, slave=slave), [MASTER, SLAVE])
    assert (view.slaves[0].state, view.slaves[0].status) == (state, status), view.slaves[0].note
    assert status is OK or view.slaves[0].note
    assert status is not CRITICAL or view.slaves[0].in_sync is False


@pytest.mark.parametrize("slave", [our_slave(0, "READY", ""), java_slave(3000), java_slave(0)])
def test_receiver_on_the_slaves_host_does_not_hide_a_disconnected_slave(slave):
    view = read_group(Answers(master=our_master(5000, 1), slave=slave), [MASTER, SLAVE])
    one, stranger = view.slaves
    assert (one.state, one.status) == ("NOT_CONNECTED", CRITICAL)
    assert (stranger.registered, stranger.counts, stranger.status) == (False, False, WARNING)


def test_slave_that_identifies_itself_counts_although_it_is_not_registered():
    master = our_master(5000, 5000)
    master[1][f"haSlave_{END}"] = "TRANSFER,5000,0,0,0,C/a/1"
    (stranger,) = read_group(Answers(master=master), [MASTER]).slaves
    assert (stranger.registered, stranger.counts, stranger.status) == (False, True, WARNING)


def test_connection_from_another_host_may_be_the_slaves_but_proves_nothing():
    view = read_group(Answers(master=our_master(5000, 5000, "10.9.9.9:1"), slave=java_slave(5000)), [MASTER, SLAVE])
    assert (view.slaves[0].state, view.slaves[0].status) == ("IDLE", UNKNOWN)


def test_master_at_another_address_is_asked_for_its_identity():
    other = broker("ASYNC_MASTER", 7000, config={**HA, "brokerName": "b", "brokerId": "0"})
    view = read_group(Answers(master=java_master(5000), slave=our_slave(4000, follows="10.0.0.3:10912"), other=other),
                      [MASTER, SLAVE])
    assert view.slaves[0].state == "OTHER_MASTER" and "that is b 0 at 10.0.0.3:10911" in view.slaves[0].note


def test_broker_that_refuses_the_request_is_unknown_and_not_bad():
    class Refusing(Answers):
        def get_broker_config(self, address):
            if address == SLAVE.address:
                raise RefusedError("no permission", 16)
            return super().get_broker_config(address)
    view = read_group(Refusing(master=java_master(5000)), [MASTER, SLAVE])
    assert [(each.state, each.status) for each in view.slaves] == [("NOT_TOLD", UNKNOWN)]
    view = read_group(Refusing(slave=java_slave(5)), [SLAVE])
    assert view.error == "no master of this name is registered"


def test_probe_message_reveals_the_state_of_an_idle_pair():
    sent = []
    answers = Answers(master=[java_master(5000), java_master(6000)], slave=[java_slave(5000), java_slave(5000),
                                                                           java_slave(6000)])
    (view,) = Reader(answers, 30, sent.append).read([Group([MASTER, SLAVE])])
    assert sent == [MASTER] and [(each.state, each.status) for each in view.slaves] == [("FOLLOWS", OK)]


def test_two_brokers_with_one_id_are_a_fault():
    twin = type(SLAVE)("C", "a", 1, OTHER.address)
    view = read_group(Answers(master=our_master(5000), slave=our_slave(5000), other=our_slave(5000)),
                      [MASTER, SLAVE, twin])
    assert [fault.status for fault in view.faults] == [CRITICAL] and "a 1 is listed at" in view.faults[0].text


def test_frozen_broker_delays_no_other_answer():
    released = threading.Event()

    class Standing(Answers):
        timeout_millis = 200

        def get_broker_config(self, address):
            if address == SLAVE.address:
                released.wait(240)
            return super().get_broker_config(address)
    look = ask_all(Standing(master=java_master(5000), slave=java_slave(5000)), [MASTER, SLAVE])
    released.set()
    assert look[MASTER].answered and not look[SLAVE].alive and "is too slow" in look[SLAVE].error


# `check ha --probe`: one message goes to the slaves that no server reports, and there is a verdict.

PROBE_END, PROBED = 5000, 5200  # the master's log before and after the probe
AT = PROBE_END  # the probe's offset


def verdict(master, brokers, refuses=False):
    """Return the verdict about brokers of 4.9 that give these answers, one at each poll."""
    def probe(_master):
        if refuses:
            raise RefusedError("refused", response_code.NO_PERMISSION)
        return AT
    group = Group([MASTER, *brokers])
    answers = Answers(master=master, **{{SLAVE: "slave", OTHER: "other"}[each]: list(told)
                                        for each, told in brokers.items()})
    view, = Reader(answers, 0, probe, 0).read([group])
    return view, worst(judge(view, Rules()))


REST, WITH = java_master(PROBE_END), java_master(PROBED)


@pytest.mark.parametrize(("slave", "state", "status"), [
    ([java_slave(PROBE_END), java_slave(PROBE_END), java_slave(PROBED)], "FOLLOWS", Status.OK),
    ([java_slave(PROBE_END)] * 3, "STANDS_STILL", Status.CRITICAL),
    ([java_slave(PROBE_END, "10.0.0.9:1"), java_slave(PROBE_END, "10.0.0.9:1")], "STANDS_STILL", Status.CRITICAL),
    ([java_slave(PROBE_END - 100)] * 3, "STANDS_STILL", Status.CRITICAL),
])
@pytest.mark.parametrize("flushed", [PROBED, PROBED + 1000])  # other clients may send, too
def test_probe_decides(slave, state, status, flushed):
    view, found = verdict([REST, REST, java_master(flushed)], {SLAVE: slave})
    assert (view.slaves[0].state, found) == (state, status), view.slaves[0]


def test_empty_pair_that_is_not_connected_is_critical():
    master = [java_master(0), java_master(0), java_master(200)]
    group = Group([MASTER, SLAVE])
    view, = Reader(Answers(master=master, slave=[java_slave(0)] * 3), 0, lambda _master: 0, 0).read([group])
    assert worst(judge(view, Rules())) is Status.CRITICAL and "the probe, a message at 0 of" in view.slaves[0].note


def test_each_slave_is_judged_separately():
    got, not_got = [java_slave(PROBE_END), java_slave(PROBE_END), java_slave(PROBED)], [java_slave(PROBE_END)] * 3
    view, found = verdict([REST, REST, WITH], {SLAVE: got, OTHER: not_got})
    assert [slave.state for slave in view.slaves] == ["FOLLOWS", "STANDS_STILL"] and found is Status.CRITICAL


def test_refused_probe_leaves_the_state_unknown():
    view, found = verdict([REST] * 3, {SLAVE: [java_slave(PROBE_END)] * 3}, refuses=True)
    assert found is Status.UNKNOWN and view.faults[0].text == "the probe failed: refused"


@pytest.mark.parametrize(("deleted", "topic"), [
    ([], "broker-a"), (["broker-a"], "C"), (["broker-a", "C"], "BenchmarkTest")])
def test_probe_uses_a_topic_that_each_broker_has(tmp_path, deleted, topic):
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


def test_probe_without_a_usable_topic_is_refused(tmp_path):
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


def test_slave_under_a_name_without_a_master_causes_a_warning(tmp_path, namesrv, run, caplog):
    with caplog.at_level(logging.INFO, "RocketmqBroker"), \
            broker_at(tmp_path / "master", namesrv, brokerClusterName="C", brokerName="orders"), \
            broker_at(tmp_path / "slave", namesrv, brokerClusterName="C", brokerName="order", brokerId=1,
                      brokerRole=BrokerRole.SLAVE) as slave:
        wait_until(lambda: slave.controller.registration.lacks_master, 60_000, "it knows")
        slave.controller.registration.register_broker_all(True, False, True)
        warned = [each for each in caplog.records if "no master of brokerName=order is registered" in each.getMessage()]
        assert [each.levelname for each in warned] == ["WARNING"]
        assert namesrv in warned[0].getMessage() and "no master to follow" in warned[0].getMessage()
        line = run("check", "ha", "-n", namesrv, "--min-slaves", "0")
        assert line.exit_code == 2 and "no master of this name is registered; did you mean orders?" in line.stdout
        with broker_at(tmp_path / "other", namesrv, brokerClusterName="C", brokerName="order"):
            slave.controller.registration.register_broker_all(True, False, True)
            assert not slave.controller.registration.lacks_master
