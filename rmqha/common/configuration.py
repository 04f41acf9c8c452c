"""Configuration of a server: parsing of `-c` files, and reading, updating and saving of the keys at run time.

`load_config_file` reads a file; its errors name file, key and line. `Configuration` treats all config objects of a
server as one set of keys.

The config file is read once, at the start. No signal and no watcher reads it again: a key changes at run time only by
an UPDATE_*_CONFIG request, which changes the config objects in memory and then the file. (The files that are watched
are certificates, see FileWatchService, and accounts, see AclFileWatchService.) Two rules keep file and memory in
agreement:

- The file gets only the keys that a request changed. Everything else in it stays: comments, order, keys of another
  server, and what an operator edited since the start. If the server wrote all its values, as Java does, the file would
  also fix values that were derived for this host or this role: the address of a host that has been replaced, or the
  role that a controller assigned last.
- A request is checked as a whole before any key changes. It changes all its keys or none, so that an invalid value
  leaves neither the objects nor the file half updated.

`SECRET_KEYS` and `FIXED_KEYS` list the keys that a server never shows, and those that no request may change. There is
one list for all servers. A file may hold keys of several servers (a name server with an embedded controller), and an
UPDATE_*_CONFIG request writes to that file. A key that is fixed in one server must therefore be fixed in all, whether
or not the server that receives the request knows it. `tests/common/test_config_keys.py` checks every key of every
config class against the lists: it fails for a new secret, path, name or address that is in none of them.
"""
import copy
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from rmqha.common import java, mix_all
from rmqha.common.config_keys import config_keys
from rmqha.common.data_version import DataVersion
from rmqha.common.java import JavaProperties
from rmqha.common.mix_all import properties2object
from rmqha.common.texts import Secret

SECRET_KEYS = frozenset({"etcdPassword", "tls.server.keyPassword", "tls.client.keyPassword"})
"""Keys that are never shown, and never written to a file other than the one that they came from."""

CHANGEABLE_TEXTS = frozenset({"deleteWhen", "namesrvAddr", "regionId", "productEnvName"})
"""Text keys that a request may change. All other text keys are fixed."""

_PATHS = frozenset({
    "rocketmqHome", "storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog",
    "readOnlyCommitLogStorePaths", "storePathEpochFile", "storePathBrokerIdentity", "kvConfigPath", "configStorePath",
    "brokerConfigPath", "controllerStorePath", "etcdCaFile", "etcdCertFile", "etcdKeyFile", "tls.config.file",
    "tls.server.keyPath", "tls.server.certPath", "tls.server.trustCertPath", "tls.client.keyPath",
    "tls.client.certPath", "tls.client.trustCertPath",
})
_NAMES_AND_ADDRESSES = frozenset({
    "brokerIP1", "brokerIP2", "brokerName", "brokerClusterName", "brokerId", "messageStorePlugIn", "msgTraceTopicName",
    "controllerAddr", "haMasterAddress", "haAllowedPeers", "dLegerGroup", "dLegerPeers", "dLegerSelfId",
    "preferredLeaderId", "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId", "etcdEndpoints",
    "etcdUser", "etcdPrefix", "masterAddress", "metricsHost", "rmqAddressServerDomain", "rmqAddressServerSubGroup",
})
_PORTS = frozenset({"listenPort", "haListenPort", "metricsPort"})
_ROLES_AND_TRUST = frozenset({
    "brokerRole", "enableAutoSwitchHA", "enableControllerMode", "controllerLease", "enableDLegerCommitLog",
    "enableControllerInNamesrv", "controllerStore", "maxLeaseMillis", "etcdLeaseSeconds", "aclEnable", "useTLS",
    "configBlackList", "relayToMaster", "onRoleChange", "tls.enable", "tls.test.mode.enable", "tls.server.mode",
    "tls.server.need.client.auth", "tls.server.authClient", "tls.client.authServer",
})
_READ_AT_THE_START = frozenset({
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt", "mappedFileSize", "enableConsumeQueueExt", "maxHashSlotNum", "maxIndexNum",
    "enableLmq", "enableMultiDispatch", "messageDelayLevel", "haHandshakeEnable", "transientStorePoolEnable",
    "transientStorePoolSize", "preallocateMappedFile", "dataReadAheadEnable", "enableScheduleAsyncDeliver",
    "logFormat", "logTimeZone", "metricsNames",
})
FIXED_KEYS = SECRET_KEYS | _PATHS | _NAMES_AND_ADDRESSES | _PORTS | _ROLES_AND_TRUST | _READ_AT_THE_START
"""Keys that no request may change: identity, paths, ports, roles, trust, and keys that are read only at the start."""

