"""What rmqha tells beside RocketMQ's names: replication, how long things take, and what is wrong."""
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import rmqha
from rmqha.broker.metrics.broker_health import why_not_ready
from rmqha.common import java
from rmqha.common.metrics import COUNTER, GAUGE, HISTOGRAM, Family, Metric, Sample
from rmqha.remoting.addresses import retransmits
from rmqha.store import running_flags
from rmqha.store.ha import scrub_state
from rmqha.store.ha.peers import SERVING, HAConnectionState
from rmqha.store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from rmqha.broker.broker_controller import BrokerController
    from rmqha.store.ha.ha_connection import HAConnection

_BROKER = ("cluster", "broker", "broker_id")
_OF_SLAVE = (*_BROKER, "slave")


def _of_broker(name: str, meaning: str, kind: str = GAUGE, *labels: str) -> Metric:
    return Metric(f"rmqha_{name}", kind, (*_BROKER, *labels), meaning)


def _of_slave(name: str, meaning: str, kind: str = GAUGE, *labels: str) -> Metric:
    return Metric(f"rmqha_replication_{name}", kind, (*_OF_SLAVE, *labels), meaning)


INFO = _of_broker("broker_info", "Always 1: what it is", GAUGE, "address", "role", "version", "rocketmq_version")
READY = _of_broker("broker_ready", "1 when clients can work with it; /readyz has the reasons why not")
NAME_SERVERS = _of_broker("name_servers_registered", "Name servers that took the last registration")
CONNECTIONS = _of_broker("connections", "Connections of clients and other servers", GAUGE, "port")
STORE_OPEN = _of_broker("store_open", "1 from when the store is recovered and serves")
STORE_WRITEABLE = _of_broker("store_writeable", "1 when the store takes messages")
STORE_FAULT = _of_broker("store_fault", "1 while the fault is there", GAUGE, "fault")
RECOVERY_SECONDS = _of_broker("recovery_seconds", "What the last start took: load looks at what is there, dispatch "
                              "makes queues and index complete", GAUGE, "phase")
RECOVERY_CLEAN = _of_broker("recovery_was_clean", "1 when the store had been stopped in good order, 0 after a crash")
PUTS = _of_broker("puts_total", "Messages put", COUNTER)
PUT_BYTES = _of_broker("put_bytes_total", "Bytes put", COUNTER)
PUTS_FAILED = _of_broker("puts_failed_total", "Puts that did not get into the log", COUNTER)
GETS = _of_broker("gets_total", "Gets, by whether they found messages", COUNTER, "found")
GOT = _of_broker("messages_got_total", "Messages got", COUNTER)
ACK_LATENCY = _of_broker("ack_latency_seconds", "From call to answer of a put: disk and slaves as configured. Counted "
                         "in whole milliseconds", HISTOGRAM)
FLUSH_LATENCY = _of_broker("flush_latency_seconds", "One flush of the log: fsync, when something was to be flushed",
                           HISTOGRAM)
PUT_LOCK = _of_broker("put_lock_held_seconds", "For how long the put lock is held at this moment")
PUTS_WAITING = _of_broker("puts_waiting", "Rounds of puts that wait for slaves")
DISPATCH_BEHIND = _of_broker("dispatch_behind_bytes", "Bytes of the log that are not in their queues yet")
FLUSH_BEHIND = _of_broker("flush_behind_bytes", "Bytes of the log that are not flushed yet")
LOG_END = _of_broker("log_end_offset", "End of the log")
LOG_BEGIN = _of_broker("log_begin_offset", "Beginning of the log")
DELAYED = _of_broker("delayed_messages", "Delayed messages that are not delivered yet", GAUGE, "level")
STALLS = _of_broker("stalls_total",
                    "Pauses above stallWatchMs in which no thread had a turn; without it there are none",
                    COUNTER)
