"""Message traces: events, their encoding as text, the dispatcher interface, and the view that admin tools print.

An event (`TraceContext`) has a `TraceBean` for each message. In the text, fields are separated by \\x01, and each event
ends with \\x02. An event of consumption writes one such line for each of its messages.

Pub             time region group topic msgId tags keys storeHost bodyLength costTime msgType offsetMsgId success
                [clientHost]
SubBefore       time region group requestId msgId retryTimes keys
SubAfter        requestId msgId costTime success keys [contextCode [time group]]
EndTransaction  time region group topic msgId tags keys storeHost msgType transactionId state fromCheck

Java's null is written as the word null, and is read back as that word.

Java: org.apache.rocketmq.client.trace.TraceConstants (4.9.8)
"""
import enum
import functools
import re
import time
from collections.abc import Callable

from rmqha.client.client_config import AccessChannel
from rmqha.client.hooks import LocalTransactionState
from rmqha.common import mix_all, topics, util_all
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message.message import MessageExt, MessageType, parse_int

GROUP_NAME_PREFIX = "_INNER_TRACE_PRODUCER"
CONTENT_SPLITOR = "\x01"
FIELD_SPLITOR = "\x02"
TRACE_INSTANCE_NAME = "PID_CLIENT_INNER_TRACE_PRODUCER"
TRACE_TOPIC_PREFIX = topics.SYSTEM_TOPIC_PREFIX + "TRACE_DATA_"


_local_address = functools.cache(mix_all.get_local_address)


@dataclass
class TraceBean:
    """One message of a trace. Times are in ms; `body_length` is in bytes (for consumption, of the whole record).

    Java: org.apache.rocketmq.client.trace.TraceBean (4.9.8)
    """

    topic: str = ""
    msg_id: str | None = ""
    offset_msg_id: str | None = ""
    tags: str | None = ""
    keys: str | None = ""
    store_host: str = field(default_factory=_local_address)
    client_host: str = field(default_factory=_local_address)
    store_time: int = 0
    retry_times: int = 0
    body_length: int = 0
    msg_type: MessageType | None = None
    transaction_state: LocalTransactionState | None = None
    transaction_id: str | None = None
    from_transaction_check: bool = False


class TraceType(enum.Enum):
    """The kind of an event: a send, the start or end of a listener's call, or the end of a transaction.

    Java: org.apache.rocketmq.client.trace.TraceType (4.9.8)
    """

    Pub = 0
    SubBefore = 1
    SubAfter = 2
    EndTransaction = 3


@dataclass
class TraceContext:
    """An event and its messages. Times are in ms; `request_id` is shared by a SubBefore and its SubAfter.

    `context_code` is the number of a ConsumeReturnType.

    Java: org.apache.rocketmq.client.trace.TraceContext (4.9.8)
    """

    trace_type: TraceType
    time_stamp: int = field(default_factory=util_all.current_time_millis)
    region_id: str | None = ""
    group_name: str | None = ""
    cost_time: int = 0
    is_success: bool = True
    request_id: str = field(default_factory=message_decoder.create_uniq_id)
    context_code: int = 0
    access_channel: AccessChannel | None = None
    trace_beans: list[TraceBean] = field(default_factory=list)
    begin_ns: int = field(default_factory=time.monotonic_ns, repr=False, compare=False)

    def elapsed_ms(self) -> int:
        """Return the age of the event, independent of changes of the wall clock."""
        return (time.monotonic_ns() - self.begin_ns) // 1_000_000


_LONG = re.compile(r"[+-]?[0-9]{1,19}\Z").match


@dataclass
class TraceTransferBean:
    """The text of an event, and the keys of the trace message: the ids and keys of the traced messages.

    Java: org.apache.rocketmq.client.trace.TraceTransferBean (4.9.8)
    """

    trans_data: str
    # Contains None for a message without an id
    trans_key: set[str | None] = field(default_factory=set)


def decoder_from_trace_data_string(trace_data: str | None) -> list[TraceContext]:
    """Return the events of a trace message's body; ValueError for text that is not a trace.

    Java: org.apache.rocketmq.client.trace.TraceDataEncoder#decoderFromTraceDataString (4.9.8)
    """
    contexts = []
    for text in _split(trace_data or "", FIELD_SPLITOR):
        if not text:
            continue
        line = _split(text, CONTENT_SPLITOR)
        try:
            decode = _DECODERS.get(line[0])
            # Events that later versions added are skipped
            if decode is not None:
                contexts.append(decode(line))
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError(f"not a valid trace: {text!r:.200}") from error
    return contexts


def _split(text: str, separator: str) -> list[str]:
    """Split like Java's String.split, which drops trailing empty parts."""
    parts = text.split(separator)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def _decode_pub(line: list[str]) -> TraceContext:
    bean = TraceBean(topic=line[4], msg_id=line[5], tags=line[6], keys=line[7], store_host=line[8],
                     body_length=parse_int(line[9]), msg_type=MessageType(parse_int(line[11])))
    context = TraceContext(TraceType.Pub, _parse_long(line[1]), line[2], line[3], cost_time=parse_int(line[10]),
                           trace_beans=[bean])
    if len(line) == 13:
        context.is_success = _is_true(line[12])
    elif len(line) >= 14:
        bean.offset_msg_id = line[12]
        context.is_success = _is_true(line[13])
    if len(line) >= 15:
        bean.client_host = line[14]
    return context


def _decode_sub_before(line: list[str]) -> TraceContext:
    bean = TraceBean(msg_id=line[5], retry_times=parse_int(line[6]), keys=line[7])
    return TraceContext(TraceType.SubBefore, _parse_long(line[1]), line[2], line[3], request_id=line[4],
                        trace_beans=[bean])


