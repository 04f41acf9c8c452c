"""What one file of accounts says, as fastjson and SnakeYAML together understand it."""
from dataclasses import dataclass
from typing import Any

from rmqha.acl.common import acl_constants, acl_yaml
from rmqha.acl.common.acl_exception import AclException
from rmqha.common.data_version import DataVersion
from rmqha.common.topics import PlainAccessConfig

_TEXTS = (acl_constants.CONFIG_ACCESS_KEY, acl_constants.CONFIG_SECRET_KEY, acl_constants.CONFIG_WHITE_ADDR,
          acl_constants.CONFIG_DEFAULT_TOPIC_PERM, acl_constants.CONFIG_DEFAULT_GROUP_PERM)
_LISTS = (acl_constants.CONFIG_TOPIC_PERMS, acl_constants.CONFIG_GROUP_PERMS)
_FIELDS = {name.lower(): name for name in (*_TEXTS, *_LISTS, acl_constants.CONFIG_ADMIN_ROLE)}
_BOOLEANS = {"true": True, "1": True, "Y": True, "T": True, "false": False, "0": False, "F": False, "N": False,
             "": False, "null": False, "NULL": False}


@dataclass(frozen=True)
class AclFile:
    """The addresses that need no account, the accounts, and the version (a new one when the file has none)."""

    path: str
    global_white_addrs: list[str | None]
    accounts: list[PlainAccessConfig]
    data_version: DataVersion

    @classmethod
    def read(cls, path: str) -> "AclFile | None":
        """The file's content; None when there is none. AclException when it can't be understood."""
        data = acl_yaml.get_yaml_data_object(path)
        if not data:
            return None
        try:
            addresses = list_of(data, acl_constants.CONFIG_GLOBAL_WHITE_ADDRS)
            accounts = list_of(data, acl_constants.CONFIG_ACCOUNTS)
            return cls(path, [acl_yaml.text_of(address) for address in addresses],
                       [account_of(account, number) for number, account in enumerate(accounts, 1)],
                       version_of(list_of(data, acl_constants.CONFIG_DATA_VERSION)))
        except AclException as error:
            raise AclException(f"{path}: {error}") from None


def list_of(data: dict[str, Any], name: str) -> list[Any]:
    """The list under a name; empty when it is missing or null."""
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise AclException(f"{name}: a list is expected, not {type(value).__name__}")
    return value


def account_of(account: Any, number: int) -> PlainAccessConfig:
    """One element of `accounts`, the `number`th. Names match without regard to case, `_` and `-`, as for fastjson."""
    if not isinstance(account, dict):
        raise AclException(f"accounts, number {number}: accessKey, secretKey ... are expected, "
                           f"not {type(account).__name__}")
    config = PlainAccessConfig()
    for key, value in account.items():
        name = _FIELDS.get(str(key).replace("_", "").replace("-", "").lower())
        try:
            if name in _TEXTS:
                setattr(config, name, acl_yaml.text_of(value))
            elif name in _LISTS:
                setattr(config, name, None if value is None else [_resource(item) for item in _as_list(value)])
            elif name is not None:
                config.admin = _boolean(value)
        except AclException as error:
            raise AclException(f"accounts, number {number}, {name}: {error}") from None
    return config


def version_of(versions: list[Any]) -> DataVersion:
    """The first element of `dataVersion`; a new version when there is none."""
    version = DataVersion()
    if not versions:
        return version
    if not isinstance(versions[0], dict):
        raise AclException("dataVersion: a list of counter and timestamp is expected")
    try:
        counter, timestamp = (versions[0].get(name) for name in (acl_constants.CONFIG_COUNTER,
                                                                 acl_constants.CONFIG_TIME_STAMP))
        version.counter = version.counter if counter is None else int(counter)
        version.timestamp = version.timestamp if timestamp is None else int(timestamp)
    except (TypeError, ValueError, OverflowError):
        raise AclException("dataVersion: counter and timestamp must be whole numbers") from None
    return version


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise AclException(f"a list is expected, not {type(value).__name__}")


def _resource(value: Any) -> str:
    text = acl_yaml.text_of(value)
    if text is None:
        raise AclException("an empty element")
    return text


def _boolean(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return value == 1
    text = str(acl_yaml.text_of(value))  # None is of null alone
    if text.lower() in ("true", "false"):
        text = text.lower()
    if text not in _BOOLEANS:
        raise AclException(f"true or false is expected, not {text!r:.40}")
    return _BOOLEANS[text]
