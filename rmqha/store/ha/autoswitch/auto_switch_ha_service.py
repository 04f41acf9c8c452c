"""Replication of one store whose role can change while it runs.

    admin request, controller --change_to_master, change_to_slave--> AutoSwitchHAService
    slaves ==TCP==> AutoSwitchHAConnection --slave_acknowledged--> SyncStateSet --> confirm offset, waiting puts
    AutoSwitchHAClient ==TCP==> the master, on a slave
    AutoSwitchHAService_Executor_: drops slaves that fall behind, and epochs whose log is deleted

A change of roles must not mix two logs: a byte that was appended, sent, acknowledged or waited for under the old role
must not be taken for the byte that is at the same offset under the new one. So every change first leaves the old role
completely (`_leave_role`), and only then takes the new one:

1. The role becomes SLAVE under the put lock, which raises the term. A put is either in the log already, or refused.
2. The sync-state set resigns: nothing is confirmed any more. All slaves are disconnected, and their threads have ended.
3. Waiting puts are answered FLUSH_SLAVE_TIMEOUT at once. The client stops, so no bytes of a master are appended
   either. Now the log is still.
4. An incomplete last record is truncated; its rest will never arrive.
5. A new master writes its epoch to disk before any byte, and forgets what slaves had acknowledged, since that referred
   to another log. A new slave instead compares epochs with its master when it connects, and truncates.
6. A new master waits until its log is dispatched, because the consume queues determine the next queue offsets. Only
   then it takes the role SYNC_MASTER, and puts are accepted.

A master that was restarted and continues its last epoch needs one more step (`_open_at`). Its previous process may have
acknowledged messages with a sync-state set that this process does not know yet. It accepts no puts until the controller
has confirmed the set, and all members hold its whole log. A new epoch of the same master, on the other hand, changes
nothing about the log, so connections and waiting puts survive (`change_to_master_when_last_role_is_master`).
"""
from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.threads import ScheduledService
from rmqha.store.commit_log import CommitLog
from rmqha.store.ha.ack_rules import AckRule, SyncStateSetRule
from rmqha.store.ha.autoswitch import epoch_file_cache
from rmqha.store.ha.autoswitch.auto_switch_ha_client import AutoSwitchHAClient
from rmqha.store.ha.autoswitch.auto_switch_ha_connection import AutoSwitchHAConnection
from rmqha.store.ha.autoswitch.epoch_file_cache import EpochEntry, EpochFileCache
from rmqha.store.ha.autoswitch.sync_state_set import Ask, ControlledSyncStateSet, SyncStateSet
from rmqha.store.ha.ha_connection import HAConnection
from rmqha.store.ha.ha_service import HAService
from rmqha.store.message_store_config import SLAVE, SYNC_MASTER
from rmqha.store.replicated_log import ReplicatedLog
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.role import AUTOMATIC
from rmqha.store.store_path_config_helper import get_broker_identity
from rmqha.store.store_state import StoreState

log = logging.getLogger("RocketmqStore")

# Arguments: a set and an epoch. Asks the controller to adopt the set if its epoch is still this one, passes the
# response to `set_sync_state_set`, and returns whether the controller has responded at all.
SyncStateSetListener = Callable[[frozenset[int], int], bool]

_HOUSEKEEPING_MS = 1000
_DISPATCH_STEP_MS = 1000
_FIRST_EPOCH = 1
_OPEN_STEP_MS = 10
_ASK_AGAIN_MS = 200
# A slave that held all of the log within this time may join; puts then wait until it has the rest.
_NEAR_MS = 1000


