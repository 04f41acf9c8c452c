"""Slave synchronization: copying the master's tables of topics, consumer offsets, delay offsets and consumer groups.

    BrokerControllerScheduledThread1, after 3 s and then every 10 s --sync_all--> the master's remoting port

Replication copies the commit log only. A slave also needs the master's tables: consumers may read from it, and it may
be promoted. It polls the master for them, so its tables lag behind the master's by up to one period, and they may run
ahead of its own log, which arrives through another connection. Each table has its own rule for that:

- Topics and groups become those of the master. A master of ours reports the state of its table and sends only the
  changes since the state that the slave names (see `TableVersions`); one of RocketMQ sends the whole table each time.
  Deleted topics come with marks, and a mark takes effect when the slave's log has reached it (see `TopicDeletion`).
- Consumer offsets are only raised, never lowered (unless `take_lower_offsets`). Consumers that read from the slave
  commit to it; a master that returns with an older table must not undo those commits, or messages are consumed again.
- Delay offsets say which delayed messages have been delivered. They must not run ahead of the slave's log: promoted
  with such a table, the slave would count messages as delivered whose delivered copies it does not have, and they
  would be lost. So each table waits in memory until the slave's log has reached the end that the master's log had
  after the table was read: everything that the table counts lies before that end. Of several such tables the newest
  one is written.

For pages about the role, the master is also asked for the end of its log (`MasterState`).
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rmqha.broker.broker_outer_api import Told
from rmqha.common import mix_all
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.topics import SubscriptionGroupConfig, TopicConfig
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.store import store_path_config_helper
from rmqha.store.schedule_message_service import DelayOffsetSerializeWrapper

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.broker_outer_api import BrokerOuterAPI
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.subscription_group_manager import SubscriptionGroupManager
    from rmqha.broker.topic_config_manager import TopicConfigManager, TopicDeletion
    from rmqha.store.message_store_config import MessageStoreConfig


log = logging.getLogger("RocketmqBroker")

T = TypeVar("T")

# Limit of delay offset tables that wait for the log; beyond it, a new table replaces the last one.
_MAX_WAITING = 30


class TableVersions:
    """The last state of each table that was copied completely, and the master that it is from. For any thread.

    Call `forget` when this broker may have been a master in between: its tables may have changed since.
    """

    def __init__(self) -> None:
        # Table -> (master, its state, our state after the copy). `forget` replaces the dict.
        self._known: dict[str, tuple[str, str, str]] = {}

    def of(self, table: str, master_addr: str, own: str = "") -> tuple[str, Callable[..., None]]:
        """Return the master's last copied state, and a function that notes the next one and our own state after it.

        The state is "" when it is unknown, or when `own`, the state of our table, has changed since the copy.
        """
        known = self._known
        master, state, noted = known.get(table, ("", "", ""))

        def note(taken: str, own: str = "") -> None:
            known[table] = master_addr, taken, own

        return (state if (master, noted) == (master_addr, own) else ""), note

    def forget(self) -> None:
        """Forget all states: the next request is for whole tables, and a copy in progress does not note its state."""
        self._known = {}


class MasterState(NamedTuple):
    """The state of a master's log, as it reports it."""

    log_end: int
    # The ids of the replicas that hold all that it has acknowledged, itself included; None: it does not report them.
    in_sync: frozenset[int] | None
    asked_ns: int  # monotonic, before the request


