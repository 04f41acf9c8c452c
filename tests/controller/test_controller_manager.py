"""A controller in this process: its decisions, and the order in which brokers are notified."""
from types import SimpleNamespace

import pytest

from rmqha.common.configuration import ConfigError
from rmqha.common.protocol import request_code
from rmqha.common.protocol import response_code as code
from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.controller import notify_service
from rmqha.controller.local_store import NotLeaderError
from rmqha.controller.notify_service import Audience, NotifyService, RoleChange
from rmqha.remoting.exception import RemotingException
from tests.controller.support import LEASE_MS, NAME, FakeBroker, controller
from tests.support.ports import free_port
from tests.support.raw_remoting import RawClient
from tests.support.wait import at_least, lasting, stays, wait_until

# A controller in this process: its decisions when brokers send requests, fall silent, disconnect and return.

LONG_MS = 600_000  # longer than a test waits


@pytest.fixture
def world(tmp_path):
    """Yield a controller with functions for brokers: world.broker(1), world.restart()."""
    def broker(id_, **keys):
        made.append(FakeBroker(world.manager, id_, **keys))
        made[-1].register()
        return made[-1]

    def restart(**keys):
        world.manager.shutdown()
        world.manager = controller(tmp_path, world.port, **keys)

    def three():
        """Return three brokers: 1 is the master, 2 is in sync, 3 is not. Other controllers' leases have expired."""
        master, *slaves = (broker(id_) for id_ in (1, 2, 3))
        assert master.elect().code == code.SUCCESS
        assert master.alter([1, 2], 1).code == code.SUCCESS
        at_least(LEASE_MS / 1000)
        assert master.beat().fields["leaseMillis"] == str(LEASE_MS)
        return master, *slaves

    made, port = [], free_port()
    world = SimpleNamespace(manager=controller(tmp_path, port), port=port, broker=broker, restart=restart, three=three)
    yield world
    for each in made:
        each.die()
    world.manager.shutdown()


def test_first_master_and_its_lease(world):
    one, two = world.broker(1), world.broker(2)
    term = str(world.manager.controller.store.term)
    assert one.beat().fields == {"masterEpoch": "0", "leaseMillis": "0", "leaderTerm": term}
    assert one.elect().fields["masterBrokerId"] == "1"
    assert two.elect().code == code.CONTROLLER_MASTER_STILL_EXIST
    notice = two.wait_notified(1)
    assert (notice["masterAddress"], notice["masterHaAddress"]) == (one.address, "127.0.0.1:10001")
    is_master = {"masterBrokerId": "1", "masterEpoch": "1", "leaderTerm": term}
    assert one.beat().fields == {**is_master, "leaseMillis": str(LEASE_MS)}
    assert two.beat().fields == {**is_master, "leaseMillis": "0"}


def test_master_that_dies_is_replaced_at_once(world):
    master, two, three = world.three()
    master.beat(timeout_ms=LONG_MS)
    master.client.socket.close()
    assert two.wait_notified(2)["masterBrokerId"] == "2" == three.wait_notified(2)["masterBrokerId"]
    assert two.info().fields["masterBrokerId"] == "2"
    assert two.beat().fields["leaseMillis"] == str(LEASE_MS)


def test_hanging_master_is_replaced_after_its_timeout(world):
    master, two, _three = world.three()
    with lasting(0.4):
        master.beat(timeout_ms=400)
        assert two.wait_notified(2)["masterBrokerId"] == "2"
    assert master.client.is_closed_by_peer(120)


def test_no_broker_is_elected_while_a_hanging_master_has_a_lease(tmp_path, world):
    world.restart(maxLeaseMillis=1_000)
    master, two = world.broker(1), world.broker(2)
    master.elect()
    master.alter([1, 2], 1)
    at_least(1)
    with lasting(1):
        # Grants a lease of a second, which the next heartbeat does not shorten.
        master.beat(timeout_ms=60_000)
        master.beat(timeout_ms=100)
        two.wait_notified(2)


