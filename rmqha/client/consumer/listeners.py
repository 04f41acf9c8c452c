"""Listeners and selectors that the user of a consumer provides.

- `MessageListenerConcurrently`, `MessageListenerOrderly`: handle messages, in parallel or in the order of their queue,
  and return a status.
- `MessageQueueListener`, `TopicMessageQueueChangeListener`: notified of the queues assigned to a consumer, and of the
  queues of a topic.
- `MessageSelector`: selects the messages of a topic that a consumer receives.
"""
import enum
from collections.abc import Callable
from enum import Enum

from rmqha.common import subscriptions
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageExt, MessageQueue


class ConsumeConcurrentlyStatus(Enum):
    """The result of a concurrent listener: consumed, or to be retried later.

    The broker delivers a message again after a delay, at most 16 times by default.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus (4.9.8)
    """

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """The queue of the messages, and how those that failed are retried.

    `delay_level_when_next_consume`: -1 sends a message to the dead letters at once; 0 lets the broker choose the delay
    level (3 + times consumed); a positive number is the delay level. `ack_index`: the index of the last message of the
    list that succeeded; the messages after it are delivered again.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext (4.9.8)
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int = 0x7FFFFFFF


SimpleListener = Callable[[list[MessageExt]], ConsumeConcurrentlyStatus | None]


class MessageListenerConcurrently:
    """Base class of listeners that use the context. If you do not need the context, pass a function that takes the
    messages.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently (4.9.8)
    """

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        """Handle `msgs`; an exception or None counts as RECONSUME_LATER."""
        raise NotImplementedError


class FunctionListener(MessageListenerConcurrently):
    """A listener that calls a function with the messages."""

    def __init__(self, function: SimpleListener) -> None:
        self._function = function

    def consume_message(
        self, msgs: list[MessageExt], context: ConsumeConcurrentlyContext
    ) -> ConsumeConcurrentlyStatus | None:
        return self._function(msgs)


class ConsumeOrderlyStatus(Enum):
    """The result of an orderly listener: consumed, or suspend the queue briefly and deliver the same messages again.

    ROLLBACK and COMMIT are only for contexts without auto-commit.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus (4.9.8)
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """The queue of a call, and how its result is handled.

    `auto_commit`: SUCCESS advances the offset. `suspend_current_queue_time_millis`: the time in ms for which a
    suspended queue waits, limited to 10 ms to 30 s; -1 for the consumer's setting.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext (4.9.8)
    """

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_millis: int = -1


class MessageListenerOrderly:
    """Base class of orderly listeners. One thread at a time calls it for a queue; different queues run in parallel.

    Java: org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly (4.9.8)
    """

    def consume_message(self, msgs: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        """Handle `msgs`; an exception or None counts as SUSPEND_CURRENT_QUEUE_A_MOMENT."""
        raise NotImplementedError


class ConsumeReturnType(enum.Enum):
    """The outcome of a listener's call; its number is written into traces.

    A call that took longer than `consume_timeout` is TIME_OUT even if it succeeded.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeReturnType (4.9.8)
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


class MessageQueueListener:
    """Notified on the rebalance thread when a consumer's share of a topic changes.

    Java: org.apache.rocketmq.client.consumer.MessageQueueListener (4.9.8)
    """

    def message_queue_changed(
        self, topic: str, mq_all: set[MessageQueue], mq_divided: set[MessageQueue]
    ) -> None:
        """Handle a new share. `mq_all`: the topic's queues; `mq_divided`: this consumer's queues now.

        Names are as brokers know them, that is, with the namespace.
        """
        raise NotImplementedError


class TopicMessageQueueChangeListener:
    """Notified when the queues of a topic change.

    Java: org.apache.rocketmq.client.consumer.TopicMessageQueueChangeListener (4.9.8)
    """

    def on_changed(self, topic: str, message_queues: set[MessageQueue]) -> None:
        """Handle the change. `message_queues`: all queues that the topic has now."""
        raise NotImplementedError


@dataclass(frozen=True)
class MessageSelector:
    """A filter expression and its type: tags ("a || b"), or an SQL92 condition on properties.

    Java: org.apache.rocketmq.client.consumer.MessageSelector (4.9.8)
    """

    expression: str | None
    type: str = subscriptions.TAG

    @staticmethod
    def by_sql(sql: str) -> "MessageSelector":
        """Select the messages that match an SQL92 condition, such as "a > 5 AND region = 'north'"."""
        return MessageSelector(sql, subscriptions.SQL92)

    @staticmethod
    def by_tag(tag: str | None) -> "MessageSelector":
        """Select the messages with one of the tags; None and "*" select all."""
        return MessageSelector(tag)
