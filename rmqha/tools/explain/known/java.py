"""Lines of Java's servers and clients (RocketMQ 4.9) alone. Those that rmqha logs too are in the other tables."""
from rmqha.tools.explain.entry import Table

_SEND = "how-to/troubleshooting.md#sending"
_CONSUME = "how-to/troubleshooting.md#consuming"
_START = "how-to/troubleshooting.md#start-and-stop"
_DISK = "how-to/troubleshooting.md#disk"
T = Table("java", "how-to/troubleshooting.md")

# ---- servers

T.line("scheduled-task", "schedule record error", "schedule persist consumerOffset error",
       "schedule persist consumer filter error", "protectBroker error", "printWaterMark error",
       "schedule dispatchBehindBytes error", "ScheduledTask {task} exception", "schedule printMasterAndSlaveDiff error",
       "ScheduledTask SlaveSynchronize syncAll error", "Error occurred when scan not active client channels",
       "scheduleAtFixedRate {task} exception", "scanResponseTable exception", "scan RequestFutureTable exception",
       "registerBrokerAll Exception", "Persist file Exception, {file}",
       means="A periodic task of a Java server or client failed in this round. It runs again at its next time.",
       do="Look at the exception below the line. A file that cannot be written means a full disk or missing "
          "permission.")
T.line("role-change", "[MONITOR] handleScheduleMessageService failed when changing to {role}",
       "[MONITOR] shutdownProcessorByHa failed when changing to {role}",
       "[MONITOR] startProcessorByHa failed when changing to {role}",
       means="A Java broker with DLedger could not start or stop a service when its role changed.",
       do="Restart that broker, so that all its services match its role.", page="how-to/troubleshooting.md#failover")
T.line("hooks", "Load default transaction message hook service", "Load default discard message hook service",
       "Unable to locate any class {name}", "Class {name} cannot be loaded via classloader",
       "loaded from classloader {loader} does not extend", "No resource file with name [{name}] found",
       "looking for resource file", "ServiceName is empty!", "Unable to init service",
       "Unable to get classloader for class {name}",
       means="A Java broker looked for an optional extension (META-INF/service) and uses its own implementation "
             "instead, or an extension is broken.",
       do="Nothing, unless you have written such an extension: then check its jar and its class name.", page=_START)
T.line("tls-setup", "FileWatchService created error, can't load the certificate dynamically",
       "Failed to create SSLContext", "Connections are insecure as SSLContext is null!",
       "Trying to establish an SSL connection but sslContext is null", "Unknown TLS mode",
       "Error while removing HandshakeHandler",
       means="A Java server or client could not set up TLS: its certificate, key or password is wrong or unreadable.",
       do="Check the paths and the password in tls.properties, and the rights of these files.", page="tls.md")
T.line("interrupted", "{what} InterruptedException", "lock error", "Interrupted",
       "{what} interrupted, possibly by shutdown", "take flush disk commit request, but interrupted",
       "An exception occurred while waiting for flushing disk to complete", "Polling thread was interrupted",
       "awaitTermination error", "countDownLatch await Exception", "didn't terminate!",
       means="A wait of a Java program was interrupted, which happens when it shuts down.",
       do="Nothing during a stop. Otherwise look for an OutOfMemoryError before the line.", page=_START)
T.line("shutdown", "shutdown Exception,", "shutdown exception", "GroupCommitService Exception,",
       "HandlePutResultTask shutdown, info={info}", "Failed to properly close the channel",
       "close file channel {file} Failed", "Failed to close the stream", "Failed to close the lz4 compress stream",
       "Failed to close the zstd compress stream", "closeMaster exception", "destroy exception",
       means="A Java program could not close a file, a stream or a thread in order.",
       do="Nothing during a stop. If it happens while the server runs, check the disk.", page=_START)
T.line("compress", "Failed to compress data by {method}", "tryToCompressMessage exception",
       "err when uncompress constant", "Failed to compress RegisterBrokerBody object",
       "Decompressing occur Exception {error}",
       means="A body could not be compressed or decompressed: it is damaged, or of another kind than its flag says.",
       do="Check the producer's compression and version. For a registration, check the broker's and the name server's "
          "versions.", page=_SEND)
T.line("configuration", "load {file} Failed", "Failed to handle properties", "registerConfig lock error",
       "getStorePath error", "getConfig error,", "updateConfig byte array to string error",
       "getAllConfigsInternal object2Properties is null", "Failed to obtain object properties",
       "Failed to obtain the host name", "Failed to obtain local address", "Failed to start processor",
       "Failed to start AclWatcherService", "Failed to register broker",
       means="A Java server could not read its own settings or tables, its host's name or its address, or start a "
             "part of itself.",
       do="Set brokerIP1 and brokerIP2, correct /etc/hosts, and look at the exception below the line.", page=_START)
