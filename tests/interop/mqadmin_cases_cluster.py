"""Cases of mqadmin commands in the packages topic, broker, cluster, namesrv, stats, offset and export."""
import re

from tests.support.mqadmin import Command, case

# rmqha's additions to 4.9: settings, most of them from 5.x, and a broker's counters of replication.
OWN_SETTINGS = {
    "allAckInSyncStateSet", "asyncLearner", "brokerElectionPriority", "brokerHeartbeatInterval",
    "checkSyncStateSetPeriod", "configBlackList", "controllerAddr", "controllerHeartBeatTimeoutMills",
    "controllerLease", "enableControllerInNamesrv", "enableControllerMode", "fetchControllerAddrByDnsLookup",
    "sendHeartbeatTimeoutMillis", "syncBrokerMetadataPeriod", "syncControllerMetadataPeriod",
    "dataReadAheadEnable", "dispatchBehindFlush",
    "enableAutoInSyncReplicas", "enableAutoSwitchHA", "haFlowControlEnable", "haHandshakeEnable", "haMaxGapNotInSync",
    "haMaxTimeSlaveNotCatchup", "haScrubBytesPerSecond", "haScrubEnable", "haScrubPromise", "haSlaveAckAfterFlush",
    "haSyncFromFirstFile", "haTruncateDivergedTail", "haVerifyRecords",
    "inSyncReplicas", "logFormat", "logLevel", "logTimeZone", "masterAddress", "maxHaTransferByteInSecond",
    "metricsHost",
    "metricsNames", "metricsPort", "minInSyncReplicas", "onRoleChange", "onRoleChangeTimeoutMills",
    "preallocateMappedFile", "relayToMaster", "stallWatchMs", "syncFromLastFile", "totalReplicas",
}
# The prefix of their names.
OWN_COUNTERS = "ha"
# The servers' paths, and values that change all the time. Java's earliestMessageTimeStamp, and with it the hours of
# clusterList, is -1 until its log holds twice the size of the largest message.
PLACES = {"rocketmqHome", "configStorePath", "kvConfigPath", "storePathRootDir", "storePathCommitLog", "listenPort",
          "haListenPort"}
OF_A_MOMENT = {
    "brokerVersion", "brokerVersionDesc", "commitLogDirCapacity", "commitLogDiskRatio", "consumeQueueDiskRatio",
    "earliestMessageTimeStamp", "getMessageEntireTimeMax", "putMessageEntireTimeMax", "remainHowManyDataToFlush",
    "runtime", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "putTps",
    "pageCacheLockTimeMills", "putLatency99", "putLatency999",
    "putMessageDistributeTime", "startAcceptSendRequestTimeStamp",
}
VERSION = (r"V4_9_[78]", "V4_9_x")
METRICS = (r'("\w*(?:[nN]ormalInTps|[nN]ormalOutTps|DiskRatio|messageAverageSize)"): [^,\n]*', r"\1: <moment>")
# The rows of both groups have the last minute's numbers, and later those of ten whole minutes. A tick may fall between
# the two rows.
_COUNTED = {"until": r"(?s)(?: {13}12 {13}12\b.*){2}", "until_ms": 720_000}
RATES = (r"\d+\.\d\d(?= )", "<rate>")


def settings(text: str) -> str:
    """Return the lines `key = value` without rmqha's own keys and without the values that are paths."""
    lines = [line for line in text.splitlines() if line.partition(" ")[0] not in OWN_SETTINGS]
    return "\n".join(f"{line.partition('=')[0]}= <place>" if line.partition(" ")[0] in PLACES else line
                     for line in lines)


def load(text: str) -> str:
    """Return the lines of clusterList with equal widths, without the numbers that vary: rates, waits, hours, space."""
    return re.sub(r"(?m) +\d+\.\d\d\(\d+,\d+ms\)| +\d+ +[\d.]+ \d\.\d{4}$", lambda found: "<load>".rjust(
        len(found[0]) if "ms" in found[0] else 0), text)


