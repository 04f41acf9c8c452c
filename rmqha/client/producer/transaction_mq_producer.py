"""The transaction producer, whose messages are delivered only if a local transaction succeeds."""
from typing import TYPE_CHECKING, Any, Unpack

from rmqha.client.client_config import apply_settings
from rmqha.client.exception import MQClientException
from rmqha.client.hooks import TransactionListener, TransactionSendResult
from rmqha.client.impl.mq_client_instance import FindInstance
from rmqha.client.impl.mq_client_manager import MQClientManager
from rmqha.client.impl.transaction_mq_producer_impl import TransactionMQProducerImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.producer.producer_config import TransactionProducerConfig, TransactionProducerSettings
from rmqha.common.message.message import Message

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook


class TransactionMQProducer(DefaultMQProducer, TransactionProducerConfig):
    """A producer whose half messages are delivered after its listener commits them, at the send or when a broker
    checks.

        with TransactionMQProducer("orders", "127.0.0.1:9876", listener) as producer:
            result = producer.send_message_in_transaction(Message("orders", b"17 apples"), order)
            print(result.local_transaction_state)

    Java: org.apache.rocketmq.client.producer.TransactionMQProducer (4.9.8)
    """

    def __init__(
        self,
        producer_group: str,
        namesrv_addr: str | None = None,
        transaction_listener: TransactionListener | None = None,
        rpc_hook: "RPCHook | None" = None,
        client_manager: MQClientManager | None = None,
        namespace: str | None = None,
        enable_msg_trace: bool = False,
        customized_trace_topic: str | None = None,
        **settings: Unpack[TransactionProducerSettings],
    ) -> None:
        self._impl: TransactionMQProducerImpl
        super().__init__(producer_group, namesrv_addr, rpc_hook, client_manager, namespace, enable_msg_trace,
                         customized_trace_topic)
        self.transaction_listener = transaction_listener
        apply_settings(self, settings, TransactionProducerSettings)

    def _make_impl(self, find_client: FindInstance) -> TransactionMQProducerImpl:
        return TransactionMQProducerImpl(self, find_client)

    @property
    def default_mq_producer_impl(self) -> TransactionMQProducerImpl:
        self.check_process()
        return self._impl

    def start(self) -> None:
        """Connect, and prepare for the brokers' transaction checks."""
        self.default_mq_producer_impl.init_transaction_env()
        super().start()

    def shutdown(self) -> None:
        """Disconnect. Idempotent."""
        if self.is_of_another_process():
            return
        super().shutdown()
        self.default_mq_producer_impl.destroy_transaction_env()

    def send_message_in_transaction(self, msg: Message, arg: Any = None) -> TransactionSendResult:
        """Store `msg` as a half message, run the local transaction, and send its outcome to the broker.

        Consumers do not see a half message. MQClientException if it could not be stored. A delay level is ignored.
        """
        listener = self.transaction_listener
        if listener is None:
            raise MQClientException("TransactionListener is null")
        return self.default_mq_producer_impl.send_message_in_transaction(msg, listener, arg)
