"""Liveness and readiness of a broker."""
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.common import sys_flags
from rmqha.common.service_thread import ServiceThread
from rmqha.common.util_all import current_time_millis
from rmqha.store.ha.peers import SERVING

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController


def why_not_healthy(controller: "BrokerController") -> list[str]:
    """Return the failures that only a restart can fix; empty while the broker starts."""
    reasons = [controller.failure] if controller.failure is not None else []
    if _is_open(controller):
        reasons += [f"the service {service.get_service_name()} has ended" for service in _services(controller)
                    if not service.is_alive()]
    return reasons


def why_not_ready(controller: "BrokerController") -> list[str]:
    """Return the reasons why clients cannot send to this master, or why this slave does not follow its master."""
    if not _is_open(controller):
        return ["the store is not open: it is being recovered, or the broker is shutting down"]
    reasons = why_not_healthy(controller)
    if controller.registration.is_isolated:
        return [*reasons, "no controller has decided the broker's role yet"]
    if controller.broker_outer_api.remoting_client.get_name_server_address_list() \
            and not controller.registration.name_servers_registered:
        reasons.append("no name server has accepted its registration")
    if controller.role.is_slave:
        return reasons + list(_why_not_following(controller))
    return reasons + list(_why_not_sending(controller))


def _is_open(controller: "BrokerController") -> bool:
    return controller.is_started and not controller.message_store.is_shutdown


def _why_not_following(controller: "BrokerController") -> Iterator[str]:
    ha_service = controller.message_store.ha_service
    if ha_service.divergence.found is not None:
        yield f"its log has diverged from its master's: {ha_service.divergence.found.reason}"
    elif ha_service.ha_client.state not in SERVING:
        error = ha_service.ha_client.last_error
        yield f"it does not follow its master: {ha_service.ha_client.state.value}" + (f", {error}" if error else "")


def _why_not_sending(controller: "BrokerController") -> Iterator[str]:
    store, config = controller.message_store, controller.broker_config
    if not store.running_flags.is_writeable:
        yield "the store accepts no messages: its disk is full, or a write failed"
    manager = controller.replicas_manager
    if manager is not None and not manager.may_acknowledge():
        yield "no controller currently confirms that it is the master"
    if not sys_flags.is_writeable(config.brokerPermission):
        yield f"brokerPermission={config.brokerPermission} forbids sends"
    wait_ms = config.startAcceptSendRequestTimeStamp - current_time_millis()
    if wait_ms > 0:
        yield f"startAcceptSendRequestTimeStamp is {wait_ms} ms in the future"
    if controller.role.is_sync_master and store.ha_service.ack_rule.need_ack_nums() is None:
        yield "it has fewer slaves in sync than its configuration requires"


def _services(controller: "BrokerController") -> Iterator[ServiceThread]:
    """Yield the services that a working broker needs."""
    store = controller.message_store
    yield from (controller.remoting_server.io, controller.fast_remoting_server.io, store.reput_message_service,
                store.commit_log.flush_commit_log_service, store.flush_consume_queue_service,
                store.ha_service.accept_socket_service, store.ha_service.group_transfer_service,
                controller.pull_request_hold_service)
    if not store.message_store_config.enableAutoSwitchHA or store.role.is_slave:
        # With enableAutoSwitchHA the client runs on slaves only.
        yield store.ha_service.ha_client
