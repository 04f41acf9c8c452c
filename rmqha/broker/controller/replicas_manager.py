"""A replica whose role a controller decides: it registers, sends heartbeats, and changes its role while it runs.

    ReplicasManager (thread): gets an id, registers, then every 5 s, or when woken, asks which replica is the master
    ReplicasManager_Heartbeat_<n>, one per controller --904--> the master; the lease; wakes the thread above
    AdminBrokerThread_: NOTIFY_BROKER_ROLE_CHANGED --> change_broker_role, at once
    AutoSwitchHAService_Executor_: a slave has caught up or is gone --1001--> the sync-state set
    ReplicasManager_ScheduledService_: tasks after a role change, in order: special services; delayed tasks
    ReplicasManager_RegisterThread_: registration at the name servers, at once
    ReplicasManager_ExecutorService_: requests to other brokers, which may take long
    ReplicasManager_RoleCallback: the operator's command for role changes (RoleCallback)

Role changes. A controller elects a master and numbers the election with an epoch. The news arrives on several paths
(heartbeat responses, the periodic query, notifications) and in any order. So only an epoch above the current one
changes the role, and only one change runs at a time. A change has four steps, whose order matters:

1. The new role is set, not leading yet, and the lease of the old role is void. From here on nothing is acknowledged in
   the old role (see `MasterLease` for the lease).
2. The store switches: it starts the new epoch in its log, or connects to the new master. If this fails, the role falls
   back to the old epoch without leading, so that the next query tries again. A new master then waits for the operator's
   command, for a limited time.
3. Only then the replica leads, or follows. It wakes the heartbeats, since a master acknowledges only with a lease of
   its new role, and a slave starts to copy the master's tables.
4. Delayed messages and transaction checks start or stop on one thread, by the role at that time: two quick changes
   cannot leave the services of the first one running. The name servers are updated at once and again after 1 s and 3 s,
   because the old master, which does not know yet that it was replaced, may register after this broker.

Without step 1, a deposed master could acknowledge messages that the new master does not have. If the replica led before
its store had switched, it would accept messages into the wrong epoch.
"""
from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rmqha.broker.broker_outer_api import BrokerAnswerException, ControllerApi
from rmqha.broker.controller.broker_id_registration import BrokerIdRegistration
from rmqha.broker.controller.controller_heartbeat import CALL_ERRORS, ControllerHeartbeat, MasterHaAddress, MasterLease
from rmqha.broker.controller.role_callback import RoleCallback
from rmqha.broker.topic_config_manager import TopicConfigManager, adopt_topics
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.protocol import response_code
from rmqha.common.protocol.cluster_bodies import SyncStateSet
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    BrokerHeartbeatRequestHeader,
    BrokerHeartbeatResponseHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.common.service_thread import ServiceThread
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError, ScheduledService
from rmqha.remoting.addresses import all_addresses
from rmqha.store.message_store_config import BrokerRole
from rmqha.store.store_path_config_helper import get_broker_identity

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_registration import BrokerRegistration
    from rmqha.broker.role_services import RoleServices
    from rmqha.remoting.remoting_config import RemotingClientConfig
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")

# Differs: the pause between two attempts to register with a controller or to be elected is 0.5 s; 5.1.4 waits 5 s
_RETRY_MS = 500
_UPDATE_ADDRESSES_MS = 2 * 60 * 1000
_EXECUTOR_THREADS = 3
# Concurrent registrations; each waits for the slowest name server.
_REGISTRATIONS = 8
# For this long after a role change the replica may register as the master without holding a lease yet.
_NEWS_MS = 100
# Registrations after a role change: an old master may have registered in between.
_REGISTER_AGAIN_MS = (1000, 3000)

ToldMaster = ElectMasterResponseHeader | GetReplicaInfoResponseHeader | RegisterBrokerToControllerResponseHeader


