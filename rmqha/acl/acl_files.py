"""Account files of access control: YAML as Java's SnakeYAML reads it, address patterns, and a watcher for changes.

YAML is read and written with PyYAML (the extra `acl`). A plain scalar has the type it has in Java: `12345678` is a
number, `1e3` too (unlike in PyYAML's own rules), and `yes` is a boolean. Where a string is expected, `text_of` converts
the value as Java does. `AclFile` is the content of one file, as SnakeYAML and fastjson together interpret it.

    timer, 5 s --> AclFileWatchService: checks the files -> notifies the listener (PlainPermissionManager loads)

Accounts take effect without a restart: an operator edits a file, or a request changes it, and the watcher loads it
within 5 s. A reload must never leave the broker open or locked. Three rules ensure that:

- A file is parsed and checked completely before it replaces the loaded accounts. If it is invalid, the previous
  accounts stay in force, and the error is logged. A file that was read half written changes again when the rest is
  written, and is then loaded.
- The tables are never changed in place. A new set of tables replaces the old one in one assignment, so that a request
  on another thread is checked against the old accounts or the new ones, not a mixture.
- The stamp of a file (mtime, size, inode) is taken before the file is read. A change during the read then has another
  stamp, and the next check loads the file again. In the other order the change could be missed until the next one.

Java: org.apache.rocketmq.acl.common.AclUtils (4.9.8)
"""
import functools
import importlib.util
import logging
import math
import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from rmqha.acl import common
from rmqha.acl.common import AclClientRPCHook, AclException, SessionCredentials
from rmqha.common.data_version import DataVersion
from rmqha.common.filesystem import how_to_install, replace_and_force
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.service_thread import ServiceThread
from rmqha.common.topics import PlainAccessConfig
from rmqha.remoting.protocol.fastjson import java_double

MAX_ALIASES_FOR_COLLECTIONS = 50
HOW_TO_INSTALL = f"it needs PyYAML: {how_to_install('acl')}"

_FLOAT = (
    r"""(?x)^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""")
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_STANDARD = "tag:yaml.org,2002:"
_ACCOUNT_TAG = _STANDARD + "org.apache.rocketmq.common.PlainAccessConfig"


def check_available(acl_enable: bool, bad_key: Callable[[str, str], object]) -> None:
    """Call `bad_key(key, what to install)` when access control is enabled and the library is missing."""
    if acl_enable and not is_available():
        bad_key("aclEnable", f"access control is enabled, {HOW_TO_INSTALL}")


def is_available() -> bool:
    """Return whether PyYAML is installed."""
    return importlib.util.find_spec("yaml") is not None


def get_yaml_data_object(path: str) -> dict[str, Any] | None:
    """Return the mapping in a file; None when it is missing or empty. AclException for any other contents.

    Java: org.apache.rocketmq.acl.common.AclUtils#getYamlDataObject (4.9.8)
    """
    try:
        with open(path, "rb") as file:
            data = loads(file.read())
    except FileNotFoundError:
        return None
    except (AclException, OSError) as error:
        raise AclException(f"{path}: {error}") from None
    if data is None:
        return None
    if not isinstance(data, dict):
        raise AclException(f"{path}: expected keys with values (accounts: ..., globalWhiteRemoteAddresses: ...), "
                           f"not a {type(data).__name__}")
    return data


def write_data_object(path: str, data: dict[str, Any]) -> None:
    """Replace a file by `data`, durably and atomically. Comments in it are lost. AclException when that fails.

    Java: org.apache.rocketmq.acl.common.AclUtils#writeDataObject (4.9.8)
    """
    # Differs: a temporary file with the old one's mode is renamed, so that the file is always complete, and a failure
    # leaves the old one; the original writes in place
    target = os.path.realpath(path)
    temporary = target + ".tmp"
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(dumps(data))
            file.flush()
            os.fsync(descriptor)
        replace_and_force(temporary, target)
    except OSError as error:
        raise AclException(f"{path} cannot be written: {error}") from error


