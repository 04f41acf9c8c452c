"""`ha switch`: the order of its steps, and its reports when a step is impossible."""
import pytest

from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import BrokerReplicasInfo, HARuntimeInfo, ReplicasInfo
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader, GetMetaDataResponseHeader
from rmqha.tools.admin.cluster_admin import NoAnswerError, RefusedError
from rmqha.tools.replication import switch as module
from rmqha.tools.replication.switch import switch
from rmqha.tools.terminal import CannotAnswerError, WorkFailedError
from tests.tools.replication.test_controllers import LEADER, ONE, POSITIONS, THREE, TWO, FakeAdmin, identity

IN_SYNC = ReplicasInfo(1, ONE, 3, 7, [identity(1, ONE), identity(2, TWO)], [identity(3, THREE, False)])
BEHIND = ReplicasInfo(1, ONE, 3, 6, [identity(1, ONE)], [identity(2, TWO), identity(3, THREE, False)])


class Replicas(FakeAdmin):
    """A controller and its replicas; `infos` are its answers in order, the last one repeatedly."""

    def __init__(self, *infos, hand_over=None, elect=None, roles=(False, True)):
        super().__init__(positions=POSITIONS)
        self.infos, self.done, self.roles = list(infos), [], list(roles)
        self._hand_over, self._elect = hand_over, elect

    def get_broker_config(self, _address):
        return {"brokerName": "broker-a", "brokerClusterName": "c", "enableControllerMode": "true",
                "controllerAddr": LEADER}

    def get_in_sync_state_data(self, _address, names):
        return BrokerReplicasInfo({names[0]: self.infos.pop(0) if len(self.infos) > 1 else self.infos[0]})

    def handover_master(self, address, broker_id, timeout_ms):
        self.done.append(("hand over", address, broker_id))
        assert 0 < timeout_ms <= 1_000
        if self._hand_over is not None:
            raise self._hand_over

    def elect_master(self, address, cluster, name, broker_id):
        self.done.append(("elect", address, cluster, name, broker_id))
        if self._elect is not None:
            raise self._elect
        return ElectMasterResponseHeader(broker_id, TWO, 4, 8), None

    def ha_runtime_info(self, _address):
        return HARuntimeInfo(master=self.roles.pop(0) if len(self.roles) > 1 else self.roles[0])


HAND_OVER, ELECT = ("hand over", ONE, 2), ("elect", LEADER, "c", "broker-a", 2)


class Clock:
    """Stands for the module time: only a sleep advances it."""

    def __init__(self):
        self.now_s = 1_000.0

    def monotonic(self):
        return self.now_s

    def sleep(self, pause_s):
        self.now_s += pause_s


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def run(admin, address=TWO, timeout_s=5.0):
    told = []
    return switch(admin, address, [], timeout_s, told.append), told


def test_master_hands_over_before_the_controller_elects():
    admin = Replicas(IN_SYNC)
    done, told = run(admin)
    assert admin.done == [HAND_OVER, ELECT] and told == []
    assert (done.old_master, done.new_master, done.epoch, done.broker) == (ONE, TWO, 4, "broker-a")


def test_it_waits_until_the_replica_is_in_sync():
    admin = Replicas(BEHIND, BEHIND, IN_SYNC)
    done, told = run(admin)
    assert done is not None and len(told) == 1 and told[0].startswith(f"waiting for {TWO}: it is not in the sync-state")


def test_replica_that_is_never_in_sync_changes_nothing():
    admin = Replicas(BEHIND)
    with pytest.raises(WorkFailedError, match="may not become the master.*nothing was changed"):
        run(admin, timeout_s=0)
    with pytest.raises(WorkFailedError, match="gets no heartbeat from it"):
        run(admin, THREE, timeout_s=0)
    assert admin.done == []


def test_replica_that_is_the_master_already_is_left_alone():
    admin = Replicas(IN_SYNC)
    assert run(admin, ONE) == (None, []) and admin.done == []


