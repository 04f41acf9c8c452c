"""All of access control's accounts and addresses."""
from dataclasses import dataclass, field

from rmqha.common.plain_access_config import PlainAccessConfig


@dataclass(slots=True)
class AclConfig:
    """What all account files together say.

    Java: org.apache.rocketmq.common.AclConfig (4.9.8)
    """

    globalWhiteAddrs: list[str] = field(default_factory=list)
    plainAccessConfigs: list[PlainAccessConfig] = field(default_factory=list)
