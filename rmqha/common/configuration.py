"""Configuration of a server: parsing of `-c` files, and reading, updating and saving of the keys at run time.

`SECRET_KEYS` and `FIXED_KEYS` list the keys that a server never shows, and those that no request may change: one list
for all servers, by key. A file may hold keys of several servers (a name server with an embedded controller), and an
UPDATE_*_CONFIG request writes the values that it changes to that file. A key that is fixed in one server is therefore
fixed in all, whether or not the server that receives the request knows it. `tests/common/test_config_keys.py` checks
every key of every config class against the lists: a new secret, path, name or address that is in none of them fails.

`load_config_file` reads a file; its errors name file, key and line. `Configuration` treats all config objects of a
server as one set of keys.
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
"""Never shown, and written to no file but the one that they came from."""

CHANGEABLE_TEXTS = frozenset({"deleteWhen", "namesrvAddr", "regionId", "productEnvName"})
"""Texts that may be changed all the same."""

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
    "etcdUser", "etcdPrefix", "metricsHost", "rmqAddressServerDomain", "rmqAddressServerSubGroup",
})
_PORTS = frozenset({"listenPort", "haListenPort", "metricsPort"})
_ROLES_AND_TRUST = frozenset({
    "brokerRole", "enableAutoSwitchHA", "enableControllerMode", "controllerLease", "enableDLegerCommitLog",
    "enableControllerInNamesrv", "controllerStore", "maxLeaseMillis", "etcdLeaseSeconds", "aclEnable", "useTLS",
    "configBlackList", "tls.enable", "tls.test.mode.enable", "tls.server.mode", "tls.server.need.client.auth",
    "tls.server.authClient", "tls.client.authServer",
})
_READ_AT_THE_START = frozenset({
    "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt", "mappedFileSize", "enableConsumeQueueExt", "maxHashSlotNum", "maxIndexNum",
    "enableLmq", "enableMultiDispatch", "messageDelayLevel", "haHandshakeEnable", "transientStorePoolEnable",
    "transientStorePoolSize", "preallocateMappedFile", "dataReadAheadEnable", "enableScheduleAsyncDeliver",
    "logFormat", "logTimeZone", "metricsNames",
})
FIXED_KEYS = SECRET_KEYS | _PATHS | _NAMES_AND_ADDRESSES | _PORTS | _ROLES_AND_TRUST | _READ_AT_THE_START
"""Not to be changed by a request: identity, paths, ports, roles, whom to trust, and what is read at the start only."""

_SECRET_NAME = "passw(or)?d|secret|token|credential|private.?key$"


def is_secret(key: str) -> bool:
    """Whether a key must not be shown: it is in the list, or its name says so (a key that no config class knows)."""
    return key in SECRET_KEYS or re.search(_SECRET_NAME, key, flags=re.IGNORECASE) is not None


def is_fixed(key: str) -> bool:
    """Whether no request may change a key."""
    return key in FIXED_KEYS or is_secret(key)


def refused_keys(wanted: Iterable[str], black_list: Iterable[str] = ()) -> list[str]:
    """Those of the keys in an UPDATE_*_CONFIG that may not be changed, sorted; `black_list`: the server's own."""
    black = {key.strip() for key in black_list} - {""}
    return sorted(key for key in wanted if key in black or is_fixed(key))


log = logging.getLogger("RocketmqCommon")


