"""Lines of the broker's processors and managers, and their answers to clients."""
from rmqha.tools.explain.entry import Table

_SEND = "how-to/troubleshooting.md#sending"
_CONSUME = "how-to/troubleshooting.md#consuming"
T = Table("broker", _SEND)

# ---- overload

T.line("busy-rejected", "[REJECTREQUEST]system busy, start flow control for a while",
       means="The broker rejected the request before it read it: its page cache was busy (an append held the lock for "
             "longer than osPageCacheBusyTimeOutMills) or its off-heap buffers were used up. Usual with Java's broker.",
       do="Retry; producers do. Check the disk's latency and, at a Java broker, garbage collection pauses.")
T.line("busy-timeout", "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while",
       means="The request waited longer for a thread than waitTimeMillsInSendQueue (or the key of its pool) allows.",
       do="Retry; producers do. Compare the load with the machine, and set stallWatchMs=50 to find pauses.")
T.line("busy-page-cache", "[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while",
       "OS page cache busy, please try another machine",
       means="Java's broker dropped the requests that waited while its page cache was busy: an append held the lock "
             "for longer than osPageCacheBusyTimeOutMills.",
       do="Check the disk's latency, free memory for the page cache, and pauses of the JVM.")
T.line("busy-append", "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
       means="A put was held up for longer than osPageCacheBusyTimeOutMills, so further puts are refused for the "
             "moment.",
       do="Retry; producers do. Check the disk's latency (flush metrics, iostat), and set stallWatchMs=50.")
T.line("busy-overload", "[OVERLOAD]system busy", "requests are waiting for clients, try again later",
       "too many requests and system thread pool busy, RejectedExecutionException {pool} request code: {code}",
       means="More requests wait than the queue of their thread pool holds, or one connection has too many large "
             "requests waiting. The request was refused.",
       do="Retry; clients do. If it lasts, use fewer or smaller requests per connection, or add a broker.",
       page="limits.md#waiting-requests-and-answers")
T.line("body-too-large", "the body of {what} has {count} {unit}, {how}, the limit is {limit}",
       "the body of {what} has {count} bytes, the limit is {limit}",
       means="A request's body has more bytes or elements than the server parses. It was refused.",
       do="Split the request: fewer topics, groups or queues per heartbeat or lock request.",
       page="limits.md#bodies-of-requests")

# ---- sends

T.line("service-not-available", "service not available now. It may be caused by one of the following reasons",
       means="The store accepts no messages. CL, CQ and INDEX show how full the disks are; 1.00 is full.",
       do="At 0.90 or more: free space, or lower fileReservedTime. Below: the broker is a slave, is shutting down, or "
          "its store is read-only; store.log has the first ERROR.")
T.line("not-the-master", "service not available now: {why}",
       means="A controller decides the roles, and this broker is not the master, or may not acknowledge now.",
       do="Nothing during a failover: clients find the next master. If it lasts, see `rmqha ha status`.",
       page="how-to/troubleshooting.md#failover")
T.line("no-topic", "topic[{topic}] not exist, apply first please!", "the topic {topic} not exist, producer: {client}",
       "the topic {topic} not exist, consumer: {client}", "topic[{topic}] not exist",
       "Create new topic failed, because the default topic[{default}] not exist. producer:[{client}]",
       "Create new topic failed, because the default topic[{default}] has no perm [{perm}] producer:[{client}]",
       "create topic {topic}: the topic table is locked for more than {seconds} s",
       means="The broker does not have the topic. For a send, a warning followed by the creation of the topic is "
             "normal (autoCreateTopicEnable); otherwise the request is refused.",
       do="Create the topic on all brokers of the cluster: bin/mqadmin updateTopic -c CLUSTER -t TOPIC.")
T.line("topic-gone", "the topic was deleted", "ignoring offset {offset} of {queue}: it belongs to a deleted topic",
       "the topic of the half message at {offset} was deleted; the message is not committed",
       means="The request belongs to a topic that was deleted. It has no effect.",
       do="Create the topic again if it is needed. Its earlier messages and offsets stay deleted.",
       page="replication.md#deleted-topics")