def test_new_leader_waits_for_the_previous_leaders_leases(world):
    master, two, three = world.three()
    with lasting(0.7):
        world.restart(maxLeaseMillis=700)
        two.connect_anew()
        two.beat()
        assert two.wait_notified(2)["masterBrokerId"] == "2"
    assert (master.id, three.notified[1:]) == (1, [])


def with_long_lease(world):
    """Return three brokers: 1 is the master, 2 is in sync, 3 is not. They follow a new leader with long leases."""
    brokers = world.three()
    world.restart(maxLeaseMillis=LONG_MS)
    for each in brokers:
        each.connect_anew()
        each.beat(timeout_ms=LONG_MS)
    return brokers


def test_new_leader_that_the_master_follows_waits_for_no_earlier_lease(world):
    master, two, _three = with_long_lease(world)
    term = master.beat(timeout_ms=LONG_MS).fields["leaderTerm"]
    assert master.wait_notified(1)["masterBrokerId"] == "1", "the new leadership is reported at once"
    master.beat(timeout_ms=LONG_MS, leaderTerm=term)
    master.client.socket.close()
    assert two.wait_notified(2)["masterBrokerId"] == "2"


def test_new_leader_switches_at_once_from_a_master_that_follows_it(world):
    _master, two, _three = with_long_lease(world)
    assert two.elect(designate=True).code == code.SUCCESS, "this controller has asked it since it leads"


def test_first_heartbeat_makes_a_leader_confirm_its_leadership(world, monkeypatch):
    master, _two, _three = world.three()
    store, asked = world.manager.controller.store, []

    def confirm(since_ns):
        asked.append(since_ns)
        raise NotLeaderError("another one does")
    monkeypatch.setattr(store, "confirm", confirm)
    assert master.beat().fields == {"leaseMillis": "0"} == master.beat(leaderTerm=store.term + 1).fields
    assert len(asked) == 2 and master.beat(leaderTerm=store.term).fields["leaseMillis"] == str(LEASE_MS)
    assert len(asked) == 2
    for answer in (master.info(), master.elect(), master.ask(request_code.CONTROLLER_GET_NEXT_BROKER_ID),
                   master.ask(request_code.CONTROLLER_GET_SYNC_STATE_DATA, [NAME]),
                   master.ask(request_code.CONTROLLER_REGISTER_BROKER, brokerId=1, brokerAddress=master.address)):
        assert answer.code == code.CONTROLLER_NOT_LEADER, "only a leader reads, too"
    assert master.alter([1, 2, 3], 2).code == code.SUCCESS


def test_set_without_a_master_gets_one_when_an_in_sync_broker_arrives(world):
    master, two, three = world.three()
    two.client.socket.close()
    wait_until(lambda: len(world.manager.liveness.all()) == 2)
    master.client.socket.close()
    wait_until(lambda: three.info().fields["masterEpoch"] == "2")
    assert "masterBrokerId" not in three.info().fields
    assert three.elect().code == code.CONTROLLER_ELECT_MASTER_FAILED
    two.connect_anew()
    two.beat()
    assert two.wait_notified(3)["masterBrokerId"] == "2"


def test_replaced_connection_ends_no_broker(world):
    master, two, _three = world.three()
    old = master.client
    master.client = RawClient(world.manager.address, 10)
    master.beat()
    old.socket.close()
    stays(lambda: two.info().fields["masterBrokerId"] == "1", 300)


def test_heartbeat_after_the_end_of_its_connection_revives_no_broker(world):
    master, two, _three = world.three()
    # in a row: heartbeats, and the end
    for _ in range(20):
        master.client.send(b"".join(heartbeats(master)))
        master.client.socket.close()
        wait_until(lambda: all(info.identity[2] != 1 for info in world.manager.liveness.all()))
        master.connect_anew()
    assert two.wait_notified(2)["masterBrokerId"] == "2"


def heartbeats(broker):
    from tests.support.raw_remoting import frame, header

    return [frame(header(request_code.BROKER_HEARTBEAT, number, clusterName="c", brokerName=NAME, brokerId=broker.id,
                         brokerAddr=broker.address, heartbeatTimeoutMills=10_000, haServerAddr="h:1"))
            for number in range(1, 51)]


