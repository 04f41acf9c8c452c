"""mqadmin: finds the sub-command, reads its options, runs it."""
import os
import sys

from rmqha import __version__
from rmqha.common import filesystem, logs, mix_all
from rmqha.common.program import Interruptible, exit_code, run_while_read
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.command import commons_cli
from rmqha.tools.command.acl.cluster_acl_config_version_list_sub_command import ClusterAclConfigVersionListSubCommand
from rmqha.tools.command.acl.delete_access_config_sub_command import DeleteAccessConfigSubCommand
from rmqha.tools.command.acl.update_access_config_sub_command import UpdateAccessConfigSubCommand
from rmqha.tools.command.acl.update_global_white_addr_sub_command import UpdateGlobalWhiteAddrSubCommand
from rmqha.tools.command.broker.broker_consume_stats_sub_commad import BrokerConsumeStatsSubCommad
from rmqha.tools.command.broker.broker_status_sub_command import BrokerStatusSubCommand
from rmqha.tools.command.broker.cleaning_commands import (
    CleanExpiredCQSubCommand,
    CleanUnusedTopicCommand,
    DeleteExpiredCommitLogSubCommand,
)
from rmqha.tools.command.broker.get_broker_config_command import GetBrokerConfigCommand
from rmqha.tools.command.broker.get_broker_epoch_sub_command import GetBrokerEpochSubCommand
from rmqha.tools.command.broker.send_msg_status_command import SendMsgStatusCommand
from rmqha.tools.command.broker.update_broker_config_sub_command import UpdateBrokerConfigSubCommand
from rmqha.tools.command.cluster.c_luster_send_msg_rt_command import CLusterSendMsgRTCommand
from rmqha.tools.command.cluster.cluster_list_sub_command import ClusterListSubCommand
from rmqha.tools.command.commons_cli import CommandLine, ParseException
from rmqha.tools.command.connection.consumer_connection_sub_command import ConsumerConnectionSubCommand
from rmqha.tools.command.connection.producer_connection_sub_command import ProducerConnectionSubCommand
from rmqha.tools.command.consumer.consumer_progress_sub_command import ConsumerProgressSubCommand
from rmqha.tools.command.consumer.consumer_status_sub_command import ConsumerStatusSubCommand
from rmqha.tools.command.consumer.delete_subscription_group_command import DeleteSubscriptionGroupCommand
from rmqha.tools.command.consumer.get_consumer_config_sub_command import GetConsumerConfigSubCommand
from rmqha.tools.command.consumer.start_monitoring_sub_command import StartMonitoringSubCommand
from rmqha.tools.command.consumer.update_sub_group_sub_command import UpdateSubGroupSubCommand
from rmqha.tools.command.controller.clean_controller_broker_meta_sub_command import CleanControllerBrokerMetaSubCommand
from rmqha.tools.command.controller.controller_config_commands import (
    GetControllerConfigSubCommand,
    UpdateControllerConfigSubCommand,
)
from rmqha.tools.command.controller.get_controller_meta_data_sub_command import GetControllerMetaDataSubCommand
from rmqha.tools.command.controller.re_elect_master_sub_command import ReElectMasterSubCommand
from rmqha.tools.command.export.export_configs_command import ExportConfigsCommand
from rmqha.tools.command.export.export_metadata_command import ExportMetadataCommand
from rmqha.tools.command.export.export_metrics_command import ExportMetricsCommand
from rmqha.tools.command.ha.get_sync_state_set_sub_command import GetSyncStateSetSubCommand
from rmqha.tools.command.message.check_msg_send_rt_command import CheckMsgSendRTCommand
from rmqha.tools.command.message.consume_message_command import ConsumeMessageCommand
from rmqha.tools.command.message.print_message_by_queue_command import PrintMessageByQueueCommand
from rmqha.tools.command.message.print_message_sub_command import PrintMessageSubCommand
from rmqha.tools.command.message.query_msg_by_id_sub_command import QueryMsgByIdSubCommand
from rmqha.tools.command.message.query_msg_by_key_sub_command import QueryMsgByKeySubCommand
from rmqha.tools.command.message.query_msg_by_offset_sub_command import QueryMsgByOffsetSubCommand
from rmqha.tools.command.message.query_msg_by_unique_key_sub_command import QueryMsgByUniqueKeySubCommand
from rmqha.tools.command.message.query_msg_trace_by_id_sub_command import QueryMsgTraceByIdSubCommand
from rmqha.tools.command.message.send_message_command import SendMessageCommand
from rmqha.tools.command.namesrv.kv_config_commands import DeleteKvConfigCommand, UpdateKvConfigCommand
from rmqha.tools.command.namesrv.namesrv_config_commands import GetNamesrvConfigCommand, UpdateNamesrvConfigCommand
from rmqha.tools.command.namesrv.write_perm_commands import AddWritePermSubCommand, WipeWritePermSubCommand
from rmqha.tools.command.offset.clone_group_offset_command import CloneGroupOffsetCommand
from rmqha.tools.command.offset.reset_offset_by_time_command import ResetOffsetByTimeCommand
from rmqha.tools.command.offset.skip_accumulation_sub_command import SkipAccumulationSubCommand
from rmqha.tools.command.output import JsonRenderer, Renderer, TextRenderer
from rmqha.tools.command.producer.producer_sub_command import ProducerSubCommand
from rmqha.tools.command.queue.query_consume_queue_command import QueryConsumeQueueCommand
from rmqha.tools.command.stack_trace import stack_trace
from rmqha.tools.command.stats.stats_all_sub_command import StatsAllSubCommand
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import SubCommandException
from rmqha.tools.command.topic.allocate_mq_sub_command import AllocateMQSubCommand
from rmqha.tools.command.topic.delete_topic_sub_command import DeleteTopicSubCommand
from rmqha.tools.command.topic.topic_cluster_sub_command import TopicClusterSubCommand
from rmqha.tools.command.topic.topic_list_sub_command import TopicListSubCommand
from rmqha.tools.command.topic.topic_route_sub_command import TopicRouteSubCommand
from rmqha.tools.command.topic.topic_status_sub_command import TopicStatusSubCommand
from rmqha.tools.command.topic.update_order_conf_command import UpdateOrderConfCommand
from rmqha.tools.command.topic.update_topic_perm_sub_command import UpdateTopicPermSubCommand
from rmqha.tools.command.topic.update_topic_sub_command import UpdateTopicSubCommand