T.line("bad-queue", "request queueId[{queue}] is illegal, {topic} Producer: {client}",
       "queueId[{queue}] is illegal, topic:[{topic}]", "{queue} is not exist!",
       means="A client uses a queue that the topic does not have at this broker: its route is older than a change of "
             "the number of queues.",
       do="Nothing for some 30 seconds after such a change. Otherwise correct the client's queue selector.")
T.line("forbidden", "the broker[{ip}] sending message is forbidden",
       "the broker[{ip}] sending transaction message is forbidden", "the broker[{ip}] pulling message is forbidden",
       "the topic[{topic}] pulling message is forbidden", "subscription group no permission, {group}",
       "the topic[{topic}] sending message is forbidden",
       "the consumer group[{group}] can not consume by broadcast way",
       means="The permission of the broker, the topic or the group does not allow this: brokerPermission, the topic's "
             "perm, the group's consumeEnable or consumeBroadcastEnable, or rejectTransactionMessage.",
       do="Check with bin/mqadmin topicList, updateTopic -p, updateSubGroup; after maintenance, bin/mqadmin "
          "addWritePerm.")
T.line("not-yet", "broker unable to service, until {time}",
       means="startAcceptSendRequestTimeStamp keeps the broker from accepting sends before that time.",
       do="Wait, or remove the key.", page="config-keys.md#sends")
T.line("name-illegal", "The specified topic contains illegal characters",
       "The specified topic is longer than topic max length", "Sending message to topic[{topic}] is forbidden",
       "is conflict with system topic", "The specified topic[{topic}] contains illegal characters",
       "The specified topic is blank", "the specified group is blank",
       "the specified group is longer than group max length",
       "the specified group[{group}] contains illegal characters",
       "consumerGroup can not equal {group}, please specify another one",
       means="The name of a topic or group is empty, too long, reserved, or has other characters than letters, "
             "digits, % | _ and -.",
       do="Choose another name: at most 127 characters for a topic, 255 for a group.", page="client.md#send")
T.line("not-enough-in-sync", "in-sync replicas not enough",
       means="Fewer replicas are in sync than minInSyncReplicas. The message is not stored, or not acknowledged.",
       do="Start the missing replicas; `rmqha ha status` shows what they lack.", names=("IN_SYNC_REPLICAS_NOT_ENOUGH",))
T.line("unknown-error", "store putMessage return null", "store getMessage return null", "UNKNOWN_ERROR",
       "putMessageResult is null",
       means="The store failed to handle the request, and the broker has no better word for it.",
       do="store.log of the same second has the reason. The message may or may not be stored: treat the send as "
          "failed.")

# ---- pulls and groups

T.line("no-group", "subscription group [{group}] does not exist", "subscription group not exist, {group}",
       "delete subscription group failed, subscription groupName: {group} not exist",
       means="The broker does not know the consumer group, and does not create it (autoCreateSubscriptionGroup=false).",
       do="bin/mqadmin updateSubGroup -c CLUSTER -g GROUP.", page=_CONSUME)
T.line("no-subscription", "the consumer's group info not exist", "the consumer's subscription not exist",
       "the consumer's subscription not latest", "The broker's subscription is not latest, group: {group}",
       "The broker's consumer filter data is not latest, group: {group}",
       "the consumer's consumer filter data not latest",
       "The broker's consumer filter data is not exist!Your expression may be wrong!",
       means="A pull arrived before the broker knew the consumer's subscription. This is normal for some seconds "
             "after a start. If it lasts, members of one group subscribe to different topics or expressions.",
       do="Give all members of a group the same subscriptions; restart members that run an older version.",
       page=_CONSUME)
T.line("bad-expression", "Parse the consumer's subscription[{expression}] failed, group: {group}",
       "parse the consumer's subscription failed", "parse the sql filter failed: {error}",
       "parse error: expr={expression}, topic={topic}, group={group}",
       "parse error: topic={topic}, group={group}, error=the expression is too long: {size} characters",
       "filter message, but failed to compile expression! sub={subscription}",
       "too many expressions: the expression of group {group} for topic {topic} is not stored",
       means="A consumer's filter expression is not valid SQL92, is too long, or the broker already stores very many.",
       do="Correct the expression; the end of the line says where it fails.", page="client.md#receive")
