"""How a replica gets its id: interrupted at each step, refused, and forgotten by the controller."""
from pathlib import Path

import pytest

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.broker.controller.broker_id_registration import BrokerIdRegistration, RegisterState
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import RegisterBrokerToControllerResponseHeader
from rmqha.remoting.exception import RemotingTimeoutException
from rmqha.store.ha.autoswitch.epoch_file_cache import BrokerMetadataError


class FakeApi:
    """A controller's ids, with what goes wrong next."""

    def __init__(self) -> None:
        self.codes: dict[int, str] = {}  # check code by id
        self.next_id = 1
        self.failing: dict[str, Exception] = {}  # the next call of that name, after it was carried out
        self.asked: list[str] = []

    def _fail(self, name: str) -> None:
        self.asked.append(name)
        if name in self.failing:
            raise self.failing.pop(name)

    def get_next_broker_id(self, leader: str, cluster: str, name: str) -> int:
        self._fail("next")
        return self.next_id

    def apply_broker_id(self, leader, header) -> None:
        if self.codes.setdefault(header.appliedBrokerId, header.registerCheckCode) != header.registerCheckCode:
            raise BrokerAnswerException(response_code.CONTROLLER_BROKER_ID_INVALID, "taken", leader)
        self.next_id = max(self.codes) + 1
        self._fail("apply")

    def register_broker_to_controller(self, leader, header):
        if header.brokerId not in self.codes:
            raise BrokerAnswerException(response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "who?", leader)
        self._fail("register")
        return RegisterBrokerToControllerResponseHeader("c", "b"), SyncStateSet()


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def make(api: FakeApi, tmp_path: Path):
    def replica(name: str = "one", cluster: str = "c", broker: str = "b") -> BrokerIdRegistration:
        registration = BrokerIdRegistration(api, cluster, broker, str(tmp_path / name / "brokerIdentity"))
        registration.read_files()
        return registration
    return replica


def register(registration: BrokerIdRegistration):
    return registration.register("leader", "1.1.1.1:10911", "1.1.1.1:10912")


def test_each_replica_gets_an_id_of_its_own_and_keeps_it(make, tmp_path):
    one, two = make("one"), make("two")
    register(one)
    register(two)
    assert (one.broker_id, two.broker_id) == (1, 2)
    assert one.state is RegisterState.REGISTERED
    assert (tmp_path / "one" / "brokerIdentity").read_text() == "c#b#1"
    assert not (tmp_path / "one" / "brokerIdentity-temp").exists()
    again = make("two")
    assert again.state is RegisterState.CREATE_METADATA_FILE_DONE and again.broker_id == 2
    register(again)
    assert again.broker_id == 2


@pytest.mark.parametrize("step", ["next", "apply", "register"])
@pytest.mark.parametrize("restarted", [False, True])
def test_it_goes_on_where_it_was_interrupted(make, api, step, restarted):
    one = make()
    api.failing[step] = RemotingTimeoutException("leader", 10)
    with pytest.raises(RemotingTimeoutException):
        register(one)
    if restarted:
        one = make()
    register(one)
    assert one.broker_id == 1 and list(api.codes) == [1]


def test_an_id_that_another_one_has_taken_meanwhile_is_given_up(make, api):
    one, two = make("one"), make("two")
    api.failing["apply"] = RemotingTimeoutException("leader", 10)
    api.codes[1] = "somebody;1"
    with pytest.raises(BrokerAnswerException):
        register(one)  # it had asked before the other one's was known
    assert one.state is RegisterState.INITIAL
    api.failing.clear()
    api.next_id = 2
    register(one)
    register(two)
    assert (one.broker_id, two.broker_id) == (2, 3)


def test_a_controller_that_has_forgotten_a_replica_is_told_its_id_again(make, api):
    one = make()
    register(one)
    api.codes.clear()
    register(one)
    assert list(api.codes) == [1] and one.broker_id == 1


@pytest.mark.parametrize("text", ["", "c#b", "c#b#x", "other#b#1", "c#other#1"])
def test_the_file_of_another_broker_or_a_damaged_one_is_refused_by_name(make, tmp_path, text):
    path = tmp_path / "one" / "brokerIdentity"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BrokerMetadataError, match="brokerIdentity"):
        make()


def test_a_damaged_temporary_file_is_thrown_away(make, tmp_path):
    path = tmp_path / "one" / "brokerIdentity-temp"
    path.parent.mkdir()
    path.write_text("c#b#")
    assert make().state is RegisterState.INITIAL
    assert not path.exists()
