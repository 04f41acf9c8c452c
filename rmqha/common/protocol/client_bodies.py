"""Bodies of requests and answers about clients.

In this order:

- connections of producers and consumers, and the check of a subscription
- the result of consuming a message on request
- the running information of a consumer
- queue locks of orderly consumers
- offsets of a group: current offsets, resets, the times of messages, and the event that an offset was moved
- a range of a consume queue in readable form
"""
import enum
from collections.abc import Mapping

from rmqha.common import util_all
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.message.message import MessageQueue, MessageQueueForC
from rmqha.common.subscriptions import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from rmqha.common.texts import LATER, text_hash


@dataclass(slots=True)
class Connection:
    """The id and address of a client; `language` is the name of its LanguageCode, `version` its MQVersion.

    Java: org.apache.rocketmq.common.protocol.body.Connection (4.9.8)
    """

    clientId: str = LATER
    clientAddr: str | None = None
    language: str | None = None
    version: int = 0

    def __hash__(self) -> int:
        return text_hash(self.clientId, self.clientAddr, self.language, self.version)


@dataclass(slots=True)
class ProducerConnection:
    """The answer of GET_PRODUCER_CONNECTION_LIST.

    Java: org.apache.rocketmq.common.protocol.body.ProducerConnection (4.9.8)
    """

    connectionSet: set[Connection] = field(default_factory=set)


@dataclass(slots=True)
class ConsumerConnection:
    """The answer of GET_CONSUMER_CONNECTION_LIST.

    Java: org.apache.rocketmq.common.protocol.body.ConsumerConnection (4.9.8)
    """

    connectionSet: set[Connection] = field(default_factory=set)
    subscriptionTable: dict[str, SubscriptionData] = field(default_factory=dict)
    consumeType: ConsumeType | None = None
    messageModel: MessageModel | None = None
    consumeFromWhere: ConsumeFromWhere | None = None

    def compute_min_version(self) -> int:
        """Return the lowest version of the clients, 2^31 - 1 without clients."""
        return min((connection.version for connection in self.connectionSet), default=0x7FFF_FFFF)


@dataclass(slots=True)
class ProducerInfo:
    """A producer; `language` is the name of its LanguageCode, the time is in ms since the epoch.

    Java: org.apache.rocketmq.common.protocol.body.ProducerInfo (4.9.8)
    """

    clientId: str | None = None
    remoteIP: str | None = None
    language: str | None = None
    version: int = 0
    lastUpdateTimestamp: int = 0

    def __str__(self) -> str:
        return (f"clientId={self.clientId},remoteIP={self.remoteIP}, language={self.language}, version={self.version}, "
                f"lastUpdateTimestamp={self.lastUpdateTimestamp}")


@dataclass(slots=True)
class ProducerTableInfo:
    """Producers by group (answer of GET_ALL_PRODUCER_INFO).

    Java: org.apache.rocketmq.common.protocol.body.ProducerTableInfo (4.9.8)
    """

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclass(slots=True)
class CheckClientRequestBody:
    """A subscription that the broker is to check (body of CHECK_CLIENT_CONFIG).

    Java: org.apache.rocketmq.common.protocol.body.CheckClientRequestBody (4.9.8)
    """

    clientId: str | None = None
    group: str | None = None
    subscriptionData: SubscriptionData | None = None


class CMResult(enum.Enum):
    """The listener's result, including that it raised an exception or returned nothing.

    Java: org.apache.rocketmq.common.protocol.body.CMResult (4.9.8)
    """

    CR_SUCCESS = 0
    CR_LATER = 1
    CR_ROLLBACK = 2
    CR_COMMIT = 3
    CR_THROW_EXCEPTION = 4
    CR_RETURN_NULL = 5


@dataclass(slots=True)
class ConsumeMessageDirectlyResult:
    """The answer of CONSUME_MESSAGE_DIRECTLY; the time is in ms.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeMessageDirectlyResult (4.9.8)
    """

    order: bool = False
    autoCommit: bool = True
    consumeResult: CMResult | None = None
    remark: str | None = None
    spentTimeMills: int = 0

    def __str__(self) -> str:
        result = "null" if self.consumeResult is None else self.consumeResult.name
        return (f"ConsumeMessageDirectlyResult [order={str(self.order).lower()}, "
                f"autoCommit={str(self.autoCommit).lower()}, consumeResult={result}, "
                f"remark={'null' if self.remark is None else self.remark}, spentTimeMills={self.spentTimeMills}]")


