"""rmqha: RocketMQ 4.9's name server, broker store and master-slave replication in Python.

The client's names can be imported from here: `from rmqha import Producer, PushConsumer, Message`. Each name is loaded
on first use, so `import rmqha` itself costs nothing.
"""
# Replaces typing.TYPE_CHECKING: type checkers recognize the name, and servers start faster without importing typing.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer
    from rmqha.client.consumer.default_lite_pull_consumer import DefaultLitePullConsumer as PullConsumer
    from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
    from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
    from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer as PushConsumer
    from rmqha.client.consumer.listeners import (
        ConsumeConcurrentlyStatus,
        ConsumeOrderlyContext,
        ConsumeOrderlyStatus,
        MessageListenerConcurrently,
        MessageListenerOrderly,
        MessageSelector,
    )
    from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus as ConsumeStatus
    from rmqha.client.exception import MQBrokerException, MQClientException, RequestTimeoutException
    from rmqha.client.hooks import LocalTransactionState, TransactionListener, TransactionSendResult
    from rmqha.client.life import log_to_stderr
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer as Producer
    from rmqha.client.producer.request_response_future import RequestCallback, select_message_queue_by_hash
    from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer
    from rmqha.client.producer.transaction_mq_producer import TransactionMQProducer as TransactionProducer
    from rmqha.client.results import SendCallback, SendResult, SendStatus, create_reply_message
    from rmqha.common.message.message import Message, MessageExt, MessageQueue
    from rmqha.common.subscriptions import ConsumeFromWhere, MessageModel
    from rmqha.remoting.exception import RemotingException

__version__ = "0.2.0"

# Short names -> the names that Java has.
_ALIASES = {
    "Producer": "DefaultMQProducer",
    "TransactionProducer": "TransactionMQProducer",
    "PushConsumer": "DefaultMQPushConsumer",
    "PullConsumer": "DefaultLitePullConsumer",
    "ConsumeStatus": "ConsumeConcurrentlyStatus",
}
_LISTENERS = "rmqha.client.consumer.listeners"
_MODULES = {
    "ConsumeConcurrentlyStatus": _LISTENERS,
    "ConsumeFromWhere": "rmqha.common.subscriptions",
    "ConsumeOrderlyContext": _LISTENERS,
    "ConsumeOrderlyStatus": _LISTENERS,
    "DefaultLitePullConsumer": "rmqha.client.consumer.default_lite_pull_consumer",
    "DefaultMQProducer": "rmqha.client.producer.default_mq_producer",
    "DefaultMQPullConsumer": "rmqha.client.consumer.default_mq_pull_consumer",
    "DefaultMQPushConsumer": "rmqha.client.consumer.default_mq_push_consumer",
    "LocalTransactionState": "rmqha.client.hooks",
    "MQBrokerException": "rmqha.client.exception",
    "MQClientException": "rmqha.client.exception",
    "Message": "rmqha.common.message.message",
    "MessageExt": "rmqha.common.message.message",
    "MessageListenerConcurrently": _LISTENERS,
    "MessageListenerOrderly": _LISTENERS,
    "MessageModel": "rmqha.common.subscriptions",
    "MessageQueue": "rmqha.common.message.message",
    "MessageSelector": "rmqha.client.consumer.listeners",
    "RemotingException": "rmqha.remoting.exception",
    "RequestCallback": "rmqha.client.producer.request_response_future",
    "RequestTimeoutException": "rmqha.client.exception",
    "SendCallback": "rmqha.client.results",
    "SendResult": "rmqha.client.results",
    "SendStatus": "rmqha.client.results",
    "TransactionListener": "rmqha.client.hooks",
    "TransactionMQProducer": "rmqha.client.producer.transaction_mq_producer",
    "TransactionSendResult": "rmqha.client.hooks",
    "create_reply_message": "rmqha.client.results",
    "log_to_stderr": "rmqha.client.life",
    "select_message_queue_by_hash": "rmqha.client.producer.request_response_future",
}
# Spelled out because type checkers read it.
__all__ = [
    "ConsumeConcurrentlyStatus", "ConsumeFromWhere", "ConsumeOrderlyContext", "ConsumeOrderlyStatus", "ConsumeStatus",
    "DefaultLitePullConsumer", "DefaultMQProducer", "DefaultMQPullConsumer", "DefaultMQPushConsumer",
    "LocalTransactionState", "MQBrokerException", "MQClientException", "Message", "MessageExt",
    "MessageListenerConcurrently", "MessageListenerOrderly", "MessageModel", "MessageQueue", "MessageSelector",
    "Producer", "PullConsumer", "PushConsumer", "RemotingException", "RequestCallback", "RequestTimeoutException",
    "SendCallback", "SendResult", "SendStatus", "TransactionListener", "TransactionMQProducer", "TransactionProducer",
    "TransactionSendResult", "__version__", "create_reply_message", "log_to_stderr", "select_message_queue_by_hash",
]


# Hidden from type checkers: in a module with a `__getattr__` they accept every name.
if not TYPE_CHECKING:
    def __getattr__(name: str) -> object:
        """Import the module of a client name on first use (PEP 562)."""
        module = _MODULES.get(java_name := _ALIASES.get(name, name))
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib
        globals()[name] = value = getattr(importlib.import_module(module), java_name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
