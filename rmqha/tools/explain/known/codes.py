"""Codes: of responses, requests, client errors and exits of programs."""
from rmqha.tools.explain.entry import Kind, Table

_SEND = "how-to/troubleshooting.md#sending"
_CONSUME = "how-to/troubleshooting.md#consuming"
_FAILOVER = "how-to/troubleshooting.md#failover"
_CHECKS = "config-keys.md#delayed-and-transactional-messages"
T = Table("code")
_R = Kind.RESPONSE

for _code, _name, _means, _do, _page in (
    (0, "SUCCESS", "The request was carried out. For a send: the message is stored as the broker's settings promise.",
     "Nothing.", "explanation/durability.md"),
    (1, "SYSTEM_ERROR", "The server could not carry out the request; the remark (DESC) says why. For a send, the "
     "message may or may not be stored.", "Look up the remark. Without one, see the server's log of the same second.",
     _SEND),
    (2, "SYSTEM_BUSY", "The server has too much to do and refused the request before it began. For a send, nothing "
     "was stored.", "Retry; clients do. The remark names the queue that is full.", _SEND),
    (3, "REQUEST_CODE_NOT_SUPPORTED", "The server does not know the request: another kind of server, or another "
     "version of RocketMQ.", "Check the address and the client's version.", "reference/request-codes.md"),
    (4, "TRANSACTION_FAILED", "Reserved for failed transactions; brokers of 4.9 do not send it.",
     "Check which software answers.", _CHECKS),
    (10, "FLUSH_DISK_TIMEOUT", "The message is in the master's memory, but the disk did not confirm it within "
     "syncFlushTimeout (SYNC_FLUSH). It may be delivered.", "Treat the send as not safe, and resend if duplicates are "
     "acceptable. Check the disk.", _SEND),
    (11, "SLAVE_NOT_AVAILABLE", "The master (SYNC_MASTER) has stored the message, but no slave is connected and close "
     "enough (haSlaveFallbehindMax). It is delivered.", "`rmqha ha status` shows the slave's state: start it, or use "
     "ASYNC_MASTER.", _SEND),
    (12, "FLUSH_SLAVE_TIMEOUT", "The master has stored the message, but its slave did not confirm it within "
     "slaveTimeout. It may be delivered.", "Treat the send as not safe, and resend if duplicates are acceptable. "
     "Check the slave's lag.", _SEND),
    (13, "MESSAGE_ILLEGAL", "The message is too large, its properties exceed 32 KiB, or its topic is not valid. It is "
     "not stored.", "Correct the producer, or raise maxMessageSize.", _SEND),
    (14, "SERVICE_NOT_AVAILABLE", "The broker accepts no messages now: its disk is full, it is a slave, it shuts "
     "down, or its store is read-only. Nothing was stored.", "The remark shows how full the disks are; store.log has "
     "the first ERROR.", _SEND),
    (15, "VERSION_NOT_SUPPORTED", "The server does not support this version of a request; brokers of 4.9 do not send "
     "it.", "Check the client's version.", "reference/request-codes.md"),
    (16, "NO_PERMISSION", "The broker, the topic, the group or the account does not permit this; the remark says "
     "which.", "Look up the remark: brokerPermission, the topic's perm, consumeEnable, or access control.", "acl.md"),
    (17, "TOPIC_NOT_EXIST", "The server does not have the topic: no route at a name server, or no topic at a broker.",
     "Create the topic: bin/mqadmin updateTopic -c CLUSTER -t TOPIC.", _SEND),
    (18, "TOPIC_EXIST_ALREADY", "The topic exists already; servers of 4.9 do not send it.",
     "Check which software answers.", _SEND),
    (19, "PULL_NOT_FOUND", "The queue has no new message now. Consumers ask again automatically.", "Nothing.",
     _CONSUME),
    (20, "PULL_RETRY_IMMEDIATELY", "The messages in this part of the queue do not match the filter, or the offset "
     "changed: the consumer asks again at the offset in the answer.", "Nothing.", _CONSUME),
    (21, "PULL_OFFSET_MOVED", "The queue does not have the wanted offset; the answer has the one to continue at.",
     "If messages expired, consume faster or raise fileReservedTime.", _CONSUME),
    (22, "QUERY_NOT_FOUND", "A query found nothing: no message with the key, or no stored offset of the group yet.",
     "Nothing for a new group. Otherwise check topic, key and time range.", _CONSUME),
    (23, "SUBSCRIPTION_PARSE_FAILED", "The filter expression of the subscription is not valid.",
     "Correct the expression.", _CONSUME),
    (24, "SUBSCRIPTION_NOT_EXIST", "The broker does not know the group's subscription: just after a start, or because "
     "members of one group have different subscriptions.", "Give all members the same subscriptions.", _CONSUME),
    (25, "SUBSCRIPTION_NOT_LATEST", "The broker knows an older subscription of the group than the consumer.",
     "Nothing for some seconds; then as for SUBSCRIPTION_NOT_EXIST.", _CONSUME),
    (26, "SUBSCRIPTION_GROUP_NOT_EXIST", "The broker does not know the group, and does not create it "
     "(autoCreateSubscriptionGroup=false).", "bin/mqadmin updateSubGroup -c CLUSTER -g GROUP.", _CONSUME),
    (27, "FILTER_DATA_NOT_EXIST", "The broker has no compiled filter for the group's expression.", "Correct the "
     "expression; restart the consumer if it is right.", _CONSUME),
    (28, "FILTER_DATA_NOT_LATEST", "The broker has an older filter of the group than the consumer.", "Nothing for "
     "some seconds; then check that all members use the same expression.", _CONSUME),
    (200, "TRANSACTION_SHOULD_COMMIT", "Reserved for transactions; brokers of 4.9 do not send it.",
     "Check which software answers.", _CHECKS),
    (201, "TRANSACTION_SHOULD_ROLLBACK", "Reserved for transactions; brokers of 4.9 do not send it.",
     "Check which software answers.", _CHECKS),
    (202, "TRANSACTION_STATE_UNKNOW", "Reserved for transactions; brokers of 4.9 do not send it.",
     "Check which software answers.", _CHECKS),
    (203, "TRANSACTION_STATE_GROUP_WRONG", "Reserved for transactions; brokers of 4.9 do not send it.",
     "Check which software answers.", _CHECKS),
    (204, "NO_BUYER_ID", "A producer used a unit-mode topic without a buyer id. Neither rmqha nor 4.9 sends it.",
     "Check which software answers.", "client.md#errors-of-sends"),
    (205, "NOT_IN_CURRENT_UNIT", "A message belongs to another unit. Neither rmqha nor 4.9 sends it.",
     "Check which software answers.", "client.md#errors-of-sends"),
    (206, "CONSUMER_NOT_ONLINE", "No member of the group is connected to the broker.", "Start a consumer of the "
     "group, or use a command that works for offline groups.", _CONSUME),
    (207, "CONSUME_MSG_TIMEOUT", "A consumer asked to consume a message directly did not answer in time.",
     "Check its listener.", _CONSUME),
    (208, "NO_MESSAGE", "No message has this id or key.", "Check the id, the topic and the time range; it may have "
     "expired.", _CONSUME),
    (209, "UPDATE_AND_CREATE_ACL_CONFIG_FAILED", "An account could not be changed; the remark says why.", "Correct "
     "the account or the permissions of the file.", "acl.md"),
    (210, "DELETE_ACL_CONFIG_FAILED", "An account could not be deleted; the remark says why.",
     "Check its name and the permissions of the file.", "acl.md"),
    (211, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED", "The global white list could not be changed; the remark says why.",
     "Correct the addresses or the permissions of the file.", "acl.md"),
    (215, "FLOW_CONTROL", "A broker (5.x) limits the rate of the client.", "Send or pull more slowly; clients wait "
     "and retry.", "client.md#errors-of-sends"),
    (2000, "CONTROLLER_FENCED_MASTER_EPOCH", "The request names another mastership than the current one: the broker "
     "is no longer the master.", "Nothing: it reads the current state and follows it.", _FAILOVER),
    (2001, "CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH", "The request changes an older sync-state set than the current "
     "one.", "Nothing: the broker reads the current one and asks again.", _FAILOVER),
    (2002, "CONTROLLER_INVALID_MASTER", "The request comes from a broker that is not the master of this name.",
     "Nothing just after a failover; otherwise see `rmqha ha status`.", _FAILOVER),
    (2003, "CONTROLLER_INVALID_REPLICAS", "The sync-state set names replicas that the controller does not know.",
     "Nothing if it ends; otherwise compare the replicas in `rmqha ha status`.", _FAILOVER),
    (2004, "CONTROLLER_MASTER_NOT_AVAILABLE", "The broker name has no master, and none can be elected.", "Start a "
     "replica of the sync-state set; `rmqha ha status` names them.", _FAILOVER),
    (2005, "CONTROLLER_INVALID_REQUEST", "The request to a controller is malformed.", "Check the version of the "
     "broker or tool that sent it.", _FAILOVER),
    (2006, "CONTROLLER_BROKER_NOT_ALIVE", "A replica in the request sends no heartbeats to the controller.",
     "Start it, or check the network between it and the controllers.", _FAILOVER),
    (2007, "CONTROLLER_NOT_LEADER", "This controller does not lead. Brokers ask the leader next.",
     "Nothing; tools need all controllers' addresses.", _FAILOVER),
    (2008, "CONTROLLER_BROKER_METADATA_NOT_EXIST", "The controllers have no record of this broker name or replica.",
     "Check that they use their usual storage; the broker registers again.", _FAILOVER),
    (2009, "CONTROLLER_INVALID_CLEAN_BROKER_METADATA", "cleanBrokerMetadata was refused: the replicas are alive, or "
     "not named correctly.", "Stop them first, or name them as `rmqha ha status` does.", _FAILOVER),
    (2010, "CONTROLLER_BROKER_NEED_TO_BE_REGISTERED", "The replica is not registered at the controllers yet.",
     "Nothing: it registers automatically.", _FAILOVER),
    (2011, "CONTROLLER_MASTER_STILL_EXIST", "No election is needed: the master is alive.", "Nothing.", _FAILOVER),
    (2012, "CONTROLLER_ELECT_MASTER_FAILED", "No replica may become the master.", "Start a replica of the sync-state "
     "set; `rmqha ha status` says why others may not lead.", _FAILOVER),
    (2013, "CONTROLLER_ALTER_SYNC_STATE_SET_FAILED", "The controller could not change the sync-state set.", "Nothing "
     "if it ends: the master asks again. Otherwise check the controllers' storage.", _FAILOVER),
    (2014, "CONTROLLER_BROKER_ID_INVALID", "The broker id does not belong to this replica: another one reserved it.",
     "Check that no store or brokerIdentity file was copied.", _FAILOVER),
    (30001, "RELAY_NOT_MASTER", "A broker answered another one that relays to it: it is not the master that accepts "
     "messages. Clients never get this code.", "Nothing: the other broker looks for the master again.", _FAILOVER),
):
    T.code(_R, _code, _name, _means, _do, _page)