@dataclass(slots=True)
class ProcessQueueInfo:
    """The cached messages, offsets and lock of a queue in a consumer; times are ms since the epoch.

    Java: org.apache.rocketmq.common.protocol.body.ProcessQueueInfo (4.9.8)
    """

    commitOffset: int = 0
    cachedMsgMinOffset: int = 0
    cachedMsgMaxOffset: int = 0
    cachedMsgCount: int = 0
    cachedMsgSizeInMiB: int = 0
    transactionMsgMinOffset: int = 0
    transactionMsgMaxOffset: int = 0
    transactionMsgCount: int = 0
    locked: bool = False
    tryUnlockTimes: int = 0
    lastLockTimestamp: int = 0
    droped: bool = False
    lastPullTimestamp: int = 0
    lastConsumeTimestamp: int = 0

    def __str__(self) -> str:
        human = util_all.time_millis_to_human_string
        return (f"ProcessQueueInfo [commitOffset={self.commitOffset}, cachedMsgMinOffset={self.cachedMsgMinOffset}, "
                f"cachedMsgMaxOffset={self.cachedMsgMaxOffset}, cachedMsgCount={self.cachedMsgCount}, "
                f"cachedMsgSizeInMiB={self.cachedMsgSizeInMiB}, "
                f"transactionMsgMinOffset={self.transactionMsgMinOffset}, "
                f"transactionMsgMaxOffset={self.transactionMsgMaxOffset}, "
                f"transactionMsgCount={self.transactionMsgCount}, locked={str(self.locked).lower()}, "
                f"tryUnlockTimes={self.tryUnlockTimes}, lastLockTimestamp={human(self.lastLockTimestamp)}, "
                f"droped={str(self.droped).lower()}, lastPullTimestamp={human(self.lastPullTimestamp)}, "
                f"lastConsumeTimestamp={human(self.lastConsumeTimestamp)}]")


@dataclass(slots=True)
class ConsumeStatus:
    """A consumer's progress in a topic: times in ms, rates per second, failures in the last hour.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeStatus (4.9.8)
    """

    pullRT: float = 0.0
    pullTPS: float = 0.0
    consumeRT: float = 0.0
    consumeOKTPS: float = 0.0
    consumeFailedTPS: float = 0.0
    consumeFailedMsgs: int = 0


PROP_NAMESERVER_ADDR = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP = "PROP_CONSUMER_START_TIMESTAMP"

STARTED_FOR_A_WHILE_MS = 120_000
BLOCKED_MS = 60_000


