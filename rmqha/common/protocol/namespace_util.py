"""Namespaces of topics, groups and instances, and the FAQ links of error messages.

A topic in a client's namespace is named `namespace%topic`, after the prefix of a retry or dead-letter topic. System
topics and groups have no namespace. A name server address that is the endpoint of an instance, such as
`http://MQ_INST_1_x.example.org:80`, implies a namespace. NAMESPACE_ORDER_TOPIC_CONFIG is a namespace of the name
server's key-value store. The FAQ links stay in the error messages because users search for them.

Java: org.apache.rocketmq.common.protocol.NamespaceUtil (4.9.8)
Java: org.apache.rocketmq.common.help.FAQUrl (4.9.8)
Java: org.apache.rocketmq.common.namesrv.NamesrvUtil (4.9.8)
Java: org.apache.rocketmq.common.utils.NameServerAddressUtils (4.9.8)
"""
import re
from typing import TypeVar

from rmqha.common import mix_all, topics

NAMESPACE_SEPARATOR = "%"

# A topic or group; None stays None.
NameT = TypeVar("NameT", str, str | None)


def without_namespace(resource: NameT, *namespace: str | None) -> NameT:
    """Return the topic or group without its namespace; if a `namespace` (at most one) is given, only without that one.
    """
    if not resource or _is_system_resource(resource):
        return resource
    if namespace and not is_already_with_namespace(resource, namespace[0]):
        return resource
    prefix, bare = _split_prefix(resource)
    index = bare.find(NAMESPACE_SEPARATOR)
    return prefix + bare[index + 1:] if index > 0 else resource


def wrap_namespace(namespace: str | None, resource_without_namespace: NameT) -> NameT:
    """Return the topic or group with the namespace, unless it already has it."""
    resource = resource_without_namespace
    if not namespace or not resource:
        return resource
    if _is_system_resource(resource) or is_already_with_namespace(resource, namespace):
        return resource
    prefix, bare = _split_prefix(resource)
    return f"{prefix}{namespace}{NAMESPACE_SEPARATOR}{bare}"


def is_already_with_namespace(resource: str | None, namespace: str | None) -> bool:
    """Return whether the topic or group is in the namespace."""
    if not namespace or not resource or _is_system_resource(resource):
        return False
    return _split_prefix(resource)[1].startswith(namespace + NAMESPACE_SEPARATOR)


def _split_prefix(resource: str) -> tuple[str, str]:
    for prefix in (mix_all.RETRY_GROUP_TOPIC_PREFIX, mix_all.DLQ_GROUP_TOPIC_PREFIX):
        if resource.startswith(prefix):
            return prefix, resource[len(prefix):]
    return "", resource


def _is_system_resource(resource: str) -> bool:
    return topics.is_system_topic(resource) or mix_all.is_sys_consumer_group(resource)


def is_retry_topic(resource: str | None) -> bool:
    """Return whether the topic is a group's retry topic."""
    return resource is not None and resource.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)


APPLY_TOPIC_URL = "http://rocketmq.apache.org/docs/faq/"
SUBSCRIPTION_GROUP_NOT_EXIST = APPLY_TOPIC_URL
SAME_GROUP_DIFFERENT_TOPIC = APPLY_TOPIC_URL
MQLIST_NOT_EXIST = APPLY_TOPIC_URL
UNEXPECTED_EXCEPTION_URL = APPLY_TOPIC_URL

TIP_STRING_BEGIN = "\nSee "
TIP_STRING_END = " for further details."


def suggest_todo(url: str) -> str:
    """Return the sentence that refers to `url`, on a new line."""
    return f"{TIP_STRING_BEGIN}{url}{TIP_STRING_END}"


def attach_default_url(error_message: str | None) -> str | None:
    """Return the message with a link to the default page, unless it has a link."""
    if error_message is None or TIP_STRING_BEGIN in error_message:
        return error_message
    return f"{error_message}\nFor more information, please visit the url, {UNEXPECTED_EXCEPTION_URL}"


NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


INSTANCE_PREFIX = "MQ_INST_"
NAMESRV_ENDPOINT_PATTERN = r"http://.*"
INST_ENDPOINT_PATTERN = r"(?a)(\w+://|)" + INSTANCE_PREFIX + r"\w+_\w+\..*"


def validate_instance_endpoint(endpoint: str) -> bool:
    """Return whether the address names an instance."""
    return re.fullmatch(INST_ENDPOINT_PATTERN, endpoint) is not None


def parse_instance_id_from_endpoint(endpoint: str | None) -> str | None:
    """Return the instance's name, which is the namespace; None without an address."""
    if not endpoint:
        return None
    return endpoint[endpoint.rindex("/") + 1 if "/" in endpoint else 0:endpoint.index(".")]


def get_name_srv_addr_from_namesrv_endpoint(endpoint: str | None) -> str | None:
    """Return the address after its last slash; None without an address."""
    if not endpoint:
        return None
    return endpoint.rpartition("/")[2]
