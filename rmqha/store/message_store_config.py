"""The settings of the message store, including replication, and checks of a broker's configuration.

- `waits_for_promotion`: detects a configuration with which a broker starts without a role and accepts no messages until
  it gets one.
- `check_supported`, `check_role`, `check_sums`: check keys that must not be set together. They are used by the broker's
  start and by tools that check a file.
"""
import os
from collections.abc import Callable
from enum import Enum
from typing import Annotated, ClassVar

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import (
    INT_MAX,
    Allowed,
    AnyInt,
    AnyText,
    AutoSwitch,
    ByteCount,
    Bytes,
    DelayLevels,
    Hours,
    LongBytes,
    LongMillis,
    LongPeriod,
    MasterAddress,
    Millis,
    Natural,
    Pages,
    Path,
    Paths,
    Percent,
    Period,
    PlainText,
    Port,
    Positive,
    important,
    renamed,
    whole_number,
)
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.ha.peers import AllowedPeers
from rmqha.store.index.index_layout import file_size

# Java's system property rocketmq.broker.multiPathSplitter. Like all of them, it is an environment variable here.
MULTI_PATH_SPLITTER = os.environ.get("rocketmq_broker_multiPathSplitter", ",")  # noqa: SIM112, Java's name

_CQ_STORE_UNIT_SIZE = 20


class BrokerRole(Enum):
    """The role of a broker. The name is the config value.

    Java: org.apache.rocketmq.store.config.BrokerRole (4.9.8)
    """

    ASYNC_MASTER = 0
    SYNC_MASTER = 1
    SLAVE = 2


# Used for every message: reading the member from the class takes fifteen times as long.
ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole


class FlushDiskType(Enum):
    """The time of the answer to a send: after the fsync (SYNC_FLUSH) or before it. The name is the config value.

    Java: org.apache.rocketmq.store.config.FlushDiskType (4.9.8)
    """

    SYNC_FLUSH = 0
    ASYNC_FLUSH = 1


# Used for every message: reading the member from the class takes fifteen times as long.
SYNC_FLUSH, ASYNC_FLUSH = FlushDiskType


def _are_peers(text: str) -> bool:
    try:
        AllowedPeers(text)
    except ValueError:
        return False
    return True


PeerList = Annotated[str, Allowed('addresses and networks such as 10.0.0.0/8, separated by ","', _are_peers)]


