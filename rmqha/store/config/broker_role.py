"""What a broker is within its master-slave pair."""
from enum import Enum


class BrokerRole(Enum):
    """Role of a broker; the name is the config value.

    Java: org.apache.rocketmq.store.config.BrokerRole (4.9.8)
    """

    ASYNC_MASTER = 0
    SYNC_MASTER = 1
    SLAVE = 2


# For every message: a look into the class takes fifteen times as long.
ASYNC_MASTER, SYNC_MASTER, SLAVE = BrokerRole