@dataclass(slots=True)
class ConsumerRunningInfo:
    """The settings, subscriptions, queues and rates of one client (answer of GET_CONSUMER_RUNNING_INFO).

    Java's subscriptionSet is sorted: fill it in sorted order.

    Java: org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo (4.9.8)
    """

    properties: dict[str, str] = field(default_factory=dict)
    subscriptionSet: list[SubscriptionData] = field(default_factory=list)
    mqTable: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    statusTable: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None

    @property
    def is_push(self) -> bool:
        """True if the client is a push consumer."""
        return self.properties.get(PROP_CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY.name

    @staticmethod
    def analyze_subscription(cri_table: Mapping[str, "ConsumerRunningInfo"]) -> bool:
        """Return whether all clients (by id) of a push group have the same subscriptions.

        It is true for the first two minutes after the start of the first client.
        """
        clients = [cri_table[client_id] for client_id in sorted(cri_table)]
        first = clients[0]
        started = util_all.as_int(first.properties.get(PROP_CONSUMER_START_TIMESTAMP), 0)
        if not first.is_push or util_all.current_time_millis() - started <= STARTED_FOR_A_WHILE_MS:
            return True
        if any(set(client.subscriptionSet) != set(first.subscriptionSet) for client in clients):
            return False
        return bool(first.subscriptionSet)

    @staticmethod
    def analyze_rebalance(_cri_table: Mapping[str, "ConsumerRunningInfo"]) -> bool:
        """Return True, as in Java."""
        return True

    @staticmethod
    def analyze_process_queue(client_id: str, info: "ConsumerRunningInfo") -> str:
        """Return lines about queues that seem stuck; an empty text without any."""
        if not info.is_push:
            return ""
        orderly = info.properties.get(PROP_CONSUME_ORDERLY, "").lower() == "true"
        find = _lock_trouble if orderly else _consume_trouble
        troubles = ((queue, find(info.mqTable[queue])) for queue in sorted(info.mqTable))
        return "".join(f"{client_id} {queue} {trouble}\n" for queue, trouble in troubles if trouble)

    def format_string(self) -> str:
        """Return all information as text for people."""
        parts = ["#Consumer Properties#\n"]
        parts += [f"{name:<40}: {value}\n" for name, value in self.properties.items()]
        parts.append("\n\n#Consumer Subscription#\n")
        parts += [f"{number:03d} Topic: {data.topic or 'null':<40} ClassFilter: {str(data.classFilterMode).lower():<8}"
                  f" SubExpression: {data.subString}\n" for number, data in enumerate(sorted(self.subscriptionSet), 1)]
        parts += self._queue_lines() + self._status_lines()
        if self.jstack is not None:
            parts.append(f"\n\n#Consumer jstack#\n{self.jstack}")
        return "".join(parts)

    def _queue_lines(self) -> list[str]:
        queues = sorted(self.mqTable)
        head = f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  "
        lines = [f"\n\n#Consumer Offset#\n{head}{'#Consumer Offset':<20}\n"]
        lines += [f"{queue.topic:<32}  {queue.brokerName:<32}  {queue.queueId:<4}  "
                  f"{self.mqTable[queue].commitOffset:<20}\n" for queue in queues]
        lines.append(f"\n\n#Consumer MQ Detail#\n{head}{'#ProcessQueueInfo':<20}\n")
        lines += [f"{queue.topic:<64}  {queue.brokerName:<32}  {queue.queueId:<4}  {self.mqTable[queue]}\n"
                  for queue in queues]
        return lines

    def _status_lines(self) -> list[str]:
        lines = [f"\n\n#Consumer RT&TPS#\n{'#Topic':<64}  {'#Pull RT':>14} {'#Pull TPS':>14} {'#Consume RT':>14} "
                 f"{'#ConsumeOK TPS':>14} {'#ConsumeFailed TPS':>18} {'#ConsumeFailedMsgsInHour':>25}\n"]
        for topic in sorted(self.statusTable):
            s = self.statusTable[topic]
            rates = (_two(s.pullRT), _two(s.pullTPS), _two(s.consumeRT), _two(s.consumeOKTPS))
            columns = " ".join(f"{rate:>14}" for rate in rates)
            lines.append(f"{topic:<32}  {columns} {_two(s.consumeFailedTPS):>18} {s.consumeFailedMsgs:25d}\n")
        return lines


def _two(value: float) -> str:
    """Format with two decimals, rounding half up, as Java's %.2f does from the shortest decimal form."""
    # Imported late: it takes a millisecond to load, and few commands print this text.
    from decimal import ROUND_HALF_UP, Decimal

    return str(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def _lock_trouble(queue: ProcessQueueInfo) -> str | None:
    if not queue.locked:
        return f"can't lock for a while, {util_all.current_time_millis() - queue.lastLockTimestamp}ms"
    if queue.droped and queue.tryUnlockTimes > 0:
        return f"unlock {queue.tryUnlockTimes} times, still failed"
    return None


def _consume_trouble(queue: ProcessQueueInfo) -> str | None:
    idle_ms = util_all.current_time_millis() - queue.lastConsumeTimestamp
    if idle_ms > BLOCKED_MS and queue.cachedMsgCount > 0:
        return f"can't consume for a while, maybe blocked, {idle_ms}ms"
    return None


@dataclass(slots=True)
class LockBatchRequestBody:
    """The queues that a client wants to lock (body of LOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.LockBatchRequestBody (4.9.8)
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True)
class LockBatchResponseBody:
    """The queues that the client has locked (answer of LOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.LockBatchResponseBody (4.9.8)
    """

    lockOKMQSet: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True)
class UnlockBatchRequestBody:
    """The queues that a client unlocks (body of UNLOCK_BATCH_MQ).

    Java: org.apache.rocketmq.common.protocol.body.UnlockBatchRequestBody (4.9.8)
    """

    consumerGroup: str | None = None
    clientId: str | None = None
    mqSet: set[MessageQueue] = field(default_factory=set)


@dataclass(slots=True)
class GetConsumerStatusBody:
    """The offsets of one client's queues, or of all clients' queues by client id.

    Java: org.apache.rocketmq.common.protocol.body.GetConsumerStatusBody (4.9.8)
    """

    messageQueueTable: dict[MessageQueue, int] = field(default_factory=dict)
    consumerTable: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@dataclass(slots=True)
class QueryCorrectionOffsetBody:
    """Offsets by queue id (answer of QUERY_CORRECTION_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.QueryCorrectionOffsetBody (4.9.8)
    """

    correctionOffsets: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class ResetOffsetBody:
    """Offsets by queue (answer of INVOKE_BROKER_TO_RESET_OFFSET, body of RESET_CONSUMER_CLIENT_OFFSET).

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBody (4.9.8)
    """

    offsetTable: dict[MessageQueue, int] | None = None


@dataclass(slots=True)
class ResetOffsetBodyForC:
    """Queues with offsets, in the form for C++ clients.

    Java: org.apache.rocketmq.common.protocol.body.ResetOffsetBodyForC (4.9.8)
    """

    offsetTable: list[MessageQueueForC] | None = None


def _text(time_ms: int) -> str:
    """Format a time as `yyyy-MM-dd#HH:mm:ss:SSS`."""
    return util_all.time_millis_to_human_string2(time_ms).replace(" ", "#").replace(",", ":")


@dataclass(slots=True)
class QueueTimeSpan:
    """The store times of a queue's first and last message and of the group's next one, and its delay, all in ms.

    Java's getters of the texts appear in the JSON, so they are fields here, computed by the constructor.

    Java: org.apache.rocketmq.common.protocol.body.QueueTimeSpan (4.9.8)
    """

    messageQueue: MessageQueue | None = None
    minTimeStamp: int = 0
    maxTimeStamp: int = 0
    consumeTimeStamp: int = 0
    delayTime: int = 0
    minTimeStampStr: str | None = None
    maxTimeStampStr: str | None = None
    consumeTimeStampStr: str | None = None

    def __post_init__(self) -> None:
        self.minTimeStampStr = _text(self.minTimeStamp)
        self.maxTimeStampStr = _text(self.maxTimeStamp)
        self.consumeTimeStampStr = _text(self.consumeTimeStamp)


@dataclass(slots=True)
class QueryConsumeTimeSpanBody:
    """The answer of QUERY_CONSUME_TIME_SPAN.

    Java: org.apache.rocketmq.common.protocol.body.QueryConsumeTimeSpanBody (4.9.8)
    """

    consumeTimeSpanSet: list[QueueTimeSpan] = field(default_factory=list)


@dataclass(slots=True)
class OffsetMovedEvent:
    """The body of the messages in OFFSET_MOVED_EVENT.

    Java: org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent (4.9.8)
    """

    consumerGroup: str = LATER
    messageQueue: MessageQueue | None = None
    offsetRequest: int = 0
    offsetNew: int = 0


@dataclass(slots=True)
class ConsumeQueueData:
    """A unit of a consume queue, its extension, and whether the group's filter accepts it.

    Java: org.apache.rocketmq.common.protocol.body.ConsumeQueueData (4.9.8)
    """

    physicOffset: int = 0
    physicSize: int = 0
    tagsCode: int = 0
    extendDataJson: str | None = None
    bitMap: str | None = None
    eval: bool = False
    msg: str | None = None

    def __str__(self) -> str:
        texts = (self.extendDataJson, self.bitMap, self.msg)
        extend, bits, msg = ("null" if text is None else text for text in texts)
        return (f"ConsumeQueueData{{physicOffset={self.physicOffset}, physicSize={self.physicSize}, "
                f"tagsCode={self.tagsCode}, extendDataJson='{extend}', bitMap='{bits}', eval={str(self.eval).lower()}, "
                f"msg='{msg}'}}")


@dataclass(slots=True)
class QueryConsumeQueueResponseBody:
    """The answer of QUERY_CONSUME_QUEUE.

    Java: org.apache.rocketmq.common.protocol.body.QueryConsumeQueueResponseBody (4.9.8)
    """

    subscriptionData: SubscriptionData | None = None
    filterData: str | None = None
    queueData: list[ConsumeQueueData] | None = None
    maxQueueIndex: int = 0
    minQueueIndex: int = 0
