"""What a consumer wants of a topic."""
from dataclasses import dataclass

from rmqha.common import subscriptions


@dataclass(frozen=True)
class MessageSelector:
    """An expression and its kind: tags ("a || b") or an SQL92 condition over properties.

    Java: org.apache.rocketmq.client.consumer.MessageSelector (4.9.8)
    """

    expression: str | None
    type: str = subscriptions.TAG

    @staticmethod
    def by_sql(sql: str) -> "MessageSelector":
        """Messages that an SQL92 condition matches, "a > 5 AND region = 'north'"."""
        return MessageSelector(sql, subscriptions.SQL92)

    @staticmethod
    def by_tag(tag: str | None) -> "MessageSelector":
        """Messages with one of the tags; None and "*": all."""
        return MessageSelector(tag)
