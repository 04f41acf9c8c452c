"""Settings that the replicas of one broker name share: after a failover the new master goes by its own."""
from collections.abc import Mapping, Sequence

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.mix_all import property_text
from rmqha.store.message_store_config import MessageStoreConfig

# What decides on how many disks an acknowledged message is, how soon a replica is left out, and what a log holds.
SHARED = ("minInSyncReplicas", "inSyncReplicas", "totalReplicas", "allAckInSyncStateSet", "enableAutoInSyncReplicas",
          "haMaxTimeSlaveNotCatchup", "haMaxGapNotInSync", "haSlaveFallbehindMax", "slaveTimeout", "flushDiskType",
          "syncFlushTimeout", "haSlaveAckAfterFlush", "controllerLease", "enableControllerMode", "controllerAddr",
          "maxMessageSize", "messageDelayLevel", "fileReservedTime")
ADVICE = ("set them alike on all: mqadmin updateBrokerConfig with -b HOST:PORT for each replica (-c reaches the "
          "present master only), or in each replica's file, and restart it")

Config = Mapping[str, str]


def roles_change(configs: Sequence[Config]) -> bool:
    """Whether replicas with these settings take over from each other while they run."""
    return any("true" in (config.get("enableControllerMode"), config.get("enableAutoSwitchHA")) for config in configs)


def differing(configs: Mapping[str, Config]) -> list[str]:
    """For each shared setting that is not the same everywhere: `key=2 at A and B, 1 at C`. By address, what each
    broker reports; a key that one does not know has its default there."""
    found = []
    for key in SHARED:
        places: dict[str, list[str]] = {}
        for address, config in sorted(configs.items()):
            if config:
                value = config.get(key, _DEFAULTS[key])
                if key == "controllerAddr":  # a set of addresses
                    value = ";".join(sorted(part.strip() for part in value.split(";") if part.strip()))
                places.setdefault(value, []).append(address)
        if len(places) > 1:
            first, *others = sorted(places.items(), key=lambda each: (-len(each[1]), each[0]))
            found.append(", ".join([f"{key}={first[0]} at {' and '.join(first[1])}",
                                    *(f"{value} at {' and '.join(where)}" for value, where in others)]))
    return found


def _defaults() -> dict[str, str]:
    values = {key: getattr(config, item.name) for config in (BrokerConfig(), MessageStoreConfig())
              for key, item in config_keys(type(config)).items() if key in SHARED}
    return {key: property_text(value) for key, value in values.items()}


_DEFAULTS = _defaults()
