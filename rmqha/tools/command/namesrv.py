"""mqadmin commands for name servers: key-value table, settings, and write permission of brokers.

Commands: updateKvConfig, deleteKvConfig, getNamesrvConfig, updateNamesrvConfig, wipeWritePerm, addWritePerm.
"""
import abc
from collections.abc import Iterator, Mapping

from rmqha.client.exception import MQClientException
from rmqha.remoting.exception import RemotingException
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.admin.message_track import print_stack_trace
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.sub_command import Heading, Part, SubCommand, Table


class UpdateKvConfigCommand(SubCommand):
    """Sets a value in the table of all name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.UpdateKvConfigCommand (4.9.8)
    """

    command_name = "updateKvConfig"
    command_desc = "Create or update KV config."
    options = (
        option("s", "namespace", "set the namespace", required=True),
        option("k", "key", "set the key name", required=True),
        option("v", "value", "set the key value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Set the value on all name servers."""
        namespace, key, value = (command_line.required(name) for name in "skv")
        admin.create_and_update_kv_config(namespace, key, value)
        yield "create or update kv config to namespace success.\n"


class DeleteKvConfigCommand(SubCommand):
    """Deletes a value in the table of all name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.DeleteKvConfigCommand (4.9.8)
    """

    command_name = "deleteKvConfig"
    command_desc = "Delete KV config."
    options = (
        option("s", "namespace", "set the namespace", required=True),
        option("k", "key", "set the key name", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Delete the value on all name servers."""
        admin.delete_kv_config(command_line.required("s"), command_line.required("k"))
        yield "delete kv config from namespace success.\n"


SETTINGS = Table("%-50s=  %s\n", {"key": "", "value": ""})


def settings_of(address_name: str, servers: Mapping[str, Mapping[str, str]]) -> Iterator[Part]:
    """Yield the settings of each server; `address_name` is the JSON name of the server's address."""
    # Differs: settings are sorted, where Java prints them in the order of its hash table
    for address, settings in servers.items():
        yield Heading(f"============{address}============\n")
        for key, value in sorted(settings.items()):
            yield SETTINGS.row(key, value, **{address_name: address})


class GetNamesrvConfigCommand(SubCommand):
    """Prints all settings of the name servers.

    Java: org.apache.rocketmq.tools.command.namesrv.GetNamesrvConfigCommand (4.9.8)
    """

    command_name = "getNamesrvConfig"
    command_desc = "Get configs of name server."

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the name servers."""
        yield from settings_of("namesrvAddr", admin.get_name_server_config(name_servers(command_line)))


class UpdateNamesrvConfigCommand(SubCommand):
    """Changes a setting of the name servers while they run.

    Java: org.apache.rocketmq.tools.command.namesrv.UpdateNamesrvConfigCommand (4.9.8)
    """

    command_name = "updateNamesrvConfig"
    command_desc = "Update configs of name server."
    options = (
        option("k", "key", "config key", required=True),
        option("v", "value", "config value", required=True),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Change the setting on the name servers."""
        key, value, servers = command_line.required("k"), command_line.required("v"), name_servers(command_line)
        admin.update_name_server_config({key: value}, servers)
        told = "" if servers is None else f"[{', '.join(servers)}]"
        yield f"update name server config success!{told}\n{key} : {value}\n"


def name_servers(command_line: CommandLine) -> list[str] | None:
    """Return the name servers of -n; None without it."""
    text = command_line.text("n")
    return text.split(";") if text else None


class WritePermSubCommand(SubCommand):
    """The base of commands that change, on each name server, the write permission of a broker's topics."""

    options = (option("b", "brokerName", "broker name", required=True),)
    verb = ""

    @abc.abstractmethod
    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Change the permission at one name server; return how many topics changed."""

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Change the permission at all name servers; one that refuses does not end the command."""
        broker_name = command_line.required("b")
        for namesrv_addr in admin.get_name_server_address_list():
            place = f"{self.verb} write perm of broker[{broker_name}] in name server[{namesrv_addr}]"
            try:
                yield f"{place} OK, {self.change(admin, namesrv_addr, broker_name)}\n"
            except (MQClientException, RemotingException) as error:
                yield f"{place} Failed\n"
                print_stack_trace(error)


class WipeWritePermSubCommand(WritePermSubCommand):
    """Stops producers from sending to a broker: each name server removes the write permission of its topics.

    Java: org.apache.rocketmq.tools.command.namesrv.WipeWritePermSubCommand (4.9.8)
    """

    command_name = "wipeWritePerm"
    command_desc = "Wipe write perm of broker in all name server you defined in the -n param"
    verb = "wipe"

    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Remove the permission."""
        return admin.wipe_write_perm_of_broker(namesrv_addr, broker_name)


class AddWritePermSubCommand(WritePermSubCommand):
    """Allows producers to send to a broker again: each name server restores the write permission of its topics.

    Java: org.apache.rocketmq.tools.command.namesrv.AddWritePermSubCommand (4.9.8)
    """

    command_name = "addWritePerm"
    command_desc = "Add write perm of broker in all name server you defined in the -n param"
    failure = "command failed"
    verb = "add"

    def change(self, admin: DefaultMQAdminExt, namesrv_addr: str, broker_name: str) -> int:
        """Restore the permission."""
        return admin.add_write_perm_of_broker(namesrv_addr, broker_name)