_SECRET_NAME = "passw(or)?d|secret|token|credential|private.?key$"


def is_secret(key: str) -> bool:
    """Return whether a key must not be shown: it is listed, or its name suggests a secret.

    The name decides for keys that belong to no config class.
    """
    return key in SECRET_KEYS or re.search(_SECRET_NAME, key, flags=re.IGNORECASE) is not None


def is_fixed(key: str) -> bool:
    """Return whether a key may not be changed by a request."""
    return key in FIXED_KEYS or is_secret(key)


def refused_keys(wanted: Iterable[str], black_list: Iterable[str] = ()) -> list[str]:
    """Return the keys of an UPDATE_*_CONFIG request that may not be changed, sorted.

    `black_list` is the server's configBlackList.
    """
    black = {key.strip() for key in black_list} - {""}
    return sorted(key for key in wanted if key in black or is_fixed(key))


log = logging.getLogger("RocketmqCommon")


class ConfigError(Exception):
    """A configuration that a server cannot start with. Its text names the file, the line and the key, where known."""

    def __init__(self, message: str, file: str | None = None, key: str | None = None, line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{key}: {message}" if key else place + message)
        self.message = message
        self.file = file
        self.key = key
        self.line = line


# The name of the source in messages, in place of a file name.
_WORDS = "command line"

Warn = Callable[[str], None]
Bad = Callable[[ConfigError], None]


def load_config_file(file: str, configs: Iterable[Any], other_keys: Iterable[str] = (), warn: Warn = log.warning,
                     bad: Bad | None = None) -> JavaProperties:
    """Read `file`, set its keys on each of the `configs`, and return all properties, unknown ones included.

    `warn` gets a text, with the nearest known name, for each key that neither a config object nor `other_keys` know.
    Raises ConfigError for a missing or malformed file and for invalid values (where Java silently keeps the default).
    If `bad` is given, it receives an error for each invalid value, and none is raised for them.
    """
    properties = read_config_file(file)
    targets = list(configs)
    _resolve_aliases(file, properties, targets, warn)
    _warn_unknown(file, properties, targets, other_keys, warn)
    for target in targets:
        # Differs: an invalid value in a config file is an error; Java drops it and keeps the default
        properties2object(properties, target, lambda key, value, problem: _refused(file, properties, key, problem, bad))
    return properties


def take_words(words: Iterable[str], configs: Iterable[Any], warn: Warn) -> None:
    """Set the `key=value` words of a command line on each of the `configs`; they override the file.

    `warn` gets a text for each word that is ignored: one without `=`, or with a key that no config object knows.
    Raises ConfigError for an invalid value.
    """
    # Differs: `key=value` on the command line is applied; Java silently ignores such words
    targets, properties = list(configs), JavaProperties()
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            properties[key.strip()] = value.strip()
            properties.lines[key.strip()] = 1
        else:
            warn(f"{_WORDS}: {word[:80]!r} is ignored: it is neither an option nor key=value")
    _resolve_aliases(_WORDS, properties, targets, warn)
    _warn_unknown(_WORDS, properties, targets, (), lambda text: warn(f"{text}; it is ignored"))
    for target in targets:
        properties2object(properties, target, lambda key, value, problem: refuse(_WORDS, None, key, problem))


def words_to_properties(words: Iterable[str]) -> dict[str, str]:
    """Return the `key=value` words of a command line, to read some keys before `take_words` sets them."""
    return {key.strip(): value.strip() for key, equals, value in (word.partition("=") for word in words) if equals}


def read_config_file(file: str) -> JavaProperties:
    """Return the properties in `file`. Raises ConfigError when it cannot be read or parsed."""
    try:
        with open(file, "rb") as stream:
            return java.load(stream.read())
    except OSError as failure:
        raise ConfigError(f"cannot read the config file: {os.strerror(failure.errno or 0)}", file) from failure
    except java.PropertiesError as failure:
        raise ConfigError(failure.message, file, line=failure.line) from failure


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """Return the known key that is most similar to `key`; None when none is similar enough."""
    by_lower = {name.lower(): name for name in known}
    from difflib import get_close_matches  # only for an error

    near = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def refuse(file: str | None, properties: JavaProperties | None, key: str, problem: str) -> NoReturn:
    """Raise a ConfigError about a key's value, with the key's line in `file` if `properties` know it."""
    raise ConfigError(problem, file, key, properties.lines.get(key) if properties is not None else None)


def _refused(file: str, properties: JavaProperties, key: str, problem: str, bad: Bad | None) -> None:
    if bad is None:
        refuse(file, properties, key, problem)
    bad(ConfigError(problem, file, key, properties.lines.get(key)))


def _resolve_aliases(file: str, properties: JavaProperties, targets: list[Any], warn: Warn) -> None:
    for target in targets:
        for old, new in getattr(target, "key_aliases", {}).items():
            if old not in properties:
                continue
            place = _place(file, properties, old)
            if new in properties:
                warn(f"{place}{old} is the old name of {new}, which is set too and takes precedence")
                continue
            warn(f"{place}{old} is the old name of {new}; please rename it")
            _rename(properties, old, new)
        for key, field in config_keys(type(target)).items():
            # Differs: a renamed key may also be given by its attribute's name, under which a server writes it to its
            # file; the key itself takes precedence
            if field.name != key and field.name in properties:
                if key in properties:
                    del properties[field.name]
                else:
                    _rename(properties, field.name, key)


def _rename(properties: JavaProperties, old: str, new: str) -> None:
    properties[new] = properties.pop(old)
    properties.lines[new] = properties.lines[old]


def _place(file: str, properties: JavaProperties, key: str) -> str:
    return f"{file}: " if file == _WORDS else f"{file}:{properties.lines[key]}: "


def _warn_unknown(file: str, properties: JavaProperties, targets: list[Any], other_keys: Iterable[str],
                  warn: Warn) -> None:
    known = {*other_keys}
    for target in targets:
        known.update(config_keys(type(target)), getattr(target, "key_aliases", {}))
    for key in properties.lines:
        if key in properties and key not in known:
            near = nearest_key(key, known)
            hint = f", did you mean {near}?" if near else ""
            warn(f"{_place(file, properties, key)}unknown key {key}{hint}")


# .properties files are read in this encoding; non-ASCII characters in values are written as escapes.
_FILE_ENCODING = "iso-8859-1"


class Configuration:
    """The registered config objects, and the keys of the file that belong to none of them.

    The file holds only what people wrote to it or set by a request. A value that the program derives (from the host,
    from other keys, from a role that changes) is derived again at the next start.
    Secret keys are kept apart. No text that is shown contains them. `persist` leaves them in a file that already has
    them, such as the one that the server was started with, and writes them to no other.

    Java: org.apache.rocketmq.common.Configuration (4.9.8)
    """

    def __init__(self, log: logging.Logger, *config_objects: Any, store_path: str | None = None) -> None:
        self._log = log
        self._lock = threading.RLock()
        self._config_objects: list[Any] = []  # guarded by _lock
        self._store_path = store_path  # guarded by _lock
        # The object that holds the path, in the attribute that _store_path_field names; guarded by _lock.
        self._store_path_object: Any = None
        self._store_path_field = ""
        self._data_version = DataVersion()  # guarded by _lock
        # All keys, of objects and of none, except secrets; guarded by _lock.
        self._all_configs: dict[str, str] = {}
        # The keys for which `is_secret` is true; guarded by _lock.
        self._secrets: dict[str, Secret] = {}
        # The file's keys at the start, and all updates since; guarded by _lock.
        self._given: dict[str, str] = {}
        # Updates that are not in the file yet; guarded by _lock.
        self._unsaved: dict[str, str] = {}
        # Held by the one writer of the file; taken after _lock.
        self._file_lock = threading.Lock()
        for config_object in config_objects:
            self.register_config(config_object)

    def register_config(self, config: Any) -> "Configuration":
        """Add a config object, or a mapping of properties that belong to no object. None adds nothing. Returns self."""
        with self._lock:
            if isinstance(config, Mapping):
                self._given.update(config)
                self._merge(config)
            elif config is not None:
                self._config_objects.append(config)
                self._merge_object(config)
        return self

    def share_file(self, other: "Configuration") -> None:
        """Share a lock with `other`, which saves to the same file, so that their writes do not overlap."""
        self._file_lock = other._file_lock

    def set_store_path_from_config(self, config_object: Any, field_name: str) -> None:
        """Save to the path that an attribute of `config_object` holds at the time of saving. Raises AttributeError."""
        getattr(config_object, field_name)
        with self._lock:
            self._store_path_object = config_object
            self._store_path_field = field_name

    @property
    def store_path(self) -> str | None:
        """The file that `persist` writes."""
        with self._lock:
            if self._store_path_object is not None:
                path: str | None = getattr(self._store_path_object, self._store_path_field)
                return path
            return self._store_path

    def update(self, properties: Mapping[str, str]) -> None:
        """Set the known keys on all objects, increment the version and save. Unknown keys are dropped.

        Raises ConfigError, with nothing changed, when a value is invalid.
        """
        # Differs: an invalid value in an update of a running server's configuration is an error; Java ignores it and
        # answers as if it were set
        with self._lock:
            for config_object in self._config_objects:
                mix_all.properties2object(properties, copy.copy(config_object), _refuse)
            changed = {key: value for key, value in properties.items() if self._knows(key)}
            self._merge({key: value for key, value in changed.items()
                         if key in self._all_configs or key in self._secrets})
            for config_object in self._config_objects:
                mix_all.properties2object(properties, config_object)
            self._given.update(changed)
            self._unsaved.update(changed)
            self._data_version.next_version()
        self.persist()

    def _knows(self, key: str) -> bool:
        return key in self._all_configs or key in self._secrets or any(
            key in config_keys(type(each)) for each in self._config_objects)

    def persist(self) -> None:
        """Write the updated keys to the file at the store path, durably. A failure is logged.

        Everything else in the file stays, including comments and the file's mode. A file that is missing is created
        again, without secrets.
        """
        # Differs: an update writes only the updated keys to the config file. Java writes all keys, derived values too,
        # and a later start takes them for configured: the address of a host that was replaced, or a role that a
        # controller assigned
        with self._lock, self._file_lock:
            store_path = self.store_path
            if store_path is None:
                self._log.error("persist string2File error, no store path")
                return
            try:
                mix_all.string2file(self._file_text(store_path), store_path, _FILE_ENCODING)
            except java.PropertiesError as failure:
                self._log.error("persist string2File error, %s is left as it is: %s", store_path, failure)
            except OSError:
                self._log.exception("persist string2File error, ")
            else:
                self._unsaved.clear()

    def _file_text(self, store_path: str) -> str:
        """Return the new text of the file."""
        try:
            with open(store_path, encoding=_FILE_ENCODING, newline="") as file:
                return java.edited(file.read(), self._unsaved)
        except FileNotFoundError:
            return mix_all.properties2string({key: value for key, value in self._given.items() if not is_secret(key)})

    def get_all_configs_format_string(self) -> str:
        """Return all keys except secrets as `key=value` lines: the objects' current values, then the file's other keys.
        """
        with self._lock:
            return self._all_configs_text()

    def get_data_version(self) -> DataVersion:
        """Return the version, which each update increments. The caller must not change it."""
        return self._data_version

    def _all_configs_text(self) -> str:
        for config_object in self._config_objects:
            self._merge_object(config_object)
        return mix_all.properties2string(self._all_configs)

    def _merge_object(self, config: Any) -> None:
        properties = mix_all.object2properties(config)
        secrets = {key: Secret.of(getattr(config, key)) for key in properties if is_secret(key)}
        self._secrets.update({key: secret for key, secret in secrets.items() if secret is not None})
        self._merge({key: value for key, value in properties.items() if key not in secrets})

    def _merge(self, properties: Mapping[str, str]) -> None:
        for key, value in properties.items():
            if is_secret(key):
                self._secrets[key] = Secret(value)
                continue
            old = self._all_configs.get(key)
            if old is not None and old != value:
                self._log.info("Replace, key: %s, value: %s -> %s", key, old, value)
            self._all_configs[key] = value


def _refuse(key: str, value: str, problem: str) -> None:
    raise ConfigError(problem, key=key)
