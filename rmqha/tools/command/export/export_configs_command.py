"""mqadmin exportConfigs."""
from collections.abc import Iterator

from rmqha.common import mix_all
from rmqha.remoting.protocol import fastjson
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Document, Part
from rmqha.tools.command.sub_command import SubCommand

DEFAULT_FILE_PATH = "/tmp/rocketmq/export"
KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)


class ExportConfigsCommand(SubCommand):
    """Writes the main settings of a cluster's brokers, and how many there are, into `configs.json`.

    Java: org.apache.rocketmq.tools.command.export.ExportConfigsCommand (4.9.8)
    """

    command_name = "exportConfigs"
    command_desc = "export configs"
    options = (
        option("c", "clusterName", "choose a cluster to export", required=True),
        option("f", "filePath", "export configs.json path | default /tmp/rocketmq/export"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the masters, write the file."""
        brokers = yield from command_util.fetch_master_and_slave_distinguish(admin, command_line.required("c"))
        configs = {}
        # Differs: a broker without a master is passed over; the original asks a name server for its settings, and fails
        masters = [master for master, _ in brokers if master is not None]
        for master in masters:
            settings = admin.get_broker_config(master)
            configs[settings["brokerName"]] = {key: settings[key] for key in KEYS if key in settings}
        yield from export({
            "brokerConfigs": configs,
            "clusterScale": {
                "namesrvSize": len(admin.get_name_server_address_list()),
                "masterBrokerSize": len(masters),
                "slaveBrokerSize": sum(len(slaves) for _, slaves in brokers),
            },
        }, f"{file_path(command_line)}/configs.json")


def file_path(command_line: CommandLine) -> str:
    """The folder to write to."""
    return command_line.text("f", DEFAULT_FILE_PATH)


def export(value: object, path: str, end: str = "") -> Iterator[Part]:
    """Write a file; what to print of it."""
    mix_all.string2file_not_safe(fastjson.dumps(value, pretty=True), path)
    yield Document(f"export {path} success{end}", {"file": path})
