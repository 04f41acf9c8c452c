"""Traces of the ends of transactions."""
from rmqha.client.hook.end_transaction_hook import EndTransactionContext, EndTransactionHook
from rmqha.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from rmqha.client.trace.trace_bean import TraceBean
from rmqha.client.trace.trace_context import TraceContext, TraceType
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message_type import MessageType
from rmqha.common.protocol import namespace_util


class EndTransactionTraceHookImpl(EndTransactionHook):
    """One event for each commit, rollback or "unknown" that a broker is told.

    Java: org.apache.rocketmq.client.trace.hook.EndTransactionTraceHookImpl (4.9.8)
    """

    def __init__(self, local_dispatcher: AsyncTraceDispatcher) -> None:
        self._local_dispatcher = local_dispatcher

    def hook_name(self) -> str:
        return "EndTransactionTraceHook"

    def end_transaction(self, context: EndTransactionContext) -> None:
        msg = context.message
        if msg.topic.startswith(self._local_dispatcher.trace_topic_name):
            return
        bean = TraceBean(
            topic=namespace_util.without_namespace(msg.topic), msg_id=context.msg_id, tags=msg.tags, keys=msg.keys,
            store_host=context.broker_addr, msg_type=MessageType.Trans_msg_Commit,
            transaction_state=context.transaction_state, transaction_id=context.transaction_id,
            from_transaction_check=context.from_transaction_check)
        region_id = msg.get_property(message_const.PROPERTY_MSG_REGION) or mix_all.DEFAULT_TRACE_REGION_ID
        self._local_dispatcher.append(TraceContext(
            TraceType.EndTransaction, region_id=region_id,
            group_name=namespace_util.without_namespace(context.producer_group), trace_beans=[bean]))
