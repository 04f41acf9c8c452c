"""Replicas of one broker name under a controller, all in this process, and changes of the master."""
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from rmqha.broker.broker_controller import BrokerController
from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.connection import connected
from rmqha.tools.replication.switch import switch
from tests.broker.support import new_controller
from tests.controller.support import controller
from tests.support.wait import wait_until


class Replicas:
    """The running replicas."""

    def __init__(self, brokers: list[BrokerController], controller_address: str) -> None:
        self.brokers = brokers
        self.controller_address = controller_address

    @property
    def master(self) -> BrokerController:
        """The replica that accepts messages; waits until there is one."""
        return wait_until(lambda: next((each for each in self.brokers if _accepts(each)), None), 60_000, "a master")

    def slaves(self) -> list[BrokerController]:
        """Return the others."""
        master = self.master
        return [each for each in self.brokers if each is not master]

    def wait_in_sync(self) -> None:
        """Wait until all replicas are in sync."""
        wait_until(lambda: len(self.master.message_store.auto_switch.get_sync_state_set()) == len(self.brokers), 60_000,
                   "all replicas are in sync")

    def wait_followed(self) -> None:
        """Wait until each slave knows the master."""
        address = self.master.broker_addr
        wait_until(lambda: all(each.replicas_manager.followed and each.replicas_manager.followed[0] == address
                               for each in self.slaves()), 60_000, "each slave follows the master")

    def switch_to(self, broker: BrokerController) -> None:
        """Make a replica the master, as `rmqha ha switch` does."""
        self.wait_in_sync()
        with connected(None, 60) as admin:
            switch(admin, broker.broker_addr, [self.controller_address], 60, lambda _line: None)
        wait_until(lambda: _accepts(broker), 60_000, "the new master accepts messages")


def _accepts(broker: BrokerController) -> bool:
    return not broker.role.is_slave and broker.role.guard is not None and broker.role.guard.takes_puts()


@contextlib.contextmanager
def replicas(folder: Path, count: int = 2, accounts: str | None = None,
             prepare: Callable[[BrokerController], object] = lambda _broker: None,
             **config: object) -> Iterator[Replicas]:
    """Start a controller and `count` replicas, and stop them at the end. `accounts`: the text of plain_acl.yml.

    `prepare` is called with each broker before it is initialized.
    """
    manager = controller(folder / "controller", maxLeaseMillis=10_000)
    made: list[BrokerController] = []
    with contextlib.ExitStack() as stack:
        stack.callback(manager.shutdown)
        for number in range(count):
            home = folder / f"broker-{number}"
            (home / "conf").mkdir(parents=True)
            if accounts is not None:
                (home / "conf" / "plain_acl.yml").write_text(accounts, encoding="utf-8")
            broker = new_controller(home, **{
                "enableControllerMode": True, "controllerAddr": manager.address, "brokerRole": BrokerRole.SLAVE,
                "brokerId": -1, "enableAutoSwitchHA": True, "allAckInSyncStateSet": True, "minInSyncReplicas": 1,
                "aclEnable": accounts is not None, **config})
            made.append(broker)
            stack.callback(broker.shutdown)
            prepare(broker)
            assert broker.initialize()
            broker.start()
        running = Replicas(made, manager.address)
        running.wait_in_sync()
        running.wait_followed()
        yield running
