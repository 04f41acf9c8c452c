"""Versions of a broker's account files."""
from dataclasses import dataclass

from rmqha.common.data_version import DataVersion


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
