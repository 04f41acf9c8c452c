"""Headers of the requests of producers and consumers: send, pull, queue offsets, message lookup, transactions."""
from rmqha.common import subscriptions, sys_flags
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    RpcRequestHeader,
    not_null,
    nullable,
)


@dataclass
class SendMessageRequestHeader(RpcRequestHeader):
    """A message to store (SEND_MESSAGE); the request's body is the message's.

    Java: org.apache.rocketmq.common.protocol.header.SendMessageRequestHeader (4.9.8)
    """

    producerGroup: str = not_null(lax=True)
    topic: str = not_null(lax=True)
    defaultTopic: str = not_null(lax=True)
    defaultTopicQueueNums: int = not_null(INTEGER, lax=True)
    queueId: int = not_null(INTEGER)
    sysFlag: int = not_null(INTEGER)
    bornTimestamp: int = not_null(LONG)
    flag: int = not_null(INTEGER)
    properties: str | None = None
    reconsumeTimes: int | None = nullable(INTEGER)
    unitMode: bool = False
    batch: bool = False
    maxReconsumeTimes: int | None = nullable(INTEGER)


@dataclass
class SendMessageRequestHeaderV2(RpcRequestHeader):
    """SendMessageRequestHeader with one-letter names (SEND_MESSAGE_V2, SEND_BATCH_MESSAGE).

    Java: org.apache.rocketmq.common.protocol.header.SendMessageRequestHeaderV2 (4.9.8)
    """

    a: str = not_null(lax=True)  # producerGroup
    b: str = not_null(lax=True)  # topic
    c: str = not_null(lax=True)  # defaultTopic
    d: int = not_null(INTEGER, lax=True)  # defaultTopicQueueNums
    e: int = not_null(INTEGER)  # queueId
    f: int = not_null(INTEGER)  # sysFlag
    g: int = not_null(LONG)  # bornTimestamp
    h: int = not_null(INTEGER)  # flag
    i: str | None = None  # properties
    j: int | None = nullable(INTEGER)  # reconsumeTimes
    k: bool = False  # unitMode
    l: int | None = nullable(INTEGER)  # noqa: E741, Java's name; maxReconsumeTimes
    m: bool = False  # batch
    n: str | None = None  # brokerName

    @staticmethod
    def create_send_message_request_header_v1(v2: "SendMessageRequestHeaderV2") -> SendMessageRequestHeader:
        """Return the same header with long names; the broker's name becomes `bname`."""
        return SendMessageRequestHeader(v2.a, v2.b, v2.c, v2.d, v2.e, v2.f, v2.g, v2.h, v2.i, v2.j, v2.k, v2.m, v2.l,
                                        bname=v2.n)


@dataclass
class SendMessageResponseHeader(CommandCustomHeader):
    """The queue and offset of a stored message; for a batch, the ids joined by commas and the first offset.

    Java: org.apache.rocketmq.common.protocol.header.SendMessageResponseHeader (4.9.8)
    """

    msgId: str = not_null()
    queueId: int = not_null(INTEGER)
    queueOffset: int = not_null(LONG)
    transactionId: str | None = None


@dataclass
class ReplyMessageRequestHeader(CommandCustomHeader):
    """A reply, pushed to the client that sent the request message (PUSH_REPLY_MESSAGE_TO_CLIENT).

    Java: org.apache.rocketmq.common.protocol.header.ReplyMessageRequestHeader (4.9.8)
    """

    producerGroup: str = not_null()
    topic: str = not_null()
    defaultTopic: str = not_null()
    defaultTopicQueueNums: int = not_null(INTEGER)
    queueId: int = not_null(INTEGER)
    sysFlag: int = not_null(INTEGER)
    bornTimestamp: int = not_null(LONG)
    flag: int = not_null(INTEGER)
    properties: str | None = None
    reconsumeTimes: int | None = nullable(INTEGER)
    unitMode: bool = False
    bornHost: str = not_null()
    storeHost: str = not_null()
    storeTimestamp: int = not_null(LONG, default=0)


