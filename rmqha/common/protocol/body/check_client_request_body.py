"""A subscription to be checked."""
from dataclasses import dataclass

from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData


@dataclass(slots=True)
class CheckClientRequestBody:
    """Whether the broker understands a subscription (body of CHECK_CLIENT_CONFIG).

    Java: org.apache.rocketmq.common.protocol.body.CheckClientRequestBody (4.9.8)
    """

    clientId: str | None = None
    group: str | None = None
    subscriptionData: SubscriptionData | None = None