STALLED = _of_broker("stalled_seconds_total", "How long those were, together", COUNTER)
SLAVES = _of_broker("slaves", "Slaves that are served")
SLAVES_IN_SYNC = _of_broker("slaves_in_sync", "Those less than haMaxGapNotInSync bytes behind")
SLAVES_REFUSED = _of_broker("slaves_refused", "Slaves that this log can't serve: what they hold is not in it")
LAG_BYTES = _of_slave("lag_bytes", "Bytes of the log that the slave has not acknowledged")
LAG_SECONDS = _of_slave("lag_seconds", "For how long the slave has not held all that the log held")
ACKED = _of_slave("acked_offset", "Up to where the slave has acknowledged")
SENT_RATE = _of_slave("sent_bytes_per_second", "Bytes sent to it in the last whole second")
SILENCE = _of_slave("silence_seconds", "For how long it has said nothing")
RETRANSMITS = _of_slave("retransmits", "How often in a row the kernel has sent the same bytes to it")
STATE = _of_slave("state", "1 for the state that its connection is in", GAUGE, "state")
CONNECTED = _of_broker("slave_connected", "On a slave: 1 while it follows its master")
SLAVE_STATE = _of_broker("slave_state", "On a slave: 1 for the state that it is in", GAUGE, "state")
SLAVE_SILENCE = _of_broker("slave_master_silence_seconds", "On a slave: for how long its master has said nothing")
SLAVE_RECEIVED_RATE = _of_broker("slave_received_bytes_per_second",
                                 "On a slave: bytes that came in the last whole second")
SCRUB_STATE = _of_broker("slave_scrub_state", "On a slave: 1 for the state of comparing its log with its master's; "
                         "CANT: the master can't be asked", GAUGE, "state")
SCRUB_OFFSET = _of_broker("slave_scrub_offset", "On a slave: up to where the present round has compared")
SCRUB_ROUNDS = _of_broker("slave_scrub_rounds_total", "On a slave: rounds that have compared the whole log", COUNTER)
SCRUB_BYTES = _of_broker("slave_scrub_compared_bytes_total", "On a slave: bytes compared", COUNTER)
UNSCRUBBED = _of_broker("slave_unscrubbed_seconds", "On a slave: for how long bytes of its log wait to be compared, or "
                        "compared again; missing before the first look")
SCRUB_PROMISE = _of_broker("slave_scrub_promised_seconds", "On a slave: within which all is to be compared "
                           "(haScrubPromise)")
SCRUB_DIFFERENCES = _of_broker("slave_scrub_differences", "On a slave: records that are not its master's; rmqha ha "
                               "status says where, and what to do")
VERIFIED_BYTES = _of_broker("slave_verified_bytes_total", "On a slave: bytes that came, and were verified before they "
                            "were acknowledged", COUNTER)
VERIFY_FAILURES = _of_broker("slave_verify_failures_total", "On a slave: records that came damaged, and were refused",
                             COUNTER)
FAILOVER_LEADS = _of_broker("failover_leads", "With enableControllerMode: 1 while it is the master")
FAILOVER_EPOCH = _of_broker("failover_master_epoch", "With enableControllerMode: the epoch of the master that it is or "
                            "follows; 0: a controller has not decided yet")
FAILOVER_LEASE = _of_broker("failover_lease_seconds", "With enableControllerMode: for how long it may acknowledge "
                            "without hearing from a controller")
FAILOVER_CONTROLLER = _of_broker("failover_controller_known", "With enableControllerMode: 1 while it knows which "
                                 "controller leads")
FAILOVER_IN_SYNC = _of_broker("failover_in_sync_replicas", "With enableControllerMode, on a master: replicas that have "
                              "to hold what is acknowledged, itself included")

OWN_METRICS = (
    INFO, READY, STORE_OPEN, NAME_SERVERS, CONNECTIONS, STORE_WRITEABLE, STORE_FAULT, RECOVERY_SECONDS, RECOVERY_CLEAN,
    PUTS, PUT_BYTES, PUTS_FAILED, GETS, GOT, ACK_LATENCY, FLUSH_LATENCY, PUT_LOCK, PUTS_WAITING, DISPATCH_BEHIND,
    FLUSH_BEHIND, LOG_END, LOG_BEGIN, DELAYED, STALLS, STALLED, SLAVES, SLAVES_IN_SYNC, SLAVES_REFUSED, LAG_BYTES,
    LAG_SECONDS, ACKED, SENT_RATE, SILENCE, RETRANSMITS, STATE, CONNECTED, SLAVE_STATE, SLAVE_SILENCE,
    SLAVE_RECEIVED_RATE, SCRUB_STATE, SCRUB_OFFSET, SCRUB_ROUNDS, SCRUB_BYTES, UNSCRUBBED, SCRUB_PROMISE,
    SCRUB_DIFFERENCES, VERIFIED_BYTES, VERIFY_FAILURES, FAILOVER_LEADS, FAILOVER_EPOCH, FAILOVER_LEASE,
    FAILOVER_CONTROLLER, FAILOVER_IN_SYNC)
