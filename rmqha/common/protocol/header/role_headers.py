"""Headers of role changes."""
from dataclasses import dataclass

from rmqha.common.protocol.command_custom_header import (
    INTEGER,
    LONG,
    CommandCustomHeader,
    HeaderFieldError,
    not_null,
    nullable,
)

INT_MAX = (1 << 31) - 1


@dataclass
class NotifyBrokerRoleChangedRequestHeader(CommandCustomHeader):
    """Who is the master of a broker's replicas from now on (NOTIFY_BROKER_ROLE_CHANGED).

    The replica with the id `masterBrokerId` becomes it, the others follow it. `masterHaAddress`, which 5.1.4 does not
    have: "host:port" of its HA port; None: the slave learns it from the name server.

    Java: org.apache.rocketmq.remoting.protocol.header.NotifyBrokerRoleChangedRequestHeader (5.1.4)
    """

    masterAddress: str | None = None
    masterEpoch: int = nullable(INTEGER)
    syncStateSetEpoch: int | None = nullable(INTEGER)
    masterBrokerId: int = nullable(LONG)
    masterHaAddress: str | None = None

    def check_fields(self) -> None:
        """A role change needs a master and its epoch."""
        if self.masterBrokerId is None or self.masterEpoch is None or not 0 < self.masterEpoch <= INT_MAX:
            raise HeaderFieldError(f"masterBrokerId is {self.masterBrokerId}, masterEpoch {self.masterEpoch}: a role "
                                   "change needs both")


@dataclass
class HandoverMasterRequestHeader(CommandCustomHeader):
    """rmqha's own: a master is to stop taking messages, and to answer when the replica of that id holds all.

    It waits `timeoutMillis` for that at most, then refuses, and takes messages again. It does so by itself, too, when
    its role has not changed one second behind its answer.
    """

    brokerId: int | None = not_null(LONG)
    timeoutMillis: int | None = nullable(LONG, default=1000)


@dataclass
class HandoverMasterResponseHeader(CommandCustomHeader):
    """rmqha's own: where the log of both ends."""

    maxOffset: int | None = nullable(LONG)
