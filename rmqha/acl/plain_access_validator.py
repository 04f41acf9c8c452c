"""The check of requests: the account and address of the sender, its signature, and its permissions."""
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
    """Checks requests against the accounts of YAML files. Call `load()`, `start()` and `shutdown()`.

    Java: org.apache.rocketmq.acl.plain.PlainAccessValidator (4.9.8)
    """

    def __init__(self, file_home: str) -> None:
        self._acl_plug_engine = PlainPermissionManager(file_home)

    def load(self) -> None:
        """Read all files. AclException when one is invalid."""
        self._acl_plug_engine.load()

    def start(self) -> None:
        """Start to watch the files."""
        self._acl_plug_engine.start()

    def shutdown(self) -> None:
        """Stop watching the files. Idempotent."""
        self._acl_plug_engine.shutdown()

    def parse(self, request: RemotingCommand, remote_addr: str) -> PlainAccessResource:
        """Return the account, the address (`ip:port`) and the signed bytes of a request. Its needs are computed lazily.
        """
        # Differs: the body of a request is parsed after its signature is verified; the original parses every body first
        resource = _resource_of(request, remote_addr)
        resource.needs = functools.partial(_needs_of, request)
        fields = request.ext_fields
        if fields is None:  # an address may be enough
            return resource
        resource.signature = fields.get(SIGNATURE)
        resource.secret_token = fields.get(SECURITY_TOKEN)
        signed = {name: value for name, value in fields.items() if name not in _NOT_SIGNED}
        resource.content = combine_request_content(request, signed)
        # Differs: the extension field UNIQUE_MSG_QUERY_FLAG of a query by key may be signed or not; the original's
        # clients sign it, but its broker omits it in the check, and so refuses all their queries
        if UNIQUE_MSG_QUERY_FLAG in fields:
            resource.content_with_flag = combine_request_content(request, fields)
        return resource

    def validate(self, access_resource: PlainAccessResource) -> None:
        """Raise AclException unless the request is permitted."""
        self._acl_plug_engine.validate(access_resource)

    def validate_needs(self, request: RemotingCommand, remote_addr: str, needs: list[Need]) -> None:
        """Raise AclException unless a permitted request also has these permissions, which its processor determined."""
        resource = _resource_of(request, remote_addr)
        resource.needs = lambda: needs
        self._acl_plug_engine.validate_needs(resource)

    def may_do_all(self, request: RemotingCommand, remote_addr: str) -> bool:
        """Return whether the sender of a permitted request may do everything: by its address, or as an admin."""
        return self._acl_plug_engine.may_do_all(_resource_of(request, remote_addr))

    def may(self, access_key: str | None, remote_addr: str, needs: list[Need]) -> bool:
        """Return whether an authenticated account has these permissions from an address (`ip:port`)."""
        resource = PlainAccessResource(access_key, white_remote_address=_host_of(remote_addr), needs=lambda: needs)
        try:
            self._acl_plug_engine.validate_needs(resource)
        except AclException:
            return False
        return True

    def update_access_config(self, plain_access_config: PlainAccessConfig) -> bool:
        """Create or change an account."""
        return self._acl_plug_engine.update_access_config(plain_access_config)

    def delete_access_config(self, accesskey: str | None) -> bool:
        """Delete an account. Return False when it does not exist."""
        return self._acl_plug_engine.delete_access_config(accesskey)

    def get_acl_config_version(self) -> str:
        """Return the default file's version, as JSON."""
        return self._acl_plug_engine.get_acl_config_data_version()

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         acl_file_full_path: str | None = None) -> bool:
        """Replace a file's addresses that need no account. Return False when it is not an account file."""
        return self._acl_plug_engine.update_global_white_addrs_config(global_white_addrs_list, acl_file_full_path)

    def get_all_acl_config(self) -> AclConfig:
        """Return all accounts and addresses, including secrets."""
        return self._acl_plug_engine.get_all_acl_config()

    def get_all_acl_config_version(self) -> dict[str, DataVersion]:
        """Return the version of each file, by path."""
        return self._acl_plug_engine.get_data_version_map()


def _host_of(remote_addr: str) -> str:
    return remote_addr.rpartition(":")[0] or remote_addr


def _resource_of(request: RemotingCommand, remote_addr: str) -> PlainAccessResource:
    return PlainAccessResource((request.ext_fields or {}).get(ACCESS_KEY), white_remote_address=_host_of(remote_addr),
                               request_code=request.code)


def _needs_of(request: RemotingCommand) -> list[Need]:
    try:
        return needs_of(request)
    except (ValueError, AttributeError) as error:
        # A malformed body, or null where a name belongs.
        raise AclException(str(error)) from error
