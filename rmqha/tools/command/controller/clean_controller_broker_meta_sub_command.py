"""mqadmin cleanBrokerMetadata."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli
from rmqha.tools.command.commons_cli import CommandLine, NumberFormatException, flag, option
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.command.sub_command_exception import JavaException


class CleanControllerBrokerMetaSubCommand(SubCommand):
    """Has the controller forget replicas.

    Java: org.apache.rocketmq.tools.command.controller.CleanControllerBrokerMetaSubCommand (5.1.4)
    """

    command_name = "cleanBrokerMetadata"
    command_desc = "Clean metadata of broker on controller."
    options = (
        option("a", "controllerAddress", "The address of controller", required=True),
        option("b", "brokerControllerIdsToClean",
               "The brokerController id list which requires to clean metadata. eg: 1;2;3, means that clean broker-1, "
               "broker-2 and broker-3"),
        option("bn", "brokerName", "The broker name of the replicas that require to be manipulated", required=True),
        option("c", "clusterName", "The clusterName of broker"),
        flag("l", "cleanLivingBroker", "Whether clean up living brokers,default value is false"),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the leading controller."""
        name, cluster, ids = command_line.required("bn"), command_line.text("c"), command_line.text("b")
        living = command_line.has_option("l")
        if ids is not None:
            _check(ids)
        if not living and not cluster:
            raise JavaException("cleanLivingBroker option is false, clusterName option can not be empty.")
        admin.clean_controller_broker_data(command_line.required("a"), cluster, name, ids, living)
        yield f"clear broker {name} metadata from controller success! \n"


def _check(ids: str) -> None:
    # Differs: an id that is not a number is refused here; 5.1.4's check never runs, and its controller fails
    try:
        for each in ids.split(";"):
            commons_cli.parse_long(each)
    except NumberFormatException as error:
        raise JavaException(
            "please set the option <brokerControllerIdsToClean> according to the format") from error