def _decode_sub_after(line: list[str]) -> TraceContext:
    bean = TraceBean(msg_id=line[2], keys=line[5])
    context = TraceContext(TraceType.SubAfter, request_id=line[1], cost_time=parse_int(line[3]),
                           is_success=_is_true(line[4]), trace_beans=[bean])
    if len(line) >= 7:
        context.context_code = parse_int(line[6])
    if len(line) >= 9:
        context.time_stamp, context.group_name = _parse_long(line[7]), line[8]
    return context


def _decode_end_transaction(line: list[str]) -> TraceContext:
    bean = TraceBean(topic=line[4], msg_id=line[5], tags=line[6], keys=line[7], store_host=line[8],
                     msg_type=MessageType(parse_int(line[9])), transaction_id=line[10],
                     transaction_state=LocalTransactionState[line[11]], from_transaction_check=_is_true(line[12]))
    return TraceContext(TraceType.EndTransaction, _parse_long(line[1]), line[2], line[3], trace_beans=[bean])


def _parse_long(text: str) -> int:
    if _LONG(text) is None or not -(1 << 63) <= (value := int(text)) < 1 << 63:
        raise ValueError(f'For input string: "{text}"')
    return value


def _is_true(text: str) -> bool:
    return text.lower() == "true"


_DECODERS: dict[str, Callable[[list[str]], TraceContext]] = {
    TraceType.Pub.name: _decode_pub,
    TraceType.SubBefore.name: _decode_sub_before,
    TraceType.SubAfter.name: _decode_sub_after,
    TraceType.EndTransaction.name: _decode_end_transaction,
}


def encoder_from_context_bean(context: TraceContext) -> TraceTransferBean:
    """Return the text and keys of an event.

    Java: org.apache.rocketmq.client.trace.TraceDataEncoder#encoderFromContextBean (4.9.8)
    """
    transfer = TraceTransferBean(_ENCODERS[context.trace_type](context))
    for bean in context.trace_beans:
        transfer.trans_key.add(bean.msg_id)
        if bean.keys:
            transfer.trans_key.update(_split(bean.keys, message_const.KEY_SEPARATOR))
    return transfer


def _encode_pub(context: TraceContext) -> str:
    bean = context.trace_beans[0]
    # The send hook sets it
    assert bean.msg_type is not None
    return _line(context.trace_type, context.time_stamp, context.region_id, context.group_name, bean.topic, bean.msg_id,
                 bean.tags, bean.keys, bean.store_host, bean.body_length, context.cost_time, bean.msg_type.value,
                 bean.offset_msg_id, context.is_success) + FIELD_SPLITOR


def _encode_sub_before(context: TraceContext) -> str:
    return "".join(
        _line(context.trace_type, context.time_stamp, context.region_id, context.group_name, context.request_id,
              bean.msg_id, bean.retry_times, bean.keys) + FIELD_SPLITOR
        for bean in context.trace_beans)


def _encode_sub_after(context: TraceContext) -> str:
    # In a cloud, Java writes only this, although nothing then separates two messages
    end = CONTENT_SPLITOR
    if context.access_channel is not AccessChannel.CLOUD:
        end = CONTENT_SPLITOR + _line(context.time_stamp, context.group_name) + FIELD_SPLITOR
    return "".join(
        _line(context.trace_type, context.request_id, bean.msg_id, context.cost_time, context.is_success, bean.keys,
              context.context_code) + end
        for bean in context.trace_beans)


def _encode_end_transaction(context: TraceContext) -> str:
    bean = context.trace_beans[0]
    # The transaction hook sets both
    assert bean.msg_type is not None and bean.transaction_state is not None
    return _line(context.trace_type, context.time_stamp, context.region_id, context.group_name, bean.topic, bean.msg_id,
                 bean.tags, bean.keys, bean.store_host, bean.msg_type.value, bean.transaction_id,
                 bean.transaction_state.name, bean.from_transaction_check) + FIELD_SPLITOR


def _line(*values: object) -> str:
    return CONTENT_SPLITOR.join(_text(value) for value in values)


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.name if isinstance(value, TraceType) else str(value)


_ENCODERS: dict[TraceType, Callable[[TraceContext], str]] = {
    TraceType.Pub: _encode_pub,
    TraceType.SubBefore: _encode_sub_before,
    TraceType.SubAfter: _encode_sub_after,
    TraceType.EndTransaction: _encode_end_transaction,
}


class TraceDispatcherType(enum.Enum):
    """The kind of client that a dispatcher traces.

    Java: org.apache.rocketmq.client.trace.TraceDispatcher$Type (4.9.8)
    """

    PRODUCE = 0
    CONSUME = 1


class TraceDispatcher:
    """The interface to send trace events to the trace topic. Adding an event never blocks.

    Java: org.apache.rocketmq.client.trace.TraceDispatcher (4.9.8)
    """

    def start(self, name_srv_addr: str, access_channel: AccessChannel) -> None:
        """Start the dispatcher; MQClientException on failure."""
        raise NotImplementedError

    def append(self, context: TraceContext) -> bool:
        """Add an event; return False if it was discarded."""
        raise NotImplementedError

    def flush(self) -> None:
        """Send all pending events."""
        raise NotImplementedError

    def shutdown(self) -> None:
        """Flush and stop."""
        raise NotImplementedError


@dataclass
class TraceView:
    """One event of one message, as the admin tools show it. Times are in ms; `msg_type` is the name of a TraceType.

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
        """Return the events of message id `key` in a trace message; ValueError for a body that is not a trace."""
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
