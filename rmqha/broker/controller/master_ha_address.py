"""Where slaves of a master connect, when its controller does not tell: only those of rmqha do.

    ReplicasManager_ExecutorService_: the master's main port (rmqha's tell), the name servers --> AutoSwitchHAService
"""
from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from rmqha.broker.slave.master_inquiry import HA_ADDRESS_FIELD, HA_PORT_FIELD
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.broker.controller.replicas_manager import ReplicasManager, Role

log = logging.getLogger("RocketmqBroker")

_FIRST_PAUSE_MS, _MAX_PAUSE_MS = 50, 1000


class MasterHaAddress:
    """Finds it, for as long as the role does not change.

    Differs: in 5.1.4 a slave learns it when it registers with a name server next.
    """

    def __init__(self, manager: ReplicasManager, executor: NamedThreadPool) -> None:
        self._manager = manager
        self._executor = executor
        self._pause = threading.Event()  # never set

    def find(self, role: Role, master_address: str) -> None:
        """Look for it; the manager's `follow_at` is called with what was found."""
        try:
            self._executor.submit(self._find, role, master_address)
        except RejectedExecutionError as error:
            log.warning("the master's HA address is not asked for: %s", error)

    def _find(self, role: Role, master_address: str) -> None:
        manager, pause_ms = self._manager, _FIRST_PAUSE_MS
        while manager.role is role and not manager.stopped:
            address = self._ask_master(master_address) or self._ask_name_servers(master_address)
            if address is not None:
                manager.follow_at(role, address)
                return
            self._pause.wait(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, _MAX_PAUSE_MS)

    def _ask_master(self, master_address: str) -> str | None:
        try:
            fields = self._manager.broker_controller.broker_outer_api.get_broker_ha_fields(master_address)
        except RemotingException as error:
            log.info("the master %s does not tell its HA address: %s", master_address, error)
            return None
        if HA_ADDRESS_FIELD in fields:
            return fields[HA_ADDRESS_FIELD]
        port = fields.get(HA_PORT_FIELD)
        return None if port is None else f"{master_address.rpartition(':')[0]}:{port}"

    def _ask_name_servers(self, master_address: str) -> str | None:
        """They tell a slave that registers."""
        controller = self._manager.broker_controller
        controller.register_broker_all(True, False, True)
        told = controller.registered_master
        return told[1] if told is not None and told[0] == master_address else None
