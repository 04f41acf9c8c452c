"""Traces of sends."""
from rmqha.client.hook.send_message_context import SendMessageContext
from rmqha.client.hook.send_message_hook import SendMessageHook
from rmqha.client.producer.send_status import SendStatus
from rmqha.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from rmqha.client.trace.trace_bean import TraceBean
from rmqha.client.trace.trace_context import TraceContext, TraceType
from rmqha.common.protocol import namespace_util


class SendMessageTraceHookImpl(SendMessageHook):
    """One event for each send that was answered. A broker whose answer says TRACE_ON=false wants none.

    Java: org.apache.rocketmq.client.trace.hook.SendMessageTraceHookImpl (4.9.8)
    """

    def __init__(self, local_dispatcher: AsyncTraceDispatcher) -> None:
        self._local_dispatcher = local_dispatcher

    def hook_name(self) -> str:
        return "SendMessageTraceHook"

    def send_message_before(self, context: SendMessageContext) -> None:
        msg = context.message
        if msg.topic.startswith(self._local_dispatcher.trace_topic_name):  # a trace is not traced
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