def test_master_of_rocketmq_is_switched_without_a_handover():
    admin = Replicas(IN_SYNC, hand_over=RefusedError("?", response_code.REQUEST_CODE_NOT_SUPPORTED))
    done, told = run(admin)
    assert done is not None and admin.done == [HAND_OVER, ELECT] and "does not support handover" in told[0]


@pytest.mark.parametrize("error", [RefusedError("slave 2 did not get there", response_code.SYSTEM_ERROR),
                                   NoAnswerError("the broker gives no answer")])
def test_master_that_does_not_hand_over_remains(error):
    admin = Replicas(IN_SYNC, hand_over=error)
    with pytest.raises(WorkFailedError, match="[Nn]othing was changed"):
        run(admin)
    assert admin.done == [HAND_OVER]


def test_failed_election_reports_the_next_steps():
    admin = Replicas(IN_SYNC, elect=RefusedError("no", response_code.CONTROLLER_MASTER_NOT_AVAILABLE))
    with pytest.raises(WorkFailedError, match="accepts messages again within 1 s"):
        run(admin)


def test_replica_that_does_not_become_the_master_is_reported(clock):
    begin_s = clock.now_s
    with pytest.raises(WorkFailedError, match=f"after {module._ROLE_S:g} s that is not the master"):
        run(Replicas(IN_SYNC, roles=(False,)))
    assert clock.now_s > begin_s + module._ROLE_S


def test_switch_without_a_deciding_controller_is_refused():
    admin = Replicas(IN_SYNC)
    admin.get_broker_config = lambda _address: {"brokerName": "broker-a"}
    with pytest.raises(CannotAnswerError, match="ha promote"):
        run(admin)
    with pytest.raises(CannotAnswerError, match=r"knows no replica of broker-a at 10.0.0.7:1; it knows 10.0.0.1"):
        run(Replicas(IN_SYNC), "10.0.0.7:1")
    admin = Replicas(IN_SYNC)
    admin.silent = (LEADER,)
    with pytest.raises(CannotAnswerError, match="no controller leads: the controller 10.0.0.9:9878 can't"):
        run(admin, timeout_s=0)


def test_it_waits_for_a_leading_controller():
    admin = Replicas(IN_SYNC)
    answers = [NoAnswerError("it was killed"), GetMetaDataResponseHeader(), None]
    meta_data = admin.get_controller_meta_data

    def asked(address):
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer or meta_data(address)
    admin.get_controller_meta_data = asked
    done, told = run(admin)
    assert done is not None and admin.done == [HAND_OVER, ELECT]
    assert told == ["waiting for a controller: no controller leads: it was killed",
                    "waiting for a controller: no controller leads"]


def test_it_waits_when_another_controller_has_become_the_leader():
    admin = Replicas(IN_SYNC)
    infos = [RefusedError("not the leader", response_code.CONTROLLER_NOT_LEADER)]
    replicas_info = admin.get_in_sync_state_data

    def asked(address, names):
        if infos:
            raise infos.pop()
        return replicas_info(address, names)
    admin.get_in_sync_state_data = asked
    done, told = run(admin)
    assert done is not None and told == ["waiting for a controller: the controllers are changing: not the leader"]


def test_it_retries_while_leases_of_an_earlier_controller_may_be_valid():
    admin = Replicas(IN_SYNC, elect=RefusedError("the lease may hold", response_code.CONTROLLER_ELECT_MASTER_FAILED))
    with pytest.raises(WorkFailedError, match="accepts messages again within 1 s"):
        run(admin, timeout_s=2.5 * module._AGAIN_S)
    assert admin.done == [HAND_OVER, ELECT] * 4  # at once, and after 1, 2 and 3 pauses
    refused, admin = [admin], Replicas(IN_SYNC)
    elect_master = admin.elect_master

    def elected(*args):
        if refused:
            raise refused.pop()._elect
        return elect_master(*args)
    admin.elect_master = elected
    done, told = run(admin)
    assert done is not None and told == ["waiting for the controller: the lease may hold"]
