"""A trace as people look at it."""
from dataclasses import dataclass

from rmqha.client.trace.trace_data_encoder import decoder_from_trace_data_string
from rmqha.common.message.message import MessageExt


@dataclass
class TraceView:
    """One event of one message, as the admin tools show it. Times are ms; `msg_type` is a TraceType's name.

    Java: org.apache.rocketmq.client.trace.TraceView (4.9.8)
    """

    msg_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    client_host: str | None = None
    cost_time: int = 0
    msg_type: str | None = None
    off_set_msg_id: str | None = None
    time_stamp: int = 0
    born_time: int = 0
    topic: str | None = None
    group_name: str | None = None
    status: str | None = None

    @staticmethod
    def decode_from_trace_trans_data(key: str, message_ext: MessageExt) -> list["TraceView"]:
        """The events of message id `key` in a trace message; ValueError for a body that is not a trace."""
        views = []
        for context in decoder_from_trace_data_string(bytes(message_ext.body).decode("utf-8", "replace")):
            bean = context.trace_beans[0]
            if bean.msg_id != key:
                continue
            views.append(TraceView(
                msg_id=bean.msg_id, tags=bean.tags, keys=bean.keys, store_host=bean.store_host,
                client_host=message_ext.born_host_string, cost_time=context.cost_time, msg_type=context.trace_type.name,
                off_set_msg_id=bean.offset_msg_id, time_stamp=context.time_stamp, topic=bean.topic,
                group_name=context.group_name, status="success" if context.is_success else "failed"))
        return views
