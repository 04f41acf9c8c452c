"""The services that depend on the role: a slave copies its master's tables; a master delivers delayed messages and
checks half messages.

    BrokerControllerScheduledThread1 --every 10 s, on a slave--> SlaveSynchronize
    a role change --> delayed messages, half messages: on a master only
"""
import threading
from collections.abc import Callable

from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.transaction.transactional_message_service import (
    TransactionalMessageCheckService,
    TransactionalMessageService,
)
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.threads import ScheduledService
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.role import Role

_SECOND_MS = 1000
_FIRST_SLAVE_SYNC_MS, _SLAVE_SYNC_MS = 3 * _SECOND_MS, 10 * _SECOND_MS
# Differs: a slave that a controller may promote at any time copies the tables every 3 s; in 5.1.4 every 10 s
_FIRST_CONTROLLED_SYNC_MS, _CONTROLLED_SYNC_MS = 200, 3 * _SECOND_MS


class RoleServices:
    """Starts and stops the services of a role. Any thread; each change of the role has to be reported here."""

    def __init__(self, broker_config: BrokerConfig, role: Role,
                 slave_synchronize: SlaveSynchronize,
                 handle_schedule_message_service: Callable[[BrokerRole], None],
                 transactions: TransactionalMessageService, transaction_checks: TransactionalMessageCheckService,
                 scheduler: ScheduledService) -> None:
        self._config, self._role = broker_config, role
        # Starts or stops the delivery of delayed messages, depending on the role.
        self._handle_schedule_message_service = handle_schedule_message_service
        self.slave_synchronize = slave_synchronize
        self._transactions, self._transaction_checks = transactions, transaction_checks
        self._scheduler = scheduler
        self._special_services_lock = threading.Lock()
        # A synchronization of an older generation stops.
        self._slave_sync_generation = 0

    def handle_slave_synchronize(self, role: BrokerRole, master_address: str | None = None) -> None:
        """Start copying the master's tables, or stop, depending on `role`. A controller gives `master_address`."""
        self._slave_sync_generation += 1
        self.slave_synchronize.begin_anew()
        self.slave_synchronize.master_addr = master_address
        if role is BrokerRole.SLAVE:
            is_controlled = self._config.enableControllerMode
            self._schedule_slave_sync(self._slave_sync_generation,
                                      _FIRST_CONTROLLED_SYNC_MS if is_controlled else _FIRST_SLAVE_SYNC_MS,
                                      _CONTROLLED_SYNC_MS if is_controlled else _SLAVE_SYNC_MS)

    def _schedule_slave_sync(self, generation: int, delay_ms: int, period_ms: int) -> None:
        """Schedule one copy, which schedules the next; copies of an older generation stop."""
        def sync() -> None:
            if generation == self._slave_sync_generation:
                try:
                    self.slave_synchronize.sync_all()
                finally:
                    self._schedule_slave_sync(generation, period_ms, period_ms)

        self._scheduler.schedule(sync, delay_ms)

    def change_special_service_status(self, should_start: bool) -> None:
        """Start or stop the services of a master: delivery of delayed messages and checks of half messages.

        Java: org.apache.rocketmq.broker.BrokerController#changeSpecialServiceStatus (5.1.4)
        """
        with self._special_services_lock:
            self._handle_schedule_message_service(
                BrokerRole.SYNC_MASTER if should_start else BrokerRole.SLAVE)
            if should_start:
                self.begin_transactions()
            else:
                self._transaction_checks.shutdown()

    def begin_transactions(self) -> None:
        """Start the checks of half messages without an outcome."""
        self._transactions.open()
        self._transaction_checks.start()

    def becomes_master(self) -> None:
        """Switch the services after a tool has made this broker a master."""
        role = self._role.kind
        self.handle_slave_synchronize(role)
        self._handle_schedule_message_service(role)
        self.begin_transactions()

    def becomes_slave(self) -> None:
        """Switch the services after a tool has made this broker a slave."""
        self._handle_schedule_message_service(BrokerRole.SLAVE)
        self._transaction_checks.shutdown()
        self.handle_slave_synchronize(BrokerRole.SLAVE)

    def end(self) -> None:
        """Stop the services when the broker shuts down. A running check stops at the next message."""
        self._transactions.close()
        self._transaction_checks.shutdown()
