"""Which addresses a pattern means."""
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rmqha.acl.plain.plain_access_resource import PlainAccessResource


class RemoteAddressStrategy(Protocol):
    """A pattern of addresses.

    Java: org.apache.rocketmq.acl.plain.RemoteAddressStrategy (4.9.8)
    """

    def match(self, plain_access_resource: "PlainAccessResource") -> bool:
        """Whether the address of a request is one of them."""
