"""Which config keys a server shows, and which may be changed while it runs: one list for all servers, by key.

A file may hold keys of several servers (a name server with a controller within itself), and whoever sends an
UPDATE_*_CONFIG has what he changes written to that file. So a key that is fixed in one server is fixed in all, whether
or not the server that is asked knows it. `tests/common/test_config_access.py` holds every key of every config class
against the lists: a new secret, path, name or address that is in none of them fails there.
"""
import re
from collections.abc import Iterable

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

_SECRET_NAME = re.compile("passw(or)?d|secret|token|credential|private.?key$", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Whether a key must not be shown: it is in the list, or its name says so (a key that no config class knows)."""
    return key in SECRET_KEYS or _SECRET_NAME.search(key) is not None


def is_fixed(key: str) -> bool:
    """Whether no request may change a key."""
    return key in FIXED_KEYS or is_secret(key)


def refused_keys(wanted: Iterable[str], black_list: Iterable[str] = ()) -> list[str]:
    """Those of the keys in an UPDATE_*_CONFIG that may not be changed, sorted; `black_list`: the server's own."""
    black = {key.strip() for key in black_list} - {""}
    return sorted(key for key in wanted if key in black or is_fixed(key))