@dataclass
class ConsumerSendMsgBackRequestHeader(RpcRequestHeader):
    """A consumer failed to process the message at `offset` and wants it redelivered (CONSUMER_SEND_MSG_BACK).

    Java: org.apache.rocketmq.common.protocol.header.ConsumerSendMsgBackRequestHeader (4.9.8)
    """

    offset: int = not_null(LONG)
    group: str = not_null()
    delayLevel: int = not_null(INTEGER)
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: int | None = nullable(INTEGER)


@dataclass
class PullMessageRequestHeader(RpcRequestHeader):
    """A pull of messages of one queue, from an offset on (PULL_MESSAGE).

    Java: org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader (4.9.8)
    """

    consumerGroup: str = not_null()
    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    queueOffset: int = not_null(LONG)
    maxMsgNums: int = not_null(INTEGER)
    sysFlag: int = not_null(INTEGER)
    commitOffset: int = not_null(LONG, lax=True)
    suspendTimeoutMillis: int = not_null(LONG, lax=True)
    subscription: str | None = None
    subVersion: int = not_null(LONG, lax=True)
    expressionType: str | None = None

    def check_fields(self) -> None:
        """Raise HeaderFieldError when a field that the flags require is missing."""
        if self.commitOffset is not None and self.suspendTimeoutMillis is not None and self.subVersion is not None:
            return
        flags = self.sysFlag
        for name, needed in (("commitOffset", sys_flags.has_commit_offset_flag(flags)),
                             ("suspendTimeoutMillis", sys_flags.has_suspend_flag(flags)),
                             ("subVersion", not sys_flags.has_subscription_flag(flags)
                              or not subscriptions.is_tag_type(self.expressionType))):
            if needed and getattr(self, name) is None:
                raise HeaderFieldError(f"the custom field <{name}> is null")


@dataclass
class PullMessageResponseHeader(CommandCustomHeader):
    """The offset of the next pull, and the queue's range; the records are the body.

    Java: org.apache.rocketmq.common.protocol.header.PullMessageResponseHeader (4.9.8)
    """

    suggestWhichBrokerId: int = not_null(LONG)
    nextBeginOffset: int = not_null(LONG)
    minOffset: int = not_null(LONG)
    maxOffset: int = not_null(LONG)