T.line("shutting-down", "the broker is shutting down",
       means="A consumer's pull waited for a message when the broker began to shut down.",
       do="Nothing: consumers pull again after a second, or at the next master.")
T.line("subscriptions-not-kept",
       "ignoring {path}: {error}; consumers receive nothing until their first heartbeat, as without the file",
       "too many subscriptions: those of group {group} and of others are not kept for a restart",
       means="The broker keeps the subscriptions of consumers in a file, so that it serves their "
             "pulls at once after a restart. The file is damaged, or the subscriptions are too many or too long.",
       do="Nothing: consumers pause after a restart until their next heartbeat, for up to 30 s. The broker writes a "
          "damaged file again.")
T.line("filter-off", "The broker does not support consumer to filter message by",
       "does not upgrade to support for filter message by {kind}",
       means="The consumer subscribes with SQL92, but the broker filters by tag only.",
       do="Set enablePropertyFilter=true at the brokers.", page="examples.md#filters-on-properties")
T.line("filter-error", "Message Filter error, {data}", "Calc filter bit map error!commitLogOffset={offset}",
       "Consumer in filter manager has no compiled expression or no bloom data! {data}",
       means="A filter expression failed for a message: usually a property is not the kind of value that the "
             "expression compares. The message counts as not matching.",
       do="Correct the expression, or the producer's property. One line per message can be a lot: correct it soon.",
       page="client.md#receive")
T.line("offset-moved",
       "PULL_OFFSET_MOVED:correction offset. topic={topic}, groupId={group}, requestOffset={old}, newOffset={new}",
       "PULL_OFFSET_MOVED:none correction. topic={topic}, groupId={group}, requestOffset={old}",
       "the pull request offset illegal, {request}", "fix the pull request offset, {request}",
       means="A group asked for an offset that the queue does not have, and continues at another one: its messages "
             "expired before they were consumed, or the queue is shorter than before, for example after a restore.",
       do="Compare with bin/mqadmin consumerProgress -g GROUP. If messages expired, consume faster or raise "
          "fileReservedTime.", page=_CONSUME)
T.line("offset-lowered", "[NOTIFYME]update consumer offset less than store. clientHost={client}, key={key}",
       means="A consumer committed a smaller offset than the stored one, after a reset or when two members consumed "
             "one queue during a rebalance. Some messages are delivered again.",
       do="Nothing after a reset or a rebalance. If it repeats, look for two clients with the same client id.",
       page=_CONSUME)
T.line("protect", "[PROTECT_BROKER] the consumer[{group}] consume slowly",
       means="disableConsumeIfConsumerReadSlowly is on, and the group is too many bytes behind: the broker stopped "
             "its consumption.",
       do="Make the group faster, then enable it: bin/mqadmin updateSubGroup -g GROUP -s true.", page=_CONSUME)
T.line("no-members", "getConsumerGroupInfo failed, {group}", "no consumer for this group, {group}",
       "Consumer not online, so can not reset offset, Group: {group}", "No Any Consumer online in the consumer group",
       "the consumer group[{group}] not online", "The Consumer Group <{group}> not exist in this consumer",
       "the producer group[{group}] not exist", "The Consumer <{group}> <{client}> not online",
       "doRebalance, {group} {topic}, get consumer id list failed", "THe consumer group <{group}> not exist",
       means="No member of the group is connected to this broker. Just after a start, or during a stop, this is "
             "normal.",
       do="bin/mqadmin consumerConnection -g GROUP lists the members. Start them if they should run.", page=_CONSUME)
T.line("member-lost", "NETTY EVENT: remove not active channel[{client}] from ConsumerGroupInfo groupChannelTable",
       "NETTY EVENT: remove channel[{client}] from ProducerManager groupChannelTable",
       "SCAN: remove expired channel from ConsumerManager consumerTable",
       "SCAN: remove expired channel[{client}] from ProducerManager groupChannelTable",
       means="A client closed its connection without unregistering, or sent no heartbeat for 120 seconds. Its queues "
             "go to the other members of its group.",
       do="Nothing, if the client was stopped. Otherwise look for its crash, for pauses, or for a NAT that forgets "
          "idle connections.", page=_CONSUME)
