"""mqadmin getControllerConfig and updateControllerConfig."""
from collections.abc import Iterator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.namesrv.namesrv_config_commands import settings_of
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand

_ADDRESSES = option("a", "controllerAddress", "Controller address list, eg: 192.168.0.1:9878;192.168.0.2:9878",
                    required=True)


def _controllers(command_line: CommandLine) -> list[str]:
    return [each.strip() for each in command_line.required("a").split(";") if each.strip()]


class GetControllerConfigSubCommand(SubCommand):
    """All settings of controllers.

    Java: org.apache.rocketmq.tools.command.controller.GetControllerConfigSubCommand (5.1.4)
    """

    command_name = "getControllerConfig"
    command_desc = "Get controller config."
    options = (_ADDRESSES,)
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the controllers."""
        yield from settings_of("controllerAddress", admin.get_controller_config(_controllers(command_line)))


class UpdateControllerConfigSubCommand(SubCommand):
    """Changes a setting of controllers while they run.

    Java: org.apache.rocketmq.tools.command.controller.UpdateControllerConfigSubCommand (5.1.4)
    """

    command_name = "updateControllerConfig"
    command_desc = "Update controller config."
    options = (
        _ADDRESSES,
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )
    asks_name_server = False

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Tell the controllers."""
        key, value, controllers = command_line.required("k"), command_line.required("v"), _controllers(command_line)
        admin.update_controller_config({key: value}, controllers)
        yield f"update controller config success![{', '.join(controllers)}]\n{key} : {value}\n"
