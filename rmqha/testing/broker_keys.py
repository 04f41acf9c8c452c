"""The keys of broker.conf for the brokers of tests, of all backends: small stores, and patience on a busy machine."""
from __future__ import annotations

from collections.abc import Mapping

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import nearest_key
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.testing.cluster_parts import EmbeddedError, NotSupportedError

MIB = 1 << 20
SMALL = {"mappedFileSizeCommitLog": 8 * MIB, "mappedFileSizeConsumeQueue": 3_000 * 20, "maxHashSlotNum": 10_000,
         "maxIndexNum": 40_000, "cleanFileForciblyEnable": False}
"""Small files, so that an empty store needs little space. A commit log file has space for a message of maxMessageSize.
"""
PATIENT = {"waitTimeMillsInSendQueue": 60_000, "waitTimeMillsInPullQueue": 60_000,
           "waitTimeMillsInHeartbeatQueue": 60_000, "waitTimeMillsInTransactionQueue": 60_000,
           "osPageCacheBusyTimeOutMills": 60_000, "registerBrokerTimeoutMills": 60_000}
"""A machine that is busy with other tests must not make the broker report itself as busy."""
_OWN = {"brokerName", "brokerId", "brokerRole", "brokerIP1", "brokerIP2", "namesrvAddr", "listenPort", "haListenPort",
        "haMasterAddress", "storePathRootDir", "storePathCommitLog"}


def check_config(config: Mapping[str, object]) -> None:
    """Raise EmbeddedError for an unknown key, or one that the cluster sets itself. Values are checked at the start."""
    known = {key for one in (BrokerConfig, ServerConfig, MessageStoreConfig) for key in config_keys(one)}
    for key in config:
        _check_is_not_own(key)
        if key not in known:
            near = nearest_key(key, known)
            raise EmbeddedError(f"config: unknown key {key}" + (f", did you mean {near}?" if near else ""))


def check_java_config(config: Mapping[str, object], version: str) -> None:
    """Raise EmbeddedError as `check_config` does, and for a key that RocketMQ lacks. 5.x has keys of its own, which are
    not checked."""
    if version.startswith("4."):
        check_config(config)
    extensions = {key for one in (BrokerConfig, ServerConfig, MessageStoreConfig)
                  for key, item in config_keys(one).items() if item.metadata.get("extension")}
    for key in config:
        _check_is_not_own(key)
        if key in extensions:
            raise NotSupportedError(f"config: {key} is a key of rmqha, which RocketMQ {version} does not have")


def _check_is_not_own(key: str) -> None:
    if key in _OWN:
        raise EmbeddedError(f"config: {key} is set by the cluster for each broker and can't be changed")
