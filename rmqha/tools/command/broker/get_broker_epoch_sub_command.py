"""mqadmin getBrokerEpoch."""
import dataclasses
from collections.abc import Iterator

from rmqha.common.protocol.cluster_bodies import EpochEntry
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import command_util
from rmqha.tools.command.commons_cli import CommandLine, option
from rmqha.tools.command.output import Part, Row, java_text
from rmqha.tools.command.sub_command import SubCommand


class GetBrokerEpochSubCommand(SubCommand):
    """The epochs of the replicas of a broker name, or of all brokers of a cluster.

    Java: org.apache.rocketmq.tools.command.broker.GetBrokerEpochSubCommand (5.1.4)
    """

    command_name = "getBrokerEpoch"
    command_desc = "Fetch broker epoch entries."
    options = (
        option("b", "brokerName", "which broker to fetch"),
        option("c", "clusterName", "which cluster"),
        option("i", "interval", "the interval(second) of get info"),
    )

    def execute(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        """Ask the replicas; again and again with -i."""
        return command_util.again_with_interval(command_line, lambda: self._ask(command_line, admin), 3)

    def _ask(self, command_line: CommandLine, admin: DefaultMQAdminExt) -> Iterator[Part]:
        if command_line.has_option("b"):
            addresses = command_util.fetch_master_and_slave_addr_by_broker_name(admin, command_line.required("b"))
        elif command_line.has_option("c"):
            addresses = yield from command_util.fetch_master_and_slave_addr_by_cluster_name(
                admin, command_line.required("c"))
        else:
            yield self.help()
            return
        for address in addresses:
            yield from _parts(admin, address)


def _parts(admin: DefaultMQAdminExt, address: str) -> Iterator[Part]:
    cache = admin.get_broker_epoch_cache(address)
    entries = [dataclasses.replace(each) for each in cache.epochList]
    if entries:
        entries[-1].endOffset = cache.maxOffset
    yield Row(f"\n#clusterName\t{java_text(cache.clusterName)}\n#brokerName\t{java_text(cache.brokerName)}"
              f"\n#brokerAddr\t{address}\n#brokerId\t{cache.brokerId}" + "".join(map(_text, entries)) + "\n",
              {"clusterName": cache.clusterName, "brokerName": cache.brokerName, "brokerAddr": address,
               "brokerId": cache.brokerId, "epochs": [dataclasses.asdict(each) for each in entries]})


def _text(entry: EpochEntry) -> str:
    return f"\n#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.startOffset}, endOffset={entry.endOffset}}}"
