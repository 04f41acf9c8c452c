"""In which order brokers are notified of a new master, without servers."""
import pytest

from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.controller.notify_service import Audience, NotifyService, RoleChange
from rmqha.remoting.exception import RemotingException
from tests.support.wait import wait_until

NAME = "broker-a"
ALL = Audience("old:1", "new:1", ("ours:1",), ("slave:1", "slave:2"))


class World:
    """A client, and a scheduled service that waits until the test runs its tasks."""

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
def world():
    return World()


@pytest.fixture
def service(world):
    one = NotifyService(world, world)
    yield one
    one.shutdown()


def change(epoch):
    return RoleChange(NotifyBrokerRoleChangedRequestHeader(masterAddress="new:1", masterEpoch=epoch),
                      SyncStateSet([2], epoch))


@pytest.mark.parametrize("unreachable", ["", "old:1", "new:1", "old:1 new:1"])
def test_old_master_then_new_master_then_slaves(world, service, unreachable):
    world.unreachable = set(unreachable.split())
    service.notify_in_turn(NAME, ALL, change(1))
    world.wait_scheduled(1)
    wait_until(lambda: len(world.notified) == 3)
    assert world.notified[0] == ("old:1", 1)
    assert sorted(world.notified[1:]) == [("new:1", 1), ("ours:1", 1)]
    assert service.has_slaves_to_notify(NAME) and not service.has_slaves_to_notify("other")
    world.tasks[0]()
    wait_until(lambda: len(world.notified) == 5)
    assert {address for address, _ in world.notified[3:]} == set(ALL.later) and not service.has_slaves_to_notify(NAME)


def test_nothing_is_scheduled_without_slaves_of_rocketmq(world, service):
    service.notify_in_turn(NAME, Audience(None, "new:1", ("ours:1",), ()), change(1))
    wait_until(lambda: sorted(world.notified) == [("new:1", 1), ("ours:1", 1)])
    assert not world.tasks and not service.has_slaves_to_notify(NAME)


@pytest.mark.parametrize("later", [ALL.later, ()], ids=["with slaves", "without"])
def test_slaves_are_not_notified_of_a_change_that_another_replaces(world, service, later):
    service.notify_in_turn(NAME, ALL, change(1))
    world.wait_scheduled(1)
    service.notify_in_turn(NAME, Audience(None, "new:1", (), later), change(2))
    wait_until(lambda: world.epochs_of("new:1") == [1, 2])
    world.tasks[0]()
    assert service.has_slaves_to_notify(NAME) == bool(later)
    if later:
        world.wait_scheduled(2)
        world.tasks[1]()
        wait_until(lambda: world.epochs_of("slave:1") and world.epochs_of("slave:2"))
    assert world.epochs_of("slave:1") == world.epochs_of("slave:2") == ([2] if later else [])


def test_a_pool_that_is_shut_down_keeps_nobody_waiting(world, service):
    service.shutdown()
    service.notify_in_turn(NAME, ALL, change(1))
    world.tasks[0]()
    assert world.notified == [] and not service.has_slaves_to_notify(NAME)