class SlaveSynchronize:
    """Copies the four tables to one slave. `sync_all` runs on one thread; any thread may set `master_addr`.

    Differs: a slave copies each table of its master, and each entry of a table, independently; in 4.9 one invalid entry
    prevents the copy of the whole table.

    Java: org.apache.rocketmq.broker.slave.SlaveSynchronize (4.9.8)
    """

    def __init__(self, api: BrokerOuterAPI, addresses: BrokerAddresses, message_store_config: MessageStoreConfig,
                 topics: TopicConfigManager, groups: SubscriptionGroupManager, offsets: ConsumerOffsetManager,
                 topic_deletion: TopicDeletion, log_end: Callable[[], int]) -> None:
        self._api = api
        self._addresses = addresses
        self._store_config = message_store_config
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._topic_deletion = topic_deletion
        # Returns the end of this slave's log, as an offset.
        self._log_end = log_end
        # Returns the own address of the master that registers an address, None if it is not known now. Set before the
        # start.
        self.own_address_of: Callable[[str], str | None] = lambda master_addr: master_addr
        # ip:port of the master's remoting server; None: nothing to do.
        self.master_addr: str | None = None
        # True: `master_state` is kept up to date. Set before the start.
        self.asks_for_state = False
        # The last reported state; replaced as a whole by the thread of `sync_all`.
        self.master_state: MasterState | None = None
        # True: a lower consumer offset of the master replaces the slave's.
        self.take_lower_offsets = False
        self._topics_lock = threading.Lock()
        self._versions = TableVersions()
        # The last table of delay offsets that was received.
        self._last_delay_offset = ""
        # The tables that wait for the log, each with the end that the log has to reach; all from `_waiting_of`.
        self._delay_offsets: list[tuple[int, str]] = []
        self._waiting_of: str | None = None

    def follow(self, master_addr: str | None) -> None:
        """Set the master's address; None: no master is known."""
        if master_addr != self.master_addr:
            self.master_state = None
        self.master_addr = master_addr

    def begin_anew(self) -> None:
        """Start again after a role change: forget the master and the states of its tables."""
        self.master_addr = self.master_state = None
        self._versions.forget()
        # Request the delay offsets again too: the file may now hold this broker's own.
        self._waiting_of = None

    def sync_all(self) -> None:
        """Copy all four tables from the master."""
        registered = self.master_addr
        master_addr = None if registered is None else self.own_address_of(registered)

        def sync(name: str, copy: Callable[[str], None]) -> None:
            # A role change may come in between.
            if self.master_addr == registered:
                self._sync_from(master_addr, name, copy)

        sync("SyncTopicConfig", self._sync_topic_config)
        sync("SyncConsumerOffset", self._sync_consumer_offset)
        sync("SyncDelayOffset", self._sync_delay_offset)
        sync("SyncSubscriptionGroup", self._sync_subscription_group_config)
        if self.asks_for_state:
            sync("SyncMasterState", lambda address: self._ask_for_state(address, registered))

    def take_topics(self) -> None:
        """Copy the master's topics now. Raises RemotingException if the master is unknown or does not respond."""
        address = None if self.master_addr is None else self.own_address_of(self.master_addr)
        if address is None:
            raise RemotingException("no master is known")
        self._sync_topic_config(address)

    def take_consumer_offsets(self, address: str) -> None:
        """Copy those consumer offsets of another broker that are higher than ours."""
        self._sync_from(address, "SyncConsumerOffset", self._sync_consumer_offset)

    def _sync_from(self, master_addr: str | None, name: str, copy: Callable[[str], None]) -> None:
        if master_addr is None or master_addr == self._addresses.broker_addr:
            return
        try:
            copy(master_addr)
        except RemotingException as error:
            log.error("%s Exception, %s: %s", name, master_addr, error)
        except Exception:
            log.exception("%s Exception, %s", name, master_addr)

    def _sync_topic_config(self, master_addr: str) -> None:
        # The lock prevents that an older table overwrites a newer one.
        with self._topics_lock:
            self._take_topics_of(master_addr)

    def _take_topics_of(self, master_addr: str) -> None:
        manager = self._topics
        known, note = self._versions.of("topics", master_addr, manager.changes.mark())
        told = self._api.get_all_topic_config(master_addr, known)
        wrapper = told.table
        if wrapper is None:
            return
        if self._take_over(manager, manager.topic_config_table, told, wrapper.topicConfigTable, _check_topic):
            log.info("Update slave topic config from master, %s", master_addr)
        if wrapper.deletedTopics:
            self._topic_deletion.take_over(wrapper.deletedTopics)
        note(told.state, manager.changes.mark())

    def _sync_subscription_group_config(self, master_addr: str) -> None:
        manager = self._groups
        known, note = self._versions.of("groups", master_addr, manager.changes.mark())
        told = self._api.get_all_subscription_group_config(master_addr, known)
        if told.table is None:
            return
        if self._take_over(manager, manager.subscription_group_table, told, told.table.subscriptionGroupTable,
                           _check_group):
            log.info("Update slave Subscription Group from master, %s", master_addr)
        note(told.state, manager.changes.mark())

    @staticmethod
    def _take_over(manager: Any, table: dict[str, T], told: Told[Any], masters: dict[str, T] | None,
                   check: Callable[[str, T], None]) -> bool:
        """Make `table` equal to the master's if the versions differ; an invalid entry leaves ours unchanged.

        Changes since a state are applied in any case: a response that is built while the master changes a topic may
        contain the new version without that topic.
        """
        version = told.table.dataVersion if told.table is not None else None
        masters = masters or {}
        if version is None or manager.data_version == version and not (told.only_changes and masters):
            return False
        # Differs: a slave changes its tables entry by entry; Java clears a table first, so that concurrent requests
        # find no topic
        for name, config in masters.items():
            try:
                check(name, config)
            except (AttributeError, TypeError, ValueError) as error:
                log.error("ignoring the master's invalid entry %r: %s", name, error)
            else:
                table[name] = config
        for name in [] if told.only_changes else list(table):
            if name not in masters:
                table.pop(name, None)
        manager.data_version.assign_new_one(version)
        if told.only_changes:
            manager.changes.note(masters)
        else:
            manager.changes.note_all()
        manager.persist()
        return True

    def _sync_consumer_offset(self, master_addr: str) -> None:
        manager = self._offsets
        # After any change here, such as a deleted topic or a lowered offset, the whole table of the master is merged
        # again.
        known, note = self._versions.of("offsets", master_addr, manager.changes.mark())
        if self.take_lower_offsets:
            # The offsets that consumers have committed to this slave are replaced as well.
            known = ""
        told = self._api.get_all_consumer_offset(master_addr, known)
        if told.table is None:
            return
        changed: list[str] = []
        for key, offsets in (told.table.offsetTable or {}).items():
            try:
                if self._merge_offsets(manager.offset_table, key, offsets):
                    changed.append(key)
            except (TypeError, ValueError, AttributeError) as error:
                log.error("ignoring the master's invalid consumer offsets of %r: %s", key, error)
                # The offsets before the invalid one may have been merged.
                changed.append(key)
        if changed:
            manager.note_change(*changed)
            manager.persist_changes()
        note(told.state, manager.changes.mark())
        log.info("Update slave consumer offset from master, %s", master_addr)

    def _merge_offsets(self, table: dict[str, dict[int, int]], key: str, offsets: dict[int, int]) -> bool:
        """Raise our offsets to the master's where those are higher; return whether any changed.

        Differs: a slave raises its offsets to its master's, and keeps those that are higher. 4.9 copies all offsets, so
        that a master that returns with older offsets undoes the offsets that consumers have committed to the slave
        meanwhile.
        """
        changed = False
        mine = table.setdefault(key, {})
        for queue_id, offset in offsets.items():
            known = mine.get(queue_id)
            if known is None or offset > known or (offset < known and self.take_lower_offsets):
                mine[queue_id] = offset
                changed = True
        return changed

    def _sync_delay_offset(self, master_addr: str) -> None:
        """Copy the master's delayOffset.json, which is read when this broker becomes a master.

        Differs: a slave writes delayOffset.json only when its log holds all messages that the table counts as
        delivered. In 4.9 a slave that is behind when it is promoted loses the messages that the master delivered last.
        """
        if master_addr != self._waiting_of:
            self._waiting_of, self._last_delay_offset, self._delay_offsets = master_addr, "", []
        api = self._api
        delay_offset = api.get_all_delay_offset(master_addr)
        if delay_offset and delay_offset != self._last_delay_offset:
            # Raises FastjsonError if it is not a valid table. Differs: a slave checks the master's table of delay
            # offsets before it writes it; Java writes the response without checking it.
            remoting_serializable.from_json(DelayOffsetSerializeWrapper, delay_offset)
            # Ask for the end of the log after the table: everything that the table counts is then before that end.
            self._delay_offsets[_MAX_WAITING - 1:] = [(api.get_commit_log_max_offset(master_addr), delay_offset)]
            self._last_delay_offset = delay_offset
        self._write_delay_offset()
        log.info("Update slave delay offset from master, %s", master_addr)

    def _ask_for_state(self, master_addr: str, registered: str | None) -> None:
        asked_ns = time.monotonic_ns()
        told = self._api.get_broker_runtime_info(master_addr)
        in_sync = told.get("haSyncStateSet")
        state = MasterState(int(told["commitLogMaxOffset"]), None if in_sync is None else frozenset(
            int(broker_id) for broker_id in in_sync.split(",") if broker_id), asked_ns)
        # A role change in between has made the answer useless.
        if registered == self.master_addr:
            self.master_state = state

    def _write_delay_offset(self) -> None:
        """Write the newest table that the log has caught up with."""
        end, waiting = self._log_end(), self._delay_offsets
        covered = max((index for index, (needed, _) in enumerate(waiting) if needed <= end), default=-1)
        if covered >= 0:
            root = self._store_config.storePathRootDir
            mix_all.string2file(waiting[covered][1], store_path_config_helper.get_delay_offset_store_path(root))
            del waiting[:covered + 1]


def _check_topic(name: str, config: TopicConfig) -> None:
    if not name or config.topicName != name:
        raise ValueError(f"its topicName is {config.topicName!r}")
    if config.readQueueNums < 0 or config.writeQueueNums < 0:
        raise ValueError(f"it has {config.readQueueNums} queues to read and {config.writeQueueNums} to write")


def _check_group(name: str, config: SubscriptionGroupConfig) -> None:
    if not name or config.groupName != name:
        raise ValueError(f"its groupName is {config.groupName!r}")