T.line("name-server", "deleteTopic Exception", "getAllTopicList Exception", "registerBroker Exception",
       "operateWritePermOfBrokerByLock Exception", "unregisterBroker Exception", "pickupTopicRouteData Exception",
       "onChannelDestroy Exception", "printAllPeriodically Exception", "Load KV config table exception",
       means="A Java name server failed to handle a change of its routes; the stack trace below has the cause.",
       do="Restart the name server if routes are missing afterwards: brokers register again within 30 seconds.",
       page=_START)
T.line("address-server", "fetchNameServerAddr Exception", "fetch nameserver address is null",
       "fetch nameserver address failed. statusCode={status}", "fetch name server address exception",
       "ScheduledTask updateNameServerAddr exception",
       means="The HTTP address server (rmqAddressServerDomain) did not return the name servers' addresses.",
       do="Check that it answers with one line host:port;host:port, or set namesrvAddr instead.", page=_START)
T.line("acl", "Error in creating {file}", "create default acl file has exception when update accessConfig",
       "Failed to generate a proper {what} response", "Convert yaml file to data object error",
       means="A Java broker could not create or change a file of accounts.",
       do="Check the rights of the conf folder and the YAML of the file.", page="acl.md")
T.line("no-tables", "No topic in this broker", "No subscription group in this broker",
       "No consumer offset in this broker", "No delay offset in this broker",
       "Delay offset not supported in this messagetore", "get all consumer offset from master error",
       "Get all delay offset from master error",
       means="A slave or a tool asked a Java broker for a table that is empty or cannot be read.",
       do="Nothing for a new broker. Otherwise check the files in store/config.", page="replication.md")
T.line("filters", "Consumer in filter manager has no compiled expression! {data}",
       "Consumer in filter manager has no bloom data! {data}", "Spend {ms} ms to calc bit map", "Calc bit map error!",
       "load filter data error", "Ignore consumer({consumer}) filter(concurrent), because of version",
       "bloom filter error, sub={subscription}", "uploadFilterClassToAllFilterServer Exception",
       "register message class filter failed, because no filter server",
       means="A filter expression could not be prepared, or was changed by two consumers at a time. Messages are "
             "filtered without the prepared bits, or by an older expression.",
       do="Give all members of a group the same expression.", page="client.md#receive")
T.line("answer-failed", "castRunnable exception", "execute request when wakeup failed",
       "transfer many message by pagecache {what}", "generateOffsetMovedEvent Exception",
       "processRequestWrapper response to {client} failed", "transfer query message by page cache failed",
       "Transfer one message from page cache failed", "process SendMessage error, request",
       "execute callback in executor exception, and callback throw",
       "execute callback in requestFail, and callback throw", "scanResponseTable, operationComplete Exception",
       "encode exception, {address}", "Failed to access field [{field}]", "invokeSync failure",
       "execute callback in executor exception, maybe executor busy",
       means="A Java server or client could not write an answer or run a callback: the peer is gone, or the callback "
             "failed.",
       do="Look at the exception below the line; a closed connection needs nothing.", page="client.md#errors-of-sends")
T.line("create-topic", "createTopicInSendMessageMethod exception", "createTopicInSendMessageBackMethod exception",
       "create TRANS_CHECK_MAX_TIME_TOPIC exception", "getAllClientId failed, {group}",
       means="A Java broker could not create a topic in time, or knows no client of a group.",
       do="Create the topic with mqadmin updateTopic; start the consumers of the group.", page=_SEND)
T.line("send-size", "topic {topic} msg body size {size} from {client}",
       "the message is illegal, maybe msg properties length limit 32KB",
       "message body size exceeded, msg body size: {size}, maxMessageBodySize: {limit}",
       "message body size exceeded, msg total size: {size}",
       means="A message was too large for the broker and was refused.",
       do="Send smaller messages, or raise maxMessageSize.", page=_SEND)
T.line("transaction", "Put checked-too-many-time message to TRANS_CHECK_MAXTIME_TOPIC error",
       "Init TransactionBridge error", "The queue of topic is empty :{topic}",
       "The miss op offset={offset} in queue={queue} is NO_NEW_MSG",
       "The miss op offset={offset} in queue={queue} is empty", "PutBackToHalfQueueReturnResult error", "GetLong error",
       "GetInt error", "Transaction op message write failed. messageId is {id}",
       "Channel list is empty. groupId={group}", "checkTransactionState, pick producer group failed",
       "checkTransactionState, decode message failed",
       "CheckTransactionState, pick transactionCheckListener by group[{group}] failed",
       "when broker check, client rollback this transaction",
       "when broker check, client does not know this transaction state", "endTransactionOneway exception",
       "Failed to resume half message check logic. Remark={remark}",
       means="The check of a transaction at a Java broker or client found nothing to do, failed, or could not reach a "
             "producer. The broker asks again.",
       do="Start the producers of the group; check their transaction listener.",
       page="config-keys.md#delayed-and-transactional-messages")

