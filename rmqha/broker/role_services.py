"""What a broker does by its role: a slave copies its master's tables, a master delivers and asks.

    BrokerControllerScheduledThread1 --each 10 s, on a slave--> SlaveSynchronize
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
# Differs: a slave that a controller may make the master at any time asks each 3 s; in 5.1.4 each 10 s, too
_FIRST_CONTROLLED_SYNC_MS, _CONTROLLED_SYNC_MS = 200, 3 * _SECOND_MS


class RoleServices:
    """Begins and ends them; any thread. Whoever changes the role says so here."""

    def __init__(self, broker_config: BrokerConfig, role: Role,
                 slave_synchronize: SlaveSynchronize,
                 handle_schedule_message_service: Callable[[BrokerRole], None],
                 transactions: TransactionalMessageService, transaction_checks: TransactionalMessageCheckService,
                 scheduler: ScheduledService) -> None:
        self._config, self._role = broker_config, role
        self._handle_schedule_message_service = handle_schedule_message_service  # begins or ends it, by the role
        self.slave_synchronize = slave_synchronize
        self._transactions, self._transaction_checks = transactions, transaction_checks
        self._scheduler = scheduler
        self._special_services_lock = threading.Lock()
        self._slave_sync_generation = 0  # a synchronisation of an older generation no longer runs

    def handle_slave_synchronize(self, role: BrokerRole, master_address: str | None = None) -> None:
        """Begin to take a master's tables, or stop it, as `role` asks; `master_address`: as a controller says."""
        self._slave_sync_generation += 1
        self.slave_synchronize.begin_anew()
        self.slave_synchronize.master_addr = master_address
        if role is BrokerRole.SLAVE:
            is_controlled = self._config.enableControllerMode
            self._schedule_slave_sync(self._slave_sync_generation,
                                      _FIRST_CONTROLLED_SYNC_MS if is_controlled else _FIRST_SLAVE_SYNC_MS,
                                      _CONTROLLED_SYNC_MS if is_controlled else _SLAVE_SYNC_MS)

    def _schedule_slave_sync(self, generation: int, delay_ms: int, period_ms: int) -> None:
        """Each round plans the next one: rounds of an older generation end by themselves."""
        def sync() -> None:
            if generation == self._slave_sync_generation:
                try:
                    self.slave_synchronize.sync_all()
                finally:
                    self._schedule_slave_sync(generation, period_ms, period_ms)

        self._scheduler.schedule(sync, delay_ms)

    def change_special_service_status(self, should_start: bool) -> None:
        """Begin or end what only a master does: deliver delayed messages, ask about transactions.

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
        """Ask about half messages that nobody ended."""
        self._transactions.open()
        self._transaction_checks.start()

    def becomes_master(self) -> None:
        """The role is a master's now, by a tool's word."""
        role = self._role.kind
        self.handle_slave_synchronize(role)
        self._handle_schedule_message_service(role)
        self.begin_transactions()

    def becomes_slave(self) -> None:
        """The role is a slave's now, by a tool's word."""
        self._handle_schedule_message_service(BrokerRole.SLAVE)
        self._transaction_checks.shutdown()
        self.handle_slave_synchronize(BrokerRole.SLAVE)

    def end(self) -> None:
        """The broker goes down. A check that runs ends at the next message."""
        self._transactions.close()
        self._transaction_checks.shutdown()
