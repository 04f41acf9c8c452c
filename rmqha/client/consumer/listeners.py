"""Listeners and selectors that the user of a consumer provides.

- `MessageListenerConcurrently`, `MessageListenerOrderly`: handle messages, in parallel or in the order of their queue,
  and return a status.
- `MessageQueueListener`, `TopicMessageQueueChangeListener`: notified of the queues assigned to a consumer, and of the
  queues of a topic.
- `MessageSelector`: which messages of a topic a consumer receives.
"""
import enum
from collections.abc import Callable
from enum import Enum

from rmqha.common import subscriptions
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageExt, MessageQueue


class ConsumeConcurrentlyStatus(Enum):
    """Done, or again later (the broker delivers the message once more after a delay, at most 16 times by default).

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus (4.9.8)
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """The queue that the messages came from, and how to go on with those that failed.

    `delay_level_when_next_consume`: -1 to the dead letters at once, 0 the broker chooses (3 + times consumed), above 0
    that delay level. `ack_index`: the last message of the list that succeeded; the ones behind it come again.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext (4.9.8)
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = 0x7FFFFFFF


SimpleListener = Callable[[list[MessageExt]], ConsumeConcurrentlyStatus | None]


class MessageListenerConcurrently:
    """Base of listeners that want the context; a plain function of the messages will do elsewhere.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently (4.9.8)
    """

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        """Handle `msgs`; an exception or None counts as RECONSUME_LATER."""
        raise NotImplementedError


class FunctionListener(MessageListenerConcurrently):
    """A function of the messages as a listener."""

    def __init__(self, function: SimpleListener) -> None:
        self._function = function

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        return self._function(msgs)


class ConsumeOrderlyStatus(Enum):
    """Done, or the queue waits a moment and the same messages come again.

    ROLLBACK and COMMIT: without auto-commit only.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus (4.9.8)
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The queue, whether SUCCESS moves the offset on (`auto_commit`), and for how long (ms) a suspended queue waits.

    `suspend_current_queue_time_millis`: -1 for the consumer's setting; 10 ms to 30 s.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext (4.9.8)
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_millis: int = -1


class MessageListenerOrderly:
    """Called for one queue by one thread at a time; different queues are handled side by side.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly (4.9.8)
    """

    def consume_message(self, msgs: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        """Handle `msgs`; an exception or None counts as SUSPEND_CURRENT_QUEUE_A_MOMENT."""
        raise NotImplementedError


class ConsumeReturnType(enum.Enum):
    """The numbers go into traces. A call beyond `consume_timeout` is TIME_OUT even if it succeeded.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeReturnType (4.9.8)
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class MessageQueueListener:
    """Told, on the rebalance thread, when a consumer's share of a topic changed.

    Java: org.apache.rocketmq.client.consumer.MessageQueueListener (4.9.8)
    """

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """`mq_all`: the topic's queues; `mq_divided`: those of this consumer now. Names as brokers know them."""
        raise NotImplementedError


class TopicMessageQueueChangeListener:
    """Told when the queues of a topic are others than before.

    Java: org.apache.rocketmq.client.consumer.TopicMessageQueueChangeListener (4.9.8)
    """

    def on_changed(self, topic: str, message_queues: set[MessageQueue]) -> None:
        """`message_queues`: all that the topic has now."""
        raise NotImplementedError


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
