"""Copying the master's tables: topics, consumer offsets, delay offsets, consumer groups.

    BrokerControllerScheduledThread1, after 3 s and then each 10 s --sync_all--> the master's remoting port
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rmqha.broker.broker_outer_api import Told
from rmqha.common import mix_all
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

_MAX_WAITING = 30  # tables of delay offsets; the last one makes room for a newer one


class TableVersions:
    """Which state of each table was taken over completely, from which master. For any thread.

    What is here may be less since, when this broker was a master in between: then `forget`.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str, str]] = {}  # replaced by `forget`; table -> master, its state, our own

    def of(self, table: str, master_addr: str, own: str = "") -> tuple[str, Callable[..., None]]:
        """The master's state, "" when none is known, or when `own`, the state of our table, is another one since; and
        a function that notes the state that was taken over, and our own behind that."""
        known = self._known
        master, state, noted = known.get(table, ("", "", ""))

        def note(taken: str, own: str = "") -> None:
            known[table] = master_addr, taken, own

        return (state if (master, noted) == (master_addr, own) else ""), note

    def forget(self) -> None:
        """Ask for all anew; what is being taken over now counts for nothing."""
        self._known = {}


class SlaveSynchronize:
    """The four copies of one slave. `sync_all` runs on one thread; `master_addr` is set by any.

    Differs: each of the four, and each entry of a table, is taken over by itself; in 4.9 one bad entry keeps the
    others of its table from coming.

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
        self._log_end = log_end  # of this slave, as an offset
        self.master_addr: str | None = None  # ip:port of the master's remoting server; None: nothing to do
        # Whether a consumer offset that is lower at the master replaces the slave's.
        self.take_lower_offsets = False
        self._topics_lock = threading.Lock()
        self._versions = TableVersions()
        self._last_delay_offset = ""  # what came last
        # Tables that wait for the log: where it has to end for each, and the table; of `_waiting_of` only.
        self._delay_offsets: list[tuple[int, str]] = []
        self._waiting_of: str | None = None

    def follow(self, master_addr: str | None) -> None:
        """The master has this address; None: there is none."""
        self.master_addr = master_addr

    def begin_anew(self) -> None:
        """The role was changed: no master is known, nor what one has."""
        self.master_addr = None
        self._versions.forget()
        self._waiting_of = None  # the delay offsets, too: those in the file may be this broker's own

    def sync_all(self) -> None:
        """Copy all four tables from the master."""
        self._sync("SyncTopicConfig", self._sync_topic_config)
        self._sync("SyncConsumerOffset", self._sync_consumer_offset)
        self._sync("SyncDelayOffset", self._sync_delay_offset)
        self._sync("SyncSubscriptionGroup", self._sync_subscription_group_config)

    def take_topics(self) -> None:
        """Copy the master's topics now. RemotingException: it does not answer, or is not known."""
        if self.master_addr is None:
            raise RemotingException("no master is known")
        self._sync_topic_config(self.master_addr)

    def take_consumer_offsets(self, address: str) -> None:
        """Copy the consumer offsets of another broker that are higher than those here."""
        self._sync_from(address, "SyncConsumerOffset", self._sync_consumer_offset)

    def _sync(self, name: str, copy: Callable[[str], None]) -> None:
        self._sync_from(self.master_addr, name, copy)

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
        with self._topics_lock:  # no older table over a newer one
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
        """Make `table` the master's when the versions differ; an invalid entry of the master leaves ours unchanged.

        Changes since a state are taken in any case: an answer given while the master changes a topic may have brought
        its next version before that topic.
        """
        version = told.table.dataVersion if told.table is not None else None
        masters = masters or {}
        if version is None or manager.data_version == version and not (told.only_changes and masters):
            return False
        # Differs: Java clears the table first, so that requests meanwhile find no topic
        for name, config in masters.items():
            try:
                check(name, config)
            except (AttributeError, TypeError, ValueError) as error:
                log.error("the master's entry %r is not taken over: %s", name, error)
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
        # behind a topic that is deleted here, or an offset that was lowered, the master's counts again
        known, note = self._versions.of("offsets", master_addr, manager.changes.mark())
        if self.take_lower_offsets:
            known = ""  # what consumers have told this slave since goes, too
        told = self._api.get_all_consumer_offset(master_addr, known)
        if told.table is None:
            return
        changed: list[str] = []
        for key, offsets in (told.table.offsetTable or {}).items():
            try:
                if self._merge_offsets(manager.offset_table, key, offsets):
                    changed.append(key)
            except (TypeError, ValueError, AttributeError) as error:
                log.error("the master's consumer offsets of %r are not taken over: %s", key, error)
                changed.append(key)  # those in front of the bad one, perhaps
        if changed:
            manager.note_change(*changed)
            manager.persist_changes()
        note(told.state, manager.changes.mark())
        log.info("Update slave consumer offset from master, %s", master_addr)

    def _merge_offsets(self, table: dict[str, dict[int, int]], key: str, offsets: dict[int, int]) -> bool:
        """Take over what is higher at the master; whether that was anything.

        Differs: 4.9 takes over all, so that a master which comes back with older offsets undoes what consumers have
        committed to the slave meanwhile.
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
        """Copy the master's delayOffset.json; it is read when this broker becomes a master.

        Differs: it is written once the log holds what the table counts as delivered. In 4.9 a slave that is behind when
        it is promoted never delivers what the master delivered last.
        """
        if master_addr != self._waiting_of:
            self._waiting_of, self._last_delay_offset, self._delay_offsets = master_addr, "", []
        api = self._api
        delay_offset = api.get_all_delay_offset(master_addr)
        if delay_offset and delay_offset != self._last_delay_offset:
            # Differs: Java writes whatever came. FastjsonError when it is no table of offsets.
            remoting_serializable.from_json(DelayOffsetSerializeWrapper, delay_offset)
            # asked for later than the table: all that this counts lies below
            self._delay_offsets[_MAX_WAITING - 1:] = [(api.get_commit_log_max_offset(master_addr), delay_offset)]
            self._last_delay_offset = delay_offset
        self._write_delay_offset()
        log.info("Update slave delay offset from master, %s", master_addr)

    def _write_delay_offset(self) -> None:
        """Write the newest table that waits for nothing more of the log."""
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
