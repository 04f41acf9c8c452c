"""Consumer groups of a broker with light message queues."""
from rmqha.broker.subscription.subscription_group_manager import SubscriptionGroupManager
from rmqha.common import mix_all
from rmqha.common.subscription.subscription_group_config import SubscriptionGroupConfig


class LmqSubscriptionGroupManager(SubscriptionGroupManager):
    """Every group named like a light queue is there, with defaults, and none is kept in the table.

    Java: org.apache.rocketmq.broker.subscription.LmqSubscriptionGroupManager (4.9.8)
    """

    def find_subscription_group_config(self, group: str) -> SubscriptionGroupConfig | None:
        """The group; made when it is new and groups may be created so."""
        if mix_all.is_lmq(group):
            return SubscriptionGroupConfig(groupName=group)
        return super().find_subscription_group_config(group)

    def update_subscription_group_config(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group; nothing for one named like a light queue."""
        if not mix_all.is_lmq(config.groupName):
            super().update_subscription_group_config(config)

    def is_auto_created(self, group: str) -> bool:
        """Whether `find_subscription_group_config` would make this group, were it unknown."""
        return not mix_all.is_lmq(group) and super().is_auto_created(group)
