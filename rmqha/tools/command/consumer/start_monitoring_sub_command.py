"""mqadmin startMonitoring."""
from collections.abc import Iterator

from rmqha.common.program import StopSignal
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command import SubCommand
from rmqha.tools.monitor.monitor_listener import DefaultMonitorListener
from rmqha.tools.monitor.monitor_service import MonitorConfig, MonitorService


class StartMonitoringSubCommand(SubCommand):
    """Watch all groups until the user ends it; findings go to the client's log.

    Java: org.apache.rocketmq.tools.command.consumer.StartMonitoringSubCommand (4.9.8)
    """

    command_name = "startMonitoring"
    command_desc = "Start Monitoring"

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Start, and wait."""
        service = MonitorService(MonitorConfig(admin.namesrv_addr), DefaultMonitorListener(), admin.rpc_hook)
        try:
            service.start()
            self._ended.wait()
        finally:
            service.shutdown()
        yield from ()

    def __init__(self) -> None:
        self._ended = StopSignal()  # an Event may miss the interrupt that comes while it begins to wait

    def end(self) -> None:
        """Let `execute` come to its end."""
        self._ended.set()
