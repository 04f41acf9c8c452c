"""What a request asks to use, and what an account owns: the same class for both, as in Java."""
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, overload

from rmqha.acl.access_validator import AccessResource
from rmqha.common import mix_all


class RemoteAddressStrategy(Protocol):
    """A pattern of addresses.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategy (4.9.8)
    """

    def match(self, plain_access_resource: "PlainAccessResource") -> bool:
        """Whether the address of a request is one of them."""


@dataclass(slots=True)
class PlainAccessResource(AccessResource):
    """Of a request: key, signature, address (white_remote_address), content, and what it needs.

    Of an account: key, secret, addresses, owned permissions by resource. Groups stand as their retry topics. Its text
    shows no secret, signature or content.

    Java: org.apache.rocketmq.acl.plain.PlainAccessResource (4.9.8)
    """

    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: int = 1
    default_group_perm: int = 1
    resource_perm_map: dict[str, int] | None = None
    remote_address_strategy: RemoteAddressStrategy | None = field(default=None, repr=False)
    request_code: int = 0
    content: bytes = field(default=b"", repr=False)  # what is signed
    content_with_flag: bytes | None = field(default=None, repr=False)  # what may be signed instead
    signature: str | None = field(default=None, repr=False)
    secret_token: str | None = field(default=None, repr=False)
    # (resource, permission) of a request; called when it is known who asks. AclException for a malformed request
    needs: Callable[[], list[tuple[str, int]]] = field(default=list, repr=False)

    def add_resource_and_perm(self, resource: str | None, perm: int) -> None:
        """Add a topic (or a group's retry topic); None is left out."""
        if resource is None:
            return
        if self.resource_perm_map is None:
            self.resource_perm_map = {}
        self.resource_perm_map[resource] = perm


def is_retry_topic(topic: str | None) -> bool:
    """Whether it stands for a group."""
    return topic is not None and topic.startswith(mix_all.RETRY_GROUP_TOPIC_PREFIX)


def print_str(resource: str | None, is_group: bool) -> str | None:
    """`topic:<name>` or `group:<name>`."""
    if resource is None:
        return None
    return f"group:{get_group_from_retry_topic(resource)}" if is_group else f"topic:{resource}"


def get_group_from_retry_topic(retry_topic: str | None) -> str | None:
    """The group whose retry topic it is."""
    return None if retry_topic is None else retry_topic[len(mix_all.RETRY_GROUP_TOPIC_PREFIX):]


@overload
def get_retry_topic(group: str) -> str: ...


@overload
def get_retry_topic(group: None) -> None: ...


def get_retry_topic(group: str | None) -> str | None:
    """The retry topic that stands for a group."""
    return None if group is None else mix_all.get_retry_topic(group)