class State(enum.Enum):
    """The progress of a replica since its start.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager$State (5.1.4)
    """

    INITIAL = enum.auto()
    FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE = enum.auto()
    REGISTER_TO_CONTROLLER_DONE = enum.auto()
    RUNNING = enum.auto()
    SHUTDOWN = enum.auto()


@dataclass(frozen=True)
class Mastership:
    """The master and epoch that this replica has switched to; `leads`: this replica is the master, and ready."""

    epoch: int = 0
    master_id: int | None = None
    leads: bool = False


class ToldSet(NamedTuple):
    """The sync-state set of a master's epoch, as a controller reported it."""

    master_epoch: int
    epoch: int  # of the set
    members: frozenset[int]
    told_ns: int  # monotonic


class ReplicasManager(ServiceThread):
    """The broker's side of automatic failover.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager (5.1.4)
    """

    def __init__(self, broker_config: BrokerConfig, client_config: RemotingClientConfig, addresses: BrokerAddresses,
                 store: DefaultMessageStore, topics: TopicConfigManager, roles: RoleServices,
                 registration: BrokerRegistration, master_ha_address: MasterHaAddress) -> None:
        super().__init__()
        self.broker_config = config = broker_config
        self._here = addresses
        self._store = store
        self._topics = topics
        self._roles = roles
        self._name_servers = registration
        self._master_ha_address = master_ha_address
        assert store.auto_switch is not None  # created by the store in controller mode
        self.ha_service = store.auto_switch
        self.lease = MasterLease()
        self.api = ControllerApi(client_config, self.lease.renounced, self._connection_ended)
        store_config = store.message_store_config
        self.registration = BrokerIdRegistration(
            self.api, config.brokerClusterName, config.brokerName,
            store_config.storePathBrokerIdentity or get_broker_identity(store_config.storePathRootDir))
        self.state = State.INITIAL  # guarded by _change
        # "": unknown. Replaced by any thread.
        self.controller_leader_address = ""
        self.master_address = ""  # guarded by _change
        # The HA address of the master that this replica follows; guarded by _change.
        self._ha_address: str | None = None
        # The role is new until then (monotonic clock); written under _change.
        self._is_news_until_ns = 0
        # Replaced under _change and _lease_lock; read without a lock.
        self.role = Mastership()
        # The address and epoch of the master that this replica follows, None while it follows none; replaced as a whole
        # under _change, read without a lock.
        self.followed: tuple[str, int] | None = None
        # The last reported sync-state set, for pages about the role; replaced as a whole.
        self.told_set: ToldSet | None = None
        # Called after each change of the role or of `followed`, under _change.
        self.on_role_changed: Callable[[], object] = lambda: None
        # Held during a role change.
        self._change = threading.RLock()
        # Held while a lease is granted, so that it goes to the role for which it was requested.
        self._lease_lock = threading.Lock()
        # The highest epoch that any leader has reported; guarded by _lease_lock.
        self._newest_epoch = 0
        # By address; replaced as a whole under _change.
        self._heartbeats: dict[str, ControllerHeartbeat] = {}
        # Number of heartbeat threads so far; guarded by _change.
        self._count = 0
        self._services = ScheduledService("ReplicasManager_ScheduledService_")
        self._executor = NamedThreadPool("ReplicasManager_ExecutorService_", _EXECUTOR_THREADS)
        self._registrations = NamedThreadPool("ReplicasManager_RegisterThread_", _REGISTRATIONS)
        self._callback = RoleCallback(config, addresses, self.lease, lambda: self.broker_id)
        # True until the next query for the master; used by this service's thread only.
        self._has_stood_down = False
        # When this replica last asked to be elected (monotonic clock).
        self._sought_ns = 0

    # ---- start and stop

    def prepare(self) -> None:
        """Refuse puts until the role is decided. Raises BrokerMetadataError when the store belongs to another replica.
        """
        self.registration.read_files()
        self._store.running_flags.make_fenced(True)
        if self.broker_config.controllerLease:
            self.ha_service.use_lease(self.lease.holds, self.lease.renounced)

    def start(self) -> None:
        """Start the thread, which registers this replica, retrying until it succeeds, and then follows the roles."""
        if self.registration.broker_id is not None:
            self.ha_service.set_local_broker_id(self.registration.broker_id)
        self.api.start()
        self._callback.start()
        self._services.schedule_at_fixed_rate(self._update_addresses, _UPDATE_ADDRESSES_MS, _UPDATE_ADDRESSES_MS)
        super().start()

    def shutdown(self, interrupt: bool = False) -> None:
        """Give up the lease and disconnect from the controllers, which then elect another master. Idempotent."""
        self.make_stop()
        self._callback.make_stop()
        with self._lease_lock:
            self.role = Mastership(self.role.epoch, self.role.master_id)
            self.lease.renounced()
        self.api.shutdown()
        super().shutdown(interrupt)
        for heartbeat in self._heartbeats.values():
            heartbeat.shutdown()
        self._services.shutdown()
        self._executor.shutdown()
        self._registrations.shutdown()
        self._callback.shutdown()
        self.state = State.SHUTDOWN

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            is_running = self._start_basic_service() if self.state is not State.RUNNING \
                else self._sync_broker_metadata()
            self.wait_for_running(self.broker_config.syncBrokerMetadataPeriod if is_running else _RETRY_MS)
        log.info("%s service end", self.get_service_name())

    def _start_basic_service(self) -> bool:
        """Continue the steps of the start; return whether RUNNING is reached."""
        try:
            if not self.controller_leader_address:
                self._find_leader()
            if not self.controller_leader_address:
                return False
            if self.state is State.INITIAL:
                self._reached(State.FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE)
            if self.state is State.FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE:
                self._register()
            if self.state is State.REGISTER_TO_CONTROLLER_DONE:
                self._broker_elect()
        except BrokerAnswerException as error:
            self._refused("Failed to start replicasManager", error)
        except (*CALL_ERRORS, OSError) as error:
            log.warning("Failed to start replicasManager, current state: %s: %s", self.state.name, error)
            self.controller_leader_address = ""
        return self.state is State.RUNNING

    def _reached(self, state: State) -> None:
        with self._change:
            if self.state in (State.RUNNING, State.SHUTDOWN):
                return
            self.state = state
        log.info("replicasManager: change state to %s", state.name)

    def _register(self) -> None:
        here, leader = self._here, self.controller_leader_address
        told, sync_state_set = self.registration.register(leader, here.broker_addr, here.ha_server_addr)
        assert self.registration.broker_id is not None  # it is registered
        self.ha_service.set_local_broker_id(self.registration.broker_id)
        self.ha_service.register_sync_state_set_changed_listener(self.alter_sync_state_set)
        self._reached(State.REGISTER_TO_CONTROLLER_DONE)
        self._update_addresses()
        # The controller elects only replicas that have sent a heartbeat.
        self._beat(leader)
        self._follow(told, sync_state_set.syncStateSet, told.syncStateSetEpoch)

    def _beat(self, leader: str) -> None:
        """Send a heartbeat to the leader, before any other request."""
        heartbeat = self._heartbeats.get(leader)
        if heartbeat is None:
            self.api.send_heartbeat(leader, self.heartbeat(), self.broker_config.sendHeartbeatTimeoutMillis)
        else:
            heartbeat.beat()

    def _broker_elect(self) -> None:
        """Ask to be elected, because no replica is the master."""
        config, leader = self.broker_config, self.controller_leader_address
        self._sought_ns = time.monotonic_ns()
        self._beat(leader)
        told, members = self.api.broker_elect(leader, config.brokerClusterName, config.brokerName, self.broker_id)
        if not self._follow(told, members, told.syncStateSetEpoch):
            log.warning("Now no master in broker set")

    # ---- the controllers, and which of them leads

    def _addresses(self) -> list[str]:
        given = self.broker_config.controllerAddr
        if not self.broker_config.fetchControllerAddrByDnsLookup:
            return [address.strip() for address in given.split(";") if address.strip()]
        host, _colon, port = given.strip().rpartition(":")
        try:
            found = all_addresses(host.removeprefix("[").removesuffix("]"))
        except (OSError, UnicodeError) as error:
            log.error("cannot resolve the controllers' host name %s: %s", given, error)
            return list(self._heartbeats)
        return [f"[{address}]:{port}" if ":" in address else f"{address}:{port}" for address in found]

    def _update_addresses(self) -> None:
        """Start heartbeats to new controllers and stop those to removed ones, once this replica has an id."""
        if self.registration.broker_id is None or self.stopped:
            return
        addresses = self._addresses()
        with self._change:
            gone = [beat for address, beat in self._heartbeats.items() if address not in addresses]
            new = [address for address in addresses if address not in self._heartbeats]
            kept = {address: beat for address, beat in self._heartbeats.items() if address in addresses}
            for address in new:
                self._count += 1
                kept[address] = ControllerHeartbeat(self, address, self._count)
            self._heartbeats = kept
        for address in new:
            kept[address].start()
        for heartbeat in gone:
            self.api.close(heartbeat.address)
            heartbeat.shutdown()

    def _find_leader(self) -> None:
        for address in self._addresses():
            try:
                self.told_of_leader(address, self.api.get_controller_meta_data(
                    address, self.broker_config.sendHeartbeatTimeoutMillis))
            except CALL_ERRORS as error:
                log.warning("Failed to update controller metadata: %s", error)
            if self.controller_leader_address:
                return

    def told_of_leader(self, address: str, told: GetMetaDataResponseHeader) -> None:
        """Note which controller leads, as reported by the controller at `address`."""
        if told.isLeader:
            self._leads(address)
        # A controller may learn late that another one leads now; so its report does not replace a known leader.
        elif self.controller_leader_address in ("", address):
            leader = told.controllerLeaderAddress or ""
            self._leads(leader if leader != address else "")

    def leads_no_more(self, address: str) -> None:
        """Note that a controller does not respond, or reports that it does not lead."""
        if self.controller_leader_address == address:
            self._leads("")

    def _leads(self, address: str) -> None:
        if self.controller_leader_address != address:
            log.info("Update controller leader address to %s", address or "none")
            self.controller_leader_address = address
            if not address:
                self.beat_now()  # Heartbeats are more frequent until a leader is known.

    def _connection_ended(self) -> None:
        """Request the lease again after a connection ended, and the lease with it. On the client's IO thread."""
        self._callback.wakeup()
        self.beat_now()

    # ---- heartbeats and their responses

    @property
    def broker_id(self) -> int:
        """This replica's id, independent of its role; 0 before it has one."""
        return self.registration.broker_id or 0

    def heartbeat(self) -> BrokerHeartbeatRequestHeader:
        """Return the contents of a heartbeat."""
        config, here = self.broker_config, self._here
        return BrokerHeartbeatRequestHeader(
            clusterName=config.brokerClusterName, brokerAddr=here.broker_addr, brokerName=config.brokerName,
            brokerId=self.broker_id, epoch=self.ha_service.epoch_cache.last_epoch(),
            maxOffset=self._store.get_max_phy_offset(), confirmOffset=self.ha_service.confirm_offset(),
            heartbeatTimeoutMills=config.controllerHeartBeatTimeoutMills,
            electionPriority=config.brokerElectionPriority, haServerAddr=here.ha_server_addr,
            leaderTerm=self.lease.term or None)

    def beat_now(self) -> None:
        """Send a heartbeat to each controller now."""
        for heartbeat in self._heartbeats.values():
            heartbeat.wakeup()

    def told_by_leader(self, address: str, answer: BrokerHeartbeatResponseHeader, asked_ns: int,
                       asked_of: int = 0) -> bool:
        """Process the response of the leading controller, one of rmqha, to a heartbeat sent at `asked_ns` (monotonic).

        `asked_of`: the term that the heartbeat named. Returns whether another heartbeat should follow at once: this
        replica follows that controller since this response, which has to be reported to it, or the response was
        ignored.
        """
        term = answer.leaderTerm or 0
        counts = self._told(answer.masterBrokerId, answer.masterEpoch or 0, asked_ns, answer.leaseMillis or 0, term,
                            asked_of)
        if counts:
            self._leads(address)
        return term != asked_of if counts else bool(term)

    def told_by_replica_info(self, info: GetReplicaInfoResponseHeader, sync_state_set: SyncStateSet,
                             asked_ns: int) -> None:
        """Process the response of the leading controller, one of RocketMQ, about the master."""
        epoch = info.masterEpoch or 0
        self._told(info.masterBrokerId, epoch, asked_ns, self.broker_config.controllerHeartBeatTimeoutMills)
        self._note_set(epoch, sync_state_set.syncStateSet, sync_state_set.syncStateSetEpoch)
        role = self.role
        if role.leads and role.epoch == epoch and info.masterBrokerId == role.master_id:
            self.ha_service.set_sync_state_set(sync_state_set.syncStateSet, sync_state_set.syncStateSetEpoch)

    def _told(self, master_id: int | None, epoch: int, asked_ns: int, lease_ms: int, term: int = 0,
              asked_of: int = 0) -> bool:
        """Process what a leader reports about the master; return False if that leader's term is over and it is ignored.
        """
        with self._lease_lock:
            role, newest_epoch = self.role, max(self._newest_epoch, epoch)
            is_mine = role.leads and epoch == role.epoch == newest_epoch and master_id == role.master_id
            held = self.lease.holds()
            if not self.lease.granted(asked_ns, lease_ms if is_mine else 0, term, asked_of):
                return False
            self._newest_epoch = newest_epoch
            is_new = is_mine and not held and self.lease.holds()
            is_other = not is_mine and epoch >= role.epoch and (epoch, master_id) != (role.epoch, role.master_id)
            if is_other and role.leads:
                self.lease.renounced()
            if is_other and master_id is not None or master_id is None and self._may_seek():
                self.wakeup()
        if is_new:
            self.ha_service.lease_granted()
            self._callback.wakeup()
            self.register_when_role_changed()
        return True

    def _may_seek(self) -> bool:
        """Return whether enough time has passed to ask to be elected again.

        Each attempt sends a heartbeat first, whose response reports the missing master again.
        """
        return time.monotonic_ns() - self._sought_ns > _RETRY_MS * 1_000_000

    # ---- the role

    def _sync_broker_metadata(self) -> bool:
        """Ask which replica is the master, and change the role if necessary; return whether it is known."""
        self._has_stood_down = False
        leader = self.controller_leader_address
        if not leader:
            return False
        try:
            info, sync_state_set = self.api.get_replica_info(leader, self.broker_config.brokerName)
            if self._follow(info, sync_state_set.syncStateSet, sync_state_set.syncStateSetEpoch):
                return True
            self._broker_elect()
        except BrokerAnswerException as error:
            self._refused(f"Error happen when get broker {self.broker_config.brokerName}'s metadata", error)
            if error.response_code == response_code.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._reached_again()
            return error.response_code == response_code.CONTROLLER_ELECT_MASTER_FAILED
        except CALL_ERRORS as error:
            log.warning("Error happen when get broker %s's metadata: %s", self.broker_config.brokerName, error)
            return False
        return True

    def _reached_again(self) -> None:
        """Register as at the start, because the controllers lost their data and count epochs from the beginning.

        Differs: when the controllers have lost their data, a broker registers and follows their new epochs. 5.1.4
        registers, but ignores epochs below its own from then on.
        """
        with self._change, self._lease_lock:
            if self.state is State.RUNNING:
                self.state = State.FIRST_TIME_SYNC_CONTROLLER_METADATA_DONE
                self.role, self._newest_epoch, self.told_set = Mastership(), 0, None
                self.lease.renounced()
                self.lease.follows_nobody()

    def _refused(self, what: str, error: BrokerAnswerException) -> None:
        log.warning("%s: %s", what, error)
        if error.response_code == response_code.CONTROLLER_NOT_LEADER:
            self.controller_leader_address = ""

    def _follow(self, told: ToldMaster, sync_state_set: Iterable[int], sync_state_set_epoch: int | None) -> bool:
        """Change the role as a controller reports it; return False when it knows no master."""
        if told.masterBrokerId is None or not told.masterAddress:
            return False
        epoch = told.masterEpoch or 0
        self._note_set(epoch, sync_state_set, sync_state_set_epoch)
        self.change_broker_role(told.masterBrokerId, told.masterAddress, epoch, sync_state_set,
                                sync_state_set_epoch or 0, told.masterHaAddress)
        role = self.role
        if role.leads and role.epoch == epoch and told.masterBrokerId == role.master_id:
            self.ha_service.set_sync_state_set(sync_state_set, sync_state_set_epoch or 0)
        return True

    def _note_set(self, master_epoch: int, members: Iterable[int], epoch: int | None) -> None:
        """Note a reported sync-state set, unless it is older than the last one."""
        told, known = ToldSet(master_epoch, epoch or 0, frozenset(members), time.monotonic_ns()), self.told_set
        if known is None or told[:2] >= known[:2]:
            self.told_set = told

    def change_broker_role(self, master_id: int, master_address: str | None, master_epoch: int,
                           sync_state_set: Iterable[int], sync_state_set_epoch: int,
                           master_ha_address: str | None) -> None:
        """Become the master, or follow the given one, if the epoch is new and this replica is registered."""
        with self._change:
            if self.stopped or self.state not in (State.REGISTER_TO_CONTROLLER_DONE, State.RUNNING):
                # Wake the thread to register; the response contains the role again.
                self.wakeup()
                return
            if master_epoch > self.role.epoch:
                if master_id == self.broker_id:
                    self._change_to_master(master_epoch, sync_state_set, sync_state_set_epoch)
                else:
                    self._change_to_slave(master_id, master_address or "", master_epoch, master_ha_address)
            role = self.role
            if self.state is not State.RUNNING and role.epoch and role.epoch == master_epoch:
                self._serve()

    def _take_role(self, role: Mastership) -> Mastership:
        """Set the role, end the lease of the old role, and return the old role."""
        self.followed = None
        with self._lease_lock:
            old, self.role = self.role, role
            self.lease.role_changes()
        return old

    def _change_to_master(self, epoch: int, sync_state_set: Iterable[int], sync_state_set_epoch: int) -> None:
        log.info("Begin to change to master, brokerName:%s, replicas:%s, new Epoch:%d", self.broker_config.brokerName,
                 self._here.broker_addr, epoch)
        old, done = self._take_role(Mastership(epoch, self.broker_id)), False
        service = self.ha_service
        change = service.change_to_master_when_last_role_is_master if old.leads else service.change_to_master
        try:
            done = change(epoch, sync_state_set, sync_state_set_epoch)
        finally:
            # The next query for the master tries again.
            if not done:
                self._take_role(Mastership(old.epoch, old.master_id))
        if not done:
            self._stand_down(epoch)
            return
        self.ha_service.role.take_id(mix_all.MASTER_ID)
        adopt_topics(self._store, self._topics)
        predecessor = self.master_address if not old.leads else ""
        self.master_address, self._ha_address = self._here.broker_addr, None
        self._callback.becomes_master(epoch)
        if self.stopped:
            return
        with self._lease_lock:
            self.role = Mastership(epoch, self.broker_id, True)
        self.on_role_changed()
        self._role_is_changed(None)
        if predecessor and predecessor != self.master_address:
            try:
                self._executor.submit(self._take_last_offsets, predecessor)
            except RejectedExecutionError as error:
                log.warning("cannot ask the old master for its consumer offsets: %s", error)

    def _take_last_offsets(self, predecessor: str) -> None:
        """Copy the offsets that consumers committed to the old master since the last copy.

        The old master still responds after a planned switch.
        """
        if self.role.leads and not self.stopped:
            self._roles.slave_synchronize.take_consumer_offsets(predecessor)

    def _stand_down(self, epoch: int) -> None:
        """Disconnect from the controllers, so that they elect again: this log cannot start the epoch."""
        if self._has_stood_down:
            return
        self._has_stood_down = True
        log.error("this replica cannot be the master of epoch %d: the last epoch of its log is %d. Disconnecting from "
                  "the controllers for a moment, so that they elect a master with a later epoch", epoch,
                  self.ha_service.epoch_cache.last_epoch())
        self.api.close_all()

    def _change_to_slave(self, master_id: int, master_address: str, epoch: int, ha_address: str | None) -> None:
        log.info("Begin to change to slave, brokerName=%s, brokerId=%d, newMasterBrokerId=%d, newMasterAddress=%s, "
                 "newMasterEpoch=%d", self.broker_config.brokerName, self.broker_id, master_id, master_address, epoch)
        old, done = self._take_role(Mastership(epoch, master_id)), False
        service, is_same = self.ha_service, master_id == old.master_id and master_address == self.master_address
        address = ha_address or (self._ha_address if is_same else None)
        change = service.change_to_slave_when_master_not_change if is_same and address == self._ha_address \
            and address is not None else service.change_to_slave
        try:
            done = change(address, epoch)
        finally:
            if not done:
                self._take_role(Mastership(old.epoch, old.master_id))
        if not done:
            log.error("cannot follow the master of epoch %d: the last epoch of this replica's log is %d", epoch,
                      service.epoch_cache.last_epoch())
            return
        self.ha_service.role.take_id(self.broker_id)
        self.master_address, self._ha_address = master_address, address
        self._callback.becomes_slave(epoch, master_address, address)
        self.followed = master_address, epoch
        self.on_role_changed()
        if address is None:
            try:
                self._executor.submit(self._find_ha_address, self.role, master_address)
            except RejectedExecutionError as error:
                log.warning("cannot ask for the master's HA address: %s", error)
        self._role_is_changed(master_address)

    def _find_ha_address(self, role: Mastership, master_address: str) -> None:
        address = self._master_ha_address.find(master_address, lambda: self.role is role and not self.stopped)
        if address is not None:
            self.follow_at(role, address)

    def follow_at(self, role: Mastership, ha_address: str) -> None:
        """Follow the master of `role` at this HA address, if the role is still the same."""
        with self._change:
            if self.role is role and not self.stopped:
                self._ha_address = ha_address
                self.ha_service.update_master_address(ha_address)

    def _role_is_changed(self, master_address: str | None) -> None:
        self._serve()
        self._is_news_until_ns = time.monotonic_ns() + _NEWS_MS * 1_000_000
        # Request a lease for the new role, and report the epoch that this log is in now.
        self.beat_now()
        self._roles.handle_slave_synchronize(
            BrokerRole.SYNC_MASTER if master_address is None else BrokerRole.SLAVE, master_address)
        self._topics.note_another_owner()
        self._services.schedule(self._settle, 0)
        self.register_when_role_changed()
        for delay_ms in _REGISTER_AGAIN_MS:
            self._services.schedule(self.register_when_role_changed, delay_ms)

    def _serve(self) -> None:
        if self.state is State.RUNNING:
            return
        self._reached(State.RUNNING)
        self._name_servers.is_isolated = False
        self._store.running_flags.make_fenced(False)

    def _settle(self) -> None:
        """Start or stop delayed messages and transaction checks, by the current role."""
        if self.stopped:
            return
        role = self.role
        self._roles.change_special_service_status(role.leads)
        with self._change:
            # Stopping the delayed messages wrote this broker's own delay offsets, so copy the master's again.
            if self.role is role and not role.leads:
                self._roles.handle_slave_synchronize(BrokerRole.SLAVE, self.master_address or None)

    def may_register(self) -> bool:
        """Return whether this broker may register: as the master only with a lease or right after the role change."""
        role = self.role
        if role.master_id == self.broker_id:
            return role.leads and (self.may_acknowledge() or time.monotonic_ns() < self._is_news_until_ns)
        return not self.stopped

    def may_acknowledge(self) -> bool:
        """Return whether a lease is held now, or controllerLease=false."""
        return self.lease.holds() or not self.broker_config.controllerLease

    def register_when_role_changed(self) -> None:
        """Register at all name servers at once.

        Java: org.apache.rocketmq.broker.controller.ReplicasManager#registerBrokerWhenRoleChange (5.1.4)
        """
        try:
            self._registrations.submit(self._register_at_name_servers)
        except RejectedExecutionError as error:
            log.warning("cannot register at the name servers: %s", error)

    def _register_at_name_servers(self) -> None:
        if not self.stopped:
            self._name_servers.register_broker_at_once()

    # ---- the sync-state set

    def alter_sync_state_set(self, wanted: frozenset[int], epoch: int) -> bool:
        """Ask the controller to replace the sync-state set of `epoch`; return False when the outcome is unknown."""
        role = self.role
        leader = self.controller_leader_address
        if role.master_id != self.broker_id or not leader:
            return False
        try:
            try:
                self._ask_for_set(leader, role, wanted, epoch)
            except BrokerAnswerException as error:
                if error.response_code != response_code.CONTROLLER_NOT_LEADER:
                    raise
                self.leads_no_more(leader)
                self._find_leader()
                leader = self.controller_leader_address
                if not leader:
                    raise
                self._ask_for_set(leader, role, wanted, epoch)
        except BrokerAnswerException as error:
            log.warning("the controller rejected the syncStateSet %s as the successor of epoch %d: %s", sorted(wanted),
                        epoch, error)
            return self._set_refused(error, role, leader)
        except CALL_ERRORS as error:
            log.warning("Error happen when change SyncStateSet to %s, after epoch %d: %s", sorted(wanted), epoch,
                        error)
            return False
        return True

    def _ask_for_set(self, leader: str, role: Mastership, wanted: frozenset[int], epoch: int) -> None:
        config = self.broker_config
        header = AlterSyncStateSetRequestHeader(config.brokerName, role.master_id, role.epoch)
        decided = self.api.alter_sync_state_set(leader, header, wanted, epoch, config.sendHeartbeatTimeoutMillis)
        if self.role.epoch == role.epoch:
            self.ha_service.set_sync_state_set(decided.syncStateSet, decided.syncStateSetEpoch)

    def _set_refused(self, error: BrokerAnswerException, role: Mastership, leader: str) -> bool:
        code = error.response_code
        if code == response_code.CONTROLLER_NOT_LEADER:
            self.leads_no_more(leader)
        elif code in (response_code.CONTROLLER_INVALID_MASTER, response_code.CONTROLLER_FENCED_MASTER_EPOCH):
            # The mastership ended. The request may have been carried out before that, so query the state.
            self.wakeup()
        elif code in (response_code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
                      response_code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED):
            try:
                info, known = self.api.get_replica_info(leader, self.broker_config.brokerName,
                                                        self.broker_config.sendHeartbeatTimeoutMillis)
            except CALL_ERRORS as failure:
                log.warning("Error happen when get broker %s's metadata: %s", self.broker_config.brokerName, failure)
                return False
            if info.masterBrokerId != role.master_id or info.masterEpoch != role.epoch:
                return False
            self.ha_service.set_sync_state_set(known.syncStateSet, known.syncStateSetEpoch)
            return True
        return code in (response_code.CONTROLLER_INVALID_REPLICAS, response_code.CONTROLLER_BROKER_NOT_ALIVE)
