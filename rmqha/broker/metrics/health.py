"""Liveness, readiness and role of a broker, for its HTTP port.

`RolePages`: /master, /slave, /in-sync and /ready, for load balancers and scripts. The status answers the question, and
the body, a JSON object, says why, as with the pages of Patroni's REST API. HAProxy, for example, sends clients to the
one broker whose /master answers 200.

A load balancer takes a broker whose page does not answer in time for dead. So everything here only reads attributes,
which their owners replace as a whole, and takes no lock: a put, a role change or a slow disk might hold it. Nothing is
kept between two requests.

In sync. A slave does not decide itself whether it is. With a controller, the controller decides, and reports the set
together with the master, once per syncBrokerMetadataPeriod. The set counts for the epoch that the slave follows, and
for three such periods. Without a controller, the slave asks its master for the end of its log with each copy of its
tables (see `SlaveSynchronize`). A master with enableAutoSwitchHA reports its set of in-sync replicas too, and that
decides. Otherwise the slave is in sync if it holds everything that the master held when it was last asked. The limit
within which a SYNC_MASTER still waits for a slave, haSlaveFallbehindMax, is not a sound measure: a slave that is
255 MiB behind may lack messages that were acknowledged because another slave had them.
"""
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqha.common import sys_flags, units
from rmqha.common.metrics import Page, RolePage, role_page
from rmqha.common.service_thread import ServiceThread
from rmqha.common.util_all import current_time_millis
from rmqha.store.ha.peers import SERVING

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.broker.slave_synchronize import MasterState

_NS_PER_S = 1_000_000_000
# The master is asked every 10 s at most.
_MASTER_STATE_S = 30
# Of the periods in which the controllers are asked for the sync-state set.
_PERIODS = 3
_BAD_REQUEST, _NOT_FOUND = 400, 404
_MAX_FIELDS = 100  # of a query


def why_not_healthy(controller: "BrokerController") -> list[str]:
    """Return the failures that only a restart can fix; empty while the broker starts."""
    reasons = [controller.failure] if controller.failure is not None else []
    if is_open(controller):
        reasons += [f"the service {service.get_service_name()} has ended" for service in _services(controller)
                    if not service.is_alive()]
    return reasons


def why_not_ready(controller: "BrokerController") -> list[str]:
    """Return the reasons why clients cannot send to this master, or why this slave does not follow its master."""
    if not is_open(controller):
        return ["the store is not open: it is being recovered, or the broker is shutting down"]
    reasons = why_not_healthy(controller)
    if controller.registration.is_isolated:
        return [*reasons, "no controller has decided the broker's role yet"]
    if controller.broker_outer_api.remoting_client.get_name_server_address_list() \
            and not controller.registration.name_servers_registered:
        reasons.append("no name server has accepted its registration")
    if controller.role.is_slave:
        return reasons + list(why_not_following(controller))
    return reasons + list(_why_not_sending(controller))


def is_open(controller: "BrokerController") -> bool:
    """Return whether the store has been recovered, and is not shut down."""
    return controller.is_started and not controller.message_store.is_shutdown


def why_not_following(controller: "BrokerController") -> Iterator[str]:
    """Yield the reason why a slave does not follow its master."""
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


