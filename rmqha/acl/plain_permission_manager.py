"""The accounts and addresses of all account files: checks requests against them, changes them, and reloads the files.

    AdminBrokerThread_  --update, delete--> file --load--+
    AclFileWatchService --a file has changed--> load ----+--> [_tables], replaced as a whole
    any thread          --validate--> reads [_tables] once

For the rules of reloading see acl_files.
"""
import hmac
import logging
import os
import threading
from typing import Any, cast

from rmqha.acl import acl_files as acl_yaml
from rmqha.acl import common
from rmqha.acl.acl_files import AclFile, AclFileWatchService, acl_files, list_of, version_of
from rmqha.acl.common import (
    AclException,
    PlainAccessResource,
    RemoteAddressStrategy,
    is_retry_topic,
    print_str,
)
from rmqha.acl.remote_address_strategy_factory import RemoteAddressStrategyFactory
from rmqha.acl.signing import cal_signature
from rmqha.common import mix_all
from rmqha.common.data_version import DataVersion
from rmqha.common.java import get_property, hash_map_order
from rmqha.common.lazy_dataclasses import dataclass, field
from rmqha.common.texts import HIDDEN
from rmqha.common.topics import AclConfig, PlainAccessConfig
from rmqha.remoting.protocol import remoting_serializable

log = logging.getLogger("RocketmqCommon")

PLAIN_ACL_FILE_PROPERTY = "rocketmq.acl.plain.file"
DEFAULT_PLAIN_ACL_FILE = "conf/plain_acl.yml"
_YAML_SUFFIXES = (".yml", ".yaml")


@dataclass(frozen=True)
class _Tables:
    """The contents of the files. Never changed, only replaced."""

    access_key_table: dict[str, str] = field(default_factory=dict)  # key -> file
    resources: dict[str, dict[str, PlainAccessResource]] = field(default_factory=dict)  # file -> key -> account
    global_white: dict[str, list[RemoteAddressStrategy]] = field(default_factory=dict)  # file -> addresses
    data_versions: dict[str, DataVersion] = field(default_factory=dict)  # by file