# ---- the store

T.line("allocation", "never expected here, add a request to preallocate queue failed",
       "find preallocate mmap failed, this never happen", "this mmap request expired, maybe cause timeout {file}",
       "never expected here, maybe cause timeout {file}", "Use default implementation",
       "create mappedFile spent time(ms) {ms}",
       means="A Java broker prepared its next file late or twice: the disk is slow.",
       do="Check the disk's latency; with transientStorePoolEnable also the size of the pool.", page=_DISK)
T.line("file", "Create mapped file1 error, topic: {topic}", "Create mapped file2 error, topic: {topic}",
       "create mapped file1 error, topic: {topic}", "create mapped file2 error, topic: {topic}",
       "Failed to create file {file}", "MappedFile.appendMessage return null, wrotePosition: {at}",
       "Error occurred when append message to mappedFile", "deleteExpiredFile has exception",
       "getLastMappedFile has exception", "getMinOffset has exception", "findMappedFileByOffset Exception",
       "getFirstMappedFile has exception", "Exception thrown when correctMinOffset",
       means="A Java broker could not create, read or extend a file of its store.",
       do="Check space, permissions, limits of open files and memory maps, and dmesg.", page=_DISK)
T.line("put-slow", "[NOTIFYME]putMessage in lock cost time(ms)={ms}",
       "[NOTIFYME]putMessages in lock cost time(ms)={ms}", "not in lock elapsed time(ms)={ms}",
       "not in lock eclipse time(ms)={ms}",
       means="A put took more than 500 ms: the disk was busy, or the JVM paused.",
       do="Check the disk's latency and the garbage collection log.", page=_SEND)
T.line("recovery", "maxPhyOffsetOfConsumeQueue({end}) >= processOffset({log}), truncate dirty logic files",
       means="Recovery of a Java broker ended the log before the end of the queues, and shortens the queues.",
       do="Nothing after a crash.", page=_START)
T.line("dispatch", "rebuild msgInner for multiDispatch", "no multiQueueOffset when updating {what}",
       "num is not equal when updateMultiQueueOffset {what}", "[bug] queues.length!=queueOffsets.length",
       "consumer request topic: {topic}offset: {offset} minOffset: {first}",
       "message store is not available, broker config enableLmq and enableMultiDispatch, lmq consumeQueue num exceed",
       means="A message with INNER_MULTI_DISPATCH, or a pull, does not fit the queues of a Java broker.",
       do="Correct the producer that sets this property; for a pull, check the queue with rmqha store verify.",
       page=_CONSUME)
T.line("disk-full", "physic disk of commitLog maybe full soon, used {used}, so mark disk full",
       "logics disk maybe full soon {used}, so mark disk full",
       means="The disk of a Java broker is above 90 %; it refuses messages.",
       do="Free space, or lower fileReservedTime.", page=_DISK)
T.line("dledger", "Should not set confirm offset {offset} for dleger commitlog", "Put message error",
       "HandleAppend return false due to error code {code}",
       means="DLedger's commit log did not accept a message: it has no leader, or no majority answered.",
       do="Check the DLedger group of the Java brokers. rmqha has controllers instead of DLedger.",
       page="how-to/automatic-failover.md")
T.line("ha", "processReadEvent error", "read socket[{address}] < 0", "processReadEvent exception",
       "AcceptSocketService shutdown exception", "Unexpected ops in select {ops}",
       "reportSlaveMaxOffset this.socketChannel.write exception", "HAClient, dispatchReadRequest error",
       "appendToPhyQueue failed {offset} {size}",
       means="The replication connection of a Java broker broke, or its slave could not store what arrived.",
       do="Check the link between master and slave, and the slave's disk. The slave connects again every 5 seconds.",
       page="how-to/troubleshooting.md#replication")
T.line("index", "putKey exception, Key: {key}", "selectPhyOffset exception", "queryMsg exception", "destroy exception",
       means="The index of a Java broker could not be read or extended. Queries by key may find less.",
       do="Check the disk; remove the damaged index file while the broker is stopped.", page=_DISK)
T.line("delay", "scheduleAtFixedRate flush exception",
       "ScheduleMessageService, messageTimeup execute error, offset = {offset}", "putResultProcess error, info={info}",
       "HandlePutResultTask exception. info={info}", "ScheduleMessageService put message exceptionally, info: {info}",
       "ScheduleMessageService onException, info: {info}",
       means="A delayed message of a Java broker was due, and could not be stored now. It is tried again.",
       do="Look for the reason in store.log of the same second, usually a full disk.", page=_DISK)

# ---- clients