class RolePages:
    """The pages of one broker. Any thread may call them, before the broker has started too."""

    def __init__(self, controller: "BrokerController") -> None:
        self._controller = controller

    def pages(self) -> dict[str, RolePage]:
        """Return the pages by path."""
        return {
            "/master": RolePage(self.master,
                                "200 when it is the master, and may acknowledge messages now; with ?relay=404, 404 "
                                "when it passes requests on to the master"),
            "/slave": RolePage(lambda _query: self._page(self.why_not_slave()),
                               "200 when it is a slave that follows its master"),
            "/in-sync": RolePage(lambda _query: self._page(self.why_not_in_sync()),
                                 "200 when it is the master, or a slave that is in sync"),
            "/ready": RolePage(self.ready,
                               "200 when clients can work with it; with ?lag=1MiB, and it lacks at most so much")}

    def master(self, query: str) -> Page:
        """Return the answer of /master. With relay=404, the status of a slave that passes requests on is 404.

        A load balancer then lets clients keep their connections: for HAProxy, 404 means that a server gets no new ones.
        """
        try:
            value = _field(query, "relay")
            if value not in (None, "404"):
                raise ValueError("404 is the only value")
        except ValueError as error:
            return self._page([f"relay: {error}"], _BAD_REQUEST)
        reasons = self.why_not_master()
        return self._page(reasons, _NOT_FOUND if reasons and value is not None and self._relays() else 503)

    def _relays(self) -> bool:
        """Return whether this broker is a slave that passes requests on to a master, and is in touch with it."""
        controller = self._controller
        relay, manager = controller.master_relay, controller.replicas_manager
        if relay is None or manager is None or manager.followed is None or self._why_not_running():
            return False
        # After a change of the master, its slaves connect again.
        return controller.role.is_slave and (relay.is_role_new() or not any(why_not_following(controller)))

    def why_not_master(self) -> list[str]:
        """Return the reasons why this broker is not the master, or may not acknowledge messages now."""
        controller = self._controller
        reasons = self._why_not_running()
        if reasons:
            return reasons
        store, manager = controller.message_store, controller.replicas_manager
        if controller.role.is_slave:
            return ["it is a slave"]
        if manager is not None and not manager.role.leads:
            return ["its role is changing, or it has lost it"]
        refusal = store.ha_service.why_no_puts()
        if refusal is not None:
            reasons.append(refusal)
        elif manager is not None and not manager.may_acknowledge():
            reasons.append("no controller currently confirms that it is the master")
        if not store.running_flags.is_writeable:
            reasons.append("the store accepts no messages: its disk is full, or a write failed")
        return reasons

    def why_not_slave(self) -> list[str]:
        """Return the reasons why this broker is not a slave, or does not follow its master."""
        controller = self._controller
        reasons = self._why_not_running()
        if reasons:
            return reasons
        if not controller.role.is_slave:
            return ["it is a master"]
        return list(why_not_following(controller))

    def why_not_in_sync(self) -> list[str]:
        """Return the reasons why this broker is neither the master nor in sync with it."""
        controller = self._controller
        if not controller.role.is_slave:
            return self.why_not_master()
        reasons = self.why_not_slave()
        if reasons:
            return reasons
        why = self._why_not_in_the_set() if controller.replicas_manager is not None else self._why_not_near()
        return [] if why is None else [why]

    def ready(self, query: str) -> Page:
        """Return the answer of /ready: as that of /readyz, and with lag=SIZE, a slave is at most that far behind."""
        try:
            limit = _lag_limit(query)
        except ValueError as error:
            return self._page([f"lag: {error}"], _BAD_REQUEST)
        controller = self._controller
        reasons = why_not_ready(controller)
        if limit is not None and controller.role.is_slave and is_open(controller):
            state = self._master_state()
            if isinstance(state, str):
                reasons.append(state)
            elif self._lag(state) > limit:
                reasons.append(f"it is {units.size_text(self._lag(state))} behind its master, more than "
                               f"{units.size_text(limit)}")
        return self._page(reasons)

    def _why_not_running(self) -> list[str]:
        controller = self._controller
        if not is_open(controller):
            return ["the store is not open: it is being recovered, or the broker is shutting down"]
        reasons = why_not_healthy(controller)
        if controller.registration.is_isolated:
            reasons.append("no controller has decided the broker's role yet")
        return reasons

    def _why_not_in_the_set(self) -> str | None:
        """Return why this slave is not in the sync-state set of the epoch that it follows, as far as it can know."""
        controller = self._controller
        manager = controller.replicas_manager
        assert manager is not None  # the caller has checked
        told, epoch = manager.told_set, manager.role.epoch
        if told is None or told.master_epoch != epoch:
            return f"no controller has reported the sync-state set of epoch {epoch} yet"
        age_s = (time.monotonic_ns() - told.told_ns) / _NS_PER_S
        if age_s > _PERIODS * controller.broker_config.syncBrokerMetadataPeriod / 1000:
            return f"no controller has reported the sync-state set for {units.seconds_text(age_s)}"
        if manager.broker_id not in told.members:
            return f"it is not in the sync-state set {sorted(told.members)} of epoch {epoch}"
        return None

    def _why_not_near(self) -> str | None:
        """Return why this slave is not in sync with a master that no controller has chosen."""
        store, state = self._controller.message_store, self._master_state()
        if isinstance(state, str):
            return state
        if store.auto_switch is not None and state.in_sync is not None:
            return None if store.auto_switch.local_broker_id in state.in_sync else \
                f"its master counts {sorted(state.in_sync)} as in sync, not {store.auto_switch.local_broker_id}"
        lag = self._lag(state)
        return f"it is {units.size_text(lag)} behind its master" if lag else None

    def _master_state(self) -> "MasterState | str":
        """Return what the master has reported of its log, or why nothing is known of it."""
        state = self._controller.slave_synchronize.master_state
        if state is None:
            return "its master has not reported the end of its log yet"
        age_s = (time.monotonic_ns() - state.asked_ns) / _NS_PER_S
        return state if age_s <= _MASTER_STATE_S else \
            f"its master has not reported the end of its log for {units.seconds_text(age_s)}"

    def _lag(self, state: "MasterState") -> int:
        """Return the number of bytes that this slave lacked of the master's log at the time of the report."""
        return max(0, state.log_end - self._controller.message_store.get_max_phy_offset())

    def _page(self, reasons: list[str], status: int = 503) -> Page:
        controller = self._controller
        role, manager = controller.role, controller.replicas_manager
        lag = None
        if role.is_slave and is_open(controller):
            state = self._master_state()
            lag = None if isinstance(state, str) else self._lag(state)
        has_lease = manager is not None and controller.broker_config.controllerLease
        return role_page(status if reasons else 200, {
            "state": self._state(), "role": "slave" if role.is_slave else "master",
            "brokerName": controller.broker_config.brokerName,
            "brokerId": manager.broker_id if manager is not None and role.is_slave else role.broker_id,
            "epoch": self._epoch(), "leaseMillis": int(manager.lease.left_ms()) if manager and has_lease else None,
            "lagBytes": lag, "reasons": reasons})

    def _state(self) -> str:
        controller = self._controller
        manager = controller.replicas_manager
        if controller.failure is not None:
            return "failed"
        if not controller.is_started:
            return "starting"
        is_leaving = manager is not None and manager.stopped
        return "stopping" if is_leaving or controller.message_store.is_shutdown else "running"

    def _epoch(self) -> int | None:
        """Return the epoch of the master that it is or follows; without a controller, its log's; None without epochs.
        """
        controller = self._controller
        if controller.replicas_manager is not None:
            return controller.replicas_manager.role.epoch
        store = controller.message_store
        if store is None or store.auto_switch is None:
            return None
        return max(0, store.auto_switch.epoch_cache.last_epoch())


def _lag_limit(query: str) -> int | None:
    """Return the size of `lag=`, in bytes; None without it. ValueError."""
    value = _field(query, "lag")
    return None if value is None else units.parse_size(value)


def _field(query: str, name: str) -> str | None:
    """Return the last value of a field; None without it. ValueError if there are too many fields."""
    # Imported here because few requests have a query.
    from urllib.parse import parse_qs

    values = parse_qs(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS).get(name)
    return None if values is None else values[-1]