def loads(content: bytes) -> Any:
    """Return the value of a YAML document; None when it is empty. AclException when it is not valid YAML."""
    yaml = _yaml()
    try:
        return yaml.load(content, Loader=_loader())
    except yaml.YAMLError as error:
        raise AclException(f"not valid YAML: {_problem(error)}") from None
    except (ValueError, OverflowError) as error:
        raise AclException(f"not valid YAML: a number is malformed: {error}") from None
    except RecursionError:
        raise AclException("not valid YAML: nested too deeply") from None


def _problem(error: Any) -> str:
    """Return what is wrong and where, without the line itself, which may contain a secret."""
    mark = getattr(error, "problem_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    parts.append(f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else None)
    return ", ".join(part for part in parts if part) or type(error).__name__


def dumps(data: dict[str, Any]) -> bytes:
    """Return the YAML of a mapping, keys in their order, one value per line."""
    text: bytes = _yaml().dump(data, Dumper=_dumper(), default_flow_style=False, sort_keys=False, allow_unicode=True,
                               encoding="utf-8")
    return text


def text_of(value: Any) -> str | None:
    """Return a scalar as the text that Java makes of it; None for null. AclException for lists and mappings."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_double(value) if math.isfinite(value) else _NOT_FINITE[str(value)]
    raise AclException(f"expected a text, not a {type(value).__name__}")


def _yaml() -> ModuleType:
    try:
        import yaml
    except ImportError:
        raise AclException(f"access control cannot read its files: {HOW_TO_INSTALL}") from None
    library: ModuleType = yaml
    return library


@functools.cache
def _loader() -> type:
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[name-defined,misc]  # an extra, imported late
        """PyYAML's safe loader, with SnakeYAML's numbers and limit of aliases."""

        aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """Return the next node. More aliases of collections than Java accepts are refused: they can multiply."""
            if self.check_event(yaml.AliasEvent):
                node = self.anchors.get(self.peek_event().anchor)
                if isinstance(node, yaml.CollectionNode):
                    self.aliases += 1
                    if self.aliases > MAX_ALIASES_FOR_COLLECTIONS:
                        raise yaml.composer.ComposerError(None, None, "Number of aliases for non-scalar nodes exceeds "
                                                          f"the specified max={MAX_ALIASES_FOR_COLLECTIONS}",
                                                          self.peek_event().start_mark)
            else:  # an anchor may be redefined
                self.anchors.pop(self.peek_event().anchor, None)
            return super().compose_node(parent, index)

    # Differs: a date stays the written text; Java makes a Date of it, whose text depends on the time zone
    _use_javas_scalars(Loader, "float", "timestamp", "value")
    Loader.add_constructor(_ACCOUNT_TAG, yaml.SafeLoader.construct_yaml_map)
    return Loader


@functools.cache
def _dumper() -> type:
    yaml = _yaml()

    class Dumper(yaml.SafeDumper):  # type: ignore[name-defined,misc]  # an extra, imported late
        """PyYAML's safe dumper, which also quotes texts that SnakeYAML would take for numbers."""

    _use_javas_scalars(Dumper, "float")
    return Dumper


def _use_javas_scalars(cls: Any, *without: str) -> None:
    """Replace PyYAML's implicit floats by SnakeYAML's, and remove the implicit types in `without`."""
    removed = [_STANDARD + name for name in without]
    cls.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in removed]
        for first, resolvers in cls.yaml_implicit_resolvers.items()}
    cls.add_implicit_resolver(_STANDARD + "float", re.compile(_FLOAT), list("-+0123456789."))


log = logging.getLogger("RocketmqCommon")

MAX_IPV4_PART = 255
MAX_IPV6_PART = 0xFFFF
_INTEGERS = {10: r"[+-]?[0-9]{1,9}", 16: r"[+-]?[0-9a-fA-F]{1,7}"}


