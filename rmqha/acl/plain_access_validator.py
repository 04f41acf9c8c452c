"""Who asks, and whether that account may have what it asks for."""
import functools

from rmqha.acl.common import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    AclException,
    Need,
    PlainAccessResource,
    combine_request_content,
    needs_of,
)
from rmqha.acl.plain_permission_manager import PlainPermissionManager
from rmqha.common.data_version import DataVersion
from rmqha.common.mix_all import UNIQUE_MSG_QUERY_FLAG
from rmqha.common.topics import AclConfig, PlainAccessConfig
from rmqha.remoting.protocol.remoting_command import RemotingCommand

_NOT_SIGNED = (SIGNATURE, UNIQUE_MSG_QUERY_FLAG)


class PlainAccessValidator:
    """Checks requests against the accounts of YAML files. `load()`, `start()`, `shutdown()`.

    Java: org.apache.rocketmq.acl.plain.PlainAccessValidator (4.9.8)
    """

    def __init__(self, file_home: str) -> None:
        self._acl_plug_engine = PlainPermissionManager(file_home)

    def load(self) -> None:
        """Read all files. AclException when one is wrong."""
        self._acl_plug_engine.load()

    def start(self) -> None:
        """Follow the files."""
        self._acl_plug_engine.start()

    def shutdown(self) -> None:
        """Follow them no more. Idempotent."""
        self._acl_plug_engine.shutdown()

    def parse(self, request: RemotingCommand, remote_addr: str) -> PlainAccessResource:
        """Who asks, from where (`ip:port`), and what was signed; what the request needs is found out when asked."""
        # Differs: the body is parsed when its signature has been found right; the original parses each body first
        resource = _resource_of(request, remote_addr)
        resource.needs = functools.partial(_needs_of, request)
        fields = request.ext_fields
        if fields is None:  # an address may be enough
            return resource
        resource.signature = fields.get(SIGNATURE)
        resource.secret_token = fields.get(SECURITY_TOKEN)
        signed = {name: value for name, value in fields.items() if name not in _NOT_SIGNED}
        resource.content = combine_request_content(request, signed)
        # Differs: the flag of queries by key may be signed or not; the original's clients sign it, but its broker
        # leaves it out and so refuses each of their queries
        if UNIQUE_MSG_QUERY_FLAG in fields:
            resource.content_with_flag = combine_request_content(request, fields)
        return resource

    def validate(self, access_resource: PlainAccessResource) -> None:
        """AclException unless it is permitted."""
        self._acl_plug_engine.validate(access_resource)

    def validate_needs(self, request: RemotingCommand, remote_addr: str, needs: list[Need]) -> None:
        """AclException unless a request that was permitted may have this, too: what its processor has found out."""
        resource = _resource_of(request, remote_addr)
        resource.needs = lambda: needs
        self._acl_plug_engine.validate_needs(resource)

    def may_do_all(self, request: RemotingCommand, remote_addr: str) -> bool:
        """Whether who sends a request that was permitted may have everything: by his address, or as an admin."""
        return self._acl_plug_engine.may_do_all(_resource_of(request, remote_addr))

    def may(self, access_key: str | None, remote_addr: str, needs: list[Need]) -> bool:
        """Whether an account that has proved itself may have this from an address (`ip:port`)."""
        resource = PlainAccessResource(access_key, white_remote_address=_host_of(remote_addr), needs=lambda: needs)
        try:
            self._acl_plug_engine.validate_needs(resource)
        except AclException:
            return False
        return True

    def update_access_config(self, plain_access_config: PlainAccessConfig) -> bool:
        """Make or change an account."""
        return self._acl_plug_engine.update_access_config(plain_access_config)

    def delete_access_config(self, accesskey: str | None) -> bool:
        """Delete an account; False when there is none."""
        return self._acl_plug_engine.delete_access_config(accesskey)

    def get_acl_config_version(self) -> str:
        """The default file's version, as JSON."""
        return self._acl_plug_engine.get_acl_config_data_version()

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         acl_file_full_path: str | None = None) -> bool:
        """Replace a file's addresses that need no account; False when it is not a file of accounts."""
        return self._acl_plug_engine.update_global_white_addrs_config(global_white_addrs_list, acl_file_full_path)

    def get_all_acl_config(self) -> AclConfig:
        """All accounts and addresses, secrets included."""
        return self._acl_plug_engine.get_all_acl_config()

    def get_all_acl_config_version(self) -> dict[str, DataVersion]:
        """The version of each file, by its path."""
        return self._acl_plug_engine.get_data_version_map()


def _host_of(remote_addr: str) -> str:
    return remote_addr.rpartition(":")[0] or remote_addr


def _resource_of(request: RemotingCommand, remote_addr: str) -> PlainAccessResource:
    return PlainAccessResource((request.ext_fields or {}).get(ACCESS_KEY), white_remote_address=_host_of(remote_addr),
                               request_code=request.code)


def _needs_of(request: RemotingCommand) -> list[Need]:
    try:
        return needs_of(request)
    except (ValueError, AttributeError) as error:  # a malformed body, or null where a name belongs
        raise AclException(str(error)) from error
