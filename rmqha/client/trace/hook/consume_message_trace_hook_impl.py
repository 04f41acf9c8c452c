"""Traces of consumption."""
from rmqha.client.consumer.listener.consume_return_type import ConsumeReturnType
from rmqha.client.hook.consume_message_context import ConsumeMessageContext
from rmqha.client.hook.consume_message_hook import ConsumeMessageHook
from rmqha.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from rmqha.client.trace.trace_bean import TraceBean
from rmqha.client.trace.trace_context import TraceContext, TraceType
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.protocol import namespace_util


class ConsumeMessageTraceHookImpl(ConsumeMessageHook):
    """An event before and one after each call of a listener, for the messages that do not say TRACE_ON=false.

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
