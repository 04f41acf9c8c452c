"""Settings of a broker: identity, thread pools, queues, switches."""
import os
from dataclasses import dataclass, field

from rmqha.common.config_field import Long, important
from rmqha.common.mix_all import (
    DEFAULT_TRACE_REGION_ID, MASTER_ID, NAMESRV_ADDR_ENV, ROCKETMQ_HOME_ENV, get_local_address,
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

    rocketmqHome: str | None = field(default_factory=lambda: os.environ.get(ROCKETMQ_HOME_ENV))
    # `;` separated host:port
    namesrvAddr: str | None = important(factory=lambda: os.environ.get(NAMESRV_ADDR_ENV))
    brokerIP1: str = important(factory=get_local_address)
    brokerIP2: str = field(default_factory=get_local_address)
    brokerName: str = important(factory=local_host_name)
    brokerClusterName: str = important("DefaultCluster")
    # 0 is the master, above 0 a slave
    brokerId: Long = important(MASTER_ID)
    # PermName bits: read 4, write 2
    brokerPermission: int = 6
    defaultTopicQueueNums: int = 8
    autoCreateTopicEnable: bool = important(True)

    clusterTopicEnable: bool = True

    brokerTopicEnable: bool = True
    autoCreateSubscriptionGroup: bool = important(True)
    messageStorePlugIn: str = ""
    msgTraceTopicName: str = important("RMQ_SYS_TRACE_TOPIC")
    traceTopicEnable: bool = important(False)

    sendMessageThreadPoolNums: int = min(_CORES, 4)
    putMessageFutureThreadPoolNums: int = min(_CORES, 4)
    pullMessageThreadPoolNums: int = 16 + _CORES * 2
    processReplyMessageThreadPoolNums: int = 16 + _CORES * 2
    queryMessageThreadPoolNums: int = 8 + _CORES

    adminBrokerThreadPoolNums: int = 16
    clientManageThreadPoolNums: int = 32
    consumerManageThreadPoolNums: int = 32
    heartbeatThreadPoolNums: int = min(32, _CORES)

    endTransactionThreadPoolNums: int = max(8 + _CORES * 2, min(_CORES, 4) * 4)

    flushConsumerOffsetInterval: int = 1000 * 5

    flushConsumerOffsetHistoryInterval: int = 1000 * 60

    rejectTransactionMessage: bool = important(False)
    fetchNamesrvAddrByAddressServer: bool = important(False)
    sendThreadPoolQueueCapacity: int = 10000
    putThreadPoolQueueCapacity: int = 10000
    pullThreadPoolQueueCapacity: int = 100000
    replyThreadPoolQueueCapacity: int = 10000
    queryThreadPoolQueueCapacity: int = 20000
    clientManagerThreadPoolQueueCapacity: int = 1000000
    consumerManagerThreadPoolQueueCapacity: int = 1000000
    heartbeatThreadPoolQueueCapacity: int = 50000
    endTransactionPoolQueueCapacity: int = 100000

    filterServerNums: int = 0

    longPollingEnable: bool = True

    shortPollingTimeMills: Long = 1000

    notifyConsumerIdsChangedEnable: bool = True

    highSpeedMode: bool = False

    commercialEnable: bool = True
    commercialTimerCount: int = 1
    commercialTransCount: int = 1
    commercialBigCount: int = 1
    commercialBaseCount: int = 1

    transferMsgByHeap: bool = True
    maxDelayTime: int = 40

    regionId: str = DEFAULT_TRACE_REGION_ID
    registerBrokerTimeoutMills: int = 6000

    slaveReadEnable: bool = False

    disableConsumeIfConsumerReadSlowly: bool = False
    # bytes
    consumerFallbehindThreshold: Long = 1024 * 1024 * 1024 * 16

    brokerFastFailureEnable: bool = True
    waitTimeMillsInSendQueue: Long = 200
    waitTimeMillsInPullQueue: Long = 5 * 1000
    waitTimeMillsInHeartbeatQueue: Long = 31 * 1000
    waitTimeMillsInTransactionQueue: Long = 3 * 1000

    startAcceptSendRequestTimeStamp: Long = 0

    traceOn: bool = True

    # filter bit maps: computed when a queue unit is written, saved to the extension file if that is on
    enableCalcFilterBitMap: bool = False
    expectConsumerNumUseFilter: int = 32
    # percent, 1 to 100
    maxErrorRateOfBloomFilter: int = 20
    # how long filter data outlives its consumer
    filterDataCleanTimeSpan: Long = 24 * 3600 * 1000
    filterSupportRetry: bool = False
    enablePropertyFilter: bool = False

    compressedRegister: bool = False

    forceRegister: bool = True

    # the broker clamps it to 10,000 .. 60,000
    registerNameServerPeriod: int = 1000 * 30

    # a half message is first checked when it is older than this
    transactionTimeOut: Long = important(6 * 1000)
    # checks until a half message is given up
    transactionCheckMax: int = important(15)
    transactionCheckInterval: Long = important(60 * 1000)

    aclEnable: bool = important(False)

    storeReplyMessageEnable: bool = True

    enableDetailStat: bool = True

    autoDeleteUnusedStats: bool = False

    # one log folder for each broker of a host
    isolateLogEnable: bool = False

    # `;` separated keys that UPDATE_BROKER_CONFIG may not touch
    configBlackList: str = "configBlackList;brokerConfigPath"
