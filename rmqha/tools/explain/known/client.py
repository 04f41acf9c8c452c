"""Lines of producers and consumers, and the errors that they raise."""
from rmqha.tools.explain.entry import Table

_SEND = "how-to/troubleshooting.md#sending"
_CONSUME = "how-to/troubleshooting.md#consuming"
T = Table("client", "client.md")

# ---- producers

T.line("no-route", "No route info of this topic: {topic}", "No route info of this topic",
       "updateTopicRouteInfoFromNameServer Exception: {error}", "updateTopicRouteInfoFromNameServer Exception",
       "get Topic [{topic}] RouteInfoFromNameServer is not exist value",
       "failed to get a new route of topic {topic}: {error}", "route of {topic} not updated",
       "Can not find Message Queue for this topic, {topic}", "The topic[{topic}] not exist",
       "The topic[{topic}] not matched route info", "No route info for this topic, {topic}",
       means="The client's name servers list no broker that has this topic, and none that creates topics "
             "automatically.",
       do="Run bin/mqadmin topicRoute -t TOPIC. With a route, correct the client's name server address; without one, "
          "create the topic. After wipeWritePerm, run addWritePerm.", page=_SEND)
T.line("no-namesrv", "No name server address, please set it.", "connect to null failed",
       "name server address {text}: expected host:port",
       means="The client has no name server address, or one that is not host:port.",
       do="Set it in the client, or in NAMESRV_ADDR; several are separated by semicolons.", page=_SEND)
T.line("send-failed", "Send [{count}] times, still failed, cost [{ms}]ms, Topic: {topic}, BrokersSent: {brokers}",
       "sendKernelImpl exception, resend at once, Broker: {broker}: {error}", "async send msg by retry. topic={topic}",
       means="A send failed at a broker, and was tried at others; with `still failed`, all of them failed.",
       do="The last cause in the same text is the reason: look it up. After a failover, wait for the next route, at "
          "most 30 seconds.", page=_SEND)
T.line("no-broker", "The broker[{name}] not exist", "Not found broker, maybe key is wrong",
       "create topic to broker exception", "create new topic failed",
       "minOffset of {queue} is unknown, starting at 0: {error}",
       means="The route names no address for this broker: its master is down or its name changed.",
       do="Start the broker, or wait for the next route (30 s); see bin/mqadmin clusterList.", page=_SEND)
T.line("message-illegal", "the message body size over max value, MAX: {limit}", "the message body length is zero",
       "the message body is null", "the message is null", "Failed to initiate the MessageBatch",
       "message's topic not equal mq's topic", "the object to send must be a Message", "msg body must be less 64KB",
       "message topic length too long", "a batch can't be {what}: send its messages one by one",
       means="The program tries to send a message that no broker takes: empty, too large, or a batch of mixed topics.",
       do="Correct the program; the limit is the producer's max_message_size (maxMessageSize), 4 MiB by default.")
T.line("state", "The producer service state not OK", "The consumer service state not OK",
       "The {kind} service state not OK, maybe started once", "pullMessage exception, consumer state not ok: {state}",
       "The consumer is not in running status", "The {kind} group[{group}] has been created before",
       "the consumer group[{group}] exist already", "the producer group[{group}] exist already",
       "can't be used in process {pid}, which was forked from it",
       "The Factory object[{id}] has been created before, and failed",
       means="A producer or consumer is used before its start, after its shutdown, twice under one group in one "
             "process, or in a forked process.",
       do="Start each once, in the process that uses it; give a second one of the group another instanceName.",
       page="client.md#processes-and-event-loops")
T.line("asyncio", "subscribe before start: later it would ask the brokers and block the event loop",
       "belongs to the event loop that started it, and can't be used in another", "no thread to send with: {error}",
       "The consumer has stopped.", "The consumer not running, please start it first.", "{client}, maybe started once",
       means="A client for asyncio is used before its start, after its stop, or in another event loop than its own.",
       do="Create, start and stop it in one event loop.", page="client.md#asyncio")
T.line("reply-timeout", "send request message to <{topic}> OK, but wait reply message timeout, {ms} ms",
       "send request message to <{topic}> fail", "create reply message fail, requestMessage error, property[{name}]",
       "create reply message fail, requestMessage cannot be null", "unknown err when receiveReplyMsg",
       "request callback exception", "request timeout, no reply message",
       "the client was shut down before a reply arrived",
       means="A request was sent, and its reply did not arrive in time or could not be made.",
       do="Check that a consumer of the topic runs and replies; raise the time-out of the request.",
       page="client.md#request-and-reply")
T.line("selector", "select message queue threw exception", "select message queue return {value}",
       "send callback exception, topic {topic}",
       means="The program's own queue selector or callback failed, or returned something that is not a queue.",
       do="Correct the program; the traceback below names the line.", page="client.md#mistakes-in-your-code")