def test_designated_master_takes_over_after_the_handover(world):
    master, two, _three = with_long_lease(world)
    answer = two.elect(designate=True)
    assert answer.code == code.SUCCESS and answer.fields["masterBrokerId"] == "2"
    assert master.handovers[0].ext_fields == {"brokerId": "2", "timeoutMillis": "1000"}
    assert master.wait_notified(2)["masterBrokerId"] == "2"


def test_slaves_of_rocketmq_are_notified_after_the_new_master_has_changed(world, monkeypatch):
    monkeypatch.setattr(notify_service, "_CHANGE_TIMEOUT_MS", LONG_MS)
    master, two, three = world.broker(1), world.broker(2), world.broker(3, takes_leases=False)
    master.elect()
    master.alter([1, 2, 3], 1)
    for each in (master, two, three):
        each.wait_notified(1)
    two.may_change.clear()
    assert two.elect(designate=True).code == code.SUCCESS
    assert master.wait_notified(2)["masterBrokerId"] == "2", "it need not send a request"
    stays(lambda: len(three.notified) == 1, 500)
    two.may_change.set()
    assert three.wait_notified(2)["masterBrokerId"] == "2"


def test_old_master_of_rocketmq_is_notified_before_the_new_one(world, monkeypatch):
    """While the old master is registered as the master, slaves of RocketMQ that look for one follow it and stay."""
    monkeypatch.setattr(notify_service, "_CHANGE_TIMEOUT_MS", LONG_MS)
    master, two, three = (world.broker(id_, takes_leases=False) for id_ in (1, 2, 3))
    master.elect()
    master.alter([1, 2, 3], 1)
    for each in (master, two, three):
        each.wait_notified(1)
    master.may_change.clear()
    two.may_change.clear()
    assert two.elect(designate=True).code == code.SUCCESS
    wait_until(lambda: len(master.notified) == 2)
    assert (len(two.notified), len(three.notified)) == (1, 1)
    refused = three.info()
    assert refused.code == code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert refused.remark == f"the brokers of {NAME} are being notified of a new master"
    master.may_change.set()
    wait_until(lambda: len(two.notified) == 2)
    assert len(three.notified) == 1 and three.info().code == code.CONTROLLER_MASTER_NOT_AVAILABLE
    two.may_change.set()
    assert three.wait_notified(2)["masterBrokerId"] == "2" == three.info().fields["masterBrokerId"]


def test_slaves_of_rocketmq_are_notified_of_a_master_that_does_not_answer(world, monkeypatch):
    monkeypatch.setattr(notify_service, "_CHANGE_TIMEOUT_MS", 100)
    master, two, three = world.broker(1), world.broker(2), world.broker(3, takes_leases=False)
    master.elect()
    master.alter([1, 2, 3], 1)
    two.may_change.clear()
    assert two.elect(designate=True).code == code.SUCCESS
    assert three.wait_notified(2)["masterBrokerId"] == "2"


def test_designated_master_is_not_elected_when_the_old_one_refuses(world):
    master, two, three = with_long_lease(world)
    master.hand_over_code = code.SYSTEM_ERROR
    answer = two.elect(designate=True)
    assert answer.code == code.CONTROLLER_ELECT_MASTER_FAILED and "did not hand over" in answer.remark
    assert three.elect(designate=True).remark.endswith("broker 3 is not in sync, only [1, 2]")
    assert len(master.handovers) == 1 and master.beat().fields["masterBrokerId"] == "1"


def test_master_of_rocketmq_is_replaced_without_asking_it(world):
    master, two = world.broker(1, takes_leases=False), world.broker(2)
    master.elect()
    master.alter([1, 2], 1)
    assert master.beat().fields["leaseMillis"] == "0"
    assert two.elect(designate=True).code == code.SUCCESS and master.handovers == []


