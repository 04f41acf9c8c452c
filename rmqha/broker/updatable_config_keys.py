"""Which config keys may be changed while the broker runs."""
from collections.abc import Iterable
from typing import Any

from rmqha.common.config_field import config_keys, key_types
from rmqha.common.config_value import base_type

# Texts are refused (paths, addresses, names, class names, lists), but for these:
_TEXTS = frozenset({"deleteWhen", "namesrvAddr", "regionId"})
# Numbers and switches are allowed, but for these: identity, ports, roles, file sizes and what is only read at boot.
_FIXED = frozenset({
    "brokerId", "brokerRole", "listenPort", "haListenPort", "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue",
    "mappedFileSizeConsumeQueueExt", "enableConsumeQueueExt", "maxHashSlotNum", "maxIndexNum",
    "enableAutoSwitchHA", "enableControllerMode", "controllerLease", "enableDLegerCommitLog", "enableLmq",
    "enableMultiDispatch", "aclEnable",
    "transientStorePoolEnable", "preallocateMappedFile", "dataReadAheadEnable", "enableScheduleAsyncDeliver",
    "transientStorePoolSize", "logFormat", "logTimeZone", "metricsPort", "metricsNames",
})


def allowed_keys(configs: Iterable[Any]) -> set[str]:
    """The keys of these config objects that UPDATE_BROKER_CONFIG may set."""
    allowed = set()
    for config in configs:
        types = key_types(type(config))
        for key, item in config_keys(type(config)).items():
            is_text = base_type(types[item.name]) is str
            if key not in _FIXED and (not is_text or key in _TEXTS):
                allowed.add(key)
    return allowed
