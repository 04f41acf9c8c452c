"""All config objects of a server as one set of keys that can be read, updated and saved while it runs."""
import copy
import logging
import threading
from collections.abc import Mapping
from typing import Any

from rmqha.common import java_properties, mix_all
from rmqha.common.config_access import is_secret
from rmqha.common.config_field import config_keys
from rmqha.common.config_file import ConfigError
from rmqha.common.data_version import DataVersion
from rmqha.common.secret import Secret

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
            except java_properties.PropertiesError as failure:
                self._log.error("persist string2File error, %s is left as it is: %s", store_path, failure)
            except OSError:
                self._log.exception("persist string2File error, ")
            else:
                self._unsaved.clear()

    def _file_text(self, store_path: str) -> str:
        """What the file shall hold."""
        try:
            with open(store_path, encoding=_FILE_ENCODING, newline="") as file:
                return java_properties.edited(file.read(), self._unsaved)
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