class ConfigError(Exception):
    """A configuration that a server cannot start with. Its text names the file, the line and the key, as known."""

    def __init__(self, message: str, file: str | None = None, key: str | None = None, line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{key}: {message}" if key else place + message)
        self.message = message
        self.file = file
        self.key = key
        self.line = line


_WORDS = "command line"  # stands where the name of a file does

Warn = Callable[[str], None]
Bad = Callable[[ConfigError], None]


def load_config_file(file: str, configs: Iterable[Any], other_keys: Iterable[str] = (), warn: Warn = log.warning,
                     bad: Bad | None = None) -> JavaProperties:
    """Read `file` and set its keys on each of the `configs`.

    Returns all properties, the unknown ones included. `warn` gets a text, with the nearest known name, for each key
    that neither a config object nor `other_keys` know. Raises ConfigError for a missing or malformed file and for
    values that do not fit (where Java silently keeps the default); of values `bad` gets them all instead, if given.
    """
    properties = read_config_file(file)
    targets = list(configs)
    _resolve_aliases(file, properties, targets, warn)
    _warn_unknown(file, properties, targets, other_keys, warn)
    for target in targets:
        # Differs: Java drops a bad value and goes on with the default
        properties2object(properties, target, lambda key, value, problem: _refused(file, properties, key, problem, bad))
    return properties


def take_words(words: Iterable[str], configs: Iterable[Any], warn: Warn) -> None:
    """Set the `key=value` words of a command line on each of the `configs`, over what a file says.

    `warn` gets a text for each word that is passed over: one without `=`, and a key that no config object knows.
    Raises ConfigError for a value that does not fit.
    """
    # Differs: `key=value` on the command line counts; Java passes such words over without a word
    targets, properties = list(configs), JavaProperties()
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            properties[key.strip()] = value.strip()
            properties.lines[key.strip()] = 1
        else:
            warn(f"{_WORDS}: {word[:80]!r} is passed over: neither an option nor key=value")
    _resolve_aliases(_WORDS, properties, targets, warn)
    _warn_unknown(_WORDS, properties, targets, (), lambda text: warn(f"{text}; it is passed over"))
    for target in targets:
        properties2object(properties, target, lambda key, value, problem: refuse(_WORDS, None, key, problem))


def words_to_properties(words: Iterable[str]) -> dict[str, str]:
    """The `key=value` words of a command line, for a look at some keys before `take_words`."""
    return {key.strip(): value.strip() for key, equals, value in (word.partition("=") for word in words) if equals}


def read_config_file(file: str) -> JavaProperties:
    """The properties in `file`. Raises ConfigError when it cannot be read or parsed."""
    try:
        with open(file, "rb") as stream:
            return java.load(stream.read())
    except OSError as failure:
        raise ConfigError(f"cannot read the config file: {os.strerror(failure.errno or 0)}", file) from failure
    except java.PropertiesError as failure:
        raise ConfigError(failure.message, file, line=failure.line) from failure


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """The known key that looks most like `key`, None when none comes near."""
    by_lower = {name.lower(): name for name in known}
    from difflib import get_close_matches  # for an error alone

    near = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def refuse(file: str | None, properties: JavaProperties | None, key: str, problem: str) -> NoReturn:
    """Raise the ConfigError of a key's value, with the line where `properties`, read from `file`, have it."""
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
                warn(f"{place}{old} is the old name of {new}, which is set too and wins")
                continue
            warn(f"{place}{old} is the old name of {new}; please rename it")
            _rename(properties, old, new)
        for key, field in config_keys(type(target)).items():
            # Differs: the name under which a server writes such a key into its file is read as the key, which wins
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


_FILE_ENCODING = "iso-8859-1"  # in which .properties files are read; what is beyond ASCII in values is escaped


class Configuration:
    """The registered config objects, and the keys of the file that belong to none of them.

    The file holds what people have written to it or set by a request, and nothing else: what a program derives (from
    the host, from other keys, from a role that changes) it derives again at the next start.
    Secret keys are kept apart: no text that is shown has them, and `persist` leaves them in a file that has them
    already, such as the one that the server was started with.

    Java: org.apache.rocketmq.common.Configuration (4.9.8)
    """

    def __init__(self, log: logging.Logger, *config_objects: Any, store_path: str | None = None) -> None:
        self._log = log
        self._lock = threading.RLock()
        self._config_objects: list[Any] = []  # guarded by _lock
        self._store_path = store_path  # guarded by _lock
        self._store_path_object: Any = None  # guarded by _lock; holds the path in its attribute _store_path_field
        self._store_path_field = ""
        self._data_version = DataVersion()  # guarded by _lock
        self._all_configs: dict[str, str] = {}  # guarded by _lock; objects' keys and all other ones
        self._secrets: dict[str, Secret] = {}  # guarded by _lock; what is_secret says of the same
        self._given: dict[str, str] = {}  # guarded by _lock; what the file held at the start, and updates
        self._unsaved: dict[str, str] = {}  # guarded by _lock; updates that the file lacks
        self._file_lock = threading.Lock()  # one writer of the file at a time; taken after _lock
        for config_object in config_objects:
            self.register_config(config_object)

    def register_config(self, config: Any) -> "Configuration":
        """Add a config object, or a mapping of properties that no object knows; None adds nothing."""
        with self._lock:
            if isinstance(config, Mapping):
                self._given.update(config)
                self._merge(config)
            elif config is not None:
                self._config_objects.append(config)
                self._merge_object(config)
        return self

    def share_file(self, other: "Configuration") -> None:
        """Take turns with `other`, which saves to the same file."""
        self._file_lock = other._file_lock

    def set_store_path_from_config(self, config_object: Any, field_name: str) -> None:
        """Save to the path that an attribute of `config_object` holds at that time. Raises AttributeError."""
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
        """Set the known ones of the keys on all objects, count the version up and save; unknown keys are dropped.

        Raises ConfigError, with nothing changed, when a value does not fit.
        """
        # Differs: Java passes a bad value over, and answers as if it were set
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
        """Set in the file at the store path what was updated, durably; a failure is logged.

        Whatever else the file holds stays, comments and its mode too. One that is gone is made again, without secrets.
        """
        # Differs: Java writes all keys, those of the program's own making too, and a later start takes them for given:
        # an address of a host that was replaced, a role that a controller gave
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
        """What the file shall hold."""
        try:
            with open(store_path, encoding=_FILE_ENCODING, newline="") as file:
                return java.edited(file.read(), self._unsaved)
        except FileNotFoundError:
            return mix_all.properties2string({key: value for key, value in self._given.items() if not is_secret(key)})

    def get_all_configs_format_string(self) -> str:
        """All keys but secrets as `key=value` lines: the objects' present values, then other keys of the file."""
        with self._lock:
            return self._all_configs_text()

    def get_data_version(self) -> DataVersion:
        """The version, counted up by each update; do not change it."""
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