class AutoSwitchHAService(HAService):
    """The replication of a store that serves slaves or follows a master, as instructed.

    Roles and epochs change under `_role_lock`. A store without epochs takes the role in its configuration. A store with
    epochs was in use before, and may no longer be the master: it accepts no puts until it is made the master. It
    follows the assigned master, or the one that the name server knows unless that one's epochs are older than its own.

    Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService (5.1.4)
    """

    ha_client: AutoSwitchHAClient

    def __init__(self, replicated_log: ReplicatedLog, state: StoreState, broker_config: BrokerConfig,
                 commit_log: CommitLog, reput_message_service: ReputMessageService,
                 recover_topic_queue_table: Callable[[], None]) -> None:
        config = state.config
        self.commit_log = commit_log
        self._reput = reput_message_service
        self._recover_topic_queue_table = recover_topic_queue_table
        self.epoch_cache = EpochFileCache(config.get_store_path_epoch_file())
        # Read once: whether a controller decides which replica is the master and which are in sync.
        self.is_controlled = broker_config.enableControllerMode
        self._controlled = ControlledSyncStateSet(replicated_log.get_max_phy_offset) \
            if self.is_controlled else None
        self.sync_state_set: SyncStateSet = self._controlled or SyncStateSet(replicated_log.get_max_phy_offset)
        self._sync_state_set_listener: SyncStateSetListener | None = None
        self._last_ask: Ask | None = None  # of the executor's thread
        # id of this replica among those of its broker's name, whatever its role; set by start
        self.local_broker_id = broker_config.brokerId
        # a role change has determined the master to follow; guarded by _role_lock
        self._is_told = False
        self._role_lock = threading.Lock()
        self._executor = ScheduledService("AutoSwitchHAService_Executor_")
        super().__init__(replicated_log, state, broker_config)
        if self.is_controlled:
            self.role.need_guard()

    def new_ack_rule(self) -> AckRule:
        return SyncStateSetRule(self.config, self.role, self.sync_state_set, self.counted_slaves)

    def new_client(self) -> AutoSwitchHAClient:
        return AutoSwitchHAClient(self)

    def new_connection(self, sock: socket.socket, client_addr: str) -> HAConnection:
        return AutoSwitchHAConnection(self, sock, client_addr, self.epoch_cache)

    @property
    def is_master(self) -> bool:
        """True if this replica serves slaves and accepts puts."""
        return self.sync_state_set.is_master

    # Start and shutdown.

    def start(self) -> None:
        """Listen, and take the configured role if the store has no epochs yet.

        ValueError names the epoch file or the identity file when it can't be used.
        """
        self.epoch_cache.init_cache_from_file()
        broker, role = self.broker_config, self.role
        if not self.is_controlled:
            self.local_broker_id = epoch_file_cache.load_or_make(
                get_broker_identity(self.config.storePathRootDir), broker.brokerClusterName, broker.brokerName,
                role.broker_id).broker_id
        wanted = role.kind
        role.take(SLAVE)
        self.sync_state_set.learn(self._reput.reput_from_offset)
        super().start()
        self._executor.schedule_at_fixed_rate(self._housekeeping, _HOUSEKEEPING_MS, _HOUSEKEEPING_MS)
        if wanted is SLAVE or self.is_controlled:
            return
        if self.epoch_cache.entry_size:
            role.take_id(self.local_broker_id)
            log.error("this store was in use before, and another broker may be the master by now: waiting to be made "
                      "the master of an epoch above %d, or to find a master at the name server",
                      self.epoch_cache.last_epoch())
        else:
            self.change_to_master(_FIRST_EPOCH)

    def shutdown(self) -> None:
        self._executor.shutdown()
        super().shutdown()
        self.sync_state_set.resign()

    def _housekeeping(self) -> None:
        self.maybe_shrink_sync_state_set()
        min_offset = self.commit_log.get_min_offset()
        if min_offset > 0:
            self.epoch_cache.truncate_prefix_by_offset(min_offset)

    # Decisions of a controller. ReplicasManager calls these methods; all are safe on any thread.

    def set_local_broker_id(self, broker_id: int) -> None:
        """Set the id by which the controller knows this replica; called before the first role."""
        self.local_broker_id = broker_id

    def use_lease(self, holds: Callable[[], bool] | None, renounce: Callable[[float], object] | None = None) -> None:
        """Call `holds` (MasterLease.holds) before each put and each acknowledgement; None: no lease is needed.

        When a lease ends, waiting puts stay unanswered until a lease is granted again, the roles change, or they time
        out. `renounce` (MasterLease.renounced) is called in a handover, before the response to it: for the given number
        of ms after that, no request of this master for a lease may succeed.
        """
        guard = self.role.need_guard()
        guard.holds_lease, guard.renounce = holds, renounce

    def lease_granted(self) -> None:
        """Acknowledge the puts that waited for a lease, which has just been granted."""
        self.group_transfer_service.notify_transfer_some()

    def register_sync_state_set_changed_listener(self, listener: SyncStateSetListener) -> None:
        """Register `listener(wanted, epoch)`, called whenever the controller has to be asked for another set (request
        CONTROLLER_ALTER_SYNC_STATE_SET).

        It is called on a thread of this service, one call at a time: at once when a slave has caught up or is gone, and
        every second while the controller's set differs. It must send exactly `wanted`, with exactly `epoch` as
        syncStateSetEpoch. It calls `set_sync_state_set` with the set in a successful response; if the response names
        another epoch, it queries the set with CONTROLLER_GET_REPLICA_INFO and passes that on. It returns whether the
        controller has responded as the leader. False or an exception means that the leader has not responded: it is
        unknown whether the request will still be carried out.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#registerSyncStateSetChangedListener (5.1.4)
        """
        self._sync_state_set_listener = listener
        self._ask_for_sync_state_set()

    def set_sync_state_set(self, sync_state_set: Iterable[int], epoch: int) -> None:
        """Adopt the controller's set at `epoch`; an epoch that is not new is ignored.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#setSyncStateSet (5.1.4)
        """
        if self._controlled is None or not self._controlled.decide(sync_state_set, epoch):
            return
        log.info("the controller's syncStateSet is %s at epoch %d", sorted(sync_state_set), epoch)
        self._confirmed()
        self._ask_for_sync_state_set()

    def get_sync_state_set(self) -> frozenset[int]:
        """Return the replicas that must hold what is acknowledged: the controller's set, and the requested ones.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#getSyncStateSet (5.1.4)
        """
        return self.sync_state_set.members

    def get_local_sync_state_set(self) -> frozenset[int]:
        """Return the replicas that are in sync according to this master.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#getLocalSyncStateSet (5.1.4)
        """
        return self.sync_state_set.wanted

    def maybe_shrink_sync_state_set(self) -> frozenset[int]:
        """Drop slaves that have not caught up for haMaxTimeSlaveNotCatchup; return the replicas that are still in sync.

        Housekeeping does this every second anyway.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#maybeShrinkSyncStateSet (5.1.4)
        """
        late = self.sync_state_set.shrink(self.config.haMaxTimeSlaveNotCatchup)
        if late:
            log.warning("brokers %s have not caught up for %d ms and leave the syncStateSet, which is now %s",
                        sorted(late), self.config.haMaxTimeSlaveNotCatchup, sorted(self.sync_state_set.wanted))
            self._confirmed()
        self._ask_for_sync_state_set()
        return self.sync_state_set.wanted

    def _ask_for_sync_state_set(self) -> None:
        """Call the listener, on the service's thread, if another set is needed."""
        if self._needs_ask():
            self._executor.schedule(self._ask_now, 0)

    def _needs_ask(self) -> bool:
        return self._controlled is not None and self._sync_state_set_listener is not None \
            and self._controlled.needs_ask(self.config.minInSyncReplicas)

    def _ask_now(self) -> None:
        controlled, listener = self._controlled, self._sync_state_set_listener
        if controlled is None or listener is None:
            return
        ask, is_over = controlled.next_ask(self.config.minInSyncReplicas), False
        if ask is None:
            return
        try:
            is_over = listener(ask.members, ask.epoch)
        finally:
            controlled.answered(ask, is_over)
            self._confirmed()
            is_done, is_first, self._last_ask = controlled.epoch > ask.epoch, ask != self._last_ask, ask
            # A repeated request without success is left to housekeeping, every second.
            if self._needs_ask() and (is_done or is_first):
                self._executor.schedule(self._ask_now, 0 if is_done else _ASK_AGAIN_MS)

    # Roles.

    def update_master_address(self, new_addr: str | None) -> None:
        """Adopt the address from the configuration or the name server, on a slave that was not assigned a master."""
        with self._role_lock:
            if not self.is_master and not self._is_told:
                super().update_master_address(new_addr)

    def change_to_master(self, master_epoch: int, sync_state_set: Iterable[int] = (),
                         sync_state_set_epoch: int = 0) -> bool:
        """Become the master of `master_epoch`, which must be higher than all epochs of this log; else return False.

        A controller also passes its set, whose epoch is `sync_state_set_epoch`. With a controller, the log's last epoch
        is allowed too: this master was restarted, and continues it. Puts are accepted from here on; a master that
        continues its epoch first needs a response of the controller, and the other members of the set must hold all of
        this log, or be removed from the set.

        Differs: a restarted master continues its last epoch. 5.1.4 accepts the last epoch again and restarts it, so
        that two masters may write under one epoch.
        """
        with self._role_lock:
            last_epoch = self.epoch_cache.last_epoch()
            goes_on = self._controlled is not None and master_epoch == last_epoch
            if master_epoch <= last_epoch and not goes_on:
                log.warning("newMasterEpoch %d <= lastEpoch %d, fail to change to master", master_epoch, last_epoch)
                return False
            self._leave_role()
            end = self.cut_off_partial_record()
            start = self._begin_epoch(master_epoch, end)
            # Differs: a new master forgets what slaves have acknowledged, because it referred to another log; 5.1.4
            # keeps it, and relies on it.
            self.push2_slave_max_offset.set(0)
            self.forget_acknowledged()
            if self._controlled is not None:
                self._controlled.become_master_of(self.local_broker_id, sync_state_set, sync_state_set_epoch, goes_on)
            else:
                self.sync_state_set.become_master(self.local_broker_id)
            self._open_at(end)
            self._ask_for_sync_state_set()
            self.role.take(SYNC_MASTER)
            log.info("Change ha to master success, newMasterEpoch:%d, startOffset:%d", master_epoch, start)
            return True

    def cut_off_partial_record(self) -> int:
        """Drop an incomplete last record, and return the end of the log. Nothing may be appended meanwhile."""
        held = self.replicated_log
        end = held.end_of_whole_records()
        if end < held.get_max_phy_offset():
            self.lower_confirm_offset(end)
            held.truncate_dirty_files(end)
        return end

    def _begin_epoch(self, master_epoch: int, end: int) -> int:
        """Record the epoch of a log that ends at `end`, unless the last one continues; return its start offset."""
        cache = self.epoch_cache
        last = cache.last_entry()
        if last is not None and last.epoch == master_epoch and last.start_offset <= end:
            return last.start_offset
        cache.truncate_suffix_by_offset(end + 1)
        # Differs: the first epoch of a log covers what the log already has; 5.1.4 can't serve bytes that no epoch
        # covers.
        start = end if cache.entry_size else max(self.commit_log.get_min_offset(), 0)
        cache.append_entry(EpochEntry(master_epoch, start))
        return start

    def _open_at(self, end: int) -> None:
        """Accept puts once the log up to `end` is confirmed and dispatched to its queues.

        The queues determine the offset of the next message.
        """
        guard = self.role.guard
        if guard is not None:
            guard.is_closed = False
        if self._is_open_at(end):
            self._wait_dispatched()
            self._recover_topic_queue_table()
            return
        # There are other members, so a controller is in use.
        assert guard is not None
        guard.is_closed = True
        log.info("puts are accepted once the controller has confirmed the syncStateSet, and brokers %s hold this log "
                 "up to %d, or have left the set", sorted(self.sync_state_set.members), end)
        self._executor.schedule(partial(self._open_when_confirmed, end, self.role.term + 1), _OPEN_STEP_MS)

    def _is_open_at(self, end: int) -> bool:
        return self.confirm_offset() >= end and (self._controlled is None or self._controlled.is_settled)

    def _open_when_confirmed(self, end: int, term: int) -> None:
        if self.role.term == term and not self._is_open_at(end):
            self._executor.schedule(partial(self._open_when_confirmed, end, term), _OPEN_STEP_MS)
            return
        with self._role_lock:
            guard = self.role.guard
            if self.role.term == term and guard is not None:
                self._wait_dispatched()
                self._recover_topic_queue_table()
                guard.is_closed = False
                log.info("the log is confirmed up to %d; puts are accepted", end)

    def change_to_master_when_last_role_is_master(self, master_epoch: int, sync_state_set: Iterable[int] = (),
                                                  sync_state_set_epoch: int = 0) -> bool:
        """Stay the master under a new epoch; slaves stay connected, puts keep waiting. Return False for an old epoch.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#changeToMasterWhenLastRoleIsMaster (5.1.4)
        """
        with self._role_lock:
            last_epoch, guard = self.epoch_cache.last_epoch(), self.role.guard
            if self._controlled is None or guard is None or not self.is_master or master_epoch < last_epoch:
                log.warning("newMasterEpoch %d, lastEpoch %d, fail to stay the master", master_epoch, last_epoch)
                return False
            with self.commit_log.put_message_lock:
                start = self._begin_epoch(master_epoch, self.replicated_log.get_max_phy_offset())
                self._controlled.re_elected(self.local_broker_id, sync_state_set, sync_state_set_epoch)
                guard.resume()
            log.info("Change ha to master success, last role is master, newMasterEpoch:%d, startOffset:%d",
                     master_epoch, start)
        self._confirmed()
        self._ask_for_sync_state_set()
        return True

    def change_to_slave(self, new_master_addr: str | None, new_master_epoch: int | None = None) -> bool:
        """Follow `new_master_addr` ("host:port" of its HA port), the master of `new_master_epoch`; None: no master.

        Return False when that epoch is older than the last one here. Without an epoch, a master is not followed if its
        last epoch is older than this log's.
        """
        with self._role_lock:
            last_epoch = self.epoch_cache.last_epoch()
            if new_master_epoch is not None and new_master_epoch < last_epoch:
                log.warning("newMasterEpoch %d < lastEpoch %d, fail to change to slave", new_master_epoch, last_epoch)
                return False
            self._leave_role()
            client, self._is_told = self.ha_client, new_master_addr is not None
            client.expected_epoch = new_master_epoch
            client.update_master_address(new_master_addr)
            client.start()
            log.info("Change ha to slave success, newMasterAddress:%s, newMasterEpoch:%s", new_master_addr,
                     new_master_epoch)
            return True

    def change_to_slave_when_master_not_change(self, new_master_addr: str | None, new_master_epoch: int) -> bool:
        """Continue to follow the same master under a new epoch. Return False when the epoch is old.

        Java: org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService#changeToSlaveWhenMasterNotChange (5.1.4)
        """
        with self._role_lock:
            client, last_epoch = self.ha_client, self.epoch_cache.last_epoch()
            if new_master_epoch >= last_epoch and not self.is_master and client.is_alive() \
                    and new_master_addr == client.master_address is not None:
                client.expected_epoch = new_master_epoch
                log.info("Change ha to slave success, master doesn't change, newMasterAddress:%s, newMasterEpoch:%d",
                         new_master_addr, new_master_epoch)
                return True
        return self.change_to_slave(new_master_addr, new_master_epoch)

    def _leave_role(self) -> None:
        """Leave the current role: afterwards nothing is appended or sent. The module explains the order."""
        with self.commit_log.put_message_lock:
            self.role.take(SLAVE)
        if self.role.guard is not None:
            self.role.guard.resume()
        self.sync_state_set.resign()
        self.destroy_connections()
        # The bytes of waiting puts may be truncated, so the next master role must not acknowledge them.
        self.group_transfer_service.give_up()
        self.ha_client.shutdown()
        self.ha_client.update_master_address(None)

    def _wait_dispatched(self) -> None:
        reput = self._reput
        while reput.is_alive() and not reput.wait_caught_up(_DISPATCH_STEP_MS) \
                and not reput.has_only_part_of_a_record():
            log.info("Waiting consume queue dispatch, %d bytes behind", reput.behind())

    # Acknowledgements and the confirm offset.

    def slave_acknowledged(self, connection: HAConnection, ack_offset: int) -> bool:
        """Handle a slave's acknowledgement of everything below `ack_offset`; return whether it is the first to do so.
        """
        assert isinstance(connection, AutoSwitchHAConnection)
        caught_up_ns = connection.caught_up_at(ack_offset, self.replicated_log.get_max_phy_offset())
        is_near = caught_up_ns is not None and time.monotonic_ns() - caught_up_ns < _NEAR_MS * 1_000_000
        before = self.sync_state_set.wanted
        # The slave sends its id before any report.
        self.sync_state_set.acknowledged(
            connection.slave_id, ack_offset,  # type: ignore[arg-type]  # see above
            caught_up_ns, is_near and not connection.is_async_learner)
        wanted = self.sync_state_set.wanted
        if wanted != before:
            log.info("slave %d has caught up at %d, the syncStateSet is now %s", connection.slave_id, ack_offset,
                     sorted(wanted))
            self._ask_for_sync_state_set()
        self._wake_dispatch()
        return super().slave_acknowledged(connection, ack_offset)

    def remove_connection(self, connection: HAConnection) -> None:
        super().remove_connection(connection)
        slave_id = connection.slave_id
        if slave_id is None or any(other.slave_id == slave_id for other in self.connection_list):
            return
        if slave_id in self.sync_state_set.members:
            log.warning("slave %d has disconnected and leaves the syncStateSet", slave_id)
        self.sync_state_set.left(slave_id)
        self._ask_for_sync_state_set()
        self._confirmed()

    def confirm_offset(self) -> int:
        """Return the end of the bytes that consumers may read."""
        return self.sync_state_set.confirm_offset()

    def learn_confirm_offset(self, confirm_offset: int) -> None:
        """Adopt the confirm offset received from the master."""
        if self.sync_state_set.learn(confirm_offset):
            self._wake_dispatch()

    def lower_confirm_offset(self, offset: int) -> None:
        """Lower the confirm offset, because the log is about to be truncated at `offset`."""
        self.sync_state_set.lower(offset)

    def _confirmed(self) -> None:
        """Handle a change of the set: more bytes may be confirmed if there are fewer members."""
        self._wake_dispatch()
        self.group_transfer_service.notify_transfer_some()

    def _wake_dispatch(self) -> None:
        self._reput.wakeup()

    def build_running_stats(self, stats: dict[str, str]) -> None:
        """Add the state of replication to `stats`, including role, epochs and the replicas in sync."""
        super().build_running_stats(stats)
        stats["haRole"] = "master" if self.is_master else "slave"
        stats["haLocalBrokerId"] = str(self.local_broker_id)
        stats["haLastEpoch"] = str(self.epoch_cache.last_epoch())
        stats["haConfirmOffset"] = str(self.confirm_offset())
        stats["haSyncStateSet"] = ",".join(map(str, sorted(self.sync_state_set.members)))

    # Puts.

    def why_no_puts(self) -> str | None:
        """Return the reason, for the producer, why an externally decided role refuses puts; None if it does not."""
        guard = self.role.guard
        if guard is None:
            return None
        if not self.is_master:
            return f"this broker is not the master; {AUTOMATIC}"
        return guard.why_not()