# Those of automatic failover, which 4.9 has not.
SUB_COMMANDS_OF_5: tuple[type[SubCommand], ...] = (
    GetControllerMetaDataSubCommand,
    GetControllerConfigSubCommand,
    UpdateControllerConfigSubCommand,
    ReElectMasterSubCommand,
    CleanControllerBrokerMetaSubCommand,
    GetSyncStateSetSubCommand,
    GetBrokerEpochSubCommand,
)
# In the order in which `mqadmin` lists them.
SUB_COMMANDS: tuple[type[SubCommand], ...] = (
    UpdateTopicSubCommand,
    DeleteTopicSubCommand,
    UpdateSubGroupSubCommand,
    DeleteSubscriptionGroupCommand,
    UpdateBrokerConfigSubCommand,
    UpdateTopicPermSubCommand,
    TopicRouteSubCommand,
    TopicStatusSubCommand,
    TopicClusterSubCommand,
    BrokerStatusSubCommand,
    QueryMsgByIdSubCommand,
    QueryMsgByKeySubCommand,
    QueryMsgByUniqueKeySubCommand,
    QueryMsgByOffsetSubCommand,
    QueryMsgTraceByIdSubCommand,
    PrintMessageSubCommand,
    PrintMessageByQueueCommand,
    SendMsgStatusCommand,
    BrokerConsumeStatsSubCommad,
    ProducerConnectionSubCommand,
    ConsumerConnectionSubCommand,
    ConsumerProgressSubCommand,
    ConsumerStatusSubCommand,
    CloneGroupOffsetCommand,
    ProducerSubCommand,
    ClusterListSubCommand,
    TopicListSubCommand,
    UpdateKvConfigCommand,
    DeleteKvConfigCommand,
    WipeWritePermSubCommand,
    AddWritePermSubCommand,
    ResetOffsetByTimeCommand,
    SkipAccumulationSubCommand,
    UpdateOrderConfCommand,
    CleanExpiredCQSubCommand,
    DeleteExpiredCommitLogSubCommand,
    CleanUnusedTopicCommand,
    StartMonitoringSubCommand,
    StatsAllSubCommand,
    AllocateMQSubCommand,
    CheckMsgSendRTCommand,
    CLusterSendMsgRTCommand,
    GetNamesrvConfigCommand,
    UpdateNamesrvConfigCommand,
    GetBrokerConfigCommand,
    GetConsumerConfigSubCommand,
    QueryConsumeQueueCommand,
    SendMessageCommand,
    ConsumeMessageCommand,
    UpdateAccessConfigSubCommand,
    DeleteAccessConfigSubCommand,
    ClusterAclConfigVersionListSubCommand,
    UpdateGlobalWhiteAddrSubCommand,
    ExportMetadataCommand,
    ExportConfigsCommand,
    ExportMetricsCommand,
    *SUB_COMMANDS_OF_5,
)
TEXT, JSON = "text", "json"
_HELP = ("help", "-h", "--help")


