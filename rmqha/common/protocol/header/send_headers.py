"""Headers of sending: a message, a batch, a reply, a message sent back."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    RpcRequestHeader,
    not_null,
    nullable,
)


@dataclass
class SendMessageRequestHeader(RpcRequestHeader):
    """A message to be stored (SEND_MESSAGE); the body is the message's.

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
        """The same with long names; the broker's name becomes `bname`."""
        return SendMessageRequestHeader(v2.a, v2.b, v2.c, v2.d, v2.e, v2.f, v2.g, v2.h, v2.i, v2.j, v2.k, v2.m, v2.l,
                                        bname=v2.n)


@dataclass
class SendMessageResponseHeader(CommandCustomHeader):
    """Where the message went; for a batch the ids joined by commas and the first offset.

    Java: org.apache.rocketmq.common.protocol.header.SendMessageResponseHeader (4.9.8)
    """

    msgId: str = not_null()
    queueId: int = not_null(INTEGER)
    queueOffset: int = not_null(LONG)
    transactionId: str | None = None


@dataclass
class ReplyMessageRequestHeader(CommandCustomHeader):
    """A reply pushed to the client that asked (PUSH_REPLY_MESSAGE_TO_CLIENT).

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
    """A consumer could not handle the message at `offset` and wants it again (CONSUMER_SEND_MSG_BACK).

    Java: org.apache.rocketmq.common.protocol.header.ConsumerSendMsgBackRequestHeader (4.9.8)
    """

    offset: int = not_null(LONG)
    group: str = not_null()
    delayLevel: int = not_null(INTEGER)
    originMsgId: str | None = None
    originTopic: str | None = None
    unitMode: bool = False
    maxReconsumeTimes: int | None = nullable(INTEGER)