T.line("client-offsets", "resetOffsetByTimestamp Exception", "readLocalOffset exception", "readLocalOffset Exception",
       "persist consumer offset exception, {file}", "Load local offset store file exception",
       "Load local offset store bak file exception", "fetchConsumeOffsetFromBroker exception, {queue}",
       "updateConsumeOffsetToBroker exception, {queue}", "Compute consume offset exception, mq={queue}",
       "Compute consume offset from last offset exception, mq={queue}",
       "Persist consumer offset error for group: {group}", "An error occurred when update consume offset Automatically",
       "MessageQueues is empty, Ignore this commit",
       means="A Java consumer could not read or store its offset. After a restart some messages are delivered twice.",
       do="Check that the queue's master is up; in broadcast mode, the local offset files.", page=_CONSUME)
T.line("client-queue", "getExpiredMsg exception", "send expired msg exception", "putMessage exception",
       "getMaxSpan exception", "removeMessage exception", "rollback exception", "commit exception",
       "makeMessageToCosumeAgain exception", "take Messages exception",
       "the message queue not locked, so consume later, {queue}",
       "the message queue lock expired, so consume later, {queue}", "unlock messageQueue. group:{group}",
       "unlockBatchMQ exception, {queue}", "lockBatchMQ exception, {queue}", "removeUnnecessaryMessageQueue Exception",
       "tryLock, message queue lock expired, I got it. Group: {group}", "tryLock, message queue locked by other client",
       means="A Java consumer's work with one of its queues was interrupted: by a rebalance, a shutdown, or because "
             "the queue's lock is held elsewhere.",
       do="Nothing during rebalances. If it lasts, look for a listener that hangs.", page=_CONSUME)
T.line("client-pull", "The Pull Task is cancelled after doPullTask, {queue}", "Pull Task Callback not exist , {topic}",
       "executeTaskLater Exception", "executePullRequestImmediately pullRequestQueue.put", "pullKernelImpl exception",
       "pullMessage exception, consumer state not ok", "Submit consumeRequest error", "Failed to get next pull offset",
       "The pull request offset illegal, {queue}", "consumeMessageDirectly exception: {error} Group: {group}",
       "notifyConsumerIdsChanged exception",
       "Topic {topic} had been registered, new listener will overwrite the old one",
       means="A Java consumer left out or repeats a pull: it stops, is suspended, or an offset is not valid.",
       do="Look at the exception below the line; see the broker's log of the same second.", page=_CONSUME)
T.line("client-query", "decodeCommandCustomHeader exception", "getResponseCommand return null",
       "queryMessage, maybe some broker failed", "queryMessage by uniqKey, find message key not matched",
       means="A query for messages failed at a broker, or met a key with an equal hash.",
       do="Repeat the query; check that all brokers of the topic answer.", page="mqadmin.md#sub-commands")
T.line("client-hooks", "system mqtrace hook init failed", "consumeMessageHook {name} executeHookBefore",
       "consumeMessageHook {name} executeHookAfter", "failed to executeSendMessageHookBefore",
       "failed to executeSendMessageHookAfter", "failed to executeEndTransactionHook",
       "execute requestCallback in requestFail, and callback throw", "Error occurred when selecting message queue",
       "prepare send request for <{topic}> cost {ms} ms", "Uncaught exception in thread '{thread}'",
       means="A hook, a callback or a thread of a Java client program failed.",
       do="Correct the program; the stack trace below names the line.", page="client.md#mistakes-in-your-code")
T.line("client-channel", "closeChannel: close the channel exception",
       "closeChannel: try to lock channel table, but timeout", "closeChannel exception",
       "createChannel: create channel exception", "createChannel: try to lock channel table, but timeout",
       "decode exception, {address}", "Failed field [{field}] decoding",
       "Open ePoll Selector for linux platform exception",
       means="A Java client or server could not open, close or read a connection.",
       do="Look at the exception below the line; if it repeats for one address, check that server.", page=_SEND)
T.line("client-instance", "Returned Previous MQClientInstance for clientId:[{id}]", "cleanOfflineBroker Exception",
       "sendHeartbeatToAllBroker exception",
       "updateTopicRouteInfoFromNameServer, getTopicRouteInfoFromNameServer return null",
       "unregister client RemotingException from broker: {address}",
       "unregister client InterruptedException from broker: {address}", "the admin group[{group}] exist already.",
       "sendKernelImpl exception, throw exception, InvokeID: {id}", "putIfAbsentAndRetExsit success",
       "sendKernelImpl exception, resend at once, InvokeID: {id}",
       "local transaction execute {state}, but end broker transaction failed",
       "async send msg by retry {count} times. topic={topic}",
       means="A Java client could not reach a broker or name server, or two of its parts share one instance.",
       do="Check the brokers' addresses in the route; give each group its own instanceName if two clash.", page=_SEND)
