"""The commands of mqadmin: the text of `mqadmin help` for each, and its class, which is imported when it runs."""
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rmqha.tools.command.sub_command import SubCommand


class Listed:
    """A command as `mqadmin help` lists it; `target` is module:class, in this package."""

    __slots__ = ("_target", "command_alias", "command_desc", "command_name")

    def __init__(self, command_name: str, command_desc: str, target: str, command_alias: str | None = None) -> None:
        self.command_name = command_name
        self.command_desc = command_desc
        self.command_alias = command_alias
        self._target = target

    def load(self) -> "type[SubCommand]":
        """Import and return the command's class."""
        module, _, name = self._target.partition(":")
        command: type[SubCommand] = getattr(import_module(f"{__package__}.{module}"), name)
        return command


# The commands of automatic failover, which 4.9 does not have.
SUB_COMMANDS_OF_5 = (
    Listed("getControllerMetaData", "Get controller cluster's metadata.", "controller:GetControllerMetaDataSubCommand"),
    Listed("getControllerConfig", "Get controller config.", "controller:GetControllerConfigSubCommand"),
    Listed("updateControllerConfig", "Update controller config.", "controller:UpdateControllerConfigSubCommand"),
    Listed("electMaster", "Re-elect the specified broker as master.", "controller:ReElectMasterSubCommand"),
    Listed("cleanBrokerMetadata", "Clean metadata of broker on controller.",
           "controller:CleanControllerBrokerMetaSubCommand"),
    Listed("getSyncStateSet", "Fetch syncStateSet for target brokers.", "controller:GetSyncStateSetSubCommand"),
    Listed("getBrokerEpoch", "Fetch broker epoch entries.", "broker:GetBrokerEpochSubCommand"),
)
# In the order in which `mqadmin` lists them.
SUB_COMMANDS = (
    Listed("updateTopic", "Update or create topic", "topic:UpdateTopicSubCommand"),
    Listed("deleteTopic", "Delete topic from broker and NameServer.", "topic:DeleteTopicSubCommand"),
    Listed("updateSubGroup", "Update or create subscription group", "consumer:UpdateSubGroupSubCommand"),
    Listed("deleteSubGroup", "Delete subscription group from broker.", "consumer:DeleteSubscriptionGroupCommand"),
    Listed("updateBrokerConfig", "Update broker's config", "broker:UpdateBrokerConfigSubCommand"),
    Listed("updateTopicPerm", "Update topic perm", "topic:UpdateTopicPermSubCommand"),
    Listed("topicRoute", "Examine topic route info", "topic:TopicRouteSubCommand"),
    Listed("topicStatus", "Examine topic Status info", "topic:TopicStatusSubCommand"),
    Listed("topicClusterList", "get cluster info for topic", "topic:TopicClusterSubCommand"),
    Listed("brokerStatus", "Fetch broker runtime status data", "broker:BrokerStatusSubCommand"),
    Listed("queryMsgById", "Query Message by Id", "message_query:QueryMsgByIdSubCommand"),
    Listed("queryMsgByKey", "Query Message by Key", "message_query:QueryMsgByKeySubCommand"),
    Listed("queryMsgByUniqueKey", "Query Message by Unique key", "message_query:QueryMsgByUniqueKeySubCommand"),
    Listed("queryMsgByOffset", "Query Message by offset", "message_query:QueryMsgByOffsetSubCommand"),
    Listed("queryMsgTraceById", "query a message trace",
           "message_query:QueryMsgTraceByIdSubCommand", "QueryMsgTraceById"),
    Listed("printMsg", "Print Message Detail", "message_print:PrintMessageSubCommand"),
    Listed("printMsgByQueue", "Print Message Detail", "message_print:PrintMessageByQueueCommand"),
    Listed("sendMsgStatus", "send msg to broker.", "broker:SendMsgStatusCommand"),
    Listed("brokerConsumeStats", "Fetch broker consume stats data", "broker:BrokerConsumeStatsSubCommad"),
    Listed("producerConnection", "Query producer's socket connection and client version",
           "consumer:ProducerConnectionSubCommand"),
    Listed("consumerConnection", "Query consumer's socket connection, client version and subscription",
           "consumer:ConsumerConnectionSubCommand"),
    Listed("consumerProgress", "Query consumers's progress, speed", "consumer:ConsumerProgressSubCommand"),
    Listed("consumerStatus", "Query consumer's internal data structure", "consumer:ConsumerStatusSubCommand"),
    Listed("cloneGroupOffset", "clone offset from other group.", "offset:CloneGroupOffsetCommand"),
    Listed("producer", "Query producer's instances, connection, status, etc.", "consumer:ProducerSubCommand"),
    Listed("clusterList", "List all of clusters", "controller:ClusterListSubCommand"),
    Listed("topicList", "Fetch all topic list from name server", "topic:TopicListSubCommand"),
    Listed("updateKvConfig", "Create or update KV config.", "namesrv:UpdateKvConfigCommand"),
    Listed("deleteKvConfig", "Delete KV config.", "namesrv:DeleteKvConfigCommand"),
    Listed("wipeWritePerm", "Wipe write perm of broker in all name server you defined in the -n param",
           "namesrv:WipeWritePermSubCommand"),
    Listed("addWritePerm", "Add write perm of broker in all name server you defined in the -n param",
           "namesrv:AddWritePermSubCommand"),
    Listed("resetOffsetByTime", "Reset consumer offset by timestamp(without client restart).",
           "offset:ResetOffsetByTimeCommand"),
    Listed("skipAccumulatedMessage", "Skip all messages that are accumulated (not consumed) currently",
           "offset:SkipAccumulationSubCommand"),
    Listed("updateOrderConf", "Create or update or delete order conf", "topic:UpdateOrderConfCommand"),
    Listed("cleanExpiredCQ", "Clean expired ConsumeQueue on broker.", "broker:CleanExpiredCQSubCommand"),
    Listed("deleteExpiredCommitLog", "Delete expired CommitLog files", "broker:DeleteExpiredCommitLogSubCommand"),
    Listed("cleanUnusedTopic", "Clean unused topic on broker.", "broker:CleanUnusedTopicCommand"),
    Listed("startMonitoring", "Start Monitoring", "consumer:StartMonitoringSubCommand"),
    Listed("statsAll", "Topic and Consumer tps stats", "offset:StatsAllSubCommand"),
    Listed("allocateMQ", "Allocate MQ", "topic:AllocateMQSubCommand"),
    Listed("checkMsgSendRT", "check message send response time", "message_send:CheckMsgSendRTCommand"),
    Listed("clusterRT", "List All clusters Message Send RT", "message_send:CLusterSendMsgRTCommand"),
    Listed("getNamesrvConfig", "Get configs of name server.", "namesrv:GetNamesrvConfigCommand"),
    Listed("updateNamesrvConfig", "Update configs of name server.", "namesrv:UpdateNamesrvConfigCommand"),
    Listed("getBrokerConfig", "Get broker config by cluster or special broker!", "broker:GetBrokerConfigCommand"),
    Listed("getConsumerConfig", "Get consumer config by subscription group name!",
           "consumer:GetConsumerConfigSubCommand"),
    Listed("queryCq", "Query cq command.", "message_print:QueryConsumeQueueCommand"),
    Listed("sendMessage", "Send a message", "message_send:SendMessageCommand"),
    Listed("consumeMessage", "Consume message", "message_print:ConsumeMessageCommand"),
    Listed("updateAclConfig", "Update acl config yaml file in broker", "acl:UpdateAccessConfigSubCommand"),
    Listed("deleteAclConfig", "Delete Acl Config Account in broker",
           "acl:DeleteAccessConfigSubCommand", "deleteAccessConfig"),
    Listed("clusterAclConfigVersion", "List all of acl config version information in cluster",
           "acl:ClusterAclConfigVersionListSubCommand"),
    Listed("updateGlobalWhiteAddr", "Update global white address for acl Config File in broker",
           "acl:UpdateGlobalWhiteAddrSubCommand"),
    Listed("exportMetadata", "export metadata", "export:ExportMetadataCommand"),
    Listed("exportConfigs", "export configs", "export:ExportConfigsCommand"),
    Listed("exportMetrics", "export metrics", "export:ExportMetricsCommand"),
    *SUB_COMMANDS_OF_5,
)
