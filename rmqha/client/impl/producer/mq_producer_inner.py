"""What a client instance needs of a producer."""
from typing import Protocol

from rmqha.client.impl.producer.topic_publish_info import TopicPublishInfo
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol.client_headers import CheckTransactionStateRequestHeader


class MQProducerInner(Protocol):
    """A producer as the instance sees it: for heartbeats and routes.

    Java: org.apache.rocketmq.client.impl.producer.MQProducerInner (4.9.8)
    """

    def get_publish_topic_list(self) -> set[str]:
        """Topics whose routes are kept fresh."""

    def is_publish_topic_need_update(self, topic: str) -> bool:
        """True when nothing is known about where `topic` can be sent."""

    def check_transaction_state(
        self, addr: str, msg: MessageExt, header: CheckTransactionStateRequestHeader
    ) -> None:
        """A broker asks what became of a half message."""

    def update_topic_publish_info(self, topic: str, info: TopicPublishInfo) -> None:
        """Take over a new route."""