class PlainPermissionManager:
    """The accounts from `<home>/conf/plain_acl.yml` and the files below `<home>/conf/acl`.

    The system property rocketmq.acl.plain.file names a different default file. Call `load()`, then `start()` to watch
    the files for changes, and `shutdown()`.

    Java: org.apache.rocketmq.acl.plain.PlainPermissionManager (4.9.8)
    """

    def __init__(self, file_home: str) -> None:
        self.file_home = file_home
        self.default_acl_dir = mix_all.deal_file_path(os.path.join(file_home, "conf", "acl"))
        acl_plain_file = get_property(PLAIN_ACL_FILE_PROPERTY, DEFAULT_PLAIN_ACL_FILE)
        self.default_acl_file = mix_all.deal_file_path(file_home + os.sep + acl_plain_file)
        self._remote_address_strategy_factory = RemoteAddressStrategyFactory()
        # Held by the writer of _tables and of the files.
        self._lock = threading.RLock()
        # Replaced under _lock, read without it.
        self._tables = _Tables()
        # The default file's; guarded by _lock.
        self._data_version = DataVersion()
        self._watch_service = AclFileWatchService(self.default_acl_dir, self.default_acl_file, self)

    def start(self) -> None:
        """Start to watch the files."""
        self._watch_service.start()

    def shutdown(self) -> None:
        """Stop watching the files. Idempotent."""
        self._watch_service.shutdown()

    def load(self) -> None:
        """Read all files. AclException when one is invalid; the previous contents then stay in force."""
        with self._lock:
            self._assure_acl_config_files_exist()
            self._watch_service.remember()
            tables = _Tables()
            for path in acl_files(self.default_acl_dir, self.default_acl_file):
                self._add(tables, mix_all.deal_file_path(path))
            self._use(tables)

    def _assure_acl_config_files_exist(self) -> None:
        try:
            with open(self.default_acl_file, "ab"):
                log.debug("%s exists", self.default_acl_file)
        except OSError as error:
            if not os.path.exists(self.default_acl_file):
                raise AclException(f"the account file is missing and cannot be created: {error}") from error

    def _add(self, tables: _Tables, path: str) -> None:
        content = AclFile.read(path)
        if content is None:
            log.warning("No data in file %s", path)
            return
        self._log_content(content)
        white = self._strategies(content.global_white_addrs, path)
        if white:
            tables.global_white[path] = white
        resources: dict[str, PlainAccessResource] = {}
        for config in content.accounts:
            resource = self.build_plain_access_resource(config, path)
            access_key = cast(str, resource.access_key)  # an account has one
            if access_key in tables.access_key_table:
                log.warning("The accesssKey %s is repeated in multiple ACL files", access_key)
            else:
                resources[access_key] = resource
                tables.access_key_table[access_key] = path
        if resources:
            tables.resources[path] = resources
        tables.data_versions[path] = content.data_version

    def load_file(self, acl_file_path: str) -> None:
        """Read one file again. AclException when it is invalid; its previous contents then stay in force."""
        path = mix_all.deal_file_path(acl_file_path)
        with self._lock:
            content = AclFile.read(path)
            if content is None:
                log.warning("No data in %s, skip it", path)
                return
            self._log_content(content)
            old = self._tables
            white = self._strategies(content.global_white_addrs, path)
            access_key_table = dict(old.access_key_table)
            resources: dict[str, PlainAccessResource] = {}
            for config in content.accounts:
                resource = self.build_plain_access_resource(config, path)
                access_key = cast(str, resource.access_key)  # an account has one
                if access_key_table.setdefault(access_key, path) == path:
                    resources[access_key] = resource
            # Differs: a file's new addresses always replace its old ones; in the original, the first addresses of a
            # file that had none stay in force for ever
            self._use(_Tables(access_key_table, {**old.resources, path: resources}, {**old.global_white, path: white},
                              {**old.data_versions, path: content.data_version}))

    def _use(self, tables: _Tables) -> None:
        if self.default_acl_file in tables.data_versions:
            self._data_version.assign_new_one(tables.data_versions[self.default_acl_file])
        self._tables = tables

    @staticmethod
    def _log_content(content: AclFile) -> None:
        # Differs: the log shows only the addresses and access keys of a file; the original logs the whole file with its
        # secrets
        log.info("Broker plain acl conf data is : %s, globalWhiteRemoteAddresses %s, accounts %s", content.path,
                 content.global_white_addrs, [config.accessKey for config in content.accounts])

    def _strategies(self, addresses: list[str | None], path: str) -> list[RemoteAddressStrategy]:
        try:
            return [self._remote_address_strategy_factory.get_remote_address_strategy(text) for text in addresses]
        except AclException as error:
            raise AclException(f"{path}: globalWhiteRemoteAddresses: {error}") from None

    def get_acl_config_data_version(self) -> str:
        """Return the default file's version, as JSON."""
        return remoting_serializable.to_json(self._data_version)

    def get_data_version_map(self) -> dict[str, DataVersion]:
        """Return the version of each file, by path."""
        return dict(self._tables.data_versions)

    def update_access_config(self, plain_access_config: PlainAccessConfig | None) -> bool:
        """Change an account in its file, or add it to the default file. AclException when something is invalid."""
        if plain_access_config is None:
            raise AclException("Parameter value plainAccessConfig is null, Please check your parameter")
        check_plain_access_config(plain_access_config)
        common.check_resource_perms(plain_access_config.topicPerms)
        common.check_resource_perms(plain_access_config.groupPerms)
        self.build_plain_access_resource(plain_access_config)
        access_key = cast(str, plain_access_config.accessKey)  # checked above
        with self._lock:
            path = self._tables.access_key_table.get(access_key, self.default_acl_file)
            data = acl_yaml.get_yaml_data_object(path) or {}
            accounts = list_of(data, common.CONFIG_ACCOUNTS)
            old = next((account for account in accounts if _key_of(account) == access_key), None)
            # It moves to the end, as in Java.
            if old is not None:
                accounts.remove(old)
            # Differs: an account that was removed from its file meanwhile is written again; the original writes nothing
            # and reports success
            accounts.append(create_acl_access_config_map(old, plain_access_config))
            data[common.CONFIG_ACCOUNTS] = accounts
            return self._write(path, data)

    def delete_access_config(self, accesskey: str | None) -> bool:
        """Delete an account from its file. Return False when it does not exist. AclException for an unusable file."""
        if not accesskey:
            log.error("Parameter value accesskey is null or empty String,Please check your parameter")
            return False
        with self._lock:
            path = self._tables.access_key_table.get(accesskey)
            if path is None:
                return False
            data = acl_yaml.get_yaml_data_object(path)
            if not data:
                log.warning("No data found in %s when deleting access config of %s", path, accesskey)
                return True
            accounts = list_of(data, common.CONFIG_ACCOUNTS)
            found = next((account for account in accounts if _key_of(account) == accesskey), None)
            if found is None:
                return False
            accounts.remove(found)
            self._tables = _without_key(self._tables, accesskey)
            return self._write(path, data)

    def update_global_white_addrs_config(self, global_white_addrs_list: list[str] | None,
                                         file_name: str | None = None) -> bool:
        """Replace a file's addresses that need no account. Return False when it is not an account file."""
        path = mix_all.deal_file_path(file_name or self.default_acl_file)
        if global_white_addrs_list is None:
            log.error("Parameter value globalWhiteAddrsList is null,Please check your parameter")
            return False
        if not self._may_be_written(path):
            return False
        # Differs: addresses are checked before they are written; the original writes an invalid address and cannot load
        # the file again
        self._strategies(list(global_white_addrs_list), path)
        with self._lock:
            data = acl_yaml.get_yaml_data_object(path) or {}
            data[common.CONFIG_GLOBAL_WHITE_ADDRS] = list(global_white_addrs_list)
            return self._write(path, data)

    def _may_be_written(self, path: str) -> bool:
        if not os.path.isfile(path):
            log.error("Parameter value %s is not exist or is a directory, please check your parameter", path)
            return False
        # Differs: `..` and links cannot lead out of the home folder, and files other than .yml and .yaml are refused;
        # the original compares the beginning of the text, refuses .yaml and accepts any other file
        home = os.path.realpath(self.file_home)
        if os.path.commonpath([home, os.path.realpath(path)]) != home:
            log.error("Parameter value %s is not in the directory rocketmq.home.dir %s", path, self.file_home)
            return False
        if not path.endswith(_YAML_SUFFIXES):
            log.error("Parameter value %s is not a ACL configuration file", path)
            return False
        return True

    def _write(self, path: str, data: dict[str, Any]) -> bool:
        """Write a file with its next version, and load it."""
        version = version_of(list_of(data, common.CONFIG_DATA_VERSION))
        version.next_version()
        data[common.CONFIG_DATA_VERSION] = [{common.CONFIG_COUNTER: version.counter,
                                                    common.CONFIG_TIME_STAMP: version.timestamp}]
        acl_yaml.write_data_object(path, data)
        # Differs: a change of accounts or addresses takes effect at once; in the original some changes wait for the
        # watch service
        self.load_file(path)
        return True

    def get_all_acl_config(self) -> AclConfig:
        """Return all accounts and addresses in the files, including secrets."""
        found = AclConfig()
        seen: set[str | None] = set()
        for path in acl_files(self.default_acl_dir, self.default_acl_file):
            content = AclFile.read(path)
            if content is None:
                continue
            found.globalWhiteAddrs += [text for text in content.global_white_addrs if text is not None]
            for config in content.accounts:
                if config.accessKey not in seen:
                    seen.add(config.accessKey)
                    found.plainAccessConfigs.append(config)
        return found

    def on_file_changed(self, acl_file_name: str) -> None:
        """Load a file that has changed; called by the watch service."""
        self.load_file(acl_file_name)

    def on_file_num_changed(self, _path: str) -> None:
        """Load all files, because some were added or removed; called by the watch service."""
        self.load()

    @staticmethod
    def check_perm(need_checked_access: PlainAccessResource, owned_access: PlainAccessResource) -> None:
        """Raise AclException unless the account has the permissions that the request needs."""
        code = need_checked_access.request_code
        if common.need_admin_perm(code) and not owned_access.admin:
            raise AclException(f"Need admin permission for request code={code}, but "
                               f"accessKey={owned_access.access_key} is not")
        PlainPermissionManager.check_needs(need_checked_access, owned_access)

    @staticmethod
    def check_needs(need_checked_access: PlainAccessResource, owned_access: PlainAccessResource) -> None:
        """Raise AclException unless the account has all needed permissions for topics and groups."""
        if _has_no_limits(owned_access):
            return
        by_resource: dict[str, list[int]] = {}
        for resource, perm in need_checked_access.needs():
            by_resource.setdefault(resource, []).append(perm)
        # The error names the first denied one.
        for resource in hash_map_order(by_resource):
            if not all(common.is_owned(owned_access, resource, perm) for perm in by_resource[resource]):
                raise AclException(f"No default permission for {print_str(resource, is_retry_topic(resource))}")

    def build_plain_access_resource(self, plain_access_config: PlainAccessConfig,
                                    path: str | None = None) -> PlainAccessResource:
        """Build an account from its texts. The AclException for an invalid text names the file and the key."""
        try:
            return self._build(plain_access_config)
        except AclException as error:
            if path is None:
                raise
            raise AclException(f"{path}: account {plain_access_config.accessKey}: {error}") from None

    def _build(self, config: PlainAccessConfig) -> PlainAccessResource:
        check_plain_access_config(config)
        resource = PlainAccessResource(config.accessKey, config.secretKey, config.whiteRemoteAddress, config.admin)
        resource.default_group_perm = common.parse_perm_from_string(config.defaultGroupPerm)
        resource.default_topic_perm = common.parse_perm_from_string(config.defaultTopicPerm)
        common.parse_resource_perms(resource, False, config.groupPerms)
        common.parse_resource_perms(resource, True, config.topicPerms)
        resource.remote_address_strategy = self._remote_address_strategy_factory.get_remote_address_strategy(
            config.whiteRemoteAddress)
        return resource

    def validate(self, plain_access_resource: PlainAccessResource) -> None:
        """Raise AclException unless the request may be served."""
        owned = self._owned(plain_access_resource)
        if owned is None:
            return
        if not _is_signed(plain_access_resource, owned.secret_key):  # type: ignore[arg-type]  # an account has one
            raise AclException(f"Check signature failed for accessKey={plain_access_resource.access_key}")
        self.check_perm(plain_access_resource, owned)

    def validate_needs(self, plain_access_resource: PlainAccessResource) -> None:
        """Raise AclException unless the sender of a permitted request also has the permissions in `needs`."""
        owned = self._owned(plain_access_resource)
        if owned is not None:
            self.check_needs(plain_access_resource, owned)

    def may_do_all(self, plain_access_resource: PlainAccessResource) -> bool:
        """Return whether the sender of a permitted request has no limits. AclException if the account was removed."""
        owned = self._owned(plain_access_resource)
        return owned is None or _has_no_limits(owned)

    def _owned(self, plain_access_resource: PlainAccessResource) -> PlainAccessResource | None:
        """Return the account of a request; None when its address is sufficient. AclException for an unknown account."""
        tables = self._tables
        for strategies in tables.global_white.values():
            for strategy in strategies:
                if strategy.match(plain_access_resource):
                    return None
        owned = _account(tables, plain_access_resource.access_key)
        account_strategy = owned.remote_address_strategy
        if account_strategy.match(plain_access_resource):  # type: ignore[union-attr]  # an account has one
            return None
        return owned