T.line("two-clients", "[BUG] consumer channel exist in broker, but clientId not equal. GROUP: {group}",
       "client id {id} of channel[{client}] is already used by another account on channel[{other}]",
       means="Two clients share a connection or a client id. Their queues and replies can be mixed up.",
       do="Give each client process its own instanceName.", page="client.md#processes-and-event-loops")
T.line("subscription-changed", "subscription changed, group: {group} remove topic {topic}",
       means="A member's heartbeat no longer names a topic that the group subscribed to. If members of one group have "
             "different subscriptions, these lines alternate, and messages are not delivered.",
       do="Give all members of the group the same subscriptions.", page=_CONSUME)
T.line("unlock-unknown", "unlockBatch, group not exist, Group: {group} {client}",
       means="A consumer released queues of a group that holds no lock here: it had expired, or the broker restarted.",
       do="Nothing.", page=_CONSUME)
T.line("offsets-removed", "clean group offset {key}", "remove topic offset, {key}",
       "delete topic config failed, topic: {topic} not exists",
       means="Consumer offsets were deleted together with their group or topic, on an operator's request.",
       do="Nothing, if the deletion was intended.", page="mqadmin.md#sub-commands")
T.line("no-such-for-admin", "consumeStats, topic config not exist, {topic}",
       "[cloneGroupOffset], topic config not exist, {topic}", "the consumer group[{group}], topic[{topic}] not exist",
       means="A tool asked for the progress of a group in a topic that the broker does not have, or that the group no "
             "longer subscribes to. The row is left out.",
       do="Nothing; delete old groups with bin/mqadmin deleteSubGroup.", page="mqadmin.md#sub-commands")
T.line("no-offset-yet", "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
       "no offset of {group} at the broker for {queue}",
       means="The group has never stored an offset for this queue: it is new. It starts where consumeFromWhere says.",
       do="Nothing for a new group.", page=_CONSUME)
T.line("wrong-request", "the request has no consumerGroup", "the subscription group has no groupName",
       "the message id is missing", "the numbers of queues are illegal, read: {read}",
       "there are {count} topics on this broker", "The stats <{name}> <{key}> not exist",
       "Index {index} of {queue} is not exist!", "no broker names in the body", "namespace or key is null",
       "No config item, Namespace: {namespace}", "crc32 not match",
       "Can't modify topic or subscription group from slave broker",
       "epoch {epoch} is too old: the last one of this log is {last}", "the mastership was not handed over: {error}",
       "this broker is not a slave", "this slave's log has not diverged from its master's, as far as it knows",
       means="A tool or client sent a request that lacks something, names something that does not exist, or goes to "
             "the wrong broker. Nothing was changed.",
       do="Correct the command; requests that change topics and groups belong to the master.", page="mqadmin.md#errors")
T.line("reset-offset", "[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
       "[reset-offset] reset offset exception. topic={topic}, group={group}",
       "reset offset is invalid. topic={topic}, queueId={queue}",
       "[reset-offset] the client does not support this feature. channel={client}",
       "[get-consumer-status] the client does not support this feature. channel={client}",
       "[get-consumer-status] out of time before {client} of group {group} was asked",
       "[get-consumer-status] get consumer status exception. topic={topic}, group={group}",
       "reset offset failed. group={group}", "the client does not support this feature. version={version}",
       "Version <{version}> too low to finish, please upgrade it",
       "invoke consumer <{group}> <{client}> Exception: {error}", "consumer <{group}> <{client}> Timeout: {error}",
       means="A reset of a group's offsets, or a question about its consumers, could not reach a member or a topic.",
       do="Check that the members run and are new enough, then repeat the command; bin/mqadmin consumerProgress shows "
          "what was reached.", page="mqadmin.md#sub-commands")
T.line("hold-failed", "check hold request failed. topic={topic}, queueId={queue}", "excuteRequestWhenWakeup run",
       means="Answering a waiting pull failed. The consumer pulls again after its time-out, so messages may be some "
             "seconds late.",
       do="Report the traceback below the line if it repeats.", page=_CONSUME)