def ipv6_address_check(netaddress: str) -> None:
    """Raise AclException when `*` is not at the end of an IPv6 pattern, or `-` not in the last part before it."""
    asterisk, minus = netaddress.find("*"), netaddress.find("-")
    if asterisk > -1 and asterisk != len(netaddress) - 1:
        raise scope_exception(netaddress)
    if minus > -1:
        colon = netaddress.rfind(":")
        if asterisk > -1:
            colon = netaddress.rfind(":", 0, max(colon, 0))
        if minus <= colon:
            raise scope_exception(netaddress)


def v6ip_process(netaddress: str) -> str:
    """Return the fixed parts of an IPv6 pattern, expanded."""
    asterisk, minus = is_asterisk(netaddress), is_minus(netaddress)
    head, _, _ = netaddress.rpartition(":")
    if asterisk and minus:
        return expand_ip(head.rpartition(":")[0], 6)
    if not asterisk and not minus:
        return expand_ip(netaddress, 8)
    return expand_ip(head, 7)


def verify(netaddress: str, index: int) -> None:
    """Raise AclException unless the first `index` parts are numbers in range."""
    if not is_scope(netaddress, index):
        raise scope_exception(netaddress)


def get_addresses(netaddress: str, partial_address: str) -> list[str]:
    """Return the addresses of `1.2.3.{4,5}`, whose last part is `partial_address`."""
    address = netaddress[:netaddress.index("{")]
    return [address + part for part in split(partial_address[1:-1], ",")]


def is_scope(netaddress: str, index: int) -> bool:
    """Return whether the first `index` parts of an address are numbers in range."""
    if is_colon(netaddress):
        return is_ipv6_scope(split(expand_ip(netaddress, 8), ":"), index)
    parts = split(netaddress, ".")
    return len(parts) == 4 and all(0 <= parse_int(part.strip(), 10) <= MAX_IPV4_PART for part in parts[:index])


def is_ipv6_scope(parts: list[str], index: int) -> bool:
    """Return whether the first `index` parts are hexadecimal numbers of 16 bits."""
    try:
        return len(parts) >= index and all(0 <= parse_int(part, 16) <= MAX_IPV6_PART for part in parts[:index])
    except AclException:
        return False


def is_colon(netaddress: str) -> bool:
    """Return whether an address looks like IPv6."""
    return ":" in netaddress


def is_asterisk(text: str) -> bool:
    """Return whether a text contains `*`."""
    return "*" in text


def is_comma(text: str) -> bool:
    """Return whether a text contains `,`."""
    return "," in text


def is_minus(text: str) -> bool:
    """Return whether a text contains `-`."""
    return "-" in text


def expand_ip(netaddress: str, part: int) -> str:
    """Return an IPv6 address with all its `part` parts, four upper-case digits each; an IPv4 address is unchanged."""
    netaddress = netaddress.upper()
    padding = part - netaddress.count(":")
    if padding > 0:
        netaddress = netaddress.replace("::", ":" * (1 + padding))
    return ":".join(text.rjust(4, "0") for text in netaddress.split(":")) if netaddress else ""


def split(text: str, separator: str) -> list[str]:
    """Return the parts that are not empty.

    Java: org.apache.commons.lang3.StringUtils#split
    """
    return [part for part in text.split(separator) if part]


def parse_int(text: str, base: int) -> int:
    """Return a number in an address. AclException when it is not a number."""
    # Differs: an invalid number in a file is an AclException that shows it, instead of a NumberFormatException
    if not re.fullmatch(_INTEGERS[base], text):
        raise AclException(f"Netaddress examine scope Exception: {text!r} is not a number")
    return int(text, base)


def scope_exception(netaddress: str) -> AclException:
    """Return the error for an invalid address pattern."""
    return AclException(f"Netaddress examine scope Exception netaddress is {netaddress}")


