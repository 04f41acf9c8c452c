"""Brokers of a cluster, as sub-commands with -c look them up."""
from rmqha.common import mix_all
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

ERROR_MESSAGE = "Make sure the specified clusterName exists or the name server connected to is correct."
ERROR_TEXT = f"[error] {ERROR_MESSAGE}"  # without an end of line, as the original's


class ClusterNotFoundError(Exception):
    """There is no such cluster, or no broker with such an address. The original throws a plain java.lang.Exception.

    Java: java.lang.Exception
    """

    def __init__(self) -> None:
        super().__init__(ERROR_MESSAGE)


def _brokers(admin: DefaultMQAdminExt, cluster_name: str) -> list[dict[int, str]] | None:
    info = admin.examine_broker_cluster_info()
    names = (info.clusterAddrTable or {}).get(cluster_name)
    if names is None:
        return None
    tables = [(info.brokerAddrTable or {}).get(name) for name in sorted(names)]
    return [broker.brokerAddrs for broker in tables if broker is not None and broker.brokerAddrs is not None]


def fetch_master_and_slave_distinguish(admin: DefaultMQAdminExt, cluster_name: str) -> dict[str | None, list[str]]:
    """Address of each master -> its slaves' addresses; None stands for a master that is not there.

    Raises ClusterNotFoundError where the original prints `[error] ...` and goes on with nothing.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveDistinguish (4.9.8)
    """
    brokers = _brokers(admin, cluster_name)
    if brokers is None:
        raise ClusterNotFoundError
    return {addrs.get(mix_all.MASTER_ID): [addr for broker_id, addr in sorted(addrs.items())
                                           if broker_id != mix_all.MASTER_ID]
            for addrs in brokers}


def fetch_master_addr_by_cluster_name(admin: DefaultMQAdminExt, cluster_name: str) -> list[str]:
    """Addresses of the masters, by broker name; ClusterNotFoundError as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAddrByClusterName (4.9.8)
    """
    masters = fetch_master_and_slave_distinguish(admin, cluster_name)
    return [addr for addr in masters if addr is not None]


def fetch_master_and_slave_addr_by_cluster_name(admin: DefaultMQAdminExt, cluster_name: str) -> list[str]:
    """Addresses of all brokers; ClusterNotFoundError as above.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchMasterAndSlaveAddrByClusterName (4.9.8)
    """
    brokers = _brokers(admin, cluster_name)
    if brokers is None:
        raise ClusterNotFoundError
    return [addr for addrs in brokers for _, addr in sorted(addrs.items())]


def fetch_broker_name_by_cluster_name(admin: DefaultMQAdminExt, cluster_name: str) -> list[str]:
    """Names of the brokers, sorted; ClusterNotFoundError when there are none.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByClusterName (4.9.8)
    """
    names = (admin.examine_broker_cluster_info().clusterAddrTable or {}).get(cluster_name)
    if not names:
        raise ClusterNotFoundError
    return sorted(names)


def fetch_broker_name_by_addr(admin: DefaultMQAdminExt, addr: str) -> str:
    """The name of the broker with an address; ClusterNotFoundError when there is none.

    Java: org.apache.rocketmq.tools.command.CommandUtil#fetchBrokerNameByAddr (4.9.8)
    """
    for name, broker in (admin.examine_broker_cluster_info().brokerAddrTable or {}).items():
        if addr in (broker.brokerAddrs or {}).values():
            return name
    raise ClusterNotFoundError
