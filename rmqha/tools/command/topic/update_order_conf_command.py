"""mqadmin updateOrderConf."""
from collections.abc import Iterator

from rmqha.common.namesrv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import JavaException


class UpdateOrderConfCommand(SubCommand):
    """Sets, shows or deletes which queues an ordered topic has: `broker-a:4;broker-b:4`.

    Java: org.apache.rocketmq.tools.command.topic.UpdateOrderConfCommand (4.9.8)
    """

    command_name = "updateOrderConf"
    command_desc = "Create or update or delete order conf"
    options = (
        option("t", "topic", "topic name", required=True),
        option("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]"),
        option("m", "method", "option type [eg. put|get|delete", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask or tell the name servers."""
        topic, method = command_line.required("t"), command_line.required("m")
        if method == "get":
            conf = admin.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
            yield f"get orderConf success. topic=[{topic}], orderConf=[{conf}] "
        elif method == "put":
            conf = command_line.text("v", "")
            if not conf:
                raise JavaException("please set orderConf with option -v.")
            admin.create_or_update_order_conf(topic, conf, True)
            yield f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"
        elif method == "delete":
            admin.delete_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
            yield f"delete orderConf success. topic=[{topic}]"
        else:
            yield self.help()