T.line("transaction", "CheckTransactionState from {address}, but the producer of group[{group}] has no transactions",
       "CheckTransactionState, too many checks are waiting, the broker will check again",
       "CheckTransactionState, pick transactionListener by group[{group}] failed",
       "checkTransactionState, pick producer by group[{group}] failed",
       "when broker check, client says {state} of this transaction",
       "local transaction execute {state}, but the address of broker {name} is unknown",
       "endTransactionOneway exception, {header}",
       "Broker call checkTransactionState, but checkLocalTransactionState exception",
       "checkLocalTransactionState Exception: {error}", "executeLocalTransactionBranch exception",
       "not a LocalTransactionState: the broker will check again", "send message Exception",
       means="A transaction did not end at once: the listener failed or said nothing, or the broker could not be "
             "reached. The broker asks the producer again.",
       do="Check the transaction listener: it has to answer from stored state, because the question can come much "
          "later.", page="client.md#transactions")
T.line("trace", "send trace data failed, the traceData is {data}", "failed to encode trace: {context}",
       "trace dispatcher start failed",
       means="Message traces could not be sent. Messages themselves are not affected.",
       do="Check that the trace topic RMQ_SYS_TRACE_TOPIC exists (traceTopicEnable), or switch tracing off.",
       page="client.md#message-traces")

# ---- consumers

T.line("flow-control", "{why}, so do flow control, count={count}, size={size} MiB, pullRequest={request}",
       "so do flow control",
       means="The consumer holds as many messages as it may cache (pullThresholdForQueue, pullThresholdSizeForQueue, "
             "or the span of offsets), so it pulls no more for the moment: the listener is slower than the topic.",
       do="Make the listener faster, use more threads or more consumers; more than the number of queues do not help.",
       page=_CONSUME)
T.line("listener-failed", "consumeMessage exception: Group: {group}", "consumeMessage Orderly return not OK, {status}",
       "consumeMessage return {status}, not a ConsumeConcurrentlyStatus", "consumeMessage exception: {error}",
       "consumeMessage return {status}, not a ConsumeOrderlyStatus",
       "the message queue consume result is illegal, we think you want to ack these message",
       "consumeMessageDirectly exception: Group: {group}", "consumeMessage return null, Group: {group}",
       means="The program's listener raised an error or returned no valid result. The messages are delivered again "
             "later, at most maxReconsumeTimes times.",
       do="Correct the listener; the traceback below names the line.", page="client.md#mistakes-in-your-code")
T.line("user-code", "AllocateMessageQueueStrategy.allocate Exception", "messageQueueChanged exception",
       "execute hook error. hookName={name}", "doPullTask Exception", "pull callback exception, {queue}",
       "(further errors with this cause are only counted)",
       means="Code of the program (a hook, a strategy, a callback) failed. The client continues without it.",
       do="Correct the program; the traceback below names the line.", page="client.md#mistakes-in-your-code")
T.line("send-back", "sendMessageBack exception, group: {group} msg: {message}", "sendMessageBack Exception, {group}",
       "BROADCASTING, the message consume failed, drop it, {messages}",
       means="A message whose consumption failed could not be returned to the broker, or is dropped in broadcast "
             "mode. In cluster mode it is consumed again from the client's memory or as a new message.",
       do="Check that the master of its broker is up. In broadcast mode, store failures yourself: they are not "
          "retried.", page="client.md#receive")
T.line("dropped", "processQueue is dropped without process consume result. messageQueue={queue}",
       "run, the message queue not be able to consume, because it's dropped",
       "the message queue not be able to consume, because it's dropped",
       "consumeMessage, the message queue not be able to consume, because it's dropped",
       "No matched consumer for the PullRequest {request}, drop it", "The Pull Task is cancelled, {queue}",
       "PullMessageServiceScheduledThread has shutdown",
       means="A rebalance gave the queue to another member, or the consumer stopped, while messages of it were "
             "waiting. The new owner gets them again.",
       do="Nothing during rebalances. If it repeats, find out why members come and go.", page=_CONSUME)
T.line("queue-lock", "the message queue is not locked or its lock expired, so consume later, {queue}",
       "the message queue locked Failed, Group: {group}", "lockBatchMQ exception, {queues}: {error}",
       "unlockBatchMQ exception, {queues}: {error}",
       "doRebalance, {group}, add a new mq failed, {queue}, because lock failed",
       "unlockBatch, but mq not locked, Group: {group}", "unlockBatch, but mq locked by other client: {client}",
       "tryLockBatch refused, {count} queues are locked",
       "tryLockBatch, message queue locked by other client. Group: {group}",
       "tryLockBatch, message queue lock expired, I got it. Group: {group}",
       "[WRONG]mq is consuming, so can not unlock it, {queue}",
       means="An ordered consumer waits for the lock of a queue that another member still holds, or a lock expired "
             "(60 s). Locks are released within a minute after a member ended.",
       do="Nothing during rebalances. If it lasts, look for a listener that hangs, or for members that run twice.",
       page="client.md#sharing-queues")