def runtime(text: str) -> str:
    """Return the lines `[address] key : value` without rmqha's own keys and without the values that vary."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"commitLogDiskRatio_\S+:.*", "commitLogDiskRatio_<place>: <moment>", line)
        key = (line.partition(":")[0].split() or [""])[-1]
        if not key.startswith(OWN_COUNTERS):
            lines.append(f"{line.partition(':')[0]}: <moment>" if key in OF_A_MOMENT else line)
    return "\n".join(lines)


ROUTE = "topicRoute -n {n} -t Made{own}"
# Java's mqadmin prints this error and continues; rmqha's only continues.
NO_ORDER_CONF_YET = (r"org.apache.*CODE: 22 .*\n.*\n", "")
CASES = [
    case(
        "commandLines",
        "topicClusterList -n{n} -tOrders",
        "topicClusterList --namesrvAddr={n} --topic=Orders",
        "topicClusterList -namesrvAddr {n} -topic Orders",
        "TOPICclusterLIST some -n {n} words -t Orders beside",
        "topicClusterList -n {n} -t '\"Orders\"'",
        "topicClusterList -n {n} -t ' Orders '",
        "topicClusterList -n {n} -t Orders -t Empty",
        "topicRoute -n {n} -lt Orders",
        "topicRoute -n {n} -ltOrders",
    ),
    case(
        "updateTopic",
        "updateTopic -n {n} -b {b} -t Made{own} -r 3 -w 2 -p 6",
        Command(ROUTE, until='"writeQueueNums":2'),
        "updateTopic -n {n} -c {c} -t Made{own} -u true -s true",
        Command(ROUTE, until='"topicSysFlag":3'),
        "topicRoute -n {n} -t Made{own} -l",
        Command("updateTopic -n {n} -b {b} -t Made{own} -o true -w 5", masks=(NO_ORDER_CONF_YET,)),
        "updateOrderConf -n {n} -t Made{own} -m get",
        "updateTopic -n {n} -c {c} -t Made{own} -o true -w 6",
        "updateOrderConf -n {n} -t Made{own} -m get",
        Command(ROUTE, until='"writeQueueNums":6'),
        "updateTopic -n {n} -c nowhere -t Made{own}",
        "updateTopic -n {n} -b {b} -t Made{own} -r x",
        "updateTopic -n {n} -b {b} -t no/topic",
        "updateTopic -n {n} -b {b} -t TBW102",
    ),
    case(
        "updateTopicPerm",
        "updateTopic -n {n} -b {b} -t Perm{own}",
        Command("topicRoute -n {n} -t Perm{own}", until='"perm":6'),
        "updateTopicPerm -n {n} -b {b} -t Perm{own} -p 4",
        Command("topicRoute -n {n} -t Perm{own}", until='"perm":4'),
        "updateTopicPerm -n {n} -b {b} -t Perm{own} -p 4",
        "updateTopicPerm -n {n} -b 127.0.0.1:1 -t Perm{own} -p 4",
        "updateTopicPerm -n {n} -c {c} -t Perm{own} -p 2",
        Command("topicRoute -n {n} -t Perm{own}", until='"perm":2'),
        "updateTopicPerm -n {n} -t Perm{own} -p 2",
        "updateTopicPerm -n {n} -c {c} -t Nowhere{own} -p 2",
    ),
    case(
        "deleteTopic",
        "updateTopic -n {n} -b {b} -t Gone{own}",
        Command("topicRoute -n {n} -t Gone{own}", until='"perm":6'),
        "deleteTopic -n {n} -c {c} -t Gone{own}",
        "topicRoute -n {n} -t Gone{own}",
        "topicStatus -n {n} -t Gone{own}",
        "deleteTopic -n {n} -c {c} -t Gone{own}",
        "deleteTopic -n {n} -c nowhere -t Gone{own}",
        "deleteTopic -n {n} -c {c} -t TBW102",
    ),
    case(
        "topics",
        "topicStatus -n {n} -t Orders",
        "topicStatus -n {n} -t Empty",
        "topicStatus -n {n} -t Nowhere",
        "topicClusterList -n {n} -t Orders",
        "topicClusterList -n {n} -t Nowhere",
        "topicRoute -n {n} -t Orders",
        Command("topicList -n {n}", sort=True),
        Command("topicList -n {n} -c", sort=True),
    ),
    case(
        "updateOrderConf",
        "updateOrderConf -n {n} -t Order{own} -m put -v broker-a:4",
        "updateOrderConf -n {n} -t Order{own} -m get",
        "updateOrderConf -n {n} -t Order{own} -m delete",
        "updateOrderConf -n {n} -t Order{own} -m get",
        "updateOrderConf -n {n} -t Order{own} -m put",
        "updateOrderConf -n {n} -t Order{own} -m other",
    ),
    case(
        "kvConfig",
        "updateKvConfig -n {n} -s space -k key{own} -v value",
        "updateOrderConf -n {n} -t key{own} -m get",
        "deleteKvConfig -n {n} -s space -k key{own}",
        "deleteKvConfig -n {n} -s space -k key{own}",
    ),
    case(
        "writePerm",
        # A deletion in an earlier case raises the data version without registering it. The registration within the next
        # 30 s would then restore the wiped permission. updateTopic registers the version now.
        "updateTopic -n {n} -b {b} -t Empty -r 1 -w 1",
        "wipeWritePerm -n {n} -b {name}",
        "topicRoute -n {n} -t Orders",
        "addWritePerm -n {n} -b {name}",
        "topicRoute -n {n} -t Orders",
        "wipeWritePerm -n {n} -b nowhere",
        "addWritePerm -n {n} -b nowhere",
    ),
    case(
        "namesrvConfig",
        Command("getNamesrvConfig -n {n}", sort=True, look=settings),
        "updateNamesrvConfig -n {n} -k clusterTest -v true",
        Command("getNamesrvConfig -n {n}", sort=True, look=settings),
        "updateNamesrvConfig -n {n} -k clusterTest -v false",
        "updateNamesrvConfig -n {n} -k unknownKey -v 1",
    ),
    case(
        "brokerConfig",
        Command("getBrokerConfig -n {n} -b {b}", sort=True, look=settings),
        Command("getBrokerConfig -n {n} -c {c}", sort=True, look=settings),
        "getBrokerConfig -n {n} -c nowhere",
        "getBrokerConfig -n {n}",
        "getBrokerConfig -n {n} -b 127.0.0.1:1",
        "updateBrokerConfig -n {n} -b {b} -k flushDelayOffsetInterval -v 9000",
        "updateBrokerConfig -n {n} -c {c} -k flushDelayOffsetInterval -v 10000",
        "updateBrokerConfig -n {n} -c nowhere -k flushDelayOffsetInterval -v 10000",
        "updateBrokerConfig -n {n} -k flushDelayOffsetInterval -v 10000",
    ),
    case(
        "refusals",
        "updateBrokerConfig -n {n} -b {b} -k noSuchKey -v 1",
        "updateBrokerConfig -n {n} -b 127.0.0.1:1 -k flushDelayOffsetInterval -v 1",
        Command("getBrokerConfig -n {n} -b {b}", sort=True, look=settings),
        "updateTopic -n {n} -b {b} -t Odd{own} -p 9",
        "updateTopic -n {n} -b {b} -t Odd{own} -r 0 -w 0",
        "updateTopic -n {n} -b {b} -t ''",
        "updateTopic -n {n} -b {b} -t " + "x" * 128,
        "updateTopic -n {n} -b {b} -t {c}",
        "updateTopic -n {n} -b {b} -t RMQ_SYS_TRANS_HALF_TOPIC",
        "updateTopic -n {n} -b 127.0.0.1:1 -t Odd{own}",
        Command("topicRoute -n {n} -t Odd{own}", until="broker"),
        "topicStatus -n {n} -t Odd{own}",
        "topicStatus -n {n} -t SCHEDULE_TOPIC_XXXX",
        "topicStatus -n {n} -t %RETRY%readers",
        "topicRoute -n {n} -t %RETRY%readers",
        "topicRoute -n {n} -t ''",
        "deleteTopic -n {n} -c {c} -t Odd{own}",
        "deleteTopic -n {n} -c {c} -t ''",
        "updateKvConfig -n {n} -s '' -k '' -v ''",
        "wipeWritePerm -n {n} -b ''",
        "resetOffsetByTime -n {n} -g '' -t Orders -s 0",
        "resetOffsetByTime -n {n} -g nobody -t '' -s 0",
        "cloneGroupOffset -n {n} -s '' -d x -t Orders",
        "brokerConsumeStats -n {n} -b 127.0.0.1:1",
        "brokerConsumeStats -n {n} -b {b} -l x",
        "statsAll -n {n} -t Nowhere",
        "exportMetrics -n 127.0.0.1:1 -c {c} -f {dir}",
        "clusterList -n 127.0.0.1:1",
    ),
    case(
        "brokerStatus",
        Command("brokerStatus -n {n} -b {b}", look=runtime),
        Command("brokerStatus -n {n} -c {c}", look=runtime),
        "brokerStatus -n {n} -c nowhere",
        "brokerStatus -n {n}",
        "brokerStatus -n {n} -b 127.0.0.1:1",
    ),
    case(
        "brokerConsumeStats",
        *[Command(f"brokerConsumeStats -n {{n}} -b {{b}}{options}", sort=True)  # in a hash table's order
          for options in ("", " -l 1", " -o true -t 3000")],
    ),
    case(
        "cleaning",
        "cleanExpiredCQ -n {n} -b {b}",
        "cleanExpiredCQ -n {n} -c {c}",
        "cleanExpiredCQ -n {n}",
        "cleanExpiredCQ -n {n} -c nowhere",
        "cleanUnusedTopic -n {n} -b {b}",
        "cleanUnusedTopic -n {n} -c {c}",
        "cleanUnusedTopic -n {n}",
        "deleteExpiredCommitLog -n {n} -b {b}",
        "deleteExpiredCommitLog -n {n} -c {c}",
        "deleteExpiredCommitLog -n {n}",
        "deleteExpiredCommitLog -n {n} -b 127.0.0.1:1",
    ),
    case(
        "clusterList",
        Command("clusterList -n {n}", masks=(VERSION,), look=load),
        "clusterList -n {n} -m",
    ),
    case(
        "statsAll",
        Command("statsAll -n {n} -t Orders", shown=False, **_COUNTED),
        Command("statsAll -n {n} -t Orders", sort=True, masks=(RATES,), **_COUNTED),
        Command("statsAll -n {n}", sort=True, masks=(RATES,), **_COUNTED),
        Command("statsAll -n {n} -a", sort=True, masks=(RATES,), **_COUNTED),
    ),
    case(
        "resetOffsets",
        Command("updateSubGroup -n {n} -b {b} -g left{own}", shown=False),
        "cloneGroupOffset -n {n} -s readers -d left{own} -t Orders",
        Command("resetOffsetByTime -n {n} -g left{own} -t Orders -s 0 -f false", sort=True),
        Command("resetOffsetByTime -n {n} -g left{own} -t Orders -s now -f false", sort=True),
        Command("skipAccumulatedMessage -n {n} -g left{own} -t Orders -f false", sort=True),
        Command("skipAccumulatedMessage -n {n} -g left{own} -t Orders", sort=True),
        Command("resetOffsetByTime -n {n} -g left{own} -t Orders -s 2020-01-01#00:00:00:000", sort=True),
        Command("resetOffsetByTime -n {n} -g left{own} -t Orders -s now", sort=True),
        Command("resetOffsetByTime -n {n} -g idle{own} -t Orders -s 0", sort=True),
        Command("resetOffsetByTime -n {n} -g idle{own} -t Orders -s now -f false", sort=True),
        Command("skipAccumulatedMessage -n {n} -g idle{own} -t Orders", sort=True),
        Command("resetOffsetByTime -n {n} -g idle{own} -t Orders -s 2020-01-01#00:00:00:000 -f false", sort=True),
        "resetOffsetByTime -n {n} -g idle{own} -t Nowhere -s 0",
        "skipAccumulatedMessage -n {n} -g idle{own} -t Nowhere",
        Command("resetOffsetByTime -n {n} -g runners -t Orders -s 0", sort=True),
        Command("skipAccumulatedMessage -n {n} -g runners -t Orders", sort=True),
    ),
    case(
        "cloneGroupOffset",
        "cloneGroupOffset -n {n} -s readers -d copy{own} -t Orders",
        "cloneGroupOffset -n {n} -s nobody -d copy{own} -t Orders",
        "cloneGroupOffset -n {n} -s readers -d copy{own} -t Nowhere",
    ),
    case(
        "exports",
        Command("exportConfigs -n {n} -c {c} -f {dir}", file="configs.json"),
        Command("exportMetadata -n {n} -c {c} -f {dir}", file="metadata.json"),
        Command("exportMetadata -n {n} -c {c} -t -f {dir}", file="topic.json"),
        Command("exportMetadata -n {n} -c {c} -g -f {dir}", file="subscriptionGroup.json"),
        Command("exportMetadata -n {n} -b {b} -t -s -f {dir}", file="topic.json"),
        Command("exportMetadata -n {n} -b {b} -g -f {dir}", file="subscriptionGroup.json"),
        Command("exportMetrics -n {n} -c {c} -f {dir}", file="metrics.json", masks=(VERSION, METRICS)),
        "exportMetadata -n {n}",
        "exportConfigs -n {n} -c nowhere -f {dir}",
    ),
]

OF_MANY_BROKERS = [
    case(
        "lists",
        Command("clusterList -n {n}", sort=True, masks=(VERSION,), look=load),
        Command("clusterList -n {n} -m", sort=True),
        Command("getBrokerConfig -n {n} -c {c}", sort=True, look=settings),
        Command("brokerStatus -n {n} -c {c}", sort=True, look=runtime),
        "topicRoute -n {n} -t Orders -l",
        "topicStatus -n {n} -t Orders",
        Command("topicList -n {n} -c", sort=True),
        "topicClusterList -n {n} -t Orders",
        Command("brokerConsumeStats -n {n} -b {b}", sort=True),
    ),
    case(
        "updates",
        Command("updateTopic -n {n} -c {c} -t Made{own} -r 3 -w 2", sort=True),
        Command("topicRoute -n {n} -t Made{own} -l", until="Total:                                        2 "),
        Command("updateTopic -n {n} -b {b} -t Made{own} -w 5 -o true", masks=(NO_ORDER_CONF_YET,)),
        "updateOrderConf -n {n} -t Made{own} -m get",
        "updateTopic -n {n} -b {b2} -t Made{own} -w 4 -o true",
        "updateOrderConf -n {n} -t Made{own} -m get",
        Command("updateTopic -n {n} -c {c} -t Made{own} -o true", sort=True),
        "updateOrderConf -n {n} -t Made{own} -m get",
        Command("updateTopicPerm -n {n} -c {c} -t Made{own} -p 4", sort=True),
        Command("topicRoute -n {n} -t Made{own} -l", until=" 4    \n.* 4    \n-"),
        "updateTopicPerm -n {n} -b {b2} -t Made{own} -p 6",
        "updateTopicPerm -n {n} -b {b3} -t Made{own} -p 6",
        "wipeWritePerm -n {n} -b broker-b",
        "topicRoute -n {n} -t Orders -l",
        "addWritePerm -n {n} -b broker-b",
        "deleteTopic -n {n} -c {c} -t Made{own}",
        "topicRoute -n {n} -t Made{own}",
        Command("updateBrokerConfig -n {n} -c {c} -k flushDelayOffsetInterval -v 9000", sort=True),
        "cleanExpiredCQ -n {n} -c {c}",
        "cleanUnusedTopic -n {n} -c {c}",
        "deleteExpiredCommitLog -n {n}",
    ),
    case(
        "offsets",
        Command("updateSubGroup -n {n} -c {c} -g left{own}", shown=False),
        "cloneGroupOffset -n {n} -s readers -d left{own} -t Orders",
        Command("resetOffsetByTime -n {n} -g left{own} -t Orders -s 0", sort=True),
        Command("skipAccumulatedMessage -n {n} -g left{own} -t Orders", sort=True),
        Command("resetOffsetByTime -n {n} -g idle{own} -t Orders -s 0", sort=True),
        Command("skipAccumulatedMessage -n {n} -g idle{own} -t Orders", sort=True),
        Command("resetOffsetByTime -n {n} -g runners -t Orders -s now", sort=True),
        Command("resetOffsetByTime -n {n} -g runners -t Orders -s 0 -c", sort=True),
        "cloneGroupOffset -n {n} -s readers -d copy{own} -t Orders",
    ),
    case(
        "exports",
        Command("exportConfigs -n {n} -c {c} -f {dir}", file="configs.json"),
        Command("exportMetadata -n {n} -c {c} -f {dir}", file="metadata.json"),
        Command("exportMetadata -n {n} -c {c} -t -s -f {dir}", file="topic.json"),
        Command("exportMetadata -n {n} -c {c} -g -f {dir}", file="subscriptionGroup.json"),
        Command("exportMetrics -n {n} -c {c} -f {dir}", file="metrics.json", masks=(VERSION, METRICS)),
    ),
]

# Java prints an account as it prints any object without a toString() of its own.
ACCOUNT = (r"org.apache.rocketmq.common.PlainAccessConfig@\w+|PlainAccessConfig \[.*\]", "<account>")
# The path of the file is different in each cluster, and its counter grows with every change.
FILE = (r"\S+(/conf/plain_acl.yml  )\d+ *", r"<home>\1<n> ")
RAISED = (r"(AclException: .*), [\w.]+\(\w+\.\w+:\d+\)", r"\1, <place>")
OF_ACCOUNTS = [
    case(
        "accounts",
        Command("updateAclConfig -n {n} -b {b} -a account{own} -s secret12 -t Orders=PUB,Empty=SUB -g readers=SUB "
                "-i DENY -u SUB -w 127.0.0.7 -m true", masks=(ACCOUNT,)),
        Command("updateAclConfig -n {n} -c {c} -a account{own} -s secret123", masks=(ACCOUNT,)),
        Command("updateAclConfig -n {n} -c nowhere -a account{own} -s secret123", masks=(ACCOUNT,)),
        "updateAclConfig -n {n} -b {b} -a account{own} -s short",
        "updateAclConfig -n {n} -b {b} -a no -s secret12",
        Command("clusterAclConfigVersion -n {n} -b {b}", masks=(FILE,)),
        Command("clusterAclConfigVersion -n {n} -c {c}", masks=(FILE,)),
        "deleteAclConfig -n {n} -b {b} -a account{own}",
        "deleteAccessConfig -n {n} -c {c} -a account{own}",
        Command("updateAclConfig -n {n} -c {c} -a account{own} -s secret123 -g readers=SUB", masks=(ACCOUNT,)),
        "deleteAclConfig -n {n} -c {c} -a account{own}",
        "deleteAclConfig -n {n} -c {c} -a account{own}",
        "deleteAclConfig -n {n} -c nowhere -a account{own}",
        "updateGlobalWhiteAddr -n {n} -b {b} -g 127.0.0.9,10.1.2.3",
        "updateGlobalWhiteAddr -n {n} -c {c} -g 127.0.0.9",
        "updateGlobalWhiteAddr -n {n} -c nowhere -g 127.0.0.9",
        "clusterAclConfigVersion -n {n} -c nowhere",
    ),
    case(
        "signed",
        "topicStatus -n {n} -t SELF_TEST_TOPIC",
        "updateTopic -n {n} -b {b} -t Signed{own}",
        "deleteTopic -n {n} -c {c} -t Signed{own}",
        "brokerConsumeStats -n {n} -b {b}",
        Command("sendMessage -n {n} -t Orders -p body -b {name} -i 0", masks=((r"\b[0-9A-F]{32,56}\b", "<id>"),)),
    ),
]
OF_STRANGERS = [
    case(
        "unsigned",
        Command("topicStatus -n {n} -t Orders", masks=(RAISED,)),
        Command("updateTopic -n {n} -b {b} -t Signed{own}", masks=(RAISED,)),
        Command("clusterAclConfigVersion -n {n} -b {b}", masks=(RAISED,)),
    ),
]