def get_acl_rpc_hook(file_name: str) -> AclClientRPCHook | None:
    """Return the hook that signs with accessKey and secretKey of a file such as conf/tools.yml.

    None, with a warning, when the file has none.
    """
    try:
        data = get_yaml_data_object(file_name)
        access_key = text_of((data or {}).get(common.CONFIG_ACCESS_KEY))
        secret_key = text_of((data or {}).get(common.CONFIG_SECRET_KEY))
    except AclException as error:
        log.error("Convert yaml file to data object error, %s", error)
        return None
    if not data:
        log.warning("Cannot find conf file :%s, acl isn't be enabled.", file_name)
        return None
    if not access_key or not access_key.strip() or not secret_key or not secret_key.strip():
        log.warning("AccessKey or secretKey is blank, the acl is not enabled.")
        return None
    return AclClientRPCHook(SessionCredentials(access_key, secret_key))


_TEXTS = (common.CONFIG_ACCESS_KEY, common.CONFIG_SECRET_KEY, common.CONFIG_WHITE_ADDR,
          common.CONFIG_DEFAULT_TOPIC_PERM, common.CONFIG_DEFAULT_GROUP_PERM)
_LISTS = (common.CONFIG_TOPIC_PERMS, common.CONFIG_GROUP_PERMS)
_FIELDS = {name.lower(): name for name in (*_TEXTS, *_LISTS, common.CONFIG_ADMIN_ROLE)}
_BOOLEANS = {"true": True, "1": True, "Y": True, "T": True, "false": False, "0": False, "F": False, "N": False,
             "": False, "null": False, "NULL": False}


@dataclass(frozen=True)
class AclFile:
    """The contents of a file: the addresses that need no account, the accounts, and the version (new without one)."""

    path: str
    global_white_addrs: list[str | None]
    accounts: list[PlainAccessConfig]
    data_version: DataVersion

    @classmethod
    def read(cls, path: str) -> "AclFile | None":
        """Return the file's contents; None when it is missing or empty. AclException when it is invalid."""
        data = get_yaml_data_object(path)
        if not data:
            return None
        try:
            addresses = list_of(data, common.CONFIG_GLOBAL_WHITE_ADDRS)
            accounts = list_of(data, common.CONFIG_ACCOUNTS)
            return cls(path, [text_of(address) for address in addresses],
                       [account_of(account, number) for number, account in enumerate(accounts, 1)],
                       version_of(list_of(data, common.CONFIG_DATA_VERSION)))
        except AclException as error:
            raise AclException(f"{path}: {error}") from None


def list_of(data: dict[str, Any], name: str) -> list[Any]:
    """Return the list under a name; an empty list when it is missing or null."""
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise AclException(f"{name}: expected a list, not {type(value).__name__}")
    return value


def account_of(account: Any, number: int) -> PlainAccessConfig:
    """Return the account of the `number`th element of `accounts`.

    Names match without regard to case, `_` and `-`, as in fastjson.
    """
    if not isinstance(account, dict):
        raise AclException(f"accounts, number {number}: expected accessKey, secretKey ..., "
                           f"not {type(account).__name__}")
    config = PlainAccessConfig()
    for key, value in account.items():
        name = _FIELDS.get(str(key).replace("_", "").replace("-", "").lower())
        try:
            if name in _TEXTS:
                setattr(config, name, text_of(value))
            elif name in _LISTS:
                setattr(config, name, None if value is None else [_resource(item) for item in _as_list(value)])
            elif name is not None:
                config.admin = _boolean(value)
        except AclException as error:
            raise AclException(f"accounts, number {number}, {name}: {error}") from None
    return config


def version_of(versions: list[Any]) -> DataVersion:
    """Return the first element of `dataVersion`; a new version for an empty list."""
    version = DataVersion()
    if not versions:
        return version
    if not isinstance(versions[0], dict):
        raise AclException("dataVersion: expected a list of counter and timestamp")
    try:
        counter, timestamp = (versions[0].get(name) for name in (common.CONFIG_COUNTER,
                                                                 common.CONFIG_TIME_STAMP))
        version.counter = version.counter if counter is None else int(counter)
        version.timestamp = version.timestamp if timestamp is None else int(timestamp)
    except (TypeError, ValueError, OverflowError):
        raise AclException("dataVersion: counter and timestamp must be whole numbers") from None
    return version


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    raise AclException(f"expected a list, not {type(value).__name__}")


