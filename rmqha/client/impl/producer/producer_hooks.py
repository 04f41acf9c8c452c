"""The hooks of a producer."""
import logging
from typing import TYPE_CHECKING, Any

from rmqha.client.common.cause_log import CauseLog
from rmqha.client.hook.check_forbidden_hook import CheckForbiddenContext, CheckForbiddenHook
from rmqha.client.hook.end_transaction_hook import EndTransactionContext, EndTransactionHook
from rmqha.client.hook.send_message_hook import SendMessageContext, SendMessageHook
from rmqha.client.impl.communication_mode import CommunicationMode
from rmqha.client.producer.send_result import SendCallback, SendResult
from rmqha.client.producer.transaction_listener import LocalTransactionState
from rmqha.common.message import message_const
from rmqha.common.message.message import Message, MessageQueue, MessageType

if TYPE_CHECKING:
    from rmqha.client.impl.producer.default_mq_producer_impl import DefaultMQProducerImpl
    from rmqha.client.producer.default_mq_producer import DefaultMQProducer

log = logging.getLogger("RocketmqClient")


class ProducerHooks:
    """What users hung into a producer. Hooks are registered before `start`; then the lists are only read.

    Java: org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl#executeSendMessageHookBefore (4.9.8)
    """

    def __init__(self, producer_impl: "DefaultMQProducerImpl", producer: "DefaultMQProducer") -> None:
        self._producer_impl = producer_impl
        self._producer = producer
        self.send_message_hook_list: list[SendMessageHook] = []
        self.end_transaction_hook_list: list[EndTransactionHook] = []
        self.check_forbidden_hook_list: list[CheckForbiddenHook] = []
        self.causes = CauseLog(log)  # what the user's code did wrong: hooks, callbacks, selectors, listeners

    def _call(self, hook: Any, context: Any) -> None:
        try:
            hook(context)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "failed to execute %s", getattr(hook, "__qualname__", hook))

    def check_forbidden(self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode) -> None:
        """MQClientException when a hook forbids the send."""
        if not self.check_forbidden_hook_list:
            return
        context = CheckForbiddenContext(self._producer.get_namesrv_addr(), self._producer.producer_group, msg, mq, addr,
                                        mode, self._producer.unit_mode)
        for hook in self.check_forbidden_hook_list:
            hook.check_forbidden(context)

    def before_send(
        self, msg: Message, mq: MessageQueue, addr: str, mode: CommunicationMode
    ) -> SendMessageContext | None:
        """Tell the hooks of a try; None when there are none."""
        if not self.send_message_hook_list:
            return None
        context = SendMessageContext(
            self._producer.producer_group, msg, mq, addr, self._producer.client_ip, mode, self._producer_impl,
            _message_type(msg), self._producer.get_namespace())
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_before, context)
        return context

    def after_send(
        self, context: SendMessageContext | None, result: SendResult | None, error: Exception | None = None
    ) -> None:
        """Tell the hooks how the try ended."""
        if context is None:
            return
        context.send_result, context.exception = result, error
        for hook in self.send_message_hook_list:
            self._call(hook.send_message_after, context)

    def around(self, context: SendMessageContext | None, send_callback: SendCallback) -> SendCallback:
        """The callback, which tells the hooks first."""
        # Differs: the hooks of an asynchronous send are told once, at its end; 4.9.8 tells them at its begin too
        if context is None:
            return send_callback

        def on_success(result: SendResult) -> None:
            self.after_send(context, result)
            send_callback.on_success(result)

        def on_exception(error: Exception) -> None:
            self.after_send(context, None, error)
            send_callback.on_exception(error)

        return SendCallback(on_success, on_exception)

    def end_transaction(
        self, msg: Message, msg_id: str | None, addr: str, state: LocalTransactionState, from_transaction_check: bool
    ) -> None:
        """Tell the hooks which end of a transaction goes to the broker next."""
        if not self.end_transaction_hook_list:
            return
        context = EndTransactionContext(self._producer.producer_group, msg, addr, msg_id, msg.transaction_id, state,
                                        from_transaction_check)
        for hook in self.end_transaction_hook_list:
            self._call(hook.end_transaction, context)


def _message_type(msg: Message) -> MessageType:
    if msg.get_property("__STARTDELIVERTIME") is not None \
            or msg.get_property(message_const.PROPERTY_DELAY_TIME_LEVEL) is not None:
        return MessageType.Delay_Msg
    if msg.get_property(message_const.PROPERTY_TRANSACTION_PREPARED) == "true":
        return MessageType.Trans_Msg_Half
    return MessageType.Normal_Msg