# By bit of the store's flags.
_FAULTS = {
    "not_readable": running_flags.NOT_READABLE_BIT, "not_writeable": running_flags.NOT_WRITEABLE_BIT,
    "consume_queue_error": running_flags.WRITE_LOGICS_QUEUE_ERROR_BIT,
    "index_error": running_flags.WRITE_INDEX_FILE_ERROR_BIT, "disk_full": running_flags.DISK_FULL_BIT,
    "flush_failed": running_flags.FLUSH_ERROR_BIT, "fenced": running_flags.FENCED_BIT}
_SCRUB_STATES = (scrub_state.OFF, scrub_state.WAITING, scrub_state.RUNNING, scrub_state.CANT)
FAULTS = (*_FAULTS, "diverged", "service_failed")


class OwnMetrics:
    """What one scrape tells by rmqha's own names."""

    def __init__(self, controller: "BrokerController") -> None:
        self._controller = controller
        self._store = controller.message_store

    @property
    def _broker(self) -> tuple[str, str, str]:
        """The labels of all samples; the id changes with the role where a controller decides it."""
        config = self._controller.broker_config
        return config.brokerClusterName, config.brokerName, str(config.brokerId)

    def at_any_time(self) -> Iterator[Family]:
        """What is known before the store is open."""
        controller, store = self._controller, self._store
        yield Family(INFO, [((*self._broker, controller.broker_addr, controller.message_store_config.brokerRole.name,
                              rmqha.__version__, java.get_version_desc(java.CURRENT_VERSION)), 1)])
        yield self._one(READY, not why_not_ready(controller))
        yield self._one(STORE_OPEN, store is not None and not store.is_shutdown)

    def families(self) -> Iterator[Family]:
        """What is known once it is."""
        yield self._one(NAME_SERVERS, self._controller.name_servers_registered)
        yield Family(CONNECTIONS, [((*self._broker, port), len(server.io.channels)) for port, server in (
            ("listen", self._controller.remoting_server), ("fast", self._controller.fast_remoting_server))])
        yield self._one(STORE_WRITEABLE, self._store.running_flags.is_writeable)
        yield Family(STORE_FAULT, self._faults())
        yield from self._recovery()
        yield from self._counts()
        yield from self._times()
        yield from self._log()
        yield from self._stalls()
        yield from self._failover()
        if self._controller.message_store_config.brokerRole is BrokerRole.SLAVE:
            yield from self._as_slave()
        else:
            yield from self._as_master()

    def _one(self, metric: Metric, value: float) -> Family:
        return Family(metric, [(self._broker, float(value))])

    def _faults(self) -> Iterator[Sample]:
        bits = self._store.running_flags.flag_bits
        for fault, bit in _FAULTS.items():
            yield (*self._broker, fault), float(bool(bits & bit))
        yield (*self._broker, "diverged"), float(self._store.ha_service.divergence.found is not None)
        yield (*self._broker, "service_failed"), float(self._controller.failure is not None)

    def _recovery(self) -> Iterator[Family]:
        times = self._store.recovery_times
        yield Family(RECOVERY_SECONDS, [((*self._broker, "load"), times.load_s),
                                        ((*self._broker, "dispatch"), times.dispatch_s)])
        yield self._one(RECOVERY_CLEAN, bool(times.was_clean))

    def _counts(self) -> Iterator[Family]:
        counts = self._store.store_stats_service
        yield self._one(PUTS, counts.get_put_message_times_total())
        yield self._one(PUT_BYTES, counts.get_put_message_size_total())
        yield self._one(PUTS_FAILED, counts.put_message_failed_times)
        yield Family(GETS, [((*self._broker, "true"), counts.get_message_times_total_found),
                            ((*self._broker, "false"), counts.get_message_times_total_miss)])
        yield self._one(GOT, counts.get_message_transfered_msg_count)

    def _times(self) -> Iterator[Family]:
        store = self._store
        yield Family(ACK_LATENCY, [(self._broker, store.store_stats_service.put_times())])
        flush_times = store.commit_log.flush_commit_log_service.flush_times
        yield Family(FLUSH_LATENCY, [(self._broker, flush_times.distribution())])
        yield self._one(PUT_LOCK, store.lock_time_mills() / 1000)
        yield self._one(PUTS_WAITING, store.ha_service.group_transfer_service.waiting_requests())

    def _log(self) -> Iterator[Family]:
        store = self._store
        yield self._one(DISPATCH_BEHIND, store.dispatch_behind_bytes())
        yield self._one(FLUSH_BEHIND, store.commit_log.remain_how_many_data_to_flush())
        yield self._one(LOG_END, store.get_max_phy_offset())
        yield self._one(LOG_BEGIN, store.get_min_phy_offset())
        yield Family(DELAYED, (((*self._broker, str(level)), behind)
                               for level, behind in store.schedule_message_service.behind_by_level().items()))

    def _stalls(self) -> Iterator[Family]:
        watch = self._controller.stall_watch
        if watch.is_on:
            yield self._one(STALLS, watch.stalls)
            yield self._one(STALLED, watch.stalled_ms / 1000)

    def _failover(self) -> Iterator[Family]:
        manager = self._controller.replicas_manager
        if manager is None:
            return
        role = manager.role
        yield self._one(FAILOVER_LEADS, role.leads)
        yield self._one(FAILOVER_EPOCH, role.epoch)
        yield self._one(FAILOVER_LEASE, manager.lease.left_ms() / 1000)
        yield self._one(FAILOVER_CONTROLLER, bool(manager.controller_leader_address))
        if role.leads:
            yield self._one(FAILOVER_IN_SYNC, len(manager.ha_service.get_sync_state_set()))

    def _as_master(self) -> Iterator[Family]:
        ha_service, end = self._store.ha_service, self._store.get_max_phy_offset()
        yield self._one(SLAVES, ha_service.slave_count())
        yield self._one(SLAVES_IN_SYNC, ha_service.in_sync_replicas_nums(end) - 1)
        yield self._one(SLAVES_REFUSED, len(ha_service.refused_slaves()))
        slaves = {(*self._broker, name): one for name, one in slaves_by_name(ha_service.connection_list).items()}
        yield Family(LAG_BYTES, [(labels, end - max(0, one.slave_ack_offset)) for labels, one in slaves.items()])
        yield Family(LAG_SECONDS, [(labels, one.behind_ms() / 1000) for labels, one in slaves.items()])
        yield Family(ACKED, [(labels, one.slave_ack_offset) for labels, one in slaves.items()])
        yield Family(SENT_RATE, [(labels, one.transferred_byte_in_second) for labels, one in slaves.items()])
        yield Family(SILENCE, [(labels, one.silence_ms() / 1000) for labels, one in slaves.items()])
        yield Family(RETRANSMITS, [(labels, retransmits(one.socket)) for labels, one in slaves.items()])
        yield Family(STATE, [((*labels, state.value), float(one.state is state))
                             for labels, one in slaves.items() for state in HAConnectionState])

    def _as_slave(self) -> Iterator[Family]:
        client = self._store.ha_service.ha_client
        state = client.state
        yield self._one(CONNECTED, state in SERVING)
        yield Family(SLAVE_STATE, [((*self._broker, each.value), float(each is state)) for each in HAConnectionState])
        yield self._one(SLAVE_SILENCE, max(0, client.silence_ms()) / 1000)
        yield self._one(SLAVE_RECEIVED_RATE, client.transferred_byte_in_second)
        yield self._one(VERIFIED_BYTES, client.verified_bytes)
        yield self._one(VERIFY_FAILURES, client.verify_failures)
        yield from self._scrubbing()

    def _scrubbing(self) -> Iterator[Family]:
        """Differences also when scrubbing is off: they were found before, and are not repaired."""
        scrub = self._store.ha_service.scrub
        state = scrub.state
        yield Family(SCRUB_STATE, [((*self._broker, each), float(each == state)) for each in _SCRUB_STATES])
        yield self._one(SCRUB_DIFFERENCES, scrub.differences)
        if state == scrub_state.OFF:
            return
        yield self._one(SCRUB_OFFSET, scrub.position)
        yield self._one(SCRUB_ROUNDS, scrub.rounds)
        yield self._one(SCRUB_BYTES, scrub.compared_bytes)
        yield self._one(SCRUB_PROMISE, self._store.message_store_config.haScrubPromise / 1000)
        unscrubbed_ms = scrub.unscrubbed_ms()
        if unscrubbed_ms >= 0:
            yield self._one(UNSCRUBBED, unscrubbed_ms / 1000)


def slaves_by_name(connections: "tuple[HAConnection, ...]") -> "dict[str, HAConnection]":
    """The slaves that are served: by the name that each tells, of several connections of one the newest.

    RocketMQ's own slaves tell no name: these go by their host, or, where there are several of one host, by host:port.
    """
    serving = [one for one in connections if one.is_serving]
    of_host = Counter(one.slave_identity for one in serving if not one.is_named)
    return {one.client_addr if of_host[one.slave_identity] > 1 else one.slave_identity: one for one in serving}