@dataclass
class MessageStoreConfig:
    """The paths, sizes, intervals and replication of a store. Attributes are the config keys, in Java's order.

    Sizes are bytes and intervals milliseconds unless said otherwise.

    Java: org.apache.rocketmq.store.config.MessageStoreConfig (4.9.8)
    """

    # Differs: the spellings mapedFileSizeCommitLog and mapedFileSizeConsumeQueue of 4.0 to 4.4 still set the keys, with
    # a warning; 4.9.8 ignores them.
    key_aliases: ClassVar[dict[str, str]] = {
        "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
        "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    }

    storePathRootDir: Path = important(factory=lambda: os.path.join(os.path.expanduser("~"), "store"))
    # None: `commitlog` in the root, see get_store_path_commit_log. May be several paths, separated by ",".
    storePathCommitLog: Paths | None = important(None)
    # Differs: storePathDLedgerCommitLog has no effect, because DLedger is not supported.
    storePathDLedgerCommitLog: AnyText | None = important(None)
    readOnlyCommitLogStorePaths: PlainText | None = None

    mappedFileSizeCommitLog: Annotated[int, whole_number(256, INT_MAX, "of bytes")] = 1024 * 1024 * 1024
    # Read it with get_mapped_file_size_consume_queue.
    mappedFileSizeConsumeQueue: Bytes = 300000 * _CQ_STORE_UNIT_SIZE
    enableConsumeQueueExt: bool = False
    mappedFileSizeConsumeQueueExt: Annotated[int, whole_number(128, INT_MAX, "of bytes")] = 48 * 1024 * 1024
    # In bits. Has no effect, because a unit contains its own length. The original only sizes a first buffer with it.
    bitMapLengthConsumeQueueExt: AnyInt = 64

    flushIntervalCommitLog: Millis = important(500)
    # From the transient pool to the file.
    commitIntervalCommitLog: Millis = important(200)
    # Differs: useReentrantLockWhenPutMessage has no effect, because there is one kind of lock. Under the GIL a spinning
    # thread would only slow down the lock's holder.
    useReentrantLockWhenPutMessage: bool = True
    flushCommitLogTimed: bool = important(True)
    flushIntervalConsumeQueue: Millis = 1000
    cleanResourceInterval: Period = 10000
    # The pause between the deletion of two files.
    deleteCommitLogFilesInterval: Millis = 100
    deleteConsumeQueueFilesInterval: Millis = 100
    destroyMapedFileIntervalForcibly: Millis = 1000 * 120
    redeleteHangedFileInterval: Millis = 1000 * 120
    # Hours of the day, separated by `;`.
    deleteWhen: Hours = important("04")
    # In percent. Read it with get_disk_max_used_space_ratio.
    diskMaxUsedSpaceRatio: Percent = 75
    # In hours.
    fileReservedTime: Annotated[int, whole_number(0, INT_MAX, "of hours")] = important(72)
    # Has no effect, as in the original.
    putMsgIndexHightWater: AnyInt = 600000
    # Of the body alone.
    maxMessageSize: Bytes = 1024 * 1024 * 4
    checkCRCOnRecover: bool = True
    # In pages of 4 KiB.
    flushCommitLogLeastPages: Pages = 4
    commitCommitLogLeastPages: Pages = 4
    flushLeastPagesWhenWarmMapedFile: Pages = 1024 // 4 * 16
    flushConsumeQueueLeastPages: Pages = 2
    flushCommitLogThoroughInterval: Millis = 1000 * 10
    commitCommitLogThoroughInterval: Millis = 200
    flushConsumeQueueThoroughInterval: Millis = 1000 * 60
    maxTransferBytesOnMessageInMemory: ByteCount = important(1024 * 256)
    maxTransferCountOnMessageInMemory: Natural = important(32)
    maxTransferBytesOnMessageInDisk: ByteCount = important(1024 * 64)
    maxTransferCountOnMessageInDisk: Natural = important(8)
    # In percent of the physical memory.
    accessMessageInMemoryMaxRatio: Percent = important(40)
    messageIndexEnable: bool = important(True)
    maxHashSlotNum: Positive = 5000000
    maxIndexNum: Annotated[int, whole_number(2, INT_MAX)] = 5000000 * 4
    maxMsgsNumBatch: Positive = 64
    messageIndexSafe: bool = important(False)

    haListenPort: Port = 10912
    haSendHeartbeatInterval: Period = 1000 * 5
    haHousekeepingInterval: Period = 1000 * 20
    haTransferBatchSize: Bytes = 1024 * 32
    # None: the address from the name server.
    haMasterAddress: MasterAddress | None = important(None)
    haSlaveFallbehindMax: Bytes = 1024 * 1024 * 256
    brokerRole: BrokerRole = important(BrokerRole.ASYNC_MASTER)
    flushDiskType: FlushDiskType = important(FlushDiskType.ASYNC_FLUSH)
    syncFlushTimeout: Period = 1000 * 5
    slaveTimeout: Period = 3000
    messageDelayLevel: DelayLevels = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    flushDelayOffsetInterval: LongPeriod = 1000 * 10
    cleanFileForciblyEnable: bool = important(True)
    warmMapedFileEnable: bool = False
    offsetCheckInSlave: bool = False
    debugLockEnable: bool = False
    duplicationEnable: bool = False
    diskFallRecorded: bool = True
    osPageCacheBusyTimeOutMills: LongMillis = 1000
    defaultQueryMaxNum: Positive = 32

    # Read it with is_transient_store_pool_enable.
    transientStorePoolEnable: bool = important(False)
    transientStorePoolSize: Positive = 5
    fastFailIfNoBufferInStorePool: bool = False

    # Differs: a broker with enableDLegerCommitLog does not start. Without it the keys of DLedger have no effect, as in
    # the original.
    enableDLegerCommitLog: bool = False
    dLegerGroup: AnyText | None = None
    dLegerPeers: AnyText | None = None
    dLegerSelfId: AnyText | None = None

    # For DLedger too.
    preferredLeaderId: AnyText | None = None

    # For DLedger too.
    isEnableBatchPush: bool = renamed(False, key="enableBatchPush")

    enableScheduleMessageStats: bool = True

    enableLmq: bool = False
    enableMultiDispatch: bool = False
    maxLmqConsumeQueueNum: Natural = 20000

    enableScheduleAsyncDeliver: bool = False
    scheduleAsyncDeliverMaxPendingLimit: Positive = 2000
    scheduleAsyncDeliverMaxResendNum2Blocked: Natural = 3

    # Differs: 4.9.8 lacks preallocateMappedFile and the keys after it.

    # True: the blocks of a new file are allocated before it is used, so that a full disk causes an error, not a signal.
    preallocateMappedFile: bool = field(default=True, metadata={"extension": True})
    # From 5.1.4. False: the kernel does not read ahead in the commit log.
    dataReadAheadEnable: bool = field(default=True, metadata={"extension": True})
    # True: consume queues and index follow the flushed end of the commit log, not its written end.
    dispatchBehindFlush: bool = field(default=False, metadata={"extension": True})

    # Replication: keys of 5.1.4.
    # The number of bytes by which an in-sync slave may be behind.
    haMaxGapNotInSync: ByteCount = field(default=1024 * 1024 * 256, metadata={"extension": True})
    # The number of replicas, and how many must have a message, the master included. 1: the rule of 4.9, any one slave.
    totalReplicas: Positive = field(default=1, metadata={"extension": True})
    inSyncReplicas: Positive = field(default=1, metadata={"extension": True})
    minInSyncReplicas: Positive = field(default=1, metadata={"extension": True})
    # True: all slaves that are in sync must have a message.
    allAckInSyncStateSet: bool = field(default=False, metadata={"extension": True})
    # For a slave of an AutoSwitchHAService: an empty one starts at the master's last file (syncFromLastFile), and never
    # joins the in-sync slaves (asyncLearner).
    syncFromLastFile: bool = field(default=False, metadata={"extension": True})
    asyncLearner: bool = field(default=False, metadata={"extension": True})
    # Ms after which a slave that has not caught up leaves the in-sync slaves.
    haMaxTimeSlaveNotCatchup: Period = field(default=1000 * 15, metadata={"extension": True})
    # None: epochFileCheckpoint in storePathRootDir.
    storePathEpochFile: Path | None = field(default=None, metadata={"extension": True})
    # None: brokerIdentity in storePathRootDir.
    storePathBrokerIdentity: Path | None = field(default=None, metadata={"extension": True})
    # True: all in-sync replicas must have a message, but at least minInSyncReplicas and at most inSyncReplicas.
    enableAutoInSyncReplicas: bool = field(default=False, metadata={"extension": True})
    haFlowControlEnable: bool = field(default=False, metadata={"extension": True})
    # To one slave, with haFlowControlEnable.
    maxHaTransferByteInSecond: LongBytes = field(default=100 * 1024 * 1024, metadata={"extension": True})

    # Replication: keys of rmqha's own.
    # Slave: an empty one copies the master's log from its first file. Master: let empty slaves do so.
    haSyncFromFirstFile: bool = field(default=False, metadata={"extension": True})
    # The addresses and networks (10.0.0.0/8) that may connect, separated by ",". None: all.
    haAllowedPeers: PeerList | None = field(default=None, metadata={"extension": True})
    # Epochs, truncation, and roles that an admin command changes (AutoSwitchHAService; in 5.1.4 enableControllerMode).
    enableAutoSwitchHA: bool = field(default=False, metadata={"extension": True})
    # The slave identifies itself, and compares the end of its log with the master's, before any log is sent. auto: if
    # the master's main port shows that it is an rmqha broker; true: ask each master on its HA port; false: neither ask
    # nor answer.
    haHandshakeEnable: AutoSwitch = field(default="auto", metadata={"extension": True})
    # Slave: cut off the bytes that the master does not have, and keep them in a file of `diverged` in storePathRootDir.
    haTruncateDivergedTail: bool = field(default=False, metadata={"extension": True})
    # Slave: report only bytes that are on the disk.
    haSlaveAckAfterFlush: bool = field(default=False, metadata={"extension": True})
    # Slave: append, and so acknowledge, only whole records, after checking the body's CRC, the offset and the lengths.
    haVerifyRecords: bool = field(default=True, metadata={"extension": True})
    # Slave: compare the log with the master's at run time, by CRC.
    haScrubEnable: bool = field(default=True, metadata={"extension": True})
    # The limit while messages arrive; when none have arrived for a while, 16 times as many.
    haScrubBytesPerSecond: LongBytes = field(default=4 * 1024 * 1024, metadata={"extension": True})
    # The number of ms in which each byte of the log is compared once. Beyond that `check ha` and `doctor` warn.
    haScrubPromise: Period = field(default=7 * 24 * 3600 * 1000, metadata={"extension": True})

    def get_mapped_file_size_consume_queue(self) -> int:
        """Return the size of a consume queue file in bytes: the configured size, rounded up to whole units of 20."""
        units = -(-self.mappedFileSizeConsumeQueue // _CQ_STORE_UNIT_SIZE)
        return units * _CQ_STORE_UNIT_SIZE

    def get_store_path_commit_log(self) -> str:
        """Return the folder of the commit log (or several, separated by MULTI_PATH_SPLITTER)."""
        if self.storePathCommitLog is None:
            return os.path.join(self.storePathRootDir, "commitlog")
        return self.storePathCommitLog

    def get_store_path_epoch_file(self) -> str:
        """Return the path of the epoch file of an AutoSwitchHAService."""
        return self.storePathEpochFile or os.path.join(self.storePathRootDir, "epochFileCheckpoint")

    def get_disk_max_used_space_ratio(self) -> int:
        """Return the disk usage in percent above which old files are deleted: the configured one, within 10 to 95."""
        return min(max(self.diskMaxUsedSpaceRatio, 10), 95)

    def is_transient_store_pool_enable(self) -> bool:
        """Return whether the pool is configured and usable: ASYNC_FLUSH, and a broker that is and stays a master."""
        return (self.transientStorePoolEnable and self.flushDiskType is FlushDiskType.ASYNC_FLUSH
                and self.brokerRole is not BrokerRole.SLAVE and not self.enableAutoSwitchHA)


AUTO_SWITCH = "enableAutoSwitchHA"


def has_epochs(store_config: MessageStoreConfig) -> bool:
    """Return whether the store has epochs, because it was used with enableAutoSwitchHA."""
    try:
        with open(store_config.get_store_path_epoch_file(), "rb") as file:
            return file.readline(16).strip() not in (b"", b"0")
    except OSError:
        # The file does not exist or is not readable for this account. The broker's start reports more.
        return False


def waits_for_promotion(broker_config: BrokerConfig, store_config: MessageStoreConfig) -> str | None:
    """Return why a broker that is configured as a master waits for its promotion, and what to do.

    Return None if it does not wait.
    """
    if not store_config.enableAutoSwitchHA or broker_config.enableControllerMode \
            or store_config.brokerRole is BrokerRole.SLAVE:
        return None
    what = (f"true, and the store at {store_config.storePathRootDir} was in use with it: another broker may be the "
            "master by now, so this one starts without a role" if has_epochs(store_config) else
            "true without a controller: at every start except the first the broker waits for a role")
    return (f"{what}, and accepts no messages until `rmqha ha promote -b HOST:PORT` makes it the master; if its role "
            "never changes, remove the key: then it is a "
            f"{store_config.brokerRole.name}")


MAX_PORT = 0xFFFF
FAST_PORT_DISTANCE = 2

BadKey = Callable[[str, str], object]
"""A function that is called with a key and the fault of its value. It may raise an exception."""


def check_supported(broker_config: BrokerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """Report keys of the original's features that are not supported here."""
    # Differs: a broker that is configured to use DLedger or a store plug-in does not start; running without them would
    # be worse.
    unsupported = ((store_config, "enableDLegerCommitLog", "DLedger is"),
                   (broker_config, "messageStorePlugIn", "store plug-ins are"))
    for config, key, what in unsupported:
        if getattr(config, key):
            bad_key(key, f"{what} not supported")
    key = "enableControllerMode" if broker_config.enableControllerMode else "enableAutoSwitchHA"
    if (store_config.enableAutoSwitchHA or broker_config.enableControllerMode) \
            and store_config.transientStorePoolEnable:
        # Differs: transientStorePoolEnable is refused with a role that may change; 5.1.4 starts with both.
        bad_key("transientStorePoolEnable", f"with {key} there are no write buffers, because a role change may "
                "truncate the log, and a buffer would write the truncated bytes again; remove one of the two keys")


def check_role(broker_config: BrokerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """Set a master's id to 0, and check that a slave's is greater. With a controller, the controller decides both."""
    if broker_config.enableControllerMode:
        if not broker_config.controllerAddr.strip(" ;"):
            # Differs: enableControllerMode needs controllerAddr; 5.1.4 starts without a controller, and stays without a
            # role forever.
            bad_key("controllerAddr", "enableControllerMode needs the controllers' addresses: host:port, several "
                    "separated by ;")
        return
    if broker_config.onRoleChange.strip():
        bad_key("onRoleChange", "needs enableControllerMode=true: without a controller, the role does not change")
    if store_config.brokerRole is not BrokerRole.SLAVE:
        broker_config.brokerId = mix_all.MASTER_ID
    elif broker_config.brokerId <= 0:
        bad_key("brokerId", f"Slave's brokerId must be > 0, not {broker_config.brokerId}")


def check_sums(server_config: ServerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """Check values that must fit together. The original fails later, or not at all."""
    port = server_config.listenPort
    if port and not FAST_PORT_DISTANCE < port < MAX_PORT:
        bad_key("listenPort", f"expected 0, or a port from {FAST_PORT_DISTANCE + 1} to {MAX_PORT - 1}, not {port}: the "
                f"fast port is {FAST_PORT_DISTANCE} lower, and the replication port 1 higher")
    size = file_size(store_config.maxHashSlotNum, store_config.maxIndexNum)
    if size > INT_MAX:
        bad_key("maxIndexNum", f"{store_config.maxIndexNum} keys with maxHashSlotNum={store_config.maxHashSlotNum} "
                f"make an index file of {size} bytes; the maximum is {INT_MAX}")
    low, high = server_config.writeBufferLowWaterMark, server_config.writeBufferHighWaterMark
    if 0 < high < low:
        bad_key("writeBufferLowWaterMark", f"{low} is above writeBufferHighWaterMark={high}")
