"""The hooks of a consumer."""
import logging
import time
from collections.abc import Callable
from typing import Any

from rmqha.client.client_config import ClientConfig
from rmqha.client.common.cause_log import CauseLog
from rmqha.client.consumer.listener.message_listener import ConsumeReturnType
from rmqha.client.hook.consume_message_hook import ConsumeMessageContext, ConsumeMessageHook
from rmqha.common import mix_all
from rmqha.common.message.message import MessageExt, MessageQueue

log = logging.getLogger("RocketmqClient")


class ConsumerHooks:
    """What users hung into calls of a listener. Registered before `start`; then the list is only read.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#executeHookBefore (4.9.8)
    """

    def __init__(self) -> None:
        self.consume_message_hook_list: list[ConsumeMessageHook] = []
        self.causes = CauseLog(log)  # what the user's code did wrong

    def _call(self, hook: Callable[[ConsumeMessageContext], None], context: ConsumeMessageContext) -> None:
        try:
            hook(context)
        except BaseException as error:  # the user's code
            self.causes.raised(error, "failed to execute %s", getattr(hook, "__qualname__", hook))

    def before(
        self, config: ClientConfig, group: str, msgs: list[MessageExt], mq: MessageQueue
    ) -> ConsumeMessageContext | None:
        """Tell the hooks of a call; None when there are none."""
        if not self.consume_message_hook_list:
            return None
        context = ConsumeMessageContext(group, msgs, mq, namespace=config.get_namespace())
        for hook in self.consume_message_hook_list:
            self._call(hook.consume_message_before, context)
        return context

    def after(
        self, context: ConsumeMessageContext | None, config: ClientConfig, status: str, success: bool,
        kind: ConsumeReturnType | None = None,
    ) -> None:
        """Tell the hooks how the call ended."""
        if context is None:
            return
        if kind is not None:
            context.props[mix_all.CONSUME_CONTEXT_TYPE] = kind.name
        context.status, context.success, context.access_channel = status, success, config.access_channel
        for hook in self.consume_message_hook_list:
            self._call(hook.consume_message_after, context)


def return_type(
    status: Any, failed_status: Any, is_exception: bool, begin_ns: int, consume_timeout_min: int
) -> ConsumeReturnType:
    """How a call that began at `begin_ns` ended; `failed_status` is the listener's word for "again"."""
    if status is None:
        return ConsumeReturnType.EXCEPTION if is_exception else ConsumeReturnType.RETURNNULL
    if time.monotonic_ns() - begin_ns >= consume_timeout_min * 60 * 1_000_000_000:
        return ConsumeReturnType.TIME_OUT
    return ConsumeReturnType.FAILED if status is failed_status else ConsumeReturnType.SUCCESS