_C = Kind.CLIENT
for _code, _name, _means, _do, _page in (
    (-1, "", "An error at the client that has no code; its text says what failed.", "Look up the text.", "client.md"),
    (10001, "CONNECT_BROKER_EXCEPTION", "The last try of a send could not connect to a broker.", "Check that the "
     "brokers run and can be reached at the addresses that clusterList shows.", _SEND),
    (10002, "ACCESS_BROKER_TIMEOUT", "The last try of a send got no answer in time. The message may be stored.",
     "Check the broker's load and its log of the same second.", _SEND),
    (10003, "BROKER_NOT_EXIST_EXCEPTION", "The last try of a send failed at the client: the route names no address "
     "for the broker.", "Start the broker, or wait for the next route.", _SEND),
    (10004, "NO_NAME_SERVER_EXCEPTION", "The client has no name server address.",
     "Set it in the client, or in NAMESRV_ADDR.", _SEND),
    (10005, "NOT_FOUND_TOPIC_EXCEPTION", "No name server has a route of the topic.", "Create the topic, or correct "
     "the name server address.", _SEND),
    (10006, "REQUEST_TIMEOUT_EXCEPTION", "A request was sent, and no reply arrived in time.", "Check that a consumer "
     "replies; raise the time-out.", "client.md#request-and-reply"),
    (10007, "CREATE_REPLY_MESSAGE_EXCEPTION", "A reply cannot be made: the message is not a request.", "Reply only to "
     "messages of the producer's request().", "client.md#request-and-reply"),
):
    T.code(_C, _code, _name, _means, _do, _page)

