"""Where accounts are."""
from collections.abc import Generator

from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine
from rmqha.tools.command.output import Part


def chosen_brokers(admin: DefaultMQAdminExt, command_line: CommandLine) -> Generator[Part, None, list[str]]:
    """The broker of option b, else all brokers of the cluster of option c, masters and slaves."""
    if command_line.has_option("b"):
        return [command_line.required("b")]
    addrs = yield from command_util.fetch_master_and_slave_addr_by_cluster_name(admin, command_line.required("c"))
    return addrs