def test_decisions_survive_a_restart_of_the_controller(world):
    one, _two, _three = world.three()
    world.restart()
    one.connect_anew()
    one.beat()
    answer = one.info()
    assert answer.fields["masterBrokerId"] == "1" and answer.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'


def test_controller_that_does_not_lead_only_accepts_heartbeats(world):
    one, *_others = world.three()
    world.manager.controller.store.shutdown()
    for answer in (one.info(), one.elect(), one.alter([1, 2, 3], 2),
                   one.ask(request_code.CONTROLLER_GET_NEXT_BROKER_ID),
                   one.ask(request_code.CONTROLLER_GET_SYNC_STATE_DATA, [NAME])):
        assert answer.code == code.CONTROLLER_NOT_LEADER
        assert answer.remark.startswith("The controller is not in leader state")
    answer = one.beat()
    assert answer.code == code.SUCCESS and answer.fields == {"leaseMillis": "0"}
    assert one.ask(request_code.CONTROLLER_GET_METADATA_INFO).fields["isLeader"] == "false"


def test_metadata_names_the_leader_and_the_group(world):
    fields = world.broker(1).ask(request_code.CONTROLLER_GET_METADATA_INFO).fields
    address = world.manager.address
    assert fields == {"group": "group1", "controllerLeaderId": "n0", "controllerLeaderAddress": address,
                      "isLeader": "true", "peers": f"n0:{address};"}


