"""The consumer groups of a broker and their file, subscriptionGroup.json."""
import logging
import threading

from rmqha.broker import broker_path_config_helper
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_manager import ConfigManager
from rmqha.common.data_version import DataVersion, entries_of
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.table_bodies import SubscriptionGroupWrapper
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import WrittenEntries
from rmqha.remoting.protocol.header_codec import KeptEntries
from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqBroker")

MAX_GROUPS = 100_000
# Beyond this number groups are only created explicitly, by `mqadmin updateSubGroup`.
MAX_AUTO_CREATED_GROUPS = 20_000
MAX_GROUP_LENGTH = 255  # what clients of 4.9 allow

_SYSTEM_GROUPS = (
    mix_all.TOOLS_CONSUMER_GROUP, mix_all.FILTERSRV_CONSUMER_GROUP, mix_all.SELF_TEST_CONSUMER_GROUP,
    mix_all.ONS_HTTP_PROXY_GROUP, mix_all.CID_ONSAPI_PULL_GROUP, mix_all.CID_ONSAPI_PERMISSION_GROUP,
    mix_all.CID_ONSAPI_OWNER_GROUP,
)


@dataclass(slots=True)
class _GroupFile:
    """The contents of the file, in the form of a SubscriptionGroupWrapper."""

    dataVersion: DataVersion
    subscriptionGroupTable: WrittenEntries


class SubscriptionGroupManager(ConfigManager):
    """The groups by name. Reads need no lock. Changes hold `_table_lock` and write a file: IO threads must not do it.

    Java: org.apache.rocketmq.broker.subscription.SubscriptionGroupManager (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, message_store_config: MessageStoreConfig) -> None:
        self._config, self._store_config = broker_config, message_store_config
        self._table_lock = threading.Lock()
        self.subscription_group_table = {name: SubscriptionGroupConfig(groupName=name) for name in _SYSTEM_GROUPS}
        self.data_version = DataVersion()
        self._kept = KeptEntries(self.changes, lambda: list(self.subscription_group_table),
                                 self.subscription_group_table.get)

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group."""
        with self._table_lock:
            name = config.groupName
            old = self.subscription_group_table.get(name)
            self.subscription_group_table[name] = config
            self._changed(name)
        if old is not None:
            log.info("update subscription group config, old: %s new: %s", old, config)
        else:
            log.info("create new subscription group, %s", config)
        self.persist()

    def disable_consume(self, group_name: str) -> None:
        """Stop the group from consuming until the broker restarts."""
        with self._table_lock:
            old = self.subscription_group_table.get(group_name)
            if old is not None:
                old.consumeEnable = False
                self._changed(group_name)

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group; create it if it is new and automatic creation is allowed."""
        config = self.subscription_group_table.get(group)
        if config is not None or not self.is_auto_created(group):
            return config
        with self._table_lock:
            made = SubscriptionGroupConfig(groupName=group)
            config = self.subscription_group_table.setdefault(group, made)
            if config is made:
                log.info("auto create a subscription group, %s", config)
            self._changed(group)
        self.persist()
        return config

    def is_auto_created(self, group: str) -> bool:
        """Return whether `find_subscription_group_config` would create this group if it were unknown."""
        # Differs: consumer groups with names that clients of 4.9 reject are not created, and none are once there are
        # 20,000; in the original any client may create any number of groups, with names of any length
        if len(group) > MAX_GROUP_LENGTH or len(self.subscription_group_table) >= MAX_AUTO_CREATED_GROUPS:
            return False
        return self._config.autoCreateSubscriptionGroup or mix_all.is_sys_consumer_group(group)

    def config_file_path(self) -> str:
        """Return the path of subscriptionGroup.json."""
        return broker_path_config_helper.get_subscription_group_path(self._store_config.storePathRootDir)

    def _changed(self, *names: str) -> None:
        """Note that these groups are new or have changed; without a name, that a group was removed."""
        self.data_version.next_version()
        self.note_change(*names)

    def encode(self, pretty_format: bool = False) -> str:
        """Return the table as JSON."""
        if not pretty_format:
            return self.encode_entries(None)
        return remoting_serializable.to_json(_GroupFile(self.data_version.copy(), self._kept.written()), True)

    def encode_entries(self, names: list[str] | None) -> str:
        """Return some groups, all for None, with the version of the table, as JSON. Removed groups are left out."""
        # Copy the version before the table: a concurrent change is then sent again with the next version.
        version = self.data_version.copy()
        groups = entries_of(self.subscription_group_table, names)
        return remoting_serializable.to_json(SubscriptionGroupWrapper(groups, version))

    def decode(self, json_string: str) -> None:
        """Merge a table from JSON into this one; groups that only this table has are kept."""
        wrapper = remoting_serializable.from_json(SubscriptionGroupWrapper, json_string)
        self.subscription_group_table.update(wrapper.subscriptionGroupTable or {})
        self.changes.note_all()
        if wrapper.dataVersion is not None:
            self.data_version.assign_new_one(wrapper.dataVersion)
        for config in (wrapper.subscriptionGroupTable or {}).values():
            log.info("load exist subscription group, %s", config)

    def delete_subscription_group_config(self, group_name: str) -> None:
        """Remove a group from the table."""
        with self._table_lock:
            old = self.subscription_group_table.pop(group_name, None)
            if old is not None:
                self._changed()
        if old is None:
            log.warning("delete subscription group failed, subscription groupName: %s not exist", group_name)
            return
        log.info("delete subscription group OK, subscription group:%s", old)
        self.persist()


class LmqSubscriptionGroupManager(SubscriptionGroupManager):
    """A group table for which every group that is named like a light queue exists, with defaults; none is stored in it.

    Java: org.apache.rocketmq.broker.subscription.LmqSubscriptionGroupManager (4.9.8)
    """

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group; create it if it is new and automatic creation is allowed."""
        if mix_all.is_lmq(group):
            return SubscriptionGroupConfig(groupName=group)
        return super().find_subscription_group_config(group)

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group; do nothing for a group that is named like a light queue."""
        if not mix_all.is_lmq(config.groupName):
            super().update_subscription_group_config(config)

    def is_auto_created(self, group: str) -> bool:
        """Return whether `find_subscription_group_config` would create this group if it were unknown."""
        return not mix_all.is_lmq(group) and super().is_auto_created(group)