def main(argv: list[str] | None = None) -> int:
    """Run a sub-command; the exit code: 0, also of a command that failed; 1 for a wrong command line.

    With `--output json` a command that failed has exit code 1.

    Java: org.apache.rocketmq.tools.command.MQAdminStartup (4.9.8)
    """
    try:
        with Interruptible():
            logs.setup_tools_logging()
            return main0(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt as interrupt:  # the way to end clusterRT, clusterList -i and startMonitoring
        return exit_code(interrupt)


def main0(args: list[str]) -> int:
    """The same for arguments."""
    # Differs: 4.9 takes these for the names of commands, which do not exist
    if not args or (len(args) == 1 and args[0] in _HELP):
        sys.stdout.write(list_text())
        return 0
    if args == ["--version"]:
        sys.stdout.write(f"mqadmin {__version__}\n")
        return 0
    asks_help = len(args) == 2 and args[0] in _HELP
    name = args[1] if asks_help else args[0]
    command = find_sub_command(name)
    if command is None:
        sys.stdout.write(f"The sub command {name} not exist.\n")
        return 0
    if asks_help:
        sys.stdout.write(command.help() + _output_help(command))
        return 0
    try:
        command_line = commons_cli.parse(command.options_to_parse(), args[1:])
        renderer = _renderer(command_line)
    except ParseException as error:
        sys.stdout.write(command.help() + _output_help(command))
        # Differs: says what is wrong with a command line, on standard error, where Java prints the help alone
        sys.stderr.write(f"{error}\n")
        return 1
    if command_line.has_option("h"):
        sys.stdout.write(command.help() + _output_help(command))
        return 0
    return _run(command(), command_line, renderer)


def _run(command: SubCommand, command_line: CommandLine, renderer: Renderer) -> int:
    try:
        command.run(command_line, renderer, get_acl_rpc_hook())
    except SubCommandException as error:
        sys.stdout.flush()
        sys.stderr.write(stack_trace(error))
        if command.asks_name_server and command_line.text("n") is None and not os.environ.get(mix_all.NAMESRV_ADDR_ENV):
            sys.stderr.write("No name server: give it with -n host:port, or in NAMESRV_ADDR.\n")
        return renderer.exit_code_of_failure
    return 0


def _renderer(command_line: CommandLine) -> Renderer:
    form = JSON if command_line.has_option("json") else command_line.text("output", TEXT)
    if form not in (TEXT, JSON):
        raise ParseException(f"--output {form}: text or json")
    return JsonRenderer() if form == JSON else TextRenderer()


def find_sub_command(name: str) -> type[SubCommand] | None:
    """The command of a name or an alias, in whatever case."""
    for command in SUB_COMMANDS:
        if name.lower() in (command.command_name.lower(), (command.command_alias or command.command_name).lower()):
            return command
    return None


def list_text() -> str:
    """All commands, as the original prints them."""
    lines = [f"   {command.command_name:<20} {command.command_desc}\n" for command in SUB_COMMANDS]
    return ("The most commonly used mqadmin commands are:\n" + "".join(lines)
            + "\nSee 'mqadmin help <command>' for more information on a specific command.\n")


def _output_help(command: type[SubCommand]) -> str:
    short = "-o json, " if command.build_commandline_options().find("o") is None else ""
    return f"{short}--output json or --json prints rows and documents as JSON, an object a line.\n"


def get_acl_rpc_hook() -> RPCHook | None:
    """What signs the requests with the account in conf/tools.yml below the home; None without such a file."""
    file = filesystem.rocketmq_home() / "conf" / "tools.yml"
    if not file.exists():
        return None
    from rmqha.acl import acl_files  # reading YAML takes a library that those without accounts need not have

    return acl_files.get_acl_rpc_hook(str(file))


if __name__ == "__main__":
    sys.exit(run_while_read(main))