@dataclass
class SearchOffsetRequestHeader(RpcRequestHeader):
    """A search for the offset at a time in ms (SEARCH_OFFSET_BY_TIMESTAMP).

    Java: org.apache.rocketmq.common.protocol.header.SearchOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)
    timestamp: int = not_null(LONG)


@dataclass
class SearchOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.SearchOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetMaxOffsetRequestHeader(RpcRequestHeader):
    """A query for the next offset of a queue (GET_MAX_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.GetMaxOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetMaxOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.GetMaxOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetMinOffsetRequestHeader(RpcRequestHeader):
    """A query for the first offset of a queue (GET_MIN_OFFSET).

    Java: org.apache.rocketmq.common.protocol.header.GetMinOffsetRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetMinOffsetResponseHeader(CommandCustomHeader):
    """The offset.

    Java: org.apache.rocketmq.common.protocol.header.GetMinOffsetResponseHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class GetEarliestMsgStoretimeRequestHeader(RpcRequestHeader):
    """A query for the store time of a queue's first message (GET_EARLIEST_MSG_STORETIME).

    Java: org.apache.rocketmq.common.protocol.header.GetEarliestMsgStoretimeRequestHeader (4.9.8)
    """

    topic: str = not_null()
    queueId: int = not_null(INTEGER)


@dataclass
class GetEarliestMsgStoretimeResponseHeader(CommandCustomHeader):
    """The time in ms, -1 for an empty queue.

    Java: org.apache.rocketmq.common.protocol.header.GetEarliestMsgStoretimeResponseHeader (4.9.8)
    """

    timestamp: int = not_null(LONG)


@dataclass
class QueryMessageRequestHeader(CommandCustomHeader):
    """A query for messages by key (QUERY_MESSAGE). Times are in ms.

    Java: org.apache.rocketmq.common.protocol.header.QueryMessageRequestHeader (4.9.8)
    """

    topic: str = not_null(lax=True)
    key: str = not_null(lax=True)
    maxNum: int = not_null(INTEGER)
    beginTimestamp: int = not_null(LONG)
    endTimestamp: int = not_null(LONG)


@dataclass
class QueryMessageResponseHeader(CommandCustomHeader):
    """The time and the offset up to which the index is built; the records are the body.

    Java: org.apache.rocketmq.common.protocol.header.QueryMessageResponseHeader (4.9.8)
    """

    indexLastUpdateTimestamp: int = not_null(LONG)
    indexLastUpdatePhyoffset: int = not_null(LONG)


@dataclass
class ViewMessageRequestHeader(CommandCustomHeader):
    """A query for the record at a commit log offset (VIEW_MESSAGE_BY_ID).

    Java: org.apache.rocketmq.common.protocol.header.ViewMessageRequestHeader (4.9.8)
    """

    offset: int = not_null(LONG)


@dataclass
class ViewMessageResponseHeader(CommandCustomHeader):
    """A header without fields; the record is the body.

    Java: org.apache.rocketmq.common.protocol.header.ViewMessageResponseHeader (4.9.8)
    """


@dataclass
class QueryConsumeQueueRequestHeader(CommandCustomHeader):
    """A query for `count` units of a consume queue, from `index` on (QUERY_CONSUME_QUEUE).

    Java: org.apache.rocketmq.common.protocol.header.QueryConsumeQueueRequestHeader (4.9.8)
    """

    topic: str | None = None
    queueId: int = nullable(INTEGER, default=0)
    index: int = nullable(LONG, default=0)
    count: int = nullable(INTEGER, default=0)
    consumerGroup: str | None = None


_OUTCOMES = (sys_flags.TRANSACTION_COMMIT_TYPE, sys_flags.TRANSACTION_ROLLBACK_TYPE)


@dataclass
class EndTransactionRequestHeader(RpcRequestHeader):
    """A producer commits or rolls back a half message (END_TRANSACTION).

    Java: org.apache.rocketmq.common.protocol.header.EndTransactionRequestHeader (4.9.8)
    """

    producerGroup: str = not_null(lax=True)
    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    commitOrRollback: int = not_null(INTEGER)
    fromTransactionCheck: bool | None = False
    msgId: str = not_null(lax=True)
    transactionId: str | None = None

    def check_fields(self) -> None:
        """Raise HeaderFieldError unless the outcome is unknown, commit or rollback."""
        if self.commitOrRollback not in (sys_flags.TRANSACTION_NOT_TYPE, *_OUTCOMES):
            raise HeaderFieldError("commitOrRollback field wrong")


@dataclass
class EndTransactionResponseHeader(CommandCustomHeader):
    """A header without fields.

    Java: org.apache.rocketmq.common.protocol.header.EndTransactionResponseHeader (4.9.8)
    """


@dataclass
class CheckTransactionStateRequestHeader(RpcRequestHeader):
    """A broker asks a producer for the outcome of a half message (CHECK_TRANSACTION_STATE).

    Java: org.apache.rocketmq.common.protocol.header.CheckTransactionStateRequestHeader (4.9.8)
    """

    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    msgId: str | None = None
    transactionId: str | None = None
    offsetMsgId: str | None = None


@dataclass
class CheckTransactionStateResponseHeader(CommandCustomHeader):
    """The outcome. Unused: producers answer with END_TRANSACTION.

    Java: org.apache.rocketmq.common.protocol.header.CheckTransactionStateResponseHeader (4.9.8)
    """

    producerGroup: str = not_null()
    tranStateTableOffset: int = not_null(LONG)
    commitLogOffset: int = not_null(LONG)
    commitOrRollback: int = not_null(INTEGER)

    def check_fields(self) -> None:
        """Raise HeaderFieldError unless the outcome is commit or rollback."""
        if self.commitOrRollback not in _OUTCOMES:
            raise HeaderFieldError("commitOrRollback field wrong")


@dataclass
class ResumeCheckHalfMessageRequestHeader(CommandCustomHeader):
    """A request to check a half message again, with a new count of checks (RESUME_CHECK_HALF_MESSAGE).

    Java: org.apache.rocketmq.common.protocol.header.ResumeCheckHalfMessageRequestHeader (4.9.8)
    """

    msgId: str | None = None
