"""What a consumer does at the moment."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal

from rmqha.common import util_all
from rmqha.common.message.message_queue import MessageQueue
from rmqha.common.protocol.heartbeat.heartbeat_data import ConsumeType
from rmqha.common.protocol.heartbeat.subscription_data import SubscriptionData


@dataclass(slots=True)
class ProcessQueueInfo:
    """Cached messages, offsets and lock of a queue in a consumer; times are ms since the epoch.

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
    """Times in ms, rates per second, failures of the last hour.

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
    """Settings, subscriptions, queues and rates of one client (answer of GET_CONSUMER_RUNNING_INFO).

    Java's subscriptionSet is sorted: keep it so when filling it.

    Java: org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo (4.9.8)
    """

    properties: dict[str, str] = field(default_factory=dict)
    subscriptionSet: list[SubscriptionData] = field(default_factory=list)
    mqTable: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    statusTable: dict[str, ConsumeStatus] = field(default_factory=dict)
    jstack: str | None = None

    @property
    def is_push(self) -> bool:
        """Whether the client is a push consumer."""
        return self.properties.get(PROP_CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY.name

    @staticmethod
    def analyze_subscription(cri_table: Mapping[str, "ConsumerRunningInfo"]) -> bool:
        """Whether all clients (by id) of a push group subscribe to the same; true while the first one is young."""
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
        """True, as in Java."""
        return True

    @staticmethod
    def analyze_process_queue(client_id: str, info: "ConsumerRunningInfo") -> str:
        """Lines about queues that seem stuck; the empty text when all is well."""
        if not info.is_push:
            return ""
        orderly = info.properties.get(PROP_CONSUME_ORDERLY, "").lower() == "true"
        find = _lock_trouble if orderly else _consume_trouble
        troubles = ((queue, find(info.mqTable[queue])) for queue in sorted(info.mqTable))
        return "".join(f"{client_id} {queue} {trouble}\n" for queue, trouble in troubles if trouble)

    def format_string(self) -> str:
        """All of it as text for people."""
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
    """Two decimals, halves up, as Java's %.2f of the shortest decimal form."""
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
