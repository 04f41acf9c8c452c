"""The hooks that trace sends, consumption, and the ends of transactions."""
from rmqha.client.async_trace_dispatcher import AsyncTraceDispatcher
from rmqha.client.consumer.listeners import ConsumeReturnType
from rmqha.client.hooks import (
    ConsumeMessageContext,
    ConsumeMessageHook,
    EndTransactionContext,
    EndTransactionHook,
    SendMessageContext,
    SendMessageHook,
)
from rmqha.client.results import SendStatus
from rmqha.client.trace import TraceBean, TraceContext, TraceType
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageType
from rmqha.common.protocol import namespace_util


class SendMessageTraceHookImpl(SendMessageHook):
    """Appends an event for each send that was answered, unless the broker's answer says TRACE_ON=false.

    Java: org.apache.rocketmq.client.trace.hook.SendMessageTraceHookImpl (4.9.8)
    """

    def __init__(self, local_dispatcher: AsyncTraceDispatcher) -> None:
        self._local_dispatcher = local_dispatcher

    def hook_name(self) -> str:
        return "SendMessageTraceHook"

    def send_message_before(self, context: SendMessageContext) -> None:
        msg = context.message
        # Traces themselves are not traced
        if msg.topic.startswith(self._local_dispatcher.trace_topic_name):
            return
        bean = TraceBean(
            topic=namespace_util.without_namespace(msg.topic), tags=msg.tags, keys=msg.keys,
            store_host=context.broker_addr, body_length=len(msg.body), msg_type=context.msg_type)
        context.mq_trace_context = TraceContext(
            TraceType.Pub, group_name=namespace_util.without_namespace(context.producer_group), trace_beans=[bean])

    def send_message_after(self, context: SendMessageContext) -> None:
        trace, result = context.mq_trace_context, context.send_result
        if trace is None or result is None or result.region_id is None or not result.trace_on:
            return
        bean = trace.trace_beans[0]
        trace.cost_time = trace.elapsed_ms()
        trace.is_success = result.send_status is SendStatus.SEND_OK
        trace.region_id = result.region_id
        bean.msg_id = result.msg_id
        bean.offset_msg_id = result.offset_msg_id
        bean.store_time = trace.time_stamp + trace.cost_time // 2
        self._local_dispatcher.append(trace)


class ConsumeMessageTraceHookImpl(ConsumeMessageHook):
    """Appends an event before and after each call of a listener, for messages without TRACE_ON=false.

    Java: org.apache.rocketmq.client.trace.hook.ConsumeMessageTraceHookImpl (4.9.8)
    """

    def __init__(self, local_dispatcher: AsyncTraceDispatcher) -> None:
        self._local_dispatcher = local_dispatcher

    def hook_name(self) -> str:
        return "ConsumeMessageTraceHook"

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        if not context.msg_list:
            return
        trace = TraceContext(
            TraceType.SubBefore, group_name=namespace_util.without_namespace(context.consumer_group))
        context.mq_trace_context = trace
        for msg in context.msg_list:
            if msg.get_property(message_const.PROPERTY_TRACE_SWITCH) == "false":
                continue
            trace.trace_beans.append(TraceBean(
                topic=namespace_util.without_namespace(msg.topic), msg_id=msg.msg_id, tags=msg.tags, keys=msg.keys,
                store_time=msg.store_timestamp, body_length=msg.store_size, retry_times=msg.reconsume_times))
            trace.region_id = msg.get_property(message_const.PROPERTY_MSG_REGION)
        if trace.trace_beans:
            self._local_dispatcher.append(trace)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        before = context.mq_trace_context
        if before is None or not before.trace_beans:
            return
        cost_ms = before.elapsed_ms() // len(context.msg_list)
        kind = context.props.get(mix_all.CONSUME_CONTEXT_TYPE)
        self._local_dispatcher.append(TraceContext(
            TraceType.SubAfter, region_id=before.region_id,
            group_name=namespace_util.without_namespace(before.group_name), cost_time=cost_ms,
            is_success=context.success, request_id=before.request_id,
            context_code=ConsumeReturnType[kind].value if kind is not None else 0,
            access_channel=context.access_channel, trace_beans=before.trace_beans))


class EndTransactionTraceHookImpl(EndTransactionHook):
    """Appends an event for each commit, rollback or "unknown" that is sent to a broker.

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