def _resource(value: Any) -> str:
    text = text_of(value)
    if text is None:
        raise AclException("an empty element")
    return text


def _boolean(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return value == 1
    text = str(text_of(value))  # None only for null
    if text.lower() in ("true", "false"):
        text = text.lower()
    if text not in _BOOLEANS:
        raise AclException(f"expected true or false, not {text!r:.40}")
    return _BOOLEANS[text]


WATCH_INTERVAL_MS = 5000
_SUFFIXES = (".yml", ".yaml")
# Of folders; links may form cycles.
_MAX_DEPTH = 32


class Listener(Protocol):
    """The receiver of notifications about changed files.

    Java: org.apache.rocketmq.srvutil.AclFileWatchService$Listener (4.9.8)
    """

    def on_file_changed(self, acl_file_name: str) -> None:
        """A file has changed."""

    def on_file_num_changed(self, path: str) -> None:
        """Files were added to the folder or removed from it."""


class AclFileWatchService(ServiceThread):
    """Notifies a listener of changes in a folder of account files and in the default file.

    Java: org.apache.rocketmq.srvutil.AclFileWatchService (4.9.8)
    """

    def __init__(self, path: str, default_acl_file: str, listener: Listener) -> None:
        super().__init__()
        self.daemon = True
        self._acl_path = path
        self._default_acl_file = default_acl_file
        self._listener = listener
        # Stamp by file; used only by this thread once it runs.
        self._known: dict[str, tuple[int, int, int] | None] = {}

    def remember(self) -> None:
        """Take the stamps of all files. Call this before reading the files."""
        self._known = self._stamps()

    def run(self) -> None:
        log.info("%s service started", self.get_service_name())
        while not self.stopped:
            self.wait_for_running(WATCH_INTERVAL_MS)
            if self.stopped:
                break
            try:
                self.look()
            except Exception:
                # An invalid file; the previous accounts stay in force.
                log.exception("%s service has exception.", self.get_service_name())
        log.info("%s service end", self.get_service_name())

    def look(self) -> None:
        """Check the files once, and notify the listener of changes since the last check."""
        known, self._known = self._known, self._stamps()
        # Differs: a different set of account files counts as a change of their number, even if the number is the same
        if known.keys() != self._known.keys():
            log.info("aclFilesNum: %d  realAclFilesNum: %d", len(known), len(self._known))
            self._listener.on_file_num_changed(self._acl_path)
            return
        for file_name, stamp in self._known.items():
            if stamp != known[file_name]:
                self._notify_listener(file_name)

    def _notify_listener(self, file_name: str) -> None:
        try:
            self._listener.on_file_changed(file_name)
        except Exception:
            # One invalid file must not delay the changes of the others.
            log.exception("%s: %s could not be loaded; its previous contents stay in force", self.get_service_name(),
                          file_name)

    def _stamps(self) -> dict[str, tuple[int, int, int] | None]:
        return {file: _stamp(file) for file in acl_files(self._acl_path, self._default_acl_file)}


def acl_files(folder: str, default_acl_file: str) -> list[str]:
    """Return all .yml and .yaml files below a folder (none when it is missing), and the default file if it exists."""
    files = _below(folder, _MAX_DEPTH)
    if default_acl_file not in files and os.path.exists(default_acl_file):
        files.append(default_acl_file)
    return files


def _below(folder: str, depth: int) -> list[str]:
    if depth == 0:
        raise OSError(f"{folder}: folders are nested too deeply; a link may form a cycle")
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        log.debug("The default acl dir %s is not exist", folder)
        return []
    found = []
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(_SUFFIXES):
            found.append(path)
        elif os.path.isdir(path):
            found += _below(path, depth - 1)
    return found


def _stamp(file: str) -> tuple[int, int, int] | None:
    """Return the properties that change with a file: mtime (ns), size, inode; None when it was removed."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
