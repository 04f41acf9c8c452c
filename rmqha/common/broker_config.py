"""Settings of a broker: identity, thread pools, queues, switches."""
import os
from typing import Annotated

from rmqha.common.config_keys import (
    LONG_MAX,
    AnyInt,
    AnyLong,
    ControllerAddresses,
    Host,
    Long,
    LongMillis,
    LongPeriod,
    Millis,
    Name,
    NamesrvAddresses,
    Natural,
    Period,
    PlainText,
    Port,
    Positive,
    Topic,
    important,
    whole_number,
)
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.logs import LogFormat, LogLevel, LogTime
from rmqha.common.metrics import MetricsNames
from rmqha.common.mix_all import (
    DEFAULT_TRACE_REGION_ID,
    MASTER_ID,
    NAMESRV_ADDR_ENV,
    ROCKETMQ_HOME_ENV,
    get_local_address,
)

_CORES = os.cpu_count() or 1


def local_host_name() -> str:
    """The host's name, or DEFAULT_BROKER when it has none."""
    return os.uname().nodename or "DEFAULT_BROKER"


@dataclass
class BrokerConfig:
    """What a broker is and how it serves; attributes are the config keys, in Java's order. Times are milliseconds.

    Java: org.apache.rocketmq.common.BrokerConfig (4.9.8)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    # `;` separated host:port
    namesrvAddr: NamesrvAddresses | None = important(factory=lambda: os.environ.get(NAMESRV_ADDR_ENV))
    brokerIP1: Host = important(factory=get_local_address)
    brokerIP2: Host = field(default_factory=get_local_address)
    brokerName: Name = important(factory=local_host_name)
    brokerClusterName: Name = important("DefaultCluster")
    # 0 is the master, above 0 a slave
    brokerId: Annotated[Long, whole_number(-1, LONG_MAX)] = important(MASTER_ID)
    # PermName bits: read 4, write 2
    brokerPermission: Annotated[int, whole_number(0, 7)] = 6
    defaultTopicQueueNums: Annotated[int, whole_number(1, 65536)] = 8
    autoCreateTopicEnable: bool = important(True)

    clusterTopicEnable: bool = True

    brokerTopicEnable: bool = True
    autoCreateSubscriptionGroup: bool = important(True)
    messageStorePlugIn: PlainText = ""
    msgTraceTopicName: Topic = important("RMQ_SYS_TRACE_TOPIC")
    traceTopicEnable: bool = important(False)

    sendMessageThreadPoolNums: Positive = min(_CORES, 4)
    putMessageFutureThreadPoolNums: Positive = min(_CORES, 4)
    pullMessageThreadPoolNums: Positive = 16 + _CORES * 2
    processReplyMessageThreadPoolNums: Positive = 16 + _CORES * 2
    queryMessageThreadPoolNums: Positive = 8 + _CORES

    adminBrokerThreadPoolNums: Positive = 16
    clientManageThreadPoolNums: Positive = 32
    consumerManageThreadPoolNums: Positive = 32
    heartbeatThreadPoolNums: Positive = min(32, _CORES)

    endTransactionThreadPoolNums: Positive = max(8 + _CORES * 2, min(_CORES, 4) * 4)

    flushConsumerOffsetInterval: Period = 1000 * 5

    flushConsumerOffsetHistoryInterval: Millis = 1000 * 60

    rejectTransactionMessage: bool = important(False)
    fetchNamesrvAddrByAddressServer: bool = important(False)
    sendThreadPoolQueueCapacity: Positive = 10000
    putThreadPoolQueueCapacity: Positive = 10000
    pullThreadPoolQueueCapacity: Positive = 100000
    replyThreadPoolQueueCapacity: Positive = 10000
    queryThreadPoolQueueCapacity: Positive = 20000
    clientManagerThreadPoolQueueCapacity: Positive = 1000000
    consumerManagerThreadPoolQueueCapacity: Positive = 1000000
    heartbeatThreadPoolQueueCapacity: Positive = 50000
    endTransactionPoolQueueCapacity: Positive = 100000

    filterServerNums: Natural = 0

    longPollingEnable: bool = True

    shortPollingTimeMills: LongMillis = 1000

    notifyConsumerIdsChangedEnable: bool = True

    highSpeedMode: bool = False

    commercialEnable: bool = True
    commercialTimerCount: Natural = 1
    commercialTransCount: Natural = 1
    commercialBigCount: Natural = 1
    commercialBaseCount: Natural = 1

    transferMsgByHeap: bool = True
    maxDelayTime: Natural = 40

    regionId: PlainText = DEFAULT_TRACE_REGION_ID
    registerBrokerTimeoutMills: Period = 6000

    slaveReadEnable: bool = False

    disableConsumeIfConsumerReadSlowly: bool = False
    # bytes
    consumerFallbehindThreshold: Annotated[Long, whole_number(0, LONG_MAX, "of bytes")] = 1024 * 1024 * 1024 * 16

    brokerFastFailureEnable: bool = True
    waitTimeMillsInSendQueue: LongMillis = 200
    waitTimeMillsInPullQueue: LongMillis = 5 * 1000
    waitTimeMillsInHeartbeatQueue: LongMillis = 31 * 1000
    waitTimeMillsInTransactionQueue: LongMillis = 3 * 1000

    startAcceptSendRequestTimeStamp: AnyLong = 0

    traceOn: bool = True

    # filter bit maps: computed when a queue unit is written, saved to the extension file if that is on
    enableCalcFilterBitMap: bool = False
    expectConsumerNumUseFilter: Positive = 32
    # percent, 1 to 100
    maxErrorRateOfBloomFilter: Annotated[int, whole_number(1, 99, "of percent")] = 20
    # how long filter data outlives its consumer
    filterDataCleanTimeSpan: LongMillis = 24 * 3600 * 1000
    filterSupportRetry: bool = False
    enablePropertyFilter: bool = False

    compressedRegister: bool = False

    forceRegister: bool = True

    # the broker clamps it to 10,000 .. 60,000
    registerNameServerPeriod: AnyInt = 1000 * 30

    # a half message is first checked when it is older than this
    transactionTimeOut: LongMillis = important(6 * 1000)
    # checks until a half message is given up
    transactionCheckMax: Natural = important(15)
    transactionCheckInterval: LongPeriod = important(60 * 1000)

    aclEnable: bool = important(False)

    storeReplyMessageEnable: bool = True

    enableDetailStat: bool = True

    autoDeleteUnusedStats: bool = False

    # one log folder for each broker of a host
    isolateLogEnable: bool = False

    # `;` separated keys that UPDATE_BROKER_CONFIG may not touch
    configBlackList: PlainText = "configBlackList;brokerConfigPath"

    # rmqha's: a pause in which no thread had a turn for so long is logged with its stacks; 0: off
    stallWatchMs: Millis = field(default=0, metadata={"extension": True})
    # rmqha's: from which level on lines are written (may change while it runs), and what they look like
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})

    # rmqha's: the port of /metrics, /healthz and /readyz, 0: none; the address that it listens at; whose names
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})
    metricsNames: MetricsNames = field(default=MetricsNames.exporter, metadata={"extension": True})

    # Automatic failover: keys of 5.1.4. The controllers are `host:port` joined by `;`.
    enableControllerMode: bool = field(default=False, metadata={"extension": True})
    controllerAddr: ControllerAddresses = field(default="", metadata={"extension": True})
    fetchControllerAddrByDnsLookup: bool = field(default=False, metadata={"extension": True})
    brokerHeartbeatInterval: Period = field(default=1000, metadata={"extension": True})
    sendHeartbeatTimeoutMillis: Period = field(default=1000, metadata={"extension": True})
    syncBrokerMetadataPeriod: Period = field(default=5 * 1000, metadata={"extension": True})
    checkSyncStateSetPeriod: Period = field(default=5 * 1000, metadata={"extension": True})
    syncControllerMetadataPeriod: Period = field(default=10 * 1000, metadata={"extension": True})
    # Differs: 3 s instead of 10 s: a master that hangs is replaced behind this time
    controllerHeartBeatTimeoutMills: Period = field(default=3 * 1000, metadata={"extension": True})
    # the lowest number is elected first among equals
    brokerElectionPriority: Natural = field(default=(1 << 31) - 1, metadata={"extension": True})
    # rmqha's: a master acknowledges nothing while no controller confirms that it is the master
    controllerLease: bool = field(default=True, metadata={"extension": True})
