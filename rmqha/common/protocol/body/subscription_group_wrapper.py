"""All consumer groups of a broker."""
from dataclasses import dataclass, field

from rmqha.common.data_version import DataVersion
from rmqha.common.subscription.subscription_group_config import SubscriptionGroupConfig


@dataclass(slots=True)
class SubscriptionGroupWrapper:
    """Groups by name (answer of GET_ALL_SUBSCRIPTIONGROUP_CONFIG, subscriptionGroup.json).

    Java: org.apache.rocketmq.common.protocol.body.SubscriptionGroupWrapper (4.9.8)
    """

    subscriptionGroupTable: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    dataVersion: DataVersion = field(default_factory=DataVersion)
