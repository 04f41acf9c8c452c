"""Settings of a broker: identity, thread pools, queues, switches.

A field's annotation gives the key's range and unit (see config_keys); rmqha/tools/config/config_meanings.py says what
each key does. UPDATE_BROKER_CONFIG may change a key at run time unless it is in `configuration.FIXED_KEYS` or in
`configBlackList`. Sizes of thread pools and of their queues may be changed, but take effect at the next start.
"""
import os
from typing import Annotated

from rmqha.common.config_keys import (
    LONG_MAX,
    AnyInt,
    AnyLong,
    CommandLine,
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
    SharedAddress,
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
    """Return the host's name, or DEFAULT_BROKER when it has none."""
    return os.uname().nodename or "DEFAULT_BROKER"


@dataclass
class BrokerConfig:
    """The config keys of a broker, as attributes, in Java's order. Times are in ms.

    Java: org.apache.rocketmq.common.BrokerConfig (4.9.8)
    """

    rocketmqHome: PlainText | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    # The name servers, host:port separated by `;`. May change at run time.
    namesrvAddr: NamesrvAddresses | None = important(factory=lambda: os.environ.get(NAMESRV_ADDR_ENV))
    brokerIP1: Host = important(factory=get_local_address)
    brokerIP2: Host = field(default_factory=get_local_address)
    brokerName: Name = important(factory=local_host_name)
    brokerClusterName: Name = important("DefaultCluster")
    # 0 is the master, an id above 0 a slave. Fixed.
    brokerId: Annotated[Long, whole_number(-1, LONG_MAX)] = important(MASTER_ID)
    # Bits of PermName: 4 read, 2 write, so 6 is both. May change at run time.
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
    # Bytes that a consumer may be behind before disableConsumeIfConsumerReadSlowly stops it.
    consumerFallbehindThreshold: Annotated[Long, whole_number(0, LONG_MAX, "of bytes")] = 1024 * 1024 * 1024 * 16

    brokerFastFailureEnable: bool = True
    waitTimeMillsInSendQueue: LongMillis = 200
    waitTimeMillsInPullQueue: LongMillis = 5 * 1000
    waitTimeMillsInHeartbeatQueue: LongMillis = 31 * 1000
    waitTimeMillsInTransactionQueue: LongMillis = 3 * 1000

    startAcceptSendRequestTimeStamp: AnyLong = 0

    traceOn: bool = True

    # Compute the filter bit map when a queue unit is written. It is saved if enableConsumeQueueExt is on.
    enableCalcFilterBitMap: bool = False
    expectConsumerNumUseFilter: Positive = 32
    # The share of false hits of the bloom filter, in percent, 1 to 99. Read at the start.
    maxErrorRateOfBloomFilter: Annotated[int, whole_number(1, 99, "of percent")] = 20
    # The time in ms for which filter data is kept after its consumer group has gone offline.
    filterDataCleanTimeSpan: LongMillis = 24 * 3600 * 1000
    filterSupportRetry: bool = False
    enablePropertyFilter: bool = False

    compressedRegister: bool = False

    forceRegister: bool = True

    # ms between two registrations with the name servers. The broker clamps it to 10,000 .. 60,000.
    registerNameServerPeriod: AnyInt = 1000 * 30

    # The age in ms from which a half message is checked with its producer.
    transactionTimeOut: LongMillis = important(6 * 1000)
    # The number of checks after which a half message is given up.
    transactionCheckMax: Natural = important(15)
    transactionCheckInterval: LongPeriod = important(60 * 1000)

    aclEnable: bool = important(False)

    storeReplyMessageEnable: bool = True

    enableDetailStat: bool = True

    autoDeleteUnusedStats: bool = False

    # Use a separate log folder for each broker of a host.
    isolateLogEnable: bool = False

    # Keys, separated by `;`, that UPDATE_BROKER_CONFIG may not change. Fixed.
    configBlackList: PlainText = "configBlackList;brokerConfigPath"

    # An extension of rmqha: log a pause of at least this many ms in which no thread could run, with the stacks of the
    # threads. 0 turns it off.
    stallWatchMs: Millis = field(default=0, metadata={"extension": True})
    # Extensions of rmqha. logLevel: the lowest level that is logged; it may change at run time. logFormat (TEXT or
    # JSON) and logTimeZone (LOCAL or UTC): the format of log lines. Both are fixed.
    logLevel: LogLevel = field(default=LogLevel.INFO, metadata={"extension": True})
    logFormat: LogFormat = field(default=LogFormat.TEXT, metadata={"extension": True})
    logTimeZone: LogTime = field(default=LogTime.LOCAL, metadata={"extension": True})

    # Extensions of rmqha. metricsPort: the port of /metrics, /healthz and /readyz, 0 for none. metricsHost: the address
    # that it listens on. metricsNames: the naming scheme of the metrics. All three are fixed.
    metricsPort: Port = field(default=0, metadata={"extension": True})
    metricsHost: Host = field(default="127.0.0.1", metadata={"extension": True})
    metricsNames: MetricsNames = field(default=MetricsNames.exporter, metadata={"extension": True})

    # Automatic failover: keys of 5.1.4. controllerAddr lists the controllers, `host:port` separated by `;`. Periods and
    # timeouts are in ms.
    enableControllerMode: bool = field(default=False, metadata={"extension": True})
    controllerAddr: ControllerAddresses = field(default="", metadata={"extension": True})
    fetchControllerAddrByDnsLookup: bool = field(default=False, metadata={"extension": True})
    brokerHeartbeatInterval: Period = field(default=1000, metadata={"extension": True})
    sendHeartbeatTimeoutMillis: Period = field(default=1000, metadata={"extension": True})
    syncBrokerMetadataPeriod: Period = field(default=5 * 1000, metadata={"extension": True})
    checkSyncStateSetPeriod: Period = field(default=5 * 1000, metadata={"extension": True})
    syncControllerMetadataPeriod: Period = field(default=10 * 1000, metadata={"extension": True})
    # Differs: the default of controllerHeartBeatTimeoutMills is 3 s instead of 10 s: a master that hangs is replaced
    # after this time
    controllerHeartBeatTimeoutMills: Period = field(default=3 * 1000, metadata={"extension": True})
    # Among otherwise equal replicas, the one with the lowest number is elected.
    brokerElectionPriority: Natural = field(default=(1 << 31) - 1, metadata={"extension": True})
    # An extension of rmqha: a master acknowledges nothing while no controller confirms that it is the master. Fixed.
    controllerLease: bool = field(default=True, metadata={"extension": True})
    # Extensions of rmqha, in controller mode. onRoleChange: a command line that is run, without a shell, for each
    # change of this broker's role. Fixed. onRoleChangeTimeoutMills: the command is killed after this many ms. A new
    # master waits for the command before it accepts messages, so the default is a third of the default lease, and no
    # longer than the pause of a handover.
    onRoleChange: CommandLine = field(default="", metadata={"extension": True})
    onRoleChangeTimeoutMills: Annotated[int, whole_number(1, 60_000, "of milliseconds")] = field(
        default=1000, metadata={"extension": True})
    # An extension of rmqha: the address, host:port, that this broker registers at the name servers while it is the
    # master, instead of its own. Fixed.
    masterAddress: SharedAddress = field(default="", metadata={"extension": True})
    # An extension of rmqha: in controller mode, a broker that is not the master passes requests for the master on.
    relayToMaster: bool = field(default=True, metadata={"extension": True})
