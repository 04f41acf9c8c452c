"""A small persistent key-value store, one file."""
import logging
import threading

from rmqha.common import mix_all
from rmqha.common.configuration import ConfigError
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol.namespace_util import NAMESPACE_ORDER_TOPIC_CONFIG
from rmqha.common.protocol.table_bodies import KVTable
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import remoting_serializable

log = logging.getLogger("RocketmqNamesrv")


MAX_CHARACTERS = 8 << 20  # of all namespaces, keys and values
# Characters that are added to the size of each entry.
_ENTRY_OVERHEAD = 64


@dataclass
class KVConfigSerializeWrapper:
    """The contents of the file: namespace -> key -> value.

    Java: org.apache.rocketmq.namesrv.kvconfig.KVConfigSerializeWrapper (4.9.8)
    """

    configTable: dict[str, dict[str, str]] | None = None


class KVConfigManager:
    """The table namespace -> key -> value, saved after each change.

    Java: org.apache.rocketmq.namesrv.kvconfig.KVConfigManager (4.9.8)
    """

    def __init__(self, namesrv_config: NamesrvConfig) -> None:
        self._config = namesrv_config
        self._lock = threading.Lock()
        self._persist_lock = threading.Lock()  # one writer of the file; taken before _lock
        self._config_table: dict[str, dict[str, str]] = {}  # guarded by _lock
        self._size = 0  # of the table, in characters; guarded by _lock

    def load(self) -> None:
        """Read the file, or its backup if the file is missing or malformed.

        Raises ConfigError if a file exists but none can be read.
        """
        path = self._config.kvConfigPath
        problems = []
        # Differs: a KV config file that is missing or malformed is read from its backup; Java does not read the backup
        # here, and exits with an exception when the file is malformed
        for file_name in (path, path + ".bak"):
            try:
                content = mix_all.file2string(file_name)
                if content is not None:
                    self._take(content)
                    log.info("load KV config table OK, %s", file_name)
                    return
            except (OSError, ValueError) as failure:
                log.warning("Load KV config table exception, %s: %s", file_name, failure)
                problems.append(f"{file_name}: {failure}")
        if problems:
            raise ConfigError("the KV config cannot be read: " + "; ".join(problems))

    def _take(self, content: str) -> None:
        wrapper = remoting_serializable.from_json(KVConfigSerializeWrapper, content)
        with self._lock:
            self._config_table.update(wrapper.configTable or {})
            self._size = sum(_size(namespace, "") + sum(_size(key, value) for key, value in kv_table.items())
                             for namespace, kv_table in self._config_table.items())

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value and save the table. Raises RemotingCommandException when the table is full."""
        with self._lock:
            kv_table = self._config_table.get(namespace)
            old = (kv_table or {}).get(key)
            size = (self._size + _size(key, value) + (0 if kv_table is not None else _size(namespace, ""))
                    - (_size(key, old) if old is not None else 0))
            # Differs: the KV config has at most 8 Mi characters; the original has no limit
            if size > max(MAX_CHARACTERS, self._size):
                raise RemotingCommandException(f"the KV config is full: at most {MAX_CHARACTERS} characters")
            self._size = size
            if kv_table is None:
                kv_table = self._config_table[namespace] = {}
                log.info("putKVConfig create new Namespace %s", namespace)
            kind = "update" if key in kv_table else "create new"
            kv_table[key] = value
        log.info("putKVConfig %s config item, Namespace: %s Key: %s Value: %s", kind, namespace, key, value)
        self.persist()

    def persist(self) -> None:
        """Write the file durably. A failure is logged."""
        path = self._config.kvConfigPath
        with self._persist_lock:
            with self._lock:
                content = remoting_serializable.to_json(KVConfigSerializeWrapper(self._config_table))
            try:
                mix_all.string2file(content, path)
            except OSError:
                log.exception("persist kvconfig Exception, %s", path)

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Remove a value and save the table; do nothing if the value does not exist."""
        with self._lock:
            kv_table = self._config_table.get(namespace, {})
            if key not in kv_table:
                return
            value = kv_table.pop(key)
            self._size -= _size(key, value)
            # Differs: a namespace of the KV config is removed with its last key, except that of the ordered topics,
            # which brokers get even when it is empty; the original keeps all names, and writes the file even when
            # nothing was deleted
            if not kv_table and namespace != NAMESPACE_ORDER_TOPIC_CONFIG:
                del self._config_table[namespace]
                self._size -= _size(namespace, "")
        log.info("deleteKVConfig delete a config item, Namespace: %s Key: %s Value: %s", namespace, key, value)
        self.persist()

    def get_kv_list_by_namespace(self, namespace: str) -> bytes | None:
        """Return the namespace as an encoded KVTable; None if it does not exist."""
        with self._lock:
            kv_table = self._config_table.get(namespace)
            return None if kv_table is None else remoting_serializable.encode(KVTable(kv_table))

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """Return a value; None if it does not exist."""
        with self._lock:
            return self._config_table.get(namespace, {}).get(key)

    def print_all_periodically(self) -> None:
        """Log all values."""
        with self._lock:
            items = [(namespace, key, value) for namespace, kv_table in self._config_table.items()
                     for key, value in kv_table.items()]
            size = len(self._config_table)
        log.info("--------------------------------------------------------")
        log.info("configTable SIZE: %d", size)
        for namespace, key, value in items:
            log.info("configTable NS: %s Key: %s Value: %s", namespace, key, value)


def _size(key: str, value: str) -> int:
    return len(key) + len(value) + _ENTRY_OVERHEAD
