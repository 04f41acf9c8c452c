"""Accounts of access control, as tools describe them."""
from dataclasses import dataclass, field


@dataclass(slots=True)
class PlainAccessConfig:
    """A key, its secret, where it may come from and what it may do; permissions are texts as "topicA=DENY".

    Its text leaves the secret out.

    Java: org.apache.rocketmq.common.PlainAccessConfig (4.9.8)
    """

    accessKey: str | None = None
    secretKey: str | None = None
    whiteRemoteAddress: str | None = None
    admin: bool = False
    defaultTopicPerm: str | None = None
    defaultGroupPerm: str | None = None
    topicPerms: list[str] | None = None
    groupPerms: list[str] | None = None

    # Differs: a text of the fields; the original has none, so its tools print the object's address
    def __str__(self) -> str:
        return (f"PlainAccessConfig [accessKey={self.accessKey}, whiteRemoteAddress={self.whiteRemoteAddress}, "
                f"admin={str(self.admin).lower()}, defaultTopicPerm={self.defaultTopicPerm}, "
                f"defaultGroupPerm={self.defaultGroupPerm}, topicPerms={self.topicPerms}, "
                f"groupPerms={self.groupPerms}]")


@dataclass(slots=True)
class AclConfig:
    """What all account files together say.

    Java: org.apache.rocketmq.common.AclConfig (4.9.8)
    """

    globalWhiteAddrs: list[str] = field(default_factory=list)
    plainAccessConfigs: list[PlainAccessConfig] = field(default_factory=list)
