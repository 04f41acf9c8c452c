"""A consumer group's settings on a broker."""
from dataclasses import dataclass

from rmqha.common.later import LATER
from rmqha.common.text_hash import text_hash


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """What a consumer group may do, how often it retries and where it reads. Field names are the JSON's.

    Java: org.apache.rocketmq.common.subscription.SubscriptionGroupConfig (4.9.8)
    """

    groupName: str = LATER
    consumeEnable: bool = True
    consumeFromMinEnable: bool = True
    consumeBroadcastEnable: bool = True
    retryQueueNums: int = 1
    retryMaxTimes: int = 16
    brokerId: int = 0
    whichBrokerWhenConsumeSlowly: int = 1
    notifyConsumerIdsChangedEnable: bool = True

    def __hash__(self) -> int:
        return text_hash(self.groupName, self.consumeEnable, self.consumeFromMinEnable, self.consumeBroadcastEnable,
                         self.retryQueueNums, self.retryMaxTimes, self.brokerId, self.whichBrokerWhenConsumeSlowly,
                         self.notifyConsumerIdsChangedEnable)

    def __str__(self) -> str:
        return (f"SubscriptionGroupConfig [groupName={self.groupName}, "
                f"consumeEnable={str(self.consumeEnable).lower()}, "
                f"consumeFromMinEnable={str(self.consumeFromMinEnable).lower()}, "
                f"consumeBroadcastEnable={str(self.consumeBroadcastEnable).lower()}, "
                f"retryQueueNums={self.retryQueueNums}, retryMaxTimes={self.retryMaxTimes}, brokerId={self.brokerId}, "
                f"whichBrokerWhenConsumeSlowly={self.whichBrokerWhenConsumeSlowly}, "
                f"notifyConsumerIdsChangedEnable={str(self.notifyConsumerIdsChangedEnable).lower()}]")