_E = Kind.EXIT
_START = "how-to/troubleshooting.md#start-and-stop"
for _code, _name, _means, _do, _page in (
    (2, "", "Servers: the configuration is invalid, and nothing was started. Commands of rmqha: wrong usage, or no "
     "server answers; `rmqha check`: CRITICAL.", "The line on standard error names file, line and key; `rmqha config "
     "check FILE` shows all errors.", _START),
    (70, "", "A server ended because the thread of one of its ports failed for good.", "Let systemd restart it; "
     "report the CRITICAL or ERROR line and its traceback.", _START),
    (253, "", "The broker's store or a table could not be loaded.", "Look for ERROR in store.log and broker.log; "
     "`rmqha store verify ROOT` lists all flaws.", _START),
    (255, "", "The server could not start: a port is in use, another broker holds the store, or an unexpected error.",
     "The last lines on standard error and in the log name it.", _START),
    (130, "", "The command was interrupted by Ctrl-C.", "Nothing.", "commands.md#exit-codes"),
    (143, "", "The program was ended by SIGTERM: by a stop of the service, or of the container.",
     "Nothing, if it was intended.", "commands.md#exit-codes"),
    (137, "", "The process was killed by SIGKILL: by a supervisor whose time limit had passed, or by the kernel for "
     "lack of memory.", "Look for `Killed process` in dmesg; raise TimeoutStopSec= or the memory limit.",
     "clusters.md#under-systemd"),
    (129, "", "The program was ended by SIGHUP: its terminal was closed.", "Use nohup, systemd, or `rmqha up`.",
     "commands.md#exit-codes"),
):
    T.code(_E, _code, _name, _means, _do, _page)