def check_plain_access_config(plain_access_config: PlainAccessConfig) -> None:
    """Raise AclException unless key and secret are set and long enough."""
    access_key, secret_key = plain_access_config.accessKey, plain_access_config.secretKey
    if (access_key is None or secret_key is None or len(access_key) <= common.ACCESS_KEY_MIN_LENGTH
            or len(secret_key) <= common.SECRET_KEY_MIN_LENGTH):
        # Differs: the secret of a new account is not logged, only returned to the client that sent it; the original
        # logs it
        begin = f"The accessKey={'null' if access_key is None else access_key} and secretKey="
        end = " cannot be null and length should longer than 6"
        if secret_key is None:
            raise AclException(f"{begin}null{end}")
        raise AclException(f"{begin}{HIDDEN}{end}", answer=begin + secret_key + end)


def create_acl_access_config_map(existed_account_map: dict[str, Any] | None,
                                 config: PlainAccessConfig) -> dict[str, Any]:
    """Return an account to write: the existing one, updated with the values of `config`."""
    account = {} if existed_account_map is None else existed_account_map
    for name in (common.CONFIG_ACCESS_KEY, common.CONFIG_SECRET_KEY):
        account[name] = getattr(config, name)
    if config.whiteRemoteAddress is not None:
        account[common.CONFIG_WHITE_ADDR] = config.whiteRemoteAddress
    account[common.CONFIG_ADMIN_ROLE] = config.admin
    for name in (common.CONFIG_DEFAULT_TOPIC_PERM, common.CONFIG_DEFAULT_GROUP_PERM):
        if getattr(config, name):
            account[name] = getattr(config, name)
    for name in (common.CONFIG_TOPIC_PERMS, common.CONFIG_GROUP_PERMS):
        if getattr(config, name) is not None:
            account[name] = list(getattr(config, name))
    return account