T.line("notify-failed", "notifyConsumerIdsChanged exception. group={group}, error={error}",
       "notifyConsumerIdsChanged consumerGroup is null",
       means="The broker could not notify a consumer that its group changed. The consumer rebalances within 20 "
             "seconds anyway.",
       do="Nothing.", page=_CONSUME)
T.line("end-of-queue", "cannot determine the end of a queue: {error}",
       means="A request for a queue's end failed; the client got an error.",
       do="If the cause is a malformed request, correct the client; otherwise see the traceback.")

# ---- transactions

T.line("transaction-check", "Check transaction failed, channel table is empty. groupId={group}",
       "Check transaction failed, channel is null. groupId={group}",
       "Check transaction failed because invoke producer exception. group={group}, msgId={id}",
       "Send check message error!",
       means="The broker wants to ask a producer how its transaction ended, and no producer of the group is "
             "connected. It asks again every transactionCheckInterval, up to transactionCheckMax times.",
       do="Start the producers of that group, with the same group name.",
       page="config-keys.md#delayed-and-transactional-messages")
T.line("transaction-given-up",
       "has been checked too many times, so discard it by moving it to system topic TRANS_CHECK_MAXTIME_TOPIC",
       "Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC failed",
       means="No producer said how a transaction ended within transactionCheckMax checks. Its message is not "
             "delivered; it is kept in the topic TRANS_CHECK_MAX_TIME_TOPIC.",
       do="Find out why the producers did not answer. The request RESUME_CHECK_HALF_MESSAGE gives a message further "
          "checks.", page="config-keys.md#delayed-and-transactional-messages")
T.line("transaction-unusual", "Check producer[{producer}] transaction state, but it's pending status",
       "Check producer[{producer}] transaction state, the producer {outcome} the message",
       "The producer[{producer}] end transaction in sending message, {outcome}",
       "RequestHeader: {header} Remark: {remark}",
       means="A producer ended a transaction in an unusual way: still unknown, rolled back, or on a later question of "
             "the broker. Nothing is wrong.",
       do="Nothing. If very many transactions stay unknown, check the producers' listeners.",
       page="config-keys.md#delayed-and-transactional-messages")
T.line("transaction-record", "a record of the half or op topic is damaged: {error}",
       "MessageQueue: {queue} illegal offset read: {half}, op offset: {op},skip this queue",
       "The queue={queue} check msgOffset={half} with opOffset={op} failed, pullResult is null",
       "The miss op offset={offset} in queue={queue} is illegal", "GetLong error: {text} is not a number",
       "Found a illegal tag in opMessageExt= {message}", "Get message from store return null. topic={topic}",
       "GetMessageStatus={status}, topic={topic}, groupId={group}", "Check error",
       means="The check of transactions met a record or an offset of its internal topics that it cannot use, for "
             "example after these topics' files expired or were restored. It skips it.",
       do="Nothing after a restore. If it repeats in each round, check the store: rmqha store verify.",
       page="config-keys.md#delayed-and-transactional-messages")
T.line("transaction-wrong", "The producer group wrong", "The transaction state table offset wrong",
       "The commit log offset wrong", "Find prepared transaction message failed",
       means="The end of a transaction does not fit its half message: another group, another offset, or the half "
             "message has expired or was never stored.",
       do="End a transaction with the result of its own send, and soon: half messages expire with fileReservedTime.",
       page="client.md#transactions")
T.line("transaction-put", "Put message failed, topic: {topic}, queueId: {queue}, msgId: {id}",
       "PutBackToHalfQueueReturnResult write failed, topic: {topic}",
       "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed",
       "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC", "resumeCheckHalfMessage: {error}",
       "Create mapped file failed.", "The message is illegal, maybe msg body or properties length not matched",
       "Service not available now.",
       means="A record of a transaction could not be stored. The broker tries again at the next check; a request "
             "RESUME_CHECK_HALF_MESSAGE has to be sent again.",
       do="See store.log of the same second: usually the store refuses messages.")

