"""Name server addresses that are endpoints of an instance: `http://MQ_INST_1_x.example.org:80` carries a namespace.

Java: org.apache.rocketmq.common.utils.NameServerAddressUtils (4.9.8)
"""
import re

INSTANCE_PREFIX = "MQ_INST_"
NAMESRV_ENDPOINT_PATTERN = re.compile(r"http://.*")
INST_ENDPOINT_PATTERN = re.compile(r"(\w+://|)" + INSTANCE_PREFIX + r"\w+_\w+\..*", re.ASCII)


def validate_instance_endpoint(endpoint: str) -> bool:
    """Whether the address names an instance."""
    return INST_ENDPOINT_PATTERN.fullmatch(endpoint) is not None


def parse_instance_id_from_endpoint(endpoint: str | None) -> str | None:
    """The instance's name, which is the namespace; None for no address."""
    if not endpoint:
        return None
    return endpoint[endpoint.rindex("/") + 1 if "/" in endpoint else 0:endpoint.index(".")]


def get_name_srv_addr_from_namesrv_endpoint(endpoint: str | None) -> str | None:
    """The address without what stands before its last slash; None for no address."""
    if not endpoint:
        return None
    return endpoint.rpartition("/")[2]