def _has_no_limits(owned: PlainAccessResource) -> bool:
    """Return whether the account is an admin without lists of permissions."""
    return owned.admin and owned.resource_perm_map is None


def _account(tables: _Tables, access_key: str | None) -> PlainAccessResource:
    if access_key is None:
        raise AclException("No accessKey is configured")
    path = tables.access_key_table.get(access_key)
    if path is None:
        raise AclException(f"No acl config for {access_key}")
    owned = tables.resources.get(path, {}).get(access_key)
    if owned is None:
        raise AclException(f"No PlainAccessResource for accessKey={access_key}")
    return owned


def _is_signed(resource: PlainAccessResource, secret_key: str) -> bool:
    given = (resource.signature or "").encode("utf-8", "replace")
    contents = (resource.content, resource.content_with_flag)
    return any(content is not None and hmac.compare_digest(cal_signature(content, secret_key).encode(), given)
               for content in contents)


def _key_of(account: Any) -> str | None:
    key = account.get(common.CONFIG_ACCESS_KEY) if isinstance(account, dict) else None
    return None if isinstance(key, (list, dict)) else acl_yaml.text_of(key)


def _without_key(tables: _Tables, access_key: str) -> _Tables:
    keys = {key: path for key, path in tables.access_key_table.items() if key != access_key}
    return _Tables(keys, tables.resources, tables.global_white, tables.data_versions)