def test_settings_are_returned_and_changed(world, tmp_path):
    one = world.broker(1)
    client = one.client
    assert client.request(request_code.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true\n").code == 0
    assert world.manager.controller_config.enableElectUncleanMaster is True
    assert b"enableElectUncleanMaster=true\n" in client.request(request_code.GET_CONTROLLER_CONFIG).body
    assert b"etcdPassword" not in client.request(request_code.GET_CONTROLLER_CONFIG).body
    for text in (b"configStorePath=/x\n", b"controllerStorePath=/x\n", b"etcdPassword=x\n"):
        assert client.request(request_code.UPDATE_CONTROLLER_CONFIG, text).code == code.NO_PERMISSION
    assert client.request(request_code.UPDATE_CONTROLLER_CONFIG, b"scanNotActiveBrokerInterval=x\n").code == 1
    assert "enableElectUncleanMaster=true" in (tmp_path / "controller.properties").read_text()


def test_bad_requests_are_refused_with_a_remark(world):
    one = world.broker(1)
    assert one.client.request(9999).code == code.REQUEST_CODE_NOT_SUPPORTED
    assert one.client.request(request_code.CONTROLLER_GET_SYNC_STATE_DATA).code == code.SYSTEM_ERROR
    assert one.ask(request_code.BROKER_HEARTBEAT, brokerAddr="h:1").code == code.CONTROLLER_INVALID_REQUEST
    bad = one.client.request(request_code.CONTROLLER_ALTER_SYNC_STATE_SET, b"{", brokerName=NAME)
    assert bad.code == code.SYSTEM_ERROR and "Failed to decode the body" in bad.remark


def test_replicas_are_removed(world):
    one, two, three = world.three()
    refused = one.ask(request_code.CLEAN_BROKER_DATA, brokerControllerIdsToClean="3")
    assert refused.code == code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    three.client.socket.close()
    wait_until(lambda: len(world.manager.liveness.all()) == 2)
    assert one.ask(request_code.CLEAN_BROKER_DATA, brokerControllerIdsToClean="3").code == 0
    assert b'"notInSyncReplicas":[]' in two.ask(request_code.CONTROLLER_GET_SYNC_STATE_DATA, [NAME]).body


@pytest.mark.parametrize(("keys", "problem"), [
    ({"controllerDLegerPeers": None}, "controllerDLegerPeers: is missing"),
    ({"controllerDLegerSelfId": "n9"}, "controllerDLegerSelfId: 'n9' is not one of"),
    ({"controllerDLegerPeers": "n0-h:1;n1-h:2"}, "cannot share a file"),
])
def test_invalid_settings_stop_the_start(tmp_path, keys, problem):
    with pytest.raises(ConfigError, match=problem):
        controller(tmp_path, **keys)


# The order in which brokers are notified of a new master, without servers.

NOTIFY_NAME = "broker-a"
ALL = Audience("old:1", "new:1", ("ours:1",), ("slave:1", "slave:2"))


class World:
    """A client and a scheduled service whose tasks the test runs."""

    def __init__(self) -> None:
        self.notified: list[tuple[str, int]] = []
        self.tasks: list = []
        self.unreachable: set[str] = set()

    def invoke_sync(self, address, request, _timeout_ms):
        self.notified.append((address, request.custom_header.masterEpoch))
        if address in self.unreachable:
            raise RemotingException(f"connect to {address} failed")

    invoke_oneway = invoke_sync

    def schedule(self, task, _delay_ms):
        self.tasks.append(task)

    def wait_scheduled(self, count):
        wait_until(lambda: len(self.tasks) == count, what=f"{count} tasks, of {self.notified}")

    def epochs_of(self, address):
        return [epoch for each, epoch in self.notified if each == address]


@pytest.fixture
def notify_world():
    return World()


@pytest.fixture
def service(notify_world):
    one = NotifyService(notify_world, notify_world)
    yield one
    one.shutdown()


def change(epoch):
    return RoleChange(NotifyBrokerRoleChangedRequestHeader(masterAddress="new:1", masterEpoch=epoch),
                      SyncStateSet([2], epoch))


@pytest.mark.parametrize("unreachable", ["", "old:1", "new:1", "old:1 new:1"])
def test_old_master_then_new_master_then_slaves(notify_world, service, unreachable):
    notify_world.unreachable = set(unreachable.split())
    service.notify_in_turn(NOTIFY_NAME, ALL, change(1))
    notify_world.wait_scheduled(1)
    wait_until(lambda: len(notify_world.notified) == 3)
    assert notify_world.notified[0] == ("old:1", 1)
    assert sorted(notify_world.notified[1:]) == [("new:1", 1), ("ours:1", 1)]
    assert service.has_slaves_to_notify(NOTIFY_NAME) and not service.has_slaves_to_notify("other")
    notify_world.tasks[0]()
    wait_until(lambda: len(notify_world.notified) == 5)
    assert {address for address, _ in notify_world.notified[3:]} == set(ALL.later)
    assert not service.has_slaves_to_notify(NOTIFY_NAME)


def test_nothing_is_scheduled_without_slaves_of_rocketmq(notify_world, service):
    service.notify_in_turn(NOTIFY_NAME, Audience(None, "new:1", ("ours:1",), ()), change(1))
    wait_until(lambda: sorted(notify_world.notified) == [("new:1", 1), ("ours:1", 1)])
    assert not notify_world.tasks and not service.has_slaves_to_notify(NOTIFY_NAME)


@pytest.mark.parametrize("later", [ALL.later, ()], ids=["with slaves", "without"])
def test_slaves_are_not_notified_of_a_replaced_change(notify_world, service, later):
    service.notify_in_turn(NOTIFY_NAME, ALL, change(1))
    notify_world.wait_scheduled(1)
    service.notify_in_turn(NOTIFY_NAME, Audience(None, "new:1", (), later), change(2))
    wait_until(lambda: notify_world.epochs_of("new:1") == [1, 2])
    notify_world.tasks[0]()
    assert service.has_slaves_to_notify(NOTIFY_NAME) == bool(later)
    if later:
        notify_world.wait_scheduled(2)
        notify_world.tasks[1]()
        wait_until(lambda: notify_world.epochs_of("slave:1") and notify_world.epochs_of("slave:2"))
    assert notify_world.epochs_of("slave:1") == notify_world.epochs_of("slave:2") == ([2] if later else [])


def test_closed_pool_keeps_no_caller_waiting(notify_world, service):
    service.shutdown()
    service.notify_in_turn(NOTIFY_NAME, ALL, change(1))
    notify_world.tasks[0]()
    assert notify_world.notified == [] and not service.has_slaves_to_notify(NOTIFY_NAME)