# ---- requests and replies

T.line("reply-lost", "{property} is null, can not reply message",
       "push reply message fail, channel of <{client}> not found",
       "push reply message to <{client}> return fail, response remark: {remark}",
       "push reply message to <{client}> fail. {error}", "storing a reply failed",
       "push reply message to {client}fail.", "reply message properties[{property}] is null",
       "process reply message fail", "process reply message, store putMessage returned {result}",
       means="A reply to a request could not be passed to the client that waits for it: the client is gone, or is "
             "connected to another broker. It gets a time-out.",
       do="Check that the requester still runs, and that its time-out is long enough.",
       page="client.md#request-and-reply")

# ---- copies from the master

T.line("slave-sync", "ignoring the master's invalid entry {name}: {error}",
       "ignoring the master's invalid consumer offsets of {key}: {error}", "SyncTopicConfig Exception, {address}",
       "SyncConsumerOffset Exception, {address}", "SyncDelayOffset Exception, {address}",
       "SyncSubscriptionGroup Exception, {address}",
       "the topic {topic} has messages, but the last master did not report it: creating it with {count} queues",
       means="A slave copies topics, offsets and groups from its master every 10 s. One round failed, or a part of "
             "the master's answer was not valid; the messages themselves are not affected.",
       do="Nothing, if the master is just restarting. Otherwise open the path from the slave to the master's "
          "listenPort.", page="replication.md")
T.line("slave-without-master", "no master of brokerName={name} is registered at {namesrv}",
       means="A slave is registered, and no master of its brokerName is: the name is misspelled, or the master is "
             "down.",
       do="Compare brokerName of both; start the master, or fail over by hand.", page="how-to/failover-by-hand.md")

# ---- registration and administration

T.line("register-failed", "registerBroker Exception, {address}: {error}",
       "unregisterBroker Exception, {address}: {error}",
       "Query data version from name server {address} Exception, {error}", "fetchNameServerAddr Exception: {error}",
       "fetch name server address exception: {error}",
       "connect to {url} failed, maybe the domain name {name} not bind in /etc/hosts",
       "query data version {address}: {error}",
       means="The broker could not register at a name server, or did not find the name servers' addresses. Clients "
             "that use only this name server do not find the broker.",
       do="Check that the name server runs, and namesrvAddr. The broker tries again every 30 seconds.")
T.line("refused-keys", "updateBrokerConfig, refused keys: {keys} client: {client}",
       "updateConfig, refused keys: {keys} client: {client}", "Can not update config in black list",
       "Can not update config path", "string2Properties error", "updateConfig MixAll.string2Properties error",
       "Failed to handle properties: {error}",
       means="A request to change a server's configuration was refused: it names a key that may not change while the "
             "server runs (paths, names, ports, roles), one in configBlackList, or its text is malformed.",
       do="Change the key in the server's file and restart it. `rmqha config explain KEY` says which keys those are.",
       page="config-keys.md#how-to-set-a-key")
T.line("acl-change-failed", "Failed to change the access control: {error}",
       "The accesskey[{key}] corresponding to accessConfig has been deleted failed",
       "The accesskey[{key}] corresponding to accessConfig has been updated failed",
       "The globalWhiteAddresses[{addresses}] has been updated failed",
       means="A change of the access control by a request failed: the account is not valid, or its file cannot be "
             "written.",
       do="Correct the account; check the permissions of conf/plain_acl.yml.", page="acl.md")
T.line("unsafe", "warning: access control is off (aclEnable=false): any client that can reach port {port}",
       "warning: the replication port {port} is open on all addresses and has no authentication",
       means="A warning of each start: a host that reaches the port can read and change everything that it serves.",
       do="Let only the cluster's hosts and clients reach the ports (firewall), or set up access control and "
          "haAllowedPeers.", page="SECURITY.md#what-each-port-trusts")
T.line("service-gone", "The broker cannot continue: {why}", "The Name Server cannot continue: {why}",
       means="The thread that serves the server's port failed for good, so the server ends (exit code 70).",
       do="Let systemd restart it; report the traceback above the line.",
       page="how-to/troubleshooting.md#start-and-stop")
