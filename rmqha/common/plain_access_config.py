"""An account of access control, as tools describe it."""
from dataclasses import dataclass


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