T.line("no-topic", "doRebalance, {group}, but the topic[{topic}] not exist.",
       "find the consumer's subscription failed, {request}",
       means="The consumer has no route for a topic that it subscribes to. This is normal for a retry topic before "
             "the first retry.",
       do="Check the topic's name and its route: bin/mqadmin topicRoute -t TOPIC.", page=_CONSUME)
T.line("rebalance-failed", "rebalanceByTopic Exception", "doRebalance exception",
       "doRebalance, {group}, add new mq failed, {queue}", "getConsumerIdListByGroup exception, {address} {group}",
       "doRebalance, {group}, compute offset failed",
       "[BUG]doRebalance, {group}, remove unnecessary mq, {queue}, because pull is pause, so try to fixed it",
       means="A consumer could not decide which queues it owns, or where to begin in one. It tries again after 20 "
             "seconds.",
       do="If it repeats, check that the brokers of the topic can be reached.", page=_CONSUME)
T.line("pull-failed", "execute the pull request exception: {error}", "pullKernelImpl exception: {error}",
       "execute the pull request exception", "An error occurred in pull message process",
       "Failed to get next pull offset: {error}", "Failed to compute pull offset, pullResult: {request}",
       "Pull Message Service Run Method exception", "failed to handle the pull result of {request}",
       "[BUG] pull message result maybe data wrong, nextBeginOffset: {offset}",
       "consumer was paused, execute pull request later",
       means="A pull failed and is repeated after a few seconds. With `paused`, the program suspended the consumer.",
       do="Look up the error at the end of the line; see the broker's log of the same second.", page=_CONSUME)
T.line("offset-store", "fetchConsumeOffsetFromBroker exception, {queue}: {error}",
       "updateConsumeOffsetToBroker exception, {queue}: {error}", "persistConsumerOffset exception",
       "persistAll consumer offset Exception, {file}", "readLocalOffset Exception, {file}",
       "consumerOffset is -1 in messageQueue [{queue}]", "Fetch consume offset from broker exception",
       means="A group's offset could not be read or stored. After a restart the group continues at an older offset: "
             "some messages are delivered twice.",
       do="Check that the queue's master is up; in broadcast mode, the folder of the local offsets.", page=_CONSUME)
T.line("expression", "parse subscription error", "subscription exception", "subscribe exception",
       "consumeTimestamp is invalid", "Out of range [{least}, {most}]", "is larger than consumeThreadMax",
       "Long polling mode, the consumer consumerTimeoutMillisWhenSuspend must greater than brokerSuspendMaxTimeMillis",
       "Seek offset illegal, seek offset = {offset}", "The message queue is not in assigned list",
       "messageModel is null", "allocateMessageQueueStrategy is null", "consumerGroup is null",
       "consumeFromWhere is null", "subscription is null", "messageListener is null",
       "messageListener must be instanceof", "pullCallback is null", "Topic or listener is null", "mq is null",
       "offset < 0", "maxNums <= 0", "tranExecutor is null", "TransactionListener is null",
       "localTransactionBranchCheckListener is null", "producerGroup can not equal {group}",
       "Check client in broker error, maybe because you use {kind} to filter message",
       "Find Filter Server Failed, Broker Addr: {address}",
       means="A setting, a subscription or an offset of the consumer is not valid.",
       do="Correct the program; the text names the setting and its range.", page="client.md#receive")

# ---- the client's connections

T.line("heartbeat", "send heart beat to broker[{broker}] failed", "lock heartBeat, but failed. [{client}]",
       "sending heartbeat, but no consumer and no producer. [{client}]",
       "unregister client exception from broker: {address}",
       means="A heartbeat to a broker failed, or was left out. If a broker gets none for 120 seconds, it drops the "
             "client.",
       do="Nothing, if the broker is down. Otherwise check the network, and pauses of the client.")
T.line("query", "query message by id finished, but no message", "look message by offset failed, {offset}",
       "Invoke Broker[{address}] exception", "queryMessage exception, {address}: {error}",
       "getResponseCommand failed, {code} {remark}",
       "queryMessage, find message key not matched, maybe hash duplicate {message}",
       "can not find message, maybe time range not correct", "query message by key finished, but no message",
       "can not find message by the offset, {offset}", "No message begins at the offset {offset}",
       means="A query by key or id failed at a broker, found nothing, or met a key with an equal hash.",
       do="Check the topic and the time range; expired messages and their index entries are gone.",
       page="mqadmin.md#sub-commands")
