"""The JSON shape of kvConfig.json."""
from dataclasses import dataclass


@dataclass
class KVConfigSerializeWrapper:
    """Namespace -> key -> value.

    Java: org.apache.rocketmq.namesrv.kvconfig.KVConfigSerializeWrapper (4.9.8)
    """

    configTable: dict[str, dict[str, str]] | None = None
