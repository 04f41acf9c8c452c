"""A cluster: its brokers, and the versions of their account files."""
from dataclasses import dataclass, field

from rmqha.common.data_version import DataVersion
from rmqha.common.protocol.route.topic_route_data import BrokerData


@dataclass(slots=True)
class ClusterInfo:
    """Brokers by name, and their names by cluster (answer of GET_BROKER_CLUSTER_INFO).

    Java: org.apache.rocketmq.common.protocol.body.ClusterInfo (4.9.8)
    """

    brokerAddrTable: dict[str, BrokerData] = field(default_factory=dict)
    clusterAddrTable: dict[str, set[str]] = field(default_factory=dict)

    def retrieve_all_addr_by_cluster(self, cluster: str) -> list[str]:
        """The addresses of all brokers of a cluster, masters and slaves."""
        names = self.clusterAddrTable.get(cluster, ())
        return [address for name in names if name in self.brokerAddrTable
                for address in self.brokerAddrTable[name].brokerAddrs.values()]

    def retrieve_all_cluster_names(self) -> list[str]:
        """The clusters."""
        return list(self.clusterAddrTable)


@dataclass(slots=True)
class ClusterAclVersionInfo:
    """A broker's account files and their versions. aclConfigDataVersion is the retired single one.

    Java: org.apache.rocketmq.common.protocol.body.ClusterAclVersionInfo (4.9.8)
    """

    brokerName: str | None = None
    brokerAddr: str | None = None
    aclConfigDataVersion: DataVersion | None = None
    allAclConfigDataVersion: dict[str, DataVersion] | None = None
    clusterName: str | None = None
