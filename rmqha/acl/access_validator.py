"""What the broker asks before it serves a request."""
from typing import Protocol, TypeVar

from rmqha.common.data_version import DataVersion
from rmqha.common.topics import AclConfig, PlainAccessConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class AccessResource:
    """Base of what an AccessValidator finds in a request.

    Java: org.apache.rocketmq.acl.AccessResource (4.9.8)
    """


ResourceT = TypeVar("ResourceT", bound=AccessResource)


class AccessValidator(Protocol[ResourceT]):
    """Finds out what a request needs, and whether it may have that; and changes the accounts.

    Java: org.apache.rocketmq.acl.AccessValidator (4.9.8)
    """

    def parse(self, request: RemotingCommand, remote_addr: str) -> ResourceT:
        """Who asks, from where (`ip:port`), and for which permissions. Raises AclException."""

    def validate(self, access_resource: ResourceT) -> None:
        """Raise AclException unless it is permitted."""

    def validate_needs(self, request: RemotingCommand, remote_addr: str, needs: list[tuple[str, int]]) -> None:
        """Raise AclException unless a request that was permitted may have more: topics, or groups as retry topics."""

    def may_do_all(self, request: RemotingCommand, remote_addr: str) -> bool:
        """Whether who sends a request that was permitted may have everything."""

    def may(self, access_key: str | None, remote_addr: str, needs: list[tuple[str, int]]) -> bool:
        """Whether an account that has proved itself may have this."""

    def update_access_config(self, plain_access_config: PlainAccessConfig) -> bool:
        """Make or change an account; False when nothing was written. Raises AclException."""

    def delete_access_config(self, accesskey: str | None) -> bool:
        """Delete an account; False when there is none. Raises AclException."""

    def get_acl_config_version(self) -> str:
        """The version of the default file, as JSON."""

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         acl_file_full_path: str | None = None) -> bool:
        """Replace the addresses of a file (None: the default file) that need no account. Raises AclException."""

    def get_all_acl_config(self) -> AclConfig:
        """All accounts and addresses, secrets included."""

    def get_all_acl_config_version(self) -> dict[str, DataVersion]:
        """The version of each file, by its path."""
