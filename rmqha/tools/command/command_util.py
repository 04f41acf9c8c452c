"""What sub-commands share: brokers of a cluster, as those with -c look them up; asking again and again with -i."""
import time
from collections.abc import Callable, Generator, Iterator

from rmqha.common import mix_all
from rmqha.common.java import hash_map_order
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command.commons_cli import CommandLine
from rmqha.tools.command.output import Part
from rmqha.tools.command.sub_command_exception import JavaException

ERROR_MESSAGE = "Make sure the specified clusterName exists or the name server connected to is correct."
ERROR_TEXT = f"[error] {ERROR_MESSAGE}"  # without an end of line, as the original's


def _brokers(admin: DefaultMQAdminExt, cluster_name: str) -> Generator[Part, None, list[dict[int, str]]]:
    info = admin.examine_broker_cluster_info()
    names = info.clusterAddrTable.get(cluster_name)
    if names is None:
        yield ERROR_TEXT
    tables = [info.brokerAddrTable.get(name) for name in sorted(names or ())]
    return [broker.brokerAddrs for broker in tables if broker is not None]


def fetch_master_and_slave_distinguish(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[tuple[str | None, list[str]]]]:
    """Address of each broker's master, None when it has none now, and its slaves' addresses.

    Without such a cluster there are none, and the error is one more part of the output:

        brokers = yield from fetch_master_and_slave_distinguish(admin, "DefaultCluster")

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveDistinguish (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [(addrs.get(mix_all.MASTER_ID), [addr for broker_id, addr in sorted(addrs.items())
                                            if broker_id != mix_all.MASTER_ID])
            for addrs in brokers]


def fetch_master_addr_by_cluster_name(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[str]]:
    """Addresses of the masters, by broker name; used as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAddrByClusterName (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [addrs[mix_all.MASTER_ID] for addrs in brokers if mix_all.MASTER_ID in addrs]


def fetch_master_and_slave_addr_by_cluster_name(
    admin: DefaultMQAdminExt, cluster_name: str
) -> Generator[Part, None, list[str]]:
    """Addresses of all brokers; used as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveAddrByClusterName (4.9.8)
    """
    brokers = yield from _brokers(admin, cluster_name)
    return [addr for addrs in brokers for _, addr in sorted(addrs.items())]


def fetch_master_and_slave_addr_by_broker_name(admin: DefaultMQAdminExt, broker_name: str) -> list[str]:
    """Addresses of all brokers of a name; none when the name server does not know it.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveAddrByBrokerName (5.1.4)
    """
    broker = admin.examine_broker_cluster_info().brokerAddrTable.get(broker_name)
    return [] if broker is None else [addr for _, addr in sorted(broker.brokerAddrs.items())]


def fetch_broker_name_by_cluster_name(admin: DefaultMQAdminExt, cluster_name: str) -> list[str]:
    """Names of the brokers as Java's hash table has them: clients count an ordered topic's queues in this order.

    JavaException when there are none.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByClusterName (4.9.8)
    """
    names = admin.examine_broker_cluster_info().clusterAddrTable.get(cluster_name)
    if not names:
        raise JavaException(ERROR_MESSAGE)
    return hash_map_order(names)


def fetch_broker_name_by_addr(admin: DefaultMQAdminExt, addr: str) -> str:
    """The name of the broker with an address; JavaException when there is none.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByAddr (4.9.8)
    """
    for name, broker in admin.examine_broker_cluster_info().brokerAddrTable.items():
        if addr in broker.brokerAddrs.values():
            return name
    raise JavaException(ERROR_MESSAGE)


def again_with_interval(command_line: CommandLine, ask: Callable[[], Iterator[Part]],
                        default_s: int = 0) -> Iterator[Part]:
    """What `ask` gives, and with -i again every so many seconds, without an end."""
    interval_s = command_line.integer("i", default_s)
    yield from ask()
    while command_line.has_option("i"):
        time.sleep(interval_s)
        yield from ask()
